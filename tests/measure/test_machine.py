"""The machine's limits: measured with a fake clock, and arrays with given rates."""

from dataclasses import replace
from types import SimpleNamespace

import chainer
import numpy as np
import pytest

from chainer_profile.measure import machine
from chainer_profile.measure.clock import HOST_CLOCK, Clock
from chainer_profile.measure.machine import Device, limits_key, measure_limits
from chainer_profile.record.recording import BlasLibrary, Conditions, Environment
from tests.command import QuietMachine, raising, stand_in
from tests.conftest import make_recording
from tests.refusing import refusal

ENVIRONMENT = Environment(
    processor="A processor",
    usable_cores=2,
    numpy="2.4.6",
    cupy="13.6.0",
    blas=(BlasLibrary("openblas", "0.3.31", 2),),
)


class Array:
    """As much of an array as measuring takes."""

    def __init__(self, xp, shape, dtype=np.float32):
        self.xp, self.shape, self.dtype, self.is_new = xp, shape, np.dtype(dtype), True
        self.nbytes = int(np.prod(shape)) * self.dtype.itemsize

    def fill(self, value):
        self.is_new = False


class Arrays:
    """In place of NumPy: its operations take exactly as long as its rates (per second) say.

    First runs take twice as long, and so does every third run.
    """

    rate, half_rate, copy_rate, fresh_rate = 1e11, 4e11, 4e10, 1e10

    def __init__(self, clock):
        self.clock, self.runs = clock, []

    def pass_time(self, name, work, rate):
        factor = 2 if self.runs.count(name) % 3 == 0 else 1
        self.runs.append(name)
        self.clock.advance(round(work / rate * 1e9) * factor)

    def full(self, shape, value, dtype):
        return Array(self, shape, dtype)

    def empty(self, shape, dtype):
        return Array(self, shape, dtype)

    def negative(self, array, out):
        assert out is array
        assert not array.is_new
        self.pass_time("in place", 2 * array.nbytes, self.copy_rate)

    def copyto(self, target, source):
        assert target.is_new
        assert not source.is_new
        self.pass_time("fresh", 2 * source.nbytes, self.fresh_rate)

    def matmul(self, a, b, out):
        assert a.shape == b.shape == out.shape
        assert a.dtype == b.dtype == out.dtype
        rate = self.rate if a.dtype == np.float32 else self.half_rate
        # Small matrices do not reach the full rate.
        side = a.shape[0]
        self.pass_time(f"{a.dtype} {side}", 2 * side**3, rate * min(1, side / 1000))


def make_device(clock, name="cpu"):
    gpu = "" if name == "cpu" else "A GPU"
    both = Clock(clock.now_ns, cpu_ns=clock.now_ns)
    return Device(name, Arrays(clock), both, 1 << 27, (500, 1000, 2000), gpu)


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_the_rates_of_the_fastest_runs(clock, monkeypatch):
    for name, half in (("cpu", None), ("gpu:1", 4e11)):
        device = make_device(clock, name)
        limits = measure_limits(ENVIRONMENT, device)
        assert limits.flops_per_s == pytest.approx(1e11, rel=1e-6)
        assert limits.copy_nbytes_per_s == pytest.approx(4e10, rel=1e-6)
        assert limits.fresh_nbytes_per_s == pytest.approx(1e10, rel=1e-6)
        assert limits.half_flops_per_s == (half and pytest.approx(half, rel=1e-6))
        assert (limits.device, limits.threads, limits.copied_nbytes) == (name, 2, 1 << 27)
        assert limits.key == limits_key(ENVIRONMENT, device)
        assert {"float32 500", "float32 1000", "float32 2000"} <= set(device.xp.runs)
        machine.save_limits(limits)
        assert machine.load_limits()[limits.key] == limits
    # With NumPy itself.
    monkeypatch.setattr(machine, "MATRIX_S", 0)
    monkeypatch.setattr(machine, "PASS_S", 0)
    limits = measure_limits(ENVIRONMENT, Device("cpu", np, HOST_CLOCK, 1 << 25, (4, 8)))
    assert min(limits.flops_per_s, limits.copy_nbytes_per_s, limits.fresh_nbytes_per_s) > 0


def test_limits_that_cannot_be_measured_are_refused(clock):
    little = "there is not enough memory to measure the machine's limits"
    full, broken = make_device(clock), make_device(clock, "gpu:0")
    full.xp.empty = raising(MemoryError("Unable to allocate"))
    broken.xp.matmul = raising(RuntimeError("no\nkernel"))
    for device, message in (
        (full, little),
        (replace(make_device(clock), nbytes=1 << 24), little),
        (broken, "gpu:0: cannot be measured: RuntimeError: no kernel"),
    ):
        assert refusal(measure_limits, ENVIRONMENT, device) == message


def test_the_key_names_processor_libraries_and_threads(clock):
    device, gpu = make_device(clock), make_device(clock, "gpu:0")

    def key(on=device, **changes):
        return limits_key(replace(ENVIRONMENT, **changes), on)

    assert key() == "cpu, A processor, 2 cores, NumPy 2.4.6, openblas 0.3.31 x2"
    assert ", 1 core, " in key(usable_cores=1)
    libraries = [("openblas", "0.3.31", 1), ("openblas", "0.3.32", 2), ("mkl", "0.3.31", 2)]
    changes = [{"blas": (BlasLibrary(*library),)} for library in libraries]
    changes += [{"processor": "Another"}, {"usable_cores": 1}, {"numpy": "2.4.7"}, {}]
    assert len({key(**change) for change in changes}) == 7
    # When the run was, and in which folder, is nothing to them.
    assert key(started="2026-01-02T03:04:05Z", commit="abc", chainer="7.8.1") == key()
    assert key(gpu) == key(gpu, blas=()) == "gpu:0, A GPU, CuPy 13.6.0"
    assert key(replace(gpu, gpu="Another")) != key(gpu)


@pytest.fixture
def rates(monkeypatch):
    """The rates of products and copies that were measured: each time other ones."""
    measured = []

    def measure(environment, device):
        times = len(measured) + 1
        measured.append((9e11 - times * 1e11, times * 1e10))
        names = "flops_per_s", "copy_nbytes_per_s"
        limits = dict(zip(names, measured[-1], strict=True))
        return replace(stand_in(environment, device), **limits)

    monkeypatch.setattr(machine, "CpuWatch", QuietMachine)
    monkeypatch.setattr(machine, "measure_limits", measure)
    return measured


def test_marked_limits_are_measured_once_more_behind_quiet_trials_and_the_best_are_kept(
    rates, monkeypatch
):
    recording = replace(make_recording(), environment=ENVIRONMENT)

    def limits_of(other_cpu):
        monkeypatch.setattr(QuietMachine, "other_cpu", lambda self: other_cpu)
        during = replace(recording, conditions=Conditions(other_cpu=other_cpu))
        limits = machine._limits_of(during, machine.ALL_SECONDS)
        assert limits is not None
        return limits

    busy = limits_of(1.5)
    assert (busy.flops_per_s, busy.copy_nbytes_per_s, busy.busy) == (8e11, 1e10, True)
    assert limits_of(1.5) == limits_of(None) == busy
    quiet = limits_of(0.0)
    assert (quiet.flops_per_s, quiet.copy_nbytes_per_s, quiet.busy) == (8e11, 2e10, False)
    assert limits_of(0.0) == quiet
    assert len(rates) == 2


def test_the_device_and_the_size_of_its_array(cupy, monkeypatch):
    sizes = {None: 128 << 20, 64 << 30: 128 << 20, 1 << 30: 107_372_544, 0: 4096}
    assert {free: machine.array_nbytes(free) for free in sizes} == sizes
    device = machine.find_device("cpu")
    assert (device.name, device.xp, device.clock, device.gpu) == ("cpu", np, HOST_CLOCK, "")
    assert device.nbytes <= 128 << 20
    there = SimpleNamespace(use=lambda: None, xp=cupy)
    monkeypatch.setattr(chainer, "get_device", {"@cupy:0": there}.__getitem__)
    cupy.memory_nbytes = 4 << 30
    device = machine.find_device("gpu:0")
    assert (device.name, device.gpu, device.nbytes) == ("gpu:0", "Fake GPU 0", 429_494_272)
    assert device.xp is cupy
    device.clock.now_ns()
    assert cupy.queue.log == ["synchronize"]
    cupy.cuda.runtime.getDeviceProperties = raising(RuntimeError("lost\nit"))
    said = "--gpu 0: cannot be queried: RuntimeError: lost it"
    assert refusal(machine.find_device, "gpu:0") == said
