"""CUDA's runtime, as far as it is asked."""
# ruff: noqa: N802

from __future__ import annotations

import threading
from typing import Any

from cupy import fake

_ERRORS = {
    35: ("InsufficientDriver", "CUDA driver version is insufficient for CUDA runtime version"),
    100: ("NoDevice", "no CUDA-capable device is detected"),
    101: ("InvalidDevice", "invalid device ordinal"),
    400: ("InvalidResourceHandle", "invalid resource handle"),
    600: ("NotReady", "device not ready"),
    900: ("StreamCaptureUnsupported", "operation not permitted when stream is capturing"),
    901: (
        "StreamCaptureInvalidated",
        "operation failed due to a previous error during capture",
    ),
}
is_hip = False
streamCaptureModeGlobal, streamCaptureModeThreadLocal, streamCaptureModeRelaxed = 0, 1, 2  # noqa: N816


class CUDARuntimeError(RuntimeError):
    """An error of CUDA's runtime."""

    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__("cudaError{}: {}".format(*_ERRORS[status]))


class _Thread(threading.local):
    """What CUDA keeps for each thread."""

    device = 0


_thread = _Thread()


def getDeviceCount() -> int:
    if fake.n_devices < 1:
        raise CUDARuntimeError(35 if fake.n_devices < 0 else 100)
    return fake.n_devices


def getDevice() -> int:
    getDeviceCount()
    return _thread.device


def setDevice(device: int) -> None:
    _known(device)
    _thread.device = device


def _known(device: int) -> int:
    if not 0 <= device < getDeviceCount():
        raise CUDARuntimeError(101)
    return device


def deviceSynchronize() -> None:
    fake.synchronize(getDevice())


def memGetInfo() -> tuple[int, int]:
    """Free and total bytes; what the pool holds is not free, used or not."""
    from cupy.cuda.memory import pools

    return fake.memory_nbytes - sum(pool.total_bytes() for pool in pools), fake.memory_nbytes


def getDeviceProperties(device: int) -> dict[str, Any]:
    return {
        "name": f"Fake GPU {_known(device)}".encode(),
        "totalGlobalMem": fake.memory_nbytes,
        "major": 9,
        "minor": 0,
        "multiProcessorCount": 132,
        "clockRate": 1_980_000,
        "memoryClockRate": 2_619_000,
        "memoryBusWidth": 6144,
        "l2CacheSize": 50 << 20,
        "warpSize": 32,
        "pciBusID": device + 1,
    }


def deviceGetPCIBusId(device: int) -> str:
    return f"0000:{_known(device) + 1:02X}:00.0"


def driverGetVersion() -> int:
    return 12040


def runtimeGetVersion() -> int:
    return 12090


def profilerStart() -> None:
    fake.log.append("profilerStart")


def profilerStop() -> None:
    fake.log.append("profilerStop")
