"""report.json contains the summary with the names of the CSV columns as keys, and adds up."""

import csv
import io
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chainer_profile import summarise
from chainer_profile.analyse.summary import Summary
from chainer_profile.basics.paths import above
from chainer_profile.record.recording import Recording, Settings
from chainer_profile.report.rows import framework_time
from chainer_profile.report.writers import json_report
from chainer_profile.report.writers.csv_files import layers_csv, links_csv
from tests import ROOT
from tests.conftest import make_recording, make_training
from tests.recordings import gpu_recording, training_recording
from tests.report.documents import LACKING, profiles
from tests.report.tracing import no_constant

#: Largest errors of numbers with four digits, and of their sums.
NEAR = 2e-3
STORED = ROOT / "tests" / "record" / "stored"
SUMMARIES: dict[str, Callable[[], Summary]] = {
    **profiles(),
    **{name: lambda make=make: summarise(make()) for name, make in LACKING.items()},
    "gpu conditions": lambda: summarise(gpu_recording()),
    "framework": lambda: summarise(training_recording()),
    "of an older version": lambda: summarise(Recording.load(STORED / "version2-train.npz")),
    "data": lambda: summarise(make_training(data=True), "0.2ms"),
}


def read(summary: Summary) -> dict[str, Any]:
    """Parse the report strictly: NaN and Infinity are not valid JSON."""
    text = json_report.render(summary)
    assert text.isascii()
    assert all(line.isprintable() for line in text.split("\n"))
    report: dict[str, Any] = json.loads(text, parse_constant=no_constant)
    return report


@pytest.mark.parametrize("name", SUMMARIES)
def test_report_has_the_columns_of_the_csv_and_adds_up(name: str) -> None:
    summary = SUMMARIES[name]()
    report = read(summary)
    # The framework is a row of the files; here it is one of the totals.
    for table, text in (("layers", layers_csv(summary)), ("links", links_csv(summary))):
        *rows, last = csv.DictReader(io.StringIO(text))
        if framework := framework_time(summary):
            assert framework.name in last.values()
            assert float(last["share_percent"]) == pytest.approx(100 * framework.share, rel=NEAR)
        else:
            rows.append(last)
        check_table(report[table], rows)
    check_known(report)
    layers, links, totals = report["layers"], report["links"], report["totals"]
    layers_ms = pytest.approx(sum(layers["mean_ms"]), rel=NEAR)
    assert totals.get("layers_ms", layers_ms) == layers_ms
    hot = [index for index, hot in zip(layers["index"], layers["hot"], strict=True) if hot]
    assert hot == report["hotspots"].get("layers", [])
    assert sum(links["exclusive_ms"]) == layers_ms
    inclusive = dict(zip(links["path"], links["inclusive_ms"], strict=True))
    assert sum(ms for path, ms in inclusive.items() if above(path) not in inclusive) == layers_ms
    if "profiled" in totals and "device" not in report:
        whole_ms = pytest.approx(totals["profiled"]["mean_ms"], rel=NEAR)
        assert sum(layers["mean_ms"]) + totals["framework"]["mean_ms"] == whole_ms
        assert sum(report["phases"]["total_ms"]) == whole_ms


def check_table(table: dict[str, list[Any]], rows: list[dict[str, str]]) -> None:
    """Check that a table has the numbers of every CSV column that is known in some row."""
    assert list(table) == [key for key in rows[0] if key in table]
    assert not any(row[key] for row in rows for key in rows[0].keys() - table.keys())
    for key, values in table.items():
        for row, value in zip(rows, values, strict=True):
            cell = row[key]
            if isinstance(value, str):
                assert cell.removeprefix("'") == value, key
            elif value is None or isinstance(value, bool):
                assert cell == ("" if value is None else str(value).lower()), key
            else:
                assert float(cell) == pytest.approx(value, rel=NEAR), key


def check_known(part: Any) -> None:
    """Check that unknown values have no key."""
    if isinstance(part, dict):
        assert not [key for key, value in part.items() if value is None or value == ""]
        part = list(part.values())
    for inner in part if isinstance(part, list) else []:
        check_known(inner)


def test_all_digits_before_the_decimal_point_are_kept() -> None:
    asked = Settings(max_seconds=12345.678, seed=123456789)
    report = read(summarise(replace(make_recording(), settings=asked)))
    assert report["settings"] == report["settings"] | {"max_seconds": 12346, "seed": 123456789}


@example("\ud800")
@given(st.text(min_size=1))
def test_any_name_is_read_back_unchanged(name: str) -> None:
    recording = make_recording(2, n_trials=2, n_clean=0)
    layers = (replace(recording.layers[0], path=f"/{name}", function=name), recording.layers[1])
    report = read(summarise(replace(recording, layers=layers, settings=Settings(model=name))))
    # A recording escapes surrogates, which are not valid text.
    name = name.encode(errors="backslashreplace").decode()
    assert report["layers"]["path"][0] == f"/{name}"
    assert report["layers"]["function"][0] == report["settings"]["model"] == name
