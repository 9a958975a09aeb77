"""GPUs, as far as they can be tested without one: what is missing is said in one line."""

import sys
from types import SimpleNamespace

import chainer
import chainer.links as L
import numpy as np
import pytest

from chainer_profile.measure.clock import HOST_CLOCK
from chainer_profile.measure.devices import CudaQueue, _left_on_host, clock_of, move_to_gpu
from tests import ROOT
from tests.command import OWN
from tests.fakes import process
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
NOT_THERE = "CuPy cannot be imported ({}); reinstall it: " + INSTALL


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (NOT_IMPORTED, NOT_THERE.format(f"ImportError: {LIBRARY}")),
        ('raise OSError("something else")', NOT_THERE.format("something else")),
        ("import missing", NOT_THERE.format("No module named 'missing'")),
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
# What CUDA says of a driver that is too old it says of none as well.
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


def test_a_device_that_refuses(device, monkeypatch):
    model = network(lambda _: None)
    moved = "the network cannot be moved to it"
    for owner, name, what in (
        (model, "to_device", moved),
        (device, "send", moved),
        (device, "use", "cannot be used"),
        (chainer, "get_device", "cannot be used"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, raises("all devices\nare busy"))
            said = f"--gpu 0: {what}: RuntimeError: all devices are busy"
            assert refusal(move_to_gpu, model, ["image"], 0) == said


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


def test_what_stays_on_the_host_is_named(cupy, device):
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


def test_events_their_times_and_the_memory_of_a_queue(cupy, log):
    queue = CudaQueue(cupy)
    first, second = queue.new_event(), queue.new_event()
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


def test_the_kernel_that_holds_is_compiled_once(cupy):
    compiled, launched = [], []

    def compile_kernel(source, name):
        compiled.append(name)
        assert f'extern "C" __global__ void {name}(long long nanoseconds)' in source
        return lambda *words: launched.append(words)

    cupy.RawKernel = compile_kernel
    queue = CudaQueue(cupy)
    queue.hold(1_500_000)
    queue.hold(2**33)
    assert compiled == ["hold"]
    assert launched == [((1,), (1,), (1_500_000,)), ((1,), (1,), (2**33,))]
    # Eight bytes, as the kernel has it.
    assert [type(words[2][0]) for words in launched] == [np.int64] * 2


@pytest.mark.process
def test_the_cpu_works_beside_a_cupy_without_a_driver(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    words = [str(ROOT / "profile.py"), "-m", "own.py:Net", "--input-shape", "3", "-n", "4", "-q"]
    words += ["--skip", "machine", "--format", "none", "-o", "run"]
    result = process(words, tmp_path, FAKE_CUPY_DEVICES=-1)
    assert (result.returncode, result.stderr) == (0, "")
    assert (tmp_path / "run" / "recording.npz").exists()
