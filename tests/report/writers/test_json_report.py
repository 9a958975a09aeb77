"""report.json fits its schema and adds up."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from chainer_profile import summarise
from chainer_profile.analyse.summary import Summary
from chainer_profile.basics.words import GROUPS
from chainer_profile.record.folding import fold_call_history
from chainer_profile.record.recording import Recording, Settings
from chainer_profile.report.writers import json_report
from chainer_profile.report.writers.json_report import schema
from tests import ROOT
from tests.conftest import make_recording, make_training
from tests.recordings import on_gpu, trained
from tests.report.documents import summaries
from tests.report.tracing import no_constant


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
    assert text.isascii()
    assert all(line.isprintable() for line in text.split("\n"))
    report: dict[str, Any] = json.loads(text, parse_constant=no_constant)
    VALIDATOR.validate(report)
    return report


STORED = ROOT / "tests" / "record" / "stored"
SUMMARIES: dict[str, Callable[[], Summary]] = summaries() | {
    "gpu conditions": lambda: summarise(on_gpu()),
    "framework": lambda: summarise(trained()),
    "of an older version": lambda: summarise(Recording.load(STORED / "version2-train.npz")),
    "data": lambda: summarise(make_training(data=True), "0.2ms"),
}


@pytest.mark.parametrize("name", SUMMARIES)
def test_every_report_fits_the_schema_and_adds_up(name: str) -> None:
    summary = SUMMARIES[name]()
    report = read(json_report.render(summary))
    assert report == json_report.content(summary)
    check_sums(report)


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
        of_phases = sum(phase["total_s"] for phase in report["phases"])
        assert of_phases == pytest.approx(profiled["mean_s"])


def test_what_is_not_known_is_null() -> None:
    report = read(json_report.render(SUMMARIES["bare"]()))
    for key in ("clean", "profiled", "framework_share", "inputs_per_s"):
        assert report["totals"][key] is None, key
    assert report["memory"] is report["limits"] is report["device"] is None
    for layer in report["layers"]:
        for key in ("std_s", "host_s", "flops", "reached", "verdict", "peak_nbytes"):
            assert layer[key] is None, key


def test_trials_left_out_and_inclusive_times_are_told_of() -> None:
    left_out = read(json_report.render(SUMMARIES["left out"]()))
    totals = left_out["totals"]
    assert (left_out["left_out"], totals["clean"], totals["recorder"]) == (60, None, None)
    inclusive = summarise(fold_call_history([("a", 0.003), ("b", 0.001)] * 4))
    assert read(json_report.render(inclusive))["totals"]["layers_s"] is None


@example("\ud800")
@given(st.text(min_size=1))
def test_any_name_comes_back_as_it_is(name: str) -> None:
    recording = make_recording(2, n_trials=2, n_clean=0)
    layers = (replace(recording.layers[0], path=f"/{name}", function=name), recording.layers[1])
    changed = replace(recording, layers=layers, settings=Settings(model=name, command=name))
    report = read(json_report.render(summarise(changed)))
    # A recording escapes what is no text.
    name = name.encode(errors="backslashreplace").decode()
    assert report["layers"][0]["path"] == f"/{name}"
    assert report["layers"][0]["function"] == report["settings"]["model"] == name
