"""Summary -> the changes that are worth a try, and why the others are not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from chainer_profile.analyse.counted import trial_counters
from chainer_profile.basics.units import format_nbytes, format_percent, plural
from chainer_profile.basics.words import BACKWARD, PROG

if TYPE_CHECKING:
    from chainer_profile.analyse.summary import Summary

#: What decides: CPU time where both run on one thread, as other programs disturb it least.
CPU, WALL = "CPU time", "wall"
#: Functions that accelerate() replaces, by what their names begin with; and those of PyTorch alone.
_REPLACED: tuple[str, ...] = (
    *("Convolution", "Deconvolution", "BatchNormalization", "FixedBatchNormalization"),
    *("MaxPooling", "AveragePooling"),
)
_BY_TORCH = ("ReLU",)
#: Part of a trial from which a change of it can bring what is worth a word.
_MUCH = 0.05
#: glibc gives arrays of this size and more back to the kernel.
_LARGE_NBYTES = 128 << 10
#: So many times the batch is tried, up to this one.
_LARGER, _LARGEST = 4, 128


@dataclass(frozen=True)
class Change:
    """What is done otherwise; nothing by default.

    Attributes:
        kernels: Kernels of ``accelerate()``: ``numpy`` or ``torch``; empty for Chainer's own.
        keep_memory: Whether freed memory stays in the process.
        engine: Name of the engine that runs the network; empty for Chainer.
        threads: BLAS threads; None for those of the run.
        batchsize: Inputs at a time; None for those of the run.
        dtype: Chainer's ``config.dtype``; empty for that of the run.
    """

    kernels: str = ""
    keep_memory: bool = False
    engine: str = ""
    threads: int | None = None
    batchsize: int | None = None
    dtype: str = ""

    def with_(self, other: Change) -> Change:
        """Both changes at once."""
        plain = Change()
        changed = {
            one.name: getattr(other, one.name)
            for one in fields(Change)
            if getattr(other, one.name) != getattr(plain, one.name)
        }
        return replace(self, **changed)


#: The network as it is.
AS_IT_IS = Change()


@dataclass(frozen=True)
class Candidate:
    """A change that is to be tried.

    Attributes:
        name: What it is called.
        reason: Why it could help, in one line.
        keep: What to write or to type to keep it.
        change: What is done.
        against: What it is held against; the network as it is, unless that has the change already.
        decides: :data:`CPU` or :data:`WALL`.
        alone: Whether it takes the place of others, as kernels and engines do of one another.
        parts: Names of those that this one is the sum of.
    """

    name: str
    reason: str
    keep: str
    change: Change
    against: Change = AS_IT_IS
    decides: str = CPU
    alone: bool = True
    parts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Untried:
    """A change that was not tried, and why."""

    name: str
    why: str


@dataclass(frozen=True)
class Possible:
    """What this machine and this network have.

    Attributes:
        lacks: By name of an engine, ``torch`` or ``glibc``: why it cannot be used, with what would
            install it; empty where it can.
        threads: BLAS threads of the run.
        cores: Threads that BLAS takes by itself.
        asked: Whether the user asked for the run's number of threads.
    """

    lacks: Mapping[str, str]
    threads: int
    cores: int
    asked: bool = False


def propose(summary: Summary, possible: Possible) -> tuple[list[Candidate], list[Untried]]:
    """The changes worth a try, those that promise the most first; and the others.

    Args:
        summary: A profile of the network as it is.
        possible: What there is.
    """
    found = [
        *_kernels(summary, possible),
        *_engines(summary, possible),
        *_memory(summary, possible),
        *_threads(possible),
        *_batch(summary),
        *_dtype(summary),
    ]
    decides = CPU if possible.threads == 1 else WALL
    candidates = [
        one if one.against != AS_IT_IS or one.change.threads else replace(one, decides=decides)
        for one in found
        if isinstance(one, Candidate)
    ]
    return candidates, [one for one in found if isinstance(one, Untried)]


def summed(promising: list[Candidate]) -> list[Candidate]:
    """Sums of changes that each help alone: the first that takes others' place, with the rest.

    Args:
        promising: The changes, best first.
    """
    own = [one for one in promising if one.against == AS_IT_IS]
    best = next((one for one in own if one.alone), None)
    added = [one for one in own if not one.alone]
    if best is None or not added:
        return []
    parts = [best, *added]
    change = AS_IT_IS
    for one in parts:
        change = change.with_(one.change)
    return [
        Candidate(
            " + ".join(one.name for one in parts),
            "each of them helps alone",
            "; ".join(one.keep for one in parts),
            change,
            decides=WALL if any(one.decides == WALL for one in parts) else CPU,
            parts=tuple(one.name for one in parts),
        )
    ]


def _share(summary: Summary, names: tuple[str, ...]) -> float:
    """The part of a trial that functions of these names take."""
    functions = summary.functions
    trial = summary.totals.profiled
    whole = trial.mean_s if trial else float(functions["total_s"].sum())
    ours = functions["total_s"][[str(name).startswith(names) for name in functions.index]]
    return float(ours.sum()) / whole if whole else 0.0


def _kernels(summary: Summary, possible: Possible) -> Iterator[Candidate | Untried]:
    dtype = summary.recording.settings.dtype
    torch, numpy = 'accelerate(kernels="torch")', "accelerate()"
    for name, kernels, functions in (
        (torch, "torch", _REPLACED + _BY_TORCH),
        (numpy, "numpy", _REPLACED),
    ):
        share = _share(summary, functions)
        if summary.recording.settings.fast:
            continue  # it has them
        if dtype != "float32":
            yield Untried(name, f"has no kernels for {dtype}")
        elif share < _MUCH:
            yield Untried(
                name, f"the functions that it replaces take {format_percent(share)} of a trial"
            )
        elif lacks := possible.lacks.get(kernels, ""):
            yield Untried(name, lacks)
        else:
            yield Candidate(
                name,
                f"the functions that it replaces take {format_percent(share)} of a trial",
                f"chainer_profile.{name}",
                Change(kernels=kernels),
            )


_KEEP_ENGINE = {
    "onnxruntime": f"{PROG} export --to net.onnx, with the network's options",
    "openvino": f"{PROG} export --to net.xml, with the network's options",
}


def _engines(summary: Summary, possible: Possible) -> Iterator[Candidate | Untried]:
    settings = summary.recording.settings
    why = ""
    if settings.phase != "forward" or settings.train_mode:
        why = "they only infer"
    elif settings.with_graph:
        why = "the network takes gradients in its forward pass, which they do not"
    elif settings.dtype != "float32":
        why = f"they compute in float32, and the run in {settings.dtype}"
    if why:
        yield Untried("engines", why)
        return
    for name in ("onnxruntime", "openvino"):
        if lacks := possible.lacks.get(name, ""):
            yield Untried(name, lacks)
            continue
        yield Candidate(
            name,
            "inference needs no graph, no type checks, and no normalisation by itself",
            _KEEP_ENGINE[name],
            Change(engine=name),
        )


def _memory(summary: Summary, possible: Possible) -> Iterator[Candidate | Untried]:
    name, memory = "memory kept", summary.recording.memory
    peak = max(memory.peak_nbytes, default=0) if memory is not None else None
    counted = trial_counters(summary.recording)
    if summary.recording.settings.keep_memory:
        return
    if lacks := possible.lacks.get("glibc", ""):
        yield Untried(name, lacks)
    elif peak is not None and peak < _LARGE_NBYTES:
        yield Untried(
            name,
            f"no layer takes {format_nbytes(_LARGE_NBYTES)}, from where on glibc gives memory back",
        )
    else:
        reason = "glibc gives large arrays back and fetches them anew"
        if counted is not None and counted.system_share > 0:
            reason += f": the system takes {format_percent(counted.system_share)} of the CPU time"
        elif peak is not None:
            reason += f", up to {format_nbytes(peak)} a layer"
        yield Candidate(
            name,
            reason,
            "MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=2147483647 MALLOC_TOP_PAD_=67108864 "
            "before the command",
            Change(keep_memory=True),
        )


def _threads(possible: Possible) -> Iterator[Candidate | Untried]:
    one, cores = "one BLAS thread", possible.cores
    every = plural(cores, "BLAS thread")
    if cores < 2:
        yield Untried("more BLAS threads", "BLAS takes one by itself")
    elif possible.threads == 1 and not possible.asked:
        yield Candidate(
            one,
            f"small products wait for {cores} threads longer than they gain; the run has one",
            "OPENBLAS_NUM_THREADS=1 (or MKL_NUM_THREADS=1) before the command",
            AS_IT_IS,
            against=Change(threads=cores),
            decides=WALL,
            alone=False,
        )
    elif possible.threads == 1:
        yield Candidate(
            every,
            f"the run has one of {cores}",
            "without --threads 1",
            Change(threads=cores),
            decides=WALL,
            alone=False,
        )
    else:
        yield Candidate(
            one,
            f"small products wait for {possible.threads} threads longer than they gain",
            "OPENBLAS_NUM_THREADS=1 (or MKL_NUM_THREADS=1) before the command",
            Change(threads=1),
            decides=WALL,
            alone=False,
        )


def _batch(summary: Summary) -> Iterator[Candidate | Untried]:
    settings = summary.recording.settings
    larger = min(_LARGER * settings.batchsize, _LARGEST)
    name, framework = f"batch size {larger}", summary.totals.framework_share or 0.0
    backward = BACKWARD in set(summary.layers["phase"])
    if larger <= settings.batchsize:
        yield Untried("a larger batch", f"{settings.batchsize} are many already")
    elif framework < _MUCH:
        yield Untried(
            "a larger batch",
            f"between the functions pass {format_percent(framework)} of a trial, and a larger "
            "batch spreads no more than that",
        )
    else:
        yield Candidate(
            name,
            f"it spreads the {format_percent(framework)} between the functions over more inputs",
            f"-b {larger}" + (" (another training: choose its learning rate anew)" * backward),
            Change(batchsize=larger),
            alone=False,
        )


def _dtype(summary: Summary) -> Iterator[Candidate | Untried]:
    dtype = summary.recording.settings.dtype
    if dtype == "float32":
        yield Untried("float16", "NumPy computes it in software, slower than float32")
    else:
        yield Candidate(
            "float32",
            f"NumPy computes {dtype} in software",
            "--dtype float32 (chainer.config.dtype)",
            Change(dtype="float32"),
            alone=False,
        )
