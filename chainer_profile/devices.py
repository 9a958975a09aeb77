"""Where a network runs: the CPU, or a GPU through CuPy."""

from __future__ import annotations

import time
from typing import Any

from chainer_profile.clock import Clock
from chainer_profile.errors import ProfileError

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
    except ImportError as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == "cupy"
        problem = (
            "CuPy is not installed"
            if missing
            else f"CuPy cannot be imported ({_first_line(error)})"
        )
        raise ProfileError(f"--gpu {gpu}: {problem}; install it with: {_INSTALL}") from None
    try:
        count = int(cupy.cuda.runtime.getDeviceCount())
    except Exception as error:  # CuPy's own exception types cannot be named without CuPy
        raise ProfileError(
            f"--gpu {gpu}: CuPy {cupy.__version__} finds no usable CUDA driver or device "
            f"({_first_line(error)}); run without --gpu for the CPU"
        ) from None
    if gpu >= count:
        raise ProfileError(f"--gpu {gpu}: there is no such device; this machine has {count}")
    import chainer

    device = chainer.get_device(f"@cupy:{gpu}")
    device.use()
    model.to_device(device)
    stream = cupy.cuda.get_current_stream()

    def now_ns() -> int:
        stream.synchronize()
        return time.perf_counter_ns()

    return device.send(array), Clock(now_ns)


def _first_line(error: BaseException) -> str:
    lines = [line.strip(" =") for line in str(error).splitlines()]
    return next((line for line in lines if line), type(error).__name__)
