"""Where a network runs: the CPU, or a GPU through CuPy."""

from __future__ import annotations

import time
from typing import Any

from chainer_profile.clock import HOST_CLOCK, Clock
from chainer_profile.errors import ProfileError, one_line

_INSTALL = "python -m pip install -r requirements-gpu.txt"


def move_to_gpu(model: Any, array: Any, gpu: int) -> tuple[Any, Clock]:
    """Move a network and its input to a GPU.

    Args:
        model: The network, a :class:`chainer.Link`; moved in place.
        array: Its input array on the host.
        gpu: The device's number.

    Returns:
        The array on the device, and a clock that waits for the device before each reading. So
        each layer's time is that of its kernels, at the price that launches no longer overlap.

    Raises:
        ProfileError: CuPy, the driver or the device is missing.
    """
    try:
        import cupy
    except Exception as error:  # not only ImportError: a broken installation raises anything
        if isinstance(error, ModuleNotFoundError) and error.name == "cupy":
            problem = f"CuPy is not installed; install it with: {_INSTALL}"
        else:
            problem = f"CuPy cannot be imported ({_last_line(error)}); install it anew: {_INSTALL}"
        raise ProfileError(f"--gpu {gpu}: {problem}") from error
    try:
        count = int(cupy.cuda.runtime.getDeviceCount())
    except Exception as error:  # CuPy's own exception types cannot be named without CuPy
        raise ProfileError(
            f"--gpu {gpu}: CuPy {cupy.__version__} finds no usable CUDA driver or device "
            f"({_last_line(error)}); run without --gpu for the CPU"
        ) from error
    if gpu >= count:
        known = "only --gpu 0" if count == 1 else f"--gpu 0 to {count - 1}"
        raise ProfileError(f"--gpu {gpu}: there is no such device; this machine has {known}")
    import chainer

    try:
        device = chainer.get_device(f"@cupy:{gpu}")
        device.use()
        model.to_device(device)
        array = device.send(array)
    except Exception as error:
        raise ProfileError(
            f"--gpu {gpu}: the network cannot be moved there: {one_line(error)}"
        ) from error
    return array, clock_of(device)


def clock_of(device: Any) -> Clock:
    """The clock for work on one of Chainer's devices; on a GPU it waits before each reading."""
    if not getattr(device.xp, "__name__", "").startswith("cupy"):
        return HOST_CLOCK
    stream = device.xp.cuda.get_current_stream()

    def now_ns() -> int:
        stream.synchronize()
        return time.perf_counter_ns()

    return Clock(now_ns)


def _last_line(error: BaseException) -> str:
    """The line of a long message that names the cause: CuPy's end with the original error."""
    lines = [line.strip(" =") for line in str(error).splitlines()]
    return next((line for line in reversed(lines) if line), type(error).__name__)
