"""Names are data: no output takes a name of the user's for a part of its own language."""

from __future__ import annotations

import csv as csv_files
import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from chainer_profile.analyse.roofline import has_plot
from chainer_profile.analyse.summaries import summarise
from chainer_profile.analyse.summary import Summary
from chainer_profile.basics.errors import ProfileError
from chainer_profile.comparison.compare import Side, compare
from chainer_profile.record.digest import Digest, Run
from chainer_profile.record.recording import Layer, LinkCalls, Recording, Settings
from chainer_profile.report import csv_file as csv
from chainer_profile.report import links_csv
from chainer_profile.report.pictures import comparison as comparison_plot
from chainer_profile.report.pictures import layers as plot
from chainer_profile.report.pictures import roofline
from chainer_profile.report.text import printable
from chainer_profile.report.writers import (
    comparison_csv,
    comparison_markdown,
    comparison_table,
    history_table,
    json_report,
    markdown,
    table,
)
from tests.comparing import run
from tests.conftest import make_recording, make_training
from tests.report.devicing import make_device_recording, make_device_training
from tests.report.reading import read
from tests.report.working import training, with_work, working

SVG = "{http://www.w3.org/2000/svg}"
NAMES = [
    *("<script>alert(1)</script>", "\"quotes\" & 'apostrophes' <b>", "=cmd|' /C calc'!A0", "+1"),
    *(
        "-1",
        "@SUM(A1:A9)",
        "\t=1",
        "\r=1",
        " =1",
        "'=1",
        "\uff1dcmd",
        "\u202egnp.exe",
        "\x1b[31mred",
    ),
    *(
        "$\\frac{1}{0$",
        "{braces}{0}%s%(x)s",
        "back\\slash\nline",
        "a|b`c*d_e[f](g)#h~i",
        "[red]x[/red]",
    ),
    *("名前", "עברית العربية", "\ud800", "x" * 300, "%", "..", "_hidden", "]]>", "<!--", "&lt;"),
    *("\u2028", "\x00", "\ufffe", "```", "javascript:alert(1)"),
]


@lru_cache
def hostile() -> Summary:
    """A run in which everything that has a name has one of these."""
    recording = make_recording(len(NAMES), n_trials=5)
    layers = tuple(
        replace(layer, path=f"/{name}", function=name)
        for layer, name in zip(recording.layers, NAMES, strict=True)
    )
    every = "".join(NAMES)
    changed = replace(
        recording.settings, model=every, input=every, command=every, weights=every, loss=every
    )
    environment = replace(recording.environment, processor=every, python=every, commit=every)
    links = (LinkCalls("/", every, 1, 0), *(LinkCalls(f"/{name}", name, 1, 1) for name in NAMES))
    recording = replace(
        recording, layers=layers, settings=changed, environment=environment, links=links
    )
    return summarise(with_work(recording))


def terminal(summary: Summary, width: int = 120) -> str:
    file = io.StringIO()
    table.render(summary, Console(file=file, width=width, _environ={}))
    return file.getvalue()


def assert_printable(text: str) -> None:
    assert all(line.isprintable() for line in text.split("\n"))


def cells(text: str) -> list[dict[str, str]]:
    return list(csv_files.DictReader(io.StringIO(text, newline="")))


def test_layers_csv() -> None:
    text = csv.render(hostile())
    assert_printable(text)
    rows = cells(text)
    assert len(rows) == len(NAMES)
    for row, name in zip(rows, NAMES, strict=True):
        assert csv.plain(row["function"]) == printable(name)
        assert row["path"] == f"/{printable(name)}"
        for cell in row.values():
            assert not cell.lstrip().startswith(tuple("=+@\uff0b\uff0d\uff1d\uff20\t\r"))
            assert re.fullmatch(r"-[\d.e+-]+|(?!-).*", cell)


def test_links_csv() -> None:
    text = links_csv.render(hostile())
    assert_printable(text)
    rows = {row["path"]: row for row in cells(text)}
    for name in NAMES:
        if name != ".." and "/" not in name:
            assert csv.plain(rows[f"/{printable(name)}"]["kind"]) == printable(name)


@settings(max_examples=50)
@given(st.text() | st.from_regex(r"'{0,3} {0,2}[-=+@]?\w*", fullmatch=True))
def test_a_cell_gives_its_text_back(name: str) -> None:
    cell = csv.safe(name)
    assert csv.plain(cell) == printable(name)
    assert not cell.lstrip(" ").startswith(tuple("=+-@"))
    assert cell.isprintable()


def test_json() -> None:
    text = json_report.render(hostile())
    assert text.isascii()
    assert_printable(text)
    report = json.loads(text)
    assert [layer["function"] for layer in report["layers"]] == NAMES
    assert [layer["path"] for layer in report["layers"]] == [f"/{name}" for name in NAMES]
    assert report["settings"]["model"] == "".join(NAMES)
    assert {link["path"] for link in report["links"]} >= {f"/{name}" for name in NAMES}


def test_markdown() -> None:
    text = markdown.render(hostile())
    assert_printable(text)
    report = read(text)
    assert report.html == []
    assert not any(":" in link for link in report.links)
    shown = report.words
    for name in ("<script>alert(1)</script>", "a|b`c*d_e[f](g)#h~i", "$\\frac{1}{0$", "名前"):
        assert name in shown


@pytest.mark.parametrize("width", [60, 200])
def test_terminal(width: int) -> None:
    text = terminal(hostile(), width)
    assert_printable(text)
    assert "[red]x[/red]" in text
    assert "\\u202egnp.exe" in text


@pytest.mark.parametrize("renderer", [plot, roofline])
def test_pictures(renderer: object) -> None:
    assert renderer in (plot, roofline)
    tree = ElementTree.fromstring(renderer.render(hostile(), "svg"))  # type: ignore[attr-defined]
    assert not list(tree.iter(f"{SVG}script"))
    texts = ["".join(text.itertext()) for text in tree.iter(f"{SVG}text")]
    assert any(text.startswith("<script>alert(1)</script>") for text in texts)
    assert all(text.isprintable() for text in texts)
    if renderer is plot:
        # Formulas stay texts.
        assert any("$\\frac{1}{0$" in text for text in texts)
        assert any("_hidden" in text for text in texts)
    assert renderer.render(hostile(), "png").startswith(b"\x89PNG")  # type: ignore[attr-defined]


def test_comparisons() -> None:
    sides = []
    for seed in (1, 2):
        recording = run(seed, len(NAMES), n_trials=20)
        layers = tuple(
            replace(layer, path=f"/{name}", function=name)
            for layer, name in zip(recording.layers, NAMES, strict=True)
        )
        sides.append(Side("".join(NAMES), (replace(recording, layers=layers),)))
    found = compare(*sides)
    text = comparison_csv.render([found])
    assert_printable(text)
    assert [csv.plain(row["function"]) for row in cells(text) if row["row"] == "layer"] == [
        printable(name) for name in NAMES
    ]
    report = comparison_markdown.render([found], plots=["comparison.png"])
    assert_printable(report)
    assert read(report).html == []
    console = Console(file=io.StringIO(), width=100, _environ={})
    comparison_table.render(found, console)
    assert_printable(console.file.getvalue())  # type: ignore[attr-defined]
    ElementTree.fromstring(comparison_plot.render(found, "svg"))


def test_history() -> None:
    runs = [
        Run(
            name,
            Digest(
                Settings(name, name, (1, 2), 1, name, name, dtype=name, command=name),
                *(name, name, name),
                ended=name,
                median_s=1.0,
                fps=1.0,
                hot_layer=name,
                hot_path=name,
                hot_share=0.5,
                trials=1,
            ),
        )
        for name in NAMES
    ]
    for form in history_table.FORMATS:
        assert_printable(history_table.render(runs, form))
    found = cells(history_table.render(runs, "csv"))
    assert [csv.plain(row["command"]) for row in found] == [printable(name) for name in NAMES]
    assert read(history_table.render(runs, "markdown")).html == []


# --- recordings that lack something, or have much of it


LAYERS = (Layer(0, "/", "ReLU"),)
UNUSUAL: dict[str, Callable[[], Recording]] = {
    "one layer, one trial": lambda: make_recording(1, n_trials=1, n_clean=0),
    "functions only": lambda: Recording(LAYERS, np.ones((1, 1), np.int64)),
    "no time at all": lambda: Recording(LAYERS, np.zeros((3, 1), np.int64)),
    "without memory": lambda: with_work(make_recording(3), memory=None),
    "without limits": lambda: with_work(make_recording(3), limits=None),
    "all there is": lambda: with_work(make_recording()),
    "training": lambda: with_work(make_training()),
    "gpu": make_device_recording,
    "gpu training without held trials": lambda: make_device_training(n_held=0),
    "2,000 layers": lambda: with_work(make_recording(2000, n_trials=2, n_clean=0)),
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_every_output_of_unusual_recordings(name: str) -> None:
    summary = summarise(UNUSUAL[name]())
    count = len(summary.layers)
    assert len(cells(csv.render(summary))) == count
    assert len(cells(links_csv.render(summary))) == len(summary.links)
    assert len(json.loads(json_report.render(summary))["layers"]) == count
    file = io.StringIO()
    table.render(summary, Console(file=file, width=80, _environ={}), limit=20)
    report = markdown.render(summary)
    for text in (file.getvalue(), report):
        assert_printable(text)
        assert not re.search(r"\b(nan|None(?! of)|<NA>|inf)\b", text)
    assert read(report).html == []
    ElementTree.fromstring(plot.render(summary, "svg"))
    if has_plot(summary.recording, summary.layers):
        ElementTree.fromstring(roofline.render(summary, "svg"))


def test_no_trial_kept_is_one_clear_line() -> None:
    with pytest.raises(ProfileError, match="holds no complete profiled trial") as error:
        summarise(Recording((Layer(0, "/", "ReLU"),), np.zeros((0, 1), np.int64)))
    assert "\n" not in str(error.value)


# --- names in the roofline plot


def test_names_of_functions_cover_no_other_name() -> None:
    for summary in (working(), training(), hostile()):
        figure = roofline.figure(summary)
        figure.draw_without_rendering()
        axes = figure.axes[0]
        boxes = [text.get_window_extent() for text in axes.texts]
        assert boxes
        for at, box in enumerate(boxes):
            assert not any(box.overlaps(other) for other in boxes[:at])
            assert axes.bbox.y0 <= box.y0
