"""Changes that were tried -> their blocks, the answer first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chainer_profile.advice.changes import AS_IT_IS
from chainer_profile.advice.results import LEAST_GAIN
from chainer_profile.basics.units import (
    NOT_KNOWN,
    format_duration,
    format_factor,
    format_interval,
    plural,
    roughly,
)
from chainer_profile.record.recording import COMPLETE
from chainer_profile.report import unit
from chainer_profile.report.document import Code, Heading, code, listing, points, strong, text
from chainer_profile.report.tables import Column, Table
from chainer_profile.report.text import model_name, printable, settings_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chainer_profile.advice.results import Advice, Tried
    from chainer_profile.engines.results import Speedup
    from chainer_profile.report.document import Block, Words

#: Names of a trial by phase.
_TRIAL_NAMES = {
    "forward": "forward pass",
    "forward-backward": "forward and backward pass",
    "train": "training step",
}
#: Changes whose layers are shown, at most.
_MAX_WITH_LAYERS = 2


def report(advice: Advice) -> list[Block]:
    return [
        Heading(1, f"What was tried on {model_name(advice.settings)}"),
        *section(advice),
        Heading(2, "Method"),
        *([Code(printable(advice.settings.command))] if advice.settings.command else []),
        points(_METHOD),
    ]


def section(advice: Advice) -> Iterator[Block]:
    """The changes that were tried, and their gains, for the report of a run."""
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
        yield points(
            (strong(tried.candidate.name), ": ", *keeping(tried)) for tried in advice.helping
        )
    for tried in [tried for tried in advice.helping if tried.layers][:_MAX_WITH_LAYERS]:
        yield text(f"Where {tried.candidate.name} helped the most:")
        yield Table(_LAYER_COLUMNS, tried.layers, f"Layers under {tried.candidate.name}")
    vain = [tried for tried in advice.tried if not (tried.helps or tried.error)]
    failed = [tried for tried in advice.tried if tried.error]
    for heading, items in (
        (
            "Undecided; run again with a larger --budget:",
            [_figures(tried) for tried in vain if tried.open],
        ),
        ("Tried, no gain:", [_figures(tried) for tried in vain if not tried.open]),
        ("What failed:", [f"{tried.candidate.name}: {tried.error}" for tried in failed]),
        ("Not tried:", [f"{untried.name}: {untried.why}" for untried in advice.untried]),
    ):
        yield from (block for items in listing(items) for block in (text(heading), items))
    yield text(
        f"{settings_text(advice.settings)}; this took {roughly(advice.took_s)} of the "
        f"{roughly(advice.budget_s)} allowed.",
        aside=True,
    )


def best_of(advice: Advice) -> Tried | None:
    """The change that helps the most; one that the run has already only if no other one helps."""
    news = (tried for tried in advice.helping if tried.candidate.against == AS_IT_IS)
    return next(news, None) or next(iter(advice.helping), None)


def verdict(advice: Advice) -> str:
    """The answer: ``accelerate() makes a training step 2.40x as fast: 540 ms an input ...``."""
    trial, best = _TRIAL_NAMES.get(advice.settings.phase, "trial"), best_of(advice)
    if best is None or best.gain is None:
        measured = plural(sum(1 for tried in advice.tried if tried.gain), "change")
        return f"No change makes a {trial} significantly faster: {measured} measured."
    than = "" if best.candidate.against == AS_IT_IS else " as with BLAS's own choice"
    return (
        f"{best.candidate.name} makes a {trial} {format_factor(best.gain.factor)} as "
        f"fast{than} ({best.candidate.decides}, 95 % interval {_interval(best.gain)}): "
        f"{format_duration(best.before_s)} an input before, {format_duration(best.after_s)} after."
    )


def _interval(gain: Speedup | None) -> str:
    if gain is None:
        return NOT_KNOWN
    return format_interval(gain.low, gain.high, "{:.2f}".format)


def _factor(gain: Speedup | None) -> str:
    return NOT_KNOWN if gain is None else format_factor(gain.factor)


# fmt: off
_COLUMNS = (
    Column("change", "change", unit.TEXT, field="candidate.name", fold=14),
    Column("wall", "times as fast", unit.FIGURE, full="Times as fast (wall)",
           value=lambda tried: _factor(tried.wall)),
    Column("wall_interval", "95 %", unit.FIGURE, full="95 % interval",
           value=lambda tried: _interval(tried.wall), drop=3),
    Column("cpu", "CPU time", unit.FIGURE, full="Times as fast (CPU time)",
           value=lambda tried: _factor(tried.cpu)),
    Column("cpu_interval", "95 % CPU", unit.FIGURE, full="95 % interval (CPU)",
           value=lambda tried: _interval(tried.cpu), drop=2),
    Column("decides", "decides", unit.TEXT, full="Decided by", field="candidate.decides", fold=4,
           drop=4),
    Column("before", "before ms", unit.MS, drop=5),
    Column("after", "after ms", unit.MS, drop=5),
    Column("pairs", "pairs", unit.PLAIN, drop=6),
)
# fmt: on
_LAYER_COLUMNS = (
    Column("layer", "layer", unit.TEXT, field="label", fold=14),
    Column("path", "path", unit.TEXT, fold=8),
    Column("phase", "phase", unit.TEXT, fold=8, drop=1),
    Column("before", "before ms", unit.MS),
    Column("after", "after ms", unit.MS),
    Column(
        "times",
        "times as fast",
        unit.FACTOR,
        value=lambda layer: layer.before_s / layer.after_s if layer.after_s else None,
    ),
)


def keeping(tried: Tried) -> Words:
    """The code or command that keeps a change, and why it helps."""
    than = "" if tried.candidate.against == AS_IT_IS else "; the other rows include it"
    return code(tried.candidate.keep), f" ({tried.candidate.reason}{than})"


def _figures(tried: Tried) -> Words:
    """A change that does not help, or not for sure, with its figures."""
    pairs = plural(tried.pairs, "pair")
    figures = (
        f"{_factor(tried.gain)}, {_interval(tried.gain)}, {pairs}, by {tried.candidate.decides}"
    )
    return (strong(tried.candidate.name), f": {figures}")


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
