"""Words about a run that all forms of its report share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chainer_profile.basics import units
from chainer_profile.basics.words import COMMUNICATION
from chainer_profile.record.recording import COMPLETE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from chainer_profile.analyse.summary import Summary
    from chainer_profile.record.recording import Environment, Gpu, GpuState, Recording, Settings

NO_CUDNN = "none: Chainer convolves by im2col and matrix product"
#: A name and its value, for a table of two columns.
Row = tuple[str, str]


def printable(name: str) -> str:
    """A name on one line: what cannot be printed (newlines, escapes) is shown as in Python."""
    escaped = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)
    return name if name.isprintable() else "".join(escaped)


def printable_rows(rows: Iterable[tuple[str, str | None]]) -> list[Row]:
    """The rows that have a value, on a line each."""
    return [(name, printable(value)) for name, value in rows if value]


def shorten(text: str, most: int) -> str:
    """A text of so many characters at most."""
    return text if len(text) <= most else text[: most - 1] + "…"


def ending(text: str, most: int) -> str:
    """The end of a text, of so many characters at most: that of a path tells layers apart."""
    return text if len(text) <= most else "…" + text[1 - most :]


def script_name(script: str) -> str:
    """The name of a program by how it was called: that of its file, or of its module."""
    words = script.split(" ")
    if words[0] == "-m" and len(words) > 1:
        return words[1]
    return "the program" if words[0] == "-c" else words[0].rpartition("/")[2]


def model_name(settings: Settings) -> str:
    """The network's name, or words where it has none."""
    return printable(settings.model) or "unnamed network"


def input_text(settings: Settings) -> str:
    """The input of the network: ``random image, seed 0, shape 1x3x32x32``."""
    parts = [printable(settings.input)] if settings.input else []
    if settings.input_shape:
        parts.append(f"shape {units.format_shape(settings.input_shape)}")
    return ", ".join(parts) or "input not recorded"


def batch_text(settings: Settings) -> str:
    """The size of the batch, if it is known: ``batch 32``."""
    return f"batch {units.format_count(settings.batchsize)}" if settings.batchsize else ""


def mode_text(settings: Settings) -> str:
    """``test mode`` or ``train mode``, as ``chainer.config.train`` was; with a graph, too."""
    mode = "train mode" if settings.train_mode else "test mode"
    return f"{mode} with backprop" if settings.with_graph else mode


def trial_parts(recording: Recording) -> list[str]:
    """The parts of a trial, in order: ``forward``, ``softmax_cross_entropy``, ``backward``."""
    settings = recording.settings
    phases = {layer.phase for layer in recording.layers} | set(recording.phases)
    parts = ["loading of data"] if "data" in phases else []
    parts.append("forward")
    if settings.loss == "output":
        parts[-1] += " with the network's own loss"
    elif settings.loss:
        parts.append(printable(settings.loss))
    if "backward" in phases or settings.phase != "forward":
        parts.append("backward")
    if COMMUNICATION in phases:
        parts.append("communication with the other ranks")
    if "update" in phases or settings.phase == "train":
        optimizer = printable(settings.optimizer)
        parts.append(f"update with {optimizer}" if optimizer else "update")
    return parts


def trial_text(recording: Recording) -> str:
    """A trial in words: ``forward pass``, or ``training step (forward, ..., update with Adam)``."""
    parts = trial_parts(recording)
    if parts == ["forward"]:
        return "forward pass"
    text = ", ".join(parts)
    return f"training step ({text})" if parts[-1].startswith("update") else text


def settings_text(settings: Settings) -> str:
    """How the network was run: input, batch, device, mode."""
    parts = (input_text(settings), batch_text(settings), printable(settings.device))
    return ", ".join(filter(None, (*parts, mode_text(settings), *options(settings))))


def options(settings: Settings) -> list[str]:
    """Options other than the usual ones: data type, kernels, memory."""
    unusual = [] if settings.dtype == "float32" else [printable(settings.dtype)]
    if settings.fast:
        unusual.append(f"accelerated ({printable(settings.fast)} kernels)")
    elif settings.keep_memory:
        unusual.append("memory kept")
    return unusual


def on_gpu(summary: Summary) -> str:
    """`` on the GPU`` where the layers' times are those of one; else nothing."""
    return " on the GPU" if summary.recording.on_device else ""


def between(recording: Recording) -> str:
    """The name of the time of a trial that no layer has."""
    return "runtime overhead" if recording.settings.engine else "framework"


def weights_text(settings: Settings) -> str:
    """Where the weights came from."""
    if settings.weights:
        return f"weights from {printable(settings.weights)}"
    return "initial weights" + ("" if settings.seed is None else f", seed {settings.seed}")


def typical_word(recording: Recording) -> str:
    """Which time stands for a layer: not every iteration of a program has each layer."""
    return "mean" if recording.by_means else "median"


def trials_text(recording: Recording) -> str:
    """The trials: ``10,000 profiled trials, 1,000 unprofiled trials, 50 warm-ups``."""
    unprofiled = units.plural(len(recording.clean_ns), "unprofiled trial")
    warmups = units.plural(len(recording.warmup_ns) or recording.settings.warmups, "warm-up")
    return f"{profiled_text(recording)}, {unprofiled}, {warmups}"


def profiled_text(recording: Recording) -> str:
    return units.plural(recording.n_trials, "profiled trial")


def run_lines(recording: Recording) -> list[str]:
    """The network, a trial, and the numbers of trials, in three short lines."""
    settings = recording.settings
    return [
        f"{model_name(settings)}, {settings_text(settings)}",
        f"trial: {trial_text(recording)}",
        f"{trials_text(recording)}; {units.plural(len(recording.layers), 'layer')}",
    ]


def environment_lines(environment: Environment) -> list[str]:
    """Machine and versions as far as they are known, in two short lines."""
    named = (
        ("NumPy", environment.numpy),
        ("Chainer", environment.chainer),
        ("CuPy", environment.cupy),
        ("chainer-profile", environment.profiler),
    )
    versions = [environment.python, *(f"{name} {version}" for name, version in named if version)]
    machine = [environment.processor, _cores_text(environment), *_blas_texts(environment)]
    lines = (map(printable, filter(None, parts)) for parts in (machine, versions))
    return [line for line in map(", ".join, lines) if line]


def environment_rows(environment: Environment) -> list[Row]:
    """Machine, versions, commit and start as far as they are known, one row each."""
    memory = environment.memory_nbytes
    rows = [
        ("Processor", environment.processor),
        ("Cores", _cores_text(environment)),
        ("Memory", "" if memory is None else units.format_nbytes(memory)),
        ("System", environment.system),
        ("Python", environment.python),
        ("NumPy", environment.numpy),
        ("Chainer", environment.chainer),
        ("CuPy", environment.cupy),
        ("BLAS", ", ".join(_blas_texts(environment))),
        ("Variables", ", ".join(environment.variables)),
        ("Profiler", environment.profiler and f"chainer-profile {environment.profiler}"),
        ("Commit", environment.commit),
        ("Started", environment.started),
    ]
    return printable_rows(rows)


def gpu_rows(recording: Recording) -> list[Row]:
    """The GPU, its libraries and its state as far as they are known, one row each."""
    gpu, conditions = recording.environment.gpu, recording.conditions
    rows: list[tuple[str, str | None]] = []
    if gpu is not None:
        rows += [
            ("GPU", f"{gpu.name or 'name not known'} (number {gpu.number})"),
            (
                "GPU memory",
                "" if gpu.memory_nbytes is None else units.format_nbytes(gpu.memory_nbytes),
            ),
            ("Compute capability", gpu.compute_capability),
            ("GPU driver", _driver_text(gpu)),
            ("CUDA runtime", gpu.cuda),
            ("cuDNN", gpu.cudnn or NO_CUDNN),
            ("TF32", "" if gpu.tf32 is None else _tf32_text(gpu.tf32)),
        ]
    for when, state in (("before", conditions.gpu_before), ("after", conditions.gpu_after)):
        if state is not None:
            rows.append((f"GPU {when} the trials", _state_text(state)))
    return printable_rows(rows)


def option_rows(settings: Settings) -> list[Row]:
    """The same, one row each."""
    rows = [
        ("Data type", "" if settings.dtype == "float32" else settings.dtype),
        ("Kernels", settings.fast and f"{settings.fast}, put under Chainer's functions"),
        ("Freed memory", "kept in the process" if settings.keep_memory else ""),
    ]
    return printable_rows(rows)


def _driver_text(gpu: Gpu) -> str:
    cuda = f"up to CUDA {gpu.driver_cuda}" if gpu.driver_cuda else ""
    return f"{gpu.driver} ({cuda})" if gpu.driver and cuda else gpu.driver or cuda


def _tf32_text(on: bool) -> str:
    meaning = "may round their inputs to TF32" if on else "keep all digits of float32"
    return f"{'on' if on else 'off'}: CuPy's float32 matrix products {meaning}"


def _state_text(state: GpuState) -> str:
    """Clocks, temperature, power and reasons for lower clocks, as far as they are known."""
    parts = []
    if state.sm_mhz is not None:
        most = "" if state.most_sm_mhz is None else f" of {units.format_count(state.most_sm_mhz)}"
        parts.append(f"{units.format_count(state.sm_mhz)}{most} MHz")
    if state.memory_mhz is not None:
        parts.append(f"memory {units.format_count(state.memory_mhz)} MHz")
    if state.temperature_c is not None:
        parts.append(f"{state.temperature_c} C")
    if state.power_w is not None:
        parts.append(f"{units.format_significant(state.power_w, 3)} W")
    if state.throttle:
        parts.append(f"clocks lowered by {' and '.join(state.throttle)}")
    return ", ".join(parts)


def _cores_text(environment: Environment) -> str:
    physical, usable = environment.physical_cores, environment.usable_cores
    if physical is not None and usable is not None and physical != usable:
        return f"{units.plural(physical, 'core')} ({units.format_count(usable)} usable)"
    cores = usable if physical is None else physical
    return "" if cores is None else units.plural(cores, "core")


def _blas_texts(environment: Environment) -> list[str]:
    texts = []
    for blas in environment.blas:
        kernels = blas.kernels and f"({blas.kernels} kernels)"
        parts = (blas.name, blas.version, kernels, f"with {units.plural(blas.threads, 'thread')}")
        texts.append(" ".join(filter(None, parts)))
    return texts


def interval_text(
    low: float, high: float, shown: Callable[[float], str] = units.format_duration
) -> str:
    """``95 % interval 4.6 ms to 4.8 ms``; empty where it is not known."""
    interval = units.format_interval(low, high, shown)
    return "" if interval == units.NOT_KNOWN else f"95 % interval {interval}"


def ends_text(numbers: Collection[int]) -> str:
    """The smallest and the largest of several numbers: ``90 to 100``."""
    return " to ".join(map(units.format_count, sorted({min(numbers), max(numbers)})))


def interruption(recording: Recording) -> list[str]:
    if recording.ended == COMPLETE:
        return []
    wanted = recording.settings.trials
    of = f" of {units.format_count(wanted)}" if wanted else ""
    return [
        f"The run ended early ({printable(recording.ended)}): this is the result of "
        f"{units.format_count(recording.n_trials)}{of} profiled trials."
    ]


def gaps(recording: Recording) -> list[str]:
    """A sentence for each part of the measurement that is missing."""
    missing = []
    if not len(recording.clean_ns) and not recording.of_program:
        missing.append(
            "There are no unprofiled trials, so the time without the recorder is unknown."
        )
    if recording.settings.inclusive:
        missing.append(
            "Times are inclusive: a call's time contains the calls within it, so times do not add "
            "up to a trial."
        )
    if recording.trial_ns is None:
        missing.append(
            "Only functions were timed, not whole trials, so the time between the functions is "
            "unknown."
        )
    return missing
