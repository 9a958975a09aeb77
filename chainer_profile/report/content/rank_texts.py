"""Sentences about the ranks of a training: the answer, and where an iteration's time goes."""

from __future__ import annotations

from collections.abc import Iterator

from chainer_profile.basics.units import (
    format_count,
    format_duration,
    format_factor,
    format_percent,
    plural,
)
from chainer_profile.comparison.significance import MIN_TRIALS
from chainer_profile.ranks.merging import Ranks, typical_s
from chainer_profile.ranks.stragglers import SlowRank, Straggler
from chainer_profile.report.content.rank_tables import straggling_layer
from chainer_profile.report.text import model_name, printable

#: The answer names at most this number of slow ranks, and of stragglers.
_MAX_NAMED = 3
#: The answer names no straggler with less than this fraction of the longest straggler's excess: it
#: may be a consequence of that one.
_MIN_SHARE_OF_LONGEST = 0.2


def title(ranks: Ranks) -> str:
    """The network and its ranks: ``net on 4 ranks``."""
    return f"{model_name(ranks.settings)} on {plural(ranks.size, 'rank')}"


def verdict(ranks: Ranks) -> str:
    """The slow ranks and the stragglers, or the reason why none are named."""
    judged = ranks.judged
    if len(ranks.ranks) < 2:
        number = ranks.ranks[0].number
        return f"Only rank {number} is recorded, so there is nothing to compare it with."
    if not judged.judged:
        return f"No verdict: fewer than {MIN_TRIALS} iterations do not show how much is noise."
    sentences = [_slow_rank_text(ranks, slow) for slow in judged.slow[:_MAX_NAMED]]
    if more := len(judged.slow) - len(sentences):
        are = "is" if more == 1 else "are"
        sentences.append(f"{plural(more, 'more rank')} {are} slow.")
    longest_s = max((straggler.costs_s for straggler in judged.stragglers), default=0.0)
    min_s = longest_s * _MIN_SHARE_OF_LONGEST
    large = [each for each in judged.stragglers if each.costs_s >= min_s][:_MAX_NAMED]
    sentences += [_straggler_text(ranks, straggler) for straggler in large]
    if more := len(judged.stragglers) - len(large):
        are = "is" if more == 1 else "are"
        sentences.append(f"{plural(more, 'other straggler')} {are} listed below.")
    return " ".join(sentences) or "No rank and no layer is significantly slower than the others."


def _slow_rank_text(ranks: Ranks, slow: SlowRank) -> str:
    return (
        f"Rank {ranks.ranks[slow.rank].number} is slow as a whole: its layers take "
        f"{format_factor(slow.factor)} the time of the other ranks' layers, "
        f"{format_duration(slow.excess_s)} more in each iteration."
    )


def _straggler_text(ranks: Ranks, straggler: Straggler) -> str:
    layer, number = straggling_layer(ranks, straggler), ranks.ranks[straggler.rank].number
    name = printable(f"{layer.function} at {layer.path} in {layer.phase}")
    longer = f"{format_duration(straggler.costs_s)} longer on rank {number} than on the others"
    if not straggler.at_times:
        return f"{name} takes {longer}."
    return (
        f"{name} takes on average {longer}, and {format_duration(straggler.late_s)} longer in its "
        "slowest iterations (95th percentile)."
    )


def time_texts(ranks: Ranks) -> Iterator[str]:
    """The time of an iteration, the share of communication, and which rank arrives last."""
    count = len(ranks.iterations)
    whole_s = typical_s(ranks.iteration_ns)
    if not ranks.communication_ns.any():
        yield f"An iteration takes {format_duration(whole_s)}; no communication was recorded."
        return
    communication_s = typical_s(ranks.communication_ns + ranks.between_ns)
    parts = ""
    if ranks.collectives:
        waiting, moving, between = (
            format_duration(typical_s(times))
            for times in (
                ranks.waiting_ns.sum(axis=2),
                ranks.moving_ns.sum(axis=2),
                ranks.between_ns,
            )
        )
        parts = (
            f": {waiting} waiting for the last rank, {moving} moving, {between} between collectives"
        )
    yield (
        f"An iteration takes {format_duration(whole_s)}, "
        f"{format_percent(communication_s / whole_s)} of it communication{parts} (means of the "
        "ranks)."
    )
    if ranks.collectives and len(ranks.ranks) > 1:
        last_rank = int(ranks.last.argmax())
        yield (
            f"The others most often wait for rank {ranks.ranks[last_rank].number}: in "
            f"{format_count(round(ranks.last[last_rank] * count))} of {plural(count, 'iteration')}."
        )
    if ranks.size > 1:
        yield (
            f"{ranks.size} ranks are about {ranks.size * ranks.efficiency:.2f} times as fast "
            f"as one (estimate: {ranks.size} x {format_percent(ranks.efficiency)}, the share "
            "of an iteration without communication)."
        )
