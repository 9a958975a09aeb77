"""GPUs, as far as they can be tested without one: each missing part is named in one line."""

import sys
from types import SimpleNamespace

import chainer
import chainer.links as L
import numpy as np
import pytest

from chainer_profile.measure.clock import HOST_CLOCK
from chainer_profile.measure.devices import CudaQueue, _left_on_host, clock_of, move_to_gpu
from tests.refusing import refusal

INSTALL = "python -m pip install -r requirements-gpu.txt"

#: CuPy's message when one of its libraries is missing.
LIBRARY = "libcublas.so.12: cannot open shared object file"
NOT_IMPORTED = f'''
raise ImportError("""
================================================================
Failed to import CuPy.

If you installed CuPy via wheels (cupy-cudaXXX), make sure that the package matches with the
version of CUDA installed.

Original error:
  ImportError: {LIBRARY}
================================================================
""")
'''
NOT_THERE = "CuPy cannot be imported ({}); reinstall it: " + INSTALL


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (NOT_IMPORTED, NOT_THERE.format(f"ImportError: {LIBRARY}")),
        (None, f"CuPy is not installed; install it with: {INSTALL}"),
    ],
)
def test_a_cupy_that_cannot_be_imported(source, message, tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    if source is None:
        monkeypatch.setattr(sys, "path", [])
    else:
        (tmp_path / "cupy.py").write_text(source)
        monkeypatch.syspath_prepend(str(tmp_path))
    assert refusal(move_to_gpu, None, None, 0) == f"--gpu 0: {message}"


def gives(value):
    return lambda: value


def raises(words):
    def refuse(*_):
        raise RuntimeError(words)

    return refuse


CPU = "; leave out --gpu to run on the CPU"
OLD_DRIVER = (
    "the driver supports CUDA up to 12.4, but CuPy 14.2.0 needs 13.2: update the driver, or "
    "install cupy-cuda12x instead"
)
UNUSABLE = "CuPy 14.2.0 finds no usable CUDA driver or device ({})" + CPU
# CUDA's message about a driver that is too old is also its message about no driver.
TOO_OLD, NONE_FOUND = "cudaErrorInsufficientDriver: too old", "cudaErrorNoDevice: no CUDA-capable"


@pytest.mark.parametrize(
    ("count", "driver", "message"),
    [
        (raises(TOO_OLD), gives(0), "CuPy 14.2.0 finds no NVIDIA driver" + CPU),
        (raises(TOO_OLD), gives(12040), OLD_DRIVER),
        (raises(TOO_OLD), raises("no"), UNUSABLE.format(TOO_OLD)),
        (raises(NONE_FOUND), gives(13000), UNUSABLE.format(NONE_FOUND)),
        (gives(0), None, "this machine has no visible GPU" + CPU),
        (gives(1), None, "no such device; this machine has only --gpu 0"),
        (gives(2), None, "no such device; this machine has --gpu 0 to 1"),
    ],
)
def test_a_gpu_that_is_not_there(count, driver, message, cupy):
    vars(cupy.cuda.runtime).update(
        getDeviceCount=count, driverGetVersion=driver, runtimeGetVersion=gives(13020)
    )
    assert refusal(move_to_gpu, None, None, 2) == f"--gpu 2: {message}"


@pytest.fixture
def log(cupy):
    """The commands that the device got."""
    return cupy.queue.log


@pytest.fixture
def device(cupy, log, monkeypatch):
    """Chainer's device for it."""
    made = SimpleNamespace(
        use=lambda: log.append("use"), send=lambda array: [*array, "there"], xp=cupy
    )
    real = chainer.get_device
    monkeypatch.setattr(
        chainer, "get_device", lambda name: made if name == "@cupy:0" else real(name)
    )
    return made


def network(to_device, *links):
    return SimpleNamespace(to_device=to_device, namedlinks=lambda: links)


def test_the_network_moves_and_reading_the_clock_does_not_wait(device, log):
    model = network(lambda to: log.append("moved" if to is device else "?"))
    array, clock = move_to_gpu(model, ["image"], 0)
    assert (array, log) == (["image", "there"], ["use", "moved"])
    assert isinstance(clock.device, CudaQueue)
    clock.now_ns()
    assert log == ["use", "moved"]
    clock.waiting().now_ns()
    assert log == ["use", "moved", "synchronize"]
    for of_host in (chainer.get_device("@numpy"), SimpleNamespace(xp=object())):
        assert clock_of(of_host) is HOST_CLOCK


class There(np.ndarray):
    """An array on the device that Chainer takes here."""


def on_device():
    """A network that is on the device as a whole."""
    model = chainer.Chain(bn=L.BatchNormalization(3), later=L.Linear(None, 2))  # without a W yet
    model.add_persistent("none", np.zeros(2, np.float32).view(There))
    for name, value in (("step", 3), ("rate", np.float32(0.1)), ("scalar", np.array(1.5))):
        model.add_persistent(name, value)
    for param in model.params():
        if param.array is not None:
            param.array = param.array.view(There)
    for name in ("avg_mean", "avg_var"):
        setattr(model.bn, name, getattr(model.bn, name).view(There))
    return model


def test_arrays_that_stay_on_the_host_are_named(cupy, device):
    model = network(lambda _: None, *chainer.Sequential(L.Linear(2, 1)).namedlinks())
    assert refusal(move_to_gpu, model, ["image"], 0) == (
        "--gpu 0: /0/W of the network stays on the host. Let the network's to_device or "
        "device_resident_accept move it, and keep no copies of arrays"
    )
    cupy.ndarray = There
    assert _left_on_host(on_device(), cupy) == ""
    on_host = np.zeros(3, np.float32)
    for path in ("/bn/gamma", "/bn/beta", "/bn/avg_mean", "/bn/avg_var", "/none"):
        model = on_device()
        owner = model if path == "/none" else model.bn
        name = path.rpartition("/")[2]
        if isinstance(getattr(owner, name), chainer.Parameter):
            getattr(owner, name).array = on_host
        else:
            setattr(owner, name, on_host)
        assert _left_on_host(model, cupy) == path
