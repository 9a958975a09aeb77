"""The file that a run in progress appends to, so that a killed run keeps what it measured.

Layout: one line of text that names the format, the length of a JSON header as a decimal line, the
header (layers, settings, environment), then records of little-endian 64-bit integers:

    kind, start_ns, wall_ns [, times | BLAS threads | CPU time], kind

A profiled trial has its times in the order of :data:`_ALIKE`, a held one the self time of every
layer, and the time on the device in place of its wall time. An unprofiled trial has its CPU time
where the header says so.

Where iterations may differ, rows are by link, and told as they are found: by a record of a kind of
its own (a JSON :class:`Rows`, with the number of bytes in place of the wall time). An iteration
has, behind its wall time, its number, and the numbers of rows, phases and rows of communication
that are known; then its times and calls in the order of :data:`_BY_LINK`. The header of a program
has no layers. Where trials were alike at first, the iterations tell of these as well, and replace
them.

What is no kind where one should stand ends the file (a zero is space that older versions reserved);
so does a record that was not written whole, which does not end with its kind.
"""

from __future__ import annotations

import errno
import io
import os
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from io import BytesIO
from json import loads
from pathlib import Path
from struct import Struct
from typing import IO, Any, BinaryIO

import msgspec
import numpy as np
from numpy.typing import NDArray

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

#: ``Recording.ended`` of a run whose journal alone is left.
KILLED = "killed before its end"
#: Held trials of a run on a device.
HELD_TRIALS = 20

_MAGIC = b"chainer-profile journal\n"
_CHUNK_NBYTES = 1 << 20
_HEAD = Struct("<qqq")
_WORD = Struct("<q")
_COUNTS = Struct("<qqqq")

#: The samples of a profiled trial, and of an iteration, in their order. ``whole_ns`` are a device's
#: times until all was launched, and from the first event to the last.
_ALIKE = (
    *("self_ns", "framework_ns", "host_ns", "gap_ns", "whole_ns"),
    *("arrived_ns", "left_ns", "iteration"),
)
_BY_LINK = (
    *("self_ns", "calls", "framework_ns", "arrived_ns", "left_ns"),
    *("host_ns", "gap_ns", "whole_ns"),
)


class Kind(IntEnum):
    WARMUP = 1
    CLEAN = 2
    PROFILED = 3
    PROBE = 4
    HELD = 5
    ROWS = 9
    ITERATION = 10


_KINDS = frozenset(map(int, Kind))


class JournalError(Exception):
    """The journal could not be written; its records are kept in memory."""


@dataclass(frozen=True)
class Rows:
    """What is told of rows: all of the header's, or those that were found since the last time."""

    layers: tuple[Layer, ...] = ()
    phases: tuple[str, ...] = ()
    links: tuple[LinkCalls, ...] = ()
    settings: Settings = field(default_factory=Settings)


@dataclass(frozen=True)
class Header:
    """What a journal begins with."""

    layers: tuple[Layer, ...]
    settings: Settings
    environment: Environment
    phases: tuple[str, ...] = ()
    links: tuple[LinkCalls, ...] = ()
    #: Whether times are a device's.
    on_device: bool = False
    #: Whether unprofiled trials come with their CPU time as a further integer.
    cpu: bool = False
    #: Whether profiled trials come with the number of the training's iteration.
    iterations: bool = False
    rank: Rank | None = None
    #: Whether rows are told later, by :meth:`Journal.add_rows`.
    by_link: bool = False

    @property
    def rows(self) -> Rows:
        return Rows(self.layers, self.phases, self.links, self.settings)

    def widths(self, names: Sequence[str], n_rows: int, n_phases: int, n_moves: int) -> list[int]:
        """How many samples of each name a trial has with so many rows."""
        times = n_rows if self.on_device else 0
        number = {"self_ns": n_rows, "calls": n_rows, "framework_ns": n_phases}
        number |= {"host_ns": times, "gap_ns": times, "whole_ns": 2 * self.on_device}
        number |= {"arrived_ns": n_moves, "left_ns": n_moves, "iteration": int(self.iterations)}
        return [number[name] for name in names]


def _identity(fd: int) -> tuple[int, int] | None:
    """What tells an open file from all others; None where the descriptor is closed."""
    try:
        found = os.fstat(fd)
    except OSError:
        return None
    return found.st_dev, found.st_ino


_EMPTY = Header((), Settings(), Environment())


@dataclass
class Journal:
    """Appends trials to an empty binary file, or keeps them in memory where there is none.

    What was written belongs to the operating system: a process that is killed loses none of it.
    Once a write was cut short the file is left as it is, and further trials are kept in memory: all
    that adds something raises JournalError then, and keeps it.
    """

    file: BinaryIO | None = None
    _header: Header = _EMPTY
    # Where the records begin in the file, and where the next one goes.
    _begin: int = 0
    _end: int = 0
    _full: bool = False
    # The records that are not in the file.
    _kept: bytearray = field(default_factory=bytearray)

    def __post_init__(self) -> None:
        self._identity = None if self.file is None else _identity(self.file.fileno())

    def begin(self, header: Header) -> None:
        self._header = header
        text = msgspec.json.encode({"version": VERSION, **vars(header)})
        if self.file is not None:
            self._write(_MAGIC + b"%d\n" % len(text) + text)
            self._begin = self._end

    def add(self, kind: Kind, start_ns: int, wall_ns: int, more: bytes = b"") -> None:
        self.add_group(kind, [(start_ns, wall_ns, more)])

    def add_rows(self, rows: Rows) -> None:
        """Tell of what was found since the last time, and of the settings."""
        text = msgspec.json.encode(rows)
        text += b" " * (-len(text) % _WORD.size)
        self.add(Kind.ROWS, 0, len(text), text)

    def add_iterations(
        self, iterations: Iterable[tuple[int, int, tuple[int, int, int, int], bytes]]
    ) -> None:
        """Append iterations whose rows were told by :meth:`add_rows`.

        Of each its start, wall time, counts (number, rows, phases, moves), and samples.
        """
        records = (
            (start_ns, wall_ns, _COUNTS.pack(*counts) + more)
            for start_ns, wall_ns, counts, more in iterations
        )
        self.add_group(Kind.ITERATION, records)

    def add_group(self, kind: Kind, trials: Iterable[tuple[int, int, bytes]]) -> None:
        """Append trials of one kind at once: of each its start, wall time and more."""
        end = _WORD.pack(kind)
        self._append(
            b"".join(
                part
                for start_ns, wall_ns, more in trials
                for part in (_HEAD.pack(kind, start_ns, wall_ns), more, end)
            )
        )

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
            # A program that closes all descriptors may open a file of its own under this number.
            if _identity(fd) != self._identity:
                raise OSError(
                    errno.EBADF, ("its file was closed, and another file now has its descriptor")
                )
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
    """The recording of a run that was killed; without trials if it was killed before the first."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read ({error.strerror})") from None
    begin = len(_MAGIC)
    if content[:begin] != _MAGIC[: len(content)]:
        raise ProfileError(f"{path} is not a chainer-profile journal")
    header, stream = _EMPTY, BytesIO(content)
    try:
        end = content.find(b"\n", begin)
        stop = end + 1 + int(content[begin:end]) if end > 0 else len(content) + 1
        if stop <= len(content):
            text = loads(content[end + 1 : stop])
            check_version(path, text["version"], VERSION)
            header = build(Header, text)
        stream.seek(stop)
        left = max(0, len(content) - stop)
        return _assemble([(stream, left)], header, Conditions(), KILLED)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ProfileError(f"{path} is damaged: its header or its samples cannot be read") from None


@dataclass
class _Trials:
    """The records of one kind: starts, wall times, and all else one after the other."""

    starts: array[int] = field(default_factory=lambda: array("q"))
    walls: array[int] = field(default_factory=lambda: array("q"))
    more: array[int] = field(default_factory=lambda: array("q"))


def _assemble(
    streams: Iterable[tuple[IO[bytes], int]], header: Header, conditions: Conditions, ended: str
) -> Recording:
    """Sort the records of streams, of so many bytes each, by kind: one copy of the samples is held.

    A record that is none, or is not whole, ends its stream.
    """
    n_layers = len(header.layers)
    parts = header.widths(_ALIKE, n_layers, len(header.phases), n_collectives(header.layers))
    found = {kind: _Trials() for kind in Kind}
    iterations = _Iterations(header)
    # Bytes of the middle of a record.
    sizes = {
        Kind.PROFILED: 8 * sum(parts),
        Kind.PROBE: 8,
        Kind.HELD: 8 * n_layers,
        Kind.CLEAN: 8 * header.cpu,
    }
    for stream, left in streams:
        while left >= _HEAD.size:
            word, start_ns, wall_ns = _HEAD.unpack(stream.read(_HEAD.size))
            if word not in _KINDS:
                break
            kind, counts = Kind(word), b""
            size = wall_ns if kind is Kind.ROWS else sizes.get(kind, 0)
            if kind is Kind.ITERATION:
                counts = stream.read(_COUNTS.size)
                size = iterations.size_of(counts)
            left -= _HEAD.size + len(counts) + size + _WORD.size
            if left < 0 or size < 0:
                break
            rest = stream.read(size + _WORD.size)
            if _WORD.unpack(rest[size:])[0] != kind:
                break
            found[kind].starts.append(start_ns)
            found[kind].walls.append(wall_ns)
            if kind is Kind.ROWS:
                iterations.tell(build(Rows, loads(rest[:size])))
            elif kind is Kind.ITERATION:
                iterations.add(counts, rest[:size])
            else:
                found[kind].more.frombytes(rest[:size])

    profiled, clean, held = found[Kind.PROFILED], found[Kind.CLEAN], found[Kind.HELD]
    rows, is_told = header.rows, header.by_link or bool(found[Kind.ROWS].walls)
    if is_told:
        profiled = found[Kind.ITERATION]
        rows, samples = iterations.made()
    else:
        times = _array(profiled.more).reshape(len(profiled.walls), sum(parts))
        columns = np.split(times, np.cumsum(parts[:-1]), axis=1)
        samples = dict(zip(_ALIKE, columns, strict=True))
    cpu = _array(clean.more)
    if held.walls and not is_told:
        held_ns = _array(held.more).reshape(len(held.walls), n_layers)
        samples |= {"held_ns": held_ns, "held_span_ns": _array(held.walls)}
    return Recording(
        **vars(rows),
        **_shown(samples, rows, header),
        trial_ns=_array(profiled.walls),
        start_ns=_array(profiled.starts),
        clean_ns=_array(clean.walls),
        clean_start_ns=_array(clean.starts),
        clean_cpu_ns=cpu[cpu >= 0] if header.cpu else None,
        warmup_ns=_array(found[Kind.WARMUP].walls),
        probe_ns=_array(found[Kind.PROBE].walls),
        probe_threads=_array(found[Kind.PROBE].more),
        environment=header.environment,
        rank=header.rank,
        conditions=conditions,
        ended=ended,
    )


def _shown(samples: dict[str, Any], rows: Rows, header: Header) -> dict[str, Any]:
    """Those of the samples that a recording has of such rows."""
    whole, number = samples.pop("whole_ns"), samples.pop("iteration")
    if not rows.phases:
        del samples["framework_ns"]
    if not n_collectives(rows.layers):
        del samples["arrived_ns"], samples["left_ns"]
    if header.iterations:
        samples["iteration"] = number[:, 0].copy()
    if header.on_device:
        return samples | {"launch_ns": whole[:, 0].copy(), "span_ns": whole[:, 1].copy()}
    del samples["host_ns"], samples["gap_ns"]
    return samples


class _Iterations:
    """Iterations whose rows are told as they are found."""

    def __init__(self, header: Header) -> None:
        self._header = header
        self._told = Rows(settings=header.settings)
        # Of every iteration its number, and its samples by what they are of.
        self._numbers: list[int] = []
        self._samples: list[list[NDArray[np.int64]]] = []

    def size_of(self, counts: bytes) -> int:
        """Bytes of the rest of a record; below 0 where rows are meant that were not told."""
        if len(counts) < _COUNTS.size:
            return -1
        _, n_rows, n_phases, n_moves = _COUNTS.unpack(counts)
        told = self._told
        known = 0 <= n_rows <= len(told.layers) and 0 <= n_phases <= len(told.phases)
        known &= 0 <= n_moves <= n_collectives(told.layers)
        return 8 * sum(self._widths(counts)) if known else -1

    def _widths(self, counts: bytes) -> list[int]:
        return self._header.widths(_BY_LINK, *_COUNTS.unpack(counts)[1:])

    def tell(self, rows: Rows) -> None:
        told = self._told
        layers, phases = told.layers + rows.layers, told.phases + rows.phases
        self._told = Rows(layers, phases, rows.links or told.links, rows.settings)

    def add(self, counts: bytes, content: bytes) -> None:
        self._numbers.append(_COUNTS.unpack(counts)[0])
        samples = np.frombuffer(content, np.int64)
        self._samples.append(np.split(samples, np.cumsum(self._widths(counts)[:-1])))

    def made(self) -> tuple[Rows, dict[str, Any]]:
        """The rows, with the calls that they had on average, and all samples."""
        told = self._told
        moves = n_collectives(told.layers)
        widths = self._header.widths(_BY_LINK, len(told.layers), len(told.phases), moves)
        samples = {
            name: padded([parts[at] for parts in self._samples], width)
            for at, (name, width) in enumerate(zip(_BY_LINK, widths, strict=True))
        }
        samples["iteration"] = np.array(self._numbers, np.int64)[:, None]
        layers = tuple(map(_with_mean_calls, told.layers, samples["calls"].T))
        return replace(told, layers=layers), samples


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


def _array(values: array[int]) -> NDArray[np.int64]:
    return np.frombuffer(values, np.int64) if values else np.zeros(0, np.int64)
