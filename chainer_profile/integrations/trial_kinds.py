"""Trials of one kind in a program: its iterations, or calls of a network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import chainer

from chainer_profile.integrations.networks import RecordedPaths
from chainer_profile.measure.accounts import Account
from chainer_profile.measure.aggregate import Aggregator, LoggedTrial, TrialTimes
from chainer_profile.measure.devices import device_name, device_of
from chainer_profile.measure.event_log import EventLog
from chainer_profile.measure.iteration_writer import IterationWriter
from chainer_profile.measure.loop import Batch, Loop, Subject, class_names, name_of
from chainer_profile.measure.ranks import rank_of
from chainer_profile.measure.rows import RowIndex
from chainer_profile.measure.session import Target
from chainer_profile.record.budget import ITERATIONS, TRAINING
from chainer_profile.record.journal import Journal
from chainer_profile.record.recording import Environment, Layer, MemoryUse, Recording, Settings

if TYPE_CHECKING:
    from chainer_profile.measure.clock import Clock

#: The networks and optimizers of trials, as far as they exist.
Subjects = Callable[[], tuple[Sequence[Any], Sequence[Any]]]


@dataclass(eq=False)
class TrialKind:
    """Trials of one kind of a program, whose rows are in one recording.

    Args:
        name: Its name, such as ``train``.
        subjects: Gives the networks and the optimizers.
        paths: The paths of its rows.
        command: How the program was called.
        account: The account of the trials' time.
    """

    name: str
    subjects: Subjects
    paths: RecordedPaths
    command: str = ""
    account: Account = (ITERATIONS, "")
    #: Trials so far, and their time.
    count: int = 0
    own_ns: int = 0
    #: The trials, at the end of the program.
    recording: Recording | None = None
    has_failed: bool = False  #: Whether measuring them has failed.
    batch: Batch = field(default_factory=Batch)
    memory: MemoryUse | None = None
    #: Events of the longest trial.
    max_events: int = 0

    def __post_init__(self) -> None:
        self.writer: IterationWriter | None = None  #: None if the trials are not measured.
        self.target: Target | None = None
        self._settings = Settings()
        self._xp: Any = chainer.get_device("@numpy").xp
        self._subject: Subject | None = None
        self._train_mode = True

    def measure(
        self,
        log: EventLog,
        clock: Clock,
        journal: Callable[[], Journal],
        warn: Callable[[str], None],
        calibrates: bool,
    ) -> None:
        """Measure these trials by row; see :class:`.IterationWriter`."""
        aggregator = Aggregator(log.recorder.sites, network_is_phase=True)
        aggregator.index = RowIndex(self.paths)
        self.target = Target(log.links, aggregator, list_links=self.paths.link_calls)
        self.writer = IterationWriter(
            *(self.target, clock, self._settings_of, journal, warn),
            rank=rank_of(self.subjects()[1]),
            calibrates=calibrates,
        )

    def with_changes(self, name: str) -> TrialKind:
        """Make a kind for the trials of this kind that have changes."""
        changed = TrialKind(name, lambda: self.subjects(), self.paths, self.command, self.account)
        changed.batch = self.batch
        changed.note_subject(self._subject, self._train_mode)
        return changed

    @property
    def number(self) -> int:
        """The number in its name: 1 for ``train``, 2 for ``train-2``."""
        return int(self.name.partition("-")[2] or 1)

    @property
    def is_training(self) -> bool:
        """Whether the trials are iterations."""
        return self.name.partition("-")[0] == TRAINING

    @property
    def n_rows(self) -> int:
        """Number of rows so far."""
        return 0 if self.target is None else len(self.target.aggregator.index.rows)

    @property
    def is_measured(self) -> bool:
        """Whether any trial was written by row."""
        return self.writer is not None and self.writer.has_begun

    @property
    def xp(self) -> Any:
        """The networks' array module: NumPy or CuPy."""
        return self._xp

    def add(self, trials: Sequence[tuple[LoggedTrial, Counter[str]]]) -> list[TrialTimes]:
        """Add trials to the rows, and write them."""
        assert self.writer is not None
        assert self.target is not None
        call_ns = self.writer.prepare(self.xp)
        times = self.target.aggregator.add([logged for logged, _ in trials], call_ns)
        for logged, calls in trials:
            self.target.link_calls.update(calls)
            self.max_events = max(self.max_events, len(logged.event_ids))
        self.writer.add(times)
        return times

    def roots(self) -> list[tuple[str, Any]]:
        """The networks, each with the prefix of its links' paths."""
        return [(self.paths.prefix_of(network), network) for network in self.subjects()[0]]

    def loop(self) -> Loop:
        """The networks, optimizers and batches of a trial; the result keeps the networks alive."""
        loop = Loop(self.roots(), self.subjects()[1], command=self.command)
        loop.batch = self.batch
        return loop

    def note_subject(self, subject: Subject | None = None, train_mode: bool = True) -> None:
        """Remember names and device of the networks, which may be gone when trials are read.

        ``subject`` has them if the networks are gone already.
        """
        networks, optimizers = self.subjects()
        if networks:
            device = device_of(networks[0])
            self._xp = device.xp
            subject = Subject(name_of(networks[0]), device_name(device), class_names(optimizers))
        self._subject = subject or self._subject
        self._train_mode = train_mode

    def _settings_of(self, layers: Sequence[Layer]) -> Settings:
        subject = self._subject or Subject("a block", "cpu")
        self._settings = subject.settings(layers, self.batch, self._train_mode, self.command)
        return self._settings

    def described(self) -> tuple[Settings, Environment] | None:
        """Settings and machine of the trials so far, as in their recording; None without trials."""
        header = None if self.writer is None else self.writer.header
        if header is None:
            return None
        settings = self._settings if self.recording is None else self.recording.settings
        return settings, header.environment

    def _memory_of_rows(self, memory: MemoryUse) -> MemoryUse:
        """Extend the use of memory to rows that were added later, which allocated nothing."""
        more = (0,) * (self.n_rows - len(memory.peak_nbytes))
        return replace(
            memory,
            peak_nbytes=memory.peak_nbytes + more,
            retained_nbytes=memory.retained_nbytes + more,
            input_nbytes=self.batch.input_nbytes,
        )

    def end(self) -> None:
        """Make the recording of the trials, of which none follow."""
        if self.writer is None or self.recording is not None:
            return
        recording = self.writer.recording(self.xp, self.roots())
        if recording is not None and self.memory is not None:
            recording = replace(recording, memory=self._memory_of_rows(self.memory))
        self.recording = recording
