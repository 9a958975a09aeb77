"""What a GPU is and how it fares: through CuPy, and through NVML where that is installed.

Everything is read only, and whatever cannot be read is left out: no run fails for it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from chainer_profile.record.recording import Gpu, GpuState

T = TypeVar("T")

#: NVML's reasons for lower clocks, by their bits (nvmlClocksEventReasons); being idle is none.
_THROTTLE_REASONS = {
    0x2: "clocks set by an application",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "temperature (software)",
    0x40: "temperature (hardware)",
    0x80: "power brake",
    0x100: "display clocks",
}


def collect_gpu(number: int) -> Gpu:
    """What a GPU is, and the libraries that CuPy has for it."""
    cupy = sys.modules.get("cupy")
    if cupy is None:
        return Gpu(number=number)
    runtime = cupy.cuda.runtime
    properties: dict[str, Any] = known(lambda: runtime.getDeviceProperties(number), {})
    nvml = _nvml(number)
    return Gpu(
        number=number,
        name=_text(properties.get("name", "")),
        compute_capability=known(lambda: f"{properties['major']}.{properties['minor']}", ""),
        memory_nbytes=known(lambda: int(properties["totalGlobalMem"]), None),
        driver=known(lambda: _text(nvml.nvmlSystemGetDriverVersion()), ""),
        driver_cuda=known(lambda: cuda_version(runtime.driverGetVersion()), ""),
        cuda=known(lambda: cuda_version(runtime.runtimeGetVersion()), ""),
        cudnn=cudnn_version(),
        tf32=os.environ.get("CUPY_TF32", "0") not in ("", "0"),
    )


def cudnn_version() -> str:
    """Version of the cuDNN that Chainer calls through CuPy; empty where there is none."""
    from chainer.backends import cuda

    if not getattr(cuda, "cudnn_enabled", False):
        return ""
    number = known(lambda: int(cuda.cuda.cudnn.getVersion()), 0)
    # 8907 is 8.9.7, and 90100 is 9.1.0.
    scale = 1000 if number < 10_000 else 10_000
    return f"{number // scale}.{number % scale // 100}.{number % 100}" if number else "?"


def gpu_state(number: int) -> GpuState | None:
    """Clocks, temperature and so on as they are now; None without NVML."""
    nvml = _nvml(number)
    if nvml is None:
        return None
    handle = nvml.handle
    reasons = known(lambda: int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)), 0)
    return GpuState(
        sm_mhz=known(lambda: int(nvml.nvmlDeviceGetClockInfo(handle, 1)), None),
        most_sm_mhz=known(lambda: int(nvml.nvmlDeviceGetMaxClockInfo(handle, 1)), None),
        memory_mhz=known(lambda: int(nvml.nvmlDeviceGetClockInfo(handle, 2)), None),
        temperature_c=known(lambda: int(nvml.nvmlDeviceGetTemperature(handle, 0)), None),
        power_w=known(lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000, None),
        throttle=tuple(text for bit, text in _THROTTLE_REASONS.items() if reasons & bit),
    )


class _Nvml:
    """The module pynvml, and the handle of one device."""

    def __init__(self, module: Any, handle: Any) -> None:
        self._module = module
        self.handle = handle

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def _nvml(number: int) -> Any:
    """NVML for a device; None where it is not installed or has no driver.

    CUDA and NVML may number the devices differently, so it is found by its place on the bus.
    """
    with suppress(Exception):
        import pynvml

        pynvml.nvmlInit()
        bus = sys.modules["cupy"].cuda.runtime.deviceGetPCIBusId(number)
        return _Nvml(pynvml, pynvml.nvmlDeviceGetHandleByPciBusId(_text(bus)))
    return None


def known(read: Callable[[], T], otherwise: T) -> T:
    """What can be read; a system, a device or a driver may refuse each single figure."""
    with suppress(Exception):
        return read()
    return otherwise


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def cuda_version(version: int) -> str:
    """12.9 for 12090."""
    return f"{version // 1000}.{version % 1000 // 10}"
