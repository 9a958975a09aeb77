"""Rows of a program's time are its largest parts, and each level adds up."""

import math
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.analyse.largest_parts import (
    ENOUGH,
    MAX_ROWS,
    MIN_SHARE,
    REST,
    largest_parts,
    rows_of,
)
from chainer_profile.analyse.program import Part


@st.composite
def trees(draw: st.DrawFn, depth: int = 4, whole_ns: int = 10**10) -> Part:
    """Strategy of trees in which inner parts take all, or only some, of the outer part's time."""
    name = draw(st.uuids()).hex
    if not depth or whole_ns < 2 or draw(st.integers(0, 3)) == 0:
        return Part(name, whole_ns)
    weights = draw(st.lists(st.integers(1, 1000), min_size=1, max_size=9))
    unnamed = draw(st.sampled_from([0, 0, 1, 500]))
    whole = sum(weights) + unnamed
    inner = [draw(trees(depth - 1, whole_ns * weight // whole)) for weight in weights]
    return Part(name, whole_ns, inner=tuple(sorted(inner, key=lambda part: -part.ns)))


def hidden_of(parts: Sequence[Part], shown: set[str]) -> Iterator[Part]:
    """The parts without a row that are directly within parts with a row."""
    for part in parts:
        if part.name in shown:
            yield from hidden_of(part.inner, shown)
        else:
            yield part


def named_ns(rows: Sequence[Part], leaves: set[str]) -> float:
    return math.fsum(row.ns for row in rows if row.name in leaves)


@given(trees(), st.sampled_from([MAX_ROWS, 12, 5]))
def test_rows_are_the_largest_parts_and_each_level_adds_up(program: Part, max_parts: int) -> None:
    shown = largest_parts(program.inner, program.ns, max_parts)
    rows = list(rows_of(shown))
    assert len(rows) <= max_parts
    for row in [Part("", program.ns, inner=shown), *rows]:
        *_, last = row.inner or [None]
        if last is not None:
            inner_ns = math.fsum(inner.ns for inner in row.inner)
            assert inner_ns == pytest.approx(row.ns, rel=MIN_SHARE)
            sizes = [inner.ns for inner in row.inner if inner.name != REST]
            assert sizes == sorted(sizes, reverse=True)
            assert REST not in [inner.name for inner in row.inner[:-1]]
    # No row is smaller than any part without a row.
    names = {row.name for row in rows} - {REST}
    hidden = [part.ns for part in hidden_of(program.inner, names) if part.ns]
    smallest_ns = min((row.ns for row in rows if row.name in names), default=math.inf)
    assert max(hidden, default=0) <= smallest_ns


@given(trees())
def test_rows_name_enough_of_the_time_or_fill_the_table(program: Part) -> None:
    every = list(rows_of(program.inner))
    leaves = {part.name for part in every if not part.inner}
    rows = list(rows_of(largest_parts(program.inner, program.ns)))
    names = {row.name for row in rows} - {REST}
    hidden = [part for part in hidden_of(program.inner, names) if part.ns]
    is_full = len(rows) >= MAX_ROWS - 1
    none_left = all(part.ns < MIN_SHARE * program.ns for part in hidden)
    enough_ns = ENOUGH * program.ns
    assert named_ns(rows, leaves) >= enough_ns or is_full or none_left
    # Without the smallest row, too little of the time has a name.
    *larger, _ = sorted((row for row in rows if row.name in names), key=lambda row: -row.ns) or [0]
    assert named_ns(larger, leaves) < enough_ns or not program.ns


def test_large_part_comes_before_small_layers() -> None:
    """A function with 33 % of the time has a row before any layer with 2 %."""
    layers = tuple(Part("F", 20, path=f"/{index}") for index in range(50))
    backward = Part("backward", 1000, inner=layers)
    parts = [
        Part("iterations", 1500, inner=(backward, Part("forward", 500))),
        Part("own code", 1500, inner=(Part("plot", 990), Part("prepare", 510))),
    ]
    for max_parts in range(2, MAX_ROWS):
        names = [part.name for part in rows_of(largest_parts(parts, 3000, max_parts))]
        assert "F" not in names or {"plot", "prepare", "forward"} <= set(names)


def test_program_without_time_has_no_rows() -> None:
    assert largest_parts([], 0) == ()
    assert largest_parts([Part("a", 0)], 0) == ()
    assert largest_parts([], 10) == (Part(REST, 10),)
