"""A stand-in for CUPTI, as the module of cupti-python: it notes what a FakeQueue is given.

As CUPTI's its records come when they are flushed, each external id behind what was launched under
it, and what they hold is gone afterwards.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable, Iterable
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

from tests.fake_queue import FakeQueue


class ActivityKind(IntEnum):
    MEMCPY, MEMSET, KERNEL, DRIVER, RUNTIME = 1, 2, 3, 4, 5
    CONCURRENT_KERNEL, EXTERNAL_CORRELATION = 10, 39


class ActivityMemcpyKind(IntEnum):
    HTOD, DTOH, DTOD = 1, 2, 8


class ExternalCorrelationKind(IntEnum):
    CUSTOM0, CUSTOM1 = 3, 4


class cuptiError(Exception):  # noqa: N801
    """Named as CUPTI's own."""


cuptiError.__module__ = "cupti.cupti"
#: What CUPTI answers to a second user in a process.
BUSY = cuptiError("ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED (39)")


class FakeCupti:
    """The module.

    Args:
        queue: Whose work is noted.
        refuses: What enabling a kind raises.
        dropped: Records of external ids that there is no room for; below 0 it cannot tell.

    Attributes:
        log: What was asked of it.
    """

    ActivityKind = ActivityKind
    ActivityMemcpyKind = ActivityMemcpyKind
    ExternalCorrelationKind = ExternalCorrelationKind

    def __init__(
        self, queue: FakeQueue, refuses: Exception | None = None, dropped: int = 0
    ) -> None:
        self.log: list[str] = []
        self._refuses = refuses
        self._dropped = dropped
        self._enabled: set[int] = set()
        self._external: list[int] = []
        self._calls: Counter[str] = Counter()
        self._records: list[Any] = []
        self._completed: Callable[[Iterable[Any]], None] = list
        queue.watchers.append(self._launched)

    def activity_register_callbacks(self, requested: Any, completed: Any) -> None:
        assert requested()[1] == 0
        self._completed = completed

    def activity_enable(self, kind: int) -> None:
        if self._refuses is not None:
            raise self._refuses
        self._enabled.add(kind)

    def activity_disable(self, kind: int) -> None:
        self._enabled.remove(kind)

    def activity_push_external_correlation_id(self, kind: int, number: int) -> None:
        assert 0 < number < 2**64
        self._external.append(number)

    def activity_pop_external_correlation_id(self, kind: int) -> int:
        return self._external.pop()

    def activity_flush_all(self, flag: int) -> None:
        self._completed(self._records)
        for record in self._records:
            vars(record).clear()
        self._records = []

    def activity_get_num_dropped_records(self, context: int, stream: int, place: int) -> None:
        if self._dropped < 0:
            raise cuptiError("ERROR_NOT_SUPPORTED (27)")
        ctypes.c_size_t.from_address(place).value = self._dropped

    @property
    def idle(self) -> bool:
        """Whether it was left as it was found."""
        return not (self._enabled or self._external)

    def _launched(self, name: str, begin_ns: int, end_ns: int) -> None:
        if not self._enabled:
            return
        self._calls["all"] += 1
        number = self._calls["all"]
        times = {"correlation_id": number, "start": begin_ns, "end": end_ns}
        kind: dict[str, Any] = {"kind": ActivityKind.CONCURRENT_KERNEL, "name": name}
        if name.startswith("memcpy"):
            kind = {"kind": ActivityKind.MEMCPY, "copy_kind": ActivityMemcpyKind.DTOH}
        self._records.append(SimpleNamespace(**times, **kind))
        self._records.append(SimpleNamespace(kind=ActivityKind.DRIVER, correlation_id=number))
        if self._external and number > self._dropped:
            found = {"external_id": self._external[-1], "correlation_id": number}
            of = {"external_kind": ExternalCorrelationKind.CUSTOM0}
            kept = SimpleNamespace(kind=ActivityKind.EXTERNAL_CORRELATION, **found, **of)
            self._records.append(kept)
