"""The kernels pass: what the GPU runs for every layer, by CUPTI.

On entering a window a number is pushed as CUPTI's external correlation id, and popped on leaving.
CUPTI notes which number was on top at every call of CUDA, and at which call everything that ran was
launched: so a kernel belongs to the innermost window that launched it, however late it ran.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from importlib import metadata
from typing import TYPE_CHECKING, Any

from chainer_profile.basics.errors import ProfileError, one_line
from chainer_profile.measure.calls import BACKWARD
from chainer_profile.measure.hooks import watching
from chainer_profile.measure.ranges import Ranges
from chainer_profile.record.recording import Kernel, Kernels

if TYPE_CHECKING:
    from chainer_profile.measure.calls import Entry
    from chainer_profile.measure.clock import DeviceQueue
    from chainer_profile.measure.structure import Structure
    from chainer_profile.measure.windows import Step

TRIALS = 8
_PACKAGE = "cupti-python"
_BUFFER_NBYTES = 8 << 20
_FORCED = 1
#: External ids of a trial begin at its number, from 1, times this.
_IDS = 1 << 32


class Activities:
    """What CUPTI tells of: what ran, and what launched it. Its records may come in any order.

    Args:
        cupti: The module of the package cupti-python.

    Attributes:
        dropped: Records that CUPTI had no room for.
    """

    def __init__(self, cupti: Any) -> None:
        self._cupti = cupti
        self._external_kind = cupti.ExternalCorrelationKind.CUSTOM0
        self.dropped = 0
        self._ran: list[tuple[int, str, int]] = []
        self._external: dict[int, int] = {}

    def add(self, records: Iterable[Any]) -> None:
        """Take what is needed out of records, which CUPTI may overwrite afterwards."""
        kinds = self._cupti.ActivityKind
        for one in records:
            kind = one.kind
            if kind == kinds.EXTERNAL_CORRELATION:
                if one.external_kind == self._external_kind:
                    self._external[one.correlation_id] = one.external_id
                continue
            if kind in (kinds.CONCURRENT_KERNEL, kinds.KERNEL):
                name = one.name
            elif kind == kinds.MEMCPY:
                name = f"memcpy {self._cupti.ActivityMemcpyKind(one.copy_kind).name}"
            elif kind == kinds.MEMSET:
                name = "memset"
            else:  # a call of the host
                continue
            self._ran.append((one.correlation_id, name, one.end - one.start))

    def by_layer(self, rows: Mapping[int, int | None]) -> tuple[Kernel, ...]:
        """What ran, joined to what launched it.

        Args:
            rows: Of every external id that counts, the index of the layer that launches under it;
                None for no layer. What was launched under another id is left out. What has none,
                or lost it with a dropped record, has no layer.
        """
        found: dict[tuple[int | None, str], list[int]] = {}
        # Correlation ids are counted up with the calls of CUDA.
        for correlation_id, name, time_ns in sorted(self._ran):
            external = self._external.get(correlation_id)
            if external is None or external in rows:
                row = None if external is None else rows[external]
                sums = found.setdefault((row, name), [0, 0])
                sums[0] += 1
                sums[1] += time_ns
        return tuple(
            Kernel(demangled(name), row, *found[row, name])
            for row, name in sorted(found, key=lambda key: (key[0] is None, key[0] or 0))
        )

    @contextmanager
    def collecting(self, device: DeviceQueue) -> Iterator[None]:
        """Within this CUPTI notes what is launched; at the end all of it is here."""
        cupti = self._cupti
        kinds = cupti.ActivityKind
        device.synchronize()
        cupti.activity_register_callbacks(lambda: (_BUFFER_NBYTES, 0), self.add)
        with ExitStack() as stack:
            # External ids come with the records of calls: CuPy's launches are calls of the driver,
            # those of cuBLAS of the runtime.
            for kind in (
                kinds.EXTERNAL_CORRELATION,
                kinds.RUNTIME,
                kinds.DRIVER,
                kinds.CONCURRENT_KERNEL,
                kinds.MEMCPY,
                kinds.MEMSET,
            ):
                cupti.activity_enable(kind)
                stack.callback(cupti.activity_disable, kind)
            yield
            device.synchronize()
            cupti.activity_flush_all(_FORCED)
            dropped = ctypes.c_size_t()
            with suppress(Exception):  # what is there is good without the number
                cupti.activity_get_num_dropped_records(0, 0, ctypes.addressof(dropped))
            self.dropped = dropped.value

    @contextmanager
    def under(self, external_id: int) -> Iterator[None]:
        """Within this the thread launches under an id."""
        self._cupti.activity_push_external_correlation_id(self._external_kind, external_id)
        try:
            yield
        finally:
            self._cupti.activity_pop_external_correlation_id(self._external_kind)


def measure_kernels(
    step: Step,
    structure: Structure,
    device: DeviceQueue,
    stop: Callable[[], object] = lambda: None,
) -> Kernels:
    """Run a few trials under CUPTI, and say what the GPU ran for every layer.

    Trials of other kinds than the structure's are run and left out.

    Args:
        step: What a trial runs, within its configuration.
        structure: Its windows.
        device: The device's queue.
        stop: Ends it when it says something.

    Raises:
        ProfileError: CUPTI refuses, or tells of nothing.
    """
    cupti, method = _find_cupti()
    if cupti is None:
        problem = f"{_PACKAGE} is not installed; docs/gpu.md says which one to take"
        return Kernels(problem=problem)
    activities = Activities(cupti)
    windows = [(what, nbytes == BACKWARD) for what, nbytes in structure.windows]
    n_layers = len(structure.layers)
    owners = [row if 0 <= row < n_layers else None for row in structure.owners.tolist()]
    rows: dict[int, int | None] = {}
    trials = 0
    try:
        with activities.collecting(device):
            for first in range(_IDS, (TRIALS + 1) * _IDS, _IDS):
                if _entered(step, structure, activities, first) == windows:
                    trials += 1
                    rows |= {first: None} | dict(enumerate(owners, first + 1))
                if stop():
                    break
    except Exception as error:
        if not type(error).__module__.startswith("cupti"):
            raise
        raise ProfileError(
            f"CUPTI refuses ({one_line(error)}); it serves one profiler at a time, so run without "
            "nsys, ncu and others"
        ) from error
    kernels = activities.by_layer(rows)
    if not trials or not kernels:
        told = "CUPTI tells of no kernel" if trials else "no trial made the calls of the others"
        raise ProfileError(told)
    return Kernels(trials, kernels, activities.dropped, method)


def _entered(
    step: Step, structure: Structure, activities: Activities, first: int
) -> list[tuple[Entry, bool]]:
    """Run a trial under ids from the first on; what it entered, and whether as a backward."""
    ranges = Ranges(lambda read: activities.under(first + 1 + read))
    with ExitStack() as stack:
        stack.enter_context(activities.under(first))
        stack.callback(ranges.close)
        stack.enter_context(watching(step, ranges, structure.raising))
        step()
    return ranges.entered


def _find_cupti() -> tuple[Any, str]:
    """The module, None where the package is not installed; and what it is, in words."""
    try:
        from cupti import cupti
    except ModuleNotFoundError as error:
        if error.name != "cupti":
            raise
        return None, ""
    return cupti, f"{_PACKAGE} {metadata.version(_PACKAGE)}"


def demangled(name: str) -> str:
    """The name of a kernel as it is written in C++, where the C++ library is there to tell."""
    if not name.startswith("_Z"):
        return name
    try:
        demangle = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
        free = ctypes.CDLL(None).free
    except OSError:
        return name
    demangle.restype = ctypes.c_void_p
    free.argtypes = (ctypes.c_void_p,)
    found = demangle(name.encode(), None, None, None)
    if not found:
        return name
    try:
        return ctypes.string_at(found).decode()
    finally:
        free(found)
