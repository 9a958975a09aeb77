"""Summary -> the sections on work, and on the passes that follow the timed trials."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import pandas as pd

from chainer_profile.analyse.counted import TrialCounters, counters_by, trial_counters
from chainer_profile.analyse.inside import REST, Part, Parts
from chainer_profile.analyse.roofline import (
    REACHED,
    functions_without_formula,
    has_plot,
    work_by_function,
)
from chainer_profile.analyse.shares import whole_time
from chainer_profile.analyse.summary import Summary
from chainer_profile.basics import units
from chainer_profile.record.recording import Inside, MachineLimits
from chainer_profile.report import unit
from chainer_profile.report.columns import ABOUT
from chainer_profile.report.content.boxes import bar, series
from chainer_profile.report.document import MEMORY, ROOFLINE, Block, Figure, text
from chainer_profile.report.rows import other_groups
from chainer_profile.report.tables import Column, Table, by_key, mark_about, with_content
from chainer_profile.report.text import typical_word

_MAX_FUNCTIONS = 10
# fmt: off
_WORK = by_key(
    Column("function", "function", unit.TEXT),
    Column("phase", "phase", unit.TEXT, fold=12, drop=5),
    Column("mostly", "mostly", unit.TEXT, fold=17, drop=6,
           value=lambda row: "" if row.verdict is None else row.verdict
           or ("no formula" if math.isnan(row.flops) else "mixed")),
    Column("flops", "MFLOP", unit.MEGA, mark=mark_about, drop=3),
    Column("gflops", "GFLOP/s", unit.GIGA, field="flops_per_s", mark=mark_about),
    Column("gbytes", "GB/s", unit.GIGA, field="nbytes_per_s", mark=mark_about, drop=4),
    Column("reached", "% of limit", unit.PERCENT, mark=mark_about),
    Column("share", "% of time", unit.PERCENT),
)
# fmt: on


#: Why a layer may be far from its limit, and which other limits apply.
_ELSEWHERE_ON_GPU = (
    "the GPU waits for the host, or has too little parallel work. Arrays that stay in a cache can "
    "exceed the memory limit."
)
_ELSEWHERE = (
    "the table names what takes most of its time, where that is known. Chainer allocates new "
    "outputs, so the third rate is the realistic limit for functions that only move data. Arrays "
    "that stay in a cache can exceed all three."
)


def _machine_limits(limits: MachineLimits) -> str:
    giga = units.format_giga
    threads = ""
    if limits.device == "cpu" and limits.threads:
        threads = f" with {units.plural(limits.threads, 'BLAS thread')}"
    half = ""
    if limits.half_flops_per_s:
        half = f" ({giga(limits.half_flops_per_s)} GFLOP/s in float16)"
    return (
        f"Limits of this machine{threads}: {giga(limits.flops_per_s)} GFLOP/s in a float32 matrix "
        f"product{half}, {giga(limits.copy_nbytes_per_s)} GB/s over an array in place, and "
        f"{giga(limits.fresh_nbytes_per_s)} GB/s for a copy into new memory."
    )


def work(summary: Summary) -> Iterator[Block]:
    """The section on operations, bytes, and the machine's limits."""
    if not summary.layers["flops"].notna().any():
        return
    typical = typical_word(summary.recording)
    yield text(
        "Operations (a multiply-add counts as two) and bytes (each array is read or written "
        f"once) are computed from the shapes; rates use the {typical} self times."
        + (f" {ABOUT}" if summary.layers["work_is_about"].any() else "")
    )
    limits = summary.recording.limits
    if limits is not None:
        yield text(
            f"{_machine_limits(limits)} A layer's shortest possible time is the larger of its "
            "operations at the first rate and its bytes at the second; the limit reached is that "
            f"time divided by its {typical}. If a layer reaches less than "
            f"{units.format_percent(REACHED, 0)}, "
            f"{_ELSEWHERE_ON_GPU if summary.recording.on_device else _ELSEWHERE}"
        )
    rows = work_by_function(summary.layers)
    whole_s, name = whole_time(summary)
    rows["share"] = rows["total_s"] / whole_s if whole_s else 0.0
    omitted = {"phase"} if not summary.several_phases else set()
    omitted |= {"mostly", "reached"} if limits is None else set()
    columns = [column for key, column in _WORK.items() if key not in omitted]
    rest = other_groups(summary, summary.functions, summary.functions)
    rest = rest.assign(function=rest.index, phase="", verdict=None, work_is_about=False)
    rest.index = pd.Index([None] * len(rest), dtype=object)
    caption = "Work and limits reached, by function"
    yield Table(columns, pd.concat([rows, rest]), caption, foot=len(rest))
    unknown = functions_without_formula(summary.layers)
    if len(unknown):
        listed = ", ".join(
            f"{row.Index} ({units.format_percent(row.share)})"
            for row in unknown.head(_MAX_FUNCTIONS).itertuples()
        )
        yield text(f"Functions without a formula, with their share of the {name}: {listed}.")
    if limits is not None and has_plot(summary.recording, summary.layers):
        yield Figure(
            ROOFLINE,
            "Roofline plot of the layers",
            "One dot for each layer: operations per byte against operations per second; its "
            "area is the layer's time, and hot layers are red. The line is the machine's "
            f"limit; arithmetic is the bound from {units.format_significant(limits.ridge)} "
            "operations per byte.",
        )


def counters(summary: Summary) -> Iterator[Block]:
    """The section on CPU time, page faults and context switches; nothing without that pass."""
    trial, counted = trial_counters(summary.recording), summary.recording.counters
    if trial is None or counted is None:
        return
    yield text(f"{_cpu_time(trial, counted.trials)}{_kernel_time(trial)}")
    yield _counted(summary, "function")
    if summary.several_phases:
        yield _counted(summary, "phase")


def _cpu_time(trial: TrialCounters, n_trials: int) -> str:
    return (
        f"{units.plural(n_trials, 'more trial')} counted CPU time: the calling thread used "
        f"{units.format_duration(trial.cpu_s)} in a trial of "
        f"{units.format_duration(trial.wall_s)}. BLAS's other threads are not counted."
    )


def _kernel_time(trial: TrialCounters) -> str:
    """Describe the kernel's share of the CPU time and its page faults; empty if unknown."""
    if math.isnan(trial.system_share):
        return ""
    faults = units.plural(trial.page_faults, "page fault")
    used = (
        f" The kernel used {units.format_percent(trial.system_share)} of that CPU time "
        f"({units.format_duration(trial.system_s)}), with {faults}"
    )
    if math.isnan(trial.fault_s):
        return (
            f"{used} a trial. The cost of one was not measured, so the tables do not say which "
            "layers page faults limit."
        )
    if not trial.page_faults:
        return f"{used} a trial."
    min_s = trial.page_faults * trial.fault_s
    return (
        f"{used} of at least {units.format_duration(trial.fault_s)} each: "
        f"{units.format_duration(min_s)}."
    )


_COUNTED = by_key(
    Column("name", "name", unit.TEXT, field="Index"),
    Column("wall", "wall ms", unit.MS, field="counted_s", drop=2),
    Column("cpu", "cpu ms", unit.MS),
    Column("page_faults", "page faults", unit.CALLS),
    Column("waits", "waits", unit.CALLS, drop=4),
    Column("preemptions", "preemptions", unit.CALLS, drop=3),
)


def _counted(summary: Summary, by: str) -> Table:
    rows = counters_by(summary.layers, by)
    name, *counts = _COUNTED.values()
    columns = with_content([name.headed(by), *counts], rows)
    return Table(columns, rows, f"CPU time and page faults by {by}")


def memory_sentences(summary: Summary) -> Iterator[str]:
    """Sentences on a trial's peak memory and on activations; nothing without a memory pass."""
    use = summary.recording.memory
    if use is None:
        return
    where = "between the layers"
    if use.high_water_layer is not None:
        row = summary.layers.loc[use.high_water_layer]
        where = f"in {row['label']} at {row['path']} ({row['phase']})"
    size = units.format_nbytes
    if use.initial_nbytes is None:
        yield (
            f"A trial allocates up to {size(use.high_water_nbytes)} in addition to what existed "
            f"before it, {where}. Parameters take {size(use.parameter_nbytes)}, the input "
            f"{size(use.input_nbytes)}."
        )
    else:
        *existing, (_, more) = memory_parts(summary)
        parts = ", ".join(f"{size(nbytes)} of {name}" for name, nbytes in existing)
        yield (
            f"A trial uses up to {size(use.initial_nbytes + more)} at once, {where}: {parts}, and "
            f"{size(more)} that it allocates in addition."
        )
    if use.pool_total_nbytes is not None:
        yield (
            f"Afterwards CuPy's memory pool held {size(use.pool_total_nbytes)} of the GPU's "
            f"memory, {size(use.pool_used_nbytes)} of it in use."
        )
    if use.kept_for_backward_nbytes is not None:
        yield (
            f"The forward phase keeps {size(use.kept_for_backward_nbytes)} of activations for the "
            "backward phase."
        )


def memory_parts(summary: Summary) -> list[tuple[str, int]]:
    """Names and bytes of the parts of memory at a trial's peak; last, the trial's allocations.

    Empty without a memory pass, and for recordings of older versions.
    """
    use = summary.recording.memory
    if use is None or use.initial_nbytes is None:
        return []
    existing = [
        ("parameters", use.parameter_nbytes),
        ("gradients", use.gradient_nbytes or 0),
        ("the optimizer's state", use.state_nbytes or 0),
        ("input", use.input_nbytes),
    ]
    nonempty = [(name, nbytes) for name, nbytes in existing if nbytes]
    return [*nonempty, ("activations and more, at the peak", use.high_water_nbytes)]


_PHASES = by_key(
    Column("phase", "phase", unit.TEXT),
    Column("high", "high water", unit.BYTES),
    Column("retained", "left allocated", unit.BYTES),
)


def memory(summary: Summary) -> Iterator[Block]:
    """The section on memory; nothing without a memory pass."""
    use = summary.recording.memory
    if use is None:
        return
    yield from map(text, memory_sentences(summary))
    if len(use.phases) > 1:
        yield text(
            "By phase: the peak allocated in addition to what existed before the trial, and "
            "what the phase leaves allocated (negative if it frees more):"
        )
        yield Table(_PHASES, use.phases, "Memory by phase")


def memory_on_page(summary: Summary) -> Iterator[Block]:
    """A page's section on memory: a bar of its parts at the peak, a picture, and sentences."""
    if summary.recording.memory is None:
        return
    parts = [
        (name, float(nbytes), units.format_nbytes(nbytes), series(index))
        for index, (name, nbytes) in enumerate(memory_parts(summary))
    ]
    yield from bar("Memory at the peak of a trial", parts)
    yield Figure(
        MEMORY,
        "Memory that every layer allocates",
        "Bars: the peak allocated within a layer, excluding what existed before it. Line: "
        "what it leaves allocated. Memory freed between layers is known for whole phases "
        "only, so the line is not a running total. Dashed: the peak of a phase, excluding "
        "what existed before the trial.",
    )
    yield from memory(summary)


#: Most functions with a sentence, most hot layers in the table, and most parts of each.
_MAX_SENTENCES, _MAX_HOT_LAYERS, _MAX_PARTS = 3, 10, 4
#: Smallest share of a part in a sentence.
_MIN_PART_SHARE = 0.1
#: Report the number of independent samples if each is repeated this many times on average.
_MIN_REPEATS = 1.5


class _PartRow(NamedTuple):
    name: str
    phase: str
    part: Part


def _how_sampled(run: Inside) -> str:
    sentences = [
        f"Sampled by {run.method}: {units.plural(run.samples, 'sample')} of "
        f"{units.plural(run.trials, 'trial')} after the timed ones."
    ]
    if run.repeats >= _MIN_REPEATS:
        worth = units.format_count(round(run.samples / run.repeats))
        sentences.append(f"The machine was busy, so they are worth {worth} independent samples.")
    if run.method:
        sentences.append("Only the main thread is sampled.")
    return " ".join([*sentences, *(f"Note: {note}." for note in run.notes)])


def inside_sentences(summary: Summary) -> list[str]:
    """``51 % of Convolution2DFunction is a copy within numpy.tensordot, 22 % the matrix product``.

    One sentence for each of the slowest functions; an empty list without sampling.
    """
    sentences = []
    for parts in [] if summary.inside is None else summary.inside.functions[:_MAX_SENTENCES]:
        phase = f" ({parts.phase})" if summary.several_phases else ""
        whole_name, clauses = f" of {parts.name}{phase} is", []
        for part in parts.parts:
            if part.share >= _MIN_PART_SHARE and part.name != REST:
                share = units.format_percent(part.share, 0)
                clauses.append(f"{share}{whole_name} {_part_text(part)}")
                whole_name = ""
        if clauses:
            sentences.append(f"{', '.join(clauses)}.")
    return sentences


def _part_text(part: Part) -> str:
    """The name of a part in a sentence; ``the line ...`` if it is a line of source code."""
    is_line = part.source and part.name.startswith(part.source[:20])
    return f"the line {part.name}" if is_line else part.name


def _half_interval(row: _PartRow) -> str:
    part = row.part
    if part.low is None or part.high is None:
        return units.NOT_KNOWN
    return f"{(part.high - part.low) * 50:.1f}"


# fmt: off
_INSIDE = by_key(
    Column("name", "name", unit.TEXT),
    Column("phase", "phase", unit.TEXT, fold=8),
    Column("part", "part", unit.TEXT, field="part.name"),
    Column("share", "%", unit.SHARE, field="part.share"),
    Column("half", "+/- points", unit.FIGURE, value=_half_interval, drop=2),
    Column("ms", "ms", unit.MS, field="part.seconds"),
    Column("cause", "cause", unit.TEXT, field="part.cause", fold=12, drop=3),
    Column("where", "where", unit.CODE, drop=1,
           value=lambda row: row.part.where.rpartition("/")[2]),
)
# fmt: on


def _inside_table(
    summary: Summary,
    divided_times: Iterable[Parts],
    head: str,
    caption: str,
    legend: Sequence[str] = (),
) -> Table:
    omitted = "" if summary.several_phases else "phase"
    columns = [column for key, column in _INSIDE.items() if key != omitted]
    rows = [
        _PartRow("" if index else parts.name, "" if index else parts.phase, part)
        for parts in divided_times
        for index, part in enumerate(parts.parts[:_MAX_PARTS])
    ]
    return Table([columns[0].headed(head), *columns[1:]], rows, caption, legend=legend)


def inside(summary: Summary) -> Iterator[Block]:
    """The section on sampled parts of functions and of the framework; nothing without samples."""
    parts, run = summary.inside, summary.recording.inside
    if parts is None or run is None:
        return
    # The first sentence is part of the answer.
    yield text(" ".join([*inside_sentences(summary)[1:], _how_sampled(run)]))
    if parts.functions:
        caption = "Inside the functions: the parts of their time"
        legend = (
            "ms is the share of the time measured in the timed trials.",
            "+/- points is half of the share's 95 % interval.",
        )
        yield _inside_table(summary, parts.functions, "function", caption, legend)
    if parts.framework is not None:
        shares = (
            f"{part.name} {units.format_percent(part.share)}" for part in parts.framework.parts
        )
        yield text(
            f"Time between the layers, {units.format_duration(parts.framework.seconds)} a trial: "
            f"{', '.join(shares)}."
        )


def inside_layers(summary: Summary) -> Iterator[Block]:
    """The table of sampled parts of hot layers; nothing if no layer has enough samples."""
    layers = summary.inside.layers if summary.inside else ()
    hot = [parts for parts in layers if parts.row in summary.hotspots.indices]
    slowest = sorted(hot, key=lambda parts: -parts.seconds)[:_MAX_HOT_LAYERS]
    if slowest:
        yield _inside_table(summary, slowest, "layer", "Inside the hot layers")
