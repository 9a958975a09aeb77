from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from html import unescape

import numpy as np
import pytest
from markdown_it import MarkdownIt

from chainer_profile.checks import Finding
from chainer_profile.recording import Conditions, Environment, Layer, Recording, Settings
from chainer_profile.renderers.csv import COLUMNS
from chainer_profile.renderers.markdown import MAX_ROWS, SLOWEST, render
from chainer_profile.summary import summarise
from tests.conftest import make_recording


@dataclass
class Report:
    """A report as a reader sees it: headings, paragraphs, list items, tables."""

    headings: list[str] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    tables: list[list[list[str]]] = field(default_factory=list)
    code: list[str] = field(default_factory=list)
    images: list[tuple[str, str]] = field(default_factory=list)
    bold_rows: list[str] = field(default_factory=list)
    html: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)

    @property
    def words(self) -> str:
        cells = [cell for table in self.tables for row in table for cell in row]
        return "\n".join([*self.headings, *self.text, *cells])

    def table(self, head: str) -> list[list[str]]:
        """The rows of the only table whose head begins so, without the head."""
        (found,) = [table for table in self.tables if table[0][0] == head]
        return found[1:]


def read(markdown: str) -> Report:
    report = Report()
    kind = ""
    for token in MarkdownIt("commonmark", {"html": True}).enable("table").parse(markdown):
        if token.type in ("heading_open", "paragraph_open", "th_open", "td_open"):
            kind = token.type
        elif token.type == "table_open":
            report.tables.append([])
        elif token.type == "tr_open":
            report.tables[-1].append([])
        elif token.type == "fence":
            report.code.append(token.content)
        elif token.type == "html_block":
            report.html.append(token.content)
        elif token.type == "inline":
            children = token.children or []
            shown = "".join(c.content if c.type != "softbreak" else "\n" for c in children)
            report.images += [
                (c.content, str(c.attrs["src"])) for c in children if c.type == "image"
            ]
            report.html += [c.content for c in children if c.type == "html_inline"]
            report.links += [str(c.attrs["href"]) for c in children if c.type == "link_open"]
            if kind == "heading_open":
                report.headings.append(shown)
            elif kind == "paragraph_open":
                report.text.append(shown)
            else:
                report.tables[-1][-1].append(shown)
                first = len(report.tables[-1][-1]) == 1
                if first and any(c.type == "strong_open" for c in children):
                    report.bold_rows.append(shown)
    return report


def renamed(recording: Recording, name: str) -> Recording:
    layers = tuple(replace(layer, function=name, path=f"/{name}") for layer in recording.layers)
    settings = replace(recording.settings, model=name, input=name, weights=name, command=name)
    environment = replace(recording.environment, processor=name)
    return replace(recording, layers=layers, settings=settings, environment=environment)


def scaled(
    scale: list[float], names: list[str], framework_ns: int = 0, **settings: object
) -> Recording:
    """A recording of constant times in microseconds."""
    layers = tuple(
        Layer(i, f"/part{i // 2}/l{i}", name, "forward", ((1, 3),), ((1, 3),), "float32")
        for i, name in enumerate(names)
    )
    self_ns = np.tile((np.array(scale) * 1000).astype(np.int64), (50, 1))
    return Recording(
        layers,
        self_ns,
        trial_ns=self_ns.sum(axis=1) + framework_ns,
        clean_ns=np.full(10, self_ns[0].sum() + framework_ns),
        clean_start_ns=np.arange(10),
        start_ns=np.arange(50) + 10,
        settings=Settings(model="net", trials=50, **settings),  # type: ignore[arg-type]
    )


def next_steps(recording: Recording) -> str:
    text = render(summarise(recording))
    return text[text.index("## 6") : text.index("## 7")]


def test_parts_of_the_report() -> None:
    report = read(render(summarise(make_recording())))
    assert report.headings == [
        "Layer-wise profile of chain",
        "1 Experiment",
        "2 Environment",
        "3 Method",
        "4 Result",
        "By function",
        "By layer",
        "5 Hotspots",
        "6 What to do next",
        "7 Appendix",
    ]
    assert report.code == ["python profile.py --model chain\n"] * 2
    assert report.images == [("Bar plot of the mean self time of every layer", "layers.png")]
    assert [row[0] for row in report.table("column")] == list(COLUMNS)
    assert "Note:" not in report.words


def test_addresses_of_plot_and_table() -> None:
    summary = summarise(make_recording(MAX_ROWS + 1))
    report = read(render(summary, plot="a plot (1).svg", table="x/all layers.csv"))
    assert report.images[0][1] == "a%20plot%20%281%29.svg"
    assert report.links == ["x/all%20layers.csv"] * 2


@pytest.mark.parametrize("n_layers", [1, 6, 66, MAX_ROWS])
def test_layer_table_has_all_layers_in_order(n_layers: int) -> None:
    summary = summarise(make_recording(n_layers))
    report = read(render(summary))
    rows = report.table("#")
    assert [row[0] for row in rows] == [str(i) for i in range(n_layers)]
    assert [row[1] for row in rows] == summary.layers["path"].tolist()
    assert [row[2] for row in rows] == summary.layers["function"].tolist()
    means = sum(float(row[4]) for row in rows)
    assert means == pytest.approx(summary.totals.layers_s * 1e3, abs=n_layers * 5.1e-5)
    assert sum(float(row[8]) for row in rows) == pytest.approx(100, abs=n_layers * 0.051)
    for row in rows:
        low, high = map(float, row[5].split(" to "))
        assert low <= float(row[4]) <= high
    assert report.bold_rows == [str(i) for i in summary.hotspots.indices]


@pytest.mark.parametrize("n_layers", [500, 5000])
def test_large_networks_show_hot_and_slowest_layers(n_layers: int) -> None:
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


def test_where_to_begin_follows_from_the_numbers() -> None:
    steps = next_steps(scaled([40, 30, 20, 10], ["A", "B", "A", "C"], framework_ns=100_000))
    assert "2 of 4 layers hold half of the layers' time: 0_A and 1_B." in steps
    # A holds 60 of 200 us: Amdahl's limit is 200 / 140.
    assert "A takes the most time of all functions: 30.0 % of the trial in 2 calls." in steps
    assert "Made 2x as fast, it would shorten the trial by 15.0 %" in steps
    assert "1.43x as fast at most" in steps
    three = next_steps(scaled([40, 30, 40, 10], ["A", "B", "A", "A"]))
    assert "hold half of the layers' time; all of them are A." in three
    some = next_steps(scaled([30, 33, 31, 60, 60, 60], list("AAABBC")))
    assert "3 of 6 layers hold half of the layers' time; 2 of them are B." in some
    assert "of the layers' time" not in next_steps(scaled([90], ["A"]))
    one = next_steps(scaled([90, 10], ["A", "B"]))
    assert "1 of 2 layers holds half of the layers' time: 0_A." in one


@pytest.mark.parametrize(
    ("framework_us", "batchsize", "expected"),
    [(100, 1, "try -b 32 and"), (100, 32, "Fewer function calls"), (5, 1, None)],
)
def test_advice_on_framework_time(framework_us: int, batchsize: int, expected: str | None) -> None:
    recording = scaled([50, 50], ["A", "B"], framework_ns=framework_us * 1000, batchsize=batchsize)
    steps = next_steps(recording)
    assert ("passes between the functions" in steps) == (expected is not None)
    if expected is not None:
        assert expected in steps
        assert "50.0 % of the trial passes" in steps
        assert "50.00 us a call" in steps
    assert ("`-b 32`" in steps) == (expected == "`-b 32`")


@pytest.mark.parametrize(
    ("names", "device", "advised"),
    [
        (["Convolution2DFunction", "ReLU"], "cpu", True),
        (["Convolution2DFunction", "ReLU"], "gpu:0", False),
        (["ReLU", "Convolution2DFunction"], "cpu", False),
    ],
)
def test_advice_on_the_gpu(names: list[str], device: str, advised: bool) -> None:
    steps = next_steps(scaled([80, 20], names, framework_ns=25_000, device=device))
    assert ("--gpu 0" in steps) == advised
    if advised:
        assert "Convolution2DFunction takes 80.0 % of the layers' time" in steps
        assert "20.0 % between the functions would stay on the CPU" in steps
        assert "at most 5.00x" in steps


def test_advice_on_the_gpu_names_only_what_counts() -> None:
    names = ["Convolution2DFunction", "LinearFunction"]
    assert "Convolution2DFunction takes 97.0 % of" in next_steps(scaled([97, 3], names))
    both = next_steps(scaled([60, 40], names))
    assert "Convolution2DFunction and LinearFunction take 100.0 % of" in both


def test_advice_on_batch_normalisation() -> None:
    names = ["Convolution2DFunction", "FixedBatchNormalization", "ReLU", "FixedBatchNormalization"]
    steps = next_steps(scaled([50, 20, 10, 20], names))
    assert "1 of 2 calls of FixedBatchNormalization comes right after a convolution" in steps
    assert "save up to these 20.0 %" in steps
    assert "right after a convolution" not in next_steps(scaled([98, 2, 1, 2], names))
    names[1] = "BatchNormalization"
    assert "right after a convolution" not in next_steps(scaled([50, 20, 10, 20], names))


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
    top = text[: text.index("## 1")]
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
    assert "" not in [cell for table in report.tables for row in table[1:] for cell in row[:3]]
    assert len(report.table("#")) == len(recording.layers)


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
    plain, hostile = (
        read(render(summarise(renamed(make_recording(4), word)))) for word in ("plain", name)
    )
    assert len(hostile.headings) == len(plain.headings)
    assert [len(table) for table in hostile.tables] == [len(table) for table in plain.tables]
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
