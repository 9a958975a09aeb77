"""What is said of a GPU, its libraries, and how it fared."""

from __future__ import annotations

from dataclasses import replace

from chainer_profile.analyse.summaries import summarise
from chainer_profile.record.recording import Environment, Gpu, Recording
from chainer_profile.report.content.gpu_section import gpu_rows, on_gpu
from tests.conftest import make_recording
from tests.report.devicing import GPU, launching, make_device_recording


def ran_on(gpu: Gpu | None, **changes: object) -> Recording:
    return make_device_recording(environment=Environment(gpu=gpu), **changes)


def test_names_cannot_break_lines() -> None:
    recording = ran_on(replace(GPU, name="a\nb"))
    assert dict(gpu_rows(recording))["GPU"] == "a\\nb (number 0)"


def test_a_cpu_has_none_of_it() -> None:
    recording = make_recording()
    assert gpu_rows(recording) == []
    assert on_gpu(summarise(recording)) == ""
    assert on_gpu(launching()) == " on the GPU"
