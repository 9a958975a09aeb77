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
from chainer_profile.measure.events import EventPool
from chainer_profile.measure.links import Links, Roots
from chainer_profile.measure.recorder import Reader, Recorder
from chainer_profile.measure.rows import Row
from chainer_profile.measure.spans import PAUSE, TRIAL, match_spans
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
    """A trial in the log, or a piece of a long one.

    Attributes:
        events: Indices of its first event and after its last one.
        forwards: The same of the backwards' calls.
        links: The same of the calls of links.
        start_ns: When this piece began.
        began_ns: When the trial began.
        n_reopened: Number of spans after the first that continue a span of the piece before.
    """

    target: Target
    events: tuple[int, int]
    forwards: tuple[int, int]
    links: tuple[int, int]
    start_ns: int
    began_ns: int
    number: int = 0
    wall_ns: int = 0
    launch_ns: int = 0
    device_ns: NDArray[np.int64] | None = None
    n_reopened: int = 0
    is_last: bool = True


@dataclass(frozen=True, eq=False)
class LastTrial:
    """The trial that ended last.

    Attributes:
        start_ns: When it began, on the host's clock.
        wall_ns: Its duration.
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
        on_read: Called with all events, and the clock at each, before they are forgotten.
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
        links = Links(roots)
        self.recorder = Recorder(links, self.reader, warn)
        self.recorder.on_long_log = self._split_trial
        #: The networks whose links give the paths; read at each start.
        self.roots = roots
        self._single_calls, self._on_read = single_calls, on_read
        self._network_is_phase = network_is_phase
        self.target = self.new_target(links)
        self._open: _Trial | None = None
        self._ended: list[_Trial] = []
        # Trials that were read because the log had become long, and not returned yet.
        self._unread: list[tuple[Target, TrialTimes]] = []
        # Spans of the running trial that were already read.
        self._split_spans = 0
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
        if recorder.links is not target.links:
            recorder.use(target.links)
            target.links.update_parameters()
        recorder.n_pauses = recorder.paused_ns = self._split_spans = 0
        begins = self.log_lengths()
        # Before the device's first event: its time on the trial lies within the trial.
        start_ns = self.now_ns()
        if self._pool is not None:
            self._pool.clear()
            self._pool.record()
        recorder.events.extend((TRIAL, start_ns))
        events, forwards, links = ((n, n) for n in begins)
        self._open = _Trial(target, events, forwards, links, start_ns, start_ns)

    def end_trial(self, number: int = 0) -> None:
        """End the trial; waits until a device has finished."""
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
        trial.number, trial.wall_ns = number, end_ns - trial.start_ns
        self._open = None
        self._close(trial)
        n_events = trial.events[1] - trial.events[0]
        self.max_events = max(self.max_events, n_events)
        n_spans = self._split_spans + n_events // 2 - 1 - recorder.n_pauses
        self.last = LastTrial(trial.began_ns, end_ns - trial.began_ns, recorder.paused_ns, n_spans)

    def discard_trial(self) -> None:
        """Discard the trial that runs, if any."""
        if self._open is not None:
            self.recorder.end(TRIAL)
            self._open = None

    def log_lengths(self) -> tuple[int, int, int]:
        """The numbers of events, of backwards and of calls of links in the log."""
        recorder = self.recorder
        lengths = len(recorder.events) // 2, len(recorder.forward_events), len(recorder.tracker.log)
        return lengths

    def _close(self, trial: _Trial) -> None:
        ends = self.log_lengths()
        trial.events, trial.forwards, trial.links = (
            (begin, end)
            for (begin, _), end in zip(
                (trial.events, trial.forwards, trial.links), ends, strict=True
            )
        )
        self._ended.append(trial)

    @property
    def is_in_trial(self) -> bool:
        return self._open is not None

    def use_own_links(self) -> None:
        """Attribute calls outside of trials to the session's own target."""
        self.recorder.use(self.target.links)

    @property
    def device_has_begun(self) -> bool:
        """Whether the device has begun to work on the trial that runs."""
        return self._pool is not None and self._pool.begun

    @property
    def is_long(self) -> bool:
        """Whether the log should be read after this trial."""
        return len(self.recorder.events) >= 2 * MANY_EVENTS

    def last_values(self) -> NDArray[np.int64]:
        """The clock at the events of the trial that ended last: the device's, if there is one."""
        values: NDArray[np.int64] = self._logged(self._ended[-1], *self._events()).values[-1]
        return values

    # -- reading

    def read(self) -> list[tuple[Target, TrialTimes]]:
        """Read the trials that have ended since the last call, and empty the log."""
        ended, self._ended = self._ended, []
        recorder = self.recorder
        event_ids, clocks = self._events()
        if self._on_read is not None:
            self._on_read(event_ids, clocks)
        logs = [self._logged(trial, event_ids, clocks) for trial in ended]
        for trial in ended:
            callers = recorder.tracker.log[slice(*trial.links)]
            trial.target.link_calls.update(Counter(caller.path for caller in callers))
        recorder.clear()
        read, self._unread = self._unread + self._add(ended, logs), []
        return read

    def _add(
        self, ended: Sequence[_Trial], logs: Sequence[LoggedTrial]
    ) -> list[tuple[Target, TrialTimes]]:
        """Add trials to their targets; return the complete ones in their order."""
        times: dict[int, TrialTimes] = {}
        for target in {id(trial.target): trial.target for trial in ended}.values():
            numbers = [at for at, trial in enumerate(ended) if trial.target is target]
            added = target.aggregator.add([logs[at] for at in numbers], self.call_ns)
            whole = [at for at in numbers if ended[at].is_last]
            times.update(zip(whole, added, strict=True))
        return [(ended[at].target, times[at]) for at in sorted(times)]

    def read_own(self) -> list[TrialTimes]:
        """Like :meth:`read`, if all trials have the session's own target."""
        return [times for _, times in self.read()]

    def _events(self, begin: int = 0) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Event ids and clocks of the log from an event on."""
        pairs = np.array(self.recorder.events[2 * begin :], np.int64).reshape(-1, 2)
        event_ids, clocks = np.ascontiguousarray(pairs.T)
        return event_ids, clocks

    def _logged(
        self, trial: _Trial, event_ids: NDArray[np.int64], clocks: NDArray[np.int64]
    ) -> LoggedTrial:
        """A trial's part of the log."""
        recorder, events = self.recorder, slice(*trial.events)
        host_ns, device_ns = clocks[events], trial.device_ns
        forward_events = np.array(recorder.forward_events[slice(*trial.forwards)], np.int64)
        return LoggedTrial(
            event_ids[events],
            host_ns[None] if device_ns is None else np.stack([host_ns, device_ns]),
            forward_events - (recorder.n_cleared + trial.events[0]),
            trial.number,
            trial.wall_ns,
            trial.launch_ns,
            trial.n_reopened,
            trial.is_last,
        )

    def logged_since(self, begin: tuple[int, int, int]) -> LoggedTrial:
        """The log since :meth:`log_lengths` returned ``begin``."""
        events, forwards, links = zip(begin, self.log_lengths(), strict=True)
        trial = _Trial(self.target, events, forwards, links, 0, 0)
        return self._logged(trial, *self._events())

    def _split_trial(self) -> None:
        """Read what the trial that runs has logged so far, so that the log stays small."""
        trial, recorder = self._open, self.recorder
        if trial is None or self._pool is not None or self._on_read is not None:
            return
        recorder.begin(PAUSE)
        began_ns = recorder.events[-1]
        recorder.events[-2] = ~TRIAL
        begin = trial.events[0]
        spans = match_spans(recorder.events[2 * begin :: 2])
        self._split_spans += len(spans.event_ids) - 1
        open_spans, span = [], spans.innermost[-2]
        while span >= 0:
            open_spans.append(spans.event_ids[span])
            span = spans.parents[span]
        self._close(replace(trial, wall_ns=began_ns - trial.start_ns, is_last=False))
        self._unread = self.read()
        for event_id in reversed(open_spans):
            recorder.events.extend((event_id, began_ns))
        recorder.events.extend((PAUSE, began_ns))
        begins = self.log_lengths()
        trial.events, trial.forwards, trial.links = ((0, 0) for _ in begins)
        trial.start_ns, trial.n_reopened = began_ns, len(open_spans) - 1
        self._split_spans -= trial.n_reopened
        recorder.end(PAUSE)
        recorder.n_pauses += 1
        recorder.paused_ns += recorder.events[-1] - began_ns

    # -- failures

    def failed_layer(self, error: BaseException) -> tuple[Layer | None, bool]:
        """The layer that an exception of the trial that runs left, or else the last one before.

        Returns:
            The layer, if any, and whether the exception left it.
        """
        trial, recorder = self._open, self.recorder
        if trial is None:
            return None, False
        events, forwards, _ = self.log_lengths()
        if wrappers.left_spans(error):
            events = recorder.n_before_raised
        failed = replace(
            trial,
            events=(trial.events[0], events),
            forwards=(trial.forwards[0], forwards),
        )
        layout = trial.target.aggregator.layout(self._logged(failed, *self._events()))
        owners = layout.owners[layout.owners >= 0]
        if not len(owners):
            return None, False
        row: Row = layout.index.rows[owners[-1]]
        return row.layer(int(owners[-1]), 1), bool(layout.owners[-1] >= 0)
