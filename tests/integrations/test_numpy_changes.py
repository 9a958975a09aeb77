"""What NumPy changed: what is said of the exceptions that programs end by."""

import numpy as np
import pytest

from chainer_profile.integrations.numpy_changes import advice

#: What old programs do, and what they are told to write.
CHANGED = {
    "np.float": "NumPy removed np.float; write float",
    "np.object": "write object",
    "np.unicode": "write str",
    "np.float_": "write np.float64",
    "np.NaN": "write np.nan",
    "np.asscalar(x)": "write x.item()",
    "np.product(x)": "NumPy removed np.product; write np.prod",
    "np.ones(3).tostring()": "NumPy removed ndarray.tostring; write x.tobytes()",
    "np.ones(3).ptp()": "write np.ptp(x)",
    "int(np.array([3]))": "write x.item()",
    "float(np.ones((1, 1)))": "write x.item()",
    "np.array([[1], [1, 2]])": "write np.array(rows, dtype=object)",
    "np.array([1.5], copy=False)": "write np.asarray(x)",
    "np.uint8(300)": "write np.array(number).astype(np.uint8)",
    "np.fromstring(b'abcd', 'f')": "write np.frombuffer(x, dtype).copy()",
    "np.stack(np.ones(2) for _ in range(2))": "np.stack(list(arrays))",
}


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
    with pytest.raises(ImportError) as caught:
        exec("from numpy import asscalar")
    assert advice(caught.value) == "NumPy removed np.asscalar; write x.item()"
    # Nothing is said of other errors.
    for code in ("np.zeross", "np.ones(2).zeross", "int('x')", "1 / 0", "no"):
        with pytest.raises(Exception) as caught:  # noqa: PT011
            eval(code, {"np": np})
        assert not advice(caught.value), code
    assert not advice(KeyboardInterrupt())
    assert not advice(None)
