"""Comparison -> sentences: the verdict, its limits, and texts of changes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from chainer_profile.basics import units
from chainer_profile.comparison import significance
from chainer_profile.comparison.compare import Comparison
from chainer_profile.comparison.fused import CHAINER
from chainer_profile.comparison.run_differences import COPY, OTHERS, PRODUCT
from chainer_profile.comparison.sides import Side
from chainer_profile.comparison.totals import LAYERS
from chainer_profile.report.text import printable, shorten

#: Most differences that are named; most characters of values and of names of runs.
_MAX_DIFFERENCES, _MAX_VALUE, _MAX_NAME = 8, 40, 80


def verdict(comparison: Comparison) -> str:
    """The answer: ``The unprofiled trial is 1.11x slower: 4.7 ms, now 5.2 ms ...``"""
    if not len(comparison.totals):
        return counts_line(comparison)
    row = comparison.totals.iloc[0]
    judged, factor = str(row["verdict"]), factor_text(row["ratio"])
    name = "sum of the layers" if comparison.headline == LAYERS else comparison.headline
    name += " by input" * (comparison.by_input and not comparison.of_programs)
    times = f"{units.format_duration(row['before_s'])}, now {units.format_duration(row['after_s'])}"
    of_factor = factor_interval(row["ratio"], row["low"], row["high"])
    within = "" if of_factor == units.NOT_KNOWN else f", 95 % interval of the factor {of_factor}"
    if judged == significance.ONCE:
        return f"The {name} is {factor}: {times} (one run each)."
    if judged == significance.SAME:
        return f"No significant change in the {name}: {times}, {factor}{within}."
    if judged == significance.UNKNOWN:
        return f"No verdict on the {name}: {times}, {factor}."
    by = ", by the machine or the code" if judged == significance.UNCLEAR else ""
    return f"The {name} is {factor}{by}: {times}{within}."


def counts_line(comparison: Comparison) -> str:
    """How many layers changed: ``3 of 66 layers changed: 2 slower, 1 faster.``"""
    verdicts = comparison.layers["verdict"]
    count = units.plural(
        len(verdicts), "matched group" if fusion_line(comparison) else "matched layer"
    )
    if not comparison.judged:
        return f"{count}, without verdicts."
    slower, faster = (
        int((verdicts == which).sum()) for which in (significance.SLOWER, significance.FASTER)
    )
    changed = f"{units.format_count(slower + faster)} of {count} changed"
    if not slower + faster:
        return f"{changed} significantly."
    rest = len(verdicts) - slower - faster
    same = f"; the other {units.format_count(rest)} not significantly" if rest else ""
    counts = f"{units.format_count(slower)} slower, {units.format_count(faster)} faster"
    return f"{changed}: {counts}{same}."


def differences_line(comparison: Comparison) -> str:
    """Name the settings and environments that differ, in one line."""
    texts = []
    for difference in comparison.differences:
        sides = (difference.before, difference.after)
        shown = (shorten(value, _MAX_VALUE) or "none" for value in sides)
        texts.append(f"{difference.name} ({', now '.join(shown)})")
    if not texts:
        return "Settings and environments are the same."
    start = "Different machines. " if comparison.other_machine else ""
    return f"{start}What differs: {join_first(texts, _MAX_DIFFERENCES)}."


def join_first(texts: Sequence[str], max_n: int) -> str:
    """Join the first ``max_n`` texts, and add how many more there are."""
    more = len(texts) - max_n
    return ", ".join(texts[:max_n]) + (f", and {units.format_count(more)} more" if more > 0 else "")


def machine_line(comparison: Comparison) -> str:
    """Describe in one line whether the machine itself became faster or slower."""
    movements = {movement.name: movement for movement in comparison.movements}
    works = [movements[name] for name in (PRODUCT, COPY) if name in movements]
    if not works:
        if not comparison.same_place:
            return "The speed of the machines is not compared, because their calibration differs."
        return (
            "It is unknown whether the machine was equally fast, because one run has no "
            "calibration."
        )
    words = ", ".join(
        f"a fixed {work.name} took {units.format_factor(work.ratio)} the time"
        + ("" if comparison.several else _range_text(f"{work.low:.2f}", f"{work.high:.2f}"))
        for work in works
    )
    if OTHERS in movements and movements[OTHERS].moved:
        busy = [_busy_cores(side) for side in (comparison.before, comparison.after)]
        words += f"; other programs kept {busy[0]} and {busy[1]} cores busy"
    if not comparison.same_place:
        return f"On the two machines, devices or BLAS settings {words}."
    if not comparison.moved:
        return f"The machine was equally fast: {words}."
    return (
        f"The machine's own speed changed: {words}. Differences that this may explain are not "
        "reported as changes. Compare again on a quiet machine."
    )


def _range_text(low: str, high: str) -> str:
    """`` (between 0.98 and 1.02)``; empty if both ends are equal."""
    return "" if low == high else f" (between {low} and {high})"


def _busy_cores(side: Side) -> str:
    """Format how many cores other programs kept busy, as the mean of the runs."""
    shares = [run.conditions.other_cpu for run in side.runs]
    cores = [share for share in shares if share is not None]
    return f"{sum(cores) / len(cores):.1f}" if cores else units.NOT_KNOWN


def _noise(comparison: Comparison) -> str:
    """A sentence on how much of a change may be noise."""
    spread = units.format_percent(comparison.run_spread)
    if not comparison.judged:
        return (
            f"There are times but no verdicts: fewer than {significance.MIN_TRIALS} trials do not "
            "show how much is noise."
        )
    if comparison.several:
        return (
            "Run-to-run noise is measured: the 95 % interval of the median layer's ratio is "
            f"+/-{spread}."
        )
    return (
        "With one run on each side, run-to-run noise is not measured: layers are judged by their "
        f"scatter ({spread}), and a change common to all of them may come from the machine. For a "
        "stronger verdict, record five runs of each, interleaved, and compare A1,A2,A3,A4,A5 "
        "B1,B2,B3,B4,B5."
    )


def notes(comparison: Comparison) -> Iterator[str]:
    """Sentences on what the verdicts mean, and on what limits them."""
    if comparison.by_input:
        batches = f"{comparison.before.inputs}, now {comparison.after.inputs}"
        yield f"The batches differ ({batches}), so all times are by input: divided by the batch."
    if comparison.same_run:
        yield "One run is on both sides, so it is compared with itself."
    if line := fusion_line(comparison):
        yield line
    phases = [side.runs[0].settings.phase for side in (comparison.before, comparison.after)]
    if phases[0] != phases[1]:
        yield (
            f"The trials differ ({phases[0]}, and {phases[1]}), so only the layers of their "
            "common phases are compared."
        )
    if comparison.of_programs and not comparison.several:
        yield (
            "Each program ran once, so it is unknown how much of the difference between the "
            "programs, and between their parts, is noise."
        )
    yield _noise(comparison)
    if unclear := unclear_line(comparison):
        yield unclear


def unclear_line(comparison: Comparison, gated: bool = False) -> str:
    """Say that either the machine or the code changed the headline, and how to find out which.

    Empty unless the headline's verdict is UNCLEAR. ``gated`` adds the option of a gate.
    """
    totals = comparison.totals
    if not len(totals) or totals["verdict"].iloc[0] != significance.UNCLEAR:
        return ""
    cpu = "compare by CPU time (--gate cpu)" if gated else "look at the CPU time"
    more = (
        f"compare again on a quiet machine, or {cpu}."
        if comparison.several
        else "there is one run on each side; record five of each in turn."
    )
    factor = factor_text(totals["ratio"].iloc[0])
    what = "program" if comparison.of_programs else "trial"
    return f"It is unknown whether the machine or the code made the {what} {factor}: {more}"


def fusion_line(comparison: Comparison) -> str:
    """How many layers became nodes, and the groups compared; empty if no rows were combined.

    ``66 layers of chainer became 27 nodes of onnxruntime 1.20.1; compared as 24 groups.``
    """
    fusion = comparison.fusion
    if fusion is None or not fusion.merged:
        return ""
    before, after = (
        f"{units.plural(rows, 'layer' if engine == CHAINER else 'node')} of {printable(engine)}"
        for engine, rows in ((fusion.before, fusion.before_rows), (fusion.after, fusion.after_rows))
    )
    became = "became" if fusion.before == CHAINER else "and"
    return f"{before} {became} {after}; compared as {units.plural(fusion.groups, 'group')}."


def change_text(ratio: float, verdict: str) -> str:
    """Format a change with its verdict: ``1.11x faster``, ``1.05x slower``, ``not significant``."""
    if verdict == significance.SAME:
        return verdict
    doubts = (significance.UNCLEAR, significance.ONCE)
    return factor_text(ratio) + (f", {verdict}" if verdict in doubts else "")


def factor_text(ratio: float) -> str:
    """Format a ratio as a factor, whether significant or not: ``1.01x slower``."""
    if not ratio > 0 or math.isinf(ratio):
        return units.NOT_KNOWN
    return f"{units.format_factor(max(ratio, 1 / ratio))} {'slower' if ratio >= 1 else 'faster'}"


def factor_interval(ratio: float, low: float, high: float) -> str:
    """Format the 95 % interval of the factor of :func:`factor_text`: ``1.04-1.07``."""
    if ratio < 1:
        low, high = 1 / high, 1 / low
    return units.format_interval(low, high, "{:.2f}".format, "-")


def side_name(side: Side) -> str:
    return shorten(printable(side.name), _MAX_NAME)
