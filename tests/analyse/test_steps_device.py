"""What to do next after a run on a GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from chainer_profile.analyse.findings import STEP, Finding
from chainer_profile.analyse.summaries import summarise
from chainer_profile.analyse.summary import Summary
from chainer_profile.record.recording import Environment, MachineLimits, Recording
from chainer_profile.report.content.work_section import limits_sentence, work
from tests.analyse.test_steps import next_steps
from tests.report.devicing import (
    DEVICE_BOUND,
    GPU,
    make_device_recording,
    make_device_training,
)
from tests.report.reading import as_markdown
from tests.report.working import LIMITS


def bounded(flops: int, nbytes: int, **changes: Any) -> Recording:
    """A device-bound run whose first layer has this work: 10 ms, at 100 GFLOP/s or 20 GB/s."""
    recording = make_device_recording(DEVICE_BOUND, wait_us=26_300, **changes)
    first = replace(
        recording.layers[0], flops=flops, macs=flops // 2, nbytes_read=nbytes, nbytes_written=0
    )
    limits: MachineLimits = replace(LIMITS, device="gpu:0", half_flops_per_s=2e11)
    return replace(recording, layers=(first, *recording.layers[1:]), limits=limits)


def launch_bound(recording: Recording) -> Finding:
    """What is said of launching, before all other steps."""
    found = next(one for one in summarise(recording).findings if one.severity == STEP)
    assert found.code == "launch-bound"
    return found


def test_a_launch_bound_run() -> None:
    finding = launch_bound(make_device_recording())
    assert finding.text == (
        "The GPU waits for the host: launching takes 3.900 ms of a trial's 4.000 ms, and the GPU "
        "works for 600.0 us of it (15.0 %). Only less launching would shorten the trial."
    )
    # 4,000 us of wall time over 600 us of work.
    assert finding.advice == (
        "Try a batch of 4 (--batchsize 4): the inputs per second grow until the GPU is busy, up to "
        "about 6.67x."
    )
    assert finding.gain == pytest.approx(4000 / 600)
    assert finding.evidence == "76.9 % of the launching is in the layers' calls."
    steps = next_steps(make_device_recording())
    assert "twice as fast" not in steps
    assert "(framework)" not in steps
    # By the host's time of 400 us in the trial's 4,000 us, not by the device's.
    assert "take 10.0 % of the trial" in steps


def test_a_function_that_most_of_the_launching_is_for_is_named() -> None:
    alike = make_device_recording()
    # The layers' calls take 3.0 ms; these two 1.3 ms, and with the third layer's 1.7 ms.
    layers = [
        replace(layer, function="Convolution2DFunction") if at in (0, 2, 3) else layer
        for at, layer in enumerate(alike.layers)
    ]
    assert "is in the layers' calls, most of it in 3 calls of Convolution2DFunction " in next_steps(
        replace(alike, layers=tuple(layers))
    )


def test_a_launch_bound_run_of_a_large_batch_or_without_held_trials() -> None:
    large = launch_bound(make_device_recording(settings={"batchsize": 128}))
    assert large.advice.startswith("Try fewer and larger functions, or an engine that launches")
    unsure = launch_bound(make_device_recording(n_held=0))
    assert unsure.text.startswith("It seems that the GPU waits for the host: ")
    assert "waits for the GPU in its middle" in unsure.text
    for finding in (large, unsure):
        assert finding.gain is None
    step = launch_bound(make_device_training(settings={"command": "python other.py"}))
    assert "(--batchsize" not in step.advice
    # Busy for 1,500 of 3,700 us.
    assert step.gain == pytest.approx(3700 / 1500)


def test_a_device_bound_run_is_held_against_the_trial() -> None:
    steps = next_steps(make_device_recording(DEVICE_BOUND, wait_us=26_300))
    assert "launch" not in steps
    assert "twice as fast, it would shorten the trial by 19.9 %" in steps


@pytest.mark.parametrize(
    ("gpu", "dtype", "said"),
    [
        (GPU, "float32", "digits: TF32 (--tf32) or float16 (--dtype mixed16)."),
        (replace(GPU, tf32=True), "float32", "digits: float16 (--dtype mixed16)."),
        (None, "float32", "digits: float16 (--dtype mixed16)."),
        (GPU, "mixed16", "of the layers' time."),
    ],
)
def test_compute_bound_layers(gpu: Any, dtype: str, said: str) -> None:
    recording = bounded(
        900_000_000, 1000, environment=Environment(gpu=gpu), settings={"dtype": dtype}
    )
    assert "Compute-bound layers take 33.3 % of the layers' time" in next_steps(recording)
    assert said in next_steps(recording)


def test_memory_bound_layers() -> None:
    steps = next_steps(bounded(1000, 180_000_000))
    assert (
        "Memory-bound layers take 33.3 % of the layers' time. Fusing functions that follow one "
        "another saves reading and writing; float16 (--dtype mixed16) halves the bytes." in steps
    )
    half = next_steps(bounded(1000, 180_000_000, settings={"dtype": "float16"}))
    assert "saves reading and writing." in half
    assert "Compute-bound" not in half


@pytest.mark.parametrize(
    ("gpu", "said"), [(GPU, False), (replace(GPU, cudnn=""), True), (None, False)]
)
def test_slow_convolutions_without_cudnn(gpu: Any, said: bool) -> None:
    recording = bounded(1_000_000, 1000, environment=Environment(gpu=gpu))
    steps = next_steps(recording)
    assert ("without cuDNN Chainer copies windows" in steps) is said
    assert "Python take the time" not in steps


def test_limits_of_a_gpu() -> None:
    summary: Summary = summarise(bounded(1_000_000, 1000))
    assert limits_sentence(summary).startswith(
        "Limits of this machine: 100.0 GFLOP/s in a float32 matrix product (200.0 GFLOP/s in "
        "float16), 20.00 GB/s over an array"
    )
    report = as_markdown(work(summary))
    assert "the GPU waits for the host to launch" in report
    assert "page faults" not in report
