from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from html import unescape

import numpy as np
import pytest

from chainer_profile.analyse.summaries import summarise
from chainer_profile.analyse.summary import Finding
from chainer_profile.basics.words import DEFAULT_DEPTH
from chainer_profile.record.recording import Conditions, Environment, Layer, Recording, Settings
from chainer_profile.report import csv_file as csv
from chainer_profile.report import links_csv
from chainer_profile.report.content.coursework import MAX_HOT, ReportTitle
from chainer_profile.report.content.layer_section import MAX_ROWS, SLOWEST
from chainer_profile.report.writers.markdown import render
from tests.conftest import make_recording, make_training
from tests.report.reading import Report, read
from tests.report.scaled import scaled


def renamed(recording: Recording, name: str) -> Recording:
    layers = tuple(replace(layer, function=name, path=f"/{name}") for layer in recording.layers)
    settings = replace(recording.settings, model=name, input=name, weights=name, command=name)
    environment = replace(recording.environment, processor=name)
    return replace(recording, layers=layers, settings=settings, environment=environment)


def test_parts_of_the_report() -> None:
    report = read(render(summarise(make_recording())))
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
    assert explained == [list(csv.COLUMNS), list(links_csv.COLUMNS)]
    assert "Note:" not in report.words


def test_addresses_of_plot_and_table() -> None:
    summary = summarise(make_recording(MAX_ROWS + 1))
    addresses = {"plot": "a plot (1).svg", "table": "x/all layers.csv", "links": "x/all links.csv"}
    report = read(render(summary, **addresses))
    assert report.images[0][1] == "a%20plot%20%281%29.svg"
    layers, links = "x/all%20layers.csv", "x/all%20links.csv"
    assert report.links == [links, layers, layers, links]


@pytest.mark.parametrize("n_layers", [1, 6, 66, MAX_ROWS])
def test_layer_table_has_all_layers_in_order(n_layers: int) -> None:
    summary = summarise(make_recording(n_layers))
    report = read(render(summary))
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
    report = read(render(summary))
    rows = report.table("#")
    assert len(rows) == 60
    shown = [int(row[0]) for row in rows]
    assert shown == sorted(set(summary.hotspots.indices))
    assert f"60 of {n_layers:,d} layers are shown" in report.words
    few = read(render(summarise(make_recording(n_layers, n_trials=5), "top:3")))
    assert len(few.table("#")) == SLOWEST
    many = read(render(summarise(make_recording(n_layers, n_trials=5), "pareto:100%")))
    assert len(many.table("#")) == MAX_ROWS


def test_it_adds_up() -> None:
    summary = summarise(make_recording(66))
    found = re.search(
        r"layers ([\d.]+) ms \+ framework ([\d.]+) ms = profiled trial ([\d.]+) ms",
        render(summary),
    )
    assert found is not None
    layers, framework, trial = map(float, found.groups())
    assert layers + framework == pytest.approx(trial, abs=1.5e-4)
    assert summary.totals.profiled is not None
    assert trial == pytest.approx(summary.totals.profiled.mean_s * 1e3, abs=1e-4)


def test_functions_add_up() -> None:
    summary = summarise(make_recording(66))
    by_function = [
        table for table in read(render(summary)).tables if table[0][:2] == ["function", "calls"]
    ]
    rows = by_function[0][1:]
    assert sum(int(row[1]) for row in rows) == 66
    assert sum(float(row[2]) for row in rows) == pytest.approx(
        summary.totals.layers_s * 1e3, abs=2e-4
    )
    assert sum(int(row[5]) for row in rows) == len(summary.hotspots.indices)


def test_hotspots_by_function_and_part() -> None:
    recording = scaled([40, 30, 20, 10], ["A", "B", "A", "C"])
    report = read(render(summarise(recording, "top:3")))
    by_function = [table for table in report.tables if table[0][:2] == ["function", "hot layers"]]
    assert by_function[0][1:] == [["A", "2", "60.0"], ["B", "1", "30.0"]]
    assert report.table("part of the network") == [["/part0", "2", "70.0"], ["/part1", "1", "20.0"]]
    assert "3 of 4 layers are hot and hold 90.0 %" in report.words
    assert "The other layer holds 10.0 %." in report.words


def test_layers_that_are_not_hot() -> None:
    report = read(render(summarise(scaled([40, 30, 20, 10], ["A", "B", "A", "C"]), "top:2")))
    assert "None of the other 2 layers holds more than 20.0 %." in report.words


def test_no_hot_layer() -> None:
    report = read(render(summarise(make_recording(6), "1s")))
    assert "No layer is hot. The slowest is " in report.words
    assert report.bold_rows == []


def test_many_parts_are_summed_up() -> None:
    layers = tuple(Layer(i, f"/conv{i}", "ReLU") for i in range(60))
    report = read(render(summarise(Recording(layers, np.ones((3, 60), np.int64)), "top:60")))
    rows = report.table("part of the network")
    assert len(rows) == 21
    assert rows[-1][:2] == ["40 others", "40"]
    assert sum(int(row[1]) for row in rows) == 60


def test_findings_come_with_their_advice() -> None:
    finding = Finding("unstable", "warning", "The trials vary: <b>.", "Close [x](y) programs.")
    report = read(render(replace(summarise(make_recording()), findings=(finding,))))
    assert "warning: The trials vary: <b>. Close [x](y) programs." in report.words


def test_modes_in_words() -> None:
    test = render(summarise(make_recording()))
    assert "stored averages (`FixedBatchNormalization`)" in test
    assert "train mode" not in test
    plain = render(summarise(make_recording(1)))
    assert "without backprop." in plain
    assert "FixedBatchNormalization`" not in plain
    train = render(summarise(make_recording(settings=Settings(train_mode=True))))
    assert "on purpose in train mode" in train
    assert "test mode, so these are not the times of inference" in train


def test_notes_on_top() -> None:
    recording = make_recording(n_trials=40, n_clean=0, ended="interrupted")
    text = render(summarise(recording))
    top = text[: text.index("## 1 ")]
    assert "(interrupted)" in top
    assert "No clean trials" in top
    assert top.count("> **Note:**") == 2


def test_method_tells_what_is_known_of_the_clock() -> None:
    known = render(summarise(make_recording(conditions=Conditions(40.0, 85.0))))
    assert "clock that was seen is 40.00 ns" in known
    assert "does nothing shows 85.00 ns" in known
    assert "clock" not in render(summarise(make_recording()))


BARE = Recording(make_recording(2).layers, np.array([[5000, 1000]]))


@pytest.mark.parametrize(
    "recording",
    [
        BARE,
        replace(BARE, ended="failed: MemoryError", settings=Settings(trials=9)),
        make_recording(1),
        make_recording(n_trials=1),
        make_recording(n_trials=1, n_clean=1),
        make_recording(n_clean=0),
        make_recording(n_clean=0, trial_ns=None, start_ns=None),
        make_recording(start_ns=None),
        make_recording(n_trials=5, self_ns=np.zeros((5, 6), np.int64)),
        make_recording(settings=Settings(), environment=Environment()),
        make_recording(
            n_trials=5,
            n_clean=0,
            self_ns=np.zeros((5, 6), np.int64),
            trial_ns=np.zeros(5, np.int64),
        ),
    ],
)
@pytest.mark.parametrize("rule", ["pareto:50%", "1s"])
def test_recordings_that_lack_parts(recording: Recording, rule: str) -> None:
    text = render(summarise(recording, rule))
    assert not re.search(r"\bnan\b|\binf\b", text, re.IGNORECASE)
    assert "None of the other" in text or "None" not in text
    assert "None" not in text.replace("None of the other", "")
    report = read(text)
    cells = [cell for table in report.tables for row in table for cell in row[1:]]
    assert "-" not in cells
    tables = [table for table in report.tables if table[0][0] != "link"]
    assert "" not in [cell for table in tables for row in table[1:] for cell in row[:3]]
    assert len(report.table("#")) == len(recording.layers)


@lru_cache(maxsize=2)
def renamed_report(name: str) -> Report:
    return read(render(summarise(renamed(make_recording(4), name))))


@pytest.mark.parametrize(
    "name",
    [
        "a|b",
        "<script>alert(1)</script>",
        "<div x",
        "&lt;",
        "`code`",
        "```",
        "**bold** _it_ __init__ a_b_",
        "![x](http://a/b.png)",
        "[a](b)",
        "- item",
        "1. item",
        "# head",
        "line\n\n# head",
        "back\\slash\\",
        "~~gone~~ $x$",
        "\x1b[31m",
        "\ud800",
        " ",
    ],
)
def test_names_are_shown_as_they_are(name: str) -> None:
    plain, hostile = renamed_report("plain"), renamed_report(name)
    assert len(hostile.headings) == len(plain.headings)
    sizes = {table[0][0]: len(table) for table in plain.tables}
    # A slash in a name makes one more level of links.
    sizes["link"] += min(1 + name.count("/"), DEFAULT_DEPTH) - 1
    assert {table[0][0]: len(table) for table in hostile.tables} == sizes
    assert hostile.images == plain.images
    assert hostile.links == plain.links
    assert hostile.html == []
    assert len(hostile.text) == len(plain.text)
    if name.isprintable() and name.strip():
        assert hostile.headings[0] == f"Layer-wise profile of {name}"
        assert {row[1] for row in hostile.table("#")} == {f"/{name}"}
        assert {row[2] for row in hostile.table("#")} == {name}
        assert hostile.code[0] == f"{name}\n"
        if "/" not in name:
            assert hostile.words.replace(name, "plain") == plain.words
    assert len(hostile.code) == 2


def test_usual_names_are_not_escaped() -> None:
    text = render(summarise(renamed(make_recording(3), "conv_1/res2 (a)")))
    assert "/conv_1/res2 (a)" in text
    assert unescape(text) == text


# --- a training step


def test_parts_of_the_report_of_a_training_step() -> None:
    report = read(render(summarise(make_training())))
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
        text = render(summarise(make_training(data=data)))
        assert "These are not the times of inference." in text
        assert text.lower().count("inference") == 1
        assert "on purpose" not in text
    plain = make_training(settings={"train_mode": False, "phase": "forward-backward"})
    text = render(summarise(plain))
    assert "ran in test mode (`chainer.config.train` was off)." in text
    assert "inference" not in text


@pytest.mark.parametrize(
    "changes",
    [
        {"trial_ns": None, "start_ns": None},
        {"phases": (), "framework_ns": None},
        {"links": ()},
        {"phases": (), "framework_ns": None, "links": (), "trial_ns": None, "start_ns": None},
        {"n_trials": 1},
    ],
)
@pytest.mark.parametrize("rule", ["pareto:50%", "1s"])
def test_training_recordings_that_lack_parts(changes: dict[str, object], rule: str) -> None:
    text = render(summarise(make_training(**changes), rule))  # type: ignore[arg-type]
    assert not re.search(r"\bnan\b|\binf\b|<NA>", text, re.IGNORECASE)
    assert "None" not in text.replace("None of the other", "")
    assert len(read(text).table("#")) == 25


# --- title, captions, and the hot layers


def test_nothing_is_printed_for_an_empty_title() -> None:
    summary = summarise(make_recording())
    assert render(summary) == render(summary, title=ReportTitle())
    assert render(summary).startswith(
        "# Layer-wise profile of chain\n\n## 1 Experiment description\n"
    )


def test_title_author_course_and_date() -> None:
    title = ReportTitle("A *first* look", " Ada <b>\n", "Systems, lab 2", "21 November 2026")
    report = read(render(summarise(make_recording()), title=title))
    assert report.headings[0] == "A *first* look"
    assert report.text[0] == "Author: Ada <b>Course: Systems, lab 2Date: 21 November 2026"
    assert "Ada &lt;b&gt;  \n**Course**" in render(summarise(make_recording()), title=title)
    assert report.html == []
    assert report.code == ["python profile.py --model chain\n"] * 2


@pytest.mark.parametrize(
    "recording", [make_recording(), make_training(), make_recording(1, n_trials=1, n_clean=0)]
)
def test_every_table_and_figure_has_its_number(recording: Recording) -> None:
    text = render(summarise(recording))
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
    rows = read(render(summarise(recording, "top:3"))).table("rank")
    assert [row[:2] for row in rows] == [["1", "1"], ["2", "3"], ["3", "2"]]
    assert [row[-2] for row in rows] == ["40.0", "30.0", "20.0"]
    assert [row[-1] for row in rows] == ["40.0", "70.0", "90.0"]


def test_only_the_slowest_of_many_hot_layers_are_listed() -> None:
    summary = summarise(make_recording(66), "pareto:100%")
    report = read(render(summary))
    assert len(report.table("rank")) == MAX_HOT
    assert f"Table 4. The {MAX_HOT} slowest of 66 hot layers." in report.text
