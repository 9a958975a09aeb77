"""A figure that is approximate says so wherever it is shown."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace

import pytest

from chainer_profile import summarise
from chainer_profile.analyse.summary import Summary
from chainer_profile.report.columns import LAYER_COLUMNS
from chainer_profile.report.content import network
from chainer_profile.report.page import render
from chainer_profile.report.writers import json_report, terminal
from tests.conftest import make_recording
from tests.report.documents import network_of, network_row
from tests.report.page.reading import Read
from tests.report.reading import layers_csv, on_terminal, report_md
from tests.report.working import with_work, working

FIGURES = ("flops", "macs", "read", "written", "moved", "gflops", "gbytes", "intensity", "reached")


@pytest.fixture
def some() -> Summary:
    """A run whose first layer, a convolution, has figures that are approximate."""
    recording = with_work(make_recording())
    first, *rest = recording.layers
    layers = (replace(first, work_is_about=True), *rest)
    return summarise(replace(recording, layers=layers))


def test_its_cells_have_a_mark_and_others_have_none(some: Summary) -> None:
    first, second, *_ = some.layers.itertuples()
    exact = next(working().layers.itertuples())
    for key in LAYER_COLUMNS:
        cell = LAYER_COLUMNS[key].cell
        if key != "work_is_about":
            assert cell(first) == ("~" if key in FIGURES else "") + cell(exact)
        assert not cell(second).startswith("~")
    nothing = first._replace(flops=0)
    assert LAYER_COLUMNS["flops"].cell(nothing) == "0"


@pytest.mark.parametrize("shown", [on_terminal, report_md])
def test_tables_of_layers_and_of_functions_have_it_and_say_what_it_is(shown, some: Summary) -> None:
    text = shown(some).replace("\\~", "~").replace("|", " ")
    by_function = [
        line for line in text.splitlines() if line.split()[:1] == ["Convolution2DFunction"]
    ]
    assert any(word.startswith("~") for line in by_function for word in line.split())
    assert "~ is about: so many operations" in " ".join(text.split())
    assert "~ is about" not in shown(working())


def test_files_have_a_flag(some: Summary) -> None:
    first, second, *_ = csv.DictReader(io.StringIO(layers_csv(some)))
    assert (first["work_is_about"], second["work_is_about"]) == ("true", "false")
    assert first["flops"] == "10000000"
    layers = json.loads(json_report.render(some))["layers"]
    assert [layer["work_is_about"] for layer in layers[:2]] == [True, False]
    assert Read(render(some)).column("MFLOP")[:2] == ["~10.00", "20.00"]


def test_a_network_has_it_in_cells_totals_and_the_file() -> None:
    summary = network_of(network_row("/fc", "Odd", 12, approximate=1), network_row("/", "ReLU", 2))
    text = terminal.written(network.overview(summary), None)
    assert "~12" in text
    assert "about 14" in text
    assert re.search(r"^multiply-accumulates +0$", text, re.MULTILINE)
    assert "~ is about" in text
    first, second = csv.DictReader(io.StringIO(network.to_file(summary)))
    assert (first["approximate"], first["flops"], second["approximate"]) == ("1", "12", "0")
    assert [
        row["approximate"]
        for row in csv.DictReader(io.StringIO(network.to_file(summary, view="links", depth=0)))
    ] == ["1"]
