"""Rows: the lines of a profile, with the calls, times and arrays of each."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from chainer_profile.costs.work import Work
from chainer_profile.measure.call_sites import WORK_FIELDS, CallSite
from chainer_profile.measure.links import int_if_whole
from chainer_profile.measure.recorder import MAX_SHAPES
from chainer_profile.record.recording import Layer

FORWARD = "forward"


@dataclass
class SiteSums:
    """Calls and self time, in nanoseconds, of one call site in a row, over all trials."""

    site: CallSite | None  #: None for calls with an unknown site: only their time is known.
    calls: int = 0
    self_ns: int = 0


@dataclass
class Row:
    """A function of a link in a phase, or one call of it.

    Attributes:
        parent: Number of the row within which this one is called, if any.
        forward: For a backward, number of the row of the forward calls, if known.
        sums: The sums of each call site, by its identity.
    """

    path: str
    function: str
    phase: str
    parent: int | None = None
    forward: int | None = None
    sums: dict[int, SiteSums] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str, str]:
        return self.path, self.function, self.phase

    def sums_of(self, site: CallSite | None) -> SiteSums:
        """Return the sums of a call site; add them if it is new."""
        return self.sums.setdefault(id(site), SiteSums(site))

    def layer(self, number: int, trials: int) -> Layer:
        """Describe the row: means over the trials, and shapes of the site with the most time."""
        sums = list(self.sums.values())
        known = [each.site for each in sums if each.site is not None]
        main = max(sums, key=lambda each: each.self_ns, default=SiteSums(None)).site
        main = main or (known[0] if known else None)
        calls = sum(each.calls for each in sums)
        fields = self._fields(main)
        if len(sums) > 1 or calls != trials:
            fields |= {
                name: round(value * calls / max(1, trials))
                for name, value in fields.items()
                if name.endswith("_nbytes") and self.phase == FORWARD
            }
        works = [
            (each.site.work, each.calls)
            for each in sums
            if each.site is not None and each.site.work is not None
        ]
        counted = sum(n for _, n in works)
        # The work of a call without a formula counts as the mean of the others.
        about = counted < calls or len(self.sums) > MAX_SHAPES
        scale = calls / counted / max(1, trials) if counted else 0.0
        mean_calls = int_if_whole(calls / max(1, trials)) if calls else 1
        return self._layer(number, mean_calls, fields, works if counted else [], scale, about)

    def layer_of_calls(self, number: int, sites: Sequence[CallSite | None]) -> Layer:
        """Describe the row if each trial makes the same calls: one of each of these sites."""
        works = [(site.work, 1) for site in sites if site is not None and site.work is not None]
        complete = len(works) == len(sites)
        return self._layer(number, len(sites), self._fields(sites[0]), works if complete else [])

    def _fields(self, site: CallSite | None) -> dict[str, Any]:
        if site is None:
            return {}
        return site.fields | (site.forward_fields if self.phase == FORWARD else {})

    def _layer(
        self,
        number: int,
        calls: float,
        fields: dict[str, Any],
        works: Sequence[tuple[Work, int]],
        scale: float = 1.0,
        about: bool = False,
    ) -> Layer:
        """Make the layer. ``works`` has the work of a call of each site, and its number of calls.

        The work of the layer is their sum times ``scale``; ``about`` marks it as approximate.
        """
        totals: dict[str, Any] = dict.fromkeys(WORK_FIELDS)
        if works:
            for name in WORK_FIELDS:
                totals[name] = round(sum(getattr(work, name) * n for work, n in works) * scale)
            totals["work_is_about"] = about or any(work.about for work, _ in works)
        return Layer(
            number,
            self.path,
            self.function,
            self.phase,
            parent=self.parent,
            forward=self.forward,
            calls=calls,
            **fields,
            **totals,
        )


class RowIndex:
    """The rows so far, and the phases in the order in which they began first.

    Args:
        rename_path: Returns the path in the recording for the path of a call site.
    """

    def __init__(self, rename_path: Callable[[str], str] = str) -> None:
        self.rename_path = rename_path
        self.rows: list[Row] = []
        self.phases: list[str] = []
        #: Whether rows and phases may be added; else unknown ones are left out.
        self.grows = True
        self._numbers: dict[Hashable, int] = {}

    def number(self, key: Hashable, row: Row) -> int | None:
        """Return the number of the row with this key; add ``row`` if the key is new.

        None if the key is new, but no rows may be added.
        """
        number = self._numbers.get(key)
        if number is None and self.grows:
            number = self._numbers[key] = len(self.rows)
            self.rows.append(row)
        return number

    def phase_number(self, phase: str) -> int | None:
        """Return the number of a phase; add it if it is new. None if it may not be added."""
        if phase not in self.phases:
            if not self.grows:
                return None
            self.phases.append(phase)
        return self.phases.index(phase)

    def layers(self, trials: int, begin: int = 0) -> tuple[Layer, ...]:
        """Return the rows from number ``begin`` on, as means over this number of trials."""
        rows = enumerate(self.rows[begin:], begin)
        return tuple(row.layer(number, trials) for number, row in rows)
