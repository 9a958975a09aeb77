"""Work, limits and memory on the terminal, and the choice of columns."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainer_profile.analyse.summaries import summarise
from chainer_profile.analyse.summary import Summary
from chainer_profile.basics.units import format_bare_percent, format_giga, format_ms
from chainer_profile.report.layer_columns import LAYER_COLUMNS
from tests.conftest import make_recording
from tests.report.working import training, with_work, working
from tests.report.writers.test_table import layer_rows, order, shown, table_below


@pytest.mark.parametrize(
    ("sort", "heading"),
    [("flops", "MFLOP"), ("memory", "peak"), ("reached", "% of limit"), ("std", "std ms")],
)
def test_what_the_order_is_by_is_shown_on_a_narrow_console(sort: str, heading: str) -> None:
    summary = working()
    for width in (70, 80, 200):
        head = next(
            line for line in shown(summary, width, sort).splitlines() if "median ms" in line
        )
        assert heading in head
    # Without work and memory, orders by them are those of the calls.
    bare = summarise(make_recording(6))
    if sort != "std":
        assert order(shown(bare, sort=sort)) == list(range(6))


def test_work_and_memory_by_layer_go_first() -> None:
    summary = summarise(with_work(make_recording(66)))
    bare = summarise(make_recording(66))
    new = ["GFLOP/s", "% of limit", "verdict", "peak"]

    def head(summary: Summary, width: int) -> str:
        text = shown(summary, width).splitlines()
        return " ".join(next(line for line in text if "median ms" in line).split())

    old = head(bare, 200)
    assert head(summary, 160) == head(summary, 200) == " ".join([old, *new])
    for width in (60, 80, 100):
        assert head(summary, width) == head(bare, width)
    assert head(bare, 100) == old
    heads = [head(summary, width) for width in range(60, 160, 4)]
    counts = [sum(name in shown for name in new) for shown in heads]
    assert counts == sorted(counts)
    assert set(counts) == {0, 1, 2, 3, 4}


def test_work_and_memory_of_every_layer() -> None:
    summary = working()
    rows = layer_rows(shown(summary, 200, sort="index"))
    for line, layer in zip(rows, summary.layers.itertuples(), strict=True):
        cells = line.replace(" KiB", "").split()
        known = layer.Index < 5
        assert cells[-4:] == [
            format_giga(layer.flops_per_s) if known else "-",
            format_bare_percent(layer.reached),
            layer.verdict.removesuffix(" bound") or "-",
            f"{layer.Index + 1}.0",
        ]


def test_what_is_not_known_of_any_layer_has_no_column() -> None:
    head = next(line for line in shown(working(limits=None)).splitlines() if "median ms" in line)
    assert "GFLOP/s" in head
    assert "verdict" not in head
    assert "% of limit" not in head
    text = shown(working(memory=None))
    assert "peak" not in text
    assert "allocates" not in text


# The first column is the index, by which the table is found here; the mark has no heading.
KEYS = [key for key in LAYER_COLUMNS if key not in ("index", "hot")]


@settings(max_examples=20)
@given(st.lists(st.sampled_from(KEYS), unique=True), st.sampled_from([40, 80, 400]))
def test_chosen_columns_are_all_there_and_in_order(keys: list[str], width: int) -> None:
    keys = ["index", *keys]
    text = shown(training(), width, columns=keys, sort="index", limit=3)
    head = next(line for line in text.splitlines() if line.lstrip().startswith("#"))
    assert head.split() == " ".join(LAYER_COLUMNS[key].column.name for key in keys).split()
    assert "\u2026" not in text


def test_chosen_columns_may_be_wider_than_the_console() -> None:
    summary = working()
    keys = ["index", "path", "mean", "min", "median", "max", "flops", "peak", "retained"]
    text = shown(summary, 40, columns=keys)
    assert "\u2026" not in text
    rows = layer_rows(text)
    for line, index in zip(rows, order(text), strict=True):
        layer = summary.layers.loc[index]
        assert [format_ms(layer[f"{name}_s"]) for name in ("mean", "min", "median", "max")] == [
            cell for cell in line.split() if re.fullmatch(r"\d+\.\d{4}", cell)
        ][:4]
        assert f"{index + 1}.0 KiB" in line


def test_memory_below_the_work() -> None:
    summary = training()
    text = shown(summary, 100)
    peaks = summary.layers["peak_nbytes"].sort_values(ascending=False, kind="stable")
    assert "One trial allocates up to 1.0 MiB beyond what is there at its begin, in 1_" in text
    _, *rows = table_below(text, "phase     high water")
    assert [row[0] for row in rows] == ["forward", "backward", "update"]
    assert [row[1] for row in rows] == ["1.0 MiB", "512.0 KiB", "256.0 KiB"]
    assert "The 5 layers with the highest peaks; the workspace" in text
    below = text[text.index("The 5 layers") :].splitlines()[3:8]
    assert [int(line.split()[0]) for line in below] == list(peaks.index[:5])
    assert text.index("% of time") < text.index("One trial allocates") < text.index("The 5 layers")
    assert "The layer with the highest peak;" in shown(summary, limit=1)
    assert "highest" not in shown(summary, limit=0)


def test_one_phase_has_no_table_of_its_memory() -> None:
    assert "high water" not in shown(working())
