"""The result of measuring: layers, raw samples, settings and environment.

All analysis is a pure function of a :class:`Recording`; it needs neither Chainer nor a GPU.
"""

from __future__ import annotations

import dataclasses
import os
import zipfile
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from io import BytesIO
from json import dumps, loads
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from chainer_profile.basics.arrays import read_array
from chainer_profile.basics.checks import as_path
from chainer_profile.basics.errors import ProfileError, one_line
from chainer_profile.basics.files import open_regular, replacing
from chainer_profile.basics.free_memory import free_nbytes
from chainer_profile.basics.units import format_nbytes
from chainer_profile.basics.views import Displayable
from chainer_profile.basics.words import COMMUNICATION
from chainer_profile.record.checking import check_file
from chainer_profile.record.inside import Inside as Inside
from chainer_profile.record.inside import Stack as Stack
from chainer_profile.record.inside import StackFrame as StackFrame
from chainer_profile.record.parts import BlasLibrary as BlasLibrary
from chainer_profile.record.parts import Calibration as Calibration
from chainer_profile.record.parts import Conditions as Conditions
from chainer_profile.record.parts import Counted as Counted
from chainer_profile.record.parts import Counters as Counters
from chainer_profile.record.parts import Denormals as Denormals
from chainer_profile.record.parts import Environment as Environment
from chainer_profile.record.parts import Gpu as Gpu
from chainer_profile.record.parts import GpuState as GpuState
from chainer_profile.record.parts import Layer as Layer
from chainer_profile.record.parts import LinkCalls as LinkCalls
from chainer_profile.record.parts import MachineLimits as MachineLimits
from chainer_profile.record.parts import MemoryUse as MemoryUse
from chainer_profile.record.parts import PhaseMemory as PhaseMemory
from chainer_profile.record.parts import Rank as Rank
from chainer_profile.record.parts import Settings as Settings
from chainer_profile.record.parts import Shape as Shape
from chainer_profile.record.versioned import build, read_known

FORMAT = "chainer-profile recording"
VERSION = 3

#: Values of ``Recording.ended``: all trials were made, or the run stopped early as requested.
COMPLETE = "complete"
TIME_LIMIT = "time limit reached"
INTERVAL = "wanted interval reached"

Samples = NDArray[np.int64]
_MOVES = f"rows of {COMMUNICATION}"
#: Files that unpack to fewer bytes are unpacked without a look at the memory.
_ALWAYS_UNPACKED = 1 << 28
#: A file that unpacks to more than this multiple of its size has no times of a run.
_MAX_PACKING = 200


def _no_samples() -> Samples:
    return np.zeros(0, np.int64)


def _along(*axes: str) -> dict[str, tuple[str, ...]]:
    """Metadata of a field: the names of the axes of its array."""
    return {"axes": axes}


@dataclass(frozen=True, eq=False, repr=False)
class Recording(Displayable):
    """Everything that one run measured. All times are integer nanoseconds.

    In every trial ``trial_ns = self_ns.sum(axis=1) + framework``. The framework time is the time
    between the rows. For a training step it is divided by phase:
    ``framework = framework_ns.sum(axis=1) + time outside all phases``.

    On a GPU, layers and phases have times of the device, from event to event. Trials have times of
    the host, from the first call until the device is done. A layer's time on the device includes
    waits for the host to launch the next kernel; ``held_ns`` does not. For these times
    ``span_ns = self_ns.sum(axis=1) + gap_ns.sum(axis=1) + time after the last layer``, and
    ``trial_ns = launch_ns + the host's wait for the device at the end``.

    Attributes:
        layers: The rows of one trial, in the order in which they were first entered.
        self_ns: Self time of every layer in every profiled trial, (trials, layers). The time of a
            nested call counts for the inner call only.
        phases: The phases whose framework time is known.
        framework_ns: Framework time of these phases in every profiled trial, (trials, phases).
        calls: Calls of every row in every profiled trial, (trials, layers), if rows are by link and
            function, so that trials may differ; None if every trial makes the same calls and each
            call is a row.
        links: The links of the network, parents before children; empty if they are unknown.
        trial_ns: Wall time of every profiled trial, (trials,); None if only the functions' times
            are known.
        start_ns: Start of every profiled trial on the run's clock, (trials,).
        iteration: Number of each profiled trial's iteration in the training, from 1, (trials,);
            None if it is unknown. Matches the trials of different ranks.
        arrived_ns: Start of the first call of each row of the phase ``communication``, on the clock
            of start_ns, (trials, rows of that phase in their order); None without such rows.
        left_ns: End of the last call of each of these rows, (trials, rows of that phase).
        host_ns: On a GPU, time that the host spent in every layer's call, mostly to launch kernels,
            (trials, layers); nested calls are counted as in self_ns.
        gap_ns: On a GPU, time on the device between the previous layer and this one, (trials,
            layers).
        launch_ns: On a GPU, time until the host had launched all of the trial, (trials,).
        span_ns: On a GPU, time on the device from the trial's first event to its last, (trials,).
        held_ns: Times of layers on the device in held trials, (held trials, layers). In a held
            trial the device begins after the host has launched everything, so it never waits.
            None without held trials.
        held_span_ns: Time of the whole trial on the device, (held trials,).
        clean_ns: Wall time of every trial without hooks, (unprofiled trials,).
        clean_start_ns: Start of every unprofiled trial, on the clock of start_ns.
        clean_cpu_ns: CPU time of all threads of the process in unprofiled trials, (unprofiled
            trials,); on a GPU of the host only. In programs one in seven of the trials under 1 ms
            has it. None if it was not measured.
        warmup_ns: Wall time of every warm-up trial.
        probe_ns: Wall times of trials with another number of BLAS threads, (probes,).
        probe_threads: Number of BLAS threads in each of these trials, (probes,).
        settings: The settings of the run.
        environment: Machine and software.
        conditions: Resolution and overhead of the measurement, speed and load of the machine.
        limits: The machine's measured peak rates; None if they were not measured.
        memory: Result of the memory pass; None without one.
        counters: Result of the counters pass; None without one.
        inside: Result of the pass inside the layers; None without one.
        rank: The rank in a training with ChainerMN; None without it.
        ended: ``complete``, or why the run ended early.
    """

    layers: tuple[Layer, ...]
    self_ns: Samples = field(metadata=_along("trials", "layers"))
    phases: tuple[str, ...] = ()
    framework_ns: Samples | None = field(default=None, metadata=_along("trials", "phases"))
    calls: Samples | None = field(default=None, metadata=_along("trials", "layers"))
    links: tuple[LinkCalls, ...] = ()
    trial_ns: Samples | None = field(default=None, metadata=_along("trials"))
    start_ns: Samples | None = field(default=None, metadata=_along("trials"))
    iteration: Samples | None = field(default=None, metadata=_along("trials"))
    arrived_ns: Samples | None = field(default=None, metadata=_along("trials", _MOVES))
    left_ns: Samples | None = field(default=None, metadata=_along("trials", _MOVES))
    host_ns: Samples | None = field(default=None, metadata=_along("trials", "layers"))
    gap_ns: Samples | None = field(default=None, metadata=_along("trials", "layers"))
    launch_ns: Samples | None = field(default=None, metadata=_along("trials"))
    span_ns: Samples | None = field(default=None, metadata=_along("trials"))
    held_ns: Samples | None = field(default=None, metadata=_along("held trials", "layers"))
    held_span_ns: Samples | None = field(default=None, metadata=_along("held trials"))
    clean_ns: Samples = field(default_factory=_no_samples, metadata=_along("unprofiled trials"))
    clean_start_ns: Samples = field(
        default_factory=_no_samples, metadata=_along("unprofiled trials")
    )
    clean_cpu_ns: Samples | None = field(default=None, metadata=_along("trials with CPU time"))
    warmup_ns: Samples = field(default_factory=_no_samples, metadata=_along("warm-ups"))
    probe_ns: Samples = field(default_factory=_no_samples, metadata=_along("probes"))
    probe_threads: Samples = field(default_factory=_no_samples, metadata=_along("probes"))
    settings: Settings = field(default_factory=Settings)
    environment: Environment = field(default_factory=Environment)
    conditions: Conditions = field(default_factory=Conditions)
    limits: MachineLimits | None = None
    memory: MemoryUse | None = None
    counters: Counters | None = None
    inside: Inside | None = None
    rank: Rank | None = None
    ended: str = COMPLETE

    def __post_init__(self) -> None:
        sizes = {"layers": len(self.layers), "phases": len(self.phases)}
        sizes[_MOVES] = n_collectives(self.layers)
        if self.phases and self.framework_ns is None:
            raise ValueError(f"framework_ns is not there, for phases {self.phases}")
        for name, axes in _AXES.items():
            samples = getattr(self, name)
            if samples is None:
                continue
            if samples.dtype != np.int64:
                raise ValueError(f"{name} is {samples.dtype}, not int64 nanoseconds")
            if samples.ndim != len(axes):
                count = "two" if len(axes) == 2 else "one"
                raise ValueError(f"{name} has {samples.ndim} axes, not {count}")
            for length, axis in zip(samples.shape, axes, strict=True):
                if length != sizes.setdefault(axis, length):
                    raise ValueError(f"{name} is {samples.shape}, for {sizes[axis]} {axis}")
        for together in _TOGETHER:
            if len({getattr(self, name) is None for name in together}) > 1:
                raise ValueError(f"{', '.join(together)} must be all there or all absent")
        if self.clean_cpu_ns is not None and len(self.clean_cpu_ns) > len(self.clean_ns):
            raise ValueError("clean_cpu_ns has more trials than clean_ns")

    @property
    def n_trials(self) -> int:
        """Number of profiled trials."""
        return len(self.self_ns)

    @property
    def by_link(self) -> bool:
        """Whether rows are by link and function, so that trials may differ."""
        return self.calls is not None

    @property
    def of_program(self) -> bool:
        """Whether the trials are iterations of a program; it makes no unprofiled trials."""
        return self.by_link and self.iteration is not None

    @property
    def by_means(self) -> bool:
        """Whether rows show means: in programs, and where trials differ."""
        differ = self.calls is not None and bool((self.calls != self.calls[:1]).any())
        return differ or self.of_program

    @property
    def on_device(self) -> bool:
        """Whether the layers' times were measured on a device."""
        return self.host_ns is not None

    def save(self, file: BinaryIO | str | Path) -> None:
        """Write the recording as a compressed .npz file without pickled objects.

        Args:
            file: The path of the file, in a folder that exists; or an open file.

        Raises:
            ProfileError: The recording cannot be from a run, or the file cannot be written. A file
                with this path stays as it was.
        """
        samples = {name: getattr(self, name) for name in _AXES if getattr(self, name) is not None}
        meta = {name: getattr(self, name) for name in _PARTS}
        text = dumps({"format": FORMAT, "version": VERSION, **meta}, default=dataclasses.asdict)
        try:
            check_file(build(Recording, loads(text) | samples))
        except ValueError as error:
            problem = one_line(error)
            raise ProfileError(
                f"the recording cannot be from a run, so it is not written ({problem})"
            ) from None
        arrays: dict[str, Any] = {name: _smallest(values) for name, values in samples.items()}
        arrays["meta"] = np.frombuffer(text.encode(), np.uint8)
        with nullcontext(file) if hasattr(file, "write") else _replacing(file) as opened:
            np.savez_compressed(opened, **arrays)

    @classmethod
    def load(cls, path: str | Path) -> Recording:
        """Read a recording from a file.

        Raises:
            ProfileError: The file is missing, damaged, not a recording, or from a newer version.
        """
        path = as_path("path", path)
        try:
            file = open_regular(path)
        except FileNotFoundError:
            raise ProfileError(f"{path}: no such recording") from None
        except IsADirectoryError:
            raise ProfileError(f"{path} is a folder, not a recording file") from None
        except PermissionError:
            raise ProfileError(f"{path}: may not be read (permission denied)") from None
        except OSError as error:
            raise ProfileError(f"{path}: cannot be read ({error.strerror})") from None
        try:
            with file:
                arrays = _arrays_in(file)
        except Exception as error:  # a damaged archive raises errors of a dozen types
            raise ProfileError(f"{path}: damaged, or not a recording ({one_line(error)})") from None
        if "meta" not in arrays:
            raise ProfileError(f"{path} is not a {FORMAT} (it contains no 'meta')")
        meta = read_known(path, arrays.pop("meta").tobytes(), FORMAT, VERSION)
        try:
            parts = {name: part for name, part in meta.items() if name in _PARTS}
            recording = build(cls, parts | _samples(arrays))
            check_file(recording)
            return recording
        except ValueError as error:
            raise ProfileError(f"{path}: damaged recording ({one_line(error)})") from None


#: The arrays of a recording by their names in its file, and the names of their axes.
_AXES = {
    item.name: item.metadata["axes"]
    for item in dataclasses.fields(Recording)
    if "axes" in item.metadata
}
_PARTS = [item.name for item in dataclasses.fields(Recording) if item.name not in _AXES]
_TOGETHER = (
    ("host_ns", "gap_ns", "launch_ns", "span_ns"),
    ("arrived_ns", "left_ns"),
    ("held_ns", "held_span_ns"),
)


def n_collectives(layers: tuple[Layer, ...]) -> int:
    """Number of rows of the phase ``communication``."""
    return sum(layer.phase == COMMUNICATION for layer in layers)


def _replacing(path: str | Path) -> AbstractContextManager[BinaryIO]:
    """Open a temporary file that takes the place of a recording when it is complete."""
    target = Path(os.path.realpath(as_path("file", path)))  # a link stays
    if target.exists() and not target.is_file():
        raise ProfileError(f"{path}: cannot be written (not a regular file)")
    return replacing(target)


def _arrays_in(file: BinaryIO) -> dict[str, NDArray[Any]]:
    """The arrays of a recording in an .npz file.

    Each is read to its end, which compares its checksum. Other members of the file are only opened,
    which compares their names in the file's directory and in their own headers.
    """
    names = {f"{name}.npy": name for name in (*_AXES, "meta")}
    arrays = {}
    with zipfile.ZipFile(file) as archive:
        sizes = (info.file_size for info in archive.infolist() if info.filename in names)
        _check_sizes(sum(sizes), os.fstat(file.fileno()).st_size)
        for info in archive.infolist():
            with archive.open(info) as member:
                if info.filename in names:
                    arrays[names[info.filename]] = read_array(BytesIO(member.read()))
    return arrays


def _check_sizes(unpacked: int, packed: int) -> None:
    """Raise ValueError for arrays that shrink more than samples do, or would fill the memory."""
    if unpacked <= _ALWAYS_UNPACKED:
        return
    size = format_nbytes(unpacked)
    if unpacked > _MAX_PACKING * packed:
        raise ValueError(f"it unpacks to {size}, {unpacked // packed:,} times its size")
    # Samples of 32 bits become 64 bits while the file's own arrays are still there.
    needed, free = 4 * unpacked, free_nbytes()
    if free is not None and needed > free:
        raise ValueError(
            f"it unpacks to {size}, which needs {format_nbytes(needed)} of memory, but "
            f"{format_nbytes(free)} are free"
        )


def _samples(arrays: dict[str, Any]) -> dict[str, Any]:
    """Convert the arrays of a recording's file to int64; ValueError if one has no integers."""
    ours = {name: samples for name, samples in arrays.items() if name in _AXES}
    for name, samples in ours.items():
        if samples.dtype.kind not in "iu" or not np.can_cast(samples.dtype, np.int64):
            raise ValueError(f"{name} contains {samples.dtype}, not int64 or smaller integers")
    return {name: samples.astype(np.int64) for name, samples in ours.items()}


def _smallest(samples: Samples) -> NDArray[Any]:
    """Convert samples to 32 bits if all of them fit, which halves the file."""
    if samples.size and samples.min() >= 0 and samples.max() < 2**32:
        return samples.astype(np.uint32)
    return samples
