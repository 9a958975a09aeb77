"""The file that a run in progress appends to, so that a killed run keeps what it measured.

Layout: one line of text that names the format, the length of a JSON header as a decimal line, the
header (layers, settings, environment), then records of little-endian 64-bit integers:

    kind, start_ns, wall_ns [, times | BLAS threads | CPU time], kind

The times of a profiled trial are the self time of every layer, then the framework time of every
phase. On a GPU there follow the host's time in every layer, the gap before every layer, the time
until all was launched, and the time on the device. At the end there are when every row of the phase
communication was entered, when it was left, and, where the header says so, the number of the
training's iteration. A held trial has the self time of every layer,
and the time on the device in place of its wall time. A clean trial has its CPU time where the
header says so.

Where iterations may differ, rows are by link, and told as they are found: by a record of a kind of
its own (a JSON :class:`Rows`, with the number of bytes in place of the wall time). An iteration
has, behind its wall time, its number, and the numbers of rows, phases and rows of communication
that are known; then as many times and calls of rows, times of phases, and times of entering and
leaving the collectives. On a GPU there follow the host's time in every row, the gap before it, the
time until all was launched, and the time on the device. The header of a program has no layers.
Where trials were alike at first, the iterations tell of these as well, and replace them.

Versions before told of further kinds of trials, each by a record with its layers (JSON, with its
number in place of the start), had the number of the kind in front of the times of such a trial, and
wrote trials of no known kind without times. The commonest kind is shown.

What is no kind where one should stand ends the file (a zero is space that older versions reserved);
so does a record that was not written whole, which does not end with its kind.
"""

from __future__ import annotations

import errno
import io
import os
from array import array
from dataclasses import dataclass, field, replace
from enum import IntEnum
from io import BytesIO
from json import loads
from struct import Struct
from typing import IO, TYPE_CHECKING, Any, BinaryIO

import msgspec
import numpy as np

from chainer_profile.basics.errors import ProfileError
from chainer_profile.record.recording import (
    VERSION,
    Conditions,
    Environment,
    Layer,
    LinkCalls,
    Rank,
    Recording,
    Settings,
    n_collectives,
)
from chainer_profile.record.versioned import build, check_version

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

#: ``Recording.ended`` of a run whose journal alone is left.
KILLED = "killed before its end"
#: Held trials of a run on a device.
HELD_TRIALS = 20

_MAGIC = b"chainer-profile journal\n"
_CHUNK_NBYTES = 1 << 20
_HEAD = Struct("<qqq")
_WORD = Struct("<q")
_COUNTS = Struct("<qqqq")


class Kind(IntEnum):
    """What a trial was."""

    WARMUP = 1
    CLEAN = 2
    PROFILED = 3
    PROBE = 4
    HELD = 5
    VARIANT = 6
    OTHER = 7
    LEFT_OUT = 8
    ROWS = 9
    ITERATION = 10


@dataclass(frozen=True)
class Rows:
    """What is told of rows: all of the header's, or those that were found since the last time."""

    layers: tuple[Layer, ...] = ()
    phases: tuple[str, ...] = ()
    links: tuple[LinkCalls, ...] = ()
    settings: Settings = field(default_factory=Settings)


_KINDS = frozenset(map(int, Kind))
#: Records that are text, with the number of its bytes in place of the wall time.
_OF_TEXT = (Kind.VARIANT, Kind.ROWS)


class JournalError(Exception):
    """The journal could not be written; its records are kept in memory."""


@dataclass(frozen=True)
class _Header:
    layers: tuple[Layer, ...] = ()
    phases: tuple[str, ...] = ()
    links: tuple[LinkCalls, ...] = ()
    settings: Settings = field(default_factory=Settings)
    environment: Environment = field(default_factory=Environment)
    on_device: bool = False
    cpu: bool = False
    iterations: bool = False
    rank: Rank | None = None
    by_link: bool = False


def _parts(of: Rows, header: _Header) -> list[int]:
    """Numbers of times of a profiled trial, by what they are of."""
    n_layers, rows = len(of.layers), n_collectives(of.layers)
    device = [n_layers, n_layers, 2] if header.on_device else [0, 0, 0]
    return [n_layers, len(of.phases), *device, rows, rows, int(header.iterations)]


def _identity(fd: int) -> tuple[int, int] | None:
    """What tells an open file from all others; None where the descriptor is closed.

    A program that closes all descriptors may open a file of its own under the journal's number.
    """
    try:
        found = os.fstat(fd)
    except OSError:
        return None
    return found.st_dev, found.st_ino


@dataclass
class Journal:
    """Appends trials to a file, or keeps them in memory where there is no file.

    What was written belongs to the operating system: a process that is killed loses none of it.
    Once a write was cut short the file is left as it is, and further trials are kept in memory.

    Attributes:
        file: An empty binary file, open for reading and writing; None keeps everything in memory.
    """

    file: BinaryIO | None = None
    _header: _Header = _Header()
    # Where the records begin in the file, and where the next one goes.
    _begin: int = 0
    _end: int = 0
    _full: bool = False
    # The records that are not in the file.
    _kept: bytearray = field(default_factory=bytearray)

    def __post_init__(self) -> None:
        self._identity = None if self.file is None else _identity(self.file.fileno())

    def begin(
        self,
        layers: tuple[Layer, ...],
        settings: Settings,
        environment: Environment,
        *,
        phases: tuple[str, ...] = (),
        links: tuple[LinkCalls, ...] = (),
        on_device: bool = False,
        cpu: bool = False,
        iterations: bool = False,
        rank: Rank | None = None,
        by_link: bool = False,
    ) -> None:
        """Write the header.

        The arguments are those of a :class:`~.recording.Recording`, whether its times are a
        device's, whether clean trials come with their CPU time as a further integer, whether
        profiled ones end with the number of their iteration, and whether rows are told later, by
        :meth:`add_rows`.

        Raises:
            JournalError: The file cannot be written.
        """
        self._header = _Header(
            layers, phases, links, settings, environment, on_device, cpu, iterations, rank, by_link
        )
        text = msgspec.json.encode({"version": VERSION, **vars(self._header)})
        if self.file is not None:
            self._write(_MAGIC + b"%d\n" % len(text) + text)
            self._begin = self._end

    def add(self, kind: Kind, start_ns: int, wall_ns: int, more: bytes = b"") -> None:
        """Append one trial.

        Raises:
            JournalError: The file cannot be written. The record is kept, in memory.
        """
        self.add_group(kind, [(start_ns, wall_ns, more)])

    def add_rows(self, rows: Rows) -> None:
        """Tell of rows, phases and links that were found since the last time, and of the settings.

        Raises:
            JournalError: As of :meth:`add`.
        """
        text = msgspec.json.encode(rows)
        text += b" " * (-len(text) % _WORD.size)
        self.add(Kind.ROWS, 0, len(text), text)

    def add_iteration(
        self, start_ns: int, wall_ns: int, counts: tuple[int, int, int, int], more: bytes
    ) -> None:
        """Append an iteration whose rows were told by :meth:`add_rows`.

        Raises:
            JournalError: As of :meth:`add`.
        """
        self.add(Kind.ITERATION, start_ns, wall_ns, _COUNTS.pack(*counts) + more)

    def add_group(self, kind: Kind, trials: Iterable[tuple[int, int, bytes]]) -> None:
        """Append trials of one kind at once: of each its start, wall time and more.

        Raises:
            JournalError: As of :meth:`add`.
        """
        end = _WORD.pack(kind)
        self._append(
            b"".join(
                part
                for start_ns, wall_ns, more in trials
                for part in (_HEAD.pack(kind, start_ns, wall_ns), more, end)
            )
        )

    def add_clean(self, trials: array[int]) -> None:
        """Append clean trials: of each its start, wall and CPU time, one after the other.

        Raises:
            JournalError: As of :meth:`add`.
        """
        records = np.full((len(trials) // 3, 5), Kind.CLEAN, "<i8")
        records[:, 1:4] = np.frombuffer(trials, np.int64).reshape(-1, 3)
        self._append(records.tobytes())

    def _append(self, records: bytes) -> None:
        try:
            if self.file is not None and not self._full:
                self._write(records)
        finally:
            if self.file is None or self._full:
                self._kept += records

    def _write(self, content: bytes) -> None:
        assert self.file is not None
        fd, left = self.file.fileno(), memoryview(content)
        self._full = True  # unless all of it gets there
        try:
            if _identity(fd) != self._identity:
                raise OSError(errno.EBADF, "its file was closed, and another one has its number")
            os.lseek(fd, self._end, os.SEEK_SET)
            while left:
                left = left[os.write(fd, left) :]
        except OSError as error:
            raise JournalError(error.strerror) from error
        self._full = False
        self._end += len(content)

    def recording(self, conditions: Conditions, ended: str) -> Recording:
        """All trials so far as a recording."""
        return _assemble(self._streams(), self._header, conditions, ended)

    def _streams(self) -> Iterator[tuple[IO[bytes], int]]:
        if self.file is not None:
            fd = self.file.fileno()
            ours = _identity(fd) == self._identity
            place = fd if ours else self.file.name
            with io.open(place, "rb", _CHUNK_NBYTES, closefd=not ours) as stream:  # noqa: UP020
                stream.seek(self._begin)
                yield stream, self._end - self._begin
        yield BytesIO(self._kept), len(self._kept)


def recover(path: Path) -> Recording:
    """The recording of a run that was killed, from its journal.

    A journal that ends before its first trial gives a recording without trials.

    Raises:
        ProfileError: The file is not a journal, is damaged, or is from a newer version.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read ({error.strerror})") from None
    begin = len(_MAGIC)
    if content[:begin] != _MAGIC[: len(content)]:
        raise ProfileError(f"{path}: is no chainer-profile journal")
    header, stream = _Header(), BytesIO(content)
    try:
        end = content.find(b"\n", begin)
        stop = end + 1 + int(content[begin:end]) if end > 0 else len(content) + 1
        if stop <= len(content):
            text = loads(content[end + 1 : stop])
            check_version(path, text["version"], VERSION)
            if not {"layers", "settings", "environment"} <= text.keys():
                raise ValueError("the header has no layers")
            header = build(_Header, text)
        stream.seek(stop)
        left = max(0, len(content) - stop)
        return _assemble([(stream, left)], header, Conditions(), KILLED)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ProfileError(f"{path}: damaged: its header or its samples are not readable") from None


@dataclass
class _Trials:
    """The records of one kind: starts, wall times, and all else one after the other."""

    starts: array[int] = field(default_factory=lambda: array("q"))
    walls: array[int] = field(default_factory=lambda: array("q"))
    more: array[int] = field(default_factory=lambda: array("q"))


def _assemble(
    streams: Iterable[tuple[IO[bytes], int]], header: _Header, conditions: Conditions, ended: str
) -> Recording:
    """Sort the records of streams, of so many bytes each, by kind.

    A record that is none, or is not whole, ends its stream. One copy of the samples is held.
    """
    kinds = [Rows(header.layers, header.phases, header.links, header.settings)]
    found = {kind: _Trials() for kind in Kind}
    profiled = [found[Kind.PROFILED]]
    rows = _ByLink(header)
    # Bytes of the middle of a record.
    sizes = {
        (Kind.PROFILED, 0): 8 * sum(_parts(kinds[0], header)),
        (Kind.PROBE, 0): 8,
        (Kind.HELD, 0): 8 * len(header.layers),
        (Kind.CLEAN, 0): 8 * header.cpu,
    }
    for stream, left in streams:
        while left >= _HEAD.size:
            word, start_ns, wall_ns = _HEAD.unpack(stream.read(_HEAD.size))
            if word not in _KINDS:
                break
            kind, number = Kind(word), 0
            if kind is Kind.OTHER:
                (number,) = _WORD.unpack(stream.read(_WORD.size))
                left -= _WORD.size
                if not 0 < number < len(kinds):
                    break
            size = wall_ns if kind in _OF_TEXT else sizes.get((kind, number), 0)
            counts = b""
            if kind is Kind.ITERATION and left >= _HEAD.size + _COUNTS.size:
                counts = stream.read(_COUNTS.size)
                left -= _COUNTS.size
                size = rows.size_of(counts)
            left -= _HEAD.size + size + _WORD.size
            if left < 0 or size < 0:
                break
            rest = stream.read(size + _WORD.size)
            if _WORD.unpack(rest[size:])[0] != kind:
                break
            if kind is Kind.ROWS:
                rows.tell(build(Rows, loads(rest[:size])))
                continue
            if kind is Kind.ITERATION:
                rows.add(start_ns, wall_ns, counts, rest[:size])
                continue
            if kind is Kind.VARIANT:
                other = build(Rows, loads(rest[:size]))
                sizes[Kind.OTHER, len(kinds)] = 8 * sum(_parts(other, header))
                kinds.append(other)
                profiled.append(_Trials())
                continue
            trials = profiled[number] if kind is Kind.OTHER else found[kind]
            trials.starts.append(start_ns)
            trials.walls.append(wall_ns)
            trials.more.frombytes(rest[:size])

    # Of equally common kinds the first stands for the run.
    main = max(range(len(kinds)), key=lambda number: len(profiled[number].walls))
    on_device: dict[str, Any] = {}
    if found[Kind.HELD].walls and main == 0 and not rows.are_told:
        held = _samples(found[Kind.HELD].more)
        held = held.reshape(len(found[Kind.HELD].walls), len(header.layers))
        on_device = {"held_ns": held, "held_span_ns": _samples(found[Kind.HELD].walls)}
    shown = rows.fields() if rows.are_told else _profiled(kinds[main], profiled[main], header)
    others = sum(len(one.walls) for one in profiled) - len(profiled[main].walls)
    return Recording(
        **shown,
        **on_device,
        clean_ns=_samples(found[Kind.CLEAN].walls),
        clean_start_ns=_samples(found[Kind.CLEAN].starts),
        clean_cpu_ns=_samples(found[Kind.CLEAN].more) if header.cpu else None,
        warmup_ns=_samples(found[Kind.WARMUP].walls),
        probe_ns=_samples(found[Kind.PROBE].walls),
        probe_threads=_samples(found[Kind.PROBE].more),
        environment=header.environment,
        rank=header.rank,
        conditions=conditions,
        ended=ended,
        left_out=others + len(found[Kind.LEFT_OUT].walls),
    )


def _profiled(of: Rows, trials: _Trials, header: _Header) -> dict[str, Any]:
    """The fields of a recording whose trials are alike."""
    parts = _parts(of, header)
    times = _samples(trials.more).reshape(len(trials.walls), sum(parts))
    own, framework, host, gaps, whole, arrived, left, iteration = np.split(
        times, np.cumsum(parts[:-1]), axis=1
    )
    fields: dict[str, Any] = dict(vars(of))
    fields |= {"self_ns": own, "framework_ns": framework if of.phases else None}
    fields |= {"trial_ns": _samples(trials.walls), "start_ns": _samples(trials.starts)}
    if header.on_device:
        fields |= {"host_ns": host, "gap_ns": gaps}
        fields |= {"launch_ns": whole[:, 0].copy(), "span_ns": whole[:, 1].copy()}
    if arrived.shape[1]:
        fields |= {"arrived_ns": arrived, "left_ns": left}
    if header.iterations:
        fields |= {"iteration": iteration[:, 0].copy()}
    return fields


@dataclass
class _ByLink:
    """Iterations whose rows are told as they are found."""

    header: _Header
    layers: list[Layer] = field(default_factory=list)
    phases: list[str] = field(default_factory=list)
    links: tuple[LinkCalls, ...] = ()
    settings: Settings | None = None
    starts: list[int] = field(default_factory=list)
    walls: list[int] = field(default_factory=list)
    # Of every iteration its number, and its samples by what they are of.
    numbers: list[int] = field(default_factory=list)
    samples: list[list[NDArray[np.int64]]] = field(default_factory=list)

    def _parts(self, counts: bytes) -> list[int]:
        _, rows, phases, collectives = _COUNTS.unpack(counts)
        parts = [rows, rows, phases, collectives, collectives]
        return [*parts, rows, rows, 2] if self.header.on_device else parts

    def size_of(self, counts: bytes) -> int:
        """Bytes of the rest of a record; below 0 where rows are meant that were not told."""
        parts = self._parts(counts)
        known = 0 <= parts[0] <= len(self.layers) and 0 <= parts[2] <= len(self.phases)
        known &= 0 <= parts[3] <= n_collectives(tuple(self.layers))
        return 8 * sum(parts) if known else -1

    @property
    def are_told(self) -> bool:
        """Whether rows are by link."""
        return self.header.by_link or self.settings is not None

    def tell(self, rows: Rows) -> None:
        """Know further rows."""
        self.layers += rows.layers
        self.phases += rows.phases
        self.links, self.settings = rows.links or self.links, rows.settings

    def add(self, start_ns: int, wall_ns: int, counts: bytes, content: bytes) -> None:
        """Add an iteration."""
        self.starts.append(start_ns)
        self.walls.append(wall_ns)
        self.numbers.append(_COUNTS.unpack(counts)[0])
        samples = np.frombuffer(content, np.int64)
        self.samples.append(np.split(samples, np.cumsum(self._parts(counts)[:-1])))

    def _column(self, number: int, width: int) -> NDArray[np.int64]:
        """The samples of one thing."""
        return padded([parts[number] for parts in self.samples], width)

    def fields(self) -> dict[str, Any]:
        """The fields of a recording."""
        n_rows, collectives = len(self.layers), n_collectives(tuple(self.layers))
        calls = self._column(1, n_rows)
        found: dict[str, Any] = {
            "layers": tuple(map(_with_mean_calls, self.layers, calls.T)),
            "phases": tuple(self.phases),
            "links": self.links,
            "settings": self.settings or self.header.settings,
            "self_ns": self._column(0, n_rows),
            "calls": calls,
            "framework_ns": self._column(2, len(self.phases)) if self.phases else None,
            "trial_ns": np.array(self.walls, np.int64),
            "start_ns": np.array(self.starts, np.int64),
        }
        if self.header.iterations:
            found |= {"iteration": np.array(self.numbers, np.int64)}
        if collectives:
            found |= {"arrived_ns": self._column(3, collectives)}
            found |= {"left_ns": self._column(4, collectives)}
        if self.header.on_device:
            whole = self._column(7, 2)
            found |= {"host_ns": self._column(5, n_rows), "gap_ns": self._column(6, n_rows)}
            found |= {"launch_ns": whole[:, 0].copy(), "span_ns": whole[:, 1].copy()}
        return found


def padded(trials: Sequence[NDArray[np.int64]], width: int) -> NDArray[np.int64]:
    """Samples of trials, (trials, width), with zeros for what a trial did not know yet."""
    table = np.zeros((len(trials), width), np.int64)
    for row, values in zip(table, trials, strict=True):
        row[: len(values)] = values
    return table


def _with_mean_calls(layer: Layer, calls: NDArray[np.int64]) -> Layer:
    """A row as it was first told, with the calls and the work that its iterations have."""
    mean = float(calls.mean()) if calls.any() else 0.0
    if not mean or mean == layer.calls:
        return layer
    work = {
        name: round(value * mean / layer.calls)
        for name in ("flops", "macs", "nbytes_read", "nbytes_written")
        if (value := getattr(layer, name)) is not None
    }
    return replace(layer, calls=mean, work_is_about=layer.work_is_about or bool(work), **work)


def _samples(values: array[int]) -> NDArray[np.int64]:
    return np.frombuffer(values, np.int64) if values else np.zeros(0, np.int64)
