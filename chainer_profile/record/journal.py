"""The file that a run in progress appends to, so that a killed run keeps what it measured.

Layout: one line of text that names the format, the length of a JSON header as a decimal line, the
header (layers, settings, environment), then records of little-endian 64-bit integers:

    kind, start_ns, wall_ns [, number of the variant] [, times | BLAS threads | CPU time], kind

The times of a profiled trial are the self time of every layer, then the framework time of every
phase. On a GPU there follow the host's time in every layer, the gap before every layer, the time
until all was launched, and the time on the device. At the end there are when every row of the phase
communication was entered, when it was left, and, where the header says so, the number of the
training's iteration. A held trial has the self time of every layer,
and the time on the device in place of its wall time. A clean trial has its CPU time where the
header says so.

Trials of another kind than the header's are of a variant: a record of a kind of its own tells its
layers (JSON, filled up with spaces to whole words), with its number in place of the start and the
number of bytes in place of the wall time. A trial that no variant fits is left out:
it has no times.

What is no kind where one should stand ends the file (a zero is space that older versions reserved);
so does a record that was not written whole, which does not end with its kind.
"""

from __future__ import annotations

import errno
import io
import json
import os
from array import array
from dataclasses import dataclass, field
from enum import IntEnum
from io import BytesIO
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
    Variant,
    n_collectives,
)
from chainer_profile.record.versioned import build, check_version

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
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


_KINDS = frozenset(map(int, Kind))


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


def _parts(kind: Variant, header: _Header) -> list[int]:
    """Numbers of times of a profiled trial, by what they are of."""
    n_layers, rows = len(kind.layers), n_collectives(kind.layers)
    device = [n_layers, n_layers, 2] if header.on_device else [0, 0, 0]
    return [n_layers, len(kind.phases), *device, rows, rows, int(header.iterations)]


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
    _n_variants: int = 0

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
    ) -> None:
        """Write the header.

        The arguments are those of a :class:`~.recording.Recording`, whether its times are a
        device's, whether clean trials come with their CPU time as a further integer, and whether
        profiled ones end with the number of their iteration.

        Raises:
            JournalError: The file cannot be written.
        """
        self._header = _Header(
            layers, phases, links, settings, environment, on_device, cpu, iterations, rank
        )
        text = msgspec.json.encode({"version": VERSION, **vars(self._header)})
        if self.file is not None:
            self._write(_MAGIC + b"%d\n" % len(text) + text)
            self._begin = self._end

    def add(self, kind: Kind, start_ns: int, wall_ns: int, more: bytes = b"") -> None:
        """Append one trial.

        Args:
            kind: What the trial was.
            start_ns: Its start on the run's clock.
            wall_ns: Its wall time.
            more: The middle of the record: 64-bit integers.

        Raises:
            JournalError: The file cannot be written. The record is kept, in memory.
        """
        self.add_group(kind, [(start_ns, wall_ns, more)])

    def add_variant(
        self,
        layers: tuple[Layer, ...],
        phases: tuple[str, ...],
        links: tuple[LinkCalls, ...],
        settings: Settings | None = None,
    ) -> int:
        """Tell of another kind of trials; gives its number, from 1.

        The settings are the header's unless others are given.

        Raises:
            JournalError: As of :meth:`add`.
        """
        self._n_variants += 1
        number = self._n_variants
        variant = Variant(layers, phases, links, settings or self._header.settings)
        text = msgspec.json.encode(variant)
        text += b" " * (-len(text) % _WORD.size)
        self.add(Kind.VARIANT, number, len(text), text)
        return number

    def add_group(
        self, kind: Kind, trials: Iterable[tuple[int, int, bytes]], variant: int = 0
    ) -> None:
        """Append trials of one kind at once: of each its start, wall time and more.

        Args:
            kind: What the trials were.
            trials: The trials.
            variant: For profiled ones, number of their variant; 0 for that of the header.

        Raises:
            JournalError: As of :meth:`add`.
        """
        if variant:
            kind, number = Kind.OTHER, _WORD.pack(variant)
            trials = [(start_ns, wall_ns, number + more) for start_ns, wall_ns, more in trials]
        end = _WORD.pack(kind)
        records = b"".join(
            part
            for start_ns, wall_ns, more in trials
            for part in (_HEAD.pack(kind, start_ns, wall_ns), more, end)
        )
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
            text = json.loads(content[end + 1 : stop])
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
    variants = [Variant(header.layers, header.phases, header.links, header.settings)]
    found = {kind: _Trials() for kind in Kind}
    profiled = [found[Kind.PROFILED]]
    # Bytes of the middle of a record.
    sizes = {
        (Kind.PROFILED, 0): 8 * sum(_parts(variants[0], header)),
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
                if not 0 < number < len(variants):
                    break
            size = wall_ns if kind is Kind.VARIANT else sizes.get((kind, number), 0)
            left -= _HEAD.size + size + _WORD.size
            if left < 0 or size < 0:
                break
            rest = stream.read(size + _WORD.size)
            if _WORD.unpack(rest[size:])[0] != kind:
                break
            if kind is Kind.VARIANT:
                variant = build(Variant, json.loads(rest[:size]))
                sizes[Kind.OTHER, len(variants)] = 8 * sum(_parts(variant, header))
                variants.append(variant)
                profiled.append(_Trials())
                continue
            trials = profiled[number] if kind is Kind.OTHER else found[kind]
            trials.starts.append(start_ns)
            trials.walls.append(wall_ns)
            trials.more.frombytes(rest[:size])

    # The commonest kind stands for the run; of equally common ones the first.
    by_count = sorted(range(len(variants)), key=lambda number: -len(profiled[number].walls))
    main, *others = (n for n in by_count if len(profiled[n].walls) or n == by_count[0])
    on_device: dict[str, Any] = {}
    if found[Kind.HELD].walls and main == 0:
        held = _samples(found[Kind.HELD].more)
        held = held.reshape(len(found[Kind.HELD].walls), len(header.layers))
        on_device = {"held_ns": held, "held_span_ns": _samples(found[Kind.HELD].walls)}
    return Recording(
        **_profiled(variants[main], profiled[main], header),
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
        variants=tuple(Recording(**_profiled(variants[n], profiled[n], header)) for n in others),
        left_out=len(found[Kind.LEFT_OUT].walls),
    )


def _profiled(variant: Variant, trials: _Trials, header: _Header) -> dict[str, Any]:
    """The fields of a recording that are of one variant."""
    parts = _parts(variant, header)
    times = _samples(trials.more).reshape(len(trials.walls), sum(parts))
    own, framework, host, gaps, whole, arrived, left, iteration = np.split(
        times, np.cumsum(parts[:-1]), axis=1
    )
    fields: dict[str, Any] = dict(vars(variant))
    fields |= {"self_ns": own, "framework_ns": framework if variant.phases else None}
    fields |= {"trial_ns": _samples(trials.walls), "start_ns": _samples(trials.starts)}
    if header.on_device:
        fields |= {"host_ns": host, "gap_ns": gaps}
        fields |= {"launch_ns": whole[:, 0].copy(), "span_ns": whole[:, 1].copy()}
    if arrived.shape[1]:
        fields |= {"arrived_ns": arrived, "left_ns": left}
    if header.iterations:
        fields |= {"iteration": iteration[:, 0].copy()}
    return fields


def _samples(values: array[int]) -> NDArray[np.int64]:
    return np.frombuffer(values, np.int64) if values else np.zeros(0, np.int64)
