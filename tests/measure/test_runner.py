from __future__ import annotations

import contextlib
import errno
import itertools
import tracemalloc

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile import LayerTimerHook, profile, summarise
from chainer_profile.basics.describe import FIRST_LOOK
from chainer_profile.basics.errors import ProfileError
from chainer_profile.measure import runner
from chainer_profile.measure.runner import RunError, default_clean_trials
from chainer_profile.measure.steps import make_step
from chainer_profile.measure.trials import cycles
from chainer_profile.record.journal import Journal, JournalError, Kind, recover
from chainer_profile.record.recording import Recording, Settings
from chainer_profile.report.text import run_lines
from tests.conftest import FakeClock
from tests.nets import Chain, Step, Wait, image, net
from tests.report.reading import report_md

TRIAL_NS = 208  # of a Chain: 180 in its functions, 7 of its own and 7 in each of its three links
N_STRUCTURE = 3  # structure passes before the first trial


pytestmark = pytest.mark.usefixtures("one_thread")


def settings(**changes):
    return Settings(**({"trials": 20, "clean_trials": 5, "warmups": 2} | changes))


def run(model, x, asked, **kwargs):
    """A run of a network's forward pass."""
    inputs = x if isinstance(x, tuple) else (x,)
    step = make_step("forward", model, inputs, train_mode=asked.train_mode)
    return runner.run(step, asked, **kwargs)


class TestRun:
    def test_times_are_exact_and_add_up(self, clock):
        recording = run(Chain(clock), image(), settings(), clock=clock)
        assert recording.ended == "complete"
        assert recording.self_ns.tolist() == [[100, 40, 40]] * 20
        assert set(recording.trial_ns.tolist()) == {TRIAL_NS}
        assert set((recording.trial_ns - recording.self_ns.sum(axis=1)).tolist()) == {28}
        assert recording.clean_ns.tolist() == [TRIAL_NS] * 5
        assert recording.warmup_ns.tolist() == [TRIAL_NS] * 2
        assert recording.phases == ()
        assert recording.framework_ns is None
        assert [(link.path, link.calls) for link in recording.links] == [
            ("/", 1),
            ("/first", 1),
            ("/second", 2),
        ]

    def test_clean_trials_have_their_cpu_time_and_their_wall_time_is_without_its_reading(self):
        class Costly(FakeClock):
            def cpu_ns(self):
                self.advance(1000)
                return 3 * self.time_ns  # that of three threads

        clock = Costly()
        recording = run(Chain(clock), image(), settings(), clock=clock)
        assert recording.clean_ns.tolist() == [TRIAL_NS] * 5
        assert recording.warmup_ns.tolist() == [TRIAL_NS] * 2
        assert recording.clean_cpu_ns.tolist() == [3 * (TRIAL_NS + 1000)] * 5

    def test_clean_blocks_alternate_with_profiled_ones(self, clock):
        recording = run(Chain(clock), image(), settings(trials=40, clean_trials=10), clock=clock)
        kinds = sorted(
            [(start, "P") for start in recording.start_ns.tolist()]
            + [(start, "C") for start in recording.clean_start_ns.tolist()]
        )
        text = "".join(kind for _, kind in kinds)
        assert text == ("P" * 10 + "C" * 5 + "P" * 10) * 2
        starts = [start for start, _ in kinds]
        assert np.diff(starts).tolist() == [TRIAL_NS] * 49

    def test_test_mode_without_a_graph_unless_asked(self, clock):
        for train_mode in (False, True):
            seen = set()

            def forward(self, x, seen=seen):
                seen.add((bool(chainer.config.train), bool(chainer.config.enable_backprop)))
                return F.relu(x)

            run(net(forward), image(), settings(train_mode=train_mode), clock=clock)
            assert seen == {(train_mode, False)}

    def test_a_forward_pass_that_takes_gradients_has_the_graph(self, clock):
        seen = []

        def forward(self, x):
            x = chainer.Variable(x)
            (y,) = Wait(clock, 10, 7).apply((x,))
            seen.append(bool(chainer.config.enable_backprop))
            return chainer.grad([y], [x])[0] * 2

        recording = run(net(forward), image(), settings(), clock=clock)
        assert recording.settings.with_graph
        assert recording.settings.phase == "forward"
        assert recording.self_ns.tolist() == [[10, 7, 0]] * 20
        assert [layer.phase for layer in recording.layers] == ["forward", "backward", "forward"]
        # Without, with, without; then all passes and trials.
        assert seen[:3] == [False, True, False]
        assert all(seen[3:])
        assert len(seen) == 3 + N_STRUCTURE + 2 + 5 + 20 + 1 + 2
        assert "test mode with backprop" in run_lines(recording)[0]
        assert "takes gradients and fails without" in report_md(summarise(recording))
        assert not run(Chain(clock), image(), settings(), clock=clock).settings.with_graph

    def test_progress_counts_to_the_end_with_the_mean(self, clock):
        seen = []
        run(Chain(clock), image(), settings(), clock=clock, progress=lambda *a: seen.append(a))
        done = [count for count, _, _ in seen]
        assert done == sorted(set(done))
        assert done[-1] == 20
        assert all(total == 20 for _, total, _ in seen)
        assert [mean for _, _, mean in seen] == pytest.approx([TRIAL_NS * 1e-9] * len(seen))

    def test_conditions_are_recorded(self):
        clock = FakeClock(read_ns=3)
        recording = run(Chain(clock), image(), settings(), clock=clock)
        assert recording.conditions.window_ns == 3
        assert recording.conditions.clock_resolution_ns == 1


class TestEnds:
    def test_stop_keeps_the_trials_so_far(self, clock):
        model = Chain(clock)

        def stop():
            return "interrupted by SIGINT" if model.calls == N_STRUCTURE + 2 + 4 else ""

        recording = run(model, image(), settings(), clock=clock, stop=stop)
        assert recording.ended == "interrupted by SIGINT"
        assert recording.self_ns.tolist() == [[100, 40, 40]] * 4

    def test_stop_during_the_warm_up(self, clock):
        recording = run(Chain(clock), image(), settings(), clock=clock, stop=lambda: "enough")
        assert (recording.n_trials, len(recording.warmup_ns)) == (0, 1)
        assert recording.ended == "enough"

    def test_the_wanted_interval_ends_the_run_at_the_first_look_or_later(self, clock):
        wanted = settings(trials=4000, clean_trials=100, until_ci=0.01)
        recording = run(Chain(clock), image(), wanted, clock=clock)
        # A cycle has 200 profiled trials: the first one is enough for a look.
        assert recording.n_trials == FIRST_LOOK == 200
        assert recording.ended == "wanted interval reached"

    def test_it_is_the_interval_of_the_median_and_not_of_the_mean(self, clock):
        class RarelySlow(Step):
            def forward(self, x):
                self._calls = getattr(self, "_calls", 0) + 1
                self._duration_ns = (20 if self._calls % 100 == 0 else 1) * 1000
                return super().forward(x)

        wanted = settings(trials=4000, clean_trials=100, until_ci=0.01)
        recording = run(RarelySlow(clock, 1), image(), wanted, clock=clock)
        assert recording.trial_ns.mean() > 1.05 * np.median(recording.trial_ns)
        assert (recording.n_trials, recording.ended) == (200, "wanted interval reached")

    def test_an_interval_that_is_not_reached_does_not_end_it(self, clock):
        class Drifting(Step):
            def forward(self, x):
                self._duration_ns += 1000
                return super().forward(x)

        recording = run(
            Drifting(clock, 1), image(), settings(trials=500, until_ci=0.001), clock=clock
        )
        assert (recording.n_trials, recording.ended) == (500, "complete")


class Changing(Chain):
    """Behaves differently from a call on: calls count from 1, structure passes included."""

    def __init__(self, clock, call, change):
        super().__init__(clock)
        self._call, self._change = call, change

    def forward(self, x):
        y = super().forward(x)
        return self._change(self, y) if self.calls >= self._call else y


def another_call(model, y):
    return Wait(model.clock, 1).apply((y,))[0]


def failure(model, y):
    raise ValueError("broken\n  on purpose")


class TestFailures:
    def test_an_exception_in_trial_5_keeps_4(self, clock):
        model = Changing(clock, N_STRUCTURE + 2 + 5, failure)
        with pytest.raises(RunError) as caught:
            run(model, image(), settings(), clock=clock)
        assert str(caught.value) == (
            "the network fails after 4 trials, in or after layer 2_LongWait: ValueError: broken on "
            "purpose"
        )
        assert caught.value.recording.self_ns.tolist() == [[100, 40, 40]] * 4
        assert not chainer.get_function_hooks()

    def test_an_input_that_the_network_refuses(self, clock):
        model = chainer.Sequential(chainer.links.Linear(3, 2))
        with pytest.raises(ProfileError) as caught:
            run(model, image(), settings(input_shape=(1, 2)), clock=clock)
        message = str(caught.value)
        assert message.startswith("the network fails with an input of 1x2, in Linear at /0: ")
        assert "\n" not in message

    def test_a_network_without_functions(self, clock):
        with pytest.raises(ProfileError, match="calls no Chainer function"):
            run(chainer.Sequential(lambda x: x), image(), settings(), clock=clock)

    def test_a_full_disk_keeps_every_trial(self, clock, monkeypatch):
        add = Journal.add_group
        calls = []

        def full(self, kind, trials):
            add(self, kind, trials)
            calls.append(kind)
            if calls.count(Kind.PROFILED) == 2:
                raise JournalError("No space left on device") from OSError(errno.ENOSPC)

        monkeypatch.setattr(Journal, "add_group", full)
        with pytest.raises(RunError, match=r"cannot be written after 10 trials: No space") as error:
            run(Chain(clock), image(), settings(warmups=0), clock=clock)
        assert error.value.recording.n_trials == 20  # those of the second group as well


def by_link(recording):
    """The rows of a recording by link, and of every trial their times; sums are exact."""
    assert recording.by_link
    assert recording.left_out == 0
    between = recording.trial_ns - recording.self_ns.sum(axis=1)
    assert (between >= 0).all()
    rows = [(layer.path, layer.function, layer.calls) for layer in recording.layers]
    return rows, recording.self_ns.tolist()


class TestTrialsThatDiffer:
    def test_from_the_structure_passes_on(self, clock):
        recording = run(Changing(clock, 3, another_call), image(), settings(), clock=clock)
        rows, times = by_link(recording)
        assert rows == [("/first", "Wait", 1), ("/second", "LongWait", 2), ("/", "Wait", 1)]
        assert times == [[100, 80, 1]] * 20
        assert len(recording.clean_ns) == 5
        assert recording.conditions.call_ns is not None

    def test_from_trial_5_on(self, clock):
        model = Changing(clock, N_STRUCTURE + 2 + 5, another_call)
        recording = run(model, image(), settings(), clock=clock)
        rows, times = by_link(recording)
        # Of the fifth no row's time is known.
        assert times == [[100, 80, 0]] * 4 + [[100, 80, 1]] * 16
        assert recording.calls.tolist() == [[1, 2, 0]] * 4 + [[1, 2, 1]] * 16
        assert [row[2] for row in rows] == [1, 2, 0.8]
        assert recording.warmup_ns.tolist()[2:] == [recording.trial_ns[-1]]
        assert (recording.n_trials, recording.ended) == (20, "complete")
        assert recording.memory is not None
        assert len(recording.memory.peak_nbytes) == 3

    @pytest.mark.parametrize(
        ("first", "later", "times"),
        [((1, 2), (1, 3), (2, 3)), ((2, 3), (3, 2), (7, 7))],  # the second of as many bytes
    )
    def test_other_shapes(self, clock, first, later, times):
        calls = itertools.count()

        def forward(self, x):
            at = int(next(calls) >= N_STRUCTURE + 2 + 15)
            return Wait(clock, times[at]).apply((image(*(first, later)[at]),))[0]

        recording = run(net(forward), image(), settings(clean_trials=0), clock=clock)
        expected = [[times[0]]] * 15 + [[times[1]]] * 5
        assert by_link(recording) == ([("/", "Wait", 1)], expected)

    def test_trials_of_which_no_two_are_alike(self, clock):
        made = itertools.count(1)

        def forward(self, x):
            for _ in range(min(next(made), 60)):  # further trials come with the counters
                (x,) = Wait(clock, 5).apply((x,))
            return x

        recording = run(net(forward), image(), settings(warmups=0), clock=clock, counters=True)
        _, times = by_link(recording)
        calls = recording.calls[:, 0].tolist()
        assert times == [[5 * n] for n in calls]
        assert len(set(calls)) == 20
        assert recording.counters.trials > 0
        assert len(recording.counters.counted[0].layers) == 1

    def test_they_are_in_the_file(self, clock, tmp_path):
        with open(tmp_path / "journal", "w+b") as file:
            model = Changing(clock, N_STRUCTURE + 2 + 5, another_call)
            recording = run(model, image(), settings(), journal=Journal(file), clock=clock)
        recording.save(tmp_path / "run.npz")
        for other in (Recording.load(tmp_path / "run.npz"), recover(tmp_path / "journal")):
            assert by_link(other) == by_link(recording)
            assert other.calls.tolist() == recording.calls.tolist()
            assert other.start_ns.tolist() == recording.start_ns.tolist()

    def test_a_failure_says_in_which_layer(self, clock):
        model = Changing(clock, 3, another_call)
        waits = Wait.forward

        def forward(self, inputs):
            if model.calls == N_STRUCTURE + 2 + 5:
                raise ValueError("broken\n  on purpose")
            return waits(self, inputs)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Wait, "forward", forward)
            with pytest.raises(RunError) as caught:
                run(model, image(), settings(), clock=clock)
        assert str(caught.value) == (
            "the network fails after 4 trials, in layer 0_Wait at /first: ValueError: broken on "
            "purpose"
        )
        assert caught.value.recording.n_trials == 4


class TestMemory:
    CALLS = N_STRUCTURE + 2 + 20 + 5 + 1  # of a run without the memory pass

    def test_the_pass_comes_after_all_trials_and_changes_none(self, clock, tmp_path):
        traced = []

        class Net(Chain):
            def forward(self, x):
                traced.append((tracemalloc.is_tracing(), len(chainer.get_function_hooks())))
                return super().forward(x)

        path = tmp_path / "journal"
        with open(path, "w+b") as file:
            recording = run(Net(clock), image(), settings(), clock=clock, journal=Journal(file))
        assert [on for on, _ in traced] == [False] * self.CALLS + [True] * 2
        assert [hooks for _, hooks in traced[-2:]] == [0, 1]
        assert not tracemalloc.is_tracing()
        assert len(recording.memory.peak_nbytes) == len(recording.layers) == 3
        assert recording.memory.input_nbytes == image().nbytes
        assert recording.memory.high_water_nbytes >= max(recording.memory.peak_nbytes) > 0
        # It is no part of the journal, but of the file.
        assert recover(path).memory is None
        recording.save(tmp_path / "recording.npz")
        assert Recording.load(tmp_path / "recording.npz").memory == recording.memory
        without = run(Chain(clock), image(), settings(), clock=clock, memory=False)
        assert without.memory is None
        for name in ("self_ns", "trial_ns", "clean_ns", "warmup_ns"):
            np.testing.assert_array_equal(getattr(recording, name), getattr(without, name))

    @pytest.mark.parametrize(
        ("call", "change", "message"),
        [
            (1, failure, "ValueError: broken on purpose"),
            (2, failure, "ValueError: broken on purpose"),
            (2, another_call, "its trial made other calls than those"),
        ],
    )
    def test_its_failure_is_a_warning(self, clock, call, change, message):
        model = Changing(clock, self.CALLS + call, change)
        with pytest.warns(UserWarning, match=rf"the memory pass fails \(.*{message}") as caught:
            recording = run(model, image(), settings(), clock=clock)
        assert len(caught) == 1
        assert "\n" not in str(caught[0].message)
        assert (recording.n_trials, recording.ended, recording.memory) == (20, "complete", None)
        assert not chainer.get_function_hooks()
        assert not tracemalloc.is_tracing()

    def test_it_is_made_where_a_run_ends_by_itself(self, clock):
        limited = settings(trials=4000, max_seconds=100 * TRIAL_NS * 1e-9)
        exact = settings(trials=4000, until_ci=0.01)
        for asked, ended in ((limited, "time limit reached"), (exact, "wanted interval reached")):
            recording = run(Chain(clock), image(), asked, clock=clock)
            assert recording.ended == ended
            assert recording.memory is not None

    @pytest.mark.parametrize("after", [N_STRUCTURE + 2 + 4, CALLS])
    def test_it_is_left_out_where_a_run_is_stopped_once(self, clock, after):
        model, said = Chain(clock), []

        def stop():
            if model.calls < after or said:
                return ""
            said.append("interrupted by SIGINT")
            return said[0]

        recording = run(model, image(), settings(), clock=clock, stop=stop)
        assert recording.memory is None
        assert model.calls == after


class TestCycles:
    @given(st.integers(0, 30_000), st.integers(0, 3_000))
    def test_every_trial_is_made_once(self, trials, clean):
        made = list(cycles(trials, clean))
        assert sum(before + behind for before, _, behind in made) == trials
        assert sum(clean for _, clean, _ in made) == clean
        assert all(min(cycle) >= 0 for cycle in made)
        assert all(before - behind in (0, 1) for before, _, behind in made)

    def test_the_main_job(self):
        assert list(cycles(10_000, 1000)) == [(100, 20, 100)] * 50

    def test_default_clean_trials(self):
        assert [default_clean_trials(n) for n in (1, 20, 50, 301, 10_000)] == [5, 20, 30, 31, 1000]


class TestProfile:
    def test_it_describes_itself(self, clock):
        recording = profile(Chain(clock), image(4, 2), trials=10, warmups=1)
        made = recording.settings
        assert (made.model, made.batchsize, made.input_shape) == ("Chain", 4, (4, 2))
        assert (made.trials, made.clean_trials, made.warmups) == (10, 10, 1)
        described = made.phase, made.loss, made.optimizer, made.train_mode
        assert described == ("forward", "", "", False)
        assert recording.self_ns.shape == (10, 3)
        assert profile(Chain(clock), image(), trials=5, train_mode=True).settings.train_mode is True

    @pytest.mark.parametrize(
        ("phase", "optimizer"), [("forward-backward", ""), ("train", "MomentumSGD")]
    )
    def test_training(self, phase, optimizer):
        model = chainer.Sequential(L.Linear(3, 4), F.relu)
        recording = profile(model, image(5, 3), trials=6, warmups=1, phase=phase)
        made = recording.settings
        described = made.phase, made.loss, made.optimizer, made.train_mode
        assert described == (phase, "softmax_cross_entropy", optimizer, True)
        phases = {"forward", "backward", *(["update"] if optimizer else [])}
        assert set(recording.phases) == phases
        assert recording.framework_ns.shape == (6, len(recording.phases))
        outside = recording.trial_ns - recording.self_ns.sum(axis=1)
        assert (outside - recording.framework_ns.sum(axis=1) > 0).all()
        assert (recording.self_ns > 0).all()

    def test_a_loss_and_an_optimizer_of_ones_own(self):
        def distance(y):
            return F.mean(y * y)

        model = L.Linear(3, 4)
        adam = chainer.optimizers.Adam().setup(model)
        own = {"phase": "train", "loss": distance, "optimizer": adam}
        recording = profile(model, image(5, 3), trials=5, warmups=1, memory=False, **own)
        made = recording.settings
        assert (made.loss, made.optimizer) == ("distance", "Adam")
        assert adam.t == 0  # as it was found; see test_left_as_found.py
        assert recording.memory is None
        assert "Adam" in {layer.function for layer in recording.layers}

    def test_what_cannot_be_is_refused(self, clock):
        with pytest.raises(ProfileError, match="it is no loss, which is one number"):
            profile(Chain(clock), image(), phase="train", loss="output")


@pytest.mark.parametrize("every", [2, 3])
def test_of_a_function_that_raises_in_some_trials_the_memory_pass_ends_its_window(every):
    """It is the last call, so that trials in which it raises make the same calls."""
    calls = itertools.count()

    class Sometimes(chainer.FunctionNode):
        def forward(self, inputs):
            if next(calls) % every:
                raise ValueError
            return (inputs[0] + 1,)

    def forward(self, x):
        y = F.tanh(x)
        with contextlib.suppress(ValueError):
            Sometimes().apply((y,))
        return y

    for _ in range(every):
        recording = profile(net(forward), image(), trials=20, clean_trials=2)
        assert recording.memory is not None
        assert [layer.function for layer in recording.layers] == ["Tanh", "Sometimes"]
        assert recording.n_trials == 20
        next(calls)  # the next run begins with another one


def test_links_without_a_hash():
    """A class with an equality of its own has none; Chainer does not need it."""

    class Scale(L.Scale):
        def __eq__(self, other):
            return True

    class Net(chainer.Chain):
        def __init__(self):
            super().__init__()
            with self.init_scope():
                self.a = Scale(0, ())
                self.b = Scale(0, ())
                self.c = Scale(0, (1,))

        def __eq__(self, other):
            return True

        def forward(self, x):
            return self.c(self.b(F.tanh(self.a(x))))

    net, x = Net(), image()
    hook = LayerTimerHook()
    with hook:
        for _ in range(3):
            net(x)
    for recording in (profile(net, x, trials=3, clean_trials=0), hook.recording(net)):
        assert [layer.path for layer in recording.layers if layer.function == "Mul"] == [
            *("/a", "/b", "/c")
        ]
