"""Attribution: assigns the time of each span of a trial to a row or a phase."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from chainer_profile.measure.call_sites import ACCUMULATION, CallSite, Kind
from chainer_profile.measure.rows import FORWARD, Row, RowIndex
from chainer_profile.measure.spans import TRIAL, Spans

BACKWARD = "backward"
#: The owner of time outside of all rows and phases. Phase ``n`` has the owner ``-2 - n``.
OUTSIDE = -1


@dataclass(eq=False, slots=True)
class Context:
    """A call site within the spans around it. Spans with one context have the same owner.

    Attributes:
        kind: The kind of the spans.
        owner: The number of a row, ``-2 - n`` for phase n, or :data:`OUTSIDE`.
        phase: The phase of the spans.
        site: The call site that their self time counts for; None if it is unknown.
        is_call: Whether a span is a call of its owner; otherwise it is a part of a call.
        backward: The innermost backward around the spans, or this context if it is one.
        is_recomputing: Whether the spans are backwards within which another backward runs.
        is_part: Whether the spans are functions that are part of the backward that calls them.
        inner: The contexts within this one. The key has the event id, the context of a backward's
            forward call, and ``is_recomputing``.
    """

    kind: Kind
    owner: int
    phase: str
    site: CallSite | None
    is_call: bool
    backward: Context | None = None
    is_recomputing: bool = False
    is_part: bool = False
    inner: dict[tuple[int, Context | None, bool], Context] = field(default_factory=dict)


class Contexts:
    """Finds the contexts of spans, and the row or phase of each context.

    Functions that a backward calls are part of it, unless it runs a backpropagation of its own, as
    ``F.forget`` does: then each of these functions has a row.

    Args:
        sites: Call sites by event id.
        index: The rows, to which new ones are added.
        single_calls: Whether each call is a row of its own, so that no spans share a context; else
            a row is a function of a link in a phase.
        network_is_phase: Whether a call of a network is the forward phase, as in a user's loop.
    """

    def __init__(
        self,
        sites: Sequence[CallSite],
        index: RowIndex,
        *,
        single_calls: bool,
        network_is_phase: bool,
    ) -> None:
        self.index = index
        self._sites = sites
        self._single_calls, self._network_is_phase = single_calls, network_is_phase
        self._outermost = Context(Kind.TRIAL, OUTSIDE, "", sites[TRIAL], is_call=False)
        self._n_contexts = 0

    def __len__(self) -> int:
        return self._n_contexts

    def of_spans(self, spans: Spans, forward_events: NDArray[np.int64]) -> list[Context]:
        """Return the context of each span of a trial.

        Args:
            spans: The spans.
            forward_events: For each backward, the index of its forward call's begin event; any
                other number if that call is not in the trial.
        """
        forwards = self._forward_calls(spans, forward_events)
        begins, ends = spans.begins, spans.ends
        recomputing = {span for span, next_ in pairwise(forwards) if begins[next_] < ends[span]}
        contexts: list[Context] = []
        for span, (event_id, parent) in enumerate(zip(spans.event_ids, spans.parents, strict=True)):
            around = contexts[parent] if parent >= 0 else self._outermost
            call = forwards.get(span, -1)
            key = event_id, contexts[call] if call >= 0 else None, span in recomputing
            context = None if self._single_calls else around.inner.get(key)
            if context is None:
                context = around.inner[key] = self._new_context(around, *key)
            contexts.append(context)
        return contexts

    def _forward_calls(self, spans: Spans, forward_events: NDArray[np.int64]) -> dict[int, int]:
        """Return the span of each backward's forward call by the backward's span; -1 if none."""
        ids = {event_id for event_id in set(spans.event_ids) if self._sites[event_id].is_backward}
        backwards = [span for span, event_id in enumerate(spans.event_ids) if event_id in ids]
        begins = np.array(spans.begins)
        found = np.searchsorted(begins, forward_events).clip(max=len(begins) - 1)
        calls = np.where(begins[found] == forward_events, found, -1)
        # An interrupt while a backward is logged may leave one call without it.
        return dict(zip(backwards, calls.tolist(), strict=False))

    def _new_context(
        self, around: Context, event_id: int, forward: Context | None, is_recomputing: bool
    ) -> Context:
        """Make the context of an event id within another context."""
        self._n_contexts += 1
        site = self._sites[event_id]
        found, phase = self._find_owner(site, around, forward)
        is_own = found is not None
        context = Context(
            site.kind,
            around.owner if found is None else found,
            phase or around.phase,
            _summed_site(site, forward) if is_own else around.site,
            is_call=is_own and site.kind is not Kind.TRIAL,
            backward=around.backward,
            is_recomputing=is_recomputing,
            is_part=not is_own and site.kind is Kind.FUNCTION,
        )
        if site.kind is Kind.BACKWARD:
            context.backward = context
        return context

    def _find_owner(
        self, site: CallSite, around: Context, forward: Context | None
    ) -> tuple[int | None, str]:
        """Return the owner and phase of a site within a context.

        None means the owner of the context, and an empty phase means its phase.
        """
        kind = site.kind
        if kind is Kind.TRIAL:
            return OUTSIDE, ""
        if kind is Kind.STEP:
            return self._row_number(site.path, site.function, site.phase, step=True), site.phase
        if kind is Kind.FUNCTION:
            return self._owner_of_function(site, around), ""
        if kind is Kind.SUM:
            return self._owner_of_sum(site, around), ""
        if kind is Kind.BACKWARD:
            return self._owner_of_backward(site, forward), BACKWARD
        if kind is Kind.PHASE or (kind is Kind.NETWORK and self._network_is_phase):
            if around.owner >= 0:  # a row owns it
                return None, ""
            number = self.index.phase_number(site.phase)
            return (OUTSIDE if number is None else -2 - number), site.phase
        return None, ""

    def _owner_of_function(self, site: CallSite, around: Context) -> int | None:
        """Return the row of a call of a function; None if it is part of a backward."""
        if around.backward is not None and not around.backward.is_recomputing:
            return None
        is_nested = around.kind is Kind.FUNCTION and around.owner >= 0
        caller = around.owner if is_nested else None
        return self._row_number(site.path, site.function, around.phase or FORWARD, parent=caller)

    def _owner_of_sum(self, site: CallSite, around: Context) -> int:
        """Return the row of a sum of gradients; an enclosing backward has the same path."""
        owner = OUTSIDE if around.backward is None else around.backward.owner
        path = self.index.rows[owner].path if owner >= 0 else site.path
        return self._row_number(path, ACCUMULATION, BACKWARD)

    def _owner_of_backward(self, site: CallSite, forward: Context | None) -> int:
        """Return the row of a backward, or the owner of the backward that it is part of."""
        if forward is None:
            return self._row_number(site.path, site.function, BACKWARD)
        owner = forward.owner
        if forward.is_part or owner < 0:  # part of a backward, as its own backward is
            return owner
        row = self.index.rows[owner]
        of_forward = owner if row.phase != BACKWARD else None
        key = (BACKWARD, owner) if self._single_calls else None
        return self._row_number(row.path, row.function, BACKWARD, forward=of_forward, key=key)

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
        row = Row(self.index.rename_path(path), function, phase, parent, forward)
        if not self._single_calls or step:
            number = self.index.number(row.key, row)
        else:
            number = self.index.number(key or ("call", self._n_contexts), row)
        return OUTSIDE if number is None else number


def _summed_site(site: CallSite, forward: Context | None) -> CallSite | None:
    """Return the call site of a span; None for a backward of a call inside another backward."""
    return None if forward is not None and forward.is_part else site
