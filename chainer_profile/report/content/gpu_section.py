"""Summary -> what a run on a GPU does, and what its GPU is."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from chainer_profile.analyse.device_use import phase_device
from chainer_profile.basics.units import (
    format_count,
    format_duration,
    format_ms,
    format_nbytes,
    format_percent,
    format_significant,
    plural,
)
from chainer_profile.report.columns import properties
from chainer_profile.report.document import TOTAL, strong, text
from chainer_profile.report.tables import Table, columns
from chainer_profile.report.text import Row, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from chainer_profile.analyse.device_use import DeviceUse
    from chainer_profile.analyse.summary import Summary
    from chainer_profile.record.recording import Gpu, GpuState, Recording, Settings
    from chainer_profile.report.document import Block


NO_CUDNN = "none: Chainer convolves by im2col and matrix product"


def on_gpu(summary: Summary) -> str:
    """`` on the GPU`` where the layers' times are those of one; else nothing."""
    return " on the GPU" if summary.recording.on_device else ""


def gpu_rows(recording: Recording) -> list[Row]:
    """The GPU, its libraries and how it fared, one row each; without what is not known."""
    gpu, conditions = recording.environment.gpu, recording.conditions
    rows: list[Row] = []
    if gpu is not None:
        rows += [
            ("GPU", f"{gpu.name or 'name not known'} (number {gpu.number})"),
            ("GPU memory", "" if gpu.memory_nbytes is None else format_nbytes(gpu.memory_nbytes)),
            ("Compute capability", gpu.compute_capability),
            ("GPU driver", _driver_text(gpu)),
            ("CUDA runtime", gpu.cuda),
            ("cuDNN", gpu.cudnn or NO_CUDNN),
            ("TF32", "" if gpu.tf32 is None else _tf32_text(gpu.tf32)),
        ]
    for when, state in (("before", conditions.gpu_before), ("after", conditions.gpu_after)):
        if state is not None:
            rows.append((f"GPU {when} the trials", _state_text(state)))
    return [(name, printable(value)) for name, value in rows if value]


def option_rows(settings: Settings) -> list[Row]:
    """What was asked for beside the usual, one row each: data type, kernels, memory."""
    rows = [
        ("Data type", "" if settings.dtype == "float32" else settings.dtype),
        ("Kernels", settings.fast and f"{settings.fast}, put under Chainer's functions"),
        ("Freed memory", "kept in the process" if settings.keep_memory else ""),
    ]
    return [(name, printable(value)) for name, value in rows if value]


def _driver_text(gpu: Gpu) -> str:
    cuda = f"up to CUDA {gpu.driver_cuda}" if gpu.driver_cuda else ""
    return f"{gpu.driver} ({cuda})" if gpu.driver and cuda else gpu.driver or cuda


def _tf32_text(on: bool) -> str:
    meaning = "may round their inputs to TF32" if on else "keep all digits of float32"
    return f"{_on(on)}: CuPy's float32 matrix products {meaning}"


def _on(on: bool) -> str:
    return "on" if on else "off"


def _state_text(state: GpuState) -> str:
    """Clocks, temperature, power and reasons for lower clocks, as far as they are known."""
    parts = []
    if state.sm_mhz is not None:
        most = "" if state.most_sm_mhz is None else f" of {format_count(state.most_sm_mhz)}"
        parts.append(f"{format_count(state.sm_mhz)}{most} MHz")
    if state.memory_mhz is not None:
        parts.append(f"memory {format_count(state.memory_mhz)} MHz")
    if state.temperature_c is not None:
        parts.append(f"{state.temperature_c} C")
    if state.power_w is not None:
        parts.append(f"{format_significant(state.power_w, 3)} W")
    if state.throttle:
        parts.append(f"clocks lowered by {' and '.join(state.throttle)}")
    return ", ".join(parts)


#: What is shown of a time: so many seconds are one in the last digit of a time in ms.
_STEP_S = 1e-7
NO_HELD_TRIALS = "not known: there are no held trials"
#: What the columns say that only a GPU fills.
MEANINGS = {
    "host": "host is the time of the host in the layer's call",
    "gap": "gap is the time on the device between the layer before and this one",
    "busy": "busy is the time on the device when it never waits for the host",
}


def explained(names: Sequence[str]) -> str:
    """What those of the columns say that only a GPU fills, in a sentence; empty without them."""
    said = [meaning for name, meaning in MEANINGS.items() if name in names]
    if not said:
        return ""
    sentence = ", ".join(said)
    return f"{sentence[0].upper()}{sentence[1:]}."


def pace(use: DeviceUse) -> str:
    """What sets the pace, in a sentence."""
    launch, wait = format_duration(use.launch_s), format_duration(use.wait_s)
    if use.launch_bound and use.busy_s is not None:
        return (
            f"the GPU waits for the host. The host needs {launch} to launch what the GPU does in "
            f"{format_duration(use.busy_s)} ({format_percent(use.busy_share)} busy)."
        )
    if use.launch_bound:
        return (
            f"it seems that the GPU waits for the host. The host launches for {launch}, and then "
            f"waits for {wait} only. (So it looks as well where the network waits for the GPU in "
            "its middle.)"
        )
    busy = "" if use.busy_share is None else f", busy for {format_percent(use.busy_share)} of it"
    return (
        f"The GPU sets the pace{busy}: when the host has launched all of a trial, which takes "
        f"{launch}, it waits for another {wait}."
    )


def device(summary: Summary) -> Iterator[Block]:
    """The part of the report on the GPU; nothing on a CPU."""
    use = summary.device
    if use is None:
        return
    yield text(strong("Launch bound"), f": {pace(use)}") if use.launch_bound else text(pace(use))
    wall, (launch, wait) = _adding_up((use.launch_s, use.wait_s))
    span, (layers, gaps, rest) = _adding_up((use.layers_s, use.gaps_s, use.rest_s))
    rows = [
        ("Wall time of a profiled trial", wall),
        ("... the host launches", launch),
        ("... of that in the layers' calls", f"{format_ms(use.calls_s)} ms"),
        ("... the host waits for the GPU", wait),
        ("Time of a trial on the GPU", span),
        ("... in the layers", layers),
        ("... between the layers", gaps),
        ("... behind the last layer", rest),
        ("GPU busy", _busy_text(use)),
    ]
    if use.held_span_s is not None:
        rows.append(("A held trial on the GPU, median", f"{format_ms(use.held_span_s)} ms"))
    yield properties(rows, "A trial on the host and on the GPU")
    yield text(f"It adds up: launching {launch} + waiting {wait} = wall time {wall}.")
    yield text(
        f"On the GPU: layers {layers} + between them {gaps} + behind the last {rest} = time on the "
        f"GPU {span}."
    )
    if summary.several_phases:
        yield from _phases(summary, use)


_PHASES = columns("""
phase Index | | text
host | host ms = host in the layers' calls [ms] | ms
layers | layers ms = layers on the GPU [ms] | ms
gaps gap_s | between ms = between the layers [ms] | ms
busy | busy ms = GPU busy [ms] | ms
busy_share | busy % = busy part of the layers [%] | percent
""")


def _phases(summary: Summary, use: DeviceUse) -> Iterator[Block]:
    rows = phase_device(summary.layers)
    marks = [*("" for _ in rows.index), TOTAL]
    busy_s = float("nan") if use.busy_s is None else use.busy_s
    whole = {"host_s": use.calls_s, "layers_s": use.layers_s, "gap_s": use.gaps_s, "busy_s": busy_s}
    rows.loc["all layers"] = whole
    # The part of the layers' time in which the device works.
    rows["busy_share"] = rows["busy_s"] / rows["layers_s"]
    yield text(
        "By phase; the time between two layers is that of the phase of the second one, and what "
        "the host does between the layers' calls is of no phase:"
    )
    yield Table(_PHASES, rows, "The phases on the GPU", marks)


def _busy_text(use: DeviceUse) -> str:
    """How long the device works in a trial, and how long it does not."""
    share = use.busy_share
    if use.busy_s is None or use.idle_s is None or share is None:
        return NO_HELD_TRIALS
    # Both as they are shown add up to 100 %.
    share = round(share, 3)
    return (
        f"{format_ms(use.busy_s)} ms ({format_percent(share)} of the wall time), idle "
        f"{format_ms(use.idle_s)} ms ({format_percent(1 - share)}); from "
        f"{plural(use.held_trials, 'held trial')}"
    )


def _adding_up(parts_s: Sequence[float]) -> tuple[str, list[str]]:
    """A sum and its parts in ms; as they are shown, the parts add up to the sum.

    What rounding leaves over goes to the largest part.
    """
    steps = [round(part / _STEP_S) for part in parts_s]
    whole = round(math.fsum(parts_s) / _STEP_S)
    steps[steps.index(max(steps))] += whole - sum(steps)
    return f"{format_ms(whole * _STEP_S)} ms", [f"{format_ms(n * _STEP_S)} ms" for n in steps]
