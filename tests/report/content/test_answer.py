"""The sentences that come first: how long and how sure, where the time goes, what next."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from chainer_profile.analyse.summaries import summarise
from chainer_profile.analyse.summary import WARNING, Summary
from chainer_profile.record.folding import fold_call_history
from chainer_profile.record.recording import Recording, Settings
from chainer_profile.report.content.answer import answer, how_long, shares, where
from chainer_profile.report.content.next_steps import first_step
from chainer_profile.report.document import STRONG, pieces, plain
from tests.analyse.test_grouping import recordings
from tests.conftest import make_kinds, make_recording, make_training
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
    "kind 2": summarise(make_kinds().variant(2)),
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
    expected = [sentence for sentence in (where(summary), first_step(summary)) if sentence]
    assert [plain(text.words) for text in rest[len(notes) :]] == expected
    assert not first.below
    assert all(text.below for text in rest)


def test_every_warning_is_a_note_and_nothing_less_is(summary: Summary) -> None:
    notes = [plain(text.words) for text in answer(summary) if text.note]
    warned = [note for note in notes if note.startswith(f"{WARNING}: ")]
    found = [one for one in summary.findings if one.severity == WARNING]
    assert warned == [f"{WARNING}: {one.text} {one.advice}" for one in found]


def test_sentences_are_whole(summary: Summary) -> None:
    for text in answer(summary):
        said = plain(text.words)
        assert said.endswith(".")
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
        ("kind 2", ["These are the run's trials of kind 2 alone"]),
        ("interrupted", ["warning: The run ended after 100 of 100"]),
        ("train", ["warning: The median trial is known only within 2.0 %"]),
        ("forward", []),
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


def test_trials_of_several_kinds_are_those_of_the_commonest() -> None:
    assert "median of 100 profiled trials, " in how_long(summarise(make_kinds()))


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
    assert where(ALL[name]) == f"Where the time goes{said}"


@pytest.mark.parametrize(("us", "named"), [(4, True), (2, False)])
def test_small_parts_have_no_name(us: int, named: bool) -> None:
    said = where(summarise(scaled([100 - us, us], ["A", "B"])))
    assert ("B" in said) == named
    assert "all else" not in said


def test_no_more_than_three_parts_are_named() -> None:
    said = where(summarise(scaled([30, 25, 20, 15, 10], list("ABCDE"))))
    assert said == "Where the time goes: A 30.0 %, B 25.0 %, C 20.0 %, all else 25.0 %."


# --- what next


def next_step(scale: list[int], names: list[str], **changes: Any) -> str:
    return first_step(summarise(scaled(list(map(float, scale)), names, **changes)))


NORMALISED = ["Convolution2DFunction", "FixedBatchNormalization", "ReLU"]


def test_normalisations_are_folded_first() -> None:
    assert next_step([60, 30, 10], NORMALISED) == (
        "Next: try faster engines (profile.py engines): they fold the batch normalisations into "
        "the convolutions, which alone saves up to 30.0 % of the trial."
    )
    # What is not much is not worth it, and what passes between may be more.
    assert "fold" not in next_step([90, 3, 7], NORMALISED)
    assert "larger batch" in next_step([30, 20, 10], NORMALISED, framework_ns=40_000)
    assert "fold" in next_step([30, 20, 10], NORMALISED, framework_ns=40_000, batchsize=32)


def test_a_larger_batch_where_much_passes_between() -> None:
    assert next_step([40, 35], ["A", "B"], framework_ns=25_000) == (
        "Next: try a larger batch (-b 32): it spreads the 25.0 % between the functions over more "
        "inputs; profile.py engines tries runtimes that do without them."
    )
    large = next_step([40, 35], ["A", "B"], framework_ns=25_000, batchsize=32)
    assert large == ("Next: begin with A: made 2x as fast, it would shorten the trial by 20.0 %.")


def test_no_engine_is_named_for_a_training_step() -> None:
    assert first_step(ALL["train"]) == (
        "Next: try a larger batch (-b 32): it spreads the 18.9 % between the functions over more "
        "inputs."
    )


def test_what_is_saved_of_trials_that_were_not_timed() -> None:
    said = first_step(ALL["inclusive"])
    assert said == (
        "Next: begin with a: made 2x as fast, it would shorten the layers' time by 37.5 %."
    )
    assert "22.8 % of the layers' time" in first_step(ALL["not timed"])


def test_an_engines_nodes_are_not_folded_nor_spread() -> None:
    assert first_step(ALL["engine"]) == (
        "Next: begin with Convolution2DFunction + FixedBatchNormalization + ReLU: made 2x as fast, "
        "it would shorten the trial by 30.0 %."
    )


def test_a_launch_bound_run_gains_from_fewer_launches_alone() -> None:
    # Busy for 600 of 4,000 us; the training step for 1,500 of 3,700.
    for summary, gain in ((launching(), "6.67x"), (ALL["GPU train"], "2.47x")):
        assert first_step(summary) == (
            "Next: try a larger batch (-b 32): the run is launch bound, and until the GPU is busy "
            f"the inputs per second can grow to about {gain}."
        )
    for more in ({"n_held": 0}, {"settings": {"batchsize": 32}}):
        said = first_step(launching(**more))
        assert "launch bound: faster layers on the GPU would not shorten the trial" in said
        assert "made 2x as fast" not in said


def test_a_device_bound_run_gains_from_faster_layers() -> None:
    assert "saves up to 19.9 % of the trial" in first_step(ALL["device bound"])


def test_nothing_follows_from_times_that_the_clock_cannot_show() -> None:
    assert first_step(ALL["zero"]) == where(ALL["zero"]) == ""
    assert len(list(answer(ALL["zero"]))) == 1


def test_nothing_is_said_twice() -> None:
    cut = summarise(replace(make_recording(n_trials=40), ended="interrupted by SIGINT"))
    for summary, once in (
        (cut, "interrupted by SIGINT"),
        (launching(), "The GPU waits for the host"),
    ):
        assert on_terminal(summary).count(once) == 1
    assert report_md(cut).partition("## ")[0].count("interrupted by SIGINT") == 1
