"""The file that a run in progress appends to, so that a killed run keeps what it measured.

Behind a line of text that names the format stand MessagePack values, each behind its length in
eight bytes: a :class:`Header`, then each :class:`Trial`, and :class:`Rows` as they are found. What
is not whole ends the file.
"""

from __future__ import annotations

import errno
import io
import os
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import IO, Any, BinaryIO

import msgspec
import numpy as np
from numpy.typing import NDArray

from chainer_profile.basics.errors import ProfileError
from chainer_profile.basics.words import COMMUNICATION
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
from chainer_profile.record.versioned import check_version

#: ``Recording.ended`` of a run whose journal alone is left.
KILLED = "killed before its end"
#: Held trials of a run on a device.
HELD_TRIALS = 20
#: Kinds of trials.
PROFILED, CLEAN, WARMUP, PROBE, HELD = "profiled", "clean", "warm-up", "probe", "held"

_MAGIC = b"chainer-profile journal 2\n"
_OLD_MAGIC = b"chainer-profile journal\n"
_LENGTH_NBYTES = 8
_CHUNK_NBYTES = 1 << 20


class JournalError(Exception):
    """The journal could not be written; its records are kept in memory."""


class Header(msgspec.Struct, frozen=True, tag="header"):
    """What a journal begins with."""

    settings: Settings
    environment: Environment
    #: Whether times are a device's.
    on_device: bool = False
    #: Whether profiled trials have the number of the training's iteration.
    iterations: bool = False
    rank: Rank | None = None
    version: int = VERSION


class Rows(msgspec.Struct, frozen=True, tag="rows"):
    """What was found of rows since the last time, with all links and the settings as they are now.

    Told anew, rows are by link, and replace those of single calls; so do those of earlier trials.
    """

    layers: tuple[Layer, ...] = ()
    phases: tuple[str, ...] = ()
    links: tuple[LinkCalls, ...] = ()
    settings: Settings = msgspec.field(default_factory=Settings)
    anew: bool = False


class Trial(msgspec.Struct, frozen=True, tag="trial", gc=False):
    """One trial.

    Its samples are 64-bit integers, little-endian, by the names that a recording has for them. A
    profiled one has those of the rows and phases that were told before, and ``calls`` where rows
    are by link. A held one has its time on the device for its wall time.
    """

    kind: str
    start_ns: int
    wall_ns: int
    samples: dict[str, bytes] = {}


Record = Header | Rows | Trial
_RECORDS: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Record)
_ENCODER = msgspec.msgpack.Encoder()


class _Version(msgspec.Struct):
    version: int = 0


def _identity(fd: int) -> tuple[int, int] | None:
    """What tells an open file from all others; None where the descriptor is closed."""
    try:
        found = os.fstat(fd)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _encoded(records: Iterable[Record]) -> bytes:
    parts: list[bytes] = []
    for record in records:
        text = _ENCODER.encode(record)
        parts += len(text).to_bytes(_LENGTH_NBYTES, "little"), text
    return b"".join(parts)


@dataclass
class Journal:
    """Appends to an empty binary file, or keeps all in memory where there is none.

    What was written belongs to the operating system: a process that is killed loses none of it.
    Once a write was cut short the file is left as it is, and what follows is kept in memory:
    whatever adds something raises JournalError then, and keeps it.
    """

    file: BinaryIO | None = None
    # Where the next record goes in the file.
    _end: int = 0
    _full: bool = False
    # The records that are not in the file.
    _kept: bytearray = field(default_factory=bytearray)

    def __post_init__(self) -> None:
        self._identity = None if self.file is None else _identity(self.file.fileno())

    def add(self, *records: Record) -> None:
        """Append records at once; a header comes first."""
        content = _encoded(records)
        try:
            if self.file is not None and not self._full:
                self._write((b"" if self._end else _MAGIC) + content)
        finally:
            if self.file is None or self._full:
                self._kept += content

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
        return _Assembly(self._records()).recording(conditions, ended)

    def _records(self) -> Iterator[Record]:
        if self.file is not None and self._end:
            fd = self.file.fileno()
            ours = _identity(fd) == self._identity
            place = fd if ours else self.file.name
            with io.open(place, "rb", _CHUNK_NBYTES, closefd=not ours) as stream:  # noqa: UP020
                stream.seek(len(_MAGIC))
                yield from _decoded(stream, self._end - len(_MAGIC))
        yield from _decoded(BytesIO(self._kept), len(self._kept))


def _decoded(stream: IO[bytes], left: int) -> Iterator[Record]:
    """The records of a stream of so many bytes; what is none, or is not whole, ends it."""
    while left >= _LENGTH_NBYTES:
        length = int.from_bytes(stream.read(_LENGTH_NBYTES), "little")
        left -= _LENGTH_NBYTES + length
        if left < 0:
            return
        try:
            yield _RECORDS.decode(stream.read(length))
        except (msgspec.MsgspecError, RecursionError):
            return


def recover(path: Path) -> Recording:
    """The recording of a run that was killed; without trials if it was killed before the first."""
    try:
        with path.open("rb") as stream:
            return _recovered(path, stream, path.stat().st_size)
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read ({error.strerror})") from None
    except (msgspec.MsgspecError, ArithmeticError, LookupError, ValueError, RecursionError):
        raise ProfileError(f"{path} is damaged: its header or its samples cannot be read") from None


def _recovered(path: Path, stream: BinaryIO, size: int) -> Recording:
    magic = stream.read(len(_MAGIC))
    if magic.startswith(_OLD_MAGIC):
        raise ProfileError(f"{path} is of an older version of this program: read it with that one")
    if magic != _MAGIC[: len(magic)]:
        raise ProfileError(f"{path} is not a chainer-profile journal")
    begin, left = stream.tell(), size - len(_MAGIC)
    length = int.from_bytes(stream.read(_LENGTH_NBYTES), "little")
    if _LENGTH_NBYTES + length <= left:
        text = stream.read(length)
        # Of a newer version the rest may be of other types.
        check_version(path, msgspec.msgpack.decode(text, type=_Version).version, VERSION)
        if not isinstance(_RECORDS.decode(text), Header):
            raise ValueError("it has no header")
    stream.seek(begin)
    return _Assembly(_decoded(stream, left)).recording(Conditions(), KILLED)


class _Samples:
    """The samples of one name, of one trial after the other."""

    def __init__(self, table: NDArray[np.int64] | None = None) -> None:
        self._content = bytearray()
        # Consecutive trials with as many samples: the first, the one behind the last, how many.
        self._runs: list[tuple[int, int, int]] = []
        if table is not None:
            self._content += table.astype("<i8", copy=False).tobytes()
            self._runs.append((0, *table.shape))

    def add(self, trial: int, values: bytes) -> None:
        width, rest = divmod(len(values), 8)
        if rest:
            raise ValueError("samples are no 64-bit integers")
        begin = trial
        if self._runs and self._runs[-1][1:] == (trial, width):
            begin = self._runs.pop()[0]
        self._runs.append((begin, trial + 1, width))
        self._content += values

    def table(self, n_trials: int, width: int) -> NDArray[np.int64]:
        """Samples, (trials, width), with zeros for what a trial did not know yet."""
        values = np.frombuffer(self._content, "<i8")
        if self._runs == [(0, n_trials, width)]:
            return values.reshape(n_trials, width)  # no copy
        table, at = np.zeros((n_trials, width), np.int64), 0
        for begin, end, own in self._runs:
            if own > width:
                raise ValueError(f"trial {begin} has {own} samples, not {width}")
            size = (end - begin) * own
            table[begin:end, :own] = values[at : at + size].reshape(end - begin, own)
            at += size
        return table

    def numbers(self) -> NDArray[np.int64]:
        """One number of each trial that has it."""
        if any(width != 1 for *_, width in self._runs):
            raise ValueError("a trial has more or fewer numbers than one")
        return np.frombuffer(self._content, "<i8")


class _Trials:
    """The trials of one kind. One copy of their samples is held."""

    def __init__(self) -> None:
        self.starts, self.walls = array("q"), array("q")
        self.samples: defaultdict[str, _Samples] = defaultdict(_Samples)

    def __len__(self) -> int:
        return len(self.walls)

    def add(self, trial: Trial) -> None:
        for name, values in trial.samples.items():
            self.samples[name].add(len(self), values)
        self.starts.append(trial.start_ns)
        self.walls.append(trial.wall_ns)

    def take(self, name: str, width: int) -> NDArray[np.int64]:
        """The samples of a name, (trials, width), which are held no longer."""
        return self.samples.pop(name, _Samples()).table(len(self), width)


class _Assembly:
    """The records of a journal, sorted by kind."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._header = Header(Settings(), Environment())
        self._rows: Rows | None = None
        self._trials = {kind: _Trials() for kind in (PROFILED, CLEAN, WARMUP, PROBE, HELD)}
        for record in records:
            if isinstance(record, Header):
                self._header = record
            elif isinstance(record, Trial):
                self._trials[record.kind].add(record)
            else:
                self._tell(record)

    def _tell(self, rows: Rows) -> None:
        before = self._rows
        if before is None:
            self._rows = rows
        elif rows.anew:
            _sum_by_link(self._trials[PROFILED], before.layers, rows.layers)
            self._trials[HELD] = _Trials()
            self._rows = rows
        else:
            layers, phases = before.layers + rows.layers, before.phases + rows.phases
            self._rows = Rows(layers, phases, rows.links or before.links, rows.settings)

    def recording(self, conditions: Conditions, ended: str) -> Recording:
        """The recording, which takes the samples: the assembly has them no longer."""
        header, profiled, held = self._header, self._trials[PROFILED], self._trials[HELD]
        clean, probes = self._trials[CLEAN], self._trials[PROBE]
        rows = self._rows or Rows(settings=header.settings)
        layers = rows.layers
        samples: dict[str, Any] = {
            name: profiled.take(name, width) for name, width in self._widths(rows)
        }
        if "calls" in samples:
            layers = tuple(map(_with_mean_calls, layers, samples["calls"].T))
        numbers = ("launch_ns", "span_ns") * header.on_device + ("iteration",) * header.iterations
        samples |= {name: profiled.samples[name].numbers() for name in numbers}
        if len(held):
            samples["held_ns"] = held.take("self_ns", len(layers))
            samples["held_span_ns"] = np.array(held.walls)
        return Recording(
            layers=layers,
            phases=rows.phases,
            links=rows.links,
            settings=rows.settings,
            **samples,
            trial_ns=np.array(profiled.walls),
            start_ns=np.array(profiled.starts),
            clean_ns=np.array(clean.walls),
            clean_start_ns=np.array(clean.starts),
            clean_cpu_ns=clean.samples["cpu_ns"].numbers() if "cpu_ns" in clean.samples else None,
            warmup_ns=np.array(self._trials[WARMUP].walls),
            probe_ns=np.array(probes.walls),
            probe_threads=probes.samples["threads"].numbers(),
            environment=header.environment,
            rank=header.rank,
            conditions=conditions,
            ended=ended,
        )

    def _widths(self, rows: Rows) -> Iterator[tuple[str, int]]:
        n_rows, n_moves = len(rows.layers), n_collectives(rows.layers)
        yield "self_ns", n_rows
        if "calls" in self._trials[PROFILED].samples:
            yield "calls", n_rows
        if rows.phases:
            yield "framework_ns", len(rows.phases)
        if n_moves:
            yield from (("arrived_ns", n_moves), ("left_ns", n_moves))
        if self._header.on_device:
            yield from (("host_ns", n_rows), ("gap_ns", n_rows))


def _sum_by_link(trials: _Trials, before: Sequence[Layer], layers: Sequence[Layer]) -> None:
    """Give trials whose rows were single calls rows by link."""
    calls = np.array([int(row.calls) for row in before], np.int64)
    trials.samples["calls"] = _Samples(np.tile(calls, (len(trials), 1)))
    numbers = {(row.path, row.function, row.phase): at for at, row in enumerate(layers)}
    places = [numbers[row.path, row.function, row.phase] for row in before]
    moves = [at for at, row in enumerate(layers) if row.phase == COMMUNICATION]
    of_moves = [moves.index(at) for at in places if at in moves]
    # A collective was entered when its first call was, and left when its last was.
    combined = {
        **dict.fromkeys(("self_ns", "calls", "host_ns", "gap_ns"), (np.add, places, len(layers))),
        "arrived_ns": (np.minimum, of_moves, len(moves)),
        "left_ns": (np.maximum, of_moves, len(moves)),
    }
    for name in combined.keys() & trials.samples.keys():
        combine, of, width = combined[name]
        single = trials.take(name, len(of))
        table = np.zeros((len(trials), width), np.int64)
        for row in set(of):
            table[:, row] = combine.reduce(single[:, np.equal(of, row)], axis=1)
        trials.samples[name] = _Samples(table)


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
