"""What a prompt and a notebook show: one line, a text, a piece of HTML."""

import re
from dataclasses import replace
from typing import Any

import pytest

from chainer_profile.analyse.summaries import summarise
from chainer_profile.comparison.compare import Side, compare
from chainer_profile.record.recording import Recording
from chainer_profile.report.views import (
    MODEL_LIMIT,
    NOTEBOOK_LIMIT,
    WIDTH,
    comparison_html,
    comparison_line,
    comparison_text,
    model_html,
    model_text,
    recording_html,
    recording_line,
    summary_html,
    summary_line,
    summary_text,
)
from tests.conftest import make_recording, make_training
from tests.report.documents import NAMES, a_network, compared, named, network_of, network_row
from tests.report.seen import Page
from tests.report.tracing import SAMPLES


def checked(html: str) -> Page:
    """A fragment, which holds no script and loads nothing; its style is its own."""
    fragment = re.fullmatch(
        r'<div class="(.*?)">\n<style>(.*?)</style>\n(.*)\n</div>', html, re.DOTALL
    )
    assert fragment is not None
    classes, style, body = fragment.groups()
    # MathJax would make a formula of a name in dollar signs.
    assert {"tex2jax_ignore", "mathjax_ignore"} <= set(classes.split())
    assert "url(" not in style
    assert "@import" not in style
    assert all(line.startswith(".chainer-profile") for line in style.split("\n") if line)
    assert all(line.isprintable() for line in body.split("\n"))
    html.encode()
    return Page(body)


def rows(page: Page, head: str) -> list[list[str]]:
    """The rows of the first table whose head begins so."""
    return next(item[2] for item in page.items if item[0] == "table" and item[1][0] == head)


def test_names_are_data() -> None:
    recording = named(make_recording(len(NAMES)), NAMES)
    for name in NAMES:
        assert comparison_line(compare(Side(name, (recording,)), recording)).isprintable()
    assert recording_line(recording).isprintable()
    assert summary_line(summarise(recording)).isprintable()
    # What a piece holds is in tests/report/writers.
    checked(recording_html(recording))


def test_str_is_what_the_terminal_shows() -> None:
    summary = summarise(make_training())
    text = str(summary)
    assert text == summary_text(summary)
    assert max(map(len, text.split("\n"))) <= WIDTH
    assert "profiled trial" in text
    assert "\x1b" not in text
    narrow = summary_text(summary, width=70, group_by="block", tree=True, depth=1)
    assert max(map(len, narrow.split("\n"))) <= 70
    recording = make_recording()
    comparison = compare(recording, recording)
    assert str(comparison) == comparison_text(comparison)
    assert str(a_network()) == model_text(a_network())


@pytest.mark.parametrize("path", SAMPLES, ids=str)
def test_a_summary_shows_the_slowest_layers_and_its_findings(path: Any) -> None:
    summary = summarise(Recording.load(path))
    html = summary._repr_html_()
    page = checked(html)
    # Of a program's iterations, which differ, means are shown.
    by = "mean_s" if summary.recording.by_means else "median_s"
    layers = summary.layers.sort_values(by, ascending=False, kind="stable")
    slowest = [f"{i:,}" for i in layers.index[:NOTEBOOK_LIMIT]]
    assert [row[0] for row in rows(page, "#")] == [*slowest, ""]
    said = " ".join(item[1] for item in page.items if item[0] in ("text", "note", "point"))
    for finding in summary.findings:
        assert " ".join(finding.text.split()) in said
    assert f"{len(layers) - NOTEBOOK_LIMIT} layers not shown" in said
    assert len(html) < 30_000


def test_a_notebook_is_told_of_python_and_no_options() -> None:
    said = summary_html(summarise(make_training(5, settings={"command": ""})))
    assert "chainer_profile.accelerate()" in said
    assert "(trials=1000)" in said
    assert "--" not in re.sub(r"<style>.*?</style>", "", said, flags=re.S)


def test_a_recording_is_shown_as_its_summary_and_without_trials_says_so() -> None:
    recording = make_recording()
    assert recording_html(recording) == summary_html(summarise(recording))
    nothing = {name: getattr(recording, name)[:0] for name in ("self_ns", "trial_ns", "start_ns")}
    empty = replace(recording, **nothing, ended="interrupted by SIGINT")
    said = " ".join(item[1] for item in checked(recording_html(empty)).items)
    for part in ("contains no complete profiled trial, so there is no result.", "SIGINT", "chain"):
        assert part in said
    # Five thousand layers are no large page.
    html = recording_html(make_recording(n_layers=5000, n_trials=4))
    assert len(rows(checked(html), "#")) == NOTEBOOK_LIMIT + 1
    assert len(html) < 30_000


def test_a_comparison_shows_what_changed_and_a_network_its_rows() -> None:
    page = checked(comparison_html(compared()))
    (table,) = (item for item in page.items if item[0] == "table" and item[1][0] == "#")
    marks = {row[0]: mark for row, mark in zip(table[2], table[3], strict=True)}
    assert marks == {"3": "slower", "7": "faster"}
    assert len(rows(checked(comparison_html(compared(), limit=1)), "#")) == 1
    many = network_of(*(network_row(f"/l{at}", "ReLU", 1) for at in range(MODEL_LIMIT + 1)))
    page = checked(model_html(many))
    assert len(rows(page, "index")) == MODEL_LIMIT
    assert any(str(item[1]).startswith("1 row not shown") for item in page.items)
