"""Properties of a GPU: everything that can be read, and no failure for the rest."""

import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
from chainer.backends import cuda

from chainer_profile.measure.environment import collect_gpu, gpu_state
from chainer_profile.record.recording import GpuState
from tests.report.working import GPU

HANDLE = object()
BUS = "0000:3B:00.0"
PROPERTIES = {"name": b"NVIDIA H200", "major": 9, "minor": 0, "totalGlobalMem": 150_000_000_000}

ALL = replace(GPU, number=1, driver="575.57.08", driver_cuda="12.9", cuda="12.8")
STATE = GpuState(1755, 1980, 2619, 41, 118.25, ())


def refuse(*_):
    raise RuntimeError("not supported")


@pytest.fixture
def runtime(monkeypatch):
    """CUDA's runtime with two devices, under CuPy and with cuDNN; without NVML."""
    made = SimpleNamespace(
        getDeviceProperties=lambda number: PROPERTIES,
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
    """The module pynvml: the functions that are called, with their results."""
    made = SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByPciBusId={BUS: HANDLE}.get,  # CUDA's numbers are not NVML's
        nvmlSystemGetDriverVersion=lambda: "575.57.08",
        nvmlDeviceGetClockInfo=lambda *of: {(HANDLE, 1): 1755, (HANDLE, 2): 2619}[of],
        nvmlDeviceGetMaxClockInfo=lambda *of: {(HANDLE, 1): 1980}[of],
        nvmlDeviceGetTemperature=lambda *of: {(HANDLE, 0): 41}[of],
        nvmlDeviceGetPowerUsage=lambda handle: {HANDLE: 118_250}[handle],
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda handle: {HANDLE: 0x1}[handle],
    )
    monkeypatch.setitem(sys.modules, "pynvml", made)
    return made


def with_cudnn(monkeypatch, get_version, enabled=True):
    monkeypatch.setattr(cuda, "cudnn_enabled", enabled)
    fake = SimpleNamespace(cudnn=SimpleNamespace(getVersion=get_version))
    monkeypatch.setattr(cuda, "cuda", fake, raising=False)


def test_all_figures_and_names_are_bytes_or_text(nvml, runtime):
    assert collect_gpu(1) == ALL
    assert gpu_state(1) == STATE
    runtime.getDeviceProperties = lambda number: PROPERTIES | {"name": "NVIDIA H200"}
    runtime.deviceGetPCIBusId = lambda number: BUS.encode()
    nvml.nvmlSystemGetDriverVersion = lambda: b"575.57.08"
    assert collect_gpu(1) == ALL
    runtime.getDeviceProperties = lambda number: {"name": b"A\xff"}
    assert collect_gpu(0).name == "A\ufffd"


NO_DRIVER = {"driver": ""}
#: Fields of the GPU and its state that are empty if a function fails or a property is missing.
LOST = {
    "getDeviceProperties": ({"name": "", "compute_capability": "", "memory_nbytes": None}, {}),
    "driverGetVersion": ({"driver_cuda": ""}, {}),
    "runtimeGetVersion": ({"cuda": ""}, {}),
    "deviceGetPCIBusId": (NO_DRIVER, None),
    "nvmlInit": (NO_DRIVER, None),
    "nvmlDeviceGetHandleByPciBusId": (NO_DRIVER, None),
    "nvmlSystemGetDriverVersion": (NO_DRIVER, {}),
    "name": ({"name": ""}, {}),
    "major": ({"compute_capability": ""}, {}),
    "minor": ({"compute_capability": ""}, {}),
    "totalGlobalMem": ({"memory_nbytes": None}, {}),
    "nvmlDeviceGetClockInfo": ({}, {"sm_mhz": None, "memory_mhz": None}),
    "nvmlDeviceGetMaxClockInfo": ({}, {"most_sm_mhz": None}),
    "nvmlDeviceGetTemperature": ({}, {"temperature_c": None}),
    "nvmlDeviceGetPowerUsage": ({}, {"power_w": None}),
    "nvmlDeviceGetCurrentClocksThrottleReasons": ({}, {}),
}


@pytest.mark.parametrize("name", LOST)
def test_refused_and_missing_properties_are_left_out(name, runtime, nvml):
    of_gpu, of_state = LOST[name]
    expected = None if of_state is None else GpuState(**vars(STATE) | of_state)
    owner = nvml if name.startswith("nvml") else runtime
    if name in PROPERTIES:
        left = {key: value for key, value in PROPERTIES.items() if key != name}
        runtime.getDeviceProperties = lambda number: left
    else:
        setattr(owner, name, refuse)
    assert vars(collect_gpu(1)) == vars(ALL) | of_gpu
    assert gpu_state(1) == expected
    if owner is nvml:
        delattr(nvml, name)  # as in an older version
        assert gpu_state(1) == expected
