"""Changes that were tried -> what is said of them, the answer first."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from chainer_profile.advice.changes import AS_IT_IS
from chainer_profile.advice.results import LEAST_GAIN
from chainer_profile.basics.units import NOT_KNOWN, format_duration, format_factor, plural, roughly
from chainer_profile.record.recording import COMPLETE
from chainer_profile.report.document import Code, Heading, code, listing, points, strong, text
from chainer_profile.report.tables import Table, columns
from chainer_profile.report.text import model_name, printable, settings_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chainer_profile.advice.results import Advice, Tried
    from chainer_profile.engines.results import Speedup
    from chainer_profile.report.document import Block, Words

_TRIALS = {
    "forward": "forward pass",
    "forward-backward": "forward and backward pass",
    "train": "training step",
}
#: Changes whose layers are shown.
_MOST_SHOWN = 2


def report(advice: Advice) -> list[Block]:
    return [
        Heading(1, f"What was tried on {model_name(advice.settings)}"),
        *section(advice),
        Heading(2, "Method"),
        *([Code(printable(advice.settings.command))] if advice.settings.command else []),
        points(_METHOD),
    ]


def section(advice: Advice) -> Iterator[Block]:
    """What was tried, and what came of it, for the report of a run."""
    yield text(strong(verdict(advice)))
    if advice.ended != COMPLETE:
        yield text(
            f"The search ended before everything was tried ({advice.ended}).", note=True, below=True
        )
    if advice.helping:
        yield Table(_COLUMNS, advice.helping, "What helps")
        yield text(
            "Compared with the unchanged network, with "
            f"{plural(advice.settings.threads or 1, 'BLAS thread')}; milliseconds are wall time of "
            "one input. Each row comes from pairs of new processes that were started after the "
            "change had been chosen."
        )
        yield points((strong(one.candidate.name), ": ", *keeping(one)) for one in advice.helping)
    for one in [one for one in advice.helping if one.layers][:_MOST_SHOWN]:
        yield text(f"Where {one.candidate.name} helped the most:")
        yield Table(_LAYER_COLUMNS, one.layers, f"Layers under {one.candidate.name}")
    vain = [one for one in advice.tried if not (one.helps or one.error)]
    unsure, settled = ([one for one in vain if one.open == is_open] for is_open in (True, False))
    failed = [f"{one.candidate.name}: {one.error}" for one in advice.tried if one.error]
    for said, found in (
        ("Undecided; run again with a larger --budget:", map(_vain, unsure)),
        ("Tried, no gain:", map(_vain, settled)),
        ("What failed:", failed),
        ("Not tried:", [f"{one.name}: {one.why}" for one in advice.untried]),
    ):
        yield from (block for points in listing(found) for block in (text(said), points))
    yield text(
        f"{settings_text(advice.settings)}; this took {roughly(advice.took_s)} of the "
        f"{roughly(advice.budget_s)} allowed.",
        aside=True,
    )


def best_of(advice: Advice) -> Tried | None:
    """What helps the most; what the run has already only where nothing else helps."""
    best = next((one for one in advice.helping if one.candidate.against == AS_IT_IS), None)
    return best or next(iter(advice.helping), None)


def verdict(advice: Advice) -> str:
    """The answer: ``accelerate() makes a training step 2.40x as fast: 540 ms an input ...``."""
    what, best = _TRIALS.get(advice.settings.phase, "trial"), best_of(advice)
    if best is None or best.gain is None:
        tried = plural(sum(1 for one in advice.tried if one.gain), "change")
        return f"No change makes a {what} significantly faster: {tried} measured."
    than = "" if best.candidate.against == AS_IT_IS else " as with BLAS's own choice"
    return (
        f"{best.candidate.name} makes a {what} {format_factor(best.gain.factor)} as "
        f"fast{than} ({best.candidate.decides}, 95 % interval {_interval(best.gain)}): "
        f"{format_duration(best.before_s)} an input before, {format_duration(best.after_s)} after."
    )


def _interval(found: Speedup | None) -> str:
    if found is None or math.isnan(found.low):
        return NOT_KNOWN
    return f"{found.low:.2f} to {found.high:.2f}"


def _factor(found: Speedup | None) -> str:
    return NOT_KNOWN if found is None else format_factor(found.factor)


_COLUMNS = columns(
    """
change candidate.name | change = Change | text 14
wall | times as fast = Times as fast (wall) | figure
wall_interval | 95 % = 95 % interval !3 | figure
cpu | CPU time = Times as fast (CPU time) | figure
cpu_interval | 95 % CPU = 95 % interval (CPU) !2 | figure
decides candidate.decides | decides = Decided by !4 | text 4
before | before ms = Before [ms] !5 | ms
after | after ms = After [ms] !5 | ms
pairs | pairs = Pairs !6 | plain
""",
    wall=lambda one: _factor(one.wall),
    wall_interval=lambda one: _interval(one.wall),
    cpu=lambda one: _factor(one.cpu),
    cpu_interval=lambda one: _interval(one.cpu),
)
_LAYER_COLUMNS = columns(
    """
layer label | layer = Layer | text 14
path | path = Path | text 8
phase | phase = Phase !1 | text 8
before | before ms = Before [ms] | ms
after | after ms = After [ms] | ms
times | times as fast = Times as fast | factor
""",
    times=lambda one: one.before_s / one.after_s if one.after_s else None,
)


def keeping(one: Tried) -> Words:
    """What to write or to type to keep a change, and why it helps."""
    than = "" if one.candidate.against == AS_IT_IS else "; the other rows include it"
    return code(one.candidate.keep), f" ({one.candidate.reason}{than})"


def _vain(one: Tried) -> Words:
    pairs = plural(one.pairs, "pair")
    sure = f"{_factor(one.gain)}, {_interval(one.gain)}, {pairs}, by {one.candidate.decides}"
    return (strong(one.candidate.name), f": {sure}")


_METHOD = (
    "The unchanged network and each change ran in separate processes. These took turns in "
    "blocks of a hundredth of a second or of one run, so a disturbance of the machine affects "
    "all of them alike. A pair of processes gives one ratio: the median of its rounds' "
    "ratios. Each pair uses new processes, because their memory layout differs.",
    "A first look chose the promising changes. New processes then measured their gains again, "
    "and only these measurements are reported (plus the first one where there was time for a "
    "single pair): the mean of the pairs' logarithms, with Student's interval.",
    f"A change helps if it is at least {LEAST_GAIN}x as fast and its interval excludes 1. CPU "
    "time decides if both run on one thread, wall time if there are more threads.",
    "We compared the outputs of engines, and the outputs or gradients under other kernels, "
    "with Chainer's own.",
)
