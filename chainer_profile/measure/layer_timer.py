"""A drop-in replacement for Chainer's TimerHook that also assigns calls to layers."""

from __future__ import annotations

import sys
from dataclasses import replace
from threading import get_ident
from typing import Any, TextIO

from chainer.function_hooks import TimerHook

from chainer_profile.basics.errors import ProfileError
from chainer_profile.basics.warning import warner
from chainer_profile.measure import environment, observers, patches
from chainer_profile.measure.aggregate import TrialTimes
from chainer_profile.measure.calibration import calibrate
from chainer_profile.measure.call_history import History
from chainer_profile.measure.clock import HOST_CLOCK, Clock, check_clock
from chainer_profile.measure.journal_writer import JournalWriter
from chainer_profile.measure.links import Links
from chainer_profile.measure.loop import Loop
from chainer_profile.measure.session import Session, Target
from chainer_profile.measure.values import find_denormals, not_finite
from chainer_profile.record.folding import fold_call_history
from chainer_profile.record.journal import Journal
from chainer_profile.record.recording import COMPLETE, Conditions, Recording, Settings


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
    shapes, each call is a row. From the first trial that differs (a smaller last batch, another
    branch), a row is a function of a link, and :attr:`~.Recording.calls` has its calls in each
    trial. Times are host times in seconds, without the time for looking up new calls. Functions in
    backward passes and outside the network are in ``call_history`` but not in the recording.

    Several hooks may be active at once.
    """

    name = "LayerTimerHook"

    def __init__(self, clock: Clock = HOST_CLOCK) -> None:
        self._now_ns = check_clock(clock).now_ns
        self._session = Session(
            [],
            Clock(clock.now_ns),
            single_calls=True,
            warn=warner("LayerTimerHook: "),
            on_read=lambda event_ids, clock_ns: self._history.add(event_ids, clock_ns),
        )
        self._history = History(self._session.recorder.sites)
        self._networks: dict[int, _Network] = {}
        self._conditions: Conditions | None = None
        recorder = self._session.recorder
        self.name = recorder.name
        self.thread = 0
        # Chainer calls the recorder in place of this hook.
        self.forward_preprocess = recorder.forward_preprocess
        self.forward_postprocess = recorder.forward_postprocess
        self.backward_preprocess = recorder.backward_preprocess
        self.backward_postprocess = recorder.backward_postprocess

    # -- Chainer's interface

    def added(self, function: Any) -> None:
        """Start to record; Chainer calls this when the hook is registered."""
        self.thread = get_ident()
        patches.add_observer(self)
        self._session.start(registered=True)

    def deleted(self, function: Any) -> None:
        """Stop recording; Chainer calls this when the hook is removed."""
        patches.remove_observer(self)
        self._session.discard_trial()
        patches.remove_observer(self._session.recorder)
        self._read()
        self._history.clear_running()

    # -- TimerHook's interface

    @property
    def call_history(self) -> list[tuple[str, float]]:
        """Pairs of function name and time in seconds, in the order in which the calls ended.

        The time of a call includes the time of nested calls.
        """
        self._read()
        return self._history.pairs()

    @property
    def self_history(self) -> list[tuple[str, float]]:
        """The same pairs, but without the time of nested calls."""
        self._read()
        return self._history.pairs(self_times=True)

    def total_time(self) -> float:
        """Time in seconds inside functions; nested calls are counted once."""
        self._read()
        return self._history.total_ns / 1e9

    def print_report(self, unit: str = "auto", file: TextIO | None = None) -> None:
        """Print time and calls by function name, as TimerHook does.

        Args:
            unit: ``sec``, ``ms``, ``us``, ``ns``, ``auto`` or ``auto_foreach``.
            file: The file to print to. Default: standard output.
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
        self._read()
        ranked = sorted(self._networks.values(), key=lambda network: -network.n_trials)
        return [network.root for network in ranked]

    def recording(self, network: Any = None) -> Recording:
        """The trials of a network so far, with their times by layer.

        Args:
            network: One of :attr:`networks`. Default: the first.

        Raises:
            ProfileError: No function was called, no trial completed, or this network was not
                called. Also if no link was called and the functions do not repeat periodically.
        """
        self._read()
        if not self._networks:
            return fold_call_history(self)
        root = self.networks[0] if network is None else network
        called = self._networks.get(id(root))
        if called is None:
            raise ProfileError(f"no {type(root).__name__} of this kind was called under this hook")
        if self._conditions is None:
            self._conditions = Conditions(calibrations=(calibrate(self._now_ns),))
        return called.recording(self._conditions)

    # -- the interface of observers.Observer

    def begin_operation(
        self, operation: str, owner: Any, args: tuple[Any, ...]
    ) -> observers.End | None:
        """Begin a trial if an outermost link is called."""
        if operation != observers.NETWORK:
            return None
        network = self._networks.get(id(owner))
        if network is None:
            network = self._networks[id(owner)] = _Network(owner, self._session)
        network.begin()
        self._session.begin_trial(network.target)
        return self._end_trial

    def begin_elsewhere(self, operation: str) -> None:
        """Do nothing: calls in other threads are not recorded."""

    def fail(self, error: Exception) -> None:
        """Stop recording after a failure of the profiler."""
        self._session.recorder.fail(error)

    def _end_trial(self, error: BaseException | None, result: Any) -> None:
        """End the trial, or discard it after an exception."""
        if error is None:
            self._session.end_trial()
        else:
            self._session.discard_trial()
        self._session.use_own_links()
        if self._session.is_long:
            self._read()

    def _read(self) -> None:
        """Read the log, and add its calls to the history and its trials to the networks."""
        if self._session.is_in_trial:
            return
        networks = {id(network.target): network for network in self._networks.values()}
        for target, trial in self._session.read():
            networks[id(target)].add(trial)


class _Network:
    """An outermost link that was called, with its trials."""

    def __init__(self, root: Any, session: Session) -> None:
        self.root = root
        self.target: Target = session.new_target(Links([("", root)]))
        self.n_trials = 0
        self._loop = Loop([("", root)], title=type(root).__name__)
        self._journal = Journal()
        self._writer = JournalWriter(self._journal, self.target, self._settings)

    def begin(self) -> None:
        """Prepare for a trial: while none has completed, forget the batches of earlier ones."""
        if not self.n_trials:  # earlier trials may have failed
            self._loop.clear()

    def add(self, trial: TrialTimes) -> None:
        self.n_trials += 1
        self._writer.add([trial])

    def _settings(self) -> Settings:
        settings = self._loop.settings(self.target.aggregator.layers())
        return replace(settings, input="the caller's", phase="forward", trials=self.n_trials)

    def recording(self, conditions: Conditions) -> Recording:
        """The recording of its trials so far; the log must have been read."""
        if not self.n_trials:
            raise ProfileError("no call of the network completed under this hook")
        roots = [("", self.root)]
        denormals = find_denormals(roots, self.target.aggregator.rows)
        conditions = replace(conditions, not_finite=not_finite(roots), denormals=denormals)
        recording = self._writer.recording(conditions, COMPLETE)
        where = environment.collect(self._settings().device)
        return replace(recording, settings=self._settings(), environment=where)
