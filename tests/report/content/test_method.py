from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from chainer_profile.analyse.summaries import summarise
from chainer_profile.analyse.summary import Summary
from chainer_profile.record.recording import BlasLibrary, Environment, Inside, Settings
from chainer_profile.report.content.method import has_rate_of_zero, method_points
from chainer_profile.report.document import plain
from tests.conftest import make_recording, make_training
from tests.counting import counters


def said(summary: Summary) -> str:
    return "\n".join(map(plain, method_points(summary)))


def points(**changes: object) -> str:
    return said(summarise(make_training(**changes)))  # type: ignore[arg-type]


def test_a_training_step_explains_its_rows() -> None:
    text = points()
    for words in (
        "have the path loss",
        "forward_index",
        "gradient_accumulation, in the link whose backward adds them",
        "row cleargrads of the backward phase",
        "named after the optimizer",
        "The optimizer's hooks (WeightDecay)",
        "It is known for each phase",
        "learning rate is 0",
        "the time to quote",
    ):
        assert words in text
    assert "data" not in text
    assert "data" in points(data=True)


def test_a_collective_of_ranks_holds_waiting() -> None:
    layers = [replace(row, phase="communication") for row in make_training().layers[-1:]]
    text = points(layers=(*make_training().layers[:-1], *layers))
    assert "it holds waiting for the last rank to come" in text
    assert "collective" not in points()


def test_a_forward_pass_explains_nothing_of_training() -> None:
    text = said(summarise(make_recording()))
    words = ("backward", "gradient", "update", "loss", "optimizer", "learning", "phase")
    for word in words:
        assert word not in text
    assert "the latency to quote" in text
    assert "between the functions, such as type checks and making variables." in text


def test_only_rows_that_are_there_are_explained() -> None:
    recording = make_training()
    keep = [
        layer.index
        for layer in recording.layers
        if layer.path not in ("loss", "cleargrads", "optimizer")
        and layer.function != "gradient_accumulation"
    ]
    layers = tuple(recording.layers[i] for i in keep)
    text = points(layers=layers, self_ns=recording.self_ns[:, keep])
    for word in ("loss", "cleargrads", "hooks", "gradient_accumulation"):
        assert word not in text
    assert "named after the optimizer" in text
    assert "through" in text


def test_framework_that_is_not_known_by_phase() -> None:
    text = points(phases=(), framework_ns=None)
    assert "Framework time is" in text
    assert "known for each phase" not in text
    assert "Framework time" not in points(trial_ns=None, start_ns=None)


OURS = "python profile.py --phase train"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (Settings(phase="train", optimizer="MomentumSGD", command=OURS), True),
        (Settings(phase="train", optimizer="Adam", command=OURS), False),
        (Settings(phase="forward-backward", command=OURS), False),
        (Settings(phase="train", optimizer="MomentumSGD"), False),
        # A training of one's own, whose extension recorded its command.
        (Settings(phase="train", optimizer="MomentumSGD", command="python train.py"), False),
        (
            Settings(phase="train", optimizer="MomentumSGD", command="python t.py x profile.py"),
            False,
        ),
    ],
)
def test_the_rate_of_zero_is_that_of_our_own_optimizer(settings: Settings, expected: bool) -> None:
    assert has_rate_of_zero(settings) == expected


def test_the_warm_ups_that_were_made() -> None:
    made = np.full(3, 1_000_000, np.int64)
    asked = Settings(warmups=50)
    text = said(summarise(make_recording(warmup_ns=made, settings=asked)))
    assert "3 warm-up trials of 50 that were asked for came first and count nowhere." in text
    assert " asked for" not in points()


@pytest.mark.parametrize(
    ("threads", "says"),
    [
        (1, "BLAS ran with one thread, not 2: 1.000 ms a trial instead of 4.000 ms (medians"),
        (2, "BLAS ran with 2 threads, not one: 4.000 ms a trial instead of 1.000 ms (medians"),
    ],
)
def test_the_threads_that_were_tried(threads: int, says: str) -> None:
    ran = make_recording(
        probe_ns=np.array([4, 4, 1, 1]) * 1_000_000,
        probe_threads=np.array([2, 2, 1, 1]),
        environment=Environment(blas=(BlasLibrary("openblas", "0.3", threads),)),
    )
    assert f"{says} of 2 trials each)." in said(summarise(ran))
    assert "BLAS ran" not in points()


def test_the_passes_behind_the_trials() -> None:
    recording = make_recording(3)
    counted = counters(recording)
    counted = replace(counted, counted=tuple(replace(x, window=3e3) for x in counted.counted))
    inside = Inside("py-spy 0.4.3", 200, 1.0, 7)
    found = said(summarise(replace(recording, counters=counted, inside=inside))).splitlines()
    assert any(one.startswith("4 trials behind these counted CPU time") for one in found)
    assert any("reading takes 3.000 us a call" in one for one in found)
    assert any(one.startswith("7 trials more were made for py-spy 0.4.3") for one in found)
    without = said(summarise(recording))
    assert "counted" not in without
    assert "interpreter" not in without
