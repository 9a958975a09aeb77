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


PASSES = (("/a", "A", "forward", 900), ("/a", "A", "backward", 900))
CONV, LINEAR, FIXED = "Convolution2DFunction", "LinearFunction", "FixedBatchNormalization"
NORMALISED = [CONV, FIXED, "ReLU", FIXED]
INFERRED = (("/conv", CONV, "forward", 500), ("/bn", FIXED, "forward", 500))
HALF = "half of the layers' time"


def updated(us: int, *hooks: tuple[str, int], **changes: object) -> Recording:
    """A training step with an update, and with hooks of the optimizer."""
    rows = [("optimizer", name, "update", hook_us) for name, hook_us in hooks]
    return phased(*PASSES, ("/a", "SGD", "update", us), *rows, **changes)


def loaded(*rows: tuple[str, int]) -> Recording:
    return phased(*(("data", name, "data", us) for name, us in rows), *PASSES)


def accumulated(us: int) -> Recording:
    return phased(*PASSES, ("/a", "gradient_accumulation", "backward", us), calls={2: 3})


@pytest.mark.parametrize(
    ("recording", "there", "absent"),
    [
        # Where to begin: A holds 60 of 200 us, and Amdahl's limit is 200 / 140.
        (scaled([40, 30, 20, 10], ["A", "B", "A", "C"], framework_ns=100_000),
         [f"2 of 4 layers hold {HALF}: 0_A and 1_B.", "1.43x as fast at most",
          "A takes the most time of all functions: 30.0 % of the trial in 2 calls.",
          "twice as fast, it would shorten the trial by 15.0 %"], []),
        (scaled([40, 30, 40, 10], ["A", "B", "A", "A"]), [f"hold {HALF}; all of them are A."], []),
        (scaled([30, 33, 31, 60, 60, 60], list("AAABBC")),
         [f"3 of 6 layers hold {HALF}; 2 of them are B."], []),
        (scaled([90], ["A"]), [], ["of the layers' time"]),
        (scaled([90, 10], ["A", "B"]), [f"1 of 2 layers holds {HALF}: 0_A."], []),
        # Framework time.
        (scaled([50, 50], ["A", "B"], framework_ns=100_000, batchsize=1),
         ["50.0 % of the trial passes between the functions", "Try a batch of 4.",
          "50.00 us a call"], []),
        (scaled([50, 50], ["A", "B"], framework_ns=100_000, batchsize=128),
         ["50.0 % of the trial passes between the functions", "Fewer function calls"],
         ["50.00 us a call"]),
        (scaled([50, 50], ["A", "B"], framework_ns=5000, batchsize=1), [],
         ["passes between the functions", "50.00 us a call"]),
        # A GPU.
        *((scaled([80, 20], names, framework_ns=25_000, device=device, command="profile.py"),
           [], ["--gpu 0"])
          for names, device in (([CONV, "ReLU"], "gpu:0"), (["ReLU", CONV], "cpu"))),
        (scaled([80, 20], [CONV, "ReLU"], framework_ns=25_000, command="profile.py"),
         ["--gpu 0", f"{CONV} takes 80.0 % of the layers' time", "5.00x at most",
          "20.0 % between the functions would stay on the CPU"], []),
        (scaled([97, 3], [CONV, LINEAR]), [f"{CONV} takes 97.0 % of"], []),
        (scaled([60, 40], [CONV, LINEAR]), [f"{CONV} and {LINEAR} take 100.0 % of"], []),
        (phased(("data", "SerialIterator", "data", 500), ("/c", CONV, "forward", 1000),
                ("/c", CONV, "backward", 1000), framework_us=500),
         [f"{CONV} takes 80.0 % of the layers' time", "The 16.7 % between the functions and the "
          "16.7 % of loading data would stay on the CPU: 3.00x at most"], []),
        # Batch normalisation.
        (scaled([50, 20, 10, 20], NORMALISED),
         ["1 of 2 calls of FixedBatchNormalization comes right after a convolution and takes 20.0 "
          "% of the trial", "can be folded into"], []),
        (scaled([98, 2, 1, 2], NORMALISED), [], ["right after a convolution"]),
        (scaled([50, 20, 10, 20], [CONV, "BatchNormalization", "ReLU", FIXED]), [],
         ["right after a convolution"]),
        (phased(*INFERRED), ["can be folded"], []),
        (phased(*INFERRED, ("/conv", CONV, "backward", 500)), [], ["folded"]),
        # Backward: above forward, A costs 20 us and B 160 us.
        (phased(("/a", "A", "forward", 400), ("/b", "B", "forward", 10),
                ("/a", "A", "backward", 420), ("/b", "B", "backward", 170)),
         ["Backward takes 59.0 % of the trial, 1.44 times as long as forward",
          "B has the largest gap: its backward takes 160.0 us more than its forward, 17.00 times "
          "as long."], ["arithmetic"]),
        (phased(("/a", "A", "forward", 400), ("/a", "A", "backward", 100)),
         ["Backward takes 20.0 % of the trial, 0.25 times as long as forward"], ["gap"]),
        (phased(("/a", "A", "forward", 400), ("/a", "B", "backward", 800)),
         ["Backward takes 66.7 % of the trial"], ["gap"]),
        # The update.
        (updated(90), [], ["The update takes"]),
        (updated(100), ["The update takes"], []),
        (updated(200), ["one of 4 spreads it over more inputs"], []),
        (updated(200, batchsize=128), ["The update takes 10.0 % of the trial (200.0 us)."],
         ["spreads it"]),
        (updated(170, ("WeightDecay", 30)),
         ["WeightDecay goes over all parameters in a pass of its own, which is 15.0 % of the "
          "update. Decay within the update rule would save that pass."], []),
        (updated(170, ("GradientClipping", 30)),
         ["GradientClipping goes over all parameters in a pass of its own, which is 15.0 % of the "
          "update."], ["would save"]),
        (updated(190, ("WeightDecay", 10)), [], ["a pass of its own"]),
        (updated(100, ("WeightDecay", 20), ("GradientNoise", 20)),
         ["WeightDecay and GradientNoise go over all parameters in passes of their own"],
         ["would save"]),
        # Loading of data.
        (loaded(("SerialIterator", 150), ("concat_examples", 50)),
         ["Loading of data takes 10.0 % of the trial, the largest part of it in SerialIterator. "
          "MultiprocessIterator or"], []),
        (loaded(("MultiprocessIterator", 200)), ["in MultiprocessIterator. It does not keep"], []),
        (loaded(("SerialIterator", 50), ("concat_examples", 150)),
         ["Loading of data", "part of it in concat_examples."], []),
        (loaded(("SerialIterator", 90)), [], ["Loading of data"]),
        # The gradients of branches.
        (accumulated(80), [], ["Adding up the gradients"]),
        (accumulated(200), ["Adding up the gradients", "takes 10.0 % of the trial in 3 calls"], []),
    ],
)  # fmt: skip
def test_what_follows(recording: Recording, there: list[str], absent: list[str]) -> None:
    steps = next_steps(recording)
    assert [words for words in there if words not in steps] == []
    assert [words for words in absent if words in steps] == []


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
