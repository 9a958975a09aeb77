"""The machine's limits: the highest rates of computation and of memory, measured or saved earlier.

These are the two limits of the roofline model (Williams, Waterman and Patterson 2009): no function
computes faster than a large matrix product, and none moves data faster than a pass over a large
array.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from chainer_profile.basics.describe import NS
from chainer_profile.basics.errors import ProfileError, one_line
from chainer_profile.basics.files import as_json, read_regular, replacing
from chainer_profile.basics.free_memory import free_nbytes
from chainer_profile.basics.units import plural
from chainer_profile.kernels.memory import array_in_new_pages, array_outside_heap
from chainer_profile.measure.clock import HOST_CLOCK, Clock
from chainer_profile.measure.environment import CpuWatch
from chainer_profile.measure.passes import Pass
from chainer_profile.measure.threads import limit_blas_threads
from chainer_profile.record.parts import BUSY_CORES
from chainer_profile.record.recording import Environment, MachineLimits, Recording
from chainer_profile.record.versioned import build

#: CPU time for the matrix products, and for each of the two passes over memory, in seconds.
MATRIX_S, PASS_S = 0.25, 0.1
#: If other programs use the cores, a measurement ends after this multiple of the CPU time above.
_MAX_WALL_PER_CPU = 4
#: Longest duration of all measurements. A run with less time left only looks for saved limits.
ALL_SECONDS = 2.0
#: Sides of the matrices: large enough for the full rate, and fast enough to multiply.
_SIDES = (512, 1024, 2048)
_GPU_SIDES = (2048, 4096, 8192)
#: CPU time that two products of one size may take.
_MAX_MATRIX_S = 1.0
#: A larger size is tried if the last one increased the rate by this factor.
_MIN_GAIN = 1.1
#: Most and least bytes of the array: more than a core's share of the last-level cache, but little
#: enough to leave memory to other programs.
_MAX_NBYTES, _MIN_NBYTES = 1 << 27, 1 << 25
_GPU_NBYTES = 1 << 30
#: All arrays together take at most the free memory divided by this number.
_MEMORY_DIVISOR = 10
#: Limits are too low if other programs use ``BUSY_CORES``, and at least this fraction of all cores.
_BUSY_FRACTION = 0.05


@dataclass(frozen=True)
class Device:
    """A device to measure, with the sizes of the arrays."""

    name: str  # ``cpu``, ``gpu:0`` and so on
    xp: Any  # NumPy or CuPy
    clock: Clock  # waits for a GPU before each reading
    nbytes: int  # size of the array to read and write, and of all arrays together at most
    sides: tuple[int, ...]  # sides of the matrices to multiply, in ascending order
    gpu: str = ""  # product name of the GPU


def find_device(name: str) -> Device:
    """Find a device by its name, such as ``cpu`` or ``gpu:0``.

    Raises:
        ProfileError: There is no such GPU, or it does not answer.
    """
    if name == "cpu":
        return Device(name, np, HOST_CLOCK, array_nbytes(free_nbytes()), _SIDES)
    from chainer_profile.measure.devices import clock_of, use_gpu

    number = int(name.removeprefix("gpu:"))
    used = use_gpu(number)
    xp = used.xp
    try:
        properties = xp.cuda.runtime.getDeviceProperties(number)
        free, _ = xp.cuda.runtime.memGetInfo()
    except Exception as error:  # CuPy's own exception types cannot be named without CuPy
        raise ProfileError(f"--gpu {number}: cannot be queried: {one_line(error)}") from error
    return Device(
        name,
        xp,
        clock_of(used).waiting(),
        array_nbytes(free, _GPU_NBYTES),
        _GPU_SIDES,
        bytes(properties["name"]).decode(errors="replace"),
    )


@dataclass(frozen=True)
class LimitsResult:
    """Limits, whether they are saved for later runs, and a note about them for the user."""

    limits: MachineLimits
    saved: bool = True
    note: str = ""


def saved_limits(environment: Environment, device: Device) -> MachineLimits | None:
    """Limits of this machine that an earlier run has saved, or None."""
    return load_limits().get(limits_key(environment, device))


def find_limits(
    environment: Environment, device: Device, *, refresh: bool = False, quiet: bool = False
) -> LimitsResult:
    """Load the limits of this machine, or measure and save them.

    Limits that were measured on a busy machine may be too low. They are saved with a flag, and
    measured again when the machine is ``quiet``. ``refresh`` measures in any case.

    Raises:
        ProfileError: Measuring fails, as in :func:`measure_limits`.
    """
    saved = None if refresh else saved_limits(environment, device)
    if saved is not None and not (saved.busy and quiet):
        return LimitsResult(saved, note=_BUSY if saved.busy else "")
    watch = CpuWatch()
    limits = measure_limits(environment, device)
    limits = replace(limits, busy=_is_busy(watch.other_cpu(), environment))
    if saved is not None:
        limits = _best(limits, saved)
    note = _BUSY if limits.busy else ""
    try:
        save_limits(limits)
    except ProfileError as error:
        return LimitsResult(limits, False, str(error))
    return LimitsResult(limits, True, note)


_BUSY = "other programs were busy, so the limits may be higher"


def _is_busy(other_cpu: float | None, environment: Environment) -> bool:
    """Whether other programs used enough cores to make a limit too low."""
    threshold = max(BUSY_CORES, _BUSY_FRACTION * (environment.usable_cores or 0))
    return other_cpu is not None and other_cpu >= threshold


def _rates(limits: MachineLimits) -> dict[str, Any]:
    """The rates of the limits, by the names of their fields; None for a rate that is unknown."""
    return {name: rate for name, rate in vars(limits).items() if name.endswith("_per_s")}


def _best(new: MachineLimits, saved: MachineLimits) -> MachineLimits:
    """Take the higher one of each rate, since other programs only reduce it."""
    saved_rates = _rates(saved)
    rates = {name: rate and max(rate, saved_rates[name]) for name, rate in _rates(new).items()}
    return replace(new, **rates)


def _limits_of(recording: Recording, left_s: float) -> MachineLimits | None:
    """Find the limits of a recording's machine; measure them only if there is enough time."""
    device, environment = find_device(recording.settings.device), recording.environment
    if left_s < ALL_SECONDS:
        return saved_limits(environment, device)
    other_cpu = recording.conditions.other_cpu
    quiet = other_cpu is not None and not _is_busy(other_cpu, environment)
    return find_limits(environment, device, quiet=quiet).limits


LIMITS = Pass(
    "limits",
    lambda timed: _limits_of(timed.recording(), timed.left_s),
    "the machine's limits were not measured: {}",
)


def with_saved_limits(recording: Recording, warn: Callable[[str], None]) -> Recording:
    """Add the limits of its machine to a recording if an earlier run has saved them.

    A failure only gives a warning.
    """
    try:
        return replace(recording, limits=_limits_of(recording, 0))
    except Exception as error:
        warn(LIMITS.failure.format(one_line(error)))
        return recording


def measure_limits(environment: Environment, device: Device) -> MachineLimits:
    """Measure the limits of this machine with the BLAS threads of the environment.

    The passes over memory run in one thread, as Chainer's functions do in NumPy.

    Raises:
        ProfileError: There is too little memory, or the GPU fails.
    """
    on_gpu = device.name != "cpu"
    threads = max((library.threads for library in environment.blas), default=0)
    if not on_gpu and device.nbytes < _MIN_NBYTES:
        raise ProfileError(TOO_LITTLE)
    try:
        with limit_blas_threads(threads or None):
            flops_per_s = _matmul_rate(device, np.float32, threads)
            half_flops_per_s = _matmul_rate(device, np.float16, threads) if on_gpu else None
            in_place_rate, fresh_rate = _in_place_rate(device), _fresh_rate(device)
    except MemoryError as error:
        raise ProfileError(TOO_LITTLE) from error
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
        copy_nbytes_per_s=in_place_rate,
        fresh_nbytes_per_s=fresh_rate,
        copied_nbytes=device.nbytes,
    )


TOO_LITTLE = "there is not enough memory to measure the machine's limits"


def limits_key(environment: Environment, device: Device) -> str:
    """Key of the saved limits: the processor, its cores and libraries, or the GPU and CuPy."""
    if device.name != "cpu":
        return f"{device.name}, {device.gpu}, CuPy {environment.cupy}"
    blas = [
        " ".join(filter(None, (lib.name, lib.version, lib.kernels, f"x{lib.threads}")))
        for lib in environment.blas
    ]
    cores = environment.usable_cores
    processor = f"{environment.processor}, {'unknown' if cores is None else plural(cores, 'core')}"
    return ", ".join([device.name, processor, f"NumPy {environment.numpy}", *blas])


def array_nbytes(free: int | None, max_nbytes: int = _MAX_NBYTES) -> int:
    """Bytes of an array to measure: ``max_nbytes``, but at most a tenth of the ``free`` bytes.

    Rounded down to whole pages.
    """
    nbytes = max_nbytes if free is None else min(max_nbytes, free // _MEMORY_DIVISOR)
    return max(1, nbytes // 4096) * 4096


def _in_place_rate(device: Device) -> float:
    """Bytes per second, read and written, of a pass that changes an array in place."""
    # Such a pass moves exactly these bytes. A copy also reads its target into the cache, unless it
    # is larger than the C library's estimate of the cache. In a virtual machine that sees its
    # host's cache, such a copy would need hundreds of megabytes.
    xp = device.xp
    array = array_in_new_pages(xp, device.nbytes // 4)
    array.fill(1)
    negate = partial(xp.negative, array, out=array)
    return 2 * device.nbytes / _shortest(negate, device.clock, PASS_S)


def _fresh_rate(device: Device) -> float:
    """Bytes per second, read and written, of a copy into new pages, with their page faults."""
    xp, count = device.xp, device.nbytes // 8
    source = array_in_new_pages(xp, count)
    source.fill(1)
    copy_s = _shortest(
        lambda: xp.copyto(array_in_new_pages(xp, count), source), device.clock, PASS_S
    )
    return 2 * 4 * count / copy_s


def _matmul_rate(device: Device, dtype: Any, threads: int) -> float:
    """Floating-point operations per second of the fastest matrix product."""
    xp = device.xp
    best = 0.0
    for side in device.sides:
        flops = 2 * side**3  # a multiply-add is two operations
        if 3 * side**2 * np.dtype(dtype).itemsize > device.nbytes:
            break
        if best and 2 * flops / best * max(1, threads) > _MAX_MATRIX_S:
            break
        a, b, out = (array_outside_heap(xp, (side, side), 1 / side, dtype) for _ in range(3))
        multiply = partial(xp.matmul, a, b, out=out)
        rate = flops / _shortest(multiply, device.clock, MATRIX_S / len(device.sides))
        previous, best = best, max(best, rate)
        if rate < _MIN_GAIN * previous:
            break
    return best


def _shortest(run: Callable[[], object], clock: Clock, seconds: float) -> float:
    """Shortest time of repeated runs in seconds, after one warm-up.

    They are repeated until they have taken ``seconds`` of CPU time.
    """
    begin_ns, begin_cpu_ns = clock.now_ns(), clock.cpu_ns()
    run()
    shortest_ns = math.inf
    while True:
        start_ns = clock.now_ns()
        run()
        end_ns = clock.now_ns()
        # A coarse clock may show no time at all.
        shortest_ns = min(shortest_ns, max(1, end_ns - start_ns))
        cpu_ns, wall_ns = clock.cpu_ns() - begin_cpu_ns, end_ns - begin_ns
        if max(cpu_ns, wall_ns // _MAX_WALL_PER_CPU) * NS >= seconds:
            return shortest_ns * NS


#: Version of the file of limits. Increase it when they are measured in another way.
_LIMITS_VERSION = 2


def limits_file() -> Path | None:
    """File with the saved limits; None if the user has no cache folder."""
    # The XDG Base Directory Specification ignores a relative XDG_CACHE_HOME.
    cache = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(cache):
        cache = os.path.expanduser("~/.cache")
    return Path(cache, "chainer-profile", "machine.json") if os.path.isabs(cache) else None


def load_limits() -> dict[str, MachineLimits]:
    """Load the saved limits by their keys; ignore damaged entries and other versions."""
    path = limits_file()
    try:
        content = json.loads(read_regular(path)) if path is not None else {}
        entries = list(content["limits"]) if content["version"] == _LIMITS_VERSION else []
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return {}
    saved = {}
    for entry in entries:
        with suppress(ValueError):
            limits = build(MachineLimits, entry)
            if all(rate is None or 0 < rate < math.inf for rate in _rates(limits).values()):
                saved[limits.key] = limits
    return saved


def save_limits(limits: MachineLimits) -> None:
    """Add the limits of a machine to the file of saved limits.

    Raises:
        ProfileError: The file cannot be written.
    """
    # If two programs do this at the same time, one entry may be lost, but the file stays valid.
    path = limits_file()
    if path is None:
        raise ProfileError("there is no home folder; set XDG_CACHE_HOME to a folder")
    saved = load_limits() | {limits.key: limits}
    content = {"version": _LIMITS_VERSION, "limits": [*saved.values()]}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ProfileError(f"{path}: cannot be written ({error.strerror})") from error
    with replacing(path) as file:
        file.write(as_json(content).encode())
