"""Words about a GPU, its libraries and how it fared, for the terminal and the report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chainer_profile.basics.units import format_count, format_nbytes, format_significant
from chainer_profile.report.text import Row, printable

if TYPE_CHECKING:
    from chainer_profile.analyse.summary import Summary
    from chainer_profile.record.recording import Gpu, GpuState, Recording, Settings

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
