"""The stand-in for CuPy in tests/fake_cupy does as CuPy does, where the package relies on it."""

import numpy as np
import pytest


def test_arrays_are_on_their_side(cupy):
    host = np.arange(6, dtype=np.float32).reshape(2, 3)
    x = cupy.asarray(host)
    assert cupy.asarray(x) is x
    assert cupy.get_array_module(x) is cupy
    assert cupy.get_array_module(host) is np
    for value in (x.sum(), x[0, 1], x.T, np.exp(x), cupy.maximum(1, x)):
        assert isinstance(value, cupy.ndarray)
    x[:, 0] = 7
    x += 1
    assert x.get().tolist() == [[8, 2, 3], [8, 5, 6]]
    assert host[0, 0] == 0
    for mixed in (lambda: x + host, lambda: host + x, lambda: cupy.maximum(x, host)):
        with pytest.raises(TypeError, match=r"^Unsupported type <class 'numpy.ndarray'>$"):
            mixed()
    with pytest.raises(TypeError, match=r"^Implicit conversion to a NumPy array is not allowed"):
        np.asarray(x)
    with pytest.raises(AttributeError, match=r"^module 'cupy' has no attribute 'no_such_name'$"):
        _ = cupy.no_such_name


def test_launches_are_in_the_queue(cupy):
    x = cupy.zeros(3)
    cupy.cuda.runtime.deviceSynchronize()
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    begin.record()
    for _ in range(3):
        x += 1
    _ = x.T, x[1:], cupy.empty(3)  # nothing to do for the device
    end.record(cupy.cuda.get_current_stream())
    assert (begin.done, end.done) == (True, False)
    assert x.get().tolist() == [3, 3, 3]  # waits for the device
    assert end.done
    # The first is launched after 2 us, the others while it runs.
    assert cupy.cuda.get_elapsed_time(begin, end) == pytest.approx(0.032)


def test_blocks_of_the_pool(cupy, monkeypatch):
    monkeypatch.setattr(cupy, "memory_nbytes", 8192)
    pool = cupy.get_default_memory_pool()
    x = cupy.zeros((10, 100), np.float32)
    view = x[1:].T
    del x  # the view has all of the block
    assert (pool.used_bytes(), pool.total_bytes()) == (4096, 4096)
    y = view + 1
    del view
    assert (y.nbytes, pool.used_bytes(), pool.free_bytes()) == (3600, 4096, 4096)
    assert cupy.cuda.runtime.memGetInfo() == (0, 8192)
    with pytest.raises(MemoryError, match=r"^Out of memory allocating 4,608 bytes"):
        cupy.zeros(4097, np.uint8)
