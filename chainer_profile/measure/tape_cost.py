"""What the tape adds to a call."""

from __future__ import annotations

from functools import cache

import chainer
import numpy as np

from chainer_profile.measure.clock import DeviceQueue, NowNs
from chainer_profile.measure.entries import Entries
from chainer_profile.measure.events import EventPool
from chainer_profile.measure.loop import LoopTrial
from chainer_profile.measure.tape import Tape
from chainer_profile.measure.taped_step import as_it_is

#: Rounds, and steps of a recurrent network in each, by which the cost of a call is told; and calls
#: of a function that does nothing.
_ROUNDS, _STEPS, _EMPTY_CALLS = 12, 10, 500
_DEVICE_CALLS = 200


@cache
def cost_of_a_call(now_ns: NowNs) -> float:
    """Nanoseconds that a call on the tape really adds."""
    tape = Tape(now_ns, LoopTrial([]), Entries(as_it_is))
    others = chainer.get_function_hooks()
    hooks = dict(others)
    others.clear()  # they are to hear nothing of it
    try:
        with chainer.using_config("enable_backprop", True):
            rounds = [_round_ns(tape, now_ns) for _ in range(_ROUNDS)]
    finally:
        others.update(hooks)
    # The fastest of each kind: another program may take the core within any of them.
    plain_ns, recorded_ns, calls = np.array(rounds[1:]).min(axis=0).tolist()
    return float(max(0.0, recorded_ns - plain_ns) / max(1, calls))


def window_ns(now_ns: NowNs, queue: DeviceQueue | None = None) -> float:
    """Median nanoseconds that are shown for a function that does nothing, maybe on a device."""
    events, calls = (None, _EMPTY_CALLS) if queue is None else (EventPool(queue), _DEVICE_CALLS)
    tape = Tape(now_ns, LoopTrial([]), Entries(as_it_is), events)
    function, inputs = _Function(), (np.empty(0),)
    with tape.recording():
        if queue is not None:
            # Behind other work the device would find all events at once, with nothing in between.
            queue.synchronize()
        tape.start()
        # The first call of it is looked up.
        for _ in range(1 + calls):
            tape.hook.forward_preprocess(function, inputs)
            tape.hook.forward_postprocess(function, inputs)
        tape.stop()
    device = tape.last.device
    stamps = (tape.stamps() if device is None else device)[-2 * calls - 1 : -1]
    return float(np.median(stamps[1::2] - stamps[::2]))


def _round_ns(tape: Tape, now_ns: NowNs) -> tuple[int, int, int]:
    """What a recurrent network takes as it is, and on the tape, and its calls."""

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
    with tape.recording():
        tape.start()
        recorded_ns = unrolled()
        calls = tape.stop()
        recorded_ns -= tape.paused_ns
    tape.fold()
    return plain_ns, recorded_ns, calls


class _Function:
    _impl_name = "Nothing"
