"""LayerProfile: the memory pass in a training, and the machine's limits."""

from __future__ import annotations

import gc
import tracemalloc
from contextlib import contextmanager

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest
from chainer import training

from chainer_profile.integrations import trainer as extension
from chainer_profile.integrations.trainer import LayerProfile
from chainer_profile.measure import environment, machine, memory
from chainer_profile.measure.link_recorder import LinkRecorder
from chainer_profile.measure.loop import LoopTrial
from chainer_profile.measure.machine import save_limits
from chainer_profile.measure.memory import HostCounter
from chainer_profile.record.recording import MemoryUse
from chainer_profile.report.content import profile
from chainer_profile.runs.folder import Path, load_run
from tests.command import folder, stand_in  # noqa: F401
from tests.integrations.conftest import REPORT
from tests.integrations.test_extension import At, Net, dataset, losses_of, run_profiled, trainer_of
from tests.queues import check, device_clock

KB = 1000


class Wide(chainer.Chain):
    """Of a batch of 4: 4 MB in each of two activations, and 12 kB of weights."""

    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.fc = L.Linear(3, 250 * KB)
            self.out = L.Linear(250 * KB, 2)

    def forward(self, x):
        return self.out(F.tanh(self.fc(x)))


class Scripted(HostCounter):
    """Fails in a read, counted from 1 after counting has begun, or in the begin or the end."""

    def __init__(self, fails_at):
        self.fails_at = fails_at
        self.reads = 0

    @contextmanager
    def counting(self):
        if self.fails_at == "begin":
            raise OSError("no counter")
        with super().counting():
            yield
        if self.fails_at == "end":
            raise OSError("no counter")

    def read(self):
        self.reads += 1
        if self.reads == self.fails_at:
            raise OSError("no counter")
        return super().read()

    def reset(self):
        super().reset()
        if self.fails_at == "reset":
            raise OSError("no counter")


class Modes:
    """Notes under what each iteration runs."""

    def __init__(self, monkeypatch):
        self.tracing, self.collecting, self.recorded = [], [], []
        self.running = False
        start = LinkRecorder.start

        def started(recorder):
            self.running = True
            start(recorder)

        monkeypatch.setattr(LinkRecorder, "start", started)

    def net(self):
        modes = self

        class Noting(Net):
            def forward(self, x):
                modes.tracing.append(tracemalloc.is_tracing())
                modes.collecting.append(gc.isenabled())
                modes.recorded.append(modes.running)
                modes.running = False
                return super().forward(x)

        return Noting()


def places(flags, value=True):
    """Numbers of the iterations, from 1, that have this value."""
    return [number for number, flag in enumerate(flags, 1) if flag == value]


def test_one_iteration_is_traced_and_counting_begins_before_it(monkeypatch):
    modes = Modes(monkeypatch)
    run_profiled(trainer_of(model=modes.net()))
    assert places(modes.tracing) == [7, 8]
    assert places(modes.collecting, False) == [8]
    assert places(modes.recorded) == [6, 11, 16]
    # Without it nothing is traced.
    modes = Modes(monkeypatch)
    run_profiled(trainer_of(model=modes.net()), out="without", memory=False)
    recording = load_run(Path("result/without"))
    assert places(modes.tracing) == places(modes.collecting, False) == []
    assert places(modes.recorded) == [6, 11, 16]
    assert recording.memory is None


def test_what_the_layers_of_a_training_allocate():
    use = run_profiled(trainer_of(model=Wide())).memory
    recording = load_run(Path("result/profile"))
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
    assert use.parameter_nbytes == weights + 8
    # Four rows of three numbers and their labels.
    assert use.input_nbytes == 4 * (3 * 4 + 4)
    # Tanh keeps its output; Linear's own is freed.
    assert use.kept_for_backward_nbytes == pytest.approx(activation, abs=50 * KB)
    assert [part.phase for part in use.phases] == ["data", "forward", "backward", "update"]
    # All is as the iteration before has left it: gradients and the graph of a Classifier's loss.
    assert sum(part.retained_nbytes for part in use.phases) == pytest.approx(0, abs=50 * KB)
    assert use.high_water_nbytes == max(part.high_nbytes for part in use.phases)


def test_inputs_that_no_converter_makes():
    def updater(iterator, optimizer):
        class Own(training.updaters.StandardUpdater):
            def update_core(self):
                x, t = chainer.dataset.concat_examples(self.get_iterator("main").next())
                optimizer.update(optimizer.target, x, t)

        return Own(iterator, optimizer)

    use = run_profiled(trainer_of(updater=updater)).memory
    assert use.input_nbytes == 4 * (3 * 4 + 4)


def test_batches_of_a_kind_of_their_own_do_not_matter():
    class Odd(list):
        @property
        def nbytes(self):
            raise ZeroDivisionError

    def converter(batch, device):
        x, t = chainer.dataset.concat_examples(batch, device)
        odd = Odd()
        odd.append(odd)
        return {"x": x, "t": t, "odd": odd}

    class Model(chainer.Chain):
        def __init__(self):
            super().__init__()
            with self.init_scope():
                self.net = Net()

        def forward(self, x, t, odd):
            loss = F.softmax_cross_entropy(self.net(x), t)
            chainer.report({"loss": loss}, self)
            return loss

    optimizer = chainer.optimizers.SGD(0.1).setup(Model())
    iterator = chainer.iterators.SerialIterator(dataset(), 4)
    updater = training.updaters.StandardUpdater(iterator, optimizer, converter=converter)
    trainer = training.Trainer(updater, (10, "iteration"), out="result")
    assert run_profiled(trainer).memory.input_nbytes == 4 * (3 * 4 + 4)  # as they were loaded


def test_the_traced_iteration_may_differ_from_all_others():
    recording = run_profiled(trainer_of(model=At(8, F.tanh)))
    assert recording.n_trials == 3
    assert recording.memory is not None
    assert len(recording.memory.peak_nbytes) == len(recording.layers)
    assert "Tanh" not in {layer.function for layer in recording.layers}


@pytest.mark.parametrize("fails_at", ["begin", 1, 2, 9, "reset"])
def test_a_counter_that_fails_is_a_warning(monkeypatch, fails_at):
    plain = trainer_of()
    expected = losses_of(plain)
    plain.run()
    monkeypatch.setattr(memory, "counter_of", lambda arrays: Scripted(fails_at))
    trainer = trainer_of()
    losses = losses_of(trainer)
    with pytest.warns(UserWarning, match="memory cannot be counted: OSError: no counter") as caught:
        recording = run_profiled(trainer)
    assert len(caught) == 1
    assert losses == expected
    assert recording.memory is None
    assert recording.n_trials == 3
    assert not tracemalloc.is_tracing()
    assert not chainer.get_function_hooks()


def test_a_counter_that_does_not_end(monkeypatch):
    monkeypatch.setattr(memory, "counter_of", lambda arrays: Scripted("end"))
    message = "the counting of memory does not end: OSError: no counter"
    with pytest.warns(UserWarning, match=message):
        recording = run_profiled(trainer_of())
    assert recording.memory is not None


def test_a_memory_pass_that_cannot_be_evaluated(monkeypatch):
    def fail(*args):
        raise IndexError("pop from empty list")

    monkeypatch.setattr(memory, "use_of", fail)
    with pytest.warns(UserWarning, match="the memory pass fails: IndexError: pop from"):
        recording = run_profiled(trainer_of())
    assert recording.memory is None
    assert recording.n_trials == 3


@pytest.mark.parametrize("end", [6, 7])
def test_a_training_that_ends_meanwhile(end):
    recording = run_profiled(trainer_of(end))
    assert not tracemalloc.is_tracing()
    assert (recording.n_trials, len(recording.clean_ns), recording.memory) == (1, 5, None)
    assert (recording.self_ns > 0).all()


def test_another_extension_fails_meanwhile():
    trainer = trainer_of()

    def fail(trainer):
        assert tracemalloc.is_tracing()
        raise ZeroDivisionError("here")

    trainer.extend(fail, name="fail", trigger=(7, "iteration"))
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

    trainer = trainer_of(model=At(call, stop))
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


def keep_limits():
    """Limits of this machine as an earlier run has kept them."""
    limits = stand_in(environment.collect("cpu"), machine.find_device("cpu"))
    save_limits(limits)
    return limits


def test_the_report_says_what_the_layers_allocate_and_how_near_they_are_to_the_limits(monkeypatch):
    monkeypatch.setattr(profile, "report", REPORT)
    limits = keep_limits()
    recording = run_profiled(trainer_of())
    assert recording.limits == limits
    text = Path("result/profile/report.md").read_text()
    assert "### Work and limits" in text
    assert "### Memory" in text
    header, first = Path("result/profile/layers.csv").read_text().splitlines()[:2]
    row = dict(zip(header.split(","), first.split(","), strict=False))
    assert row["peak_nbytes"] == str(recording.memory.peak_nbytes[0])


def test_a_training_measures_no_limits(monkeypatch):
    def measured(*_, **__):
        raise AssertionError("within somebody's program")

    monkeypatch.setattr(machine, "measure_limits", measured)
    assert run_profiled(trainer_of()).limits is None
    limits = keep_limits()
    run_profiled(trainer_of())
    assert load_run(Path("result/profile-2")).limits == limits
    run_profiled(trainer_of(), machine=False)
    assert load_run(Path("result/profile-3")).limits is None


def test_limits_that_cannot_be_read_are_a_warning(monkeypatch):
    def fail(environment, device):
        raise RuntimeError("no\nmemory")

    monkeypatch.setattr(machine, "kept_limits", fail)
    with pytest.warns(UserWarning, match="the machine's limits are left out: .*no memory"):
        recording = run_profiled(trainer_of())
    assert recording.limits is None
    assert recording.n_trials == 3


def test_on_a_device_its_own_times_are_taken(monkeypatch):
    clock = device_clock()
    queue = clock.device
    monkeypatch.setattr(extension, "clock_of", lambda device: clock)
    trainer = trainer_of()
    model = trainer.updater.get_optimizer("main").target
    forward = model.forward

    def launching(*args):
        loss = forward(*args)
        clock.advance(10)
        queue.launch(500)  # between the layers
        return loss

    model.forward = launching
    recording = run_profiled(trainer)
    assert recording.on_device
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
    assert longer is not None
    assert shorter is not None
    assert (longer.peak_nbytes, longer.retained_nbytes) == ((10, 20, 0), (1, 2, 0))
    assert (shorter.peak_nbytes, shorter.high_water_layer) == ((10,), None)
