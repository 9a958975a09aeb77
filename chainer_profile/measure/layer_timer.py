"""A drop-in for Chainer's TimerHook that knows layers."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable
from typing import Any, TextIO

import chainer
import numpy as np
from chainer import FunctionHook, LinkHook
from chainer.function_hooks import TimerHook

from chainer_profile.basics.errors import ProfileError
from chainer_profile.measure import environment
from chainer_profile.measure.clock import HOST_CLOCK, Clock
from chainer_profile.measure.structure import Entry, LinkStack, Structure, StructureHook
from chainer_profile.record.folding import fold_call_history
from chainer_profile.record.recording import Recording, Settings

_Callback = Callable[..., None]


class LayerTimerHook(FunctionHook):
    """Times every function call, as TimerHook does, and folds the calls into layers.

    ::

        hook = LayerTimerHook()
        with hook:
            for x in images:
                model(x)
        hook.print_report()                  # by function, like TimerHook
        recording = hook.recording()         # by layer
        print(summarise(recording).layers)

    Each call of the outermost link is a trial. The first one also teaches the layers' link paths
    and shapes. Times are the host's; functions of backward passes and outside the network are
    in ``call_history`` but not in the recording.
    """

    name = "LayerTimerHook"

    def __init__(self, clock: Clock = HOST_CLOCK) -> None:
        self._now_ns = clock.now_ns
        self._names: list[str] = []
        self._elapsed_ns = array("q")
        self._total_ns = 0
        # One entry a call that is running: its start and the time of the calls nested in it.
        self._running: list[list[int]] = []
        # The calls of the running trial, in the order in which they were entered.
        self._entries: list[Entry] = []
        self._self_ns: dict[int, int] = {}
        self._trial_start_ns = 0
        self._root: Any = None
        self._structure: Structure | None = None
        self._settings = Settings()
        self._first_trial: tuple[list[int], int, int] | None = None
        self._samples, self._walls, self._starts = array("q"), array("q"), array("q")
        self._irregular = ""
        self._links = _TrialHook(self)
        self._learning: StructureHook | None = None

    # -- Chainer's interface

    def added(self, function: Any) -> None:
        """Begin: Chainer calls this when the hook is registered."""
        self._running.clear()
        self._links.__enter__()

    def deleted(self, function: Any) -> None:
        """End: Chainer calls this when the hook is taken away."""
        self._running.clear()
        self._learning = None
        self._links.reset()
        self._links.__exit__()

    def forward_preprocess(self, function: Any, in_data: Any) -> None:
        """Note the start of a function."""
        if self._learning is not None:
            self._learning.forward_preprocess(function, in_data)
        if self._links.depth:
            self._entries.append(type(function))
        self._running.append([0, len(self._entries) - 1, self._now_ns()])

    def forward_postprocess(self, function: Any, in_data: Any) -> None:
        """Note its end."""
        now_ns = self._now_ns()
        nested_ns, index, start_ns = self._running.pop()
        elapsed_ns = now_ns - start_ns
        self._names.append(function._impl_name)
        self._elapsed_ns.append(elapsed_ns)
        if self._running:
            self._running[-1][0] += elapsed_ns
        else:
            self._total_ns += elapsed_ns
        if self._links.depth:
            self._self_ns[index] = elapsed_ns - nested_ns
        if self._learning is not None:
            self._learning.forward_postprocess(function, in_data)

    def backward_preprocess(self, function: Any, in_data: Any, out_grad: Any) -> None:
        """Note the start of a function's backward."""
        self._running.append([0, -1, self._now_ns()])

    def backward_postprocess(self, function: Any, in_data: Any, out_grad: Any) -> None:
        """Note its end."""
        now_ns = self._now_ns()
        _, _, start_ns = self._running.pop()
        self._names.append(function._impl_name)
        self._elapsed_ns.append(now_ns - start_ns)
        if self._running:
            self._running[-1][0] += now_ns - start_ns
        else:
            self._total_ns += now_ns - start_ns

    # -- TimerHook's interface

    @property
    def call_history(self) -> list[tuple[str, float]]:
        """Pairs of function name and time in seconds, in the order in which the calls ended."""
        return [(n, t / 1e9) for n, t in zip(self._names, self._elapsed_ns, strict=True)]

    def total_time(self) -> float:
        """Time in seconds inside functions; nested calls are counted once."""
        return self._total_ns / 1e9

    def summary(self) -> dict[str, dict[str, float]]:
        """Time and number of calls by function name: TimerHook's dictionary."""
        summary: dict[str, dict[str, float]] = {}
        for name, seconds in self.call_history:
            record = summary.setdefault(name, {"elapsed_time": 0, "occurrence": 0})
            record["elapsed_time"] += seconds
            record["occurrence"] += 1
        return summary

    def print_report(self, unit: str = "auto", file: TextIO | None = None) -> None:
        """Print time and calls by function name, as TimerHook does.

        Args:
            unit: ``sec``, ``ms``, ``us``, ``ns``, ``auto`` or ``auto_foreach``.
            file: Where to; standard output by default.
        """
        file = file or sys.stdout
        if not self._names:
            file.write("no function was called under this hook\n")
            return
        timer = TimerHook()
        timer.call_history = self.call_history
        timer.print_report(unit, file)

    # -- layers

    def recording(self) -> Recording:
        """The trials so far, folded into layers.

        The first trial is kept apart as a warm-up when there are more: it taught the structure.

        Raises:
            ProfileError: Nothing ran, trials differ, or a network without links ran whose calls
                have no period.
        """
        if self._root is None:
            return fold_call_history(self.call_history)
        if self._irregular:
            raise ProfileError(self._irregular)
        if self._structure is None or self._first_trial is None:
            raise ProfileError("no call of the network came to its end under this hook")
        samples, start_ns, wall_ns = self._first_trial
        warmups = [wall_ns]
        self_ns, walls, starts = self._samples, self._walls, self._starts
        if not walls:
            warmups = []
            self_ns, walls, starts = (
                array("q", samples),
                array("q", [wall_ns]),
                array("q", [start_ns]),
            )
        return Recording(
            layers=self._structure.layers,
            links=self._structure.links,
            self_ns=np.array(self_ns, np.int64).reshape(len(walls), len(self._structure.layers)),
            trial_ns=np.array(walls, np.int64),
            start_ns=np.array(starts, np.int64),
            warmup_ns=np.array(warmups, np.int64),
            settings=self._settings,
            environment=environment.collect(),
        )

    def _begin_trial(self, link: Any, args: tuple[Any, ...]) -> None:
        """The outermost link is called."""
        self._running.clear()
        self._entries.clear()
        self._self_ns.clear()
        if self._root is None:
            self._root = link
            shape = tuple(int(n) for n in getattr(args[0], "shape", ())) if args else ()
            self._settings = Settings(
                model=type(link).__name__,
                input="the caller's",
                input_shape=shape,
                batchsize=shape[0] if shape else 1,
                train_mode=bool(chainer.config.train),
            )
        if self._structure is None:
            self._links.stack.calls.clear()
            self._learning = StructureHook([("", self._root)], self._links.stack)
        self._trial_start_ns = self._now_ns()

    def _end_trial(self, link: Any) -> None:
        """The outermost link is done."""
        wall_ns = self._now_ns() - self._trial_start_ns
        samples = [self._self_ns[index] for index in range(len(self._entries))]
        if link is not self._root:
            self._irregular = (
                f"two networks ran under the hook, {type(self._root).__name__} and "
                f"{type(link).__name__}: use a hook for each"
            )
        elif self._learning is not None:
            self._structure, self._learning = self._learning.structure(), None
            self._first_trial = samples, self._trial_start_ns, wall_ns
        elif self._structure is not None:
            difference = self._structure.difference(self._entries, [], 2 * len(self._entries))
            if difference:
                self._irregular = f"the network's calls differ from trial to trial: {difference}"
            self._samples.extend(samples)
            self._walls.append(wall_ns)
            self._starts.append(self._trial_start_ns)


class _TrialHook(LinkHook):
    """Tells a LayerTimerHook when the outermost link begins and ends."""

    name = "chainer_profile.Trial"

    def __init__(self, timer: LayerTimerHook) -> None:
        self.stack = LinkStack()
        self._timer = timer

    @property
    def depth(self) -> int:
        return len(self.stack.links)

    def reset(self) -> None:
        """Forget links that an exception left running."""
        self.stack.links.clear()

    def forward_preprocess(self, args: Any) -> None:
        # The network itself is never called within itself: an exception left links running.
        if args.link is self._timer._root:
            self.stack.links.clear()
        if not self.stack.links:
            self._timer._begin_trial(args.link, args.args)
        self.stack.forward_preprocess(args)

    def forward_postprocess(self, args: Any) -> None:
        self.stack.forward_postprocess(args)
        if not self.stack.links:
            self._timer._end_trial(args.link)
