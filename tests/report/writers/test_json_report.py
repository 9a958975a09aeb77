"""report.json: it fits its schema, and has the numbers of the other files."""

from __future__ import annotations

import csv as csv_files
import io
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from chainer_profile import summarise
from chainer_profile.analyse.summary import Summary
from chainer_profile.basics.units import format_exact_giga, format_exact_ms, format_exact_percent
from chainer_profile.basics.words import GROUPS
from chainer_profile.record.recording import Recording, Settings
from chainer_profile.report.writers import json_report
from chainer_profile.report.writers.json_report import schema
from tests import ROOT
from tests.conftest import make_recording, make_training
from tests.recordings import on_gpu, trained
from tests.report.documents import summaries
from tests.report.reading import layers_csv, links_csv


def strict(part: Any) -> Any:
    """The same schema, which refuses keys that it does not name."""
    if isinstance(part, list):
        return [strict(item) for item in part]
    if not isinstance(part, dict):
        return part
    inner = {key: strict(value) for key, value in part.items()}
    if "required" in part and isinstance(part["required"], list):
        inner["additionalProperties"] = False
    return inner


VALIDATOR = Draft202012Validator(strict(schema()))


def read(text: str) -> dict[str, Any]:
    """The report as a strict reader sees it: NaN and Infinity are no JSON."""

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    report: dict[str, Any] = json.loads(text, parse_constant=refuse)
    VALIDATOR.validate(report)
    return report


SUMMARIES: dict[str, Callable[[], Summary]] = summaries() | {
    "gpu conditions": lambda: summarise(on_gpu()),
    "framework": lambda: summarise(trained()),
    "of an older version": lambda: summarise(
        Recording.load(ROOT / "tests" / "record" / "stored" / "version2-train.npz")
    ),
    "data": lambda: summarise(make_training(data=True), "0.2ms"),
}


@pytest.mark.parametrize("name", SUMMARIES)
def test_every_report_fits_the_schema_has_the_numbers_of_the_files_and_adds_up(name: str) -> None:
    summary = SUMMARIES[name]()
    report = read(json_report.render(summary))
    assert report == json_report.content(summary)
    check_files(summary, report)
    check_sums(report)


def check_files(summary: Summary, report: dict[str, Any]) -> None:
    rows = csv_files.DictReader(io.StringIO(layers_csv(summary)))
    for row, layer in zip(rows, report["layers"], strict=True):
        for column, cell in row.items():
            assert cell == as_cell(column, layer), column
    rows = csv_files.DictReader(io.StringIO(links_csv(summary)))
    for row, link in zip(rows, report["links"], strict=True):
        assert row["path"] == link["path"]
        for kind in ("inclusive", "exclusive"):
            assert row[f"{kind}_ms"] == format_exact_ms(link[f"{kind}_s"])
        assert row["parameters"] == ("" if link["parameters"] is None else str(link["parameters"]))
        assert int(row["hot_layers"]) == link["hot_layers"]


def as_cell(column: str, layer: dict[str, Any]) -> str:
    """A cell of layers.csv, from the numbers in the report."""
    if column in ("input_shapes", "output_shapes"):
        return " ".join("x".join(map(str, shape)) or "scalar" for shape in layer[column])
    if column in ("gflops_per_s", "gbytes_per_s"):
        value = layer[column.replace("gflops", "flops").replace("gbytes", "nbytes")]
        return "" if value is None else format_exact_giga(value)
    if column.endswith("_ms"):
        value = layer[column.removesuffix("_ms") + "_s"]
        return "" if value is None else format_exact_ms(value)
    if column.endswith("_percent"):
        value = layer[column.removesuffix("_percent")]
        return "" if value is None else format_exact_percent(value)
    value = layer[column]
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


def check_sums(report: dict[str, Any]) -> None:
    layers_s = report["totals"]["layers_s"]
    assert sum(layer["mean_s"] for layer in report["layers"]) == pytest.approx(layers_s)
    for by in GROUPS:
        assert sum(group["total_s"] for group in report["groups"][by]) == pytest.approx(layers_s)
        for group in report["groups"][by]:
            assert sum(group["phases_s"].values()) == pytest.approx(group["total_s"])
    assert [layer["index"] for layer in report["layers"] if layer["hot"]] == (
        report["hotspots"]["layers"]
    )
    children: dict[str | None, float] = {}
    depths = {None: -1}
    for link in report["links"]:
        children[link["parent"]] = children.get(link["parent"], 0) + link["inclusive_s"]
        # A parent comes first, and is one level above.
        assert link["depth"] == depths[link["parent"]] + 1
        depths[link["path"]] = link["depth"]
    assert children[None] == pytest.approx(layers_s)
    for link in report["links"]:
        below = children.get(link["path"], 0)
        assert link["exclusive_s"] + below == pytest.approx(link["inclusive_s"])
    profiled = report["totals"]["profiled"]
    if profiled is not None and report["device"] is None:
        framework = report["totals"]["framework"]["mean_s"]
        assert layers_s + framework == pytest.approx(profiled["mean_s"])
        assert sum(phase["total_s"] for phase in report["phases"]) == pytest.approx(
            profiled["mean_s"]
        )


def test_what_is_not_known_is_null() -> None:
    report = read(json_report.render(SUMMARIES["bare"]()))
    for key in ("clean", "profiled", "framework_share", "inputs_per_s"):
        assert report["totals"][key] is None, key
    assert report["memory"] is report["limits"] is report["device"] is None
    for layer in report["layers"]:
        for key in ("std_s", "host_s", "flops", "reached", "verdict", "peak_nbytes"):
            assert layer[key] is None, key


@given(st.text(min_size=1))
def test_any_name_comes_back_as_it_is(name: str) -> None:
    recording = make_recording(2, n_trials=2, n_clean=0)
    layers = (replace(recording.layers[0], path=f"/{name}", function=name), recording.layers[1])
    changed = replace(recording, layers=layers, settings=Settings(model=name, command=name))
    report = read(json_report.render(summarise(changed)))
    assert report["layers"][0]["path"] == f"/{name}"
    assert report["layers"][0]["function"] == report["settings"]["model"] == name
