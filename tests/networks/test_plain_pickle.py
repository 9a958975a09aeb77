"""Reading pickles of plain values, and nothing else."""

import os
import pickle
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

from chainer_profile.networks.plain_pickle import load_plain_pickle


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_values_come_back(protocol):
    value = {
        "a": [1, 2.5, None, True],
        b"b": ("x", ()),
        "c": np.arange(6, dtype=">i2").reshape(2, 3),
    }
    back = load_plain_pickle(BytesIO(pickle.dumps(value, protocol)))
    assert back.keys() == value.keys()
    assert back["a"] == value["a"]
    assert back[b"b"] == value[b"b"]
    assert back["c"].dtype.newbyteorder("=") == np.int16  # NumPy may swap while it reads
    np.testing.assert_array_equal(back["c"], value["c"])


@pytest.mark.parametrize("value", [print, Path("x"), os.system, np.random.RandomState, complex])
def test_anything_else_is_refused(value):
    with pytest.raises(pickle.UnpicklingError, match="it asks for"):
        load_plain_pickle(BytesIO(pickle.dumps(value)))


def test_a_damaged_pickle():
    content = pickle.dumps({"a": np.arange(100)})
    for end in (0, 1, 10, len(content) // 2, len(content) - 1):
        with pytest.raises(pickle.UnpicklingError):
            load_plain_pickle(BytesIO(content[:end]))


def test_a_pickle_cannot_leave_anything_behind():
    # Hands {"x": 1} as the state of the function that stands for numpy's _reconstruct.
    name = b"cnumpy.core.multiarray\n_reconstruct\n"
    changed = load_plain_pickle(BytesIO(name + b"}Vx\nI1\nsb."))
    assert changed.x == 1
    assert not hasattr(load_plain_pickle(BytesIO(name + b".")), "x")


def forged(dtype, shape, data):
    """A pickle of an array whose parts do not go together."""

    class Forged:
        def __reduce__(self):
            reconstruct = np.empty(0).__reduce__()[0]
            return reconstruct, (np.ndarray, (0,), b"b"), (1, shape, dtype, False, data)

    return BytesIO(pickle.dumps(Forged()))


def test_a_forged_array_is_refused():
    np.testing.assert_array_equal(load_plain_pickle(forged(np.dtype("u1"), (2,), b"ab")), [97, 98])
    for dtype, shape, data in [
        (np.dtype("u1"), (3,), b"ab"),
        (np.dtype("u1"), (-1, -2), b"ab"),
        (np.dtype("f8"), (2**61,), b""),
        (np.dtype("O"), (1,), b"12345678"),
        (np.dtype("O"), (2,), [1]),
        (np.dtype("u1"), (2,), [1, 2]),
        (np.dtype([("a", "O")]), (1,), b"12345678"),
        (np.dtype("V8"), (1,), b"12345678"),
    ]:
        with pytest.raises(pickle.UnpicklingError):
            load_plain_pickle(forged(dtype, shape, data))
