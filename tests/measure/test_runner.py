"""Runs: times, ends of runs, and trials that differ.

tests/ledger checks that rows and framework time add up to the trial for any network.
"""

import _tracemalloc
import errno

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile import profile, summarise
from chainer_profile.basics.describe import FIRST_LOOK
from chainer_profile.measure import runner, trials
from chainer_profile.measure.runner import RunError, default_clean_trials
from chainer_profile.measure.steps import make_step
from chainer_profile.measure.trials import cycles, split_first_cycle
from chainer_profile.record.journal import PROFILED, Journal, JournalError, Trial, recover
from chainer_profile.record.recording import Recording
from chainer_profile.report.text import run_lines
from tests import nets
from tests.conftest import FakeClock
from tests.nets import Chain, Nesting, SlowHook, Step, Trained, Wait, image, net, slow_loss
from tests.queues import asked
from tests.report.reading import report_md

TRIAL_NS = 208  # a Chain spends 180 in functions, 7 itself and 7 in each of its three links
N_STRUCTURE = 3  # structure passes before the first trial
FIRST = N_STRUCTURE + 2  # calls before the first profiled trial
SETTLING = 8  # calls before a block of unprofiled trials
CALLS = FIRST + 20 + SETTLING + 5  # of a run without the memory pass
# Training step of a Trained with a SlowOptimizer and one hook.
ROWS = [100, 40, 40, 20, 9, 30, 83, 83, 13, 200, 17 + 1, 50, 50]
FRAMEWORK = {"update": 2, "forward": 42, "backward": 0}
STEP_NS = sum(ROWS) + sum(FRAMEWORK.values())

pytestmark = pytest.mark.usefixtures("one_thread")


def run(model, clock, settings=None, **kwargs):
    """Run trials of a network's forward pass."""
    settings = settings or asked()
    step = make_step("forward", model, (image(),), train_mode=settings.train_mode)
    return runner.run(step, settings, clock=clock, **kwargs)


def training(model, clock, loss=None):
    optimizer = nets.SlowOptimizer(clock).setup(model)
    optimizer.add_hook(SlowHook(clock, 17))
    loss = loss or slow_loss(clock)
    return make_step("train", model, (image(),), loss=loss, optimizer=optimizer)


@pytest.fixture
def trained(clock, monkeypatch):
    nets.slow_sums(monkeypatch, clock)
    return Trained(clock)


def test_unprofiled_blocks_alternate_with_profiled_ones_and_progress_reaches_the_end():
    class Costly(FakeClock):
        def cpu_ns(self):  # no trial may have this time
            self.advance(1000)
            return 3 * self.time_ns  # three threads are busy

    settings, seen, clock = asked(trials=40, clean_trials=10), [], Costly()
    recording = run(Chain(clock), clock, settings, progress=lambda *a: seen.append(a))
    for name, count in (("trial_ns", 40), ("clean_ns", 10), ("warmup_ns", 2)):
        assert getattr(recording, name).tolist() == [TRIAL_NS] * count
    assert recording.clean_cpu_ns.tolist() == [3 * (TRIAL_NS + 1000)] * 10
    kinds = [(start, "P") for start in recording.start_ns.tolist()]
    kinds += [(start, "C") for start in recording.clean_start_ns.tolist()]
    starts, text = zip(*sorted(kinds), strict=True)
    assert "".join(text) == ("P" * 10 + "C" * 5 + "P" * 10) * 2
    assert (np.diff(starts) >= TRIAL_NS).all()
    done, totals, means = zip(*seen, strict=True)
    assert list(done) == sorted(set(done))
    assert (done[-1], set(totals)) == (40, {40})
    assert means == pytest.approx([TRIAL_NS * 1e-9] * len(seen))
    reading = FakeClock(read_ns=3)
    conditions = run(Chain(reading), reading).conditions
    assert (conditions.window_ns, conditions.clock_resolution_ns) == (3, 1)


def test_forward_pass_that_computes_gradients_has_a_graph(clock):
    def forward(self, x):
        x = chainer.Variable(x)
        (y,) = Wait(clock, 10, 7).apply((x,))
        return chainer.grad([y], [x])[0] * 2

    recording = run(net(forward), clock)
    assert (recording.settings.with_graph, recording.settings.phase) == (True, "forward")
    assert recording.self_ns.tolist() == [[10, 7, 0]] * 20
    assert [layer.phase for layer in recording.layers] == ["forward", "backward", "forward"]
    assert "test mode with backprop" in run_lines(recording)[0]
    assert "its forward pass computes gradients" in report_md(summarise(recording))
    assert not run(Chain(clock), clock).settings.with_graph


@pytest.mark.parametrize("group_ns", [3 * STEP_NS, 1])
def test_recording_does_not_depend_on_group_size_and_equals_the_journal(
    clock, trained, monkeypatch, tmp_path, group_ns
):
    monkeypatch.setattr(trials, "GROUP_NS", group_ns)
    with open(tmp_path / "journal", "w+b") as file:
        more = {"journal": Journal(file), "memory": False, "clock": clock}
        recording = runner.run(training(trained, clock), asked(phase="train"), **more)
    assert trained.calls == CALLS
    for same in (recording, recover(tmp_path / "journal")):
        assert (same.phases, same.settings) == (tuple(FRAMEWORK), recording.settings)
        assert (same.layers, same.links) == (recording.layers, recording.links)
        assert same.self_ns.tolist() == [ROWS] * 20
        assert same.framework_ns.tolist() == [list(FRAMEWORK.values())] * 20
        for name, count in (("trial_ns", 20), ("clean_ns", 5), ("warmup_ns", 2)):
            assert getattr(same, name).tolist() == [STEP_NS] * count
        assert same.start_ns.tolist() == recording.start_ns.tolist()
    assert (np.diff(recording.start_ns) >= STEP_NS).all()


@pytest.mark.parametrize(("duration_ns", "settling"), [(1000, 8), (5_000_000, 2), (30_000_000, 0)])
def test_short_unprofiled_trials_follow_settling_trials(clock, duration_ns, settling):
    class Settling(Step):
        """A link whose first calls without hooks take twice as long."""

        n_plain, calls = 0, 0

        def forward(self, x):
            self.calls += 1
            self.n_plain = 0 if chainer.get_function_hooks() else self.n_plain + 1
            self._duration_ns = duration_ns * (2 if 0 < self.n_plain <= settling else 1)
            return super().forward(x)

    model = Settling(clock, duration_ns)
    recording = run(model, clock, asked(trials=40, clean_trials=10), memory=False)
    assert model.calls == FIRST + 40 + 10 + 2 * settling
    assert set(recording.clean_ns.tolist()) == {recording.clean_ns.min()}
    assert duration_ns <= recording.clean_ns.min() < 1.5 * duration_ns


def test_stop_keeps_earlier_trials(clock):
    model = Chain(clock)

    def stop():
        return "interrupted by SIGINT" if model.calls == FIRST + 4 else ""

    recording = run(model, clock, stop=stop)
    assert recording.ended == "interrupted by SIGINT"
    assert recording.self_ns.tolist() == [[100, 40, 40]] * 4
    recording = run(Chain(clock), clock, stop=lambda: "enough")  # during the warm-up
    assert (recording.n_trials, len(recording.warmup_ns)) == (0, 1)


def test_until_ci_applies_to_the_median(clock):
    class Rarely(Step):
        calls = 0

        def forward(self, x):
            self.calls += 1
            self._duration_ns = (20 if self.calls % 100 == 0 else 1) * 1000
            return super().forward(x)

    class Drifting(Step):
        def forward(self, x):
            self._duration_ns += 1000
            return super().forward(x)

    recording = run(Rarely(clock, 1), clock, asked(trials=4000, clean_trials=100, until_ci=0.01))
    # A cycle has 200 profiled trials, which is enough for the first interval.
    assert recording.n_trials == FIRST_LOOK == 200
    assert recording.ended == "wanted interval reached"
    assert recording.trial_ns.mean() > 1.05 * np.median(recording.trial_ns)
    recording = run(Drifting(clock, 1), clock, asked(trials=500, until_ci=0.001))
    assert (recording.n_trials, recording.ended) == (500, "complete")


@pytest.mark.parametrize(("clean_trials", "count"), [(400, 40), (100, 30), (7, 7), (0, 0)])
def test_run_that_ends_at_the_wanted_interval_has_unprofiled_trials(clock, clean_trials, count):
    settings = asked(trials=2000, clean_trials=clean_trials, until_ci=0.01)
    recording = run(Chain(clock), clock, settings)
    assert (recording.n_trials, recording.ended) == (200, "wanted interval reached")
    assert len(recording.clean_ns) == count


def test_stop_during_the_last_unprofiled_trials_is_reported(clock):
    model, settings = Chain(clock), asked(trials=2000, clean_trials=100, until_ci=0.01)

    def stop():
        count = 200 + 3 * SETTLING + 20
        return "interrupted by SIGINT" if model.calls >= FIRST + count else ""

    recording = run(model, clock, settings, stop=stop)
    assert recording.ended == "interrupted by SIGINT"
    assert (recording.n_trials, len(recording.clean_ns)) == (200, 20)


class Changing(Chain):
    """Applies a change from the given call on. The first structure pass is call 1."""

    def __init__(self, clock, call, change):
        super().__init__(clock)
        self._call, self._change = call, change

    def forward(self, x):
        y = super().forward(x)
        return self._change(self, y) if self.calls >= self._call else y


def another_call(model, y):
    return Wait(model.clock, 1).apply((y,))[0]


def broken(*_):
    raise ValueError("broken\n  on purpose")


@pytest.mark.parametrize(
    ("location", "owner", "method"),
    [
        ("layer 0_Wait at /first", Wait, "forward"),
        ("the backward of layer 6_Nesting at /second", Nesting, "backward"),
        ("the update of layer 11_SlowOptimizer at /first", nets.SlowRule, "update_core"),
        ("the update of layer 10_SlowHook at optimizer", SlowHook, "__call__"),
        ("Changing at /", None, ""),
    ],
)
def test_exception_in_trial_5_keeps_4_trials(clock, trained, monkeypatch, location, owner, method):
    model = trained if "of layer" in location else Changing(clock, 3, another_call)
    if owner is None:
        model = Changing(clock, FIRST + 5, broken)
    else:
        stock = getattr(owner, method)

        def may_fail(*args):
            return broken() if model.calls == FIRST + 5 else stock(*args)

        monkeypatch.setattr(owner, method, may_fail)
    forward = make_step("forward", model, (image(),))
    step = training(model, clock) if model is trained else forward
    with pytest.raises(RunError) as caught:
        runner.run(step, asked(), clock=clock)
    message = f"the network fails after 4 trials, in {location}: ValueError: broken on purpose"
    assert str(caught.value) == message
    recording = caught.value.recording
    assert recording.n_trials == 4
    rest_ns = recording.trial_ns - recording.self_ns.sum(axis=1)
    expected = (
        [28] * 4 if recording.framework_ns is None else recording.framework_ns.sum(axis=1).tolist()
    )
    assert rest_ns.tolist() == expected
    assert not chainer.get_function_hooks()
    assert "update" not in vars(getattr(step, "optimizer", step))
    assert "cleargrads" not in vars(step.model)


def test_full_disk_keeps_every_trial(clock, monkeypatch):
    add, groups = Journal.add, []

    def full(self, *records):
        add(self, *records)
        kinds = {record.kind for record in records if isinstance(record, Trial)}
        groups.append(PROFILED in kinds)
        if groups.count(True) == 2:
            raise JournalError("No space left on device") from OSError(errno.ENOSPC)

    monkeypatch.setattr(Journal, "add", full)
    with pytest.raises(RunError, match=r"cannot be written after 20 trials: No space") as error:
        run(Chain(clock), clock, asked(warmups=0))
    assert error.value.recording.n_trials == 20  # including the second group


def test_rows_are_by_link_if_trials_differ_from_the_fifth_on(clock, tmp_path):
    with open(tmp_path / "journal", "w+b") as file:
        model = Changing(clock, FIRST + 5, another_call)
        recording = run(model, clock, journal=Journal(file))
    recording.save(tmp_path / "run.npz")
    for same in (recording, Recording.load(tmp_path / "run.npz"), recover(tmp_path / "journal")):
        assert same.by_link
        assert same.self_ns.tolist() == [[100, 80, 0]] * 4 + [[100, 80, 1]] * 16
        assert same.calls.tolist() == [[1, 2, 0]] * 4 + [[1, 2, 1]] * 16
        assert [layer.calls for layer in same.layers] == [1, 2, 0.8]
        assert same.start_ns.tolist() == recording.start_ns.tolist()
    assert recording.conditions.call_ns is not None
    assert (len(recording.warmup_ns), recording.n_trials, recording.ended) == (2, 20, "complete")
    assert len(recording.memory.peak_nbytes) == 3


def test_memory_is_measured_unless_the_run_is_stopped(clock):
    class Tracked(Chain):
        def forward(self, x):
            traced.append(_tracemalloc.is_tracing())
            return super().forward(x)

    limited = asked(trials=4000, max_seconds=100 * TRIAL_NS * 1e-9)
    exact = asked(trials=4000, until_ci=0.01)
    for settings, ended in ((limited, "time limit reached"), (exact, "wanted interval reached")):
        traced = []
        recording = run(Tracked(clock), clock, settings)
        assert (recording.ended, len(recording.memory.peak_nbytes)) == (ended, 3)
        # The memory pass is after all trials.
        assert traced == sorted(traced)
        assert sum(traced) == 2
    assert run(Chain(clock), clock, memory=False).memory is None
    for after in (FIRST + 4, CALLS):
        model, says = Chain(clock), ["interrupted by SIGINT"]

        def stop(model=model, says=says, after=after):
            return "" if model.calls < after or not says else says.pop()

        assert run(model, clock, stop=stop).memory is None
        assert model.calls == after
    # The run may also be stopped after all trials.
    says = iter(
        [*[""] * (2 + 20 + trials._SETTLING_TRIALS + 5 + 1), "interrupted by SIGINT"]
    )  # the run asks once more between blocks
    recording = run(Chain(clock), clock, stop=lambda: next(says))
    assert (recording.ended, recording.memory) == ("complete", None)


def test_time_limit_leaves_profiled_and_unprofiled_trials(clock):
    recording = run(Chain(clock), clock, asked(max_seconds=1e-9))
    assert recording.ended == "time limit reached"
    assert (recording.n_trials, len(recording.clean_ns)) == (1, 1)


@given(st.integers(0, 30_000), st.integers(0, 3_000))
def test_cycles_contain_every_trial_once(trials, clean):
    all_cycles = list(cycles(trials, clean))
    assert sum(before + after for before, _, after in all_cycles) == trials
    assert sum(clean for _, clean, _ in all_cycles) == clean
    assert all(min(cycle) >= 0 for cycle in all_cycles)
    assert all(before - after in (0, 1) for before, _, after in all_cycles)
    # split_first_cycle() splits a long first cycle, and contains each of its trials once.
    cycle = all_cycles[0]
    subcycles = list(split_first_cycle(*cycle))
    assert sum(before + after for before, _, after in subcycles) == cycle[0] + cycle[2]
    assert sum(clean for _, clean, _ in subcycles) == cycle[1]
    assert min(map(min, subcycles)) >= 0
    assert subcycles[0][:2] == (min(sum(cycle[::2]), 1), min(cycle[1], 1))


def test_default_numbers_of_cycles_and_unprofiled_trials():
    assert list(cycles(10_000, 1000)) == [(100, 20, 100)] * 50
    assert [default_clean_trials(n) for n in (1, 20, 50, 301, 10_000)] == [5, 20, 30, 31, 1000]


def distance(y):
    return F.mean(y * y)


def test_settings_describe_the_profile():
    model = chainer.Sequential(L.Linear(3, 4), F.relu)
    custom = {
        "loss": distance,
        "optimizer": chainer.optimizers.Adam().setup(model),
        "memory": False,
    }
    for phase, more, loss, optimizer in (
        ("forward", {"train_mode": True}, "", ""),
        ("forward-backward", {}, "softmax_cross_entropy", ""),
        ("train", {}, "softmax_cross_entropy", "MomentumSGD"),
        ("train", custom, "distance", "Adam"),
    ):
        recording = profile(model, image(5, 3), trials=6, warmups=1, phase=phase, **more)
        settings = recording.settings
        assert (settings.model, settings.batchsize, settings.input_shape) == (
            "Sequential",
            5,
            (5, 3),
        )
        assert (settings.trials, settings.clean_trials, settings.warmups) == (6, 6, 1)
        assert (settings.phase, settings.loss, settings.optimizer) == (phase, loss, optimizer)
        assert (settings.train_mode, settings.with_graph) == (True, False)
        assert ("update" in recording.phases) == (phase == "train")
        assert (recording.self_ns > 0).all()


def test_an_error_of_the_callers_progress_ends_the_run_with_its_trials(clock):
    def progress(done, total, mean_s):
        raise ValueError("no\nterminal")

    with pytest.raises(RunError) as caught:
        run(Chain(clock), clock, progress=progress)
    recording = caught.value.recording
    assert str(caught.value) == "progress= fails: ValueError: no terminal, after 10 trials"
    assert recording.n_trials == 10
    assert recording.ended == f"failed: {caught.value}"
