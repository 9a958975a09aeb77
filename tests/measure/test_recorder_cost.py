"""The cost of recording a call, measured without hooks and patches of the program."""

from time import perf_counter_ns

import chainer
from chainer import FunctionHook, FunctionNode

from chainer_profile.measure.recorder_cost import cost_of_a_call


class Forbidden(FunctionHook):
    def forward_preprocess(self, function, in_data):
        raise AssertionError


def test_cost_is_measured_without_hooks_and_patches_of_the_program(monkeypatch):
    def forbidden(*args, **kwargs):
        raise AssertionError

    monkeypatch.setattr(FunctionNode, "apply", forbidden)
    monkeypatch.setattr(chainer.Link, "__call__", forbidden)
    now = perf_counter_ns
    with Forbidden() as hook:
        assert 0 <= cost_of_a_call(lambda: now()) < 1e6
        assert list(chainer.get_function_hooks().values()) == [hook]
    assert FunctionNode.apply is forbidden


def test_cost_is_the_difference_of_recorded_and_plain_calls():
    """Each reading advances the clock by 1 ns, and recording a call takes two readings."""
    reading = iter(range(10**9))
    assert cost_of_a_call(lambda: next(reading)) == 2
