"""What to do next: sentences that follow from the numbers, and none without a reason."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from chainer_profile.analyse.findings import STEP
from chainer_profile.analyse.steps import steps as found_in
from chainer_profile.analyse.summaries import summarise
from chainer_profile.analyse.summary import Summary
from chainer_profile.analyse.verdicts import BELOW
from chainer_profile.record.recording import Layer, Recording, Settings
from tests.analyse.test_checks import findings
from tests.conftest import make_recording, make_training
from tests.report.scaled import scaled
from tests.report.working import with_work


def said(summary: Summary) -> str:
    """What may take less time, a line each."""
    found = [one for one in summary.findings if one.severity == STEP]
    return "\n".join(one.said(full=True) for one in found)


def next_steps(recording: Recording) -> str:
    return said(summarise(recording))


def test_where_to_begin_follows_from_the_numbers() -> None:
    steps = next_steps(scaled([40, 30, 20, 10], ["A", "B", "A", "C"], framework_ns=100_000))
    assert "2 of 4 layers hold half of the layers' time: 0_A and 1_B." in steps
    # A holds 60 of 200 us: Amdahl's limit is 200 / 140.
    assert "A takes the most time of all functions: 30.0 % of the trial in 2 calls." in steps
    assert "twice as fast, it would shorten the trial by 15.0 %" in steps
    assert "1.43x as fast at most" in steps
    three = next_steps(scaled([40, 30, 40, 10], ["A", "B", "A", "A"]))
    assert "hold half of the layers' time; all of them are A." in three
    some = next_steps(scaled([30, 33, 31, 60, 60, 60], list("AAABBC")))
    assert "3 of 6 layers hold half of the layers' time; 2 of them are B." in some
    assert "of the layers' time" not in next_steps(scaled([90], ["A"]))
    one = next_steps(scaled([90, 10], ["A", "B"]))
    assert "1 of 2 layers holds half of the layers' time: 0_A." in one


@pytest.mark.parametrize(
    ("framework_us", "batchsize", "expected"),
    [(100, 1, "Try a batch of 4."), (100, 128, "Fewer function calls"), (5, 1, None)],
)
def test_advice_on_framework_time(framework_us: int, batchsize: int, expected: str | None) -> None:
    recording = scaled([50, 50], ["A", "B"], framework_ns=framework_us * 1000, batchsize=batchsize)
    steps = next_steps(recording)
    assert ("passes between the functions" in steps) == (expected is not None)
    if expected is not None:
        assert expected in steps
        assert "50.0 % of the trial passes" in steps
    assert ("50.00 us a call" in steps) == (batchsize < 128 and expected is not None)


@pytest.mark.parametrize(
    ("names", "device", "advised"),
    [
        (["Convolution2DFunction", "ReLU"], "cpu", True),
        (["Convolution2DFunction", "ReLU"], "gpu:0", False),
        (["ReLU", "Convolution2DFunction"], "cpu", False),
    ],
)
def test_advice_on_the_gpu(names: list[str], device: str, advised: bool) -> None:
    steps = next_steps(
        scaled([80, 20], names, framework_ns=25_000, device=device, command="profile.py")
    )
    assert ("--gpu 0" in steps) == advised
    if advised:
        assert "Convolution2DFunction takes 80.0 % of the layers' time" in steps
        assert "20.0 % between the functions would stay on the CPU" in steps
        assert "5.00x at most" in steps


def test_advice_on_the_gpu_names_only_what_counts() -> None:
    names = ["Convolution2DFunction", "LinearFunction"]
    assert "Convolution2DFunction takes 97.0 % of" in next_steps(scaled([97, 3], names))
    both = next_steps(scaled([60, 40], names))
    assert "Convolution2DFunction and LinearFunction take 100.0 % of" in both


def test_advice_on_batch_normalisation() -> None:
    names = ["Convolution2DFunction", "FixedBatchNormalization", "ReLU", "FixedBatchNormalization"]
    steps = next_steps(scaled([50, 20, 10, 20], names))
    assert "1 of 2 calls of FixedBatchNormalization comes right after a convolution" in steps
    assert "and takes 20.0 % of the trial" in steps
    assert "can be folded into" in steps
    assert "right after a convolution" not in next_steps(scaled([98, 2, 1, 2], names))
    names[1] = "BatchNormalization"
    assert "right after a convolution" not in next_steps(scaled([50, 20, 10, 20], names))


# --- training


def phased(*rows: tuple[str, str, str, int], **changes: object) -> Recording:
    """Rows of path, function, phase and time in us, of trials without framework time."""
    values: dict[str, object] = {"calls": {}, "framework_us": 0} | changes
    calls = values["calls"]
    assert isinstance(calls, dict)
    layers = tuple(
        Layer(at, path, function, phase, calls=calls.get(at, 1))
        for at, (path, function, phase, _) in enumerate(rows)
    )
    self_ns = np.array([[us * 1000 for *_, us in rows]] * 2, np.int64)
    framework_us = values["framework_us"]
    assert isinstance(framework_us, int)
    settings = Settings(batchsize=int(str(values.get("batchsize", 1))), phase="train")
    return Recording(
        layers, self_ns, trial_ns=self_ns.sum(axis=1) + framework_us * 1000, settings=settings
    )


def test_a_training_step() -> None:
    steps = next_steps(make_training(settings={"batchsize": 1}))
    # 600 + 580 + 300 + 300 of 3,000 us, of which the first two are backward.
    assert (
        "4 of 25 layers hold half of the layers' time; all of them are Convolution2DFunction; "
        "2 belong to backward." in steps
    )
    assert "in 3 calls (forward 800.0 us, backward 1.480 ms)." in steps
    assert (
        "Backward takes 55.4 % of the trial, 1.58 times as long as forward (2.050 ms and 1.300 ms)"
        in steps
    )
    assert (
        "Convolution2DFunction has the largest gap: its backward takes 680.0 us more than its "
        "forward, 1.85 times as long (the arithmetic of two gradients is twice as much)." in steps
    )
    assert "The update takes 8.1 % of the trial (300.0 us)." in steps
    assert "WeightDecay goes over all parameters in a pass of its own, which is 26.7 %" in steps
    # 15 us a call at least, six calls, of 120 us.
    assert "6 calls, of which even the quickest takes 15.00 us" in steps
    assert "75.0 % of their time" in steps
    assert "18.9 % of the trial passes between the functions" in steps
    # 700 us of framework: 27 calls in 25 rows.
    assert "25.93 us a call; 42.9 % of it in forward." in steps
    assert "gradients of variables" not in steps
    assert "Loading of data" not in steps


def test_a_forward_pass_gives_no_advice_on_training() -> None:
    steps = next_steps(scaled([60, 40], ["Convolution2DFunction", "ReLU"], framework_ns=50_000))
    for word in ("ackward", "pdate", "forward", "belong", "data"):
        assert word not in steps


def test_the_function_whose_backward_costs_most_above_forward() -> None:
    steps = next_steps(
        phased(
            ("/a", "A", "forward", 400), ("/b", "B", "forward", 10),
            ("/a", "A", "backward", 420), ("/b", "B", "backward", 170),
        )
    )  # fmt: skip
    assert "Backward takes 59.0 % of the trial, 1.44 times as long as forward" in steps
    # Above forward, A costs 20 us and B 160 us.
    assert (
        "B has the largest gap: its backward takes 160.0 us more than its forward, 17.00 times as "
        "long." in steps
    )
    assert "arithmetic" not in steps


def test_a_quick_backward() -> None:
    steps = next_steps(phased(("/a", "A", "forward", 400), ("/a", "A", "backward", 100)))
    assert "Backward takes 20.0 % of the trial, 0.25 times as long as forward" in steps
    assert "gap" not in steps


def test_a_backward_of_other_functions_makes_no_difference() -> None:
    steps = next_steps(phased(("/a", "A", "forward", 400), ("/a", "B", "backward", 800)))
    assert "Backward takes 66.7 % of the trial" in steps
    assert "gap" not in steps


PASSES = (("/a", "A", "forward", 900), ("/a", "A", "backward", 900))


@pytest.mark.parametrize(("update_us", "said"), [(90, False), (100, True)])
def test_advice_on_the_update_begins_at_5_per_cent(update_us: int, said: bool) -> None:
    steps = next_steps(phased(*PASSES, ("/a", "SGD", "update", update_us)))
    assert ("The update takes" in steps) == said


def test_advice_on_the_update_of_a_large_batch() -> None:
    rows = (*PASSES, ("/a", "SGD", "update", 200))
    assert "one of 4 spreads it over more inputs" in next_steps(phased(*rows))
    large = next_steps(phased(*rows, batchsize=128))
    assert "The update takes 10.0 % of the trial (200.0 us)." in large
    assert "spreads it" not in large


@pytest.mark.parametrize(
    ("hook", "us", "expected"),
    [
        ("WeightDecay", 30, "WeightDecay goes over all parameters in a pass of its own, which is "
         "15.0 % of the update. Decay within the update rule would save that pass."),
        ("GradientClipping", 30, "GradientClipping goes over all parameters in a pass of its own, "
         "which is 15.0 % of the update."),
        ("WeightDecay", 10, None),
    ],
)  # fmt: skip
def test_advice_on_hooks(hook: str, us: int, expected: str | None) -> None:
    rows = (*PASSES, ("/a", "SGD", "update", 200 - us), ("optimizer", hook, "update", us))
    steps = next_steps(phased(*rows))
    if expected is None:
        assert "a pass of its own" not in steps
    else:
        assert expected in steps


def test_advice_on_several_hooks() -> None:
    hooks = [("optimizer", name, "update", 20) for name in ("WeightDecay", "GradientNoise")]
    steps = next_steps(phased(*PASSES, ("/a", "SGD", "update", 100), *hooks))
    assert "WeightDecay and GradientNoise go over all parameters in passes of their own" in steps
    assert "would save" not in steps


@pytest.mark.parametrize(
    ("times_us", "calls", "said"),
    [
        ((100, 100), (10, 10), True),  # all calls take as long
        ((10, 190), (1, 2), False),  # the large one takes long for its size
        ((200,), (1,), False),  # one call
    ],
)
def test_advice_on_many_small_parameters(
    times_us: tuple[int, ...], calls: tuple[int, ...], said: bool
) -> None:
    updates = [(f"/l{at}", "SGD", "update", us) for at, us in enumerate(times_us)]
    counts = {len(PASSES) + at: n for at, n in enumerate(calls)}
    steps = next_steps(phased(*PASSES, *updates, calls=counts))
    assert ("Fewer, larger parameters would make it shorter" in steps) == said


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([("SerialIterator", 150), ("concat_examples", 50)],
         "Loading of data takes 10.0 % of the trial, the largest part of it in SerialIterator. "
         "MultiprocessIterator or"),
        ([("MultiprocessIterator", 200)], "in MultiprocessIterator. It does not keep"),
        ([("SerialIterator", 50), ("concat_examples", 150)], "part of it in concat_examples."),
        ([("SerialIterator", 90)], None),
    ],
)  # fmt: skip
def test_advice_on_loading(rows: list[tuple[str, int]], expected: str | None) -> None:
    data = [("data", name, "data", us) for name, us in rows]
    steps = next_steps(phased(*data, *PASSES))
    assert ("Loading of data" in steps) == (expected is not None)
    assert (expected or "") in steps


@pytest.mark.parametrize(("us", "said"), [(80, False), (200, True)])
def test_advice_on_gradient_accumulation(us: int, said: bool) -> None:
    row = ("/a", "gradient_accumulation", "backward", us)
    steps = next_steps(phased(*PASSES, row, calls={2: 3}))
    assert ("Adding up the gradients" in steps) == said
    if said:
        assert "takes 10.0 % of the trial in 3 calls" in steps


def test_no_folding_of_what_is_trained() -> None:
    rows = (
        ("/conv", "Convolution2DFunction", "forward", 500),
        ("/bn", "FixedBatchNormalization", "forward", 500),
    )
    assert "can be folded" in next_steps(phased(*rows))
    backward = ("/conv", "Convolution2DFunction", "backward", 500)
    assert "folded" not in next_steps(phased(*rows, backward))


def test_the_gpu_does_not_load_data() -> None:
    data = ("data", "SerialIterator", "data", 500)
    conv = [("/c", "Convolution2DFunction", phase, 1000) for phase in ("forward", "backward")]
    steps = next_steps(phased(data, *conv, framework_us=500))
    assert "Convolution2DFunction takes 80.0 % of the layers' time" in steps
    assert (
        "The 16.7 % between the functions and the 16.7 % of loading data would stay on the CPU: "
        "3.00x at most" in steps
    )


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"data": True},
        {"trial_ns": None, "start_ns": None},
        {"phases": (), "framework_ns": None},
        {"links": ()},
    ],
)
def test_what_is_not_known_is_not_said(changes: dict[str, object]) -> None:
    findings(make_training(**changes))  # type: ignore[arg-type]


def test_nothing_follows_from_times_that_the_clock_cannot_show() -> None:
    assert not next_steps(make_training(self_ns=np.zeros((40, 25), np.int64)))


@pytest.mark.parametrize(
    ("command", "ways"),
    [
        ("python profile.py --phase train", ("-b 32", "--gpu 0.", "profile.py advise FOLDER")),
        ("python train.py", ("Try a batch of 32.", "try it.", "chainer_profile.accelerate()")),
        ("chainer-profile run a.py", ("try it.", "Try: chainer_profile.accelerate()")),
        ("", ("Try a batch of 32.", 'try model.to_device("@cupy:0").', "Try: chainer_profile.acc")),
    ],
)
def test_advice_is_in_the_words_of_what_made_the_run(command: str, ways: tuple[str, ...]) -> None:
    steps = next_steps(make_training(settings={"command": command, "batchsize": 8}))
    for way in ways:
        assert way in steps
    ours = "--phase" in command
    assert ("-b 32" in steps) == ("--gpu" in steps) == ("advise" in steps) == ours


@pytest.mark.parametrize(
    ("verdicts", "named"),
    [(("copying", "page faults", "waiting"), ""), (("copying", "waiting", "copying"), "copying")],
)
def test_a_limit_is_named_where_it_is_that_of_most_of_the_time(
    verdicts: tuple[str, ...], named: str
) -> None:
    summary = summarise(with_work(make_recording(9)))
    layers = summary.layers.assign(verdict=BELOW)
    layers.loc[layers["function"] == "Convolution2DFunction", "verdict"] = verdicts
    steps = said(replace(summary, findings=tuple(found_in(replace(summary, layers=layers)))))
    cause = f": in most of them the largest part of the time is {named}" if named else ""
    assert f"of what arithmetic and memory allow{cause}." in steps
