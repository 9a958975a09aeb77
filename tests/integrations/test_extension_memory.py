"""LayerProfile: the memory pass in a training, and the machine's limits."""

from __future__ import annotations

import gc
import tracemalloc
from contextlib import contextmanager

import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest

from chainer_profile.integrations import trainer as extension
from chainer_profile.integrations.trainer import LayerProfile
from chainer_profile.measure import environment, machine, memory
from chainer_profile.measure.link_recorder import LinkRecorder
from chainer_profile.measure.loop import LoopTrial
from chainer_profile.measure.machine import save_limits
from chainer_profile.measure.memory import HostCounter
from chainer_profile.record.recording import MemoryUse
from chainer_profile.report.content import profile
from chainer_profile.runs.folder import Path
from tests.command import folder, stand_in  # noqa: F401
from tests.integrations.conftest import REPORT
from tests.integrations.test_extension import (
    Own,
    at,
    concat,
    fail,
    losses_of,
    nothing_runs,
    run_profiled,
    trainer_of,
)
from tests.nets import MLP, net
from tests.queues import check, device_clock

KB = 1000
BATCH_NBYTES = 4 * (3 * 4 + 4)  # four rows of three numbers and their labels


class Scripted(HostCounter):
    """Fails in a read, counted from 1 after counting has begun, or in the begin or the end."""

    def __init__(self, fails_at):
        self.fails_at, self.reads = fails_at, 0

    def may_fail(self, at):
        if self.fails_at == at:
            raise OSError("no counter")

    @contextmanager
    def counting(self):
        self.may_fail("begin")
        with super().counting():
            yield
        self.may_fail("end")

    def read(self):
        self.reads += 1
        self.may_fail(self.reads)
        return super().read()

    def reset(self):
        super().reset()
        self.may_fail("reset")


def test_one_iteration_is_traced_and_counting_begins_before_it(monkeypatch):
    start = LinkRecorder.start
    for traced in (True, False):
        tracing, collecting, recorded, running = [], [], [], []

        def note(y, number, notes=(tracing, collecting, recorded, running)):
            tracing, collecting, recorded, running = notes
            tracing += [number] * tracemalloc.is_tracing()
            collecting += [number] * (not gc.isenabled())
            recorded += [number] * bool(running)
            running.clear()
            return y

        with monkeypatch.context() as patch:
            begun = running.append
            patch.setattr(LinkRecorder, "start", lambda one, begun=begun: (begun(1), start(one)))
            recording = run_profiled(trainer_of(model=MLP(note)), memory=traced)
        assert (tracing, collecting) == (([7, 8], [8]) if traced else ([], []))
        assert recorded == [6, 11, 16]
        assert (recording.memory is not None) is traced


def test_what_the_layers_of_a_training_allocate():
    """Of a batch of 4: 4 MB in each of two activations, and 12 kB of weights."""
    links = {"fc": L.Linear(3, 250 * KB), "out": L.Linear(250 * KB, 2)}
    wide = net(lambda self, x: self.out(F.tanh(self.fc(x))), **links)
    recording = run_profiled(trainer_of(model=wide))
    use = recording.memory
    rows = {(row.phase, row.path, row.function): row.index for row in recording.layers}
    activation = 4 * 250 * KB * 4
    fc = rows["forward", "/predictor/fc", "LinearFunction"]
    tanh = rows["forward", "/predictor", "Tanh"]
    for row in (fc, tanh):
        # Within a call older NumPys take a buffer for the addition of the bias.
        assert use.peak_nbytes[row] == pytest.approx(activation, abs=10 * KB + 4 * np.getbufsize())
        assert use.retained_nbytes[row] == pytest.approx(activation, abs=10 * KB)
    # Gradients of the iteration before, counted when they were allocated.
    weights = (3 + 1 + 2) * 250 * KB * 4
    assert use.retained_nbytes[rows["backward", "cleargrads", "cleargrads"]] == pytest.approx(
        -weights, abs=10 * KB
    )
    assert (use.parameter_nbytes, use.input_nbytes) == (weights + 8, BATCH_NBYTES)
    # Tanh keeps its output; Linear's own is freed.
    assert use.kept_for_backward_nbytes == pytest.approx(activation, abs=50 * KB)
    assert [part.phase for part in use.phases] == ["data", "forward", "backward", "update"]
    # All is as the iteration before has left it: gradients and the graph of a Classifier's loss.
    assert sum(part.retained_nbytes for part in use.phases) == pytest.approx(0, abs=50 * KB)
    assert use.high_water_nbytes == max(part.high_nbytes for part in use.phases)


def test_inputs_of_any_kind():
    """They count where no converter makes them, and as they were loaded where it makes others."""
    assert run_profiled(trainer_of(updater=Own)).memory.input_nbytes == BATCH_NBYTES

    class Odd(list):
        @property
        def nbytes(self):
            raise ZeroDivisionError

    def converter(batch, device):
        x, t = concat(batch, device)
        odd = Odd()
        odd.append(odd)
        return {"x": x, "t": t, "odd": odd}

    trainer = trainer_of(converter=converter)
    classifier = trainer.updater.get_optimizer("main").target
    forward = classifier.forward
    classifier.forward = lambda x, t, odd: forward(x, t)
    assert run_profiled(trainer).memory.input_nbytes == BATCH_NBYTES


def test_the_traced_iteration_may_differ_from_all_others():
    recording = run_profiled(trainer_of(model=at(8, F.tanh)))
    assert recording.n_trials == 3
    assert len(recording.memory.peak_nbytes) == len(recording.layers)
    assert "Tanh" not in {layer.function for layer in recording.layers}


def no_use(*_):
    raise IndexError("pop from empty list")


def test_a_counter_that_fails_is_a_warning_and_the_training_goes_on(monkeypatch):
    plain = trainer_of()
    expected = losses_of(plain)
    plain.run()
    no_counter = "memory cannot be counted: OSError: no counter"
    for fails_at, message in (
        *((read, no_counter) for read in ("begin", 1, 2, 9, "reset")),
        ("end", "counting memory could not be ended: OSError: no counter"),
        ("use", "the memory pass failed: IndexError: pop from empty list"),
    ):
        trainer = trainer_of()
        losses = losses_of(trainer)
        with monkeypatch.context() as patch:
            counter = Scripted(fails_at)
            patch.setattr(memory, "counter_of", lambda arrays, counter=counter: counter)
            if fails_at == "use":
                patch.setattr(memory, "use_of", no_use)
            with pytest.warns(UserWarning, match=message) as caught:
                recording = run_profiled(trainer)
        assert len(caught) == 1, fails_at
        assert losses == expected, fails_at
        assert (recording.memory is not None) == (fails_at == "end"), fails_at
        assert recording.n_trials == 3, fails_at
        nothing_runs()


@pytest.mark.parametrize("end", [6, 7])
def test_a_training_that_ends_meanwhile(end):
    recording = run_profiled(trainer_of(end))
    assert not tracemalloc.is_tracing()
    assert (recording.n_trials, len(recording.clean_ns), recording.memory) == (1, 5, None)
    assert (recording.self_ns > 0).all()


def test_another_extension_fails_meanwhile():
    trainer = trainer_of()
    trainer.extend(
        lambda trainer: tracemalloc.is_tracing() and fail(), name="fail", trigger=(7, "iteration")
    )
    trainer.extend(LayerProfile(trigger=(5, "iteration")))
    with pytest.raises(ZeroDivisionError, match="here"):
        trainer.run(show_loop_exception_msg=False)
    assert not tracemalloc.is_tracing()


# From where on allocations are counted, and in the traced iteration: also what is no Exception ends
# the counting at once.
@pytest.mark.parametrize("call", [3, 4])
def test_ctrl_c_takes_counting_off_before_the_end(call):
    def stop(y):
        assert tracemalloc.is_tracing()
        raise KeyboardInterrupt

    trainer = trainer_of(model=at(call, stop))
    profile = LayerProfile()
    profile.initialize(trainer)
    for _ in range(call - 1):
        trainer.updater.update()
        profile(trainer)
    with pytest.raises(KeyboardInterrupt):
        trainer.updater.update()
    assert not tracemalloc.is_tracing()
    assert gc.isenabled()
    profile.finalize()


def test_tracing_of_the_user_goes_on():
    tracemalloc.start()
    try:
        assert run_profiled(trainer_of()).memory is not None
        assert tracemalloc.is_tracing()
    finally:
        tracemalloc.stop()


def test_limits_are_those_that_an_earlier_run_kept_and_never_measured(monkeypatch):
    def measured(*_, **__):
        raise AssertionError("within somebody's program")

    monkeypatch.setattr(profile, "report", REPORT)
    monkeypatch.setattr(machine, "measure_limits", measured)
    assert run_profiled(trainer_of()).limits is None
    limits = stand_in(environment.collect("cpu"), machine.find_device("cpu"))
    save_limits(limits)
    recording = run_profiled(trainer_of(), out="profile")
    assert recording.limits == limits
    text = Path("result/profile/report.md").read_text()
    assert "### Work and limits" in text
    assert "### Memory" in text
    header, first = Path("result/profile/layers.csv").read_text().splitlines()[:2]
    row = dict(zip(header.split(","), first.split(","), strict=False))
    assert row["peak_nbytes"] == str(recording.memory.peak_nbytes[0])
    assert run_profiled(trainer_of(), machine=False).limits is None

    def unreadable(environment, device):
        raise RuntimeError("no\nmemory")

    monkeypatch.setattr(machine, "kept_limits", unreadable)
    with pytest.warns(UserWarning, match="the machine's limits were not measured: .*no memory"):
        recording = run_profiled(trainer_of())
    assert (recording.limits, recording.n_trials) == (None, 3)


def test_on_a_device_its_own_times_are_taken(monkeypatch):
    clock = device_clock()
    monkeypatch.setattr(extension, "clock_of", lambda device: clock)
    trainer = trainer_of()
    model = trainer.updater.get_optimizer("main").target
    forward = model.forward

    def launching(*args):
        loss = forward(*args)
        clock.advance(10)
        clock.device.launch(500)  # between the layers
        return loss

    model.forward = launching
    recording = run_profiled(trainer)
    check(recording)
    # What an iteration launches is done when it ends, and none waits for the one before.
    assert set(recording.trial_ns.tolist()) == {510}
    assert set(recording.launch_ns.tolist()) == {10}
    assert set(recording.span_ns.tolist()) == {510}
    assert not recording.self_ns.any()
    # Plain iterations are timed behind profiled ones only: waiting in all would slow them down.
    assert len(recording.clean_ns) <= recording.n_trials
    assert set(recording.clean_ns.tolist()) == {510}


def test_rows_of_a_trial_that_raised_are_left_out_where_no_profiled_one_has_them():
    found = memory.IterationMemory(LoopTrial([]))
    assert found.use_of_rows(2) is None
    found.use = MemoryUse((10, 20), (1, 2), 5, 6, 30, high_water_layer=1)
    assert found.use_of_rows(2) == found.use
    longer, shorter = found.use_of_rows(3), found.use_of_rows(1)
    assert (longer.peak_nbytes, longer.retained_nbytes) == ((10, 20, 0), (1, 2, 0))
    assert (shorter.peak_nbytes, shorter.high_water_layer) == ((10,), None)
