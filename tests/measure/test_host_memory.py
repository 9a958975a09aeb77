"""Counting memory in a program that itself uses tracemalloc and the garbage collector."""

import _tracemalloc
import gc
import tracemalloc
import warnings
from contextlib import contextmanager

import numpy as np
import pytest

from chainer_profile import profiling
from chainer_profile.measure.host_memory import HostCounter, no_collection
from tests.nets import MLP
from tests.refusing import refusal

X = np.ones((4, 3), np.float32)
#: Programs that run while memory is counted: whether the program traces before; its calls; whether
#: it traces afterwards; the number of frames.
PROGRAMS = {
    "nothing": (False, (), False, 1),
    "starts": (False, [("start", 7)], True, 7),
    "starts twice": (False, [("start", 7), ("start", 3)], True, 7),
    "stops": (False, [("stop",)], False, 1),
    "starts and stops": (False, [("start", 7), ("stop",)], False, 1),
    "stops and starts": (False, [("stop",), ("start", 7)], True, 7),
    "clears": (False, [("clear_traces",)], False, 1),
    "traces": (True, (), True, 2),
    "traces and stops": (True, [("stop",)], False, 1),
    "traces and starts": (True, [("start", 7)], True, 2),
    "traces, stops and starts": (True, [("stop",), ("start", 7)], True, 7),
    "traces and clears": (True, [("clear_traces",)], True, 2),
}
FUNCTIONS = ("start", "stop", "is_tracing", "clear_traces", "get_traced_memory", "reset_peak")


@pytest.fixture(autouse=True)
def stop_tracing():
    yield
    _tracemalloc.stop()


@contextmanager
def tracemalloc_unchanged():
    before = [getattr(tracemalloc, name) for name in FUNCTIONS]
    yield
    assert [getattr(tracemalloc, name) for name in FUNCTIONS] == before


def observed_states(traces, calls, within):
    """Run a program; return the state of tracemalloc that it sees before and after each call."""
    if traces:
        tracemalloc.start(2)
    states = []
    with within():
        for name, *args in calls:
            states.append(tracemalloc.is_tracing())
            getattr(tracemalloc, name)(*args)
        states.append(tracemalloc.is_tracing())
    states += [tracemalloc.is_tracing(), tracemalloc.get_traceback_limit()]
    tracemalloc.stop()
    return states


@contextmanager
def not_counting():
    yield


@pytest.mark.parametrize("name", PROGRAMS)
def test_tracemalloc_does_what_the_program_asks_while_memory_is_counted(name):
    traces, calls, traces_after, frames = PROGRAMS[name]
    with tracemalloc_unchanged():
        states = observed_states(traces, calls, HostCounter().counting)
    assert states == observed_states(traces, calls, not_counting)
    assert states[-2] == traces_after
    if traces_after:
        assert states[-1] == frames


def test_snapshot_has_allocations_since_the_program_started_tracing():
    with HostCounter().counting():
        before = np.ones(100_000)
        with pytest.raises(RuntimeError, match="must be tracing"):
            tracemalloc.take_snapshot()
        assert tracemalloc.get_traced_memory() == (0, 0)
        tracemalloc.start()
        after = np.ones(200_000)
        size = sum(trace.size for trace in tracemalloc.take_snapshot().traces)
    assert after.nbytes <= size < before.nbytes + after.nbytes
    assert tracemalloc.is_tracing()


@pytest.mark.parametrize(
    ("traces", "name"), [(False, "start"), (True, "clear_traces"), (True, "stop")]
)
def test_counter_refuses_to_read_after_tracemalloc_was_reset(traces, name):
    if traces:
        tracemalloc.start()
    counter = HostCounter()
    with counter.counting():
        counter.read()
        getattr(tracemalloc, name)()
        message = (
            "the program stopped" if name == "stop" else f"the program called tracemalloc.{name}"
        )
        assert refusal(counter.read).startswith(message)


@pytest.mark.parametrize("number", [2, 3])
@pytest.mark.parametrize("name", PROGRAMS)
def test_program_may_use_tracemalloc_during_the_memory_pass(name, number):
    """The program calls tracemalloc in the second or third trial; the memory pass is the third."""
    traces, calls, traces_after, _ = PROGRAMS[name]
    if traces:
        tracemalloc.start(2)
    model, profile = MLP(), profiling(memory=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for trial in range(1, 6):
            with profile:
                model(X)
                if trial == number:
                    for call, *args in calls:
                        getattr(tracemalloc, call)(*args)
                model(X)
    assert tracemalloc.is_tracing() == traces_after
    recording = profile.recording()
    assert recording.n_trials == 3
    # A failed memory pass gives one warning.
    assert len(caught) == (recording.memory is None)


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("calls", [(), ("disable",), ("enable",), ("disable", "enable")])
def test_gc_state_requested_by_the_program_applies_after_no_collection(before, calls):
    functions = gc.enable, gc.disable, gc.isenabled
    (gc.enable if before else gc.disable)()
    try:
        wanted = before
        with no_collection():
            assert gc.isenabled() == wanted
            for name in calls:
                getattr(gc, name)()
                wanted = name == "enable"
                assert gc.isenabled() == wanted
            assert not functions[2]()
        assert gc.isenabled() == wanted
        assert (gc.enable, gc.disable, gc.isenabled) == functions
    finally:
        gc.enable()
