"""The time that the recorder adds to a call of a function."""

from __future__ import annotations

from functools import cache
from typing import Any

import chainer
import numpy as np

from chainer_profile.measure import wrappers
from chainer_profile.measure.clock import Clock, DeviceQueue, NowNs
from chainer_profile.measure.session import Session

#: Rounds that measure the cost of a call, and the steps of a round, each with three calls; and
#: calls of a function that does nothing, on the host and on a device.
_ROUNDS, _STEPS = 12, 10
_EMPTY_CALLS, _DEVICE_CALLS = 500, 200


@cache
def cost_of_a_call(now_ns: NowNs) -> float:
    """Nanoseconds that the recorder adds to a call of a function."""
    session = Session([], Clock(now_ns))
    others = chainer.get_function_hooks()
    hooks = dict(others)
    others.clear()  # other hooks must not see these calls
    try:
        with chainer.using_config("enable_backprop", True):
            rounds = [_round_ns(session, now_ns) for _ in range(_ROUNDS)]
    finally:
        others.update(hooks)
    # The fastest of each kind: another program may take the core within any of them.
    plain_ns, recorded_ns, calls = np.array(rounds[1:]).min(axis=0).tolist()
    return float(max(0.0, recorded_ns - plain_ns) / max(1, calls))


def window_ns(now_ns: NowNs, queue: DeviceQueue | None = None) -> float:
    """Median nanoseconds that a row shows for a function that does nothing."""
    calls = _EMPTY_CALLS if queue is None else _DEVICE_CALLS
    session = Session([], Clock(now_ns, queue))
    hook = session.recorder
    function, inputs = _Function(), (np.empty(0),)
    hook.use(session.target.links)
    if queue is not None:
        # With work ahead of them the device would reach all events at once.
        queue.synchronize()
    session.begin_trial()
    for _ in range(1 + calls):  # the first call is new
        hook.forward_preprocess(function, inputs)
        hook.forward_postprocess(function, inputs)
    session.end_trial()
    values = session.last_values()[-2 * calls - 1 : -1]
    return float(np.median(values[1::2] - values[::2]))


def _round_ns(session: Session, now_ns: NowNs) -> tuple[int, int, int]:
    """Duration of some functions without and with the recorder, and the number of their calls."""

    def time_functions() -> int:
        start_ns = now_ns()
        array = np.ones((1, 1), np.float32)
        y = x = chainer.Variable(array)
        for _ in range(_STEPS):
            for other_inputs in ((), (array,), (array, array)):
                y = _First().apply((y, *other_inputs))[0]
        chainer.grad([y], [x], [chainer.Variable(array)])
        return now_ns() - start_ns

    plain_ns = time_functions()
    with session.recording():
        session.begin_trial()
        recorded_ns = time_functions()
        session.end_trial()
    session.read()
    last = session.last
    return plain_ns, recorded_ns - last.paused_ns, last.n_spans


class _First(chainer.FunctionNode):
    """Returns its first input. The program's patches of Chainer do not see its calls."""

    apply = wrappers.wrap_apply(wrappers.ORIGINAL_APPLY)

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return inputs[:1]

    def backward(self, indexes: tuple[int, ...], grads: tuple[Any, ...]) -> tuple[Any, ...]:
        return grads


class _Function:
    """A function that does nothing, with the attributes that the recorder reads."""

    _impl_name = "Nothing"
