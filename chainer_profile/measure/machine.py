"""What the machine can do at best: the rate of matrix products and of copies, as measured.

The two limits of the roofline model (Williams, Waterman and Patterson 2009, "Roofline: an
insightful visual performance model for multicore architectures"): no function computes faster than
a large matrix product, and none moves data faster than a large copy.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil

from chainer_profile.basics.describe import NS
from chainer_profile.basics.errors import ProfileError, one_line
from chainer_profile.kernels.memory import apart
from chainer_profile.measure.clock import HOST_CLOCK, Clock
from chainer_profile.measure.environment import CpuWatch
from chainer_profile.measure.gpu_environment import known
from chainer_profile.measure.limits import load_limits, save_limits
from chainer_profile.measure.threads import limited
from chainer_profile.record.recording import MachineLimits

if TYPE_CHECKING:
    from chainer_profile.record.recording import Environment, Recording

#: Time for each of the three or four kinds of runs, and about how long all of them take.
SECONDS = 0.9
ALL_SECONDS = 4.0
#: Sides of the matrices: large enough for full speed, small enough for a fraction of a second.
_SIDES = (512, 1024, 2048)
_GPU_SIDES = (2048, 4096, 8192)
_LEAST_COPY_NBYTES = 1 << 28
_MOST_COPY_NBYTES = 1 << 31
_GPU_COPY_NBYTES = 1 << 30
_CACHE_TIMES = 4
#: Others keep fewer processor cores busy, or a smaller part of all, where limits hold.
_BUSY_CORES = 0.25
_BUSY_PART = 0.05
#: Three arrays are there at a time; most of the memory stays free.
_MEMORY_PARTS = 8


@dataclass(frozen=True)
class Device:
    """Where to measure, and with what.

    Attributes:
        name: ``cpu``, or ``gpu:0`` and so on.
        xp: NumPy or CuPy.
        clock: The clock; that of a GPU waits for the device.
        copy_nbytes: Size of the array to copy.
        sides: Sides of the matrices to multiply, in ascending order.
        gpu: What the GPU is called; empty for the CPU.
    """

    name: str
    xp: Any
    clock: Clock
    copy_nbytes: int
    sides: tuple[int, ...]
    gpu: str = ""


def find_device(name: str) -> Device:
    """The device of this name: ``cpu``, or ``gpu:0`` and so on.

    Raises:
        ProfileError: CuPy, the driver or the device is missing.
    """
    if name == "cpu":
        return Device(name, np, HOST_CLOCK, copy_nbytes(), _SIDES)
    import chainer

    from chainer_profile.measure.devices import move_to_gpu

    number = int(name.removeprefix("gpu:"))
    # A network without links stands in for the one that move_to_gpu would move.
    array, clock = move_to_gpu(chainer.Link(), np.zeros(1, np.float32), number)
    xp = chainer.backend.get_array_module(array)
    try:
        properties = xp.cuda.runtime.getDeviceProperties(number)
        free_nbytes, _ = xp.cuda.runtime.memGetInfo()
    except Exception as error:  # CuPy's own exception types cannot be named without CuPy
        raise ProfileError(f"--gpu {number}: cannot be asked: {one_line(error)}") from error
    return Device(
        name,
        xp,
        clock.waiting(),
        _whole_pages(min(_GPU_COPY_NBYTES, free_nbytes // _MEMORY_PARTS)),
        _GPU_SIDES,
        bytes(properties["name"]).decode(errors="replace"),
    )


@dataclass(frozen=True)
class Found:
    """Limits, and where they come from.

    Attributes:
        limits: The limits.
        kept: Whether they are in the cache for later runs.
        note: What is wrong with them, or why they are not kept; or empty.
    """

    limits: MachineLimits
    kept: bool = True
    note: str = ""


def kept_limits(environment: Environment, device: Device) -> MachineLimits | None:
    """The limits of this machine if an earlier run has kept them; nothing is measured.

    Args:
        environment: The environment in which the limits are to hold, BLAS threads included.
        device: The device; see :func:`find_device`.
    """
    return load_limits().get(limits_key(environment, device))


def find_limits(environment: Environment, device: Device, *, refresh: bool = False) -> Found:
    """The limits of this machine as they are kept, or else measured and kept from then on.

    What was measured beside busy programs is too low for other runs, and is not kept; unless the
    user wants to measure again, on a machine that may never be quiet.

    Args:
        environment: The environment in which the limits are to hold, BLAS threads included.
        device: Where to measure; see :func:`find_device`.
        refresh: Whether to measure though there are limits.

    Raises:
        ProfileError: They cannot be measured.
    """
    known = None if refresh else kept_limits(environment, device)
    if known is not None:
        return Found(known)
    watch = CpuWatch()
    limits = measure_limits(environment, device)
    other = watch.other_cpu()
    note = ""
    if other is not None and other >= max(
        _BUSY_CORES, _BUSY_PART * (environment.usable_cores or 0)
    ):
        note = f"other programs kept {other:.1f} cores busy: the limits may be higher"
        if not refresh:
            return Found(limits, False, note)
    try:
        save_limits(limits)
    except ProfileError as error:
        return Found(limits, False, str(error))
    return Found(limits, True, note)


def with_limits(recording: Recording, left_s: float = float("inf")) -> Recording:
    """A recording with the limits of its machine; without those that are not known.

    Args:
        recording: The recording.
        left_s: Seconds that there are: limits are measured only where these are enough.

    Raises:
        Exception: They cannot be measured.
    """
    device, collected = find_device(recording.settings.device), recording.environment
    if left_s >= ALL_SECONDS:
        return replace(recording, limits=find_limits(collected, device).limits)
    return replace(recording, limits=kept_limits(collected, device))


def measure_limits(
    environment: Environment, device: Device, seconds: float = SECONDS
) -> MachineLimits:
    """Measure the limits of this machine, with as many BLAS threads as the environment says.

    Each limit is the best of repeated runs: other programs can only make a run slower. A copy
    reads and writes every byte once, so it moves twice its size; NumPy copies in one thread, as
    Chainer's functions do. The time of a copy into new memory includes giving the memory back.

    Args:
        environment: What the limits are kept by; see :func:`limits_key`.
        device: Where to measure; see :func:`find_device`.
        seconds: Time for each kind of runs.

    Raises:
        ProfileError: There is too little memory, or the GPU fails.
    """
    on_gpu = device.name != "cpu"
    threads = max((library.threads for library in environment.blas), default=0)
    try:
        with limited(threads or None):
            flops_per_s = _matmul_rate(device, np.float32, seconds)
            half_flops_per_s = _matmul_rate(device, np.float16, seconds) if on_gpu else None
            copy_s, fresh_s = _copy_seconds(device, seconds)
    except MemoryError as error:
        raise ProfileError("there is too little memory to measure the machine's limits") from error
    except Exception as error:  # CuPy's own exception types cannot be named without CuPy
        if not on_gpu:
            raise
        raise ProfileError(f"{device.name}: cannot be measured: {one_line(error)}") from error
    return MachineLimits(
        key=limits_key(environment, device),
        device=device.name,
        measured=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        threads=threads,
        flops_per_s=flops_per_s,
        half_flops_per_s=half_flops_per_s,
        copy_nbytes_per_s=2 * device.copy_nbytes / copy_s,
        fresh_nbytes_per_s=2 * device.copy_nbytes / fresh_s,
        copied_nbytes=device.copy_nbytes,
    )


def limits_key(environment: Environment, device: Device) -> str:
    """What limits depend on: the processor, its cores, libraries, kernels, threads; or the GPU."""
    if device.name != "cpu":
        return f"{device.name}, {device.gpu}, CuPy {environment.cupy}"
    blas = [
        " ".join(filter(None, (lib.name, lib.version, lib.kernels, f"x{lib.threads}")))
        for lib in environment.blas
    ]
    processor = f"{environment.processor}, {environment.usable_cores} cores"
    return ", ".join([device.name, processor, f"NumPy {environment.numpy}", *blas])


def copy_nbytes() -> int:
    """Size of an array that no cache holds: four times the last-level one, at least 256 MiB.

    At most 2 GiB, and at most an eighth of the memory that is free.
    """
    wanted = max(_LEAST_COPY_NBYTES, _CACHE_TIMES * last_level_cache_nbytes())
    free_nbytes = known(
        lambda: psutil.virtual_memory().available, _MEMORY_PARTS * _LEAST_COPY_NBYTES
    )
    return _whole_pages(min(wanted, _MOST_COPY_NBYTES, free_nbytes // _MEMORY_PARTS))


def last_level_cache_nbytes(folder: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> int:
    """Size of the largest cache that the system tells of; 0 where it does not."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    sizes = [0]
    for path in folder.glob("index*/size"):
        try:
            text = path.read_text().strip()
            unit = units.get(text[-1:])
            sizes.append(int(text) if unit is None else int(text[:-1]) * unit)
        except (OSError, ValueError):
            continue
    return max(sizes)


def _whole_pages(nbytes: int) -> int:
    return max(1, nbytes // 4096) * 4096


def _copy_seconds(device: Device, seconds: float) -> tuple[float, float]:
    """The shortest copies, in seconds: into memory that is in use, and into new memory."""
    xp = device.xp
    source = xp.ones(device.copy_nbytes // 4, np.float32)
    target = xp.ones_like(source)

    def copy() -> None:
        xp.copyto(target, source)

    return _shortest(copy, device.clock, seconds), _shortest(source.copy, device.clock, seconds)


def _matmul_rate(device: Device, dtype: Any, seconds: float) -> float:
    """Operations per second of the fastest matrix product.

    A product of matrices of side n has n**3 multiply-adds, each counted as two operations. A side
    that would take longer than the time for all of them is left out.
    """
    xp = device.xp
    best = 0.0
    for side in device.sides:
        flops = 2 * side**3
        if best and 2 * flops / best > seconds:
            break
        a, b, out = (apart(xp, (side, side), 1 / side, dtype) for _ in range(3))

        def multiply(a: Any = a, b: Any = b, out: Any = out) -> None:
            xp.matmul(a, b, out=out)

        shortest = _shortest(multiply, device.clock, seconds / len(device.sides))
        best = max(best, flops / shortest)
    return best


def _shortest(run: Callable[[], object], clock: Clock, seconds: float) -> float:
    """The shortest of repeated runs, in seconds; the first one warms up and does not count."""
    begin_ns = clock.now_ns()
    run()
    shortest_ns = None
    while True:
        start_ns = clock.now_ns()
        run()
        end_ns = clock.now_ns()
        # A clock of coarse steps shows no time at all.
        taken_ns = max(1, end_ns - start_ns)
        shortest_ns = taken_ns if shortest_ns is None else min(shortest_ns, taken_ns)
        if (end_ns - begin_ns) * NS >= seconds:
            return shortest_ns * NS
