"""The times of a whole trial."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chainer_profile.analyse.summaries import summarise
from chainer_profile.record.recording import Layer
from chainer_profile.report.content import profile
from chainer_profile.report.content.layer_section import MAX_ROWS
from chainer_profile.report.content.result_section import MAX_GROUPS
from chainer_profile.report.page import render
from tests.conftest import make_recording, make_training
from tests.goldens.words import fast
from tests.report.page.reading import Read
from tests.report.reading import Report, on_terminal, read, report_md


def report(rule: str = "pareto:50%", **changes: object) -> Report:
    return read(report_md(summarise(make_training(**changes), rule)))  # type: ignore[arg-type]


def near_sum(cells: list[str], total: float) -> bool:
    """Whether rounded cells add up; empty ones are nothing."""
    found = sum(float(cell) for cell in cells if cell)
    return found == pytest.approx(total, abs=len(cells) * 5.1e-5)


def test_many_blocks_are_summed_up() -> None:
    summary = summarise(make_recording(2000, n_trials=2))
    rows = read(report_md(summary)).after("By block")[1:]
    assert len(rows) == MAX_GROUPS + 1
    assert rows[-1][0].endswith(" others")
    assert sum(int(row[1].replace(",", "")) for row in rows) == 2000
    assert near_sum([row[2] for row in rows], summary.totals.layers_s * 1e3)


def test_networks_without_blocks_or_links() -> None:
    flat = tuple(Layer(at, f"/conv{at}", "ReLU") for at in range(3))
    shown = read(report_md(summarise(make_recording(3, layers=flat))))
    assert "By block" not in shown.headings
    assert "By link" in shown.headings
    bare = tuple(Layer(at, "/", "ReLU") for at in range(3))
    shown = read(report_md(summarise(make_recording(3, layers=bare))))
    assert "By link" not in shown.headings


def test_a_small_tree_is_shown_whole() -> None:
    layers = (Layer(0, "/a", "ReLU"), Layer(1, "/b", "Add"))
    shown = read(report_md(summarise(make_recording(2, layers=layers))))
    assert "All links are shown; links.csv has all of them" in shown.words
    assert "(/) and of framework add up to the profiled trial" in shown.words


def test_a_large_tree_is_cut() -> None:
    layers = tuple(Layer(at, f"/l{at}", "ReLU") for at in range(MAX_ROWS + 50))
    recording = make_recording(len(layers), n_trials=3, layers=layers)
    summary = summarise(recording)
    shown = read(report_md(summary))
    rows = shown.after("By link")[1:]
    links = [row for row in rows if row[0].startswith("/")]
    assert len(links) == MAX_ROWS
    slowest = summary.links["inclusive_s"].nlargest(MAX_ROWS).min()
    assert min(float(row[1]) for row in links) >= slowest * 1e3 - 1e-4
    assert "200 of 251 links are shown" in shown.words
    assert "and those of the longest times" in shown.words


def test_many_layers_of_several_phases() -> None:
    recording = make_recording(MAX_ROWS + 10, n_trials=3)
    layers = tuple(
        replace(layer, phase="backward" if layer.index > 100 else "forward")
        for layer in recording.layers
    )
    shown = read(report_md(summarise(replace(recording, layers=layers), "top:60")))
    assert len(shown.table("#")) == 60
    assert {row[3] for row in shown.table("#")} == {"forward", "backward"}
    assert "60 of 210 layers are shown" in shown.words


def test_an_engines_totals_are_in_its_words_everywhere() -> None:
    summary = summarise(fast())
    said = {
        "page": Read(render(summary)).text,
        "paper": str(dict(profile.tables(summary))["times"].cells()),
        "terminal": on_terminal(summary, 160),
    }
    for where, text in said.items():
        assert "Runtime overhead (between the nodes)" in text, where
        assert "Sum of the nodes" in text, where
        assert "Framework" not in text, where
