"""A session: trials are recorded, read from the log, and added up by row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from chainer_profile.measure import wrappers
from chainer_profile.measure.aggregate import Aggregator, LoggedTrial, TrialTimes
from chainer_profile.measure.clock import Clock
from chainer_profile.measure.event_log import EventLog, Position
from chainer_profile.measure.events import EventPool
from chainer_profile.measure.links import Links, Roots
from chainer_profile.measure.recorder import Reader
from chainer_profile.measure.rows import Row
from chainer_profile.measure.spans import TRIAL
from chainer_profile.record.recording import Layer, LinkCalls

#: The log is read when it has this many events, or when this time has passed.
MANY_EVENTS, GROUP_NS = 8000, 100_000_000

Warn = Callable[[str], None]


@dataclass(eq=False)
class Target:
    """The networks of some trials: their links, and the rows of their calls."""

    links: Links
    aggregator: Aggregator
    #: Calls of links by path, in all trials that were read.
    link_calls: Counter[str] = field(default_factory=Counter)
    #: Lists the links with the mean of their calls. Default: the method of ``links``.
    list_links: Callable[[Counter[str], int], tuple[LinkCalls, ...]] | None = None

    def link_table(self) -> tuple[LinkCalls, ...]:
        """The links with the mean of their calls in a trial."""
        links = self.list_links or self.links.link_calls
        return links(self.link_calls, self.aggregator.trials)

    def forget(self) -> None:
        """Forget the trials so far."""
        self.aggregator.forget()
        self.link_calls.clear()


@dataclass(eq=False)
class _Trial:
    """A trial in the log.

    Attributes:
        begin: The position of its first event; ``end`` is after its last one.
        start_ns: The host's clock when it began.
        wall_ns: Its duration, until the device has finished.
        launch_ns: With a device, the duration until all work was launched.
        device_ns: With a device, its clock at the events.
    """

    target: Target
    begin: Position
    start_ns: int
    end: Position
    number: int = 0
    wall_ns: int = 0
    launch_ns: int = 0
    device_ns: NDArray[np.int64] | None = None


@dataclass(frozen=True, eq=False)
class LastTrial:
    """The trial that ended last.

    Attributes:
        start_ns: When it began, on the host's clock.
        wall_ns: Its duration, with pauses.
        paused_ns: The duration of pauses within it.
        n_spans: The spans that were recorded, without the trial and its pauses.
    """

    start_ns: int = 0
    wall_ns: int = 0
    paused_ns: int = 0
    n_spans: int = 0


class Session:
    """Records trials between :meth:`start` and :meth:`stop`, each from ``begin_trial()`` on.

    Args:
        roots: The networks whose links give the paths.
        clock: The clock to read.
        single_calls: Rows are single calls while all trials make the same calls.
        network_is_phase: An outermost call of a network is the forward phase.
        warn: Called with a problem that the user should know.
        on_read: Called with the ids and the host's clock of all events, both (events,), before
            they are forgotten.
    """

    def __init__(
        self,
        roots: Roots,
        clock: Clock,
        *,
        single_calls: bool = False,
        network_is_phase: bool = False,
        warn: Warn = lambda problem: None,
        on_read: Callable[[NDArray[np.int64], NDArray[np.int64]], None] | None = None,
    ) -> None:
        self.now_ns = clock.now_ns
        self._pool: EventPool | None = None
        self.reader = Reader(clock.now_ns, clock.now_ns)
        if clock.device is not None:
            self._pool = EventPool(clock.device, clock.now_ns)
            self.reader = Reader(self._pool.begin, self._pool.end)
        self._log = EventLog(Clock(clock.now_ns), warn, Links(roots))
        self.recorder = self._log.recorder
        self.recorder.read_by(self.reader)
        #: The networks whose links give the paths; read at each start.
        self.roots = roots
        self._single_calls, self._on_read = single_calls, on_read
        self._network_is_phase = network_is_phase
        self.target = self.new_target(self._log.links)
        self._open: _Trial | None = None
        self._ended: list[_Trial] = []
        #: Time that the recorder adds to a call; subtracted from the framework time.
        self.call_ns = 0.0
        self.last = LastTrial()
        #: Events of the longest trial so far.
        self.max_events = 0

    # -- recording

    def new_target(self, links: Links) -> Target:
        """Make another target, whose trials this session may record as well."""
        sites = self.recorder.sites
        aggregator = Aggregator(sites, self._single_calls, self._network_is_phase)
        return Target(links, aggregator)

    def start(self, registered: bool = False) -> None:
        """Record the calling thread; see :meth:`.Recorder.start`."""
        self.target.links.update_roots(self.roots)
        self.recorder.start(registered)

    def stop(self) -> None:
        self.recorder.stop()

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record within this block."""
        self.start()
        try:
            yield
        finally:
            self.stop()

    def begin_trial(self, target: Target | None = None) -> None:
        """Begin a trial; a trial that has not ended is discarded."""
        recorder = self.recorder
        if self._open is not None:
            self.discard_trial()
        target = target or self.target
        target.links.expect_changes()
        if recorder.links is not target.links:
            recorder.use(target.links)
            target.links.update_parameters()
        recorder.n_pauses = recorder.paused_ns = 0
        begin = self.position()
        # Before the device's first event: its time on the trial lies within the trial.
        start_ns = self.now_ns()
        if self._pool is not None:
            self._pool.clear()
            self._pool.record()
        recorder.events.extend((TRIAL, start_ns))
        self._open = _Trial(target, begin, start_ns, begin)

    def end_trial(self, number: int = 0) -> None:
        """Wait for the device, and end the trial. If recording has failed, it is discarded."""
        trial, recorder = self._open, self.recorder
        assert trial is not None
        if recorder.failure:
            self.discard_trial()
            return
        recorder.end(TRIAL)
        end_ns = recorder.events[-1]
        if self._pool is not None:
            self._pool.wait()
            trial.launch_ns, trial.device_ns = end_ns - trial.start_ns, self._pool.times_ns()
            end_ns = self.now_ns()
        trial.number, trial.wall_ns, trial.end = number, end_ns - trial.start_ns, self.position()
        self._open = None
        self._ended.append(trial)
        n_events = trial.end.events - trial.begin.events
        self.max_events = max(self.max_events, n_events)
        n_spans = n_events // 2 - 1 - recorder.n_pauses
        self.last = LastTrial(trial.start_ns, trial.wall_ns, recorder.paused_ns, n_spans)

    def discard_trial(self) -> None:
        """Discard the current trial, if any."""
        if self._open is not None:
            self.recorder.end(TRIAL)
            self._open = None

    def position(self) -> Position:
        """The end of the log."""
        return self._log.position()

    @property
    def is_in_trial(self) -> bool:
        return self._open is not None

    def use_own_links(self) -> None:
        """Attribute calls outside of trials to the session's own target."""
        self.recorder.use(self.target.links)

    @property
    def device_has_begun(self) -> bool:
        """Whether the device has begun to work on the current trial."""
        return self._pool is not None and self._pool.begun

    @property
    def is_long(self) -> bool:
        """Whether the log should be read after this trial."""
        return len(self._log) >= MANY_EVENTS

    def last_values(self) -> NDArray[np.int64]:
        """The clock at the events of the trial that ended last: the device's, if there is one."""
        self._log.take()
        values: NDArray[np.int64] = self._logged(self._ended[-1])[0].values[-1]
        return values

    # -- reading

    def read(self) -> list[tuple[Target, TrialTimes]]:
        """Return the target and times of each trial since the last call, and empty the log."""
        ended, self._ended = self._ended, []
        self._log.take()
        if self._on_read is not None:
            event_ids, clock_ns = self._log.events()
            self._on_read(event_ids, clock_ns)
        logs = []
        for trial in ended:
            logged, calls = self._logged(trial)
            logs.append(logged)
            trial.target.link_calls.update(calls)
        self._log.forget(self.position())
        return self._add(ended, logs)

    def _add(
        self, ended: Sequence[_Trial], logs: Sequence[LoggedTrial]
    ) -> list[tuple[Target, TrialTimes]]:
        """Add trials to their targets; return them in their order."""
        times: dict[int, TrialTimes] = {}
        for target in {id(trial.target): trial.target for trial in ended}.values():
            numbers = [at for at, trial in enumerate(ended) if trial.target is target]
            added = target.aggregator.add([logs[at] for at in numbers], self.call_ns)
            times.update(zip(numbers, added, strict=True))
        return [(ended[at].target, times[at]) for at in sorted(times)]

    def read_own(self) -> list[TrialTimes]:
        """Like :meth:`read`, but without targets, for sessions that have only their own."""
        return [times for _, times in self.read()]

    def _logged(self, trial: _Trial) -> tuple[LoggedTrial, Counter[str]]:
        """Return a trial's events from the stored log, and its calls of links by path."""
        (event_ids, host_ns), forward_events, calls = self._log.stored(trial.begin, trial.end)
        device_ns = trial.device_ns
        logged = LoggedTrial(
            event_ids,
            host_ns[None] if device_ns is None else np.stack([host_ns, device_ns]),
            forward_events,
            trial.number,
            trial.wall_ns,
            trial.launch_ns,
        )
        return logged, calls

    def logged_since(self, begin: Position) -> LoggedTrial:
        """Return the log from a position on, as a trial without a duration."""
        self._log.take()
        return self._logged(_Trial(self.target, begin, 0, self.position()))[0]

    # -- failures

    def failed_layer(self, error: BaseException) -> tuple[Layer | None, bool]:
        """Find the layer that raised an exception in the current trial.

        Returns:
            The layer, and True. If the exception was raised outside of all layers: the last layer
            before it, or None without one, and False.
        """
        trial, recorder = self._open, self.recorder
        if trial is None:
            return None, False
        end = self.position()
        if wrappers.left_spans(error):
            end = end._replace(events=recorder.n_before_raised)
        self._log.take()
        logged, _ = self._logged(replace(trial, end=end))
        layout = trial.target.aggregator.layout(logged)
        owners = layout.owners[layout.owners >= 0]
        if not len(owners):
            return None, False
        row: Row = layout.index.rows[owners[-1]]
        return row.layer(int(owners[-1]), 1), bool(layout.owners[-1] >= 0)
