"""Summary -> what the pass inside the layers says: for the terminal, and in the report."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from chainer_profile.analyse.inside import REST
from chainer_profile.basics.units import (
    NOT_KNOWN,
    format_duration,
    format_percent,
    plural,
)
from chainer_profile.report.document import text
from chainer_profile.report.tables import Column, Table, columns, headed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from chainer_profile.analyse.inside import Part, Parts
    from chainer_profile.analyse.summary import Summary
    from chainer_profile.report.document import Block

#: Functions that sentences tell of, hot layers that are shown, and parts of each.
_SAID, _LAYERS, _PARTS = 3, 10, 6
#: A sentence names no part of less.
_LEAST = 0.1
#: Where a sample is one of so many that tell the same, this is said.
_BUSY = 1.5


class _Row(NamedTuple):
    name: str
    phase: str
    part: Part


def how_it_looked(summary: Summary) -> str:
    """How it was seen, and what that cannot tell; empty without the pass."""
    found = summary.recording.inside
    if found is None:
        return ""
    notes = "".join(f" Note: {note}." for note in found.notes)
    independent = ""
    if found.repeats >= _BUSY:
        independent = (
            f" The machine was busy: they tell as much as {found.samples / found.repeats:.0f} "
            "independent ones."
        )
    return (
        f"Seen by {found.method}, {plural(found.samples, 'sample')} of "
        f"{plural(found.trials, 'trial')} after the timed ones.{independent} Other threads than "
        f"the main one are not seen.{notes}"
    )


def said(summary: Summary) -> list[str]:
    """``51 % of Convolution2DFunction is a copy within numpy.tensordot, 22 % the matrix product``.

    Of the slowest functions; empty without the pass.
    """
    sentences = []
    for parts in [] if summary.inside is None else summary.inside.functions[:_SAID]:
        several = summary.several_phases
        of = f"of {parts.name}{f' ({parts.phase})' if several else ''} is "
        large = [part for part in parts.parts if part.share >= _LEAST and part.name != REST]
        words = [
            f"{format_percent(part.share, 0)} {of if part is large[0] else ''}{_words(part)}"
            for part in large
        ]
        if words:
            sentences.append(f"{', '.join(words)}.")
    return sentences


def _words(part: Part) -> str:
    """A part within a sentence."""
    is_line = part.source and part.name.startswith(part.source[:20])
    return f"the line {part.name}" if is_line else part.name


def _rows(found: Iterable[Parts]) -> list[_Row]:
    rows = []
    for parts in found:
        for at, part in enumerate(parts.parts[:_PARTS]):
            rows.append(_Row("" if at else parts.name, "" if at else parts.phase, part))
    return rows


def _half(row: _Row) -> str:
    part = row.part
    if part.low is None or part.high is None:
        return NOT_KNOWN
    return f"{(part.high - part.low) * 50:.1f}"


_COLUMNS = columns(
    """
name | | text
phase | | text 8
part part.name | | text
share part.share | % | bar
half | +/- points !2 | figure
ms part.seconds | | ms
cause part.cause | !3 | text 12
where | !1 | code
""",
    half=_half,
    # The file without its folders.
    where=lambda row: row.part.where.rpartition("/")[2],
)
_PART = [_COLUMNS[key] for key in ("part", "share", "half", "ms")]


def _columns(summary: Summary, head: str) -> list[Column]:
    # What a function does in each phase are rows of one name.
    phase = [_COLUMNS["phase"]] if summary.several_phases else []
    name, cause, where = (_COLUMNS[key] for key in ("name", "cause", "where"))
    return [headed(name, head), *phase, *_PART, cause, where]


def inside(summary: Summary) -> Iterator[Block]:
    """The part of the report on what is inside the layers."""
    found = summary.inside
    if found is None:
        return
    yield text(" ".join([*said(summary), how_it_looked(summary)]))
    if found.functions:
        yield Table(
            _columns(summary, "function"),
            _rows(found.functions),
            "Inside the functions: the parts of their time",
            legend=[
                ("", "ms is the part of the time measured in the timed trials."),
                ("+/- points", "+/- points is half of the share's 95 % interval."),
            ],
        )
    if found.framework is not None:
        yield text(f"Between the layers pass {format_duration(found.framework.seconds)} a trial:")
        rows = [_Row("", "", part) for part in found.framework.parts]
        yield Table(_PART, rows, "Between the layers, by kind")
    hot = [one for one in found.layers if one.row in summary.hotspots.indices]
    hot = sorted(hot, key=lambda parts: -parts.seconds)[:_LAYERS]
    if hot:
        yield Table(_columns(summary, "layer"), _rows(hot), "Inside the hot layers")
