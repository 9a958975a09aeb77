"""The file to which a run appends its trials, so that a killed run loses none.

The first line names the format. Records follow: a :class:`Header`, a :class:`Trial` for every
trial, and :class:`Rows` when new rows appear. Each record is a MessagePack value in a frame with a
checksum (:mod:`.frames`). A reader skips damaged records, and records that depend on them.
"""

from __future__ import annotations

import errno
import io
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import IO, Any, BinaryIO

import msgspec
import numpy as np
from numpy.typing import NDArray

from chainer_profile.basics.errors import ProfileError
from chainer_profile.basics.files import file_identity, open_regular, write_at
from chainer_profile.basics.units import plural
from chainer_profile.basics.words import COMMUNICATION
from chainer_profile.record.frames import FrameReader, framed, whole_nbytes
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

#: Beginning of ``Recording.ended`` for a run that left only a journal.
KILLED = "killed before its end"
#: Kinds of trials.
PROFILED, CLEAN, WARMUP, PROBE, HELD = "profiled", "clean", "warm-up", "probe", "held"

_NAME = b"chainer-profile journal"
_MAGIC = _NAME + b" 3\n"
_OLD_MAGICS = (_NAME + b"\n", _NAME + b" 2\n")
_CHUNK_NBYTES = 1 << 20


class JournalError(Exception):
    """A record could not be written to the file; the journal keeps it in memory."""


class Header(msgspec.Struct, frozen=True, tag="header"):
    """The first record of a journal."""

    settings: Settings
    environment: Environment
    on_device: bool = False  #: Whether a device measured the times.
    iterations: bool = False  #: Whether profiled trials have the number of an iteration.
    rank: Rank | None = None
    version: int = VERSION


class Rows(msgspec.Struct, frozen=True, tag="rows"):
    """Rows and phases that appeared since the last such record, and current links and settings.

    If ``anew``, these rows are by link. They replace the rows of single calls, also in earlier
    trials.
    """

    layers: tuple[Layer, ...] = ()
    phases: tuple[str, ...] = ()
    links: tuple[LinkCalls, ...] = ()
    settings: Settings = msgspec.field(default_factory=Settings)
    anew: bool = False


class Trial(msgspec.Struct, frozen=True, tag="trial", gc=False):
    """A trial. Samples are little-endian 64-bit integers, by their names in a recording.

    A profiled trial has samples for the rows and phases written before it, and ``calls`` if rows
    are by link. The wall time of a held trial is its time on the device.
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


class Journal:
    """Appends records to an empty binary file; without a file it keeps them in memory.

    The operating system has all written records, so a killed process loses none. A record
    that cannot be written stays in memory; every later :meth:`add` tries to write it again.

    Args:
        file: An empty file that can be read and written.
        explain: Makes the message of a :class:`JournalError` from the system's reason. Default: the
            file's name and the reason.
    """

    def __init__(
        self, file: BinaryIO | None = None, explain: Callable[[str], str] | None = None
    ) -> None:
        self.file = file
        self._explain = explain
        self._end = 0  # position of the next record in the file
        self._pending = bytearray()  # records that are not in the file yet
        self._section = 0  # number of Rows records so far
        self._fails = False
        self._identity = None if file is None else file_identity(file.fileno())

    def add(self, *records: Record) -> None:
        """Append records in one write; the first record of all is a header.

        Raises:
            JournalError: Some records could not be written; the file has the records that fit.
                Later calls raise it again only after a successful write.
        """
        for record in records:
            self._section += isinstance(record, Rows)
            self._pending += framed(_ENCODER.encode(record), self._section)
        if self.file is None:
            return
        error = self._write(self.file.fileno())
        has_failed, self._fails = self._fails, error is not None
        if error is not None and not has_failed:
            reason = error.strerror or type(error).__name__
            text = self._explain(reason) if self._explain else f"{self.file.name}: {reason}"
            raise JournalError(text) from error

    def _write(self, fd: int) -> OSError | None:
        """Write as many pending records as fit; return the error, if any."""
        # A program may close all descriptors and then open its own file by this number.
        if file_identity(fd) != self._identity:
            return OSError(
                errno.EBADF, "its file was closed, and another file now has its descriptor"
            )
        if not self._end:
            done, error = write_at(fd, 0, _MAGIC)
            if error is not None:
                return error
            self._end = done
        error = self._write_pending(fd, len(self._pending))
        # Some file systems write nothing of a block that does not fit.
        while error is not None and (nbytes := whole_nbytes(self._pending, max_records=1)):
            if self._write_pending(fd, nbytes) is not None:
                return error
        return None

    def _write_pending(self, fd: int, nbytes: int) -> OSError | None:
        """Write the first bytes of the pending records; remove the records that are written."""
        with memoryview(self._pending)[:nbytes] as content:
            done, error = write_at(fd, self._end, content)
        whole = done if error is None else whole_nbytes(self._pending, max_nbytes=done)
        del self._pending[:whole]
        self._end += whole
        return error

    def recording(self, conditions: Conditions, ended: str) -> Recording:
        """Make a recording of all trials so far."""
        reader = _Reader()
        return _recording(self._records(reader), conditions, lambda: reader.note(ended))

    def _records(self, reader: _Reader) -> Iterator[Record]:
        if self.file is not None and self._end:
            fd = self.file.fileno()
            ours = file_identity(fd) == self._identity
            source = fd if ours else self.file.name
            with io.open(source, "rb", _CHUNK_NBYTES, closefd=not ours) as stream:  # noqa: UP020
                stream.seek(len(_MAGIC))
                yield from reader.read(stream, self._end - len(_MAGIC))
        yield from reader.read(BytesIO(self._pending), len(self._pending))


class _Reader:
    """Decodes the records of a journal, and counts the bytes that it skips."""

    def __init__(self) -> None:
        self._section = 0
        self.left_out_nbytes = 0

    def read(self, stream: IO[bytes], nbytes: int) -> Iterator[Record]:
        """Yield the records in the next bytes, except damaged ones and trials of lost rows."""
        frames = FrameReader(stream, nbytes)
        for section, content in frames:
            record = None if section > self._section + 1 else _RECORDS.decode(content)
            if section != self._section + isinstance(record, Rows):
                self.left_out_nbytes += len(content)
            elif record is not None:
                self._section = section
                yield record
        self.left_out_nbytes += frames.damaged_nbytes

    def note(self, ended: str) -> str:
        """Add the number of lost bytes to the description of how a run ended."""
        if not self.left_out_nbytes:
            return ended
        lost = plural(self.left_out_nbytes, "byte")
        return f"{ended}; {lost} of its journal are damaged or cut off"


def recover(path: Path) -> Recording:
    """Read the recording of a killed run; it may have no trials.

    ``Recording.ended`` has the number of bytes that were damaged or cut off.
    """
    try:
        with open_regular(path) as stream:
            return _recovered(path, stream, path.stat().st_size)
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read ({error.strerror})") from None
    except (msgspec.MsgspecError, ArithmeticError, LookupError, ValueError, RecursionError):
        raise ProfileError(f"{path} is damaged: its header or its samples cannot be read") from None


def _recovered(path: Path, stream: BinaryIO, size: int) -> Recording:
    magic = stream.read(len(_MAGIC))
    if magic.startswith(_OLD_MAGICS):
        raise ProfileError(f"{path} was written by an older version of this program: use that one")
    if magic != _MAGIC[: len(magic)]:
        raise ProfileError(f"{path} is not a chainer-profile journal")
    nbytes = size - len(magic)
    for _, content in FrameReader(stream, nbytes):
        # A newer version may have other types.
        check_version(path, msgspec.msgpack.decode(content, type=_Version).version, VERSION)
        if not isinstance(_RECORDS.decode(content), Header):
            raise ValueError("it has no header")
        break
    stream.seek(len(magic))
    reader = _Reader()
    return _recording(reader.read(stream, nbytes), Conditions(), lambda: reader.note(KILLED))


class _Trials:
    """All trials of one kind."""

    def __init__(self) -> None:
        self.starts, self.walls = array("q"), array("q")
        self.samples: defaultdict[str, list[bytes]] = defaultdict(list)

    def __len__(self) -> int:
        return len(self.walls)

    def add(self, trial: Trial) -> None:
        for name, values in trial.samples.items():
            if len(values) % 8:
                raise ValueError("samples are not 64-bit integers")
            samples = self.samples[name]
            samples += [b""] * (len(self) - len(samples))  # trials without this name
            samples.append(values)
        self.starts.append(trial.start_ns)
        self.walls.append(trial.wall_ns)

    def take(self, name: str, width: int) -> NDArray[np.int64]:
        """Remove and return samples by name, (trials, width); 0 for rows that appeared later."""
        values = self.samples.pop(name, [])
        values += [b""] * (len(self) - len(values))
        if max(map(len, values), default=0) > 8 * width:
            raise ValueError(f"a trial has more than {width} samples of {name}")
        content = bytearray().join(each.ljust(8 * width, b"\0") for each in values)
        return np.frombuffer(content, "<i8").reshape(len(values), width)

    def numbers(self, name: str) -> NDArray[np.int64]:
        """Read one number per trial, for the trials that have it."""
        values = self.samples[name]
        if not {0, 8}.issuperset(map(len, values)):
            raise ValueError("a trial has several numbers but can have only one")
        return np.frombuffer(bytearray().join(values), "<i8")


def _recording(
    records: Iterable[Record], conditions: Conditions, ended: Callable[[], str]
) -> Recording:
    """Make a recording of a journal's records; ``ended`` is called after reading them."""
    header, rows = Header(Settings(), Environment()), None
    trials = {kind: _Trials() for kind in (PROFILED, CLEAN, WARMUP, PROBE, HELD)}
    for record in records:
        if isinstance(record, Header):
            header = record
        elif isinstance(record, Trial):
            trials[record.kind].add(record)
        elif rows is None:
            rows = record
        elif record.anew:
            _sum_by_link(trials[PROFILED], rows.layers, record.layers)
            trials[HELD] = _Trials()
            rows = record
        else:
            layers, phases = rows.layers + record.layers, rows.phases + record.phases
            rows = Rows(layers, phases, record.links or rows.links, record.settings)
    rows = rows or Rows(settings=header.settings)
    profiled, held, clean = trials[PROFILED], trials[HELD], trials[CLEAN]
    layers, n_layers, n_moves = rows.layers, len(rows.layers), n_collectives(rows.layers)
    widths = {"self_ns": n_layers}
    widths |= {"calls": n_layers} if "calls" in profiled.samples else {}
    widths |= {"framework_ns": len(rows.phases)} if rows.phases else {}
    widths |= {"arrived_ns": n_moves, "left_ns": n_moves} if n_moves else {}
    widths |= {"host_ns": n_layers, "gap_ns": n_layers} if header.on_device else {}
    samples: dict[str, Any] = {name: profiled.take(name, n) for name, n in widths.items()}
    if "calls" in samples:
        layers = tuple(map(_with_mean_calls, layers, samples["calls"].T))
    numbers = ("launch_ns", "span_ns") * header.on_device + ("iteration",) * header.iterations
    samples |= {name: profiled.numbers(name) for name in numbers}
    if len(held):
        samples |= {"held_ns": held.take("self_ns", n_layers), "held_span_ns": np.array(held.walls)}
    if "cpu_ns" in clean.samples:
        samples["clean_cpu_ns"] = clean.numbers("cpu_ns")
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
        warmup_ns=np.array(trials[WARMUP].walls),
        probe_ns=np.array(trials[PROBE].walls),
        probe_threads=trials[PROBE].numbers("threads"),
        environment=header.environment,
        rank=header.rank,
        conditions=conditions,
        ended=ended(),
    )


def _sum_by_link(trials: _Trials, before: Sequence[Layer], layers: Sequence[Layer]) -> None:
    """Convert samples of single calls to samples of rows by link."""
    calls = np.array([int(row.calls) for row in before], "<i8")
    trials.samples["calls"] = [calls.tobytes()] * len(trials)
    numbers = {(row.path, row.function, row.phase): at for at, row in enumerate(layers)}
    rows = [numbers[row.path, row.function, row.phase] for row in before]
    collectives = [at for at, row in enumerate(layers) if row.phase == COMMUNICATION]
    collective_rows = [collectives.index(at) for at in rows if at in collectives]
    # A row of collectives begins with its first call and ends with its last.
    combined = {
        **dict.fromkeys(("self_ns", "calls", "host_ns", "gap_ns"), (np.add, rows, len(layers))),
        "arrived_ns": (np.minimum, collective_rows, len(collectives)),
        "left_ns": (np.maximum, collective_rows, len(collectives)),
    }
    for name in combined.keys() & trials.samples.keys():
        combine, targets, width = combined[name]
        single = trials.take(name, len(targets))
        table = np.zeros((len(trials), width), "<i8")
        for row in set(targets):
            table[:, row] = combine.reduce(single[:, np.equal(targets, row)], axis=1)
        trials.samples[name] = [row.tobytes() for row in table]


def _with_mean_calls(layer: Layer, calls: NDArray[np.int64]) -> Layer:
    """Replace a row's calls and work by means over the iterations."""
    mean = float(calls.mean()) if calls.any() else 0.0
    if not mean or mean == layer.calls:
        return layer
    work = {
        name: round(value * mean / layer.calls)
        for name in ("flops", "macs", "nbytes_read", "nbytes_written")
        if (value := getattr(layer, name)) is not None
    }
    return replace(layer, calls=mean, work_is_about=layer.work_is_about or bool(work), **work)
