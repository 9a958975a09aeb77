"""Texts about a run that all forms of its report share."""

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
    r"""Escape characters that cannot be printed, such as newlines, as in Python (``\n``)."""
    escaped = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)
    return name if name.isprintable() else "".join(escaped)


def printable_rows(rows: Iterable[tuple[str, str | None]]) -> list[Row]:
    """The rows that have a value, with printable values."""
    return [(name, printable(value)) for name, value in rows if value]


def shorten(text: str, width: int) -> str:
    """Cut a text to at most ``width`` characters; a cut text ends with an ellipsis."""
    return text if len(text) <= width else text[: width - 1] + "…"


def ending(text: str, width: int) -> str:
    """Cut a text to its last ``width`` characters; a cut text begins with an ellipsis."""
    return text if len(text) <= width else "…" + text[1 - width :]


def script_name(script: str) -> str:
    """The name of a program's file or module, from its command line."""
    words = script.split(" ")
    if words[0] == "-m" and len(words) > 1:
        return words[1]
    return "the program" if words[0] == "-c" else words[0].rpartition("/")[2]


def model_name(settings: Settings) -> str:
    """The network's name, or ``unnamed network``."""
    return printable(settings.model) or "unnamed network"


def input_text(settings: Settings) -> str:
    """Format the input of the network: ``random image, seed 0, shape 1x3x32x32``."""
    parts = [printable(settings.input)] if settings.input else []
    if settings.input_shape:
        parts.append(f"shape {units.format_shape(settings.input_shape)}")
    return ", ".join(parts) or "input not recorded"


def batch_text(settings: Settings) -> str:
    """Format the batch size: ``batch 32``; empty if it is unknown."""
    return f"batch {units.format_count(settings.batchsize)}" if settings.batchsize else ""


def mode_text(settings: Settings) -> str:
    """``test mode`` or ``train mode``, with ``with backprop`` if the run built a graph."""
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
    """Describe a trial: ``forward pass``, or ``training step (forward, ..., update with Adam)``."""
    parts = trial_parts(recording)
    if parts == ["forward"]:
        return "forward pass"
    text = ", ".join(parts)
    return f"training step ({text})" if parts[-1].startswith("update") else text


def settings_text(settings: Settings) -> str:
    """Describe how the network was run: input, batch, device, mode."""
    parts = (input_text(settings), batch_text(settings), printable(settings.device))
    return ", ".join(filter(None, (*parts, mode_text(settings), *options(settings))))


def options(settings: Settings) -> list[str]:
    """Describe options that differ from the defaults: data type, kernels, memory."""
    unusual = [] if settings.dtype == "float32" else [printable(settings.dtype)]
    if settings.fast:
        unusual.append(f"accelerated ({printable(settings.fast)} kernels)")
    elif settings.keep_memory:
        unusual.append("memory kept")
    return unusual


def on_gpu_suffix(summary: Summary) -> str:
    """`` on the GPU`` if the layers were timed there, otherwise an empty text."""
    return " on the GPU" if summary.recording.on_device else ""


def framework_name(recording: Recording) -> str:
    """The name for the time of a trial outside all layers."""
    return "runtime overhead" if recording.settings.engine else "framework"


def weights_text(settings: Settings) -> str:
    """Describe the origin of the weights: a file, or their initial values and seed."""
    if settings.weights:
        return f"weights from {printable(settings.weights)}"
    return "initial weights" + ("" if settings.seed is None else f", seed {settings.seed}")


def typical_word(recording: Recording) -> str:
    """The statistic that reports use for a layer: ``mean`` if some trials lack some layers."""
    return "mean" if recording.by_means else "median"


def trials_text(recording: Recording) -> str:
    """Count the trials: ``10,000 profiled trials, 1,000 unprofiled trials, 50 warm-ups``."""
    unprofiled = units.plural(len(recording.clean_ns), "unprofiled trial")
    warmups = units.plural(len(recording.warmup_ns) or recording.settings.warmups, "warm-up")
    return f"{profiled_text(recording)}, {unprofiled}, {warmups}"


def profiled_text(recording: Recording) -> str:
    return units.plural(recording.n_trials, "profiled trial")


def run_lines(recording: Recording) -> list[str]:
    """Three short lines: the network, a trial, and the numbers of trials."""
    settings = recording.settings
    return [
        f"{model_name(settings)}, {settings_text(settings)}",
        f"trial: {trial_text(recording)}",
        f"{trials_text(recording)}; {units.plural(len(recording.layers), 'layer')}",
    ]


def environment_lines(environment: Environment) -> list[str]:
    """Two short lines: the machine and the versions, without unknown ones."""
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
    """Rows for the machine, versions, commit and start, without unknown ones."""
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
    """Rows for the GPU, its libraries and its state, without unknown ones."""
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
    """Rows for options that differ from the defaults."""
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
    """Format clocks, temperature, power and reasons for lower clocks, without unknown ones."""
    parts = []
    if state.sm_mhz is not None:
        maximum = state.most_sm_mhz
        of_maximum = "" if maximum is None else f" of {units.format_count(maximum)}"
        parts.append(f"{units.format_count(state.sm_mhz)}{of_maximum} MHz")
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
    low: float, high: float, format_end: Callable[[float], str] = units.format_duration
) -> str:
    """``95 % interval 4.6 ms to 4.8 ms``; empty if the interval is unknown."""
    interval = units.format_interval(low, high, format_end)
    return "" if interval == units.NOT_KNOWN else f"95 % interval {interval}"


def ends_text(numbers: Collection[int]) -> str:
    """Format the smallest and the largest number: ``90 to 100``; one number if they are equal."""
    return " to ".join(map(units.format_count, sorted({min(numbers), max(numbers)})))


def interruption(recording: Recording) -> list[str]:
    """A sentence on why the run ended early; an empty list for a complete run."""
    if recording.ended == COMPLETE:
        return []
    planned = recording.settings.trials
    of_planned = f" of {units.format_count(planned)}" if planned else ""
    return [
        f"The run ended early ({printable(recording.ended)}): this is the result of "
        f"{units.format_count(recording.n_trials)}{of_planned} profiled trials."
    ]


def missing_parts(recording: Recording) -> list[str]:
    """A sentence for each missing part of the measurement."""
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
