"""Every writer tells of trials that are left out, and of inclusive times."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from jsonschema import Draft202012Validator

from chainer_profile.analyse.summaries import summarise
from chainer_profile.analyse.summary import Summary
from chainer_profile.record.folding import fold_call_history
from chainer_profile.report import page
from chainer_profile.report.views import summary_html, summary_text
from chainer_profile.report.writers import json_report
from chainer_profile.report.writers.json_report import schema
from tests.conftest import make_recording
from tests.report.page.reading import Read
from tests.report.reading import report_md

WRITERS: dict[str, Callable[[Summary], str]] = {
    "terminal": lambda summary: summary_text(summary, width=200),
    "report.md": report_md,
    "report.html": lambda summary: Read(page.render(summary)).text,
    "notebook": summary_html,
    "report.json": json_report.render,
}
SAID = "7 of 107 profiled trials (6.5 %) made other calls than those shown: they are in no result."


@pytest.mark.parametrize("name", WRITERS)
def test_trials_left_out_are_told_of(name: str) -> None:
    assert SAID in WRITERS[name](summarise(make_recording(left_out=7)))
    assert "made other calls" not in WRITERS[name](summarise(make_recording()))


def test_json_has_their_number() -> None:
    written = json.loads(json_report.render(summarise(make_recording(left_out=7))))
    Draft202012Validator(schema()).validate(written)
    assert written["left_out"] == 7
    assert (written["totals"]["clean"], written["totals"]["recorder"]) == (None, None)


def test_json_of_inclusive_times() -> None:
    recording = fold_call_history([("a", 0.003), ("b", 0.001)] * 4)
    written = json.loads(json_report.render(summarise(recording)))
    Draft202012Validator(schema()).validate(written)
    assert written["totals"]["layers_s"] is None


@pytest.mark.parametrize("name", ["terminal", "report.md", "report.html", "notebook"])
def test_inclusive_times_are_called_so(name: str) -> None:
    history = [("a", 0.003), ("b", 0.001)] * 4
    written = WRITERS[name](summarise(fold_call_history(history)))
    assert "Times are inclusive: " in written
    assert "they add up to no trial" in written
    assert "Times are self times" not in written
    assert "less than the clock can show" not in written
