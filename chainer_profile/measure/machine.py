"""What the machine can do at best, measured or kept: rates of matrix products and of memory.

These are the two limits of the roofline model (Williams, Waterman and Patterson 2009): no function
computes faster than a large matrix product, none moves data faster than a pass over a large array.
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
from chainer_profile.basics.files import as_json, replacing
from chainer_profile.basics.free_memory import free_nbytes
from chainer_profile.basics.units import plural
from chainer_profile.kernels.memory import array_in_new_pages, array_outside_heap
from chainer_profile.measure.clock import HOST_CLOCK, Clock
from chainer_profile.measure.environment import CpuWatch
from chainer_profile.measure.passes import Pass
from chainer_profile.measure.threads import limit_blas_threads
from chainer_profile.record.recording import Environment, MachineLimits, Recording
from chainer_profile.record.versioned import build

#: CPU time for the matrix products, and for each of the two passes over memory.
MATRIX_S, PASS_S = 0.25, 0.1
#: Where others take the processors, each takes so many times as long.
_MOST_WALL_PER_CPU = 4
#: About how long all of it takes at most: a run with less time left takes kept limits alone.
ALL_SECONDS = 2.0
#: Sides of the matrices: large enough for full speed, small enough for a fraction of a second.
_SIDES = (512, 1024, 2048)
_GPU_SIDES = (2048, 4096, 8192)
#: CPU time that a matrix product may take with its warm-up, and the gain by a larger side from
#: which a still larger one is tried.
_MOST_MATRIX_S = 1.0
_LEAST_GAIN = 1.1
#: The array: larger than a core's part of the last cache, smaller than what others would miss.
_MOST_NBYTES, _LEAST_NBYTES = 1 << 27, 1 << 25
_GPU_NBYTES = 1 << 30
#: The part of the free memory that all arrays together take at most.
_MEMORY_PART = 10
#: Others keep fewer processor cores busy, or a smaller part of all, where the machine is quiet.
_BUSY_CORES = 0.25
_BUSY_PART = 0.05


@dataclass(frozen=True)
class Device:
    """Where to measure, and with what."""

    name: str  # ``cpu``, or ``gpu:0`` and so on
    xp: Any  # NumPy or CuPy
    clock: Clock  # that of a GPU waits for the device
    nbytes: int  # of the array that is read and written; all arrays take no more at a time
    sides: tuple[int, ...]  # of the matrices to multiply, in ascending order
    gpu: str = ""  # what the GPU is called


def find_device(name: str) -> Device:
    """The device of this name: ``cpu``, or ``gpu:0`` and so on."""
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
    """Limits, whether they are kept for later runs, and what is wrong with that or them."""

    limits: MachineLimits
    saved: bool = True
    note: str = ""


def saved_limits(environment: Environment, device: Device) -> MachineLimits | None:
    """The limits of this machine if an earlier run has kept them; nothing is measured."""
    return load_limits().get(limits_key(environment, device))


def find_limits(
    environment: Environment, device: Device, *, refresh: bool = False, quiet: bool = False
) -> LimitsResult:
    """The limits of this machine as they are kept, or else measured and kept from then on."""
    # What was measured beside busy programs is kept as well, with a mark: it may be too low. On a
    # quiet machine it is measured once more; the best of both is kept.
    kept = None if refresh else saved_limits(environment, device)
    if kept is not None and not (kept.busy and quiet):
        return LimitsResult(kept, note=_BUSY if kept.busy else "")
    watch = CpuWatch()
    limits = measure_limits(environment, device)
    limits = replace(limits, busy=_is_busy(watch.other_cpu(), environment))
    if kept is not None:
        limits = _best(limits, kept)
    note = _BUSY if limits.busy else ""
    try:
        save_limits(limits)
    except ProfileError as error:
        return LimitsResult(limits, False, str(error))
    return LimitsResult(limits, True, note)


_BUSY = "other programs were busy, so the limits may be higher"


def _is_busy(other_cpu: float | None, environment: Environment) -> bool:
    """Whether other programs kept so many cores busy that a limit may be too low."""
    most = max(_BUSY_CORES, _BUSY_PART * (environment.usable_cores or 0))
    return other_cpu is not None and other_cpu >= most


def _rates(limits: MachineLimits) -> dict[str, Any]:
    return {name: rate for name, rate in vars(limits).items() if name.endswith("_per_s")}


def _best(new: MachineLimits, kept: MachineLimits) -> MachineLimits:
    """The higher rates of two: other programs only make a run slower."""
    before = _rates(kept)
    rates = {name: rate and max(rate, before[name]) for name, rate in _rates(new).items()}
    return replace(new, **rates)


def _limits_of(recording: Recording, left_s: float) -> MachineLimits | None:
    """The limits of a recording's machine; with too little time those that are kept, if any."""
    device, where = find_device(recording.settings.device), recording.environment
    if left_s < ALL_SECONDS:
        return saved_limits(where, device)
    other_cpu = recording.conditions.other_cpu
    quiet = other_cpu is not None and not _is_busy(other_cpu, where)
    return find_limits(where, device, quiet=quiet).limits


LIMITS = Pass(
    "limits",
    lambda timed: _limits_of(timed.recording, timed.left_s),
    "the machine's limits were not measured: {}",
)


def with_saved_limits(recording: Recording, warn: Callable[[str], None]) -> Recording:
    """A recording with the limits of its machine, where an earlier run has kept them."""
    try:
        return replace(recording, limits=_limits_of(recording, 0))
    except Exception as error:
        warn(LIMITS.fails.format(one_line(error)))
        return recording


def measure_limits(environment: Environment, device: Device) -> MachineLimits:
    """Measure the limits of this machine, with as many BLAS threads as the environment says."""
    # NumPy works in one thread, as Chainer's functions do. What a pass reads and writes counts
    # twice.
    on_gpu = device.name != "cpu"
    threads = max((library.threads for library in environment.blas), default=0)
    if not on_gpu and device.nbytes < _LEAST_NBYTES:
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
    """What limits depend on: the processor, its cores, libraries, kernels, threads; or the GPU."""
    if device.name != "cpu":
        return f"{device.name}, {device.gpu}, CuPy {environment.cupy}"
    blas = [
        " ".join(filter(None, (lib.name, lib.version, lib.kernels, f"x{lib.threads}")))
        for lib in environment.blas
    ]
    cores = environment.usable_cores
    processor = f"{environment.processor}, {'unknown' if cores is None else plural(cores, 'core')}"
    return ", ".join([device.name, processor, f"NumPy {environment.numpy}", *blas])


def array_nbytes(free: int | None, most: int = _MOST_NBYTES) -> int:
    """Size of an array beyond a core's part of the caches, in whole pages: a tenth of what is free
    at most.
    """
    nbytes = most if free is None else min(most, free // _MEMORY_PART)
    return max(1, nbytes // 4096) * 4096


def _in_place_rate(device: Device) -> float:
    """Bytes a second of a pass that reads an array and writes it in place."""
    # Memory moves what the pass says, and no more. A copy would have to read its target as well,
    # unless it is larger than what the C library holds to be the cache; in a virtual machine, which
    # may see the cache of its host, such a copy would take hundreds of megabytes.
    xp = device.xp
    array = array_in_new_pages(xp, device.nbytes // 4)
    array.fill(1)
    negate = partial(xp.negative, array, out=array)
    return 2 * device.nbytes / _shortest(negate, device.clock, PASS_S)


def _fresh_rate(device: Device) -> float:
    """The same of a copy into new memory, which the system hands out page by page."""
    xp, count = device.xp, device.nbytes // 8
    source = array_in_new_pages(xp, count)
    source.fill(1)
    copy_s = _shortest(
        lambda: xp.copyto(array_in_new_pages(xp, count), source), device.clock, PASS_S
    )
    return 2 * 4 * count / copy_s


def _matmul_rate(device: Device, dtype: Any, threads: int) -> float:
    """Operations per second of the fastest matrix product."""
    # Of matrices of side n: n**3 multiply-adds, each counted as two operations.
    xp = device.xp
    best = 0.0
    for side in device.sides:
        flops = 2 * side**3
        if 3 * side**2 * np.dtype(dtype).itemsize > device.nbytes:
            break
        if best and 2 * flops / best * max(1, threads) > _MOST_MATRIX_S:
            break
        a, b, out = (array_outside_heap(xp, (side, side), 1 / side, dtype) for _ in range(3))
        multiply = partial(xp.matmul, a, b, out=out)
        rate = flops / _shortest(multiply, device.clock, MATRIX_S / len(device.sides))
        before, best = best, max(best, rate)
        if rate < _LEAST_GAIN * before:
            break
    return best


def _shortest(run: Callable[[], object], clock: Clock, seconds: float) -> float:
    """The shortest of repeated runs, in seconds; the first one warms up and does not count."""
    begin_ns, begin_cpu_ns = clock.now_ns(), clock.cpu_ns()
    run()
    shortest_ns = math.inf
    while True:
        start_ns = clock.now_ns()
        run()
        end_ns = clock.now_ns()
        # A clock of coarse steps shows no time at all.
        shortest_ns = min(shortest_ns, max(1, end_ns - start_ns))
        cpu_ns, wall_ns = clock.cpu_ns() - begin_cpu_ns, end_ns - begin_ns
        if max(cpu_ns, wall_ns // _MOST_WALL_PER_CPU) * NS >= seconds:
            return shortest_ns * NS


#: Of the cache of limits; to be raised when they are measured in another way.
_LIMITS_VERSION = 2


def limits_file() -> Path | None:
    """Where the limits of machines are kept; None where the user has no folder for such files."""
    # The XDG Base Directory Specification passes over a relative XDG_CACHE_HOME.
    cache = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(cache):
        cache = os.path.expanduser("~/.cache")
    return Path(cache, "chainer-profile", "machine.json") if os.path.isabs(cache) else None


def load_limits() -> dict[str, MachineLimits]:
    """The limits that are kept, by their keys; what is damaged or foreign is passed over."""
    path = limits_file()
    try:
        content = json.loads(path.read_bytes()) if path is not None else {}
        entries = list(content["limits"]) if content["version"] == _LIMITS_VERSION else []
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return {}
    kept = {}
    for entry in entries:
        with suppress(ValueError):
            limits = build(MachineLimits, entry)
            if all(rate is None or 0 < rate < math.inf for rate in _rates(limits).values()):
                kept[limits.key] = limits
    return kept


def save_limits(limits: MachineLimits) -> None:
    """Keep the limits of a machine, beside those of others that are kept."""
    # Of two programs that do so at the same moment one may go unheard, but the file stays whole.
    path = limits_file()
    if path is None:
        raise ProfileError("there is no home folder; set XDG_CACHE_HOME to a folder")
    kept = load_limits() | {limits.key: limits}
    content = {"version": _LIMITS_VERSION, "limits": [*kept.values()]}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ProfileError(f"{path}: cannot be written ({error.strerror})") from error
    with replacing(path) as file:
        file.write(as_json(content).encode())
