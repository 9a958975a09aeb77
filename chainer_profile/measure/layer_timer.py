"""A drop-in for Chainer's TimerHook that knows layers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from types import FrameType
from typing import Any, TextIO

import numpy as np
from chainer import Link
from chainer.function_hooks import TimerHook

from chainer_profile.basics.errors import ProfileError
from chainer_profile.basics.replacements import Replacements
from chainer_profile.measure.calibration import calibrate
from chainer_profile.measure.called_network import CalledNetwork, CallHistory
from chainer_profile.measure.calls import Log, read, take_out
from chainer_profile.measure.clock import HOST_CLOCK, Clock
from chainer_profile.measure.entries import CALL, Entries
from chainer_profile.measure.hooks import (
    CallHook,
    Marks,
    by_name,
    defines_call,
    end_when_raising,
    host_callbacks,
    unique_name,
    windows,
)
from chainer_profile.measure.learner import learning
from chainer_profile.measure.links import is_running
from chainer_profile.measure.tape import Tape
from chainer_profile.measure.windows import Mark
from chainer_profile.record.folding import fold_call_history
from chainer_profile.record.recording import Conditions, Recording

#: So long is the log of trials that are folded together.
_MOST_ITEMS = 100_000
#: Trials in which networks are looked for beside the first one.
_SEARCHED = 3


class LayerTimerHook(TimerHook):
    """Times each function call, as TimerHook does, and assigns the calls to layers.

    ::

        hook = LayerTimerHook()
        with hook:
            for x in images:
                model(x)
        hook.print_report()                  # by function, like TimerHook
        recording = hook.recording()         # by layer
        print(summarise(recording).layers)

    Each call of the outermost link is a trial. The first trial of a network teaches the layers'
    link paths and shapes. While the other trials make the same calls with the same shapes, each
    call is a row. From the first trial that differs (a smaller last batch, another branch), a row
    is a function of a link, and :attr:`~.Recording.calls` has its calls in each trial. Times are
    the host's, in seconds, without the time for learning. Functions of backward passes and outside
    the network are in ``call_history`` but not in the recording.

    Several hooks may be active at once.
    """

    name = "LayerTimerHook"

    def __init__(self, clock: Clock = HOST_CLOCK) -> None:
        self.name = unique_name("LayerTimerHook")
        self._now_ns = clock.now_ns
        # What is not in the history yet; it begins with trials that are alike, up to there.
        self._log: Log = []
        self._alike = 0
        self._enter, self.leave = windows(self._now_ns, self._log)
        self._history = CallHistory()
        self._networks: dict[int, CalledNetwork] = {}
        self._last: CalledNetwork | None = None
        # The network whose trial runs, what runs it, and its start.
        self._running: CalledNetwork | None = None
        self._frame: FrameType | None = None
        self._start_ns = 0
        # What tells of all links, while it is entered, and trials that it has told of.
        self._entries = Entries(self._around)
        self._looks, self._searched = False, 0
        self._active = ExitStack()
        self._conditions: Conditions | None = None
        # The fastest callbacks are methods of a class made on the spot; see hooks.py.
        callbacks = by_name(host_callbacks(self._now_ns, self._log))
        self.__class__ = type("LayerTimerHook", (LayerTimerHook,), callbacks)

    # -- Chainer's interface

    def added(self, function: Any) -> None:
        """Begin: Chainer calls this when the hook is registered."""
        for network in self._networks.values():
            self._watch(network)
        self._look(not self._knows_all)

    def deleted(self, function: Any) -> None:
        """End: Chainer calls this when the hook is removed."""
        self._look(False)
        self._active.close()
        self._fold()
        self._history.clear()

    # -- TimerHook's interface

    @property
    def call_history(self) -> list[tuple[str, float]]:
        """Pairs of function name and time in seconds, in the order in which the calls ended.

        The time of a call includes that of nested calls.
        """
        self._fold()
        return self._history.pairs()

    @property
    def self_history(self) -> list[tuple[str, float]]:
        """The same without the time of nested calls."""
        self._fold()
        return self._history.pairs(own=True)

    def total_time(self) -> float:
        """Time in seconds inside functions; nested calls are counted once."""
        self._fold()
        return self._history.total_ns / 1e9

    def print_report(self, unit: str = "auto", file: TextIO | None = None) -> None:
        """Print time and calls by function name, as TimerHook does.

        Args:
            unit: ``sec``, ``ms``, ``us``, ``ns``, ``auto`` or ``auto_foreach``.
            file: Where to print. Default: standard output.
        """
        file = file or sys.stdout
        if self.call_history:
            super().print_report(unit, file)
        else:
            file.write("no function was called under this hook\n")

    # -- layers

    @property
    def networks(self) -> list[Any]:
        """The outermost links that were called under the hook, most trials first."""
        found = sorted(self._networks.values(), key=lambda network: -network.n_trials)
        return [network.root for network in found]

    def recording(self, network: Any = None) -> Recording:
        """The trials so far, folded into layers.

        Trials without times of rows count as warm-ups: the one that taught the layers, if there
        are others, and the first one that made different calls.

        Args:
            network: One of :attr:`networks`. Default: the first.

        Raises:
            ProfileError: Nothing ran, no trial completed, this network was not called, or functions
                without links ran that have no period.
        """
        self._fold()
        if not self._networks:
            return fold_call_history(self)
        root = self.networks[0] if network is None else network
        found = self._networks.get(id(root))
        if found is None:
            raise ProfileError(f"no {type(root).__name__} of this kind was called under this hook")
        if self._conditions is None:
            self._conditions = Conditions(calibrations=(calibrate(self._now_ns),))
        return replace(found.recording(), conditions=self._conditions)

    # -- trials

    def _look(self, look: bool) -> None:
        """Be told of the calls of all links, or of the known networks' alone: that costs less."""
        if look and not self._looks:
            self._entries.__enter__()
        elif self._looks and not look:
            self._entries.__exit__()
        self._looks = look

    @property
    def _knows_all(self) -> bool:
        """Whether the known networks are all, and their own hooks tell of their calls."""
        return self._searched >= _SEARCHED and all(
            one.is_alike and defines_call(type(one.root)) is Link for one in self._networks.values()
        )

    def _around(self, entry: str, owner: Any, call: Callable[[], Any]) -> Any:
        """Go through one of Chainer's entries: the call of an outermost link is a trial."""
        if entry != CALL:
            return call()
        network = self._networks.get(id(owner))
        if network is None:
            network = self._networks[id(owner)] = CalledNetwork(owner)
        self._begin(network, sys._getframe())
        try:
            if network.tape is not None:
                return self._record(network, network.tape, call)
            if network.structure is None:
                return self._learn(network, call)
            self._start_ns = self._now_ns()
            given = call()
            self._keep(network)
            return given
        finally:
            self._end()
            self._searched += 1
            self._look(not self._knows_all)

    def _begins(self, network: CalledNetwork, frame: FrameType) -> None:
        """A network is called whose calls are known, maybe within a trial."""
        self._end_dead()
        if self._running is None:
            self._begin(network, frame)
            self._start_ns = self._now_ns()

    def _ends(self, frame: FrameType) -> None:
        if self._running is not None and frame is self._frame:
            self._keep(self._running)
            self._end()

    def _begin(self, network: CalledNetwork, frame: FrameType) -> None:
        if len(self._log) != self._alike or network is not self._last:
            self._fold()
        self._last = self._running = network
        self._frame = frame

    def _end(self) -> None:
        """The trial has ended; the log has its calls where its clock reads are not kept."""
        self._running, self._frame = None, None
        if len(self._log) != self._alike:
            self._fold_trials()
            self._history.add_whole(self._log)
            self._log.clear()

    def _end_dead(self) -> None:
        """End a trial that an exception has left."""
        if self._frame is not None and not is_running(self._frame):
            self._end()

    def _learn(self, network: CalledNetwork, call: Callable[[], Any]) -> Any:
        """Run the first trial of a network, and learn its calls."""
        with learning(network.trial, self._now_ns, network.root) as learned:
            try:
                given = call()
            finally:  # its times are without what learning takes
                self._log[:] = learned.log
        structure = learned.structure()
        network.learn(structure)
        self._log[:] = structure.log
        assert learned.trial is not None
        if network.add(self._log, 0, learned.trial.start_ns, learned.trial.wall_ns):
            self._alike = len(self._log)
        self._watch(network)
        return given

    def _keep(self, network: CalledNetwork) -> None:
        """Keep the trial that ends; once one differs, the others are timed by link."""
        wall_ns = self._now_ns() - self._start_ns
        begin, start_ns = self._alike, self._start_ns
        if network.add(self._log, begin, start_ns, wall_ns):
            self._alike = len(self._log)
            if self._alike >= _MOST_ITEMS:
                self._fold_trials()
            return
        alike = network.add_of_other_shapes(self._log, begin, start_ns, wall_ns)
        if alike:
            self._alike = len(self._log)
        self._fold_trials()
        tape = Tape(self._now_ns, network.trial, self._entries)
        network.differs(tape, 0 if alike else wall_ns)
        self._look(True)

    def _record(self, network: CalledNetwork, tape: Tape, call: Callable[[], Any]) -> Any:
        """Run a trial of a network whose calls differ."""
        with tape.recording():
            tape.start()
            if not self._entries.link_calls:
                self._entries.link_calls = [id(network.root)]  # which has begun
            given = call()
            trial = tape.end()
        network.add_by_link(trial)
        if tape.pauses:
            take_out(np.array(tape.pauses, np.int64), self._log)
        return given

    def _watch(self, network: CalledNetwork) -> None:
        """Be told of what the log needs of a network whose calls are known, beside functions."""
        if network.structure is None:
            return

        def note(mark: Mark) -> None:
            if self._running is network:
                self._enter(mark)
                self.leave()

        replacements = self._active.enter_context(Replacements())
        end_when_raising(replacements, network.structure.raising, self)
        if network.tape is None:
            self._active.enter_context(Marks(network.trial.roots, note))
            # Of a link whose class has a __call__ of its own Chainer tells nothing.
            root = network.root
            if defines_call(type(root)) is Link:
                hook = CallHook(root, partial(self._begins, network), self._ends)
                root.add_hook(hook)
                self._active.callback(root.delete_hook, hook.name)

    # A function that raises leaves its window by these, and by ``leave``.

    def position(self) -> int:
        """Length of the log."""
        return len(self._log)

    def running(self, position: int) -> int:
        """Number of windows that were entered since the log was so long, and not left."""
        return len(read(self._log, position).running)

    def _fold(self) -> None:
        """Put into the history what waits for it."""
        self._end_dead()
        self._fold_trials()
        if self._running is None:
            self._history.add(self._log)
            self._log.clear()

    def _fold_trials(self) -> None:
        if self._alike:
            assert self._last is not None
            self._last.fold(self._log[: self._alike], self._history)
            del self._log[: self._alike]
            self._alike = 0
