"""What NumPy changed: names that programs get back, and what is said of exceptions."""

import sys
import warnings
from importlib import import_module
from unittest.mock import patch

import numpy as np
import pytest

from chainer_profile.integrations.numpy_changes import OldNames, advice
from chainer_profile.numpy_names import GONE_SINCE, WRITE, value

#: What programs wrote, and what NumPy 1.23.5 gave.
GAVE = {
    "np.float(2)": "2.0",
    "np.unicode_('a')": "a",
    "np.NINF": "-inf",
    "np.NZERO": "-0.0",
    "np.math.sqrt(4)": "2.0",
    "np.VisibleDeprecationWarning.__name__": "VisibleDeprecationWarning",
    "np.product([2, 3])": "6",
    "np.in1d([1, 2], [2])": "[False  True]",
    "np.trapz([1, 2])": "1.5",
    "np.safe_eval('[1]')": "[1]",
    "np.mat([1, 2])": "[[1 2]]",
    "np.asscalar(np.array([3]))": "3",
    "np.asfarray([1, 2]).dtype": "float64",
    "np.asfarray([1, 2], 'f').dtype": "float32",
    "np.asfarray([1, 2], 'i').dtype": "float64",
    "np.cast['int32']([1.5])": "[1]",
    "np.cast[np.float32](2).dtype": "float32",
    "np.find_common_type([np.float32], [np.int64, np.float64])": "float32",
    "np.find_common_type([], [np.int64, np.float32, complex])": "complex128",
    "np.find_common_type(['i2'], ['f4'])": "float32",
    "np.msort([[2, 1], [1, 2]])": "[[1 1]\n [2 2]]",
    "np.fastCopyAndTranspose(np.ones((2, 3))).shape": "(3, 2)",
    "np.nbytes[np.float32]": "4",
    "np.obj2sctype('f4').__name__": "float32",
    "np.sctype2char('f4')": "f",
    "[kind.__name__ for kind in np.sctypes['int']]": "['int8', 'int16', 'int32', 'int64']",
    "np.MachAr().eps": "2.220446049250313e-16",
    "np.disp('said')": "None",
}
#: What old programs do that nobody can give back, and what they are told to write.
CHANGED = {
    "np.ones(3).tostring()": "NumPy removed ndarray.tostring; write x.tobytes()",
    "np.ones(3).ptp()": "write np.ptp(x)",
    "int(np.array([3]))": "write x.item() for an array of one element, or take the newest "
    'NumPy that still does it: python -m pip install "numpy<2.4"',
    "float(np.ones((1, 1)))": "write x.item()",
    "'%d' % np.ones(1)": "write x.item()",
    "'%x' % np.ones(1, int)": "write x.item()",
    "np.array([[1], [1, 2]])": "write np.array(rows, dtype=object)",
    "np.array([1.5], copy=False)": "write np.asarray(x)",
    "np.uint8(300)": "write np.array(number).astype(np.uint8)",
    "np.fromstring(b'abcd', 'f')": "write np.frombuffer(x, dtype).copy()",
    "np.stack(np.ones(2) for _ in range(2))": "np.stack(list(arrays))",
}
#: Names that this NumPy has removed: an older one has some of them still.
GONE = sorted(name for name in WRITE if name not in vars(np))


@pytest.mark.filterwarnings("ignore")  # of those whose meaning may change
def test_every_name_is_something_and_gone_again_afterwards():
    assert {"float", "NaN", "product", "sctypes"} <= set(GONE)
    assert not {"bool", "long", "ulong"} & set(WRITE)  # they have another meaning today
    with OldNames():
        for name in WRITE:
            assert value(name) is not None
        for name in GONE:
            assert getattr(np, name) is value(name), name
        assert np.linalg is import_module("numpy.linalg")
        with pytest.raises(AttributeError, match="zeross"):
            np.zeross  # noqa: B018
    assert [name for name in GONE if hasattr(np, name)] == []


def test_old_names_give_what_they_gave():
    with OldNames(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is only deprecated in this NumPy
        assert {code: str(eval(code, {"np": np})) for code in GAVE} == GAVE


def test_the_note_tells_names_of_the_program_with_their_places():
    def use(file):
        exec(compile("\n\nnp.float, np.float, np.NaN", file, "exec"), {"np": np})

    with OldNames() as names:
        use("/env/lib/python3.12/site-packages/old/package.py")
        assert names.note == ""
        use("/home/me/train.py")
        use("/home/me/net.py")
        exec(compile("from numpy import product", "net.py", "exec"))
    assert names.note == (
        "run gave the program names back that NumPy removed. Write "
        f"float for np.float (train.py:3, gone since NumPy {GONE_SINCE['float']}), "
        "np.nan for np.NaN (train.py:3, gone since NumPy 2.0), "
        "np.prod for np.product (net.py:1, gone since NumPy 2.0)"
    )


def test_numpy_imported_later_gets_them_too(tmp_path, monkeypatch):
    (tmp_path / "numpy.py").write_text("def __getattr__(name): raise AttributeError(name)")
    monkeypatch.syspath_prepend(tmp_path)
    before = list(sys.meta_path)
    with patch.dict(sys.modules):
        del sys.modules["numpy"]
        with OldNames(), OldNames():
            import numpy

            assert numpy.__file__ == str(tmp_path / "numpy.py")
            assert float is float
            with pytest.raises(AttributeError, match="bool"):
                numpy.bool  # noqa: B018
        assert not hasattr(numpy, "float")
        del sys.modules["numpy"]
        with OldNames():
            pass
    assert sys.meta_path == before


@pytest.mark.filterwarnings("ignore")
def test_what_changed_and_what_to_write():
    said = {}
    for code in CHANGED:
        try:
            eval(code, {"np": np})  # this NumPy may not have changed it yet
        except Exception as error:
            said[code] = advice(error)
    assert said
    assert [code for code, words in said.items() if CHANGED[code] not in words] == []
    # Nothing is said of other errors.
    for code in ("np.zeross", "np.ones(2).zeross", "int('x')", "1 / 0", "no"):
        with pytest.raises(Exception) as caught:  # noqa: PT011
            eval(code, {"np": np})
        assert not advice(caught.value), code
    assert not advice(KeyboardInterrupt())
    assert not advice(None)
