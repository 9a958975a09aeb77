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
    """The owner of each span's self time, and the call that each span is.

    Attributes:
        owners: For each span the number of a row, ``-2 - n`` for phase n, or :data:`OUTSIDE`.
        is_call: Whether a span is a call of its owner.
        sites: The call site whose sums a span's time adds to.
    """

    owners: list[int] = field(default_factory=list)
    is_call: list[bool] = field(default_factory=list)
    sites: list[CallSite | None] = field(default_factory=list)


def attribute(
    spans: Spans,
    forwards: Sequence[int],
    sites: Sequence[CallSite],
    index: RowIndex,
    *,
    single_calls: bool,
    network_is_phase: bool,
) -> Attribution:
    """Attribute the spans of a trial to rows.

    Functions that a backward calls are part of it, unless it runs a backpropagation of its own, as
    ``F.forget`` does: then what it calls has rows.

    Args:
        spans: The spans of a trial.
        forwards: For each span that is a backward the span of its call, else -1.
        sites: Call sites by event id.
        index: The rows, to which new ones are added.
        single_calls: Whether each call is a row of its own; else a row is a function of a link in
            a phase.
        network_is_phase: Whether a call of a network is the forward phase, as in a user's loop.
    """
    return _Attributing(spans, forwards, sites, index, single_calls, network_is_phase).run()


class _Attributing:
    def __init__(
        self,
        spans: Spans,
        forwards: Sequence[int],
        sites: Sequence[CallSite],
        index: RowIndex,
        single_calls: bool,
        network_is_phase: bool,
    ) -> None:
        self._spans, self._forwards, self._index = spans, forwards, index
        self._single_calls, self._network_is_phase = single_calls, network_is_phase
        self._sites = [sites[event_id] for event_id in spans.event_ids]
        self._phases: list[str] = []
        # For each span the backward that it is in, or is: -1 for none.
        self._backwards: list[int] = []
        self._recomputing = self._find_recomputing()
        # For each span, whether it is a part of the backward that calls it.
        self._is_part: list[bool] = []
        self._result = Attribution()

    def run(self) -> Attribution:
        result = self._result
        for span, (site, parent) in enumerate(zip(self._sites, self._spans.parents, strict=True)):
            owner, phase = self._owner(span, site, parent)
            around = OUTSIDE if parent < 0 else result.owners[parent]
            is_own = owner is not None
            result.owners.append(around if owner is None else owner)
            result.is_call.append(is_own and site.kind is not Kind.TRIAL)
            result.sites.append(self._site(span, site) if is_own else result.sites[parent])
            self._phases.append(phase or (self._phases[parent] if parent >= 0 else ""))
            self._is_part.append(owner is None and site.kind is Kind.FUNCTION)
        return result

    def _find_recomputing(self) -> set[int]:
        """The backwards within which another backward runs."""
        recomputing = set()
        for span, (site, parent) in enumerate(zip(self._sites, self._spans.parents, strict=True)):
            around = self._backwards[parent] if parent >= 0 else -1
            is_backward = site.kind is Kind.BACKWARD
            if is_backward and around >= 0:
                recomputing.add(around)
            self._backwards.append(span if is_backward else around)
        return recomputing

    def _owner(self, span: int, site: CallSite, parent: int) -> tuple[int | None, str]:
        """Owner and phase of a span; None and an empty string if the enclosing span owns it."""
        kind = site.kind
        if kind is Kind.TRIAL:
            return OUTSIDE, ""
        if kind is Kind.STEP:
            return self._number(site.path, site.function, site.phase, step=True), site.phase
        if kind is Kind.FUNCTION:
            return self._function(site, parent), ""
        if kind is Kind.BACKWARD:
            return self._backward(span, site), BACKWARD
        if kind is Kind.PHASE or (kind is Kind.NETWORK and self._network_is_phase):
            if self._result.owners[parent] >= 0:  # a row owns it
                return None, ""
            number = self._index.phase_number(site.phase)
            return (OUTSIDE if number is None else -2 - number), site.phase
        return None, ""

    def _function(self, site: CallSite, parent: int) -> int | None:
        backward = self._backwards[parent]
        if self._sites[parent].kind is Kind.SUM:
            owner = self._result.owners[backward] if backward >= 0 else OUTSIDE
            path = self._index.rows[owner].path if owner >= 0 else site.path
            return self._number(path, ACCUMULATION, BACKWARD)
        if backward >= 0 and backward not in self._recomputing:
            return None
        phase = self._phases[parent] or FORWARD
        around = self._result.owners[parent]
        is_nested = self._sites[parent].kind is Kind.FUNCTION and around >= 0
        return self._number(site.path, site.function, phase, parent=around if is_nested else None)

    def _backward(self, span: int, site: CallSite) -> int:
        call = self._forwards[span]
        if call < 0:
            return self._number(site.path, site.function, BACKWARD)
        owner = self._result.owners[call]
        if self._is_part[call] or owner < 0:  # part of a backward, as its own backward is
            return owner
        row = self._index.rows[owner]
        forward = owner if row.phase != BACKWARD else None
        key = (BACKWARD, owner) if self._single_calls else None
        return self._number(row.path, row.function, BACKWARD, forward=forward, key=key)

    def _number(
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
        """Number of a row; :data:`OUTSIDE` if it is unknown and rows may not be added."""
        row = Row(self._index.shown(path), function, phase, parent, forward)
        if not self._single_calls or step:
            number = self._index.number(row.key, row)
        else:
            number = self._index.number(key or ("call", len(self._result.owners)), row)
        return OUTSIDE if number is None else number

    def _site(self, span: int, site: CallSite) -> CallSite | None:
        """The call site of a span; None for the backward of a part of a backward."""
        call = self._forwards[span] if site.kind is Kind.BACKWARD else -1
        return None if call >= 0 and self._is_part[call] else site
