"""The sentences that come first: how long and how sure, where the time goes, what next."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from chainer_profile.analyse.findings import WARNING
from chainer_profile.analyse.summaries import summarise
from chainer_profile.analyse.summary import Summary
from chainer_profile.record.folding import fold_call_history
from chainer_profile.record.recording import Recording, Settings
from chainer_profile.report.content.advice import verdict
from chainer_profile.report.content.answer import answer, how_long, shares, what_next, where
from chainer_profile.report.document import STRONG, pieces, plain
from tests.analyse.test_grouping import recordings
from tests.conftest import make_recording, make_training
from tests.report.content.test_advice import ADVICE
from tests.report.content.test_engine_words import fast
from tests.report.devicing import computing, launching, make_device_training
from tests.report.reading import on_terminal, report_md
from tests.report.scaled import scaled


def forward_backward() -> Recording:
    """The training step without its update."""
    step = make_training(settings={"phase": "forward-backward", "optimizer": ""})
    layers = tuple(layer for layer in step.layers if layer.phase != "update")
    nothing = {"phases": (), "framework_ns": None, "links": ()}
    self_ns = step.self_ns[:, [layer.index for layer in layers]]
    return replace(step, layers=layers, self_ns=self_ns, **nothing)  # type: ignore[arg-type]


UNTIMED = make_recording(n_clean=0, trial_ns=None, start_ns=None)
ZERO = make_recording(
    self_ns=np.zeros((100, 6), np.int64),
    trial_ns=np.zeros(100, np.int64),
    clean_ns=np.zeros(10, np.int64),
)
ALL: dict[str, Summary] = {
    "forward": summarise(make_recording(n_clean=60)),
    "forward-backward": summarise(forward_backward()),
    "train": summarise(make_training()),
    "data": summarise(make_training(data=True)),
    "engine": summarise(fast()),
    "one trial": summarise(make_recording(2, 1, n_clean=0)),
    "few trials": summarise(make_recording(n_trials=3, n_clean=0)),
    "not timed": summarise(UNTIMED),
    "zero": summarise(ZERO),
    "inclusive": summarise(fold_call_history([("a", 0.003), ("b", 0.001)] * 4)),
    "interrupted": summarise(make_recording(ended="interrupted by SIGINT")),
    "launch bound": launching(),
    "device bound": computing(),
    "GPU train": summarise(make_device_training()),
}


@pytest.fixture(params=ALL)
def summary(request: pytest.FixtureRequest) -> Summary:
    return ALL[request.param]


# --- the whole of it


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


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("one trial", ["No clean trials were made", "warning: 1 trial: too few for an interval"]),
        ("not timed", ["No clean trials were made", "Only the functions were timed"]),
        (
            "inclusive",
            ["No clean", "Times are inclusive", "Only the", "warning: 4 trials"],
        ),
        ("interrupted", ["warning: The run ended after 100 of 100"]),
        ("train", ["warning: The 95 % interval is +/- 2.0 % of the median of the 40 profiled"]),
        ("forward", ["warning: The 95 % interval is +/- 2.3 % of the median of the 60 clean"]),
        ("device bound", []),
    ],
)
def test_what_makes_it_doubtful(name: str, words: list[str]) -> None:
    notes = [plain(text.words) for text in answer(ALL[name]) if text.note]
    for note, begin in zip(notes, words, strict=True):
        assert note.startswith(begin)


def test_hostile_names_stay_on_their_line() -> None:
    run = make_training(settings={"optimizer": "a\nb"}, ended="failed: \x1b[31m\n")
    layers = tuple(replace(layer, function="f\ng") for layer in run.layers)
    for text in answer(summarise(replace(run, layers=layers))):
        assert plain(text.words).isprintable()


# --- how long, and how sure


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "forward",
            "A forward pass takes 906.4 us: median of 60 clean trials, 95 % interval 892.1 to "
            "933.5 us.",
        ),
        (
            "forward-backward",
            "A forward and backward pass takes 3.663 ms: median of 4 clean trials, too few for an "
            "interval.",
        ),
        (
            "train",
            "A training step takes 3.663 ms: median of 4 clean trials, too few for an interval.",
        ),
        (
            "engine",
            "A forward pass under fast 1.0 in fp32 takes 90.00 us: median of 30 clean trials, 95 % "
            "interval 90.00 to 90.00 us.",
        ),
        (
            "one trial",
            "A forward pass takes 454.8 us: median of 1 profiled trial, too few for an interval.",
        ),
        ("not timed", "The functions of a forward pass were timed, not the whole of it."),
        (
            "zero",
            "A forward pass takes 0 s: median of 10 clean trials, too few for an interval.",
        ),
        (
            "launch bound",
            "A forward pass takes 4.000 ms: median of 10 clean trials, too few for an interval.",
        ),
        (
            "GPU train",
            "A training step takes 3.700 ms: median of 4 clean trials, too few for an interval.",
        ),
    ],
)
def test_how_long_and_how_sure(name: str, said: str) -> None:
    assert how_long(ALL[name]) == said


def test_loading_of_data_is_a_part_of_a_training_step() -> None:
    assert how_long(ALL["data"]).startswith("A training step takes ")


def test_a_loss_alone_makes_no_training_step() -> None:
    run = make_recording(settings=Settings(loss="softmax_cross_entropy"))
    assert how_long(summarise(run)).startswith("A forward pass takes ")


def test_where_many_are_left_out_it_is_of_the_profiled_trials() -> None:
    assert "median of 100 profiled trials, " in how_long(summarise(make_recording(left_out=60)))


# --- where the time goes


def parts(said: str) -> list[float]:
    return [float(share) for share in re.findall(r"([\d.]+) %", said)]


def test_parts_of_a_trial_add_up_to_it(summary: Summary) -> None:
    found = shares(summary)
    if summary is ALL["zero"]:
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


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "train",
            ": Convolution2DFunction 61.6 %, between the functions 18.9 %, BatchNormalization "
            "7.0 %, all else 12.4 %.",
        ),
        (
            "engine",
            ": Convolution2DFunction + FixedBatchNormalization + ReLU 60.0 %, "
            "Convolution2DFunction + FixedBatchNormalization 30.0 %, between the nodes 5.0 %, all "
            "else 5.0 %.",
        ),
        # Of the layers' time alone.
        (
            "not timed",
            ": Convolution2DFunction 68.2 %, FixedBatchNormalization 22.8 %, ReLU 9.0 %.",
        ),
        (
            "launch bound",
            " on the GPU: Convolution2DFunction 30.0 %, ReLU 30.0 %, beside the layers 25.0 %, all "
            "else 15.0 %.",
        ),
        # Of the 0.7 % that are left nothing is said.
        (
            "device bound",
            " on the GPU: Convolution2DFunction 39.7 %, ReLU 39.7 %, FixedBatchNormalization "
            "19.9 %.",
        ),
    ],
)
def test_where_the_time_goes(name: str, said: str) -> None:
    whole = "layers' time" if name == "not timed" else "time of a trial"
    assert where(ALL[name]) == f"Where the {whole} goes{said}"


@pytest.mark.parametrize(("us", "named"), [(4, True), (2, False)])
def test_small_parts_have_no_name(us: int, named: bool) -> None:
    said = where(summarise(scaled([100 - us, us], ["A", "B"])))
    assert ("B" in said) == named
    assert "all else" not in said


def test_no_more_than_three_parts_are_named() -> None:
    said = where(summarise(scaled([30, 25, 20, 15, 10], list("ABCDE"))))
    assert said == "Where the time of a trial goes: A 30.0 %, B 25.0 %, C 20.0 %, all else 25.0 %."


# --- what next


def next_step(scale: list[int], names: list[str], **changes: Any) -> str:
    return plain(what_next(summarise(scaled(list(map(float, scale)), names, **changes))))


def test_the_largest_gain_comes_first() -> None:
    convolutions = ["Convolution2DFunction", "FixedBatchNormalization", "ReLU"]
    assert next_step([60, 30, 10], convolutions, command="profile.py").endswith(
        "under ONNX Runtime networks ran 2.2 to 11.1 times as fast in our benchmarks "
        "(docs/engines.md). To measure what it brings here, run: profile.py advise FOLDER"
    )
    # 80 % between functions, and nothing of what accelerate() knows.
    assert next_step([10, 10], ["A", "B"], framework_ns=80_000).startswith(
        "80.0 % of the trial passes between the functions"
    )
    assert next_step([60, 40], ["A", "B"]).startswith("A takes the most time of all functions")


def test_a_training_is_told_of_faster_kernels() -> None:
    train = summarise(make_training(settings={"command": "profile.py --phase train"}))
    said = plain(what_next(train))
    assert said.startswith("The functions that accelerate() replaces take 68.6 % of the trial.")
    assert said.endswith("run: profile.py advise FOLDER")
    assert not any(one.code == "engines" for one in train.findings)


def test_an_engines_nodes_are_not_folded_nor_spread() -> None:
    assert plain(what_next(ALL["engine"])) == (
        "Convolution2DFunction + FixedBatchNormalization + ReLU takes the most time of all "
        "functions: 60.0 % of the trial in 1 call. Begin there: twice as fast, it would shorten "
        "the trial by 30.0 %."
    )


def test_a_launch_bound_run_gains_from_fewer_launches_alone() -> None:
    for more in ({}, {"n_held": 0}, {"settings": {"batchsize": 128}}):
        assert "GPU waits for the host" in plain(what_next(launching(**more)))


def test_nothing_follows_from_times_that_the_clock_cannot_show() -> None:
    assert what_next(ALL["zero"]) == ()
    assert where(ALL["zero"]) == ""


def test_what_was_tried_is_what_to_do() -> None:
    said = plain(what_next(ALL["train"], ADVICE))
    assert said == f"{verdict(ADVICE)} To keep it: chainer_profile.accelerate() (it pays)"
    assert said.startswith("accelerate() makes a training step 2.50x as fast")
    *_, last = answer(ALL["train"], ADVICE)
    assert plain(last.words) == f"Next: {said}"


def test_nothing_is_said_twice() -> None:
    cut = summarise(replace(make_recording(n_trials=40), ended="interrupted by SIGINT"))
    assert on_terminal(cut).count("interrupted by SIGINT") == 1
    assert report_md(cut).partition("## ")[0].count("interrupted by SIGINT") == 1
