from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import chainer
import chainer.functions as F
import chainer.links as L
import pytest
from chainer.function_hooks import TimerHook

from chainer_profile import LayerTimerHook, fold_call_history, summarise
from chainer_profile.basics.errors import ProfileError
from chainer_profile.measure.learner import Learner
from chainer_profile.measure.link_rows import Rows
from chainer_profile.measure.runner import run
from chainer_profile.measure.steps import ForwardStep
from chainer_profile.record.recording import Settings as RunSettings
from tests.conftest import CALIBRATION, FakeClock
from tests.measure.ledger import Busy, WorkError, doing
from tests.nets import Chain, Step, Wait, Weighted, image, net


@pytest.fixture
def hook(clock):
    return LayerTimerHook(clock)


class TestLikeTimerHook:
    """That histories and totals are TimerHook's is in test_doors.py."""

    def test_print_report_is_timer_hooks(self, clock, hook):
        with hook:
            Chain(clock)(image())
        timer, mine, theirs = TimerHook(), io.StringIO(), io.StringIO()
        timer.call_history = hook.call_history
        hook.print_report(file=mine)
        timer.print_report(file=theirs)
        assert mine.getvalue() == theirs.getvalue()
        assert "LongWait      80.00ns           2" in mine.getvalue()

    def test_print_report_of_nothing(self, hook, capsys):
        hook.print_report()
        assert capsys.readouterr().out == "no function was called under this hook\n"


class TestRecording:
    def test_layers_with_paths_and_exact_times(self, clock, hook):
        model = Chain(clock)
        with hook:
            for _ in range(4):
                model(image(5, 2))
        recording = hook.recording()
        assert [layer.path for layer in recording.layers] == ["/first", "/second", "/second"]
        assert recording.layers[0].input_shapes == ((5, 2),)
        assert recording.self_ns.tolist() == [[100, 40, 40]] * 3
        assert recording.trial_ns.tolist() == [208] * 3
        assert recording.warmup_ns.tolist() == [208]
        assert recording.settings.model == "Chain"
        assert recording.settings.batchsize == 5
        assert recording.settings.train_mode is True
        assert recording.conditions.calibrations == (CALIBRATION,)

    def test_a_gradient_within_the_network_is_framework_time(self, clock, hook):
        def forward(self, x):
            y = self.first(x)
            chainer.grad([y], [self.first.W])
            return y

        model = net(forward, first=Weighted(clock, 100, 200))
        with hook:
            for _ in range(3):
                model(image())
        recording = hook.recording()
        assert [(a.path, a.phase) for a in recording.layers] == [
            ("/first", "forward"),
            ("/first", "backward"),
        ]
        assert recording.self_ns.tolist() == [[100, 200]] * 2
        assert recording.trial_ns.tolist() == [100 + 7 + 200] * 2

    def test_functions_without_a_link_are_folded_by_their_period(self, hook):
        with hook:
            for _ in range(3):
                F.tanh(F.relu(image()))
        recording = hook.recording()
        assert [layer.function for layer in recording.layers] == ["ReLU", "Tanh"]
        assert recording.n_trials == 3

    @pytest.mark.parametrize("fails", [{0}, {1, 4}, {6}, {0, 6}])
    def test_trials_that_raise_count_for_nothing(self, clock, hook, fails):
        def does(self, x, n):
            y = self.a(x)
            if n in fails:
                raise ValueError
            return self.b(y)

        model = doing(does, a=Step(clock, 3), b=Step(clock, 4))
        with hook:
            for _ in range(9):
                with suppress(ValueError):
                    model(image())
                F.identity(image())
        recording = hook.recording()
        n_trials = 9 - len(fails) - 1  # the first one that ended has taught
        assert recording.self_ns.tolist() == [[3, 4]] * n_trials
        assert recording.trial_ns.tolist() == [3 + 4 + 2 * 7] * n_trials
        assert {link.path: link.calls for link in recording.links} == {"/": 1, "/a": 1, "/b": 1}
        assert len(hook.call_history) == 9 * 3 - len(fails)

    def test_nothing_ran(self, hook):
        with pytest.raises(ProfileError, match="call history is empty"):
            hook.recording()


def rows(recording):
    """The paths and times of all rows, which are those of every trial; and the trials' number."""
    assert not recording.by_link
    assert (recording.self_ns == recording.self_ns[0]).all()
    times = recording.self_ns[0].tolist()
    return [
        (layer.path, time) for layer, time in zip(recording.layers, times, strict=True)
    ], recording.n_trials


def in_turn(**links):
    """A network that calls its links in turn."""
    names = list(links)
    return doing(lambda self, x, n: getattr(self, names[n % len(names)])(x), **links)


class TestTrialsThatDiffer:
    def test_other_shapes(self, clock, hook):
        model = doing(lambda self, x, n: Busy(clock, x.shape[1]).apply((x,))[0])
        with hook:
            for width in (16, 16, 16, 64, 64, 64, 64, 16):
                model(image(1, width))
        recording = hook.recording()
        assert recording.by_link
        (layer,) = recording.layers
        assert (layer.path, layer.function, layer.calls) == ("/", "Busy", 1)
        assert layer.input_shapes == ((1, 64),)  # most of the time
        assert recording.self_ns[:, 0].tolist() == [16, 16, 64, 64, 64, 64, 16]
        assert recording.trial_ns.tolist() == recording.self_ns[:, 0].tolist()
        assert recording.warmup_ns.tolist() == [16]

    def test_other_calls(self, clock, hook):
        model = doing(lambda self, x, n: self.a(self.b(x)) if n > 3 else self.a(x))
        with model.init_scope():
            model.a, model.b = Step(clock, 3), Step(clock, 5)
        with hook:
            for _ in range(8):
                model(image())
        recording = hook.recording()
        assert [(layer.path, layer.calls) for layer in recording.layers] == [("/a", 1), ("/b", 0.5)]
        # The first one taught; nothing tells of the links of the first one that made other calls.
        assert recording.self_ns.tolist() == [[3, 0]] * 3 + [[3, 5]] * 3
        assert recording.calls.tolist() == [[1, 0]] * 3 + [[1, 1]] * 3
        assert recording.warmup_ns.tolist() == [10, 22]
        assert {link.path: link.calls for link in recording.links} == {"/": 1, "/a": 1, "/b": 0.5}
        assert [name for name, _ in hook.call_history] == ["Wait"] * 12
        assert summarise(recording).layers["path"].tolist() == ["/a", "/b"]

    def test_rows_are_those_of_calls_folded(self, hook):
        """Shapes, bytes and work of a row count the calls before the first trial that differed."""
        model = doing(lambda self, x, n: F.relu(self.a(F.relu(self.a(x)))), a=L.Linear(3, 3))
        with hook:
            for _ in range(5):
                model(image(2, 3))
            exact = hook.recording()
            model(image(1, 3))
        recording = hook.recording()
        assert exact.n_trials == 4
        assert recording.n_trials == 5
        assert [(layer.path, layer.function) for layer in recording.layers] == [
            ("/a", "LinearFunction"),
            ("/", "ReLU"),
        ]
        for number, row in enumerate(recording.layers):
            calls = exact.layers[number::2]
            assert row.calls == 2
            for name in ("flops", "nbytes_read", "nbytes_written", "output_nbytes"):
                assert getattr(row, name) == sum(getattr(call, name) for call in calls)
            of_calls = exact.self_ns[:, number::2].sum(axis=1)
            assert recording.self_ns[:4, number].tolist() == of_calls.tolist()

    def test_two_networks_of_which_one_differs(self, clock, hook):
        same, differs = Chain(clock), in_turn(a=Step(clock, 3), b=Step(clock, 4))
        with hook:
            for _ in range(6):
                differs(same(image()))
        assert rows(hook.recording(same)) == (
            [("/first", 100), ("/second", 40), ("/second", 40)],
            5,
        )
        assert hook.recording(differs).self_ns.tolist() == [[3, 0], [0, 4]] * 2
        assert [name for name, _ in hook.call_history] == [
            "Wait",
            "LongWait",
            "LongWait",
            "Wait",
        ] * 6

    def test_a_second_use_goes_on(self, clock, hook):
        model = in_turn(a=Step(clock, 3), b=Step(clock, 4))
        for _ in range(2):
            with hook:
                for _ in range(4):
                    model(image())
        assert hook.recording().self_ns.tolist() == [[3, 0], [0, 4]] * 3

    def test_train_and_test_mode_in_turn(self, hook):
        model = doing(lambda self, x, n: self.bn(x), bn=L.BatchNormalization(2))
        with hook:
            for train in [True] * 3 + [False] * 3 + [True] * 3:
                with chainer.using_config("train", train):
                    model(image(4, 2))
        recording = hook.recording()
        assert [layer.function for layer in recording.layers] == [
            "BatchNormalization",
            "FixedBatchNormalization",
        ]
        assert recording.calls.tolist() == [[1, 0]] * 2 + [[0, 1]] * 2 + [[1, 0]] * 3

    def test_networks_have_recordings_of_their_own(self, clock, hook):
        first, second = Chain(clock), Step(clock, 1)
        with hook:
            for _ in range(3):
                second(first(image()))
        assert hook.networks == [first, second]
        assert hook.recording().self_ns.tolist() == [[100, 40, 40]] * 2
        assert hook.recording(second).self_ns.tolist() == [[1]] * 2
        with pytest.raises(ProfileError, match="no Chain of this kind was called"):
            hook.recording(Chain(clock))


class TestProgramsThatTimerHookMeasures:
    def test_a_network_that_calls_itself(self, clock, hook):
        def forward(self, x, depth=2):
            if not depth:
                return self.leaf(x)
            return Busy(clock, 1).apply((self(x, depth - 1), self(x, depth - 1)))[0]

        model = net(forward, leaf=Step(clock, 3))
        with hook:
            for _ in range(3):
                model(image())
        leaves = [("/leaf", 3)] * 2 + [("/", 1)]
        assert rows(hook.recording()) == (leaves * 2 + [("/", 1)], 2)

    def test_copies_and_other_threads_are_no_trials_of_a_network(self, clock, hook):
        model = Chain(clock)
        with hook:
            for _ in range(5):
                model(image())
            model.copy()(image())
            with ThreadPoolExecutor(1) as pool:
                pool.submit(model, image()).result()
            model(image())
        assert hook.recording(model).n_trials == 5
        assert len(hook.call_history) == 7 * 3

    def test_forget(self, clock, hook):
        fc = L.Linear(2, 2)
        with hook:
            for _ in range(3):
                y = F.sum(F.forget(lambda x: F.relu(fc(x)), chainer.Variable(image())))
                y.backward()
        timer = TimerHook()
        with timer:
            F.sum(F.forget(lambda x: F.relu(fc(x)), chainer.Variable(image()))).backward()
        assert [name for name, _ in hook.call_history] == [
            name for name, _ in timer.call_history
        ] * 3

    def test_two_that_end_in_the_order_in_which_they_began(self, clock):
        class Block(Step):
            def __call__(self, x):
                return self.forward(x)

        before = dict(vars(Block))
        first, second = LayerTimerHook(clock), LayerTimerHook(clock)
        model = doing(lambda self, x, n: self.a(x), a=Block(clock, 3))
        for hook in (first, second):
            chainer.get_function_hooks()[hook.name] = hook
            hook.added(None)
        for _ in range(5):
            model(image())
        for hook, n_trials in ((first, 4), (second, 5)):
            del chainer.get_function_hooks()[hook.name]
            hook.deleted(None)
            assert rows(hook.recording()) == ([("/a", 3)], n_trials)
            model(image())
        assert dict(vars(Block)) == before

    def test_a_profile_within_one_is_exact(self, clock, hook):
        def does(self, x, n):
            with suppress(WorkError):
                Busy(clock, 5, raises="forward").apply((x,))
            return self.a(x)

        model = doing(does, a=Step(clock, 3))
        with hook:
            model(image())
            plan = RunSettings(trials=4, warmups=1, clean_trials=1)
            step = ForwardStep(model, (image(),))
            recording = run(step, plan, clock=clock, memory=False, choose_threads=False)
            for _ in range(3):
                model(image())
        for one in (recording, hook.recording()):
            assert rows(one)[0] == [("/", 5), ("/a", 3)]
            assert set(one.trial_ns.tolist()) == {5 + 3 + 7}
        assert recording.n_trials == 4


class TestOwnTime:
    def test_learning_counts_for_nothing(self):
        """Every look at the clock takes time, and so does learning; no function's time grows."""
        clock = FakeClock()
        model = Chain(clock)
        hook, learn = LayerTimerHook(clock), Learner._new_row

        def slow(*args, **kwargs):
            clock.advance(1000)
            return learn(*args, **kwargs)

        with pytest.MonkeyPatch.context() as patch, hook:
            patch.setattr(Learner, "_new_row", slow)
            model(image())
        assert [round(seconds * 1e9) for _, seconds in hook.call_history] == [100, 40, 40]
        assert hook.total_time() == pytest.approx(180e-9)
        assert hook.recording().trial_ns.tolist() == [208]

    def test_looking_up_counts_for_nothing(self, clock, hook):
        """Neither in the rows nor in the history, where a trial differs."""
        model, look = in_turn(a=Step(clock, 3), b=Step(clock, 4)), Rows.entry_of

        def slow(*args, **kwargs):
            clock.advance(1000)
            return look(*args, **kwargs)

        with pytest.MonkeyPatch.context() as patch, hook:
            patch.setattr(Rows, "entry_of", slow)
            for _ in range(6):
                model(image())
        assert [round(seconds * 1e9) for _, seconds in hook.call_history] == [3, 4] * 3
        assert hook.recording().self_ns.tolist() == [[3, 0], [0, 4]] * 2
        assert hook.recording().trial_ns.tolist() == [10, 11] * 2

    def test_functions_without_links_know_what_is_nested(self, clock, hook):
        with hook:
            for _ in range(3):
                Busy(clock, 3, inner=[Wait(clock, 5)]).apply((image(),))
        recording = hook.recording()
        assert recording.self_ns.tolist() == [[5, 3]] * 3
        assert not recording.settings.inclusive
        assert hook.total_time() == pytest.approx(24e-9)
        bare = fold_call_history(hook.call_history)
        assert bare.self_ns.tolist() == [[5, 8]] * 3
        assert bare.settings.inclusive
        assert fold_call_history(hook).self_ns.tolist() == [[5, 3]] * 3
