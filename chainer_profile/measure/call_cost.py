"""What recording a call by link costs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import chainer
import numpy as np

from chainer_profile.measure.link_recorder import LinkRecorder

if TYPE_CHECKING:
    from chainer_profile.measure.clock import NowNs

#: Calls, and rounds of so many steps of a recurrent network, by which the cost of a call is told.
_SHOWN, _ROUNDS, _STEPS = 500, 5, 20


def cost_of_a_call(now_ns: NowNs) -> tuple[float, float]:
    """Nanoseconds that are shown for a function that does nothing, and that a call really adds."""
    recorder = LinkRecorder(now_ns, _Nothing(), _NoLinks())
    function, inputs = _Function(), (np.empty(0),)
    with recorder.recording():
        hook = recorder.hook
        for _ in range(_SHOWN):
            hook.forward_preprocess(function, inputs)
            hook.forward_postprocess(function, inputs)
    stamps = recorder.rows.fold(recorder.log).stamps[-2 * _SHOWN :]
    others = chainer.get_function_hooks()
    hooks = dict(others)
    others.clear()  # they are to hear nothing of it
    try:
        with chainer.using_config("enable_backprop", True):
            added = [_added_ns(recorder, now_ns) for _ in range(_ROUNDS)]
    finally:
        others.update(hooks)
    return float(np.median(stamps[1::2] - stamps[::2])), float(np.median(added[1:]))


def _added_ns(recorder: LinkRecorder, now_ns: NowNs) -> float:
    def unrolled() -> int:
        start_ns = now_ns()
        x, weight = (chainer.Variable(np.ones((1, 1), np.float32)) for _ in range(2))
        y = x
        for _ in range(_STEPS):
            y = chainer.functions.relu(chainer.functions.linear(y, weight) + y)
        # No entry of Chainer's that something of ours stands at.
        chainer.grad([y], [x, weight], [chainer.Variable(np.ones((1, 1), np.float32))])
        return now_ns() - start_ns

    plain_ns = unrolled()
    with recorder.recording():
        recorder.start()
        recorded_ns = unrolled()
        start_ns = now_ns()
        found = recorder.end()
    recorded_ns += now_ns() - start_ns - found.paused_ns
    return max(0.0, recorded_ns - plain_ns) / max(1, int(found.calls.sum()))


class _Nothing:
    """A trial in which nothing is timed."""

    roots = inputs = ()

    @contextmanager
    def timed(self, enter: Any, leave: Any) -> Iterator[None]:
        yield


class _NoLinks:
    def __init__(self) -> None:
        self.links: list[Any] = []
        self.link_calls: dict[int, int] | None = None


class _Function:
    _impl_name = "Nothing"
