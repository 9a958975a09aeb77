from __future__ import annotations

import io
import re
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from chainer_profile.checks import Finding
from chainer_profile.recording import Recording
from chainer_profile.renderers.table import SORT_KEYS, render
from chainer_profile.summary import Summary, summarise
from chainer_profile.units import format_bare_percent, format_ms
from tests.conftest import make_recording


def shown(
    summary: Summary,
    width: int = 130,
    sort: str = "time",
    limit: int | None = None,
    terminal: bool = False,
) -> str:
    file = io.StringIO()
    colour = "standard" if terminal else None
    console = Console(
        file=file, width=width, force_terminal=terminal, color_system=colour, _environ={}
    )
    render(summary, console, sort=sort, limit=limit)
    return file.getvalue()


def layer_rows(text: str) -> list[str]:
    """The lines of the layer table that begin a layer."""
    lines = text.splitlines()
    head = next(i for i, line in enumerate(lines) if re.match(r" *#.* mean ms", line))
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
    summary = summarise(make_recording(12))
    layers = summary.layers
    expected = {
        "time": layers["mean_s"].sort_values(ascending=False),
        "median": layers["median_s"].sort_values(ascending=False),
        "p95": layers["p95_s"].sort_values(ascending=False),
        "std": layers["std_s"].sort_values(ascending=False),
        "index": layers["mean_s"],
        "path": layers["path"].sort_values(kind="stable"),
        "name": layers["function"].sort_values(kind="stable"),
    }[sort]
    text = shown(summary, sort=sort)
    assert order(text) == list(expected.index)
    assert ("std ms" in text) == (sort == "std")


def test_an_unknown_order_is_an_error() -> None:
    with pytest.raises(KeyError):
        shown(summarise(make_recording()), sort="colour")


def test_limit_says_what_is_not_shown() -> None:
    summary = summarise(make_recording(66))
    text = shown(summary, limit=10)
    assert len(layer_rows(text)) == 10
    rest = summary.layers["share"].sort_values(ascending=False).iloc[10:].sum()
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
        assert format_ms(layer["mean_s"]) in line.split()
        assert format_bare_percent(layer["share"]) in line.split()


def test_columns_by_width() -> None:
    summary = summarise(make_recording(66))
    names = ("path", "function", "output", "mean ms", "+/- ms", "median", "p95", " %", "cum. %")
    heads = {
        width: next(line for line in shown(summary, width).splitlines() if "mean ms" in line)
        for width in (60, 80, 100)
    }
    assert all(name in heads[100] for name in names)
    for name in ("path", "function", "mean ms", "+/- ms", "p95", " %", "cum. %"):
        assert name in heads[80]
    assert "output" not in heads[80]
    for name in ("path", "function", "mean ms", " %"):
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
    assert format_ms(summary.layers["mean_s"][0]) in text


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
