"""The times of a whole trial."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from chainer_profile.analyse.summaries import summarise
from chainer_profile.analyse.summary import Overhead, Summary
from chainer_profile.basics.units import format_duration, format_interval
from chainer_profile.report.content import paper
from chainer_profile.report.content.totals import total_rows
from chainer_profile.report.page import render
from tests.conftest import make_recording
from tests.report.content.test_engine_words import fast
from tests.report.page.reading import Read
from tests.report.reading import on_terminal


def rows(summary: Summary) -> dict[str, str]:
    return dict(total_rows(summary))


def test_an_engines_totals_are_in_its_words_everywhere() -> None:
    summary = summarise(fast())
    said = {
        "page": Read(render(summary)).text,
        "paper": str(dict(paper.tables(summary))["times"].cells()),
        "terminal": on_terminal(summary, 160),
    }
    for where, text in said.items():
        assert "Runtime overhead (between the nodes)" in text, where
        assert "Sum of the nodes" in text, where
        assert "Framework" not in text, where


def test_totals_of_chainer() -> None:
    names = list(rows(summarise(make_recording())))
    assert names[-3:] == [
        "Sum of the layers",
        "Framework (between the functions)",
        "Added by the recorder",
    ]


def test_totals_of_a_full_recording() -> None:
    summary = summarise(make_recording())
    shown = rows(summary)
    assert shown["Clean trial, median"] == "930.3 us (10 trials: too few for an interval)"
    assert shown["Clean trial, mean"] == "913.3 us"
    assert shown["Framework (between the functions)"].startswith("50.00 us (")
    assert "-" not in shown.values()
    share = summary.totals.framework_share
    assert share is not None
    assert f"({(1 - share) * 100:.1f} % of the profiled trial)" in shown["Sum of the layers"]


@pytest.mark.parametrize(("n_clean", "given"), [(5, False), (29, False), (30, True), (90, True)])
def test_the_quoted_median_has_its_interval_and_its_trials(n_clean: int, given: bool) -> None:
    summary = summarise(make_recording(n_clean=n_clean))
    clean = summary.totals.clean
    assert clean is not None
    said = f"{n_clean} trials: too few for an interval"
    if given:
        said = f"95 % interval {format_interval(clean.ci_low_s, clean.ci_high_s)}, {n_clean} trials"
    assert rows(summary)["Clean trial, median"] == f"{format_duration(clean.median_s)} ({said})"


def test_totals_with_the_recorders_cost() -> None:
    summary = summarise(make_recording())

    def with_cost(*fraction: float) -> dict[str, str]:
        totals = replace(summary.totals, overhead=Overhead(*fraction))
        return rows(replace(summary, totals=totals))

    known = with_cost(0.008, 0.007, 0.009)
    assert known["Added by the recorder"] == "+0.8 % (95 % interval +0.7 % to +0.9 %)"
    few = with_cost(-0.001, math.nan, math.nan)
    assert few["Added by the recorder"] == "-0.1 %"


def test_totals_that_are_not_known() -> None:
    unclean = rows(summarise(make_recording(n_clean=0)))
    assert {"Clean trial, mean", "Added by the recorder"} & unclean.keys() == set()
    assert "Profiled trial, median" in unclean
    assert unclean["Inputs per second (FPS)"].endswith("(profiled trials)")
    bare = rows(summarise(make_recording(n_clean=0, trial_ns=None, start_ns=None)))
    assert bare.keys() == {"Sum of the layers"}


def test_one_trial_has_no_interval() -> None:
    shown = rows(summarise(make_recording(n_trials=1, n_clean=1)))
    assert "95 % interval" not in "".join(shown.values())
    assert "Profiled trial, mean" in shown


def test_all_times_zero() -> None:
    zero = np.zeros(5, np.int64)
    recording = make_recording(
        n_trials=5, self_ns=np.zeros((5, 6), np.int64), trial_ns=zero, n_clean=0
    )
    shown = rows(summarise(recording))
    assert "Inputs per second (FPS)" not in shown
    assert shown["Sum of the layers"] == "0 s"
