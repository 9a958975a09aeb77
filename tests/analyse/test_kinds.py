"""What a summary says of a run with trials of several kinds."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from chainer_profile.analyse.findings import NOTE, WARNING
from chainer_profile.analyse.kinds import kinds
from chainer_profile.analyse.summaries import summarise
from chainer_profile.basics.units import format_duration
from chainer_profile.record.folding import fold_call_history
from chainer_profile.record.recording import Layer, Recording, digest_of
from tests.conftest import make_kinds, make_layers, make_recording


def finding(recording: Recording, code: str):
    (found,) = (one for one in summarise(recording).findings if one.code == code)
    return found


def of(layers: list[Layer]) -> Recording:
    return Recording(tuple(layers), np.ones((3, len(layers)), np.int64))


def test_the_kinds_of_a_run() -> None:
    recording = make_kinds(left_out=40)
    first, fewer, larger = summarise(recording).kinds
    assert [one.number for one in (first, fewer, larger)] == [1, 2, 3]
    assert [one.trials for one in (first, fewer, larger)] == [100, 40, 20]
    assert [one.share for one in (first, fewer, larger)] == [0.5, 0.2, 0.1]
    assert [one.calls for one in (first, fewer, larger)] == [6, 5, 6]
    for one, kind in zip((recording, *recording.variants), (first, fewer, larger), strict=True):
        assert kind.median_s == pytest.approx(np.median(one.trial_ns) * 1e-9)
    assert first.difference == ""
    assert fewer.difference == "row 5 is missing: ReLU at /res2/1"
    assert larger.difference == ("row 2: ReLU at /res2/0 with input 1x16x64x64, not 1x16x32x32")
    assert [one.other_shapes for one in (first, fewer, larger)] == [False, False, True]


def test_a_run_of_one_kind_has_none() -> None:
    assert summarise(make_recording()).kinds == ()
    assert summarise(make_recording(left_out=3)).kinds == ()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"function": "Tanh"}, "row 1: Tanh at /res2/0/bn1, not FixedBatchNormalization at "),
        ({"path": "/b"}, "row 1: FixedBatchNormalization at /b, not FixedBatchNormalization at /r"),
        ({"input_shapes": ()}, "row 1: FixedBatchNormalization at /res2/0/bn1 with input none, "),
        ({"calls": 2}, "the same rows, called in another order or number"),
    ],
)
def test_the_first_row_that_differs_is_named(change: dict, said: str) -> None:
    layers = list(make_layers(4))
    others = [*layers[:1], dataclasses.replace(layers[1], **change), *layers[2:3], layers[0]]
    if "calls" in change:
        others[3] = layers[3]
    run = dataclasses.replace(of(layers), variants=(of(others),))
    assert kinds(run)[1].difference.startswith(said)
    assert kinds(run)[1].median_s is None
    longer = dataclasses.replace(of(layers[:3]), variants=(of(layers),))
    assert kinds(longer)[1].difference == "row 3 is more: Convolution2DFunction at /res2/1/conv1"


def test_clean_trials_of_all_kinds_are_compared_with_none() -> None:
    """They would be the overhead and the latency of a mixture."""
    whole, alone = summarise(make_kinds()), summarise(make_recording())
    assert alone.totals.clean is not None
    assert alone.totals.overhead is not None
    totals = whole.totals
    assert (totals.clean, totals.overhead) == (None, None)
    assert totals.trial == totals.profiled == alone.totals.profiled
    assert totals.fps == pytest.approx(1 / totals.profiled.mean_s)


@pytest.mark.parametrize(("left_out", "mixed"), [(0, False), (5, False), (6, True)])
def test_so_it_is_where_many_are_left_out(left_out: int, mixed: bool) -> None:
    recording = make_recording(left_out=left_out)  # of 100 that are not
    assert recording.mixed is mixed
    assert (summarise(recording).totals.clean is None) is mixed


def test_a_finding_tells_of_the_kinds() -> None:
    found = finding(make_kinds(left_out=40), "variants")
    medians = [format_duration(one.median_s) for one in summarise(make_kinds()).kinds]
    assert found.severity == NOTE
    assert found.text == (
        f"Trials are of 3 kinds: 100 of 200 are shown (6 calls, median {medians[0]}); "
        f"40 of 5 calls, {medians[1]}; 20 of 6 calls with other shapes, "
        f"{medians[2]}."
    )
    assert "--variant 2" in found.advice


def test_of_many_kinds_it_names_the_first() -> None:
    run = make_kinds()
    run = dataclasses.replace(run, variants=run.variants * 3)
    text = finding(run, "variants").text
    assert text.startswith("Trials are of 7 kinds: ")
    assert text.endswith("; 80 of 3 other kinds.")  # 20 + 40 + 20


@pytest.mark.parametrize(("left_out", "severity"), [(5, NOTE), (6, WARNING)])
def test_a_finding_tells_of_trials_left_out(left_out: int, severity: str) -> None:
    found = finding(make_recording(left_out=left_out), "left-out")
    assert found.severity == severity
    assert found.text.startswith(f"{left_out} of {100 + left_out} profiled trials (")


def test_a_run_without_them_has_neither_finding() -> None:
    codes = {one.code for one in summarise(make_recording()).findings}
    assert not codes & {"variants", "left-out"}


def test_another_kind_is_summarised_by_itself() -> None:
    run = make_kinds(ended="interrupted")
    summary = summarise(run.variant(2))
    assert (len(summary.layers), summary.recording.n_trials) == (5, 40)
    assert summary.recording.kind == 2
    assert summary.kinds == ()
    assert not {one.code for one in summary.findings} & {"variants", "interrupted"}


def test_nothing_vanishes() -> None:
    run = make_kinds(left_out=40, ended="interrupted")
    assert digest_of(run).trials == run.all_trials == 200
    assert "after 200 of 100 trials" in finding(run, "interrupted").text


def test_a_digest_is_of_one_kind() -> None:
    digest = digest_of(make_kinds())
    assert (digest.clean, digest.timed) == (False, 100)
    assert digest_of(make_recording()).clean


def test_inclusive_times_are_added_up_to_no_trial() -> None:
    history = [("a", 0.003), ("b", 0.001)] * 4
    assert summarise(fold_call_history(history)).totals.layers_s is None
    assert summarise(make_recording()).totals.layers_s == pytest.approx(
        summarise(make_recording()).layers["mean_s"].sum()
    )
