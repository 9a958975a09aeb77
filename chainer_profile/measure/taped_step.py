"""Trials of a step on the tape, whatever they call; and what the tape adds to a call."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import chainer
import numpy as np

from chainer_profile.measure.clock import NowNs
from chainer_profile.measure.entries import Entries
from chainer_profile.measure.events import EventPool
from chainer_profile.measure.loop import LoopTrial
from chainer_profile.measure.rows import Iteration, ToldRows
from chainer_profile.measure.tape import Tape
from chainer_profile.measure.windows import Step
from chainer_profile.record.journal import Journal
from chainer_profile.record.recording import Settings

#: Rounds, and steps of a recurrent network in each, by which the cost of a call is told; and calls
#: of a function that does nothing.
_ROUNDS, _STEPS, _EMPTY_CALLS = 12, 10, 500


class TapedStep:
    """Times trials of a step, whatever they call, and writes them to a journal."""

    def __init__(
        self,
        step: Step,
        now_ns: NowNs,
        events: EventPool | None,
        journal: Journal,
        settings: Callable[[], Settings],
    ) -> None:
        self.entries = Entries(getattr(step, "around", _as_it_is))
        self.tape = Tape(now_ns, step, self.entries, events)
        self.told = ToldRows(journal, self.tape.rows, self.tape.links, settings)
        self._step = step

    def trial(self) -> Iteration:
        with self.tape.recording():
            self.tape.start()
            self._step()
            found = self.tape.end()
        self.told.add(found)
        return found

    def place(self) -> str:
        """The layer that runs, in words; empty where none does."""
        row = self.tape.open_row
        if row is None:
            return ""
        layer = self.tape.rows.layers()[row]
        return f"in layer {layer.label} at {layer.path}"


def _as_it_is(entry: str, owner: Any, call: Callable[[], Any]) -> Any:
    return call()


@cache
def cost_of_a_call(now_ns: NowNs) -> tuple[float, float]:
    """Nanoseconds that are shown for a function that does nothing, and that a call really adds."""
    tape = Tape(now_ns, LoopTrial([]), Entries(_as_it_is))
    function, inputs = _Function(), (np.empty(0),)
    with tape.recording():
        tape.start()
        # The first call of it is looked up.
        for _ in range(1 + _EMPTY_CALLS):
            tape.hook.forward_preprocess(function, inputs)
            tape.hook.forward_postprocess(function, inputs)
        stamps = tape.stamps()[-2 * _EMPTY_CALLS :]
        tape.end()
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
    added_ns = max(0.0, recorded_ns - plain_ns) / max(1, calls)
    return float(np.median(stamps[1::2] - stamps[::2])), added_ns


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
