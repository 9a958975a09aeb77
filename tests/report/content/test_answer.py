"""The sentences that come first: how long and how sure, where the time goes, what next."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings

from chainer_profile.analyse.findings import WARNING
from chainer_profile.analyse.summaries import summarise
from chainer_profile.analyse.summary import Summary
from chainer_profile.record.recording import Recording
from chainer_profile.report.content.answer import answer, how_long, what_next, where
from chainer_profile.report.document import STRONG, pieces, plain
from chainer_profile.report.rows import shares
from tests.analyse.test_grouping import recordings
from tests.conftest import make_recording, make_training
from tests.goldens.words import answered
from tests.report.reading import on_terminal, report_md

ALL = answered()


@pytest.fixture(params=ALL)
def summary(request: pytest.FixtureRequest) -> Summary:
    return ALL[request.param]


def test_doubts_stand_directly_behind_how_long(summary: Summary) -> None:
    first, *rest = answer(summary)
    assert plain(first.words) == how_long(summary)
    assert [piece.style for piece in pieces(first.words)] == [STRONG]
    notes = [text for text in rest if text.note]
    assert rest[: len(notes)] == notes
    following = plain(what_next(summary))
    expected = [*filter(None, [where(summary), f"Next: {following}" if following else ""])]
    assert [plain(text.words) for text in rest[len(notes) :]] == expected
    assert not first.below
    assert all(text.below for text in rest)


def test_every_warning_is_a_note_and_nothing_less_is(summary: Summary) -> None:
    notes = [plain(text.words) for text in answer(summary) if text.note]
    warned = [note for note in notes if note.startswith(f"{WARNING}: ")]
    found = [one for one in summary.findings if one.severity == WARNING]
    assert warned == [f"{WARNING}: {one.said()}" for one in found]


def test_sentences_are_whole(summary: Summary) -> None:
    for text in answer(summary):
        said = plain(text.words)
        assert said.endswith((".", *(one.command for one in summary.findings if one.command)))
        assert said.isprintable()
        for word in ("nan", "None", "  ", " ,", "..", "inf "):
            assert word not in said


def test_hostile_names_stay_on_their_line() -> None:
    run = make_training(settings={"optimizer": "a\nb"}, ended="failed: \x1b[31m\n")
    layers = tuple(replace(layer, function="f\ng") for layer in run.layers)
    for text in answer(summarise(replace(run, layers=layers))):
        assert plain(text.words).isprintable()


def parts(said: str) -> list[float]:
    return [float(share) for share in re.findall(r"([\d.]+) %", said)]


def test_parts_of_a_trial_add_up_to_it(summary: Summary) -> None:
    found = shares(summary)
    if summary is ALL["no time"]:
        assert found == []
    else:
        assert sum(share for _, share in found) == pytest.approx(1)
        assert found == sorted(found, key=lambda part: -part[1])


@settings(max_examples=40)
@given(recordings())
def test_the_shown_parts_add_up_with_all_else(recording: Recording) -> None:
    summary = summarise(recording)
    said = where(summary)
    found = parts(said)
    assert (said == "") == (not shares(summary) or shares(summary)[0][1] < 0.03)
    if "all else" in said:
        assert sum(found) == pytest.approx(100, abs=0.06 * len(found))
        assert found[-1] >= 3
    elif said:
        assert round(sum(found) + 0.05 * len(found), 1) >= 97
        assert sum(found) <= 100 + 0.06 * len(found)
    assert len(found) <= 4


def test_nothing_follows_from_times_that_the_clock_cannot_show() -> None:
    assert what_next(ALL["no time"]) == ()
    assert where(ALL["no time"]) == ""


def test_nothing_is_said_twice() -> None:
    cut = summarise(replace(make_recording(n_trials=40), ended="interrupted by SIGINT"))
    assert on_terminal(cut).count("interrupted by SIGINT") == 1
    assert report_md(cut).partition("## ")[0].count("interrupted by SIGINT") == 1
