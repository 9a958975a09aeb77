"""Summary -> what the memory pass says: for the terminal, and as a part of the report."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from chainer_profile.basics.units import format_nbytes, plural
from chainer_profile.report.columns import WHICH, layer_columns
from chainer_profile.report.content.boxes import bar, series
from chainer_profile.report.document import MEMORY, Figure, text
from chainer_profile.report.tables import Column, Table, columns, with_content

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chainer_profile.analyse.summary import Summary
    from chainer_profile.report.document import Block

_MAX_LAYERS = 10
_SIZES = ("peak", "workspace", "retained")
#: The order in which a narrow console does without them.
_DROPS = (0, 2, 1)


def memory_sentences(summary: Summary) -> list[str]:
    """The highest point of a trial, and what is kept for backward; empty without a memory pass."""
    use = summary.recording.memory
    if use is None:
        return []
    where = "between the layers"
    if use.high_water_layer is not None:
        row = summary.layers.loc[use.high_water_layer]
        label, path, phase = (row[name] for name in ("label", "path", "phase"))
        where = f"in {label} at {path} ({phase})"
    if use.there_nbytes is None:
        whole = (
            f"One trial allocates up to {format_nbytes(use.high_water_nbytes)} beyond what is "
            f"there at its begin, {where}. Parameters take {format_nbytes(use.parameter_nbytes)}, "
            f"the input {format_nbytes(use.input_nbytes)}."
        )
    else:
        *there, (_, more) = memory_parts(summary)
        parts = ", ".join(f"{format_nbytes(nbytes)} of {name}" for name, nbytes in there)
        whole = (
            f"A trial has up to {format_nbytes(use.there_nbytes + more)} at once, {where}: "
            f"{parts}, and {format_nbytes(more)} that it allocates beyond these."
        )
    sentences = [whole]
    if use.pool_total_nbytes is not None:
        sentences.append(
            f"After it CuPy's memory pool held {format_nbytes(use.pool_total_nbytes)} of the GPU's "
            f"memory, of which {format_nbytes(use.pool_used_nbytes)} were in use."
        )
    if use.kept_for_backward_nbytes is not None:
        kept = format_nbytes(use.kept_for_backward_nbytes)
        sentences.append(f"The forward phase leaves {kept} of activations for the backward phase.")
    return sentences


def memory_parts(summary: Summary) -> list[tuple[str, int]]:
    """What there is at a trial's peak, and bytes of it; what is allocated beyond all else is last.

    Empty without a memory pass, and in recordings of older versions.
    """
    use = summary.recording.memory
    if use is None or use.there_nbytes is None:
        return []
    there = [
        ("parameters", use.parameter_nbytes),
        ("gradients", use.gradient_nbytes or 0),
        ("the optimizer's state", use.state_nbytes or 0),
        ("input", use.input_nbytes),
    ]
    known = [(name, nbytes) for name, nbytes in there if nbytes]
    return [*known, ("activations and more, at the peak", use.high_water_nbytes)]


_PHASES = columns("""
phase | | text
high | high water | bytes
retained | left allocated | bytes
""")


def peak_columns(summary: Summary) -> list[Column]:
    """Columns of the layers with the highest peaks."""
    which = layer_columns(WHICH, several_phases=summary.several_phases)
    sizes = [
        replace(column, drop=drop)
        for column, drop in zip(layer_columns(_SIZES), _DROPS, strict=True)
    ]
    return which + with_content(sizes, summary.layers)


def memory(summary: Summary) -> Iterator[Block]:
    """The part of the report on memory."""
    use = summary.recording.memory
    if use is None:
        return
    yield from map(text, memory_sentences(summary))
    if len(use.phases) > 1:
        yield text(
            "By phase: the most that is allocated in it beyond what is there at the trial's begin, "
            "and what it leaves allocated, negative where it frees more:"
        )
        yield Table(_PHASES, use.phases, "Memory by phase")
    highest = summary.layers.sort_values("peak_nbytes", ascending=False, kind="stable")
    rows = list(highest.head(_MAX_LAYERS).itertuples())
    which = "layer with the highest peak"
    if len(rows) > 1:
        which = f"{plural(len(rows), 'layer')} with the highest peaks"
    yield text(f"The {which}; the workspace of a forward call is its peak beyond its outputs:")
    yield Table(peak_columns(summary), rows, "The layers with the highest peaks of memory")


def memory_on_page(summary: Summary) -> Iterator[Block]:
    """The same on a page: below what there is at the peak, and its picture."""
    if summary.recording.memory is None:
        return
    parts = [
        (name, float(nbytes), format_nbytes(nbytes), series(at))
        for at, (name, nbytes) in enumerate(memory_parts(summary))
    ]
    yield from bar("Memory at the peak of a trial", parts)
    yield Figure(
        MEMORY,
        "Memory that every layer allocates",
        "Bars: the most that is allocated within a layer beyond what is there at its begin. Line: "
        "what it leaves allocated. What is freed between the layers is known for whole phases "
        "only, so this is no running total; dashed is the most in a phase beyond what was there at "
        "the trial's begin.",
    )
    yield from memory(summary)
