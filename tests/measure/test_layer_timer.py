from __future__ import annotations

import io

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest
from chainer.function_hooks import TimerHook

from chainer_profile import LayerTimerHook, summarise
from chainer_profile.basics.errors import ProfileError
from tests.nets import Chain, Outer, Step, Trained, Wait, image, slow_loss


@pytest.fixture
def hook(clock):
    return LayerTimerHook(clock)


class TestLikeTimerHook:
    def test_call_history(self, clock, hook):
        with hook:
            Chain(clock)(image())
        assert [name for name, _ in hook.call_history] == ["Wait", "LongWait", "LongWait"]
        assert [time for _, time in hook.call_history] == [100 / 1e9, 40 / 1e9, 40 / 1e9]
        assert hook.total_time() == pytest.approx(180e-9)

    def test_nested_calls_count_once_in_the_total_as_in_timer_hook(self, clock, hook):
        with hook:
            Step(clock, 10, Outer)(image())
        assert hook.call_history == [("Wait", 30 / 1e9), ("Outer", 50 / 1e9)]
        assert hook.total_time() == pytest.approx(50e-9)
        (_, outer), (_, inner) = reversed(hook.call_history)
        assert hook.recording().self_ns.tolist() == [[round((outer - inner) * 1e9), 30]]

    def test_same_calls_as_timer_hook_forward_and_backward(self, hook):
        model, x = L.Linear(2, 3), np.ones((1, 2), np.float32)
        timer = TimerHook()
        with timer, hook:
            F.sum(F.relu(model(x))).backward()
        assert [n for n, _ in hook.call_history] == [n for n, _ in timer.call_history]
        mine, theirs = hook.summary(), timer.summary()
        assert {k: v["occurrence"] for k, v in mine.items()} == {
            k: v["occurrence"] for k, v in theirs.items()
        }
        assert sum(v["occurrence"] for v in mine.values()) == len(hook.call_history)

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

    def test_a_second_use_goes_on(self, clock, hook):
        model = Chain(clock)
        for _ in range(2):
            with hook:
                model(image())
        assert len(hook.call_history) == 6
        assert not chainer.get_function_hooks()
        assert not chainer._get_link_hooks()


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

    def test_one_trial_is_enough(self, clock, hook):
        with hook:
            Chain(clock)(image())
        summary = summarise(hook.recording())
        assert summary.layers["mean_s"].tolist() == pytest.approx([100e-9, 40e-9, 40e-9])
        assert summary.totals.framework.mean_s == pytest.approx(28e-9)

    def test_backward_and_outside_functions_are_left_out(self, hook):
        model, x = L.Linear(2, 3), np.ones((1, 2), np.float32)
        with hook:
            for _ in range(3):
                F.sum(model(x)).backward()
        assert [layer.function for layer in hook.recording().layers] == ["LinearFunction"]
        assert "Sum" in dict(hook.call_history)

    def test_a_training_shows_its_forward_pass(self, clock, hook):
        model = Trained(clock)
        loss = slow_loss(clock)
        with hook, chainer.using_config("train", True):
            for _ in range(4):
                value = loss(model(image()))
                model.cleargrads()
                value.backward()
        recording = hook.recording()
        assert [(a.path, a.function, a.phase) for a in recording.layers] == [
            ("/first", "Sum", "forward"),
            ("/second", "Nesting", "forward"),
            ("/second", "Nesting", "forward"),
        ]
        assert recording.self_ns.tolist() == [[100, 40, 40]] * 3
        assert recording.trial_ns.tolist() == [100 + 2 * 40 + 10 + 3 * 7] * 3
        assert (recording.phases, recording.framework_ns) == ((), None)
        assert recording.settings.train_mode is True
        assert [(link.path, link.calls, link.parameters) for link in recording.links] == [
            ("/", 1, 0),
            ("/first", 1, 2),
            ("/second", 2, 2),
        ]
        # The 3 ns that a backward spends in another function count once in the total.
        assert hook.total_time() == pytest.approx(4 * (180 + 20 + 30 + 2 * 83 + 200) * 1e-9)

    def test_a_gradient_within_the_network_is_framework_time(self, clock, hook):
        class Net(Trained):
            def forward(self, x):
                y = self.first(x)
                chainer.grad([y], [self.first.W])
                return y

        model = Net(clock)
        with hook:
            for _ in range(3):
                model(image())
        recording = hook.recording()
        assert [layer.path for layer in recording.layers] == ["/first"]
        assert recording.self_ns.tolist() == [[100]] * 2
        assert recording.trial_ns.tolist() == [100 + 7 + 200] * 2

    def test_shared_links_and_loops(self, clock, hook):
        shared = Step(clock, 4)

        class Net(chainer.ChainList):
            def forward(self, x):
                for link in self:
                    x = link(x)
                return self[0](x)

        model = Net(shared, Step(clock, 3), shared)
        with hook:
            model(image())
        recording = hook.recording()
        assert [layer.path for layer in recording.layers] == ["/0", "/1", "/0", "/0"]
        assert recording.self_ns.tolist() == [[4, 3, 4, 4]]
        assert {link.path: link.calls for link in recording.links} == {"/": 1, "/0": 3, "/1": 1}

    def test_functions_without_a_link_are_folded_by_their_period(self, hook):
        with hook:
            for _ in range(3):
                F.tanh(F.relu(image()))
        recording = hook.recording()
        assert [layer.function for layer in recording.layers] == ["ReLU", "Tanh"]
        assert recording.n_trials == 3

    def test_an_exception_leaves_nothing_behind(self, clock, hook):
        class Fails(Chain):
            fail = True

            def forward(self, x):
                if self.fail:
                    self.first(x)
                    raise RuntimeError
                return super().forward(x)

        model = Fails(clock)
        with hook:
            model.fail = False
            model(image())
            model.fail = True
            with pytest.raises(RuntimeError):
                model(image())
            model.fail = False
            model(image())
        recording = hook.recording()
        assert recording.self_ns.tolist() == [[100, 40, 40]]
        assert recording.trial_ns.tolist() == [208]

    def test_an_exception_in_the_first_trial_is_not_counted(self, clock, hook):
        class Fails(Chain):
            def forward(self, x):
                if not self.calls:
                    self.calls += 1
                    self.second(self.first(x))
                    raise RuntimeError
                return super().forward(x)

        model = Fails(clock)
        with hook:
            with pytest.raises(RuntimeError):
                model(image())
            model(image())
        recording = hook.recording()
        assert recording.self_ns.tolist() == [[100, 40, 40]]
        assert {link.path: link.calls for link in recording.links} == {
            "/": 1,
            "/first": 1,
            "/second": 2,
        }

    def test_changing_calls_are_refused(self, clock, hook):
        model = Chain(clock)
        with hook:
            model(image())
            model.second = Step(clock, 1, Wait)
            model(image())
        with pytest.raises(ProfileError, match="call 1 was Wait, and LongWait in the first trial"):
            hook.recording()

    def test_two_networks_are_refused(self, clock, hook):
        with hook:
            Chain(clock)(image())
            Step(clock, 1)(image())
        with pytest.raises(ProfileError, match="two networks ran under the hook, Chain and Step"):
            hook.recording()

    def test_nothing_ran(self, hook):
        with pytest.raises(ProfileError, match="call history is empty"):
            hook.recording()
