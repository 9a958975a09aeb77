"""A drop-in for Chainer's TimerHook that knows layers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, TextIO

from chainer.function_hooks import TimerHook

from chainer_profile.basics.errors import ProfileError
from chainer_profile.measure import environment
from chainer_profile.measure.calibration import calibrate
from chainer_profile.measure.call_history import History
from chainer_profile.measure.clock import HOST_CLOCK, Clock
from chainer_profile.measure.entries import CALL, Entries
from chainer_profile.measure.hooks import unique_name
from chainer_profile.measure.journal_writer import JournalWriter
from chainer_profile.measure.loop import LoopTrial
from chainer_profile.measure.owners import Paths
from chainer_profile.measure.row import Entry
from chainer_profile.measure.rows import Iteration, Rows
from chainer_profile.measure.tape import Tape
from chainer_profile.record.folding import fold_call_history
from chainer_profile.record.journal import Journal
from chainer_profile.record.recording import COMPLETE, Conditions, LinkCalls, Recording, Settings


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

    Each call of the outermost link is a trial. While all trials make the same calls with the same
    shapes, each call is a row. Once one differs (a smaller last batch, another branch), a row is a
    function of a link, and :attr:`~.Recording.calls` has its calls in each trial. Times are the
    host's, in seconds, without what looking up new calls takes. Functions of backward passes and
    outside the network are in ``call_history`` but not in the recording.

    Several hooks may be active at once.
    """

    name = "LayerTimerHook"

    def __init__(self, clock: Clock = HOST_CLOCK) -> None:
        self.name = unique_name("LayerTimerHook")
        self._now_ns = clock.now_ns
        self._history = History()
        self._entries = Entries(self._around)
        self._tape = Tape(
            clock.now_ns, LoopTrial([]), self._entries, single_calls=True, history=self._history
        )
        self._networks: dict[int, _Network] = {}
        self._within = False  # a trial
        self._active = ExitStack()
        self._conditions: Conditions | None = None
        # Its methods are those that note calls on the tape.
        callbacks = {
            name: value for name, value in vars(type(self._tape.hook)).items() if callable(value)
        }
        self.__class__ = type("LayerTimerHook", (LayerTimerHook,), callbacks)

    # -- Chainer's interface

    def added(self, function: Any) -> None:
        """Begin: Chainer calls this when the hook is registered."""
        self._active.enter_context(self._entries)
        self._active.enter_context(self._tape.recording(hooked=True))

    def deleted(self, function: Any) -> None:
        """End: Chainer calls this when the hook is removed."""
        self._active.close()
        self._fold()
        self._history.clear_running()

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
        self._fold()
        ranked = sorted(self._networks.values(), key=lambda network: -network.n_trials)
        return [network.root for network in ranked]

    def recording(self, network: Any = None) -> Recording:
        """The trials so far, folded into layers.

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
        called = self._networks.get(id(root))
        if called is None:
            raise ProfileError(f"no {type(root).__name__} of this kind was called under this hook")
        if self._conditions is None:
            self._conditions = Conditions(calibrations=(calibrate(self._now_ns),))
        return called.recording(self._conditions)

    # -- trials

    def _around(self, entry: str, owner: Any, call: Callable[[], Any]) -> Any:
        """Go through one of Chainer's entries: the call of an outermost link is a trial."""
        if entry != CALL or self._within:
            return call()
        network = self._networks.get(id(owner))
        if network is None:
            entries, number = self._tape.rows.entries, len(self._networks)
            network = self._networks[id(owner)] = _Network(owner, number, entries)
        network.begin()
        self._within = True
        outside = self._tape.rows, self._tape.paths
        self._tape.start((network.rows, network.paths))
        try:
            given = call()
            self._tape.stop(network.number)
        except BaseException:
            self._tape.abandon()
            raise
        finally:
            self._tape.use(*outside)
            self._within = False
        if self._tape.is_long:
            self._fold()
        return given

    def _fold(self) -> None:
        """Put what is on the tape into the history and to the networks."""
        if self._within:
            return
        networks = list(self._networks.values())
        for trial in self._tape.fold():
            networks[trial.number].add(trial)


class _Network:
    """An outermost link that was called, and its trials."""

    def __init__(self, root: Any, number: int, entries: list[Entry]) -> None:
        self.root, self.number = root, number
        self.rows, self.paths = Rows(single_calls=True, entries=entries), Paths([("", root)])
        self.n_trials = 0
        self._trial = LoopTrial([("", root)], title=type(root).__name__)
        self._journal = Journal()
        self._writer = JournalWriter(self._journal, self.rows, self._links, self._settings)

    def begin(self) -> None:
        """A trial begins."""
        self._trial.note(not self.n_trials)

    def add(self, trial: Iteration) -> None:
        self.n_trials += 1
        self._writer.add([trial._replace(number=0)])

    def _links(self) -> tuple[LinkCalls, ...]:
        return self.paths.links(self.rows.iterations or 1)

    def _settings(self) -> Settings:
        layers = self.rows.layers() if self.rows.order is None else self.rows.order.layers
        settings = self._trial.settings(layers)
        return replace(settings, input="the caller's", phase="forward", trials=self.n_trials)

    def recording(self, conditions: Conditions) -> Recording:
        """Its trials, which are folded."""
        if not self.n_trials:
            raise ProfileError("no call of the network completed under this hook")
        recording = self._writer.recording(conditions, COMPLETE)
        where = environment.collect(self._settings().device)
        return replace(recording, settings=self._settings(), environment=where)
