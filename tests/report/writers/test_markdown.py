"""Markdown: what its signs are for, and the structure of report.md."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from chainer_profile.analyse.findings import Finding
from chainer_profile.analyse.summaries import summarise
from chainer_profile.record.recording import Conditions, Layer, Recording, Settings
from chainer_profile.report.columns import LAYER_COLUMNS, LINK_COLUMNS
from chainer_profile.report.content.layer_section import MAX_ROWS, SLOWEST
from chainer_profile.report.content.profile import ReportTitle
from chainer_profile.report.content.result_section import MAX_HOT
from chainer_profile.report.document import HOT, Code, Heading, file, points, text
from chainer_profile.report.tables import Table, meanings
from chainer_profile.report.text import printable
from chainer_profile.report.writers import markdown
from tests.conftest import make_recording, make_training
from tests.report.reading import column, read, report_md
from tests.report.scaled import scaled


def test_parts_of_the_report() -> None:
    report = read(report_md(summarise(make_recording())))
    assert report.headings == [
        "Layer-wise profile of chain",
        "1 Experiment description",
        "2 Environment",
        "3 Methodology",
        "4 Result",
        "The layers",
        "Hotspots",
        "By function",
        "By block",
        "By link",
        "5 Next step for improvement",
        "6 Appendix",
        "Command and versions",
        "By layer",
        "Files beside this report",
    ]
    assert report.code == ["python profile.py --model chain\n"] * 2
    assert report.images == [("Bar plot of the median self time of every layer", "layers.png")]
    explained = [[row[0] for row in t[1:]] for t in report.tables if t[0] == ["column", "meaning"]]
    assert explained == [list(meanings(LAYER_COLUMNS)), list(meanings(LINK_COLUMNS))]
    assert "Note:" not in report.words


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


def test_functions_add_up() -> None:
    summary = summarise(make_recording(66))
    by_function = [
        table for table in read(report_md(summary)).tables if table[0][:2] == ["function", "calls"]
    ]
    rows = by_function[0][1:]
    assert sum(int(row[1]) for row in rows) == 66
    assert sum(float(row[2]) for row in rows) == pytest.approx(
        summary.totals.layers_s * 1e3, abs=2e-4
    )
    assert sum(int(row[5]) for row in rows) == len(summary.hotspots.indices)


def test_hotspots_by_function_and_part() -> None:
    recording = scaled([40, 30, 20, 10], ["A", "B", "A", "C"])
    report = read(report_md(summarise(recording, "top:3")))
    by_function = [table for table in report.tables if table[0][:2] == ["function", "hot layers"]]
    assert by_function[0][1:] == [["A", "2", "60.0"], ["B", "1", "30.0"]]
    assert report.table("part of the network") == [["/part0", "2", "70.0"], ["/part1", "1", "20.0"]]
    assert "3 of 4 layers are hot and hold 90.0 %" in report.words
    assert "The other layer holds 10.0 %." in report.words


def test_layers_that_are_not_hot() -> None:
    report = read(report_md(summarise(scaled([40, 30, 20, 10], ["A", "B", "A", "C"]), "top:2")))
    assert "None of the other 2 layers holds more than 20.0 %." in report.words


def test_no_hot_layer() -> None:
    report = read(report_md(summarise(make_recording(6), "1s")))
    assert "No layer is hot. The slowest is " in report.words
    assert report.bold_rows == []


def test_many_parts_are_summed_up() -> None:
    layers = tuple(Layer(i, f"/conv{i}", "ReLU") for i in range(60))
    report = read(report_md(summarise(Recording(layers, np.ones((3, 60), np.int64)), "top:60")))
    rows = report.table("part of the network")
    assert len(rows) == 21
    assert rows[-1][:2] == ["40 others", "40"]
    assert sum(int(row[1]) for row in rows) == 60


def test_findings_come_with_their_advice() -> None:
    finding = Finding("unstable", "warning", "The trials vary: <b>.", "Close [x](y) programs.")
    report = read(report_md(replace(summarise(make_recording()), findings=(finding,))))
    assert "warning: The trials vary: <b>. Close [x](y) programs." in report.words


def test_modes_in_words() -> None:
    test = report_md(summarise(make_recording()))
    assert "stored averages (`FixedBatchNormalization`)" in test
    assert "train mode" not in test
    plain = report_md(summarise(make_recording(1)))
    assert "without backprop." in plain
    assert "FixedBatchNormalization`" not in plain
    train = report_md(summarise(make_recording(settings=Settings(train_mode=True))))
    assert "on purpose in train mode" in train
    assert "test mode, so these are not the times of inference" in train


def test_notes_on_top() -> None:
    recording = make_recording(n_trials=40, n_clean=0, ended="interrupted")
    text = report_md(summarise(recording))
    top = text[: text.index("## 1 ")]
    assert top.count("40 of 40 trials: interrupted.") == 1
    assert "No clean trials" in top
    assert top.count("> **Note:**") == 2


def test_method_tells_what_is_known_of_the_clock() -> None:
    known = report_md(summarise(make_recording(conditions=Conditions(40.0, 85.0))))
    assert "clock that was seen is 40.00 ns" in known
    assert "does nothing shows 85.00 ns" in known
    assert "clock" not in report_md(summarise(make_recording()))


# --- a training step


def test_parts_of_the_report_of_a_training_step() -> None:
    report = read(report_md(summarise(make_training())))
    assert report.headings[4:12] == [
        "4 Result",
        "By phase",
        "The layers",
        "Hotspots",
        "By function",
        "By block",
        "By link",
        "5 Next step for improvement",
    ]
    assert report.html == []
    properties = dict(report.tables[0][1:])
    assert properties["Trial"] == (
        "training step (forward, softmax_cross_entropy, backward, update with MomentumSGD)"
    )
    assert properties["Layers"] == "25: 9 forward, 11 backward, 5 update"
    assert properties["Mode"] == "train mode"
    assert "Function calls" not in properties
    assert "how long each function takes in each phase of a trial" in report.words


def test_words_of_inference_stay_out_of_training() -> None:
    for data in (False, True):
        text = report_md(summarise(make_training(data=data)))
        assert "These are not the times of inference." in text
        assert text.lower().count("inference") == 1
        assert "on purpose" not in text
    plain = make_training(settings={"train_mode": False, "phase": "forward-backward"})
    text = report_md(summarise(plain))
    assert "ran in test mode (`chainer.config.train` was off)." in text
    assert "inference" not in text


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


def test_the_hot_layers_are_listed_slowest_first() -> None:
    recording = scaled([10, 40, 20, 30], ["A", "B", "A", "C"])
    rows = read(report_md(summarise(recording, "top:3"))).table("rank")
    assert [row[:2] for row in rows] == [["1", "1"], ["2", "3"], ["3", "2"]]
    assert [row[-2] for row in rows] == ["40.0", "30.0", "20.0"]
    assert [row[-1] for row in rows] == ["40.0", "70.0", "90.0"]


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
