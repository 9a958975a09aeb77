"""Markdown: what its signs are for, and the structure of report.md."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from chainer_profile.analyse.findings import Finding
from chainer_profile.analyse.summaries import summarise
from chainer_profile.record.recording import Recording
from chainer_profile.report.content.layer_section import MAX_ROWS, SLOWEST
from chainer_profile.report.content.profile import ReportTitle
from chainer_profile.report.content.result_section import MAX_HOT
from chainer_profile.report.document import HOT, Code, Heading, file, points, text
from chainer_profile.report.tables import Table
from chainer_profile.report.text import printable
from chainer_profile.report.writers import markdown
from tests.conftest import make_recording, make_training
from tests.report.reading import column, read, report_md


@pytest.mark.parametrize("n_layers", [1, 6, 66, MAX_ROWS])
def test_layer_table_has_all_layers_in_order(n_layers: int) -> None:
    summary = summarise(make_recording(n_layers))
    report = read(report_md(summary))
    rows = report.table("#")
    assert [row[0] for row in rows] == [str(i) for i in range(n_layers)]
    assert [row[1] for row in rows] == summary.layers["path"].tolist()
    assert [row[2] for row in rows] == summary.layers["function"].tolist()
    medians = sum(float(row[4]) for row in rows)
    expected = summary.layers["median_s"].sum() * 1e3
    assert medians == pytest.approx(expected, abs=n_layers * 5.1e-5)
    means = sum(float(row[6]) for row in rows)
    assert means == pytest.approx(summary.totals.layers_s * 1e3, abs=n_layers * 5.1e-5)
    assert sum(float(row[8]) for row in rows) == pytest.approx(100, abs=n_layers * 0.051)
    for row in rows:
        low, high = map(float, row[5].split(" to "))
        assert low <= float(row[4]) <= high
    assert report.bold("#") == [str(i) for i in summary.hotspots.indices]


def test_large_networks_show_hot_and_slowest_layers() -> None:
    n_layers = 1001
    summary = summarise(make_recording(n_layers, n_trials=5), "top:60")
    report = read(report_md(summary))
    rows = report.table("#")
    assert len(rows) == 60
    shown = [int(row[0]) for row in rows]
    assert shown == sorted(set(summary.hotspots.indices))
    assert f"60 of {n_layers:,d} layers are shown" in report.words
    few = read(report_md(summarise(make_recording(n_layers, n_trials=5), "top:3")))
    assert len(few.table("#")) == SLOWEST
    many = read(report_md(summarise(make_recording(n_layers, n_trials=5), "pareto:100%")))
    assert len(many.table("#")) == MAX_ROWS


def test_it_adds_up() -> None:
    summary = summarise(make_recording(66))
    found = re.search(
        r"layers ([\d.]+) ms \+ framework ([\d.]+) ms = profiled trial ([\d.]+) ms",
        report_md(summary),
    )
    assert found is not None
    layers, framework, trial = map(float, found.groups())
    assert layers + framework == pytest.approx(trial, abs=1.5e-4)
    assert summary.totals.profiled is not None
    assert trial == pytest.approx(summary.totals.profiled.mean_s * 1e3, abs=1e-4)


def test_findings_come_with_their_advice() -> None:
    finding = Finding("unstable", "warning", "The trials vary: <b>.", "Close [x](y) programs.")
    report = read(report_md(replace(summarise(make_recording()), findings=(finding,))))
    assert "warning: The trials vary: <b>. Close [x](y) programs." in report.words


# --- title, captions, and the hot layers


def test_nothing_is_printed_for_an_empty_title() -> None:
    summary = summarise(make_recording())
    text = report_md(summary)
    assert text == report_md(summary, ReportTitle())
    assert text.startswith("# Layer-wise profile of chain\n\n**A forward pass takes ")


def test_title_author_course_and_date() -> None:
    title = ReportTitle("A *first* look", " Ada <b>\n", "Systems, lab 2", "21 November 2026")
    report = read(report_md(summarise(make_recording()), title))
    assert report.headings[0] == "A *first* look"
    assert report.text[0] == "Author: Ada <b>Course: Systems, lab 2Date: 21 November 2026"
    assert "Ada &lt;b&gt;  \n**Course**" in report_md(summarise(make_recording()), title)
    assert report.html == []
    assert report.code == ["python profile.py --model chain\n"] * 2


@pytest.mark.parametrize(
    "recording", [make_recording(), make_training(), make_recording(1, n_trials=1, n_clean=0)]
)
def test_every_table_and_figure_has_its_number(recording: Recording) -> None:
    text = report_md(summarise(recording))
    report = read(text)
    captions = [re.match(r"(Table|Figure) (\d+)\. (.+)\.$", line) for line in report.text]
    found = {kind: [m for m in captions if m and m[1] == kind] for kind in ("Table", "Figure")}
    assert len(found["Table"]) == len(report.tables)
    assert len(found["Figure"]) == len(report.images)
    for kind in found.values():
        assert [int(m[2]) for m in kind] == list(range(1, len(kind) + 1))
    words = [m[3] for m in found["Table"]]
    assert len(set(words)) == len(words)


def test_only_the_slowest_of_many_hot_layers_are_listed() -> None:
    summary = summarise(make_recording(66), "pareto:100%")
    report = read(report_md(summary))
    assert len(report.table("rank")) == MAX_HOT
    assert f"Table 4. The {MAX_HOT} slowest of 66 hot layers." in report.text


# --- signs


def test_usual_names_are_not_escaped() -> None:
    text = markdown.write(
        [Heading(1, "conv_1/res2 (a)"), points(["time [ms] a trial", "a -> b, 50 %"])]
    )
    assert text == "# conv_1/res2 (a)\n\n- time [ms] a trial\n- a -> b, 50 %\n"


def test_a_table_of_columns() -> None:
    columns = [
        column("name", lambda row: row[0], kind="text 8"),
        column("ms", lambda row: row[1], "time [ms]"),
    ]
    table = Table(
        columns, [("a|b", "1"), ("*c*", "")], "times", ["", HOT], [("ms", "In ms.")], number=3
    )
    lines = ["**Table 3.** times.", "", "| name | time [ms] |", "| --- | ---: |"]
    rows = ["| a\\|b | 1 |", "| **\\*c\\*** |  |"]
    assert markdown.write([table]).splitlines() == [*lines, *rows, "", "In ms."]


@pytest.mark.parametrize(
    "path", ["links.csv", "a b/(1).csv", "[x].csv", "a*b.csv", "\ud800", "c:d"]
)
def test_a_link_shows_the_name_and_leads_to_it(path: str) -> None:
    report = read(markdown.write([text("See ", file(path), ".")]))
    assert report.text == [f"See {printable(path)}."]
    assert report.links == [markdown.address(path)]
    assert not set(" ():") & set(markdown.address(path))


@pytest.mark.parametrize("line", ["a", "```", "x ```` y", ""])
def test_code_is_shown_as_it_is(line: str) -> None:
    assert read(markdown.write([Code(line)])).code == [f"{line}\n"]
