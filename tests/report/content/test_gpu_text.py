"""What is said of a GPU, its libraries, and how it fared."""

from __future__ import annotations

from dataclasses import replace

from chainer_profile.analyse.summaries import summarise
from chainer_profile.record.recording import (
    Conditions,
    Environment,
    Gpu,
    GpuState,
    Recording,
    Settings,
)
from chainer_profile.report.content.gpu_text import (
    NO_CUDNN,
    gpu_rows,
    on_gpu,
    option_rows,
)
from chainer_profile.report.text import settings_text
from tests.conftest import make_recording
from tests.report.devicing import GPU, STATE, launching, make_device_recording


def ran_on(gpu: Gpu | None, **changes: object) -> Recording:
    return make_device_recording(environment=Environment(gpu=gpu), **changes)


def test_all_that_is_known() -> None:
    hot = replace(STATE, sm_mhz=1410, temperature_c=71, power_w=690.0, throttle=("power cap",))
    recording = make_device_recording(conditions=Conditions(gpu_before=STATE, gpu_after=hot))
    assert gpu_rows(recording) == [
        ("GPU", "NVIDIA H200 (number 0)"),
        ("GPU memory", "139.7 GiB"),
        ("Compute capability", "9.0"),
        ("GPU driver", "550.54.15 (up to CUDA 12.4)"),
        ("CUDA runtime", "12.9"),
        ("cuDNN", "8.9.7"),
        ("TF32", "off: CuPy's float32 matrix products keep all digits of float32"),
        ("GPU before the trials", "1,950 of 1,980 MHz, memory 3,201 MHz, 45 C, 310 W"),
        (
            "GPU after the trials",
            "1,410 of 1,980 MHz, memory 3,201 MHz, 71 C, 690 W, clocks lowered by power cap",
        ),
    ]


def test_what_is_not_known_is_left_out() -> None:
    recording = ran_on(Gpu(number=1), conditions=Conditions(gpu_after=GpuState(sm_mhz=1000)))
    assert gpu_rows(recording) == [
        ("GPU", "name not known (number 1)"),
        ("cuDNN", NO_CUDNN),
        ("GPU after the trials", "1,000 MHz"),
    ]
    nothing = ran_on(None, conditions=Conditions(gpu_before=GpuState(), gpu_after=GpuState()))
    assert gpu_rows(nothing) == []


def test_a_driver_is_known_by_either_version() -> None:
    for gpu, said in (
        (Gpu(driver="550.54"), "550.54"),
        (Gpu(driver_cuda="12.4"), "up to CUDA 12.4"),
    ):
        assert dict(gpu_rows(ran_on(gpu)))["GPU driver"] == said


def test_cudnn_and_tf32() -> None:
    assert dict(gpu_rows(ran_on(GPU)))["cuDNN"] == "8.9.7"
    without = ran_on(replace(GPU, cudnn="", tf32=True))
    rows = dict(gpu_rows(without))
    assert rows["cuDNN"] == "none: Chainer convolves by im2col and matrix product"
    assert rows["TF32"] == "on: CuPy's float32 matrix products may round their inputs to TF32"


def test_names_cannot_break_lines() -> None:
    recording = ran_on(replace(GPU, name="a\nb"))
    assert dict(gpu_rows(recording))["GPU"] == "a\\nb (number 0)"


def test_a_cpu_has_none_of_it() -> None:
    recording = make_recording()
    assert gpu_rows(recording) == []
    assert on_gpu(summarise(recording)) == ""
    assert on_gpu(launching()) == " on the GPU"


def test_options_are_said_where_they_are_not_the_usual_ones() -> None:
    assert option_rows(Settings()) == []
    assert settings_text(Settings(device="gpu:0")).endswith("gpu:0, test mode")
    chosen = Settings(dtype="mixed16", keep_memory=True)
    assert option_rows(chosen) == [
        ("Data type", "mixed16"),
        ("Freed memory", "kept in the process"),
    ]
    assert settings_text(chosen).endswith("test mode, mixed16, memory kept")
