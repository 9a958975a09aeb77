"""Moving networks to a fake GPU, and messages about missing software and devices."""

import sys
from types import SimpleNamespace

import chainer
import chainer.links as L
import numpy as np
import pytest

from chainer_profile.measure.clock import HOST_CLOCK
from chainer_profile.measure.devices import CudaQueue, clock_of, move_to_gpu
from tests.command import raising
from tests.refusing import refusal

INSTALL = "python -m pip install -r requirements-gpu.txt"
#: CuPy's message when one of its libraries is missing.
LIBRARY = "libcublas.so.12: cannot open shared object file"
NOT_IMPORTED = f'''
raise ImportError("""
================================================================
Failed to import CuPy.

Original error:
  ImportError: {LIBRARY}
================================================================
""")
'''


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            NOT_IMPORTED,
            f"CuPy cannot be imported (ImportError: {LIBRARY}); reinstall it: {INSTALL}",
        ),
        ("", f"CuPy is not installed; install it with: {INSTALL}"),
    ],
)
def test_message_about_missing_or_broken_cupy(source, message, tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    if source:
        (tmp_path / "cupy.py").write_text(source)
    assert refusal(move_to_gpu, None, None, 0) == f"--gpu 0: {message}"


CPU = "; leave out --gpu to run on the CPU"
# CUDA reports a missing driver as a driver that is too old.
TOO_OLD, NONE_FOUND = "cudaErrorInsufficientDriver: too old", "cudaErrorNoDevice: no CUDA-capable"


@pytest.mark.parametrize(
    ("count", "driver", "message"),
    [
        (TOO_OLD, 0, "CuPy 14.2.0 finds no NVIDIA driver" + CPU),
        (
            TOO_OLD,
            12040,
            "the driver supports CUDA up to 12.4, but CuPy 14.2.0 needs 13.2: update the driver, "
            "or install cupy-cuda12x instead",
        ),
        (
            NONE_FOUND,
            13000,
            f"CuPy 14.2.0 finds no usable CUDA driver or device ({NONE_FOUND}){CPU}",
        ),
        (0, None, "this machine has no visible GPU" + CPU),
        (1, None, "no such device; this machine has only --gpu 0"),
        (2, None, "no such device; this machine has --gpu 0 to 1"),
    ],
)
def test_message_about_missing_driver_or_gpu(count, driver, message, cupy):
    vars(cupy.cuda.runtime).update(
        getDeviceCount=raising(RuntimeError(count)) if isinstance(count, str) else lambda: count,
        driverGetVersion=lambda: driver,
        runtimeGetVersion=lambda: 13020,
    )
    assert refusal(move_to_gpu, None, None, 2) == f"--gpu 2: {message}"


@pytest.fixture
def device(cupy, monkeypatch):
    """A Chainer device that uses the fake CuPy."""
    cupy.ndarray = type("DeviceArray", (np.ndarray,), {})
    device = SimpleNamespace(use=lambda: None, send=lambda a: a.view(cupy.ndarray), xp=cupy)
    stock = chainer.get_device
    monkeypatch.setattr(
        chainer, "get_device", lambda name: device if name == "@cupy:0" else stock(name)
    )
    return device


def moving(device, left=""):
    """Make a network with parameters, averages and numbers, whose array ``left`` does not move."""
    model = chainer.Chain(bn=L.BatchNormalization(3), later=L.Linear(None, 2))  # no W yet
    for name, value in (("own", np.zeros(2)), ("step", 3), ("scalar", np.array(1.5))):
        model.add_persistent(name, value)

    def to_device(to):
        assert to is device
        for path, param in model.namedparams(include_uninit=False):
            if path != left:
                param.array = to.send(param.array)
        for link, name in ((model, "own"), (model.bn, "avg_mean"), (model.bn, "avg_var")):
            if not left.endswith(name):
                setattr(link, name, to.send(getattr(link, name)))

    model.to_device = to_device
    return model


def test_move_to_gpu_returns_a_clock_that_does_not_wait(cupy, device):
    array, clock = move_to_gpu(moving(device), np.zeros(3), 0)
    assert isinstance(array, cupy.ndarray)
    assert isinstance(clock.device, CudaQueue)
    clock.now_ns()
    assert cupy.queue.log == []
    clock.waiting().now_ns()
    assert cupy.queue.log == ["synchronize"]
    assert clock_of(SimpleNamespace(xp=np)) is HOST_CLOCK


@pytest.mark.parametrize("path", ["/bn/gamma", "/bn/avg_mean", "/own"])
def test_message_names_an_array_that_stays_on_the_host(device, path):
    assert refusal(move_to_gpu, moving(device, path), np.zeros(3), 0) == (
        f"--gpu 0: {path} of the network stays on the host. Let the network's to_device or "
        "device_resident_accept move it, and keep no copies of arrays"
    )


def test_unused_blocks_of_the_memory_pool_count_as_free(cupy):
    queue = CudaQueue(cupy)
    before = queue.memory_nbytes()
    cupy.empty(4096, np.uint8)
    assert queue.memory_nbytes() == before
    allocated = cupy.empty(4096, np.uint8)
    assert queue.memory_nbytes() == (before[0] - allocated.nbytes, before[1])
