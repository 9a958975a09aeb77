import dataclasses
import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

from chainer_profile.analyse.summaries import summarise
from chainer_profile.basics.units import format_bare_percent
from chainer_profile.comparison.compare import Side, compare
from chainer_profile.record.network import ModelSummary
from chainer_profile.record.recording import Layer, Recording, Settings
from chainer_profile.report.writers.notebook_html import (
    LIMIT,
    MODEL_LIMIT,
    comparison_html,
    model_html,
    recording_html,
    summary_html,
)
from tests import ROOT
from tests.conftest import make_recording, make_training
from tests.recordings import on_gpu

SAMPLES = sorted((ROOT / "reports/samples").glob("*/recording.npz"))
HOSTILE = (
    "<script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)>",
    "=cmd|'/c calc'!A1",
    "שלום\u202egnp.exe",
    "a\x00b\x1b[31m\nc",
    "{{7*7}} ${x} $\\alpha$ \\(x\\)",
    "</style></table>",
    "\ud800",
    "x" * 500,
)
_VOID = {"br", "img", "hr", "meta", "link", "input"}


class Page(HTMLParser):
    """What a piece of HTML holds: its elements, its rows of cells; fails where it is not nested."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.attributes = [], set(), []
        self.rows, self.bars, self.classes, self.text = [], [], [], ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += attrs
        if tag not in _VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
            self.classes.append(dict(attrs).get("class", ""))
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag == "i":
            self.bars.append((self.classes[-1], dict(attrs)["style"]))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "style":
            return
        self.text += data
        if self.rows and {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data

    def table(self, head):
        """The rows under the head that begins with these cells."""
        start = next(i for i, row in enumerate(self.rows) if row[: len(head)] == head)
        size = len(self.rows[start])
        rows = []
        for row in self.rows[start + 1 :]:
            if len(row) != size or row[0] == "function":
                break
            rows.append(row)
        return rows


ALLOWED = {
    *("div", "style", "p", "b", "br", "bdi", "table", "thead", "tbody", "tr", "th", "td", "i"),
    *("details", "summary", "span", "ul", "li"),
}


def checked(html):
    """The page, which holds no script, loads nothing, and has our elements alone."""
    page = Page(html)
    assert page.tags <= ALLOWED
    assert {name for name, _ in page.attributes} <= {"class", "style", "open"}
    style = re.search("<style>(.*)</style>", html, re.DOTALL)[1]
    assert "url(" not in style
    assert "@import" not in style
    lines = [line for line in style.split("\n") if line]
    assert all(line.startswith(".chainer-profile") for line in lines)
    assert html.isprintable() or set(filter(lambda c: not c.isprintable(), html)) == {"\n"}
    html.encode()
    return page


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.parent.name)
def test_a_summary_shows_the_slowest_layers_its_totals_and_findings(path):
    summary = summarise(Recording.load(path))
    page = checked(summary_html(summary))
    slowest = summary.layers.sort_values("median_s", ascending=False, kind="stable").head(LIMIT)
    rows = page.table(["#", "path", "function"])
    assert [row[0] for row in rows] == [str(i) for i in slowest.index]
    assert [row[1] for row in rows] == slowest["path"].tolist()
    shares = [format_bare_percent(share) for share in slowest["share"]]
    assert [row[-2] for row in rows] == shares
    for finding in summary.findings:
        assert finding.text in page.text
    assert summary.recording.settings.model in page.text
    assert f"{len(summary.layers) - LIMIT} layers not shown" in page.text


def test_rows_that_are_shown_and_hidden_add_up_to_all():
    summary = summarise(make_recording(n_layers=30))
    page = checked(summary_html(summary, limit=7))
    shown = sum(float(row[-2]) for row in page.table(["#", "path"]))
    hidden = float(re.search(r"23 layers not shown: ([\d.]+) %", page.text)[1])
    assert shown + hidden == pytest.approx(100, abs=0.5)
    everything = checked(summary_html(summary, limit=None))
    assert len(everything.table(["#", "path"])) == 30
    assert "not shown" not in everything.text


def test_bars_are_as_long_as_shares_and_red_for_hot_layers_alone():
    summary = summarise(make_recording(n_layers=6), "top:2")
    page = checked(summary_html(summary))
    bars = page.bars[:6]
    layers = summary.layers.sort_values("median_s", ascending=False, kind="stable")
    assert [kind == "hot" for kind, _ in bars] == layers["hot"].tolist()
    widths = [float(re.fullmatch(r"width:([\d.]+)%", style)[1]) for _, style in bars]
    expected = layers["share"] / layers["share"].max() * 100
    assert widths == pytest.approx(expected.tolist(), abs=0.051)
    assert widths[0] == 100


def test_phases_groups_and_the_tree_of_a_training_step():
    summary = summarise(make_training())
    page = checked(summary_html(summary, group_by="block", tree=True, depth=1))
    assert [row[0] for row in page.table(["phase", "layers"])][:3] == [
        "forward",
        "backward",
        "update",
    ]
    tree = page.table(["link"])
    assert [row[0] for row in tree][:2] == ["/", "conv"]
    assert tree[-1][0] == "profiled trial"
    assert ("open", "") in page.attributes or ("open", None) in page.attributes
    assert "By block" in page.text
    assert "below not shown" in page.text
    folded = checked(summary_html(summary))
    assert "By function" in folded.text
    assert not {name for name, _ in folded.attributes} & {"open"}


def test_a_gpu_run_says_what_the_host_and_the_device_do():
    summary = summarise(on_gpu())
    page = checked(summary_html(summary))
    assert "A GPU" in page.text
    assert "launching" in page.text
    assert {"host [ms]", "gap [ms]"} <= {cell for row in page.rows for cell in row}


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_data(name):
    layers = tuple(
        dataclasses.replace(layer, path=f"/{name}", function=name)
        for layer in make_recording().layers
    )
    settings = Settings(model=name, input=name, device=name, input_shape=(1,), optimizer=name)
    recording = make_recording(layers=layers, settings=settings, ended=name)
    for html in (
        summary_html(summarise(recording)),
        summary_html(summarise(recording), tree=True, group_by="shape"),
        recording_html(recording),
        comparison_html(compare(Side(name, (recording,)), recording)),
    ):
        # MathJax would make a formula of a name in dollar signs.
        classes = checked(html).attributes[0][1].split()
        assert {"tex2jax_ignore", "mathjax_ignore"} <= set(classes)
    if name.isprintable():
        assert name in checked(summary_html(summarise(recording))).text


@pytest.mark.parametrize(
    "changes",
    [
        {"trial_ns": None, "start_ns": None},
        {"clean_ns": np.zeros(0, np.int64), "clean_start_ns": np.zeros(0, np.int64)},
        {"settings": Settings()},
    ],
)
def test_what_is_not_known_is_left_out(changes):
    page = checked(summary_html(summarise(make_recording(**changes))))
    assert not re.search(r"\bnan\b", page.text)
    assert "None" not in page.text


def test_one_layer_and_five_thousand():
    one = checked(recording_html(make_recording(n_layers=1)))
    assert len(one.table(["#", "path"])) == 1
    many = recording_html(make_recording(n_layers=5000, n_trials=4))
    assert len(checked(many).table(["#", "path"])) == LIMIT
    assert len(many) < 30_000


def test_a_layer_that_takes_no_time_has_no_bar():
    recording = make_recording(n_layers=2, self_ns=np.zeros((100, 2), np.int64))
    assert checked(recording_html(recording)).bars == []


def test_a_recording_is_shown_as_its_summary_and_without_trials_says_so():
    recording = make_recording()
    assert recording_html(recording) == summary_html(summarise(recording))
    nothing = {name: getattr(recording, name)[:0] for name in ("self_ns", "trial_ns", "start_ns")}
    empty = dataclasses.replace(recording, **nothing, ended="interrupted by SIGINT")
    page = checked(recording_html(empty))
    assert "holds no complete profiled trial, so there is no result." in page.text
    assert "interrupted by SIGINT" in page.text
    assert "chain" in page.text


def test_a_comparison_shows_what_changed():
    before = make_recording(n_layers=12, n_trials=200)
    factor = np.where(np.arange(12) == 3, 2.0, np.where(np.arange(12) == 6, 0.5, 1.0))
    after = dataclasses.replace(before, self_ns=(before.self_ns * factor).astype(np.int64))
    comparison = compare(Side("old", (before,)), Side("new", (after,)))
    page = checked(comparison_html(comparison))
    at = next(i for i, row in enumerate(page.rows) if row[:2] == ["#", "path"])
    shown = {
        row[0]: kind for row, kind in zip(page.rows, page.classes, strict=True) if row[0] in "36"
    }
    assert shown == {"3": "slower", "6": "faster"}
    assert len(page.rows) - at - 1 == len(comparison.changed)
    assert "before old: chain" in page.text
    limited = checked(comparison_html(comparison, limit=1))
    assert f"{len(comparison.changed) - 1} row" in limited.text


def network(rows=3, name="Net"):
    """A network's summary of so many rows, made by hand."""
    counts = ("parameters", "trainable", "persistent", "macs", "flops")
    sizes = ("nbytes_read", "nbytes_written", "nbytes_output")
    table = pd.DataFrame(
        [
            {
                "path": f"/{name}{i}",
                "function": "ReLU" if i else "",
                "input_shapes": ((1, 2),),
                "output_shapes": ((1, 2),),
                "dtype": "float32",
                **dict.fromkeys(counts, 1000),
                **dict.fromkeys(sizes, 8),
            }
            for i in range(rows)
        ]
    )
    for column in ("macs", "flops", "nbytes_read", "nbytes_written"):
        table[column] = table[column].astype("Int64")
    table.loc[1, "flops"] = pd.NA
    table.index.name = "index"
    arrays = pd.DataFrame({"kind": ["input"], "nbytes": [8]})
    return ModelSummary(name, ((1, 2),), ("float32",), table, arrays, {})


def test_a_network_shows_its_rows_and_totals():
    page = checked(network()._repr_html_())
    rows = page.table(["index", "path"])
    assert [row[1] for row in rows] == ["/Net0", "/Net1", "/Net2"]
    assert [row[2] for row in rows] == ["-", "ReLU", "ReLU"]
    assert rows[1][7] == "-"
    assert rows[2][7] == "1,000"
    assert "3,000 (3.000 k): 3,000 trainable, 0 not" in page.text
    assert "input 1x2 float32" in page.text


def test_a_large_network_is_cut_and_hostile_names_are_data():
    page = checked(model_html(network(MODEL_LIMIT + 1)))
    assert len(page.table(["index"])) == MODEL_LIMIT
    assert "1 row not shown: print() shows all." in page.text
    for name in HOSTILE:
        checked(model_html(network(name=name)))


def test_layers_that_engines_run_are_shown_by_their_label():
    layers = tuple(
        Layer(index=i, path="/conv", function="Conv + Relu", dtype="float32") for i in range(2)
    )
    recording = make_recording(n_layers=2, layers=layers, settings=Settings(engine="engine 1"))
    assert "Conv + Relu" in checked(recording_html(recording)).text
