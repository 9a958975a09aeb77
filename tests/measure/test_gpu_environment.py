"""What is noted about a GPU: all that can be read, and nothing fails for the rest."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
from chainer.backends import cuda

from chainer_profile.basics.parsing import gpu_number
from chainer_profile.measure import environment
from chainer_profile.measure.gpu_environment import collect_gpu, cudnn_version, gpu_state
from chainer_profile.record.recording import Gpu, GpuState

HANDLE = object()
BUS = "0000:3B:00.0"


def refuse(*_: Any) -> Any:
    raise RuntimeError("not supported")


class FakeRuntime(SimpleNamespace):
    """CUDA's runtime, with two devices."""

    def __init__(self) -> None:
        super().__init__(
            getDeviceProperties=lambda number: {
                "name": b"NVIDIA H200",
                "major": 9,
                "minor": 0,
                "totalGlobalMem": 150_000_000_000,
                "number": number,
            },
            driverGetVersion=lambda: 12090,
            runtimeGetVersion=lambda: 12080,
            deviceGetPCIBusId=lambda number: BUS if number == 1 else "another",
        )


class FakeNvml(SimpleNamespace):
    """The module pynvml: the functions that are called, with what they give."""

    def __init__(self) -> None:
        clocks = {(1, False): 1755, (1, True): 1980, (2, False): 2619}

        def of_handle(value: Any) -> Any:
            def read(handle: Any) -> Any:
                assert handle is HANDLE
                return value

            return read

        def by_bus(bus: str) -> Any:
            assert bus == BUS  # CUDA's numbers are not NVML's
            return HANDLE

        super().__init__(
            nvmlInit=lambda: None,
            nvmlDeviceGetHandleByPciBusId=by_bus,
            nvmlSystemGetDriverVersion=lambda: "575.57.08",
            nvmlDeviceGetClockInfo=lambda handle, kind: clocks[kind, False],
            nvmlDeviceGetMaxClockInfo=lambda handle, kind: clocks[kind, True],
            nvmlDeviceGetTemperature=lambda handle, sensor: 41 + sensor,
            nvmlDeviceGetPowerUsage=of_handle(118_250),
            nvmlDeviceGetCurrentClocksThrottleReasons=of_handle(0x1),
        )


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> FakeRuntime:
    made = FakeRuntime()
    cupy = SimpleNamespace(cuda=SimpleNamespace(runtime=made), __version__="13.6.0")
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    return made


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    made = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", made)
    return made


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """No NVML, no cuDNN, and the default of TF32."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(cuda, "cudnn_enabled", False)
    monkeypatch.delenv("CUPY_TF32", raising=False)


def with_cudnn(monkeypatch: pytest.MonkeyPatch, get_version: Any) -> None:
    monkeypatch.setattr(cuda, "cudnn_enabled", True)
    fake = SimpleNamespace(cudnn=SimpleNamespace(getVersion=get_version))
    monkeypatch.setattr(cuda, "cuda", fake, raising=False)


ALL = Gpu(
    number=1,
    name="NVIDIA H200",
    compute_capability="9.0",
    memory_nbytes=150_000_000_000,
    driver="575.57.08",
    driver_cuda="12.9",
    cuda="12.8",
    cudnn="8.9.7",
    tf32=False,
)


@pytest.mark.parametrize(
    ("device", "number"),
    [
        ("cpu", None),
        ("gpu:0", 0),
        ("gpu:12", 12),
        ("gpu", None),
        ("gpu:", None),
        ("gpu:x", None),
        ("gpu:-1", None),
        ("", None),
    ],
)
def test_the_number_of_a_device(device: str, number: int | None) -> None:
    assert gpu_number(device) == number


class TestCollect:
    def test_all_figures(
        self, runtime: FakeRuntime, nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with_cudnn(monkeypatch, lambda: 8907)
        assert collect_gpu(1) == ALL

    def test_names_may_be_bytes_or_text(
        self, runtime: FakeRuntime, nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with_cudnn(monkeypatch, lambda: 8907)
        properties = runtime.getDeviceProperties(1) | {"name": "NVIDIA H200"}
        runtime.getDeviceProperties = lambda number: properties
        runtime.deviceGetPCIBusId = lambda number: BUS.encode()
        nvml.nvmlSystemGetDriverVersion = lambda: b"575.57.08"
        assert collect_gpu(1) == ALL

    def test_a_name_that_is_no_utf_8(self, runtime: FakeRuntime) -> None:
        runtime.getDeviceProperties = lambda number: {"name": b"A\xff"}
        assert collect_gpu(0).name == "A\ufffd"

    @pytest.mark.parametrize(
        ("name", "lost"),
        [
            (
                "getDeviceProperties",
                {"name": "", "compute_capability": "", "memory_nbytes": None},
            ),
            ("driverGetVersion", {"driver_cuda": ""}),
            ("runtimeGetVersion", {"cuda": ""}),
            ("deviceGetPCIBusId", {"driver": ""}),
        ],
    )
    def test_what_cuda_refuses_is_left_out(
        self,
        name: str,
        lost: dict[str, Any],
        runtime: FakeRuntime,
        nvml: FakeNvml,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        with_cudnn(monkeypatch, lambda: 8907)
        setattr(runtime, name, refuse)
        assert vars(collect_gpu(1)) == vars(ALL) | lost

    @pytest.mark.parametrize(
        ("missing", "lost"),
        [
            ("name", {"name": ""}),
            ("major", {"compute_capability": ""}),
            ("minor", {"compute_capability": ""}),
            ("totalGlobalMem", {"memory_nbytes": None}),
        ],
    )
    def test_a_property_that_is_not_there_is_left_out(
        self,
        missing: str,
        lost: dict[str, Any],
        runtime: FakeRuntime,
        nvml: FakeNvml,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        with_cudnn(monkeypatch, lambda: 8907)
        properties = runtime.getDeviceProperties(1)
        del properties[missing]
        runtime.getDeviceProperties = lambda number: properties
        assert vars(collect_gpu(1)) == vars(ALL) | lost

    @pytest.mark.parametrize(
        "name", ["nvmlInit", "nvmlDeviceGetHandleByPciBusId", "nvmlSystemGetDriverVersion"]
    )
    def test_what_nvml_refuses_is_left_out(
        self,
        name: str,
        runtime: FakeRuntime,
        nvml: FakeNvml,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        with_cudnn(monkeypatch, lambda: 8907)
        setattr(nvml, name, refuse)
        assert vars(collect_gpu(1)) == vars(ALL) | {"driver": ""}

    def test_without_nvml_and_cudnn(self, runtime: FakeRuntime) -> None:
        assert vars(collect_gpu(1)) == vars(ALL) | {"driver": "", "cudnn": ""}

    def test_without_cupy(self, nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delitem(sys.modules, "cupy", raising=False)
        assert collect_gpu(3) == Gpu(number=3)
        assert gpu_state(3) is None

    @pytest.mark.parametrize(
        ("value", "tf32"), [(None, False), ("", False), ("0", False), ("1", True)]
    )
    def test_tf32_is_what_cupy_was_told(
        self,
        value: str | None,
        tf32: bool,
        runtime: FakeRuntime,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        if value is not None:
            monkeypatch.setenv("CUPY_TF32", value)
        assert collect_gpu(0).tf32 is tf32

    def test_the_environment_of_a_run_on_a_gpu(
        self, runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        found = environment.collect("gpu:1")
        assert found.cupy == "13.6.0"
        assert found.gpu is not None
        assert (found.gpu.number, found.gpu.name) == (1, "NVIDIA H200")
        assert environment.collect("cpu").gpu is None
        assert environment.collect().gpu is None


class TestCudnn:
    @pytest.mark.parametrize(
        ("number", "text"),
        [(7605, "7.6.5"), (8907, "8.9.7"), (8000, "8.0.0"), (90100, "9.1.0"), (91002, "9.10.2")],
    )
    def test_its_version(self, number: int, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
        with_cudnn(monkeypatch, lambda: number)
        assert cudnn_version() == text

    def test_one_that_does_not_say_its_version(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with_cudnn(monkeypatch, refuse)
        assert cudnn_version() == "?"

    def test_one_that_chainer_was_told_not_to_use(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with_cudnn(monkeypatch, lambda: 8907)
        monkeypatch.setattr(cuda, "cudnn_enabled", False)
        assert cudnn_version() == ""


STATE = GpuState(1755, 1980, 2619, 41, 118.25, ())


class TestState:
    def test_all_figures(self, runtime: FakeRuntime, nvml: FakeNvml) -> None:
        assert gpu_state(1) == STATE

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
    @pytest.mark.parametrize("missing", [False, True])
    def test_what_is_refused_or_missing_is_left_out(
        self, name: str, lost: dict[str, Any], missing: bool, runtime: FakeRuntime, nvml: FakeNvml
    ) -> None:
        if missing:  # as in an older version
            delattr(nvml, name)
        else:
            setattr(nvml, name, refuse)
        found = gpu_state(1)
        assert found is not None
        assert vars(found) == vars(STATE) | lost

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
    def test_reasons_for_lower_clocks(
        self, bits: int, reasons: tuple[str, ...], runtime: FakeRuntime, nvml: FakeNvml
    ) -> None:
        nvml.nvmlDeviceGetCurrentClocksThrottleReasons = lambda handle: bits
        found = gpu_state(1)
        assert found is not None
        assert found.throttle == reasons

    @pytest.mark.parametrize("name", ["nvmlInit", "nvmlDeviceGetHandleByPciBusId"])
    def test_nvml_without_a_driver_or_the_device(
        self, name: str, runtime: FakeRuntime, nvml: FakeNvml
    ) -> None:
        setattr(nvml, name, refuse)
        assert gpu_state(1) is None

    def test_without_nvml(self, runtime: FakeRuntime) -> None:
        assert gpu_state(1) is None
