"""What is noted about a GPU: all that can be read, and nothing fails for the rest."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
from chainer.backends import cuda

from chainer_profile.basics.parsing import gpu_number
from chainer_profile.measure import environment
from chainer_profile.measure.environment import collect_gpu, cudnn_version, gpu_state
from chainer_profile.record.recording import Gpu, GpuState
from tests.report.devicing import GPU

HANDLE = object()
BUS = "0000:3B:00.0"
CLOCKS = {(1, False): 1755, (1, True): 1980, (2, False): 2619}

ALL = replace(GPU, number=1, driver="575.57.08", driver_cuda="12.9", cuda="12.8")
STATE = GpuState(1755, 1980, 2619, 41, 118.25, ())


def refuse(*_):
    raise RuntimeError("not supported")


def of_the_handle(value):
    def read(handle):
        assert handle is HANDLE
        return value

    return read


def by_bus(bus):
    assert bus == BUS  # CUDA's numbers are not NVML's
    return HANDLE


@pytest.fixture
def runtime(monkeypatch):
    """CUDA's runtime with two devices, under CuPy and with cuDNN; without NVML."""
    properties = {
        "name": b"NVIDIA H200",
        "major": 9,
        "minor": 0,
        "totalGlobalMem": 150_000_000_000,
    }
    made = SimpleNamespace(
        getDeviceProperties=lambda number: properties,
        driverGetVersion=lambda: 12090,
        runtimeGetVersion=lambda: 12080,
        deviceGetPCIBusId=lambda number: BUS if number == 1 else "another",
    )
    cupy = SimpleNamespace(cuda=SimpleNamespace(runtime=made), __version__="13.6.0")
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.delenv("CUPY_TF32", raising=False)
    with_cudnn(monkeypatch, lambda: 8907)
    return made


@pytest.fixture
def nvml(runtime, monkeypatch):
    """The module pynvml: the functions that are called, with what they give."""
    made = SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByPciBusId=by_bus,
        nvmlSystemGetDriverVersion=lambda: "575.57.08",
        nvmlDeviceGetClockInfo=lambda handle, kind: CLOCKS[kind, False],
        nvmlDeviceGetMaxClockInfo=lambda handle, kind: CLOCKS[kind, True],
        nvmlDeviceGetTemperature=lambda handle, sensor: 41 + sensor,
        nvmlDeviceGetPowerUsage=of_the_handle(118_250),
        nvmlDeviceGetCurrentClocksThrottleReasons=of_the_handle(0x1),
    )
    monkeypatch.setitem(sys.modules, "pynvml", made)
    return made


def with_cudnn(monkeypatch, get_version, enabled=True):
    monkeypatch.setattr(cuda, "cudnn_enabled", enabled)
    fake = SimpleNamespace(cudnn=SimpleNamespace(getVersion=get_version))
    monkeypatch.setattr(cuda, "cuda", fake, raising=False)


def test_the_number_of_a_device():
    numbers = {"gpu:0": 0, "gpu:12": 12}
    names = ["cpu", "gpu:0", "gpu:12", "gpu", "gpu:", "gpu:x", "gpu:-1", ""]
    assert {name: gpu_number(name) for name in names} == dict.fromkeys(names) | numbers


def test_all_figures(nvml):
    assert collect_gpu(1) == ALL
    assert gpu_state(1) == STATE


def test_names_may_be_bytes_or_text(nvml, runtime):
    properties = runtime.getDeviceProperties(1) | {"name": "NVIDIA H200"}
    runtime.getDeviceProperties = lambda number: properties
    runtime.deviceGetPCIBusId = lambda number: BUS.encode()
    nvml.nvmlSystemGetDriverVersion = lambda: b"575.57.08"
    assert collect_gpu(1) == ALL
    runtime.getDeviceProperties = lambda number: {"name": b"A\xff"}
    assert collect_gpu(0).name == "A\ufffd"


@pytest.mark.parametrize(
    ("name", "lost"),
    [
        ("getDeviceProperties", {"name": "", "compute_capability": "", "memory_nbytes": None}),
        ("driverGetVersion", {"driver_cuda": ""}),
        ("runtimeGetVersion", {"cuda": ""}),
        ("deviceGetPCIBusId", {"driver": ""}),
        ("nvmlInit", {"driver": ""}),
        ("nvmlDeviceGetHandleByPciBusId", {"driver": ""}),
        ("nvmlSystemGetDriverVersion", {"driver": ""}),
        # Of the properties one may be missing.
        ("name", {"name": ""}),
        ("major", {"compute_capability": ""}),
        ("minor", {"compute_capability": ""}),
        ("totalGlobalMem", {"memory_nbytes": None}),
    ],
)
def test_what_is_refused_or_missing_is_left_out(name, lost, runtime, nvml):
    if name in runtime.getDeviceProperties(1):
        del runtime.getDeviceProperties(1)[name]
    else:
        setattr(nvml if name.startswith("nvml") else runtime, name, refuse)
    assert vars(collect_gpu(1)) == vars(ALL) | lost


def test_without_nvml_cudnn_or_cupy(runtime, monkeypatch):
    monkeypatch.setattr(cuda, "cudnn_enabled", False)
    assert vars(collect_gpu(1)) == vars(ALL) | {"driver": "", "cudnn": ""}
    assert gpu_state(1) is None
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    assert collect_gpu(3) == Gpu(number=3)
    assert gpu_state(3) is None


def test_tf32_is_what_cupy_was_told(runtime, monkeypatch):
    for value, tf32 in (("", False), ("0", False), ("1", True)):
        monkeypatch.setenv("CUPY_TF32", value)
        assert collect_gpu(0).tf32 is tf32


def test_the_environment_of_a_run_on_a_gpu(runtime):
    found = environment.collect("gpu:1")
    assert found.cupy == "13.6.0"
    assert (found.gpu.number, found.gpu.name) == (1, "NVIDIA H200")
    assert environment.collect("cpu").gpu is None
    assert environment.collect().gpu is None


@pytest.mark.parametrize(
    ("number", "text"),
    [(7605, "7.6.5"), (8907, "8.9.7"), (8000, "8.0.0"), (90100, "9.1.0"), (91002, "9.10.2")],
)
def test_the_version_of_cudnn(number, text, monkeypatch):
    with_cudnn(monkeypatch, lambda: number)
    assert cudnn_version() == text


def test_a_cudnn_that_says_no_version_or_is_not_to_be_used(monkeypatch):
    with_cudnn(monkeypatch, refuse)
    assert cudnn_version() == "?"
    with_cudnn(monkeypatch, lambda: 8907, enabled=False)
    assert cudnn_version() == ""


@pytest.mark.parametrize(
    ("name", "lost"),
    [
        ("nvmlDeviceGetClockInfo", {"sm_mhz": None, "memory_mhz": None}),
        ("nvmlDeviceGetMaxClockInfo", {"most_sm_mhz": None}),
        ("nvmlDeviceGetTemperature", {"temperature_c": None}),
        ("nvmlDeviceGetPowerUsage", {"power_w": None}),
        ("nvmlDeviceGetCurrentClocksThrottleReasons", {}),
    ],
)
def test_of_a_state_what_is_refused_or_missing_is_left_out(name, lost, nvml):
    setattr(nvml, name, refuse)
    assert gpu_state(1) == GpuState(**vars(STATE) | lost)
    delattr(nvml, name)  # as in an older version
    assert gpu_state(1) == GpuState(**vars(STATE) | lost)


@pytest.mark.parametrize("name", ["nvmlInit", "nvmlDeviceGetHandleByPciBusId"])
def test_nvml_without_a_driver_or_the_device(name, nvml):
    setattr(nvml, name, refuse)
    assert gpu_state(1) is None


@pytest.mark.parametrize(
    ("bits", "reasons"),
    [
        (0x0, ()),
        (0x1, ()),  # idle
        (0x4, ("power cap",)),
        (0x1 | 0x2 | 0x8, ("clocks set by an application", "hardware slowdown")),
        (0x20 | 0x40, ("temperature (software)", "temperature (hardware)")),
        (0x10 | 0x80 | 0x100, ("sync boost", "power brake", "display clocks")),
        (0x8000000000000000, ()),  # one that this program does not know
    ],
)
def test_reasons_for_lower_clocks(bits, reasons, nvml):
    nvml.nvmlDeviceGetCurrentClocksThrottleReasons = lambda handle: bits
    found = gpu_state(1)
    assert found.throttle == reasons
