"""The device of a network: the CPU, or a GPU through CuPy."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import chainer

from chainer_profile.basics.errors import ProfileError, UsageError, one_line
from chainer_profile.basics.words import GPU_REQUIREMENTS
from chainer_profile.measure.arguments import Arguments
from chainer_profile.measure.clock import HOST_CLOCK, Clock, Event
from chainer_profile.measure.environment import cuda_version

_INSTALL = f"python -m pip install {GPU_REQUIREMENTS}"
#: A kernel of one thread that reads the GPU's clock in a loop until the time is over.
_HOLD = """
extern "C" __global__ void hold(long long nanoseconds) {
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
    do {
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    } while (now - start < (unsigned long long)nanoseconds);
}
"""


class CudaQueue:
    """CUDA's current stream on CuPy's current device; a :class:`.clock.DeviceQueue`."""

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self._kernel: Any = None

    def new_event(self) -> Event:
        event: Event = self._cupy.cuda.Event()
        return event

    def elapsed_ms(self, start: Event, end: Event) -> float:
        return float(self._cupy.cuda.get_elapsed_time(start, end))

    def synchronize(self) -> None:
        self._cupy.cuda.runtime.deviceSynchronize()

    def hold(self, nanoseconds: int) -> None:
        if self._kernel is None:
            self._kernel = self._cupy.RawKernel(_HOLD, "hold")
        self._kernel((1,), (1,), (self._cupy.int64(nanoseconds),))

    def memory_nbytes(self) -> tuple[int, int]:
        """Free and total bytes of the device's memory; unused blocks of CuPy's pool are free."""
        free, total = self._cupy.cuda.runtime.memGetInfo()
        pool = self._cupy.get_default_memory_pool()
        return int(free) + int(pool.free_bytes()), int(total)


def use_gpu(gpu: int) -> Any:
    """Make a GPU the current device, and return Chainer's device object.

    Raises:
        ProfileError: CuPy or the GPU is missing, or cannot be used.
    """
    try:
        import cupy
    except Exception as error:  # not only ImportError: a broken installation raises anything
        if isinstance(error, ModuleNotFoundError) and error.name == "cupy":
            problem = f"CuPy is not installed; install it with: {_INSTALL}"
        else:
            problem = f"CuPy cannot be imported ({_last_line(error)}); reinstall it: {_INSTALL}"
        raise ProfileError(f"--gpu {gpu}: {problem}") from error
    try:
        count = int(cupy.cuda.runtime.getDeviceCount())
    except Exception as error:  # CuPy's own exception types cannot be named without CuPy
        raise ProfileError(f"--gpu {gpu}: {_no_device(cupy, error)}") from error
    if count < 1:
        raise ProfileError(
            f"--gpu {gpu}: this machine has no visible GPU; leave out --gpu to run on the CPU"
        )
    if gpu >= count:
        numbers = "only --gpu 0" if count == 1 else f"--gpu 0 to {count - 1}"
        raise ProfileError(f"--gpu {gpu}: no such device; this machine has {numbers}")
    try:
        device = chainer.get_device(f"@cupy:{gpu}")
        device.use()
    except Exception as error:
        raise ProfileError(f"--gpu {gpu}: cannot be used: {one_line(error)}") from error
    return device


def _no_device(cupy: Any, error: Exception) -> str:
    """Explain why CuPy finds no device."""
    name = f"CuPy {cupy.__version__}"
    with suppress(Exception):
        driver = int(cupy.cuda.runtime.driverGetVersion())
        cuda = int(cupy.cuda.runtime.runtimeGetVersion())
        if not driver:  # CUDA's own message would be that the driver is too old
            return f"{name} finds no NVIDIA driver; leave out --gpu to run on the CPU"
        if driver // 1000 < cuda // 1000:
            return (
                f"the driver supports CUDA up to {cuda_version(driver)}, but {name} needs "
                f"{cuda_version(cuda)}: update the driver, or install cupy-cuda{driver // 1000}x "
                "instead"
            )
    return (
        f"{name} finds no usable CUDA driver or device ({_last_line(error)}); leave out --gpu to "
        "run on the CPU"
    )


def move_to_gpu(model: Any, array: Any, gpu: int) -> tuple[Any, Clock]:
    """Move a network and its input to a GPU; return the input there, and the GPU's clock.

    Raises:
        ProfileError: The GPU cannot be used, or a part of the network stays on the host.
    """
    device = use_gpu(gpu)
    try:
        model.to_device(device)
        send = device.send
        array = array.converted(send) if isinstance(array, Arguments) else send(array)
    except Exception as error:
        raise ProfileError(
            f"--gpu {gpu}: the network cannot be moved to it: {one_line(error)}"
        ) from error
    left = _left_on_host(model, device.xp)
    if left:
        raise ProfileError(
            f"--gpu {gpu}: {left} of the network stays on the host. Let the network's to_device "
            "or device_resident_accept move it, and keep no copies of arrays"
        )
    return array, clock_of(device)


def _left_on_host(model: Any, xp: Any) -> str:
    """Path of the first parameter or persistent array that is not on the device; empty if none."""
    for path, link in model.namedlinks():
        arrays = {name: getattr(link, name) for name in sorted(link._params | link._persistent)}
        for name, value in arrays.items():
            array = getattr(value, "array", value)
            # Chainer does not move numbers that are kept as arrays without axes.
            if getattr(array, "shape", ()) and not isinstance(array, xp.ndarray):
                return f"{path.rstrip('/')}/{name}"
    return ""


def clock_of(device: Any) -> Clock:
    """Clock for work on one of Chainer's devices; a GPU's clock has its queue."""
    if not getattr(device.xp, "__name__", "").startswith("cupy"):
        return HOST_CLOCK
    return Clock(time.perf_counter_ns, CudaQueue(device.xp))


def device_of(model: Any) -> Any:
    """Chainer's device of a network's parameters, or else of the network itself."""
    # The device of a link may be wrong if its children were moved without it.
    params = model.params(include_uninit=False)
    return next((param.device for param in params if param.array is not None), model.device)


def only_device_of(model: Any) -> Any:
    """Chainer's device of a network; raises a UsageError if its parameters are on several."""
    params = [param for param in model.params(include_uninit=False) if param.array is not None]
    names = sorted({device_name(param.device) for param in params})
    if len(names) > 1:
        raise UsageError(
            f"the network is on {' and '.join(names)}: move all of it to one device, such as with "
            'model.to_device("@cupy:0")'
        )
    return device_of(model)


def device_name(device: Any) -> str:
    """Name of one of Chainer's devices in recordings: ``cpu``, ``gpu:0``."""
    number = getattr(getattr(device, "device", None), "id", None)
    return "cpu" if number is None else f"gpu:{number}"


def _last_line(error: BaseException) -> str:
    """Last line of an error's text; CuPy's long messages end with the original error."""
    lines = [line.strip(" =") for line in str(error).splitlines()]
    return next((line for line in reversed(lines) if line), type(error).__name__)
