"""The file that a run in progress appends to, so that a killed run keeps what it measured.

Layout: one line of text that names the format, the length of a JSON header as a decimal line, the
header (layers, settings, environment), then records of little-endian 64-bit integers:

    kind, start_ns, wall_ns [, times of the trial | number of BLAS threads], kind

The times of a profiled trial are the self time of every layer, then the framework time of every
phase. On a GPU there follow the host's time in every layer, the gap before every layer, the time
until all was launched, and the time on the device. A held trial has the self time of every layer,
and the time on the device in place of its wall time.

A zero where a kind should stand is reserved space, and ends the file; so does anything else that
is no kind, and a record that was not written whole, which does not end with its kind.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import mmap
import os
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from struct import Struct
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from chainer_profile.basics.errors import ProfileError
from chainer_profile.record.recording import (
    VERSION,
    Conditions,
    Environment,
    Layer,
    LinkCalls,
    Recording,
    Settings,
)
from chainer_profile.record.versioned import build, check_version

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

#: Held trials of a run on a device.
HELD_TRIALS = 20

_MAGIC = b"chainer-profile journal\n"
_RESERVE_NBYTES = 1 << 24
_SLACK_NBYTES = 1 << 14
_WINDOW_NBYTES = 1 << 20
_HEAD = Struct("<qqq")
_WORD = Struct("<q")

# Reads up to so many bytes from a place in a journal.
_Read = Callable[[int, int], bytes]


class Kind(IntEnum):
    """What a trial was."""

    WARMUP = 1
    CLEAN = 2
    PROFILED = 3
    PROBE = 4
    HELD = 5


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

    @property
    def n_times(self) -> int:
        """Number of times of a profiled trial."""
        n_layers, n_phases = len(self.layers), len(self.phases)
        return n_layers + n_phases + (2 * n_layers + 2 if self.on_device else 0)


@dataclass
class Journal:
    """Appends trials to a file, or keeps them in memory where there is no file.

    The end of the file is mapped into memory, so that a trial belongs to the operating system as
    soon as it is added, without a system call: a process that is killed loses none. Disk space is
    taken ahead, for the whole run or 16 MiB at a time, so that a disk which fills up later costs
    nothing.

    Attributes:
        file: An empty binary file, open for reading and writing; None keeps everything in memory.
    """

    file: BinaryIO | None = None
    _header: _Header = _Header()
    _body_start: int = 0
    # What could not be written; everything where there is no file.
    _pending: bytearray = field(default_factory=bytearray)
    _end: int = 0
    _expected: int = 0
    _reserved: int = 0
    _window: mmap.mmap | None = None
    _window_start: int = 0
    _window_end: int = 0

    def begin(
        self,
        layers: tuple[Layer, ...],
        settings: Settings,
        environment: Environment,
        *,
        phases: tuple[str, ...] = (),
        links: tuple[LinkCalls, ...] = (),
        on_device: bool = False,
    ) -> None:
        """Write the header, and take the space that the settings' trials will need.

        The arguments are those of a :class:`~.recording.Recording`, and whether its
        times are a device's.

        Raises:
            JournalError: The file cannot be written, or the disk has too little space.
        """
        self._header = _Header(layers, phases, links, settings, environment, on_device)
        text = json.dumps({"version": VERSION} | dataclasses.asdict(self._header)).encode()
        head = _MAGIC + b"%d\n" % len(text) + text
        self._body_start = len(head)
        plain = settings.clean_trials + settings.warmups
        words = settings.trials * (4 + self._header.n_times) + 4 * plain
        if on_device:
            words += HELD_TRIALS * (4 + len(layers))
        self._expected = self._body_start + 8 * words + _SLACK_NBYTES
        self._append(head)

    def add(self, kind: Kind, start_ns: int, wall_ns: int, more: bytes = b"") -> None:
        """Append one trial.

        Args:
            kind: What the trial was.
            start_ns: Its start on the run's clock.
            wall_ns: Its wall time.
            more: The middle of the record: 64-bit integers.

        Raises:
            JournalError: The disk is full. The record is kept, in memory.
        """
        self._append(_HEAD.pack(kind, start_ns, wall_ns) + more + _WORD.pack(kind))

    def close(self) -> None:
        """Let go of the file, but for reading; the file itself stays open."""
        if self._window is not None:
            self._window.close()
        self._window, self._window_end = None, 0

    def _append(self, record: bytes) -> None:
        end = self._end + len(record)
        if self.file is None or self._pending:
            self._pending += record
        elif end <= self._window_end:
            assert self._window is not None
            self._window[self._end - self._window_start : end - self._window_start] = record
            self._end = end
        else:
            try:
                self._move_window(end)
            except OSError as error:
                self._pending += record
                raise JournalError(error.strerror) from error
            self._append(record)

    def _move_window(self, end: int) -> None:
        """Map the part of the file that reaches from the last record to beyond this place."""
        assert self.file is not None
        self._reserve(end)
        start = self._end // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
        size = max(end - start, min(_WINDOW_NBYTES, self._reserved - start))
        window = mmap.mmap(self.file.fileno(), size, offset=start)
        self.close()
        self._window, self._window_start, self._window_end = window, start, start + size

    def _reserve(self, end: int) -> None:
        """Take disk space up to this place and ahead of it, for what the run is expected to need.

        Without it, writing into a mapped file on a full disk would end the process.
        """
        assert self.file is not None
        if end <= self._reserved:
            return
        size = max(end + _SLACK_NBYTES, min(self._expected, self._reserved + _RESERVE_NBYTES))
        try:
            os.posix_fallocate(self.file.fileno(), 0, size)
        except (AttributeError, OSError) as error:
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise
            # Not every system can: space that was written is taken as well.
            at = self._reserved
            while at < size:
                at += os.pwrite(self.file.fileno(), bytes(min(size - at, _WINDOW_NBYTES)), at)
        self._reserved = size

    def recording(self, conditions: Conditions, ended: str) -> Recording:
        """All trials so far as a recording."""

        def read(at: int, size: int) -> bytes:
            written = b""
            if self.file is not None and at < self._end:
                written = os.pread(self.file.fileno(), min(size, self._end - at), at)
            begin = at + len(written) - self._end
            return written + bytes(self._pending[begin : begin + size - len(written)])

        return _assemble(read, self._body_start, self._header, conditions, ended)


def recover(path: Path) -> Recording:
    """The recording of a run that was killed, from its journal.

    Raises:
        ProfileError: The file is not a journal, is damaged, or is from a newer version.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read ({error.strerror})") from None
    if not content.startswith(_MAGIC):
        raise ProfileError(f"{path}: is no chainer-profile journal")
    try:
        at = content.index(b"\n", len(_MAGIC)) + 1
        body_start = at + int(content[len(_MAGIC) : at])
        text = json.loads(content[at:body_start])
        check_version(path, text["version"], VERSION)
        header = _Header(
            tuple(build(Layer, layer) for layer in text["layers"]),
            tuple(text.get("phases", ())),
            tuple(build(LinkCalls, link) for link in text.get("links", ())),
            build(Settings, text["settings"]),
            build(Environment, text["environment"]),
            bool(text.get("on_device", False)),
        )
        return _assemble(
            lambda at, size: content[at : at + size],
            body_start,
            header,
            Conditions(),
            "killed before its end",
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ProfileError(f"{path}: damaged: its header or its samples are not readable") from None


def _assemble(
    read: _Read, body_start: int, header: _Header, conditions: Conditions, ended: str
) -> Recording:
    """Sort a journal's records by kind. One copy of the samples is held, no more."""
    n_layers, n_phases, n_times = len(header.layers), len(header.phases), header.n_times
    n_words = {Kind.PROFILED: n_times, Kind.PROBE: 1, Kind.HELD: n_layers}
    starts = {kind: array("q") for kind in Kind}
    walls = {kind: array("q") for kind in Kind}
    more = {kind: array("q") for kind in Kind}
    at = body_start
    while len(head := read(at, _HEAD.size)) == _HEAD.size:
        word, start_ns, wall_ns = _HEAD.unpack(head)
        if word not in list(Kind):
            break
        kind = Kind(word)
        rest = read(at + _HEAD.size, 8 * n_words.get(kind, 0) + 8)
        if len(rest) != 8 * n_words.get(kind, 0) + 8 or _WORD.unpack(rest[-8:])[0] != kind:
            break
        starts[kind].append(start_ns)
        walls[kind].append(wall_ns)
        more[kind].frombytes(rest[:-8])
        at += _HEAD.size + len(rest)

    def samples(values: array[int]) -> NDArray[np.int64]:
        return np.frombuffer(values, np.int64) if values else np.zeros(0, np.int64)

    times = samples(more[Kind.PROFILED]).reshape(len(walls[Kind.PROFILED]), n_times)
    own, framework, host, gaps, whole = np.split(
        times,
        np.cumsum([n_layers, n_phases, *((n_layers, n_layers) if header.on_device else (0, 0))]),
        axis=1,
    )
    on_device: dict[str, Any] = {}
    if header.on_device:
        on_device = {"host_ns": host, "gap_ns": gaps}
        on_device |= {"launch_ns": whole[:, 0].copy(), "span_ns": whole[:, 1].copy()}
    if walls[Kind.HELD]:
        held = samples(more[Kind.HELD]).reshape(len(walls[Kind.HELD]), n_layers)
        on_device |= {"held_ns": held, "held_span_ns": samples(walls[Kind.HELD])}
    return Recording(
        layers=header.layers,
        self_ns=own,
        phases=header.phases,
        framework_ns=framework if header.phases else None,
        **on_device,
        links=header.links,
        trial_ns=samples(walls[Kind.PROFILED]),
        start_ns=samples(starts[Kind.PROFILED]),
        clean_ns=samples(walls[Kind.CLEAN]),
        clean_start_ns=samples(starts[Kind.CLEAN]),
        warmup_ns=samples(walls[Kind.WARMUP]),
        probe_ns=samples(walls[Kind.PROBE]),
        probe_threads=samples(more[Kind.PROBE]),
        settings=header.settings,
        environment=header.environment,
        conditions=conditions,
        ended=ended,
    )
