"""Names that NumPy removed work under run, and other changes of NumPy get advice."""

import numpy as np
import pytest

from chainer_profile.integrations.numpy_changes import OldNames, advice
from chainer_profile.numpy_names import GONE_SINCE, WRITE, value

#: Code of old programs, and the results of NumPy 1.23.5.
OLD_RESULTS = {
    "np.float(2)": "2.0",
    "np.unicode_('a')": "a",
    "np.NINF": "-inf",
    "np.NZERO": "-0.0",
    "np.math.sqrt(4)": "2.0",
    "np.VisibleDeprecationWarning.__name__": "VisibleDeprecationWarning",
    "np.safe_eval('[1]')": "[1]",
    "np.mat([1, 2])": "[[1 2]]",
    "np.asscalar(np.array([3]))": "3",
    "np.asfarray([1, 2]).dtype": "float64",
    "np.cast['int32']([1.5])": "[1]",
    "np.find_common_type([np.float32], [np.int64, np.float64])": "float32",
    "np.msort([[2, 1], [1, 2]])": "[[1 1]\n [2 2]]",
    "np.fastCopyAndTranspose(np.ones((2, 3))).shape": "(3, 2)",
    "np.nbytes[np.float32]": "4",
    "[kind.__name__ for kind in np.sctypes['int']]": "['int8', 'int16', 'int32', 'int64']",
    "np.MachAr().eps": "2.220446049250313e-16",
    "np.disp('said')": "None",
}
#: Removed names that the installed NumPy lacks. Older versions still have some of them.
GONE = [name for name in WRITE if name not in vars(np)]
pytestmark = pytest.mark.filterwarnings("ignore")  # deprecated names warn


def test_old_names_have_their_old_values_only_within_the_context():
    assert {"float", "NaN", "product", "sctypes"} <= set(GONE)
    assert not {"bool", "long", "ulong"} & set(WRITE)  # these names have another meaning today
    with OldNames():
        assert {code: str(eval(code, {"np": np})) for code in OLD_RESULTS} == OLD_RESULTS
        for name in GONE:
            assert getattr(np, name) is value(name) is not None, name
        with pytest.raises(AttributeError, match="zeross"):
            np.zeross  # noqa: B018
    assert [name for name in GONE if hasattr(np, name)] == []


def test_note_lists_old_names_with_lines_of_the_program():
    def use(file):
        exec(compile("\n\nnp.float, np.float, np.NaN", file, "exec"), {"np": np})

    with OldNames() as names:
        use("/env/lib/python3.12/site-packages/old/package.py")
        assert names.note == ""
        use("/home/me/train.py")
        use("/home/me/net.py")
        exec(compile("from numpy import product", "net.py", "exec"))
    assert names.note == (
        "names that NumPy removed were restored. Write "
        f"float for np.float (train.py:3, gone since NumPy {GONE_SINCE['float']}), "
        "np.nan for np.NaN (train.py:3, gone since NumPy 2.0), "
        "np.prod for np.product (net.py:1, gone since NumPy 2.0)"
    )


#: Code of old programs that fails, and parts of the advice.
FAILS = {
    "np.array([[1], [1, 2]])": "write np.array(rows, dtype=object)",
    "np.array([1, 2], np.int32).astype(float).__array__(copy=False, dtype=int)": "np.asarray(x)",
    "np.uint8(300)": "that uint8 cannot hold; write np.array(number).astype(np.uint8)",
    "np.stack(x for x in [[1], [2]])": "write np.stack(list(arrays))",
}


@pytest.mark.parametrize("code", FAILS)
def test_errors_caused_by_changes_of_numpy_get_advice(code):
    with pytest.raises((AttributeError, TypeError, ValueError, OverflowError)) as raised:
        eval(code, {"np": np})
    assert FAILS[code] in advice(raised.value)
    assert advice(ValueError("of the program")) == advice(KeyError("inhomogeneous shape")) == ""
