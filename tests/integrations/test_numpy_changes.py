"""What NumPy changed: what is said of the exceptions that programs end by."""

from __future__ import annotations

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


def advice_for(code):
    try:
        eval(code, {"np": np})
    except Exception as error:
        return advice(error)
    pytest.skip("this NumPy has not changed it yet")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("code", CHANGED)
def test_what_changed_and_what_to_write(code):
    assert CHANGED[code] in advice_for(code)


def test_names_of_imports_too():
    with pytest.raises(ImportError) as caught:
        exec("from numpy import asscalar")
    assert advice(caught.value) == "NumPy removed np.asscalar; write x.item()"


@pytest.mark.parametrize("code", ["np.zeross", "np.ones(2).zeross", "int('x')", "1 / 0", "no"])
def test_nothing_is_said_of_other_errors(code):
    with pytest.raises(Exception) as caught:  # noqa: PT011
        eval(code, {"np": np})
    assert not advice(caught.value)
    assert not advice(KeyboardInterrupt())
    assert not advice(None)
