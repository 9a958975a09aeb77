"""GPUs, as far as they can be tested without one: what is missing is said in one line."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import chainer
import chainer.links as L
import numpy as np
import pytest

from chainer_profile.measure.clock import HOST_CLOCK
from chainer_profile.measure.devices import CudaQueue, _left_on_host, clock_of, move_to_gpu, use_gpu
from tests.command import OWN, process
from tests.refusing import refusal

INSTALL = "python -m pip install -r requirements-gpu.txt"

#: What CuPy says when one of its libraries is missing.
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
_PACKAGE = """
__version__ = "13.6.0"

class ndarray:
    pass

class _Runtime:
    def getDeviceCount(self):
        {count}
    def runtimeGetVersion(self):
        return 13020
    def driverGetVersion(self):
        return {driver}

class cuda:
    runtime = _Runtime()
"""


def package(count, driver=13000):
    """Source of a CuPy whose runtime counts devices, and knows its driver, like that."""
    return _PACKAGE.format(count=count, driver=driver)


def put_cupy(folder, source):
    """A package of that name; gives the folder that belongs on the path."""
    (folder / "fake" / "cupy").mkdir(parents=True)
    (folder / "fake" / "cupy" / "__init__.py").write_text(source)
    return str(folder / "fake")


CPU = "; leave out --gpu to run on the CPU"
OLD_DRIVER = (
    "the driver supports CUDA up to 12.4, but CuPy 13.6.0 needs 13.2: update the driver, or "
    "install cupy-cuda12x instead"
)
NOT_THERE = "CuPy cannot be imported ({}); reinstall it: " + INSTALL
UNUSABLE = "CuPy 13.6.0 finds no usable CUDA driver or device ({})" + CPU
# What CUDA says of a driver that is too old it says of none as well.
TOO_OLD, NONE_FOUND = "cudaErrorInsufficientDriver: too old", "cudaErrorNoDevice: no CUDA-capable"
REFUSES = f'raise RuntimeError("{TOO_OLD}")'
NO_DRIVER = package(REFUSES, 0)


@pytest.mark.parametrize(
    ("source", "gpu", "message"),
    [
        (NOT_IMPORTED, 0, NOT_THERE.format(f"ImportError: {LIBRARY}")),
        ('raise OSError("something else")', 0, NOT_THERE.format("something else")),
        ("import missing", 0, NOT_THERE.format("No module named 'missing'")),
        (NO_DRIVER, 0, "CuPy 13.6.0 finds no NVIDIA driver" + CPU),
        (package(REFUSES, 12040), 0, OLD_DRIVER),
        (package(REFUSES, "1 / 0"), 0, UNUSABLE.format(TOO_OLD)),
        (package(f'raise RuntimeError("{NONE_FOUND}")'), 0, UNUSABLE.format(NONE_FOUND)),
        (package("return 0"), 0, "this machine has no visible GPU" + CPU),
        (package("return 1"), 7, "no such device; this machine has only --gpu 0"),
        (package("return 2"), 2, "no such device; this machine has --gpu 0 to 1"),
        (None, 0, f"CuPy is not installed; install it with: {INSTALL}"),
    ],
)
def test_what_is_missing_is_said(source, gpu, message, tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    if source is None:
        monkeypatch.setattr(sys, "path", [])
    else:
        monkeypatch.syspath_prepend(put_cupy(tmp_path, source))
    assert refusal(move_to_gpu, None, None, gpu) == f"--gpu {gpu}: {message}"
    sys.modules.pop("cupy", None)  # what monkeypatch deletes it brings back


@pytest.fixture
def log(cupy):
    """What the device was told."""
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


def refuse(*_):
    raise RuntimeError("all devices\nare busy")


def test_the_network_moves_and_reading_the_clock_does_not_wait(device, cupy, log):
    assert use_gpu(0) is device
    model = network(lambda to: log.append("moved" if to is device else "?"))
    array, clock = move_to_gpu(model, ["image"], 0)
    assert (array, log) == (["image", "there"], ["use", "use", "moved"])
    for one in (clock, clock_of(SimpleNamespace(xp=cupy))):
        log.clear()
        assert isinstance(one.device, CudaQueue)
        first, waiting = one.now_ns(), one.waiting()
        assert one.now_ns() >= first
        assert log == []
        for reads in (1, 2):
            assert waiting.now_ns() >= first
            assert log == ["synchronize"] * reads
        # It waits by itself: nobody else need look at the queue.
        assert waiting.device is None
    for of_host in (chainer.get_device("@numpy"), SimpleNamespace(xp=object())):
        assert clock_of(of_host) is HOST_CLOCK


@pytest.mark.parametrize("where", ["found", "used", "network", "array"])
def test_a_device_that_refuses(where, device, monkeypatch):
    if where == "found":
        monkeypatch.setattr(chainer, "get_device", refuse)
    elif where == "used":
        device.use = refuse
    elif where == "array":
        device.send = refuse
    model = network(refuse if where == "network" else lambda _: None)
    moved = where in ("network", "array")
    what = "the network cannot be moved to it" if moved else "cannot be used"
    said = f"--gpu 0: {what}: RuntimeError: all devices are busy"
    assert refusal(move_to_gpu, model, ["image"], 0) == said


class There(np.ndarray):
    """An array on the device that Chainer takes here."""


def on_device():
    """A network that is on the device as a whole."""
    model = chainer.Chain(bn=L.BatchNormalization(3), later=L.Linear(None, 2))  # without a W yet
    model.add_persistent("step", 3)
    model.add_persistent("rate", np.float32(0.1))
    model.add_persistent("none", np.zeros(2, np.float32).view(There))
    model.add_persistent("scalar", np.array(1.5))  # an array of no axes
    for param in model.params():
        if param.array is not None:
            param.array = param.array.view(There)
    for name in ("avg_mean", "avg_var"):
        setattr(model.bn, name, getattr(model.bn, name).view(There))
    return model


def test_what_stays_on_the_host_is_named(cupy, device):
    model = network(lambda _: None, *chainer.Sequential(L.Linear(2, 1)).namedlinks())
    assert refusal(move_to_gpu, model, ["image"], 0) == (
        "--gpu 0: /0/W of the network stays on the host. Let the network's to_device or "
        "device_resident_accept move it, and keep no copies of arrays"
    )
    cupy.ndarray = There
    assert _left_on_host(on_device(), cupy) == ""
    for name in ("gamma", "beta", "avg_mean", "avg_var"):
        model = on_device()
        owner = getattr(model.bn, name) if name in ("gamma", "beta") else model.bn
        setattr(owner, "array" if owner is not model.bn else name, np.zeros(3, np.float32))
        assert _left_on_host(model, cupy) == f"/bn/{name}"
    model = on_device()
    model.none = np.zeros(2, np.float32)
    assert _left_on_host(model, cupy) == "/none"


class TestCudaQueue:
    def test_events_their_times_and_memory(self, cupy, log):
        queue = CudaQueue(cupy)
        first, second = queue.new_event(), queue.new_event()
        assert first is not second
        first.record()
        assert (log, first.done) == (["record"], True)
        queue.hold(2_500_000)
        second.record()
        assert not second.done
        queue.synchronize()
        assert second.done
        assert queue.elapsed_ms(first, second) == 2.5
        # What the pool holds unused is free.
        kept = cupy.zeros(1000)
        cupy.zeros(2000)
        free, total = queue.memory_nbytes()
        assert (total, total - free) == (cupy.memory_nbytes, kept.nbytes // 512 * 512 + 512)
        assert type(free) is type(total) is int

    def test_the_kernel_that_holds_is_compiled_once(self, cupy):
        compiled, launched = [], []

        def compile_kernel(source, name):
            compiled.append((source, name))
            return lambda *words: launched.append(words)

        cupy.RawKernel = compile_kernel
        queue = CudaQueue(cupy)
        assert compiled == []
        queue.hold(1_500_000)
        queue.hold(2**33)
        ((source, name),) = compiled
        assert name == "hold"
        assert 'extern "C" __global__ void hold(long long nanoseconds)' in source
        assert launched == [((1,), (1,), (1_500_000,)), ((1,), (1,), (2**33,))]
        # Eight bytes, as the kernel has it.
        assert [type(words[2][0]) for words in launched] == [np.int64] * 2


@pytest.mark.process
@pytest.mark.parametrize("source", [NOT_IMPORTED, NO_DRIVER], ids=["lib", "driver"])
def test_the_cpu_works_beside_a_broken_cupy(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(OWN)
    env = os.environ | {"PYTHONPATH": put_cupy(tmp_path, source)}
    words = ["-m", "own.py:Net", "--input-shape", "3", "-n", "4", "--format", "none"]
    result = process(*words, "-q", "-o", "run", env=env)
    assert (result.returncode, result.stderr) == (0, "")
    assert Path("run/recording.npz").exists()
