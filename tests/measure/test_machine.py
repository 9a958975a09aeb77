"""The machine's limits, measured on fake arrays with fixed rates."""

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


class Arrays:
    """A fake NumPy whose operations have fixed rates on a fake clock.

    The first run of an operation, and every third run after it, take twice as long.
    """

    def __init__(self, clock):
        self.clock, self.runs = clock, []
        self.full = lambda shape, value, dtype: np.ones(shape, dtype)
        self.empty = np.zeros

    def pass_time(self, name, work, rate):
        factor = 2 if self.runs.count(name) % 3 == 0 else 1
        self.runs.append(name)
        self.clock.advance(round(work / rate * 1e9) * factor)

    def negative(self, array, out):
        assert out is array
        assert array[-1]  # its pages have been touched
        self.pass_time("in place", 2 * array.nbytes, 4e10)

    def copyto(self, target, source):
        assert source[-1]
        assert not target[-1]
        self.pass_time("fresh", 2 * source.nbytes, 1e10)

    def matmul(self, a, b, out):
        assert a.shape == b.shape == out.shape
        assert a.dtype == b.dtype == out.dtype
        rate = 1e11 if a.dtype == np.float32 else 4e11
        # Small matrices do not reach the full rate.
        side = a.shape[0]
        self.pass_time(f"{a.dtype} {side}", 2 * side**3, rate * min(1, side / 1000))


def make_device(clock, name="cpu"):
    gpu = "" if name == "cpu" else "A GPU"
    both = Clock(clock.now_ns, cpu_ns=clock.now_ns)
    return Device(name, Arrays(clock), both, 1 << 25, (500, 1000), gpu)


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.mark.parametrize(("name", "half"), [("cpu", None), ("gpu:1", 4e11)])
def test_limits_are_rates_of_the_fastest_runs_and_are_saved(clock, name, half):
    device = make_device(clock, name)
    limits = measure_limits(ENVIRONMENT, device)
    assert limits.flops_per_s == pytest.approx(1e11, rel=1e-3)
    assert limits.copy_nbytes_per_s == pytest.approx(4e10, rel=1e-3)
    assert limits.fresh_nbytes_per_s == pytest.approx(1e10, rel=1e-3)
    assert limits.half_flops_per_s == (half and pytest.approx(half, rel=1e-3))
    assert (limits.device, limits.threads, limits.copied_nbytes) == (name, 2, 1 << 25)
    assert limits.key == limits_key(ENVIRONMENT, device)
    machine.save_limits(limits)
    assert machine.load_limits()[limits.key] == limits


def test_limits_of_numpy_are_measured(monkeypatch):
    monkeypatch.setattr(machine, "MATRIX_S", 0)
    monkeypatch.setattr(machine, "PASS_S", 0)
    limits = measure_limits(ENVIRONMENT, Device("cpu", np, HOST_CLOCK, 1 << 25, (4, 8)))
    assert min(limits.flops_per_s, limits.copy_nbytes_per_s, limits.fresh_nbytes_per_s) > 0


def test_failed_measurement_raises_one_line(clock):
    too_little_memory = "there is not enough memory to measure the machine's limits"
    full, broken = make_device(clock), make_device(clock, "gpu:0")
    full.xp.empty = raising(MemoryError("Unable to allocate"))
    broken.xp.matmul = raising(RuntimeError("no\nkernel"))
    for device, message in (
        (full, too_little_memory),
        (replace(make_device(clock), nbytes=1 << 24), too_little_memory),
        (broken, "gpu:0: cannot be measured: RuntimeError: no kernel"),
    ):
        assert refusal(measure_limits, ENVIRONMENT, device) == message


def test_limits_key_names_processor_libraries_and_threads(clock):
    device, gpu = make_device(clock), make_device(clock, "gpu:0")

    def key(on=device, **changes):
        return limits_key(replace(ENVIRONMENT, **changes), on)

    assert key() == "cpu, A processor, 2 cores, NumPy 2.4.6, openblas 0.3.31 x2"
    assert ", 1 core, " in key(usable_cores=1)
    # The time and commit of the run do not matter.
    assert key(started="2026-01-02T03:04:05Z", commit="abc", chainer="7.8.1") == key()
    assert key(gpu) == key(gpu, blas=()) == "gpu:0, A GPU, CuPy 13.6.0"


def test_limits_of_a_busy_machine_are_measured_again_later(
    monkeypatch,
):
    measured = []

    def measure(environment, device):
        times = len(measured) + 1
        measured.append(times)
        rates = {"flops_per_s": 9e11 - times * 1e11, "copy_nbytes_per_s": times * 1e10}
        return replace(stand_in(environment, device), **rates)

    monkeypatch.setattr(machine, "CpuWatch", QuietMachine)
    monkeypatch.setattr(machine, "measure_limits", measure)
    recording = replace(make_recording(), environment=ENVIRONMENT)

    def limits_of(other_cpu):
        monkeypatch.setattr(QuietMachine, "other_cpu", lambda self: other_cpu)
        during = replace(recording, conditions=Conditions(other_cpu=other_cpu))
        return machine._limits_of(during, machine.ALL_SECONDS)

    busy = limits_of(1.5)
    assert (busy.flops_per_s, busy.copy_nbytes_per_s, busy.busy) == (8e11, 1e10, True)
    assert limits_of(1.5) == limits_of(None) == busy
    quiet = limits_of(0.0)
    assert (quiet.flops_per_s, quiet.copy_nbytes_per_s, quiet.busy) == (8e11, 2e10, False)
    assert limits_of(0.0) == quiet
    assert len(measured) == 2


def test_find_device_chooses_the_array_size_by_free_memory(cupy, monkeypatch):
    sizes = {None: 128 << 20, 64 << 30: 128 << 20, 1 << 30: 107_372_544, 0: 4096}
    assert {free: machine.array_nbytes(free) for free in sizes} == sizes
    device = machine.find_device("cpu")
    assert (device.xp, device.clock) == (np, HOST_CLOCK)
    chainer_device = SimpleNamespace(use=lambda: None, xp=cupy)
    monkeypatch.setattr(chainer, "get_device", {"@cupy:0": chainer_device}.__getitem__)
    cupy.memory_nbytes = 4 << 30
    device = machine.find_device("gpu:0")
    assert (device.name, device.gpu, device.nbytes) == ("gpu:0", "Fake GPU 0", 429_494_272)
    device.clock.now_ns()
    assert cupy.queue.log == ["synchronize"]
    cupy.cuda.runtime.getDeviceProperties = raising(RuntimeError("lost\nit"))
    message = "--gpu 0: cannot be queried: RuntimeError: lost it"
    assert refusal(machine.find_device, "gpu:0") == message
