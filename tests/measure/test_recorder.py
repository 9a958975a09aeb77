"""The recorder: exact times of a forward pass, and nothing that stays behind."""

from __future__ import annotations

import gc
import weakref

import chainer
import numpy as np
import pytest

from chainer_profile.measure.learner import learn_structure
from chainer_profile.measure.recorder import Recorder
from chainer_profile.measure.steps import ForwardStep
from tests.conftest import FakeClock
from tests.nets import Chain, Outer, Step, Wait, image, stamps_of, whats_of


def learned(model, x):
    step = ForwardStep(model, (x,))
    with step.configured():
        return step, learn_structure(step)


def record(step, structure, clock):
    recorder = Recorder(clock.now_ns, step)
    with step.configured(), recorder:
        step()
    return recorder, structure.times_ns(stamps_of(recorder.log))


class TestRecorder:
    def test_times_are_exact(self, clock):
        _, times = record(*learned(Chain(clock), image()), clock)
        assert times.tolist() == [100, 40, 40]
        assert times.dtype == np.int64

    def test_nested_time_is_counted_once(self, clock):
        start = clock.time_ns
        step, structure = learned(Step(clock, 10, Outer), image())
        trial_ns = clock.time_ns - start
        _, times = record(step, structure, clock)
        assert times.tolist() == [20, 30]
        assert trial_ns - times.sum() == 7  # the link's own time

    def test_each_clock_read_falls_into_one_window(self):
        clock = FakeClock(read_ns=1)
        _, times = record(*learned(Chain(clock), image()), clock)
        assert times.tolist() == [101, 41, 41]

    def test_functions_are_not_kept_alive(self, clock):
        nodes: list[weakref.ref] = []

        class Net(chainer.Chain):
            def forward(self, x):
                node = Wait(clock, 1)
                nodes.append(weakref.ref(node))
                return node.apply((x,))[0]

        recorder, _ = record(*learned(Net(), image()), clock)
        gc.collect()
        assert whats_of(recorder.log) == [Wait]
        assert len(nodes) == 2
        assert all(node() is None for node in nodes)

    def test_clear_forgets_an_unfinished_trial(self, clock):
        class Net(chainer.Chain):
            fail = True

            def forward(self, x):
                y = Wait(clock, 3).apply((x,))[0]
                if self.fail:
                    raise RuntimeError
                return y

        model = Net()
        step = ForwardStep(model, (image(),))
        recorder = Recorder(clock.now_ns, step)
        with pytest.raises(RuntimeError), recorder:
            step()
        assert not chainer.get_function_hooks()
        assert len(stamps_of(recorder.log)) == 2
        recorder.clear()
        model.fail = False
        with recorder:
            step()
        assert (len(stamps_of(recorder.log)), whats_of(recorder.log)) == (2, [Wait])

    def test_window_is_what_an_empty_function_shows(self, clock):
        step = ForwardStep(Chain(clock), (image(),))
        assert Recorder(FakeClock(read_ns=7).now_ns, step).window_ns(11) == 7

    def test_several_at_once(self, clock):
        """As of a profile within a profiled training."""
        step, structure = learned(Chain(clock), image())
        first, second = Recorder(clock.now_ns, step), Recorder(clock.now_ns, step)
        with step.configured(), first, second:
            step()
        assert not chainer.get_function_hooks()
        for recorder in (first, second):
            assert structure.times_ns(structure.stamps(recorder.log)).tolist() == [100, 40, 40]
