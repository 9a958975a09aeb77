from __future__ import annotations

import io
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from chainer_profile.analyse.summaries import summarise
from chainer_profile.analyse.summary import Finding, Summary
from chainer_profile.basics.units import format_bare_percent, format_ms
from chainer_profile.cli.shown import SORT_KEYS
from chainer_profile.record.recording import Recording
from chainer_profile.report.rows import group_rows, tree_rows
from chainer_profile.report.writers.table import render
from tests.conftest import make_recording, make_training
from tests.report.working import with_work


def shown(
    summary: Summary,
    width: int = 130,
    sort: str = "time",
    limit: int | None = None,
    terminal: bool = False,
    **options: Any,
) -> str:
    file = io.StringIO()
    colour = "standard" if terminal else None
    console = Console(
        file=file, width=width, force_terminal=terminal, color_system=colour, _environ={}
    )
    render(summary, console, sort=sort, limit=limit, **options)
    return file.getvalue()


def layer_rows(text: str) -> list[str]:
    """The lines of the layer table that begin a layer."""
    lines = text.splitlines()
    head = next(i for i, line in enumerate(lines) if re.match(r" *#.* median ms", line))
    end = next(i for i, line in enumerate(lines) if line.startswith("Times are"))
    return [
        line
        for line in lines[head + 2 : end]
        if re.match(r" *[\d,]+ ", line) and "shown:" not in line
    ]


def order(text: str) -> list[int]:
    """Indices of the layers, from top to bottom."""
    return [int(line.split()[0].replace(",", "")) for line in layer_rows(text)]


def renamed(recording: Recording, name: str) -> Recording:
    layers = tuple(replace(layer, function=name, path=f"/{name}") for layer in recording.layers)
    settings = replace(recording.settings, model=name, input=name)
    environment = replace(recording.environment, processor=name)
    return replace(recording, layers=layers, settings=settings, environment=environment)


def test_every_layer_with_its_numbers() -> None:
    summary = summarise(make_recording(12))
    rows = layer_rows(shown(summary, sort="index"))
    assert len(rows) == 12
    for line, layer in zip(rows, summary.layers.itertuples(), strict=True):
        for text in (
            layer.path,
            layer.function,
            "1x16x32x32",
            format_ms(layer.mean_s),
            format_ms((layer.ci_high_s - layer.ci_low_s) / 2),
            format_ms(layer.median_s),
            format_ms(layer.p95_s),
            format_bare_percent(layer.share),
            format_bare_percent(layer.cumulative_share),
        ):
            assert text in line.split()


@pytest.mark.parametrize("sort", SORT_KEYS)
def test_order_of_the_layers(sort: str) -> None:
    summary = summarise(with_work(make_recording(12)))
    layers = summary.layers
    expected = {
        "time": layers["median_s"].sort_values(ascending=False, kind="stable"),
        "median": layers["median_s"].sort_values(ascending=False, kind="stable"),
        "mean": layers["mean_s"].sort_values(ascending=False, kind="stable"),
        "p95": layers["p95_s"].sort_values(ascending=False, kind="stable"),
        "std": layers["std_s"].sort_values(ascending=False, kind="stable"),
        "index": layers["mean_s"],
        "path": layers["path"].sort_values(kind="stable"),
        "name": layers["function"].sort_values(kind="stable"),
        "flops": layers["flops"].sort_values(ascending=False, kind="stable"),
        "memory": layers["peak_nbytes"].sort_values(ascending=False, kind="stable"),
        "reached": layers["reached"].sort_values(ascending=False, kind="stable"),
    }[sort]
    text = shown(summary, sort=sort)
    assert order(text) == list(expected.index)
    if sort in ("flops", "reached"):
        assert order(text)[-1] == 11  # has no formula
    assert ("std ms" in text) == (sort == "std")


def test_an_unknown_order_is_an_error() -> None:
    with pytest.raises(KeyError):
        shown(summarise(make_recording()), sort="colour")


def test_limit_says_what_is_not_shown() -> None:
    summary = summarise(make_recording(66))
    text = shown(summary, limit=10)
    assert len(layer_rows(text)) == 10
    rest = summary.layers["share"].sort_values(ascending=False, kind="stable").iloc[10:].sum()
    assert f"56 layers not shown: {rest * 100:.1f} % of the layers' time." in text
    assert "not shown" not in shown(summary)
    assert "not shown" not in shown(summary, limit=66)
    assert "66 layers not shown: 100.0 %" in shown(summary, limit=0)


def test_hot_layers_have_a_mark_and_are_red() -> None:
    summary = summarise(make_recording(12), "top:3")
    plain = shown(summary)
    marked = {int(line.split()[0]) for line in layer_rows(plain) if line.split()[1] == "*"}
    assert marked == set(summary.hotspots.indices)
    assert f"* hot: {summary.hotspots.rule}." in plain
    assert "\x1b" not in plain
    coloured = shown(summary, terminal=True)
    assert coloured.count("\x1b[1;31m*") == 3


@pytest.mark.parametrize(
    ("width", "n_layers"), [(45, 6), (60, 66), (80, 6), (80, 1200), (100, 66), (130, 66), (200, 6)]
)
def test_nothing_is_cut_at_any_width(width: int, n_layers: int) -> None:
    summary = summarise(make_recording(n_layers, n_trials=20))
    text = shown(summary, width=width)
    assert "…" not in text
    assert max(len(line) for line in text.splitlines()) <= width
    rows = layer_rows(text)
    assert len(rows) == n_layers
    for line, index in zip(rows, order(text), strict=True):
        layer = summary.layers.loc[index]
        assert format_ms(layer["median_s"]) in line.split()
        assert format_bare_percent(layer["share"]) in line.split()


def test_columns_by_width() -> None:
    summary = summarise(make_recording(66))
    names = ("path", "function", "output", "median ms", "+/- ms", "mean", "p95", " %", "cum. %")
    heads = {
        width: next(line for line in shown(summary, width).splitlines() if "median ms" in line)
        for width in (60, 80, 100)
    }
    assert all(name in heads[100] for name in names)
    for name in ("path", "function", "median ms", "+/- ms", "p95", " %", "cum. %"):
        assert name in heads[80]
    assert "output" not in heads[80]
    for name in ("path", "function", "median ms", " %"):
        assert name in heads[60]


def test_functions_add_up() -> None:
    summary = summarise(make_recording(66))
    text = shown(summary)
    lines = text[text.index("function  ", text.index("Times are")) :].splitlines()[2:]
    cells = [re.split(r"\s{2,}", line.strip()) for line in lines if line.strip()]
    assert {row[0] for row in cells} == set(summary.functions.index)
    assert sum(int(row[1]) for row in cells) == 66
    total = sum(float(row[2]) for row in cells)
    assert total == pytest.approx(summary.totals.layers_s * 1e3, abs=2e-4)
    assert sum(float(row[4]) for row in cells) == pytest.approx(100, abs=0.2)
    assert sum(int(row[5]) for row in cells) == len(summary.hotspots.indices)


def test_findings_with_their_advice() -> None:
    finding = Finding("unstable", "warning", "The trials [vary].", "Close [red]programs[/red].")
    summary = replace(summarise(make_recording()), findings=(finding,))
    text = shown(summary, width=200)
    assert "warning: The trials [vary]. Close [red]programs[/red]." in text


@pytest.mark.parametrize("name", ["[red]x[/red]", "[/]", "[link=http://a]b", ":smile:", "1,234.5"])
def test_names_are_printed_as_they_are(name: str) -> None:
    text = shown(summarise(renamed(make_recording(3), name)), width=200, terminal=True)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert plain.count(f"/{name}") == 3
    assert f"{name}, {name}, shape" in plain
    assert f"{name}, 2 cores" in plain


def test_a_name_cannot_send_escape_sequences() -> None:
    text = shown(summarise(renamed(make_recording(3), "a\x1b[2Jb\nc")))
    assert "\x1b" not in text
    assert "a\\x1b[2Jb\\nc" in text


def test_long_names_are_folded() -> None:
    name = "abcdefghij" * 12
    summary = summarise(renamed(make_recording(1), name))
    text = shown(summary, width=80)
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "…" not in text
    assert text.count("j") >= 12 * 5
    assert format_ms(summary.layers["median_s"][0]) in text


@pytest.mark.parametrize(
    "recording",
    [
        make_recording(1),
        make_recording(n_trials=1),
        make_recording(n_clean=0),
        make_recording(n_clean=0, trial_ns=None, start_ns=None),
        make_recording(n_trials=5, self_ns=np.zeros((5, 6), np.int64)),
        Recording(make_recording(1).layers, np.ones((3, 1), np.int64)),
    ],
    ids=["one layer", "one trial", "no clean", "functions only", "zero", "bare"],
)
def test_recordings_that_lack_parts(recording: Recording) -> None:
    text = shown(summarise(recording))
    assert "nan" not in text
    assert "None" not in text
    assert len(layer_rows(text)) == len(recording.layers)
    assert ("No clean trials were made" in text) == (not len(recording.clean_ns))


# --- more than one phase


def table_below(text: str, head: str) -> list[list[str]]:
    """Head and rows of the table whose head begins so; cells are split at two spaces."""
    lines = text.splitlines()
    first = next(at for at, line in enumerate(lines) if line.lstrip().startswith(head))
    end = next((at for at in range(first, len(lines)) if not lines[at].strip()), len(lines))
    rows = [lines[first], *lines[first + 2 : end]]
    return [re.split(r"\s{2,}", row.strip()) for row in rows]


def test_what_a_trial_was() -> None:
    text = shown(summarise(make_training()))
    wanted = "forward, softmax_cross_entropy, backward, update with MomentumSGD"
    assert f"trial: training step ({wanted})" in text
    assert "trial: forward pass" in shown(summarise(make_recording()))


@pytest.mark.parametrize("data", [False, True])
def test_phases_add_up_to_the_trial(data: bool) -> None:
    summary = summarise(make_training(data=data))
    head, *rows = table_below(shown(summary), "phase  ")
    assert head == ["phase", "layers", "layers ms", "framework ms", "total ms", "%"]
    *parts, whole = rows
    names = ["data"] * data + ["forward", "backward", "update", "outside of the phases"]
    assert [row[0] for row in parts] == names
    assert whole[0] == "profiled trial"
    assert summary.totals.profiled is not None
    assert whole[-2] == format_ms(summary.totals.profiled.mean_s)
    for column in range(-4, 0):
        total = sum(float(row[column]) for row in parts)
        assert total == pytest.approx(float(whole[column]), abs=0.2 if column == -1 else 2e-4)


def test_one_phase_has_no_table_of_phases() -> None:
    text = shown(summarise(make_recording()))
    assert "framework ms" not in text
    assert "phase" not in text


def test_layers_with_their_phases() -> None:
    summary = summarise(make_training())
    text = shown(summary, sort="index")
    rows = layer_rows(text)
    assert len(rows) == 25
    for line, layer in zip(rows, summary.layers.itertuples(), strict=True):
        cells = line.replace("*", " ").split()
        assert cells[1:4] == [layer.path, layer.function, layer.phase]
        assert format_ms(layer.median_s) in cells


@pytest.mark.parametrize("by", ["function", "link", "block", "shape"])
@pytest.mark.parametrize("recording", [make_recording(12), make_training()], ids=["one", "several"])
def test_groups(by: str, recording: Recording) -> None:
    summary = summarise(recording)
    text = shown(summary, width=200, group_by=by)
    head, *rows = table_below(text, f"{by}  ")
    groups = group_rows(summary, by)
    notes = len(recording.phases) > 0
    assert len(rows) == len(groups) + notes
    total = head.index("total ms")
    if not recording.phases:
        assert head == [by, "calls", "total ms", "mean ms", "%", "hot layers"]
        assert sum(float(row[total]) for row in rows) == pytest.approx(
            summary.totals.layers_s * 1e3, abs=1e-3
        )
    else:
        expected = [by, "calls", "forward", "backward", "update", "total ms", "bwd/fwd", "%", "hot"]
        assert head == expected
    assert [row[0] for row in rows[: len(groups)]] == [group.name for group in groups]


def test_limit_of_the_groups() -> None:
    summary = summarise(make_training())
    text = shown(summary, limit=2, group_by="block")
    rest = sum(row.share for row in group_rows(summary, "block")[2:])
    assert f"6 blocks not shown: {rest * 100:.1f} % of the layers' time." in text
    assert "/res/1" in text
    assert "/fc " not in text[text.index("block  ") :]
    one = shown(summary, limit=7, group_by="block")
    assert "1 block not shown: 1.0 % of the layers' time." in one
    assert "blocks not shown" not in shown(summary, limit=8, group_by="block")


def tree_lines(text: str) -> list[str]:
    lines = text.splitlines()
    head = next(at for at, line in enumerate(lines) if "incl. ms" in line)
    end = next(at for at, line in enumerate(lines) if line.startswith("* hot:"))
    return [line for line in lines[head + 2 : end] if "not shown" not in line]


def test_tree_in_place_of_the_layers() -> None:
    summary = summarise(make_training(), "0.3ms")
    text = shown(summary, tree=True)
    assert "median ms" not in text
    lines = tree_lines(text)
    assert [line.replace("*", " ").split()[0] for line in lines] == [
        *["/", "conv", "res", "0", "1", "fc", "unused"],
        *["loss", "cleargrads", "optimizer", "framework", "profiled"],
    ]
    assert "4 links below are not shown (--depth 99 shows all)" in text
    assert [line.split()[1] for line in lines if line.startswith("*")] == ["conv", "0", "1"]
    # Two spaces a level.
    at = {line.replace("*", " ").split()[0]: len(line) - len(line[1:].lstrip()) for line in lines}
    assert at["res"] - at["/"] == 2
    assert at["0"] - at["res"] == 2
    assert at["loss"] == at["/"]


def test_the_trees_column_adds_up_to_the_trial() -> None:
    summary = summarise(make_training())
    text = shown(summary, 130, tree=True)
    tree = tree_lines(text)
    head, *lines = [
        line.replace("*", " ").replace("profiled trial", "trial").split()
        for line in text.splitlines()
        if "incl. ms" in line or line in tree
    ]
    assert head[4:9] == ["forward", "backward", "update", "incl.", "ms"]
    rows = {cells[0]: cells[1:] for cells in lines}
    assert rows["/"][-4:] == ["2.8500", "0.0500", "95.0", "4"]
    assert rows["loss"] == ["0.0200", "0.0100", "0.0300", "0.0300", "1.0", "0"]
    assert rows["cleargrads"] == ["0.0400", "0.0400", "0.0400", "1.3", "0"]
    assert rows["optimizer"] == ["0.0800", "0.0800", "0.0800", "2.7", "0"]
    assert rows["framework"] == ["0.3000", "0.2500", "0.1000", "0.7000"]
    assert rows["trial"] == ["1.3000", "2.0500", "0.3000", "3.7000"]


def test_levels_of_the_tree() -> None:
    summary = summarise(make_training())
    assert "10 links below are not shown" in shown(summary, tree=True, depth=0)
    assert "not shown" not in shown(summary, tree=True, depth=3, limit=None)
    nearly = summarise(make_recording(1))
    assert "1 link below is not shown" in shown(nearly, tree=True, depth=2)


def test_tree_of_a_forward_pass() -> None:
    text = shown(summarise(make_recording(12)), tree=True)
    head = next(line for line in text.splitlines() if "incl. ms" in line)
    assert head.split() == ["link", "incl.", "ms", "excl.", "ms", "%", "hot"]
    assert "framework" in text
    assert "profiled trial" in text


@pytest.mark.parametrize("width", [45, 60, 80, 100, 130])
@pytest.mark.parametrize("tree", [False, True])
@pytest.mark.parametrize("scale", [1.0, 1000.0])
def test_nothing_of_a_training_step_is_cut(width: int, tree: bool, scale: float) -> None:
    summary = summarise(make_training(data=True, scale=scale))
    text = shown(summary, width=width, tree=tree, depth=99)
    assert "…" not in text
    assert max(len(line) for line in text.splitlines()) <= width
    words = text.split()
    for row in summary.phases.itertuples():
        assert width < 60 or format_ms(row.total_s) in words
    for row in group_rows(summary, "function"):
        assert format_ms(row.total_s) in words
    if tree:
        links, beside = tree_rows(summary, 99)
        for link in [*links, *beside]:
            assert format_ms(link.inclusive_s) in words
    else:
        for layer in summary.layers.itertuples():
            assert format_ms(layer.median_s) in words


def test_columns_of_a_training_step_by_width() -> None:
    summary = summarise(make_training())
    for width, tree, names in (
        (80, False, ["path", "function", "phase", "median ms", "+/- ms", "p95", " %"]),
        (100, False, ["path", "phase", "median", "p95", "cum. %"]),
        (
            80,
            True,
            ["link", "calls", "params", "forward", "backward", "update", "incl. ms", "excl. ms"],
        ),
        (100, True, ["link", "kind", "calls", "params", "forward", "excl. ms", "hot"]),
    ):
        lines = shown(summary, width, tree=tree).splitlines()
        head = next(line for line in lines if ("incl. ms" if tree else "median ms") in line)
        assert [name for name in names if name not in head] == []
        groups = next(line for line in lines if line.startswith("function "))
        for name in ("calls", "forward", "backward", "update", "total ms", "bwd/fwd", "hot"):
            assert name in groups


@pytest.mark.parametrize(
    "changes",
    [
        {"trial_ns": None, "start_ns": None},
        {"phases": (), "framework_ns": None},
        {"links": ()},
        {"phases": (), "framework_ns": None, "links": (), "trial_ns": None, "start_ns": None},
    ],
)
@pytest.mark.parametrize("tree", [False, True])
def test_training_recordings_that_lack_parts(changes: dict[str, Any], tree: bool) -> None:
    text = shown(summarise(make_training(**changes)), tree=tree)
    assert "nan" not in text
    assert "None" not in text
    assert "NA" not in text
