"""Every writer shows the kinds of trials of a run that has several."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from jsonschema import Draft202012Validator

from chainer_profile.analyse.summaries import summarise
from chainer_profile.analyse.summary import Summary
from chainer_profile.record.folding import fold_call_history
from chainer_profile.report import page
from chainer_profile.report.text import gaps, interruption, trials_text
from chainer_profile.report.views import recording_line, summary_html, summary_text
from chainer_profile.report.writers import json_report
from chainer_profile.report.writers.json_report import schema
from tests.conftest import make_kinds, make_recording
from tests.report.page.reading import Read
from tests.report.reading import read, report_md
from tests.report.writers.test_latex import render as tables_tex

WRITERS: dict[str, Callable[[Summary], str]] = {
    "terminal": lambda summary: summary_text(summary, width=200),
    "report.md": report_md,
    "report.html": lambda summary: Read(page.render(summary)).text,
    "tables.tex": tables_tex,
    "report.json": json_report.render,
    "notebook": summary_html,
}
TOO_FEW = "that came too seldom to be learned"


@pytest.fixture(params=WRITERS)
def write(request: pytest.FixtureRequest) -> Callable[[Summary], str]:
    return WRITERS[request.param]


def test_every_kind_has_a_row(write: Callable[[Summary], str]) -> None:
    summary = summarise(make_kinds())
    written = write(summary)
    for kind in summary.kinds[1:]:
        # Names are escaped in one way or another; words are not.
        assert kind.difference.partition(":")[0] in written
    assert "row 5 is missing" not in write(summarise(make_recording()))


def test_a_report_of_another_kind_is_of_that(write: Callable[[Summary], str]) -> None:
    summary = summarise(make_kinds().variant(2))
    written = write(summary)
    assert "40 profiled trials of kind 2" in written or '"kind": 2' in written
    assert "row 5 is missing" not in written


def test_trials_left_out_are_told_of() -> None:
    for name in ("terminal", "report.md", "report.html", "report.json", "notebook"):
        write = WRITERS[name]
        assert TOO_FEW in write(summarise(make_kinds(left_out=7))), name
        assert TOO_FEW in write(summarise(make_recording(left_out=7))), name
        assert TOO_FEW not in write(summarise(make_kinds())), name


def test_json_has_all_of_it() -> None:
    written = json.loads(json_report.render(summarise(make_kinds(left_out=7))))
    Draft202012Validator(schema()).validate(written)
    assert [one["trials"] for one in written["variants"]] == [40, 20]
    assert [one["number"] for one in written["variants"]] == [2, 3]
    assert (written["kind"], written["left_out"]) == (1, 7)
    assert (written["totals"]["clean"], written["totals"]["recorder"]) == (None, None)
    other = json.loads(json_report.render(summarise(make_kinds().variant(3))))
    Draft202012Validator(schema()).validate(other)
    assert (other["kind"], other["variants"], other["trials"]["profiled"]) == (3, [], 20)


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


def test_the_trials_in_words() -> None:
    run = make_kinds(left_out=40, ended="interrupted")
    assert trials_text(run) == (
        "100 of 200 profiled trials (kind 1 of 3), 10 clean trials, 3 warm-ups"
    )
    assert trials_text(run.variant(2)) == "40 profiled trials of kind 2"
    assert trials_text(make_recording(left_out=1)).startswith("100 of 101 profiled trials, 10 ")
    assert trials_text(make_recording()).startswith("100 profiled trials, 10 clean")
    assert interruption(run)[0].endswith("result of 200 of 100 profiled trials.")
    assert "40" not in interruption(run.variant(2))[0]
    assert "60 more trials of other kinds" in recording_line(make_kinds())


def test_it_says_of_which_trials_the_latency_is() -> None:
    (said,) = gaps(make_kinds())
    assert "clean trials are of all kinds together" in said
    (said,) = gaps(make_kinds().variant(2))
    assert "of kind 2 alone" in said
    assert gaps(make_recording()) == []
    (said,) = gaps(make_kinds(n_clean=0))
    assert said.startswith("No clean trials were made")


def test_the_tables_of_other_kinds_are_linked() -> None:
    assert {"layers-2.csv", "layers-3.csv"} <= set(read(report_md(summarise(make_kinds()))).links)


def test_labels_of_another_kind_are_its_own() -> None:
    assert r"\label{tab:chain-b1-kind2-times}" in tables_tex(summarise(make_kinds().variant(2)))
