"""A few trials with the layers as named ranges, for a device's own tools: NVTX and Nsight."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from chainer_profile.measure.hooks import EntryHook, watching
from chainer_profile.measure.windows import FORWARD

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from chainer_profile.measure.calls import Entry
    from chainer_profile.measure.clock import DeviceQueue
    from chainer_profile.measure.structure import Structure
    from chainer_profile.measure.windows import Step

TRIALS = 10


class Ranges:
    """Opens a range on entering a window and closes it on leaving.

    Args:
        opened: Opens the range of a window; asked with the number of the clock read, or event,
            that entering it would be in a trial.

    Attributes:
        entered: What was entered, and whether that was a backward.
    """

    def __init__(self, opened: Callable[[int], AbstractContextManager[None]]) -> None:
        self._opened = opened
        self._events = 0
        self._running: list[AbstractContextManager[None]] = []
        self.entered: list[tuple[Entry, bool]] = []
        self.hook = EntryHook(self.enter, self.leave)

    def enter(self, entry: Entry, backward: bool = False) -> None:
        """Open the range of the window that is entered."""
        self.entered.append((entry, backward))
        opened = self._opened(self._events)
        self._events += 1
        opened.__enter__()
        self._running.append(opened)

    def leave(self) -> None:
        """Close the range of the window that was entered last."""
        self._events += 1
        self._close_one()

    def close(self) -> None:
        """Close what an exception left open."""
        while self._running:
            self._close_one()

    def _close_one(self) -> None:
        self._running.pop().__exit__(None, None, None)

    def position(self) -> int:
        """Number of the ranges that are open."""
        return len(self._running)

    def running(self, position: int) -> int:
        """How many more there are than there were."""
        return len(self._running) - position


def range_names(structure: Structure) -> list[str]:
    """For every event of a trial, the name of what the time after it belongs to.

    Layers are named by their link path and function, backward and update with their phase in
    front: ``/res2/0/conv1 Convolution2DFunction``. Phases have their own name.
    """
    return [_name(structure, owner) for owner in structure.owners.tolist()]


def _name(structure: Structure, owner: int) -> str:
    n_layers = len(structure.layers)
    if owner < 0:
        return "outside"
    if owner >= n_layers:
        return structure.phases[owner - n_layers]
    layer = structure.layers[owner]
    phase = "" if layer.phase == FORWARD.phase else f"{layer.phase} "
    return f"{phase}{layer.path} {layer.function}"


def mark_ranges(
    step: Step, structure: Structure, device: DeviceQueue | None, trials: int = TRIALS
) -> None:
    """Run trials with a range for each window, and one for each trial.

    They are made apart from the timed trials, since ranges take time. The device's tools are told
    to look at these trials only.

    Args:
        step: What a trial runs, within its configuration.
        structure: Its windows.
        device: The device's queue; with None nothing is done.
        trials: Number of trials.
    """
    if device is None:
        return
    names = range_names(structure)
    with device.traced():
        for number in range(trials):
            ranges = Ranges(lambda event: device.range(names[event] if event < len(names) else "?"))
            with ExitStack() as stack:
                stack.enter_context(device.range(f"trial {number}"))
                stack.callback(ranges.close)
                stack.enter_context(watching(step, ranges, structure.raising))
                step()
            device.synchronize()
