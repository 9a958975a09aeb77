"""The counters pass aggregates counters like times."""

import mmap
import subprocess
import sys

import chainer.functions as F
import pytest

from chainer_profile.measure import counters as counters_module
from chainer_profile.measure import runner
from chainer_profile.measure.arguments import as_network
from chainer_profile.measure.clock import HOST_CLOCK
from chainer_profile.measure.counters import MIN_TRIALS, measure_counters, thread_usage
from chainer_profile.measure.readings import ReadingSession
from chainer_profile.measure.step_session import learned
from chainer_profile.measure.steps import make_step
from chainer_profile.record.recording import Settings
from tests.conftest import FakeClock
from tests.nets import Chain, Trained, Wait, image, slow_loss

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts of Linux")


def measure(clock, step, usage=None, touch=None):
    """Run the counters pass, by default with half a ns of CPU time and seven page faults per ns."""
    usage = usage or (("cpu_ns", "page_faults"), lambda: (clock.time_ns // 2, clock.time_ns * 7))
    with pytest.MonkeyPatch.context() as patch, step.configured():
        patch.setattr(counters_module, "thread_usage", lambda: usage)
        patch.setattr(counters_module, "_touch", touch or counters_module._touch)
        session = learned(step)
        reading = ReadingSession(session)
        return session, measure_counters(step, reading, now_ns=clock.now_ns, seconds=0.0)


def step_of(network):
    """Make a forward step of a function."""
    return make_step("forward", as_network(network, [image()]), (image(),))


def test_counters_are_aggregated_like_times(clock):
    step = make_step("train", Trained(clock), (image(),), loss=slow_loss(clock))
    session, counters = measure(clock, step)
    assert counters.trials == MIN_TRIALS
    wall, cpu, faults = (counters[name] for name in ("wall_ns", "cpu_ns", "page_faults"))
    assert len(wall.layers) == len(session.layers)
    assert len(wall.framework) == len(session.phases)
    assert sum(wall.layers) + sum(wall.framework) == sum(wall.trial) > 0
    for name in ("layers", "framework", "trial"):
        assert getattr(faults, name) == tuple(7 * at for at in getattr(wall, name))
    assert counters.fault_ns is None  # touching memory costs nothing on this clock
    assert sum(cpu.trial) == pytest.approx(sum(wall.trial) / 2, abs=counters.trials)


def test_trials_with_different_calls_are_not_counted(clock):
    calls = iter([1, 1, 2, 1, *(1, 2, 2, 2)])  # the first of four trials determines the rows

    def network(x):
        for _ in range(next(calls)):
            (x,) = Wait(clock, 10).apply((x,))
        return x

    (_, counters), (_, nothing) = (
        measure(clock, step_of(network), usage=((), lambda: ())) for _ in range(2)
    )
    assert (counters.trials, counters["wall_ns"].layers) == (2, (20,))
    assert nothing is None


class Faulting(Wait):
    """Touches 500 new pages, and frees them."""

    def forward(self, inputs):
        pages = mmap.mmap(-1, 500 * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        pages.madvise(mmap.MADV_NOHUGEPAGE)
        pages[:: mmap.PAGESIZE] = bytes(500)
        return (inputs[0].copy(),)


@linux
def test_page_faults_count_in_the_layer_that_causes_them():
    def network(x):
        for kind in (Wait, Faulting):
            (x,) = kind(FakeClock(), 0).apply((x,))
        return x

    _, counters = measure(HOST_CLOCK, step_of(network), usage=thread_usage())
    quiet, touched = counters["page_faults"].layers
    assert quiet < 50
    assert touched / counters.trials == pytest.approx(500, abs=20)
    assert counters["wall_ns"].window < 1e6
    # Linux counts system time too coarsely for layers.
    assert counters["system_ns"].layers == ()
    assert len(counters["system_ns"].trial) == counters.trials
    # The faults of the layer cost no less than the measured cost of a fault.
    assert 0 < counters.fault_ns * touched < 1.5 * counters["cpu_ns"].layers[1]


def test_cost_of_a_page_fault_is_the_median_of_touching_new_pages(clock):
    costs_ns = iter([9000, *[1200] * 4, 100, 100])
    faults = []

    def touch(pages):
        faults.extend(pages)
        clock.advance(next(costs_ns) * len(pages))

    usage = ("cpu_ns", "page_faults"), lambda: (clock.time_ns, len(faults))
    _, counters = measure(clock, step_of(F.identity), usage=usage, touch=touch)
    assert counters.fault_ns == 1200


def test_run_counts_by_default(clock):
    asked = Settings(trials=4, clean_trials=1, warmups=1)
    step = make_step("forward", Chain(clock), (image(),))
    assert runner.run(step, asked, clock=clock, memory=False).counters is None
    recording = runner.run(step, asked, clock=clock, memory=False, counters=None)
    assert recording.counters.trials == MIN_TRIALS == 3
    # The wall time counter equals the time of the trials.
    own_ns = [at / 3 for at in recording.counters["wall_ns"].layers]
    assert own_ns == recording.self_ns.mean(axis=0).tolist()


@linux
def test_calibration_does_not_change_mmap_threshold_of_malloc():
    """Freeing a large array would raise glibc's threshold, and speed up the network."""
    code = """
import ctypes
from chainer_profile.measure.calibration import calibrate
import numpy as np
class Info(ctypes.Structure):
    _fields_ = [(n, ctypes.c_size_t) for n in "arena ordblks smblks hblks hblkhd a b c d e".split()]
libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Info
calibrate()
before = libc.mallinfo2().hblks
arrays = [np.empty(1 << 20, np.uint8) for _ in range(8)]
# Another thread may free a block at the same time.
print(libc.mallinfo2().hblks - before > 4)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if "mallinfo2" in done.stderr:
        pytest.skip("no glibc, or an old one")
    assert done.stdout.strip() == "True", done.stderr
