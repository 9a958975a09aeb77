"""What measuring hands over: the layers, the raw samples, the settings and the environment.

Everything after a :class:`Recording` is a pure function of it and needs neither Chainer nor a GPU.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

import numpy as np

from chainer_profile.errors import ProfileError, one_line

if TYPE_CHECKING:
    from numpy.typing import NDArray

FORMAT = "chainer-profile recording"
VERSION = 2

Shape = tuple[int, ...]
T = TypeVar("T")


@dataclass(frozen=True)
class Layer:
    """One function call of a trial: one row of the profile.

    Attributes:
        index: Place in the order of the calls of one trial, from 0.
        path: Path of the link that made the call, as ``namedlinks()`` gives it
            (``/res4/0/conv1``); ``/`` for the network itself.
        function: Chainer's name of the function (``Convolution2DFunction``).
        phase: ``forward``, ``backward``, ``update``, or ``data`` (loading it).
        input_shapes: Shapes of the input arrays, parameters included; in backward of the
            gradients that come in, in update of the parameters.
        output_shapes: Shapes of the output arrays; in backward of the gradients that go out.
        dtype: Data type of the first output.
        parent: Index of the call within which this one was made, if any.
        forward: In backward, index of the call that this goes back through, where it is known.
        calls: Number of calls in a trial that count for this row.
        flops: Floating-point operations of all calls, a multiply-add being two; None without a
            formula (see :mod:`chainer_profile.cost`, which says what is counted).
        macs: Multiply-adds of convolutions and matrix products among them; None likewise.
        nbytes_read: Bytes that the calls must read at least; None likewise.
        nbytes_written: Bytes that they must write at least; None likewise.

    Beside functions there are rows for the other parts of a training step. Their paths have no
    slash: ``loss`` for functions that the loss function calls outside of the network's links,
    ``cleargrads``, ``optimizer`` for its hooks, ``data`` for the loading of data. A row named
    ``gradient_accumulation`` adds up gradients of a variable that several functions use. In update
    a row is named after the optimizer, and holds the parameters of one link.
    """

    index: int
    path: str
    function: str
    phase: str = "forward"
    input_shapes: tuple[Shape, ...] = ()
    output_shapes: tuple[Shape, ...] = ()
    dtype: str = ""
    parent: int | None = None
    forward: int | None = None
    calls: int = 1
    flops: int | None = None
    macs: int | None = None
    nbytes_read: int | None = None
    nbytes_written: int | None = None

    @property
    def label(self) -> str:
        """Index and function name: ``21_Convolution2DFunction``."""
        return f"{self.index}_{self.function}"


@dataclass(frozen=True)
class LinkCalls:
    """One link of the network.

    Attributes:
        path: Its path, as ``namedlinks()`` gives it; ``/`` for the network itself. A link that is
            shared by several goes by its first path.
        kind: Name of its class.
        calls: How often a trial calls it; 0 for a link whose ``forward`` or parameters are used
            without calling it.
        parameters: Number of its own parameters, without those of links below.
    """

    path: str
    kind: str
    calls: int
    parameters: int


@dataclass(frozen=True)
class Settings:
    """What was asked for: the network, its input and the number of trials.

    Attributes:
        model: Name of the network.
        input: What the input was, in words.
        input_shape: Shape of the input array, batch included.
        batchsize: Images per trial.
        device: ``cpu`` or ``gpu:0``.
        phase: What a trial was: ``forward``, ``forward-backward`` or ``train``.
        loss: Name of the loss, where there is one.
        optimizer: Name of the optimizer, where there is one.
        train_mode: Whether ``chainer.config.train`` was on.
        trials: Profiled trials asked for (an upper bound with max_seconds or until_ci).
        clean_trials: Trials without any hook asked for.
        warmups: Warm-up trials.
        threads: BLAS threads asked for; None leaves the library's own choice.
        seed: Seed of the initial weights and of a random input.
        weights: File the weights were loaded from; empty for initial weights.
        max_seconds: Time limit of the trials in seconds, if any.
        until_ci: Wanted half width of the 95 % interval of the mean trial, as a fraction, if any.
        command: The command line that started the run, if it was one.
    """

    model: str = ""
    input: str = ""
    input_shape: Shape = ()
    batchsize: int = 1
    device: str = "cpu"
    phase: str = "forward"
    loss: str = ""
    optimizer: str = ""
    train_mode: bool = False
    trials: int = 0
    clean_trials: int = 0
    warmups: int = 0
    threads: int | None = None
    seed: int | None = None
    weights: str = ""
    max_seconds: float | None = None
    until_ci: float | None = None
    command: str = ""


@dataclass(frozen=True)
class BlasLibrary:
    """A BLAS library in the process: its name, version and number of threads."""

    name: str
    version: str
    threads: int


@dataclass(frozen=True)
class Environment:
    """The machine and the software of a run."""

    started: str = ""
    system: str = ""
    processor: str = ""
    physical_cores: int | None = None
    usable_cores: int | None = None
    memory_nbytes: int | None = None
    python: str = ""
    chainer: str = ""
    numpy: str = ""
    cupy: str = ""
    profiler: str = ""
    commit: str = ""
    blas: tuple[BlasLibrary, ...] = ()


@dataclass(frozen=True)
class Conditions:
    """What was measured about the measuring itself.

    Attributes:
        clock_resolution_ns: Smallest step of the clock that was seen.
        window_ns: Time that the recorder shows for a function that does nothing.
        other_cpu: Processor cores that other programs kept busy on average during the trials.
    """

    clock_resolution_ns: float | None = None
    window_ns: float | None = None
    other_cpu: float | None = None


@dataclass(frozen=True)
class MachineLimits:
    """What a machine can do at best, as measured; the roofs of the roofline model.

    Attributes:
        key: What the limits depend on: processor or GPU, libraries, threads.
        device: ``cpu`` or ``gpu:0``.
        measured: When they were measured (UTC).
        threads: BLAS threads in use; 0 where that is not known.
        flops_per_s: Operations a second of the fastest float32 matrix product; a multiply-add is
            two.
        half_flops_per_s: The same in float16; None on a CPU.
        copy_nbytes_per_s: Bytes a second, read and written, of a copy larger than the caches.
        fresh_nbytes_per_s: The same of a copy into newly allocated memory, which is what
            functions do that allocate their output: the system hands such memory out page by page.
        copied_nbytes: Size of the array that was copied.
    """

    key: str
    device: str
    measured: str
    threads: int
    flops_per_s: float
    half_flops_per_s: float | None
    copy_nbytes_per_s: float
    fresh_nbytes_per_s: float
    copied_nbytes: int

    @property
    def ridge(self) -> float:
        """Operations a byte from which arithmetic and not memory is the bound, in float32."""
        return self.flops_per_s / self.copy_nbytes_per_s


@dataclass(frozen=True)
class MemoryUse:
    """What the layers of one trial allocate, from the memory pass. All sizes are bytes.

    Attributes:
        peak_nbytes: Of each layer, the most that was allocated within it beyond what was there at
            its begin, in nested calls too; over several calls, of the one with the highest peak.
        retained_nbytes: Of each layer, what it left allocated at its end, summed over its calls
            and without that of nested calls; negative where it freed more.
        parameter_nbytes: All parameters and persistent arrays of the network.
        input_nbytes: The inputs of the trial.
        high_water_nbytes: The most that was allocated in the trial beyond what was there at its
            begin.
        high_water_layer: Index of the layer where that was; None outside of all layers.
        kept_for_backward_nbytes: What the forward phase left for the backward phase; None without
            a backward phase.
    """

    peak_nbytes: tuple[int, ...]
    retained_nbytes: tuple[int, ...]
    parameter_nbytes: int
    input_nbytes: int
    high_water_nbytes: int
    high_water_layer: int | None
    kept_for_backward_nbytes: int | None = None


#: ``Recording.ended`` of a run that made all its trials, or ended before because it was asked to.
COMPLETE = "complete"
TIME_LIMIT = "time limit reached"
INTERVAL = "wanted interval reached"


def _no_samples() -> NDArray[np.int64]:
    return np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class Recording:
    """Everything that one run measured. All times are integer nanoseconds.

    For every trial: ``trial_ns = self_ns.sum(axis=1) + framework``, where the framework time is
    what passed between the rows. Of a training step it is known by phase as well:
    ``framework = framework_ns.sum(axis=1) + what passed outside of all phases``.

    Attributes:
        layers: The rows of one trial, in the order in which they were first entered.
        self_ns: Self time of every layer in every profiled trial, (trials, layers). The time of a
            call nested in another counts for the inner one only.
        phases: The phases whose framework time is known by itself.
        framework_ns: That time in every profiled trial, (trials, phases).
        links: The links of the network, parents before children; empty where they are not known.
        trial_ns: Wall time of every profiled trial, (trials,); None where only the functions'
            times are known.
        start_ns: Start of every profiled trial on the run's clock, (trials,).
        clean_ns: Wall time of every trial without hooks, (clean trials,).
        clean_start_ns: Their starts, on the same clock.
        warmup_ns: Wall time of every warm-up trial.
        probe_ns: Wall times of trials that tried another number of BLAS threads, (probes,).
        probe_threads: That number for each of them, (probes,).
        settings: What was asked for.
        environment: Machine and software.
        conditions: What was measured about the measuring.
        limits: What the machine can do at best; None where it was not measured.
        memory: What the memory pass found; None without one.
        ended: ``complete``, or why the run ended before.
    """

    layers: tuple[Layer, ...]
    self_ns: NDArray[np.int64]
    phases: tuple[str, ...] = ()
    framework_ns: NDArray[np.int64] | None = None
    links: tuple[LinkCalls, ...] = ()
    trial_ns: NDArray[np.int64] | None = None
    start_ns: NDArray[np.int64] | None = None
    clean_ns: NDArray[np.int64] = field(default_factory=_no_samples)
    clean_start_ns: NDArray[np.int64] = field(default_factory=_no_samples)
    warmup_ns: NDArray[np.int64] = field(default_factory=_no_samples)
    probe_ns: NDArray[np.int64] = field(default_factory=_no_samples)
    probe_threads: NDArray[np.int64] = field(default_factory=_no_samples)
    settings: Settings = Settings()
    environment: Environment = Environment()
    conditions: Conditions = Conditions()
    limits: MachineLimits | None = None
    memory: MemoryUse | None = None
    ended: str = COMPLETE

    def __post_init__(self) -> None:
        n_trials = len(self.self_ns)
        if self.self_ns.ndim != 2 or self.self_ns.shape[1] != len(self.layers):
            raise ValueError(f"self_ns is {self.self_ns.shape}, for {len(self.layers)} layers")
        for name in _ARRAYS:
            samples = getattr(self, name)
            if samples is not None and samples.dtype != np.int64:
                raise ValueError(f"{name} is {samples.dtype}, not int64 nanoseconds")
            if samples is not None and name not in _BY_COLUMN and samples.ndim != 1:
                raise ValueError(f"{name} has {samples.ndim} axes, not one")
        framework = (0, 0) if self.framework_ns is None else self.framework_ns.shape
        known = bool(self.phases) or self.framework_ns is not None
        if known and framework != (n_trials, len(self.phases)):
            raise ValueError(f"framework_ns is {framework}, for phases {self.phases}")
        for name in ("trial_ns", "start_ns"):
            samples = getattr(self, name)
            if samples is not None and len(samples) != n_trials:
                raise ValueError(f"{name} is {samples.shape}, for {n_trials} trials")
        if self.memory is not None and len(self.memory.peak_nbytes) != len(self.layers):
            raise ValueError(
                f"memory is of {len(self.memory.peak_nbytes)} layers, for {len(self.layers)}"
            )
        for first, second in (("clean_ns", "clean_start_ns"), ("probe_ns", "probe_threads")):
            if len(getattr(self, first)) != len(getattr(self, second)):
                raise ValueError(f"{first} and {second} differ in length")

    @property
    def n_trials(self) -> int:
        """Number of profiled trials."""
        return len(self.self_ns)

    def save(self, file: BinaryIO | Path) -> None:
        """Write the recording as a compressed .npz file that holds no pickled objects."""
        if isinstance(file, Path):  # by its name NumPy would add .npz to it
            with open(file, "wb") as opened:
                self.save(opened)
            return
        arrays: dict[str, Any] = {
            name: _smallest(samples)
            for name in _ARRAYS
            if (samples := getattr(self, name)) is not None
        }
        meta: dict[str, Any] = {"format": FORMAT, "version": VERSION, "ended": self.ended}
        for name in _PARTS:
            meta[name] = dataclasses.asdict(getattr(self, name))
        meta["layers"] = [dataclasses.asdict(layer) for layer in self.layers]
        meta["links"] = [dataclasses.asdict(link) for link in self.links]
        meta["phases"] = self.phases
        for name in _OPTIONAL_PARTS:
            part = getattr(self, name)
            meta[name] = None if part is None else dataclasses.asdict(part)
        arrays["meta"] = np.frombuffer(json.dumps(meta).encode(), np.uint8)
        np.savez_compressed(file, **arrays)

    @classmethod
    def load(cls, path: Path) -> Recording:
        """Read a recording from a file.

        Raises:
            ProfileError: The file is missing, damaged, not a recording, or from a newer version.
        """
        try:
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
        except FileNotFoundError:
            raise ProfileError(f"{path}: there is no such recording") from None
        except IsADirectoryError:
            raise ProfileError(f"{path}: is a folder, not a recording file") from None
        except PermissionError:
            raise ProfileError(f"{path}: may not be read (permission denied)") from None
        except Exception as error:  # a damaged archive raises errors of a dozen types
            raise ProfileError(f"{path}: damaged, or not a recording ({one_line(error)})") from None
        if "meta" not in arrays:
            raise ProfileError(f"{path}: is no {FORMAT} (it holds no 'meta')")
        try:
            meta = json.loads(arrays.pop("meta").tobytes())
            if meta["format"] != FORMAT:
                raise KeyError("format")
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ProfileError(f"{path}: is no {FORMAT}") from None
        check_version(path, meta.get("version"))
        try:
            parts: dict[str, Any] = {name: build(part, meta[name]) for name, part in _PARTS.items()}
            for name in arrays.keys() & _ARRAYS:
                if arrays[name].dtype.kind not in "iu":
                    raise ValueError(f"{name} holds {arrays[name].dtype}, not integers")
                parts[name] = arrays[name].astype(np.int64)
            parts["layers"] = tuple(build(Layer, layer) for layer in meta["layers"])
            # Version 1 had no links and no phases.
            parts["links"] = tuple(build(LinkCalls, link) for link in meta.get("links", ()))
            parts["phases"] = tuple(meta.get("phases", ()))
            for name, kind in _OPTIONAL_PARTS.items():
                if meta.get(name) is not None:
                    parts[name] = build(kind, meta[name])
            return cls(ended=meta["ended"], **parts)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ProfileError(f"{path}: damaged recording ({one_line(error)})") from None


#: The arrays of a recording, by the names they have in its file.
_BY_COLUMN = ("self_ns", "framework_ns")
_ARRAYS = (
    *_BY_COLUMN,
    "trial_ns",
    "start_ns",
    "clean_ns",
    "clean_start_ns",
    "warmup_ns",
    "probe_ns",
    "probe_threads",
)
_OPTIONAL_PARTS: dict[str, type] = {"limits": MachineLimits, "memory": MemoryUse}
_PARTS: dict[str, type] = {
    "settings": Settings,
    "environment": Environment,
    "conditions": Conditions,
}


def check_version(path: Path, version: object) -> None:
    """Refuse a file whose format is newer than this program."""
    if not isinstance(version, int) or version > VERSION:
        raise ProfileError(
            f"{path}: has format version {version}, this program reads up to {VERSION}: "
            "update the program, or use the one that wrote the file"
        )


def _smallest(samples: NDArray[np.int64]) -> NDArray[Any]:
    """The samples in 32 bits where all of them fit: the file is half as large."""
    if samples.size and samples.min() >= 0 and samples.max() < 2**32:
        return samples.astype(np.uint32)
    return samples


def build(kind: type[T], values: dict[str, Any]) -> T:
    """A dataclass from JSON values: lists become tuples, unknown fields are passed over."""
    known = {f.name for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    kwargs = {name: _tuples(value) for name, value in values.items() if name in known}
    if kind is Environment:
        kwargs["blas"] = tuple(build(BlasLibrary, library) for library in kwargs.get("blas", ()))
    return kind(**kwargs)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(v) for v in value) if isinstance(value, list) else value
