"""What every form says: trials left out, inclusive times, figures that are approximate."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from dataclasses import replace

from jsonschema import Draft202012Validator

from chainer_profile.analyse.summaries import summarise
from chainer_profile.analyse.summary import Summary
from chainer_profile.record.folding import fold_call_history
from chainer_profile.report import page
from chainer_profile.report.columns import LAYER_COLUMNS
from chainer_profile.report.content import network
from chainer_profile.report.views import summary_html, summary_text
from chainer_profile.report.writers import json_report
from tests.conftest import make_recording
from tests.report.documents import network_of, network_row
from tests.report.reading import layers_csv, report_md
from tests.report.seen import Read
from tests.report.working import with_work, working

FORMS: dict[str, Callable[[Summary], str]] = {
    "terminal": lambda summary: summary_text(summary, width=200),
    "report.md": report_md,
    "report.html": lambda summary: Read(page.render(summary)).text,
    "notebook": summary_html,
}


def as_json(summary: Summary) -> dict[str, dict[str, object]]:
    written = json.loads(json_report.render(summary))
    Draft202012Validator(json_report.schema()).validate(written)
    return dict(written)


def test_trials_left_out_are_told_of() -> None:
    made, usual = summarise(make_recording(left_out=7)), summarise(make_recording())
    for name, write in (FORMS | {"report.json": json_report.render}).items():
        assert (
            "7 of 107 profiled trials (6.5 %) were discarded because their calls differ from "
            "those shown."
        ) in write(made), name
        assert "were discarded" not in write(usual), name
    written = as_json(made)
    assert written["left_out"] == 7
    assert (written["totals"]["clean"], written["totals"]["recorder"]) == (None, None)


def test_inclusive_times_are_called_so() -> None:
    summary = summarise(fold_call_history([("a", 0.003), ("b", 0.001)] * 4))
    for name, write in FORMS.items():
        written = write(summary)
        assert "Times are inclusive: " in written, name
        assert "times do not add up to a trial" in written, name
        assert "Times are self times" not in written, name
        assert "the clock can resolve" not in written, name
    assert as_json(summary)["totals"]["layers_s"] is None


FIGURES = ("flops", "macs", "read", "written", "moved", "gflops", "gbytes", "intensity", "reached")


def test_figures_that_are_about_have_a_mark_and_a_flag_in_files() -> None:
    recording = with_work(make_recording())
    layers = (replace(recording.layers[0], work_is_about=True), *recording.layers[1:])
    some = summarise(replace(recording, layers=layers))
    first, second, *_ = some.layers.itertuples()
    exact = next(working().layers.itertuples())
    for key in LAYER_COLUMNS:
        cell = LAYER_COLUMNS[key].cell
        if key != "work_is_about":
            assert cell(first) == ("~" if key in FIGURES else "") + cell(exact)
        assert not cell(second).startswith("~")
    assert LAYER_COLUMNS["flops"].cell(first._replace(flops=0)) == "0"
    for name in ("terminal", "report.md"):
        text = FORMS[name](some).replace("\\~", "~").replace("|", " ")
        rows = [line.split() for line in text.splitlines()]
        of_function = [row for row in rows if row[:1] == ["Convolution2DFunction"]]
        assert any(word.startswith("~") for row in of_function for word in row), name
        assert "~ marks estimates: a number of operations" in " ".join(text.split()), name
        assert "~ marks estimates" not in FORMS[name](working()), name
    flags = [row["work_is_about"] for row in csv.DictReader(io.StringIO(layers_csv(some)))]
    assert flags[:2] == ["true", "false"]
    assert [layer["work_is_about"] for layer in as_json(some)["layers"]][:2] == [True, False]  # type: ignore[index]
    assert Read(page.render(some)).column("MFLOP")[:2] == ["~10.00", "20.00"]


def test_files_of_a_network_have_a_flag_too() -> None:
    summary = network_of(network_row("/fc", "Odd", 12, approximate=1), network_row("/", "ReLU", 2))
    for more, flags in (({}, ["1", "0"]), ({"view": "links", "depth": 0}, ["1"])):
        rows = csv.DictReader(io.StringIO(network.to_file(summary, **more)))  # type: ignore[arg-type]
        assert [row["approximate"] for row in rows] == flags
