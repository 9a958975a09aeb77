"""Attribution: assigns the time of each span of a trial to a row or a phase."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from chainer_profile.measure.call_sites import ACCUMULATION, CallSite, Kind
from chainer_profile.measure.rows import FORWARD, Row, RowIndex
from chainer_profile.measure.spans import Spans

BACKWARD = "backward"
#: The owner of time outside of all rows and phases. Phase ``n`` has the owner ``-2 - n``.
OUTSIDE = -1


@dataclass
class Attribution:
    """The owner of each span's self time, and the call site that it counts for.

    Attributes:
        owners: For each span the number of a row, ``-2 - n`` for phase n, or :data:`OUTSIDE`.
        is_call: Whether a span is a call of its owner; otherwise it is a part of a call.
        sites: The call site that a span's time counts for; None if it is unknown.
    """

    owners: list[int] = field(default_factory=list)
    is_call: list[bool] = field(default_factory=list)
    sites: list[CallSite | None] = field(default_factory=list)


class Attributor:
    """Assigns the spans of one trial to rows and phases.

    Functions that a backward calls are part of it, unless it runs a backpropagation of its own, as
    ``F.forget`` does: then each of these functions has a row.

    Args:
        spans: The spans of the trial.
        forwards: For each backward, the span of its forward call; -1 if that is not in the trial,
            and for all other spans.
        sites: Call sites by event id.
        index: The rows, to which new ones are added.
        single_calls: Whether each call is a row of its own; else a row is a function of a link in
            a phase.
        network_is_phase: Whether a call of a network is the forward phase, as in a user's loop.
    """

    def __init__(
        self,
        spans: Spans,
        forwards: Sequence[int],
        sites: Sequence[CallSite],
        index: RowIndex,
        *,
        single_calls: bool,
        network_is_phase: bool,
    ) -> None:
        self._spans, self._forwards, self._index = spans, forwards, index
        self._single_calls, self._network_is_phase = single_calls, network_is_phase
        self._sites = [sites[event_id] for event_id in spans.event_ids]
        #: For each span, its phase.
        self._phases: list[str] = []
        #: For each span, the innermost backward around it, or itself if it is one; -1 for none.
        self._backwards: list[int] = []
        self._recomputing = self._find_recomputing()
        #: For each span, whether it is a function that is part of the backward that calls it.
        self._is_part: list[bool] = []
        self._result = Attribution()

    def attribute(self) -> Attribution:
        """Find the owner, phase and call site of each span, in the order of their begins."""
        result = self._result
        for span, (site, parent) in enumerate(zip(self._sites, self._spans.parents, strict=True)):
            owner, phase = self._find_owner(span, site, parent)
            parent_owner = OUTSIDE if parent < 0 else result.owners[parent]
            is_own = owner is not None
            result.owners.append(parent_owner if owner is None else owner)
            result.is_call.append(is_own and site.kind is not Kind.TRIAL)
            result.sites.append(self._summed_site(span, site) if is_own else result.sites[parent])
            self._phases.append(phase or (self._phases[parent] if parent >= 0 else ""))
            self._is_part.append(owner is None and site.kind is Kind.FUNCTION)
        return result

    def _find_recomputing(self) -> set[int]:
        """Find the backwards within which another backward runs; fills ``_backwards``."""
        recomputing = set()
        for span, (site, parent) in enumerate(zip(self._sites, self._spans.parents, strict=True)):
            enclosing = self._backwards[parent] if parent >= 0 else -1
            is_backward = site.kind is Kind.BACKWARD
            if is_backward and enclosing >= 0:
                recomputing.add(enclosing)
            self._backwards.append(span if is_backward else enclosing)
        return recomputing

    def _find_owner(self, span: int, site: CallSite, parent: int) -> tuple[int | None, str]:
        """Return the owner and phase of a span.

        The owner None means the parent's owner, and an empty phase means the parent's phase.
        """
        kind = site.kind
        if kind is Kind.TRIAL:
            return OUTSIDE, ""
        if kind is Kind.STEP:
            return self._row_number(site.path, site.function, site.phase, step=True), site.phase
        if kind is Kind.FUNCTION:
            return self._owner_of_function(site, parent), ""
        if kind is Kind.SUM:
            return self._owner_of_sum(site, parent), ""
        if kind is Kind.BACKWARD:
            return self._owner_of_backward(span, site), BACKWARD
        if kind is Kind.PHASE or (kind is Kind.NETWORK and self._network_is_phase):
            if self._result.owners[parent] >= 0:  # a row owns it
                return None, ""
            number = self._index.phase_number(site.phase)
            return (OUTSIDE if number is None else -2 - number), site.phase
        return None, ""

    def _owner_of_function(self, site: CallSite, parent: int) -> int | None:
        """Return the row of a call of a function; None if it is part of a backward."""
        backward = self._backwards[parent]
        if backward >= 0 and backward not in self._recomputing:
            return None
        phase = self._phases[parent] or FORWARD
        parent_owner = self._result.owners[parent]
        is_nested = self._sites[parent].kind is Kind.FUNCTION and parent_owner >= 0
        caller = parent_owner if is_nested else None
        return self._row_number(site.path, site.function, phase, parent=caller)

    def _owner_of_sum(self, site: CallSite, parent: int) -> int:
        """Return the row of a sum of gradients: its path is that of the enclosing backward."""
        backward = self._backwards[parent]
        owner = self._result.owners[backward] if backward >= 0 else OUTSIDE
        path = self._index.rows[owner].path if owner >= 0 else site.path
        return self._row_number(path, ACCUMULATION, BACKWARD)

    def _owner_of_backward(self, span: int, site: CallSite) -> int:
        """Return the row of a backward, or the owner of the backward that it is part of."""
        call = self._forwards[span]
        if call < 0:
            return self._row_number(site.path, site.function, BACKWARD)
        owner = self._result.owners[call]
        if self._is_part[call] or owner < 0:  # part of a backward, as its own backward is
            return owner
        row = self._index.rows[owner]
        forward = owner if row.phase != BACKWARD else None
        key = (BACKWARD, owner) if self._single_calls else None
        return self._row_number(row.path, row.function, BACKWARD, forward=forward, key=key)

    def _row_number(
        self,
        path: str,
        function: str,
        phase: str,
        *,
        step: bool = False,
        parent: int | None = None,
        forward: int | None = None,
        key: tuple[str, int] | None = None,
    ) -> int:
        """Return the number of a row, and add the row if it is new.

        Returns :data:`OUTSIDE` if the row is new and no rows may be added. All calls of a ``step``
        share a row. If every other call is a row, ``key`` identifies it; without a key it is new.
        """
        row = Row(self._index.rename_path(path), function, phase, parent, forward)
        if not self._single_calls or step:
            number = self._index.number(row.key, row)
        else:
            number = self._index.number(key or ("call", len(self._result.owners)), row)
        return OUTSIDE if number is None else number

    def _summed_site(self, span: int, site: CallSite) -> CallSite | None:
        """Return the call site of a span; None for a backward of a call inside another backward."""
        call = self._forwards[span] if site.kind is Kind.BACKWARD else -1
        return None if call >= 0 and self._is_part[call] else site
