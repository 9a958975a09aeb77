"""Machine, versions, threads, commit and GPU of a run.

CuPy and NVML (if it is installed) describe a GPU. A value that cannot be read is left out; it never
ends the run.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import psutil
from threadpoolctl import threadpool_info

from chainer_profile.basics.parsing import gpu_number, usable_core_numbers, usable_cores
from chainer_profile.basics.words import VERSION
from chainer_profile.record.parts import BUSY_CORES
from chainer_profile.record.recording import BlasLibrary, Environment, Gpu, GpuState

T = TypeVar("T")

#: The folder that contains this package; in a clone it is the top folder of the repository.
_SOURCES = Path(__file__).resolve().parents[2]
#: Environment variables that choose a library's instructions, by threadpoolctl's library name.
#: OPENBLAS_L2_SIZE is not listed: kernels of current processors ignore it.
_VARIABLES = {
    "openblas": ("OPENBLAS_CORETYPE",),
    "mkl": ("MKL_ENABLE_INSTRUCTIONS", "MKL_CBWR", "MKL_DEBUG_CPU_TYPE"),
    "blis": ("BLIS_ARCH_TYPE",),
    "numpy": ("NPY_DISABLE_CPU_FEATURES", "NPY_ENABLE_CPU_FEATURES"),
}


def collect(device: str = "cpu") -> Environment:
    """Collect the current environment. NumPy's BLAS is only found if NumPy has been imported."""
    gpu = gpu_number(device)
    blas: tuple[BlasLibrary, ...] = value_or(blas_libraries, ())
    chainer, numpy, cupy = map(sys.modules.get, ("chainer", "numpy", "cupy"))
    return Environment(
        started=datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        processor=_processor(),
        physical_cores=value_or(lambda: psutil.cpu_count(logical=False), None),
        usable_cores=usable_cores(),
        memory_nbytes=value_or(lambda: psutil.virtual_memory().total, None),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        chainer=value_or(
            lambda: chainer.__version__ if chainer else metadata.version("chainer"), ""
        ),
        numpy=getattr(numpy, "__version__", ""),
        cupy=getattr(cupy, "__version__", ""),
        profiler=VERSION,
        commit=value_or(lambda: commit_of(_SOURCES), ""),
        blas=blas,
        gpu=None if gpu is None else collect_gpu(gpu),
        variables=_variables([library.name for library in blas]),
    )


def _variables(libraries: list[str]) -> tuple[str, ...]:
    """Environment variables of NumPy and these libraries that are set, as ``NAME=value``."""
    return tuple(
        f"{name}={os.environ[name]}"
        for library, names in _VARIABLES.items()
        if library in [*libraries, "numpy"]
        for name in names
        if os.environ.get(name)
    )


def blas_libraries() -> tuple[BlasLibrary, ...]:
    """BLAS libraries that NumPy calls, with their current threads.

    If their paths do not show that they are NumPy's, these are all BLAS libraries of the process.
    """
    libraries = [info for info in threadpool_info() if info["user_api"] == "blas"]
    # SciPy's wheels contain another BLAS, which Chainer's functions do not call.
    numpys = [info for info in libraries if "numpy" in Path(info["filepath"]).parent.name]
    return tuple(
        BlasLibrary(
            name=str(info["internal_api"]),
            version=str(info.get("version") or ""),
            threads=int(info["num_threads"]),
            kernels=str(info.get("architecture") or ""),
        )
        for info in numpys or libraries
    )


def _processor() -> str:
    """Name of the processor."""
    # platform.processor() is empty or only an architecture on Linux.
    with suppress(OSError), Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as file:
        for line in file:
            name, _, value = line.partition(":")
            if name.strip() in ("model name", "Model"):
                return value.strip()
    return platform.processor() or platform.machine()


def commit_of(sources: Path) -> str:
    """Commit of the git repository whose top folder is ``sources``.

    It ends with "-dirty" if files have been changed. It is empty if ``sources`` is not the top
    folder of a repository.
    """
    top = _git(sources, "rev-parse", "--show-toplevel")
    if not top or not Path(top).samefile(sources):
        return ""
    return _git(sources, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")


def _git(folder: Path, *words: str) -> str:
    """Output of a git command in a folder; empty if the command fails.

    Raises:
        OSError: Git is missing.
        subprocess.TimeoutExpired: It takes longer than 10 s.
    """
    # Git sets GIT_DIR if one of its hooks runs us. Without locks, it does not write into the
    # repository.
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    result = subprocess.run(
        ["git", "-C", str(folder), *words],
        env=own | {"GIT_OPTIONAL_LOCKS": "0"},
        capture_output=True,
        text=True,
        timeout=10,
    )
    return result.stdout.strip() if result.returncode == 0 else ""


# -- GPUs

#: NVML's reasons for lower clocks, by their bits (nvmlClocksEventReasons), without idleness.
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
    """Describe a GPU, its driver and the libraries that CuPy uses."""
    cupy = sys.modules.get("cupy")
    if cupy is None:
        return Gpu(number=number)
    runtime = cupy.cuda.runtime
    properties: dict[str, Any] = value_or(lambda: runtime.getDeviceProperties(number), {})
    nvml, _ = _nvml(number)
    return Gpu(
        number=number,
        name=_text(properties.get("name", "")),
        compute_capability=value_or(lambda: f"{properties['major']}.{properties['minor']}", ""),
        memory_nbytes=value_or(lambda: int(properties["totalGlobalMem"]), None),
        driver=value_or(lambda: _text(nvml.nvmlSystemGetDriverVersion()), ""),
        driver_cuda=value_or(lambda: cuda_version(runtime.driverGetVersion()), ""),
        cuda=value_or(lambda: cuda_version(runtime.runtimeGetVersion()), ""),
        cudnn=cudnn_version(),
        tf32=os.environ.get("CUPY_TF32", "0") not in ("", "0"),
    )


def cudnn_version() -> str:
    """Version of the cuDNN that Chainer calls through CuPy; empty without cuDNN."""
    from chainer.backends import cuda

    if not getattr(cuda, "cudnn_enabled", False):
        return ""
    number = value_or(lambda: int(cuda.cuda.cudnn.getVersion()), 0)
    # 8907 is 8.9.7, and 90100 is 9.1.0.
    scale = 1000 if number < 10_000 else 10_000
    return f"{number // scale}.{number % scale // 100}.{number % 100}" if number else "?"


def gpu_state(number: int) -> GpuState | None:
    """Read a GPU's clocks, temperature, power and throttling; None without NVML."""
    nvml, handle = _nvml(number)
    if nvml is None:
        return None
    reasons = value_or(lambda: int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)), 0)
    return GpuState(
        sm_mhz=value_or(lambda: int(nvml.nvmlDeviceGetClockInfo(handle, 1)), None),
        most_sm_mhz=value_or(lambda: int(nvml.nvmlDeviceGetMaxClockInfo(handle, 1)), None),
        memory_mhz=value_or(lambda: int(nvml.nvmlDeviceGetClockInfo(handle, 2)), None),
        temperature_c=value_or(lambda: int(nvml.nvmlDeviceGetTemperature(handle, 0)), None),
        power_w=value_or(lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000, None),
        throttle=tuple(text for bit, text in _THROTTLE_REASONS.items() if reasons & bit),
    )


def _nvml(number: int) -> tuple[Any, Any]:
    """The module pynvml and its handle of a GPU; both None if it or the driver is missing."""
    # CUDA and NVML may number the devices differently, but they agree on the PCI bus ID.
    with suppress(Exception):
        import pynvml

        pynvml.nvmlInit()
        bus = sys.modules["cupy"].cuda.runtime.deviceGetPCIBusId(number)
        return pynvml, pynvml.nvmlDeviceGetHandleByPciBusId(_text(bus))
    return None, None


def value_or(read: Callable[[], T], default: T) -> T:
    """Return ``read()``, or the default if it fails: a driver may refuse any single value."""
    with suppress(Exception):
        return read()
    return default


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def cuda_version(version: int) -> str:
    """Format CUDA's version number: ``12.9`` for 12090."""
    return f"{version // 1000}.{version % 1000 // 10}"


# -- other programs


class CpuWatch:
    """Measures how many of the usable cores other programs keep busy."""

    def __init__(self) -> None:
        self._start = value_or(self._read, None)

    def other_cpu(self) -> float | None:
        """Mean number of cores that other programs kept busy since this object was made.

        None if it cannot be read or less than 0.1 s has passed.
        """
        end = value_or(self._read, None)
        if self._start is None or end is None:
            return None
        wall, busy, process = (b - a for a, b in zip(self._start, end, strict=True))
        return max(0.0, (busy - process) / wall) if wall > 0.1 else None

    def is_busy(self) -> bool:
        """Whether other programs kept enough cores busy to disturb a measurement."""
        return (self.other_cpu() or 0.0) >= BUSY_CORES

    @staticmethod
    def _read() -> tuple[float, float, float]:
        """Seconds of wall time, CPU time of the usable cores, and CPU time of this process.

        The process includes its children.
        """
        usable = usable_core_numbers()
        cores = [
            times._asdict()
            for core, times in enumerate(psutil.cpu_times(percpu=True))
            if usable is None or core in usable
        ]
        # "user" includes "guest" time; "steal" is time of other virtual machines.
        names = ("user", "nice", "system", "irq", "softirq", "steal", "interrupt", "dpc")
        return (
            time.monotonic(),
            sum(core.get(name, 0.0) for core in cores for name in names),
            _cpu_of_process_s(),
        )


def _cpu_of_process_s() -> float:
    """CPU time of this process and its children, such as the workers of a MultiprocessIterator."""
    process = psutil.Process()
    seconds = 0.0
    children: list[psutil.Process] = value_or(lambda: process.children(recursive=True), [])
    for one in (process, *children):
        with suppress(psutil.Error):  # a child has just ended: its parent has its time
            times = one.cpu_times()
            seconds += times.user + times.system + times.children_user + times.children_system
    return seconds
