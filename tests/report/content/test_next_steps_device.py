"""What to do next after a run on a GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from chainer_profile.analyse.summaries import summarise
from chainer_profile.analyse.summary import Summary
from chainer_profile.record.recording import Environment, MachineLimits, Recording
from chainer_profile.report.content import next_steps as module
from chainer_profile.report.content.work_section import limits_sentence, work
from tests.report.devicing import (
    DEVICE_BOUND,
    GPU,
    make_device_recording,
    make_device_training,
)
from tests.report.reading import as_markdown
from tests.report.working import LIMITS


def next_steps(recording: Recording) -> str:
    return "\n".join(module.next_steps(summarise(recording)))


def bounded(flops: int, nbytes: int, **changes: Any) -> Recording:
    """A device-bound run whose first layer has this work: 10 ms, at 100 GFLOP/s or 20 GB/s."""
    recording = make_device_recording(DEVICE_BOUND, wait_us=26_300, **changes)
    first = replace(
        recording.layers[0], flops=flops, macs=flops // 2, nbytes_read=nbytes, nbytes_written=0
    )
    limits: MachineLimits = replace(LIMITS, device="gpu:0", half_flops_per_s=2e11)
    return replace(recording, layers=(first, *recording.layers[1:]), limits=limits)


def test_a_launch_bound_run() -> None:
    steps = next_steps(make_device_recording())
    assert steps.splitlines()[:2] == [
        "The run is launch bound: faster layers on the GPU would not shorten the trial, only less "
        "launching would. Of 3.900 ms of launching 76.9 % pass in the layers' calls.",
        "A larger batch needs no more launches: try -b 32 and compare the inputs per second. Until "
        "the GPU is busy they can grow to about 6.67x.",
    ]
    assert "Made 2x as fast" not in steps
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
    assert (
        "pass in the layers' calls, most of it in 3 calls of Convolution2DFunction "
        in next_steps(replace(alike, layers=tuple(layers)))
    )


def test_a_launch_bound_run_of_a_large_batch_or_without_held_trials() -> None:
    large = next_steps(make_device_recording(settings={"batchsize": 32}))
    assert "A larger batch needs" not in large
    unsure = next_steps(make_device_recording(n_held=0))
    assert unsure.startswith("The run seems to be launch bound: ")
    assert "A larger batch needs" not in unsure
    assert next_steps(make_device_training()).startswith("The run is launch bound: ")


def test_a_device_bound_run_is_held_against_the_trial() -> None:
    steps = next_steps(make_device_recording(DEVICE_BOUND, wait_us=26_300))
    assert "launch" not in steps
    assert "Made 2x as fast, it would shorten the trial by 19.9 %" in steps


@pytest.mark.parametrize(
    ("gpu", "dtype", "said"),
    [
        (GPU, "float32", "TF32 (--tf32) or float16 (--dtype mixed16), the GPU"),
        (replace(GPU, tf32=True), "float32", "by float16 (--dtype mixed16), the GPU"),
        (None, "float32", "by float16 (--dtype mixed16), the GPU"),
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
        "Memory-bound layers take 33.3 % of the layers' time: fusing functions that follow one "
        "another saves reading and writing, and float16 (--dtype mixed16) halves the bytes."
        in steps
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
