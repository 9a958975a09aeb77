"""The environment: machine, software and GPU, without values that cannot be read."""

import re
import subprocess
import sys
from collections import namedtuple
from types import SimpleNamespace

import psutil
import pytest
from chainer.backends import cuda

import chainer_profile
from chainer_profile.measure import environment
from chainer_profile.measure.environment import (
    CpuWatch,
    blas_libraries,
    collect,
    collect_gpu,
    commit_of,
    gpu_state,
)
from chainer_profile.record.recording import BlasLibrary, Gpu, GpuState
from tests.command import raising

#: CPU times of a core, as psutil returns them.
scputimes = namedtuple("scputimes", "user system idle")


def test_collect_describes_this_process(monkeypatch):
    collected = collect()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", collected.started)
    assert (collected.chainer, collected.profiler) == ("7.8.1", chainer_profile.__version__)
    assert all([collected.numpy, collected.system, collected.processor])
    assert collected.python.startswith("CPython 3.")
    assert collected.usable_cores >= 1
    assert collected.memory_nbytes > 1 << 20
    # A package that is not installed has no version.
    missing = raising(environment.metadata.PackageNotFoundError())
    monkeypatch.setattr(environment.metadata, "version", missing)
    monkeypatch.delitem(sys.modules, "chainer")
    assert collect().chainer == ""


def test_only_numpys_blas_is_listed(monkeypatch):
    def library(folder, threads, api="blas", **more):
        fields = {"user_api": api, "internal_api": "openblas", "version": None}
        return fields | {"filepath": f"/lib/{folder}/libopenblas.so", "num_threads": threads} | more

    libraries = [
        library("scipy.libs", 8),
        library("numpy.libs", 4, architecture="Haswell"),
        library("x", 2, "openmp"),
    ]
    monkeypatch.setattr(environment, "threadpool_info", lambda: libraries)
    assert blas_libraries() == (BlasLibrary("openblas", "", 4, "Haswell"),)
    del libraries[1:]
    assert blas_libraries() == (BlasLibrary("openblas", "", 8, ""),)


@pytest.mark.parametrize(
    ("end", "cores"),
    [
        ((10.0, 12.0, 7.0), 0.5),  # in 10 s: 12 s of CPU time, 7 s of it ours
        ((10.0, 6.9, 7.0), 0.0),  # the two clocks have different resolutions
        ((0.1, 5.0, 0.0), None),  # too short
    ],
)
def test_other_cpu_is_the_mean_number_of_cores_used_by_other_programs(end, cores, monkeypatch):
    _, busy_s, own_s = CpuWatch._read()
    assert 0 < own_s <= busy_s + 1  # the machine's CPU time includes this process's
    reads = iter([(0.0, 0.0, 0.0), end])
    monkeypatch.setattr(CpuWatch, "_read", staticmethod(lambda: next(reads)))
    assert CpuWatch().other_cpu() == cores


def test_only_the_usable_cores_are_watched(monkeypatch):
    """Under ``taskset``, programs on other cores do not disturb the measurement."""
    core_times = [scputimes(user=user, system=1.0, idle=50.0) for user in (100.0, 20.0, 4.0)]
    monkeypatch.setattr(psutil, "cpu_times", lambda percpu: core_times)
    monkeypatch.setattr(environment, "usable_core_numbers", lambda: {1, 2})
    assert CpuWatch._read()[1] == 26.0


def test_cpu_time_of_children_counts_as_own(monkeypatch):
    """Running and ended children count."""

    def process(**seconds):
        times = dict.fromkeys(("user", "system", "children_user", "children_system"), 0.0)
        return SimpleNamespace(cpu_times=lambda: SimpleNamespace(**{**times, **seconds}))

    gone = SimpleNamespace(cpu_times=raising(psutil.NoSuchProcess(1)))
    this_process = process(user=1.0, system=0.5, children_user=4.0)
    this_process.children = lambda recursive: [process(user=16.0, children_system=32.0), gone]
    monkeypatch.setattr(psutil, "Process", lambda: this_process)
    assert CpuWatch._read()[2] == 53.5


# -- GPUs

BUS, HANDLE = "0000:3B:00.0", object()
PROPERTIES = {"name": b"NVIDIA H200", "major": 9, "minor": 0, "totalGlobalMem": 150_000_000_000}
ALL = Gpu(1, "NVIDIA H200", "9.0", 150 * 10**9, "575.57.08", "12.9", "12.8", "8.9.7", tf32=False)
STATE = GpuState(1755, 1980, 2619, 41, 118.25, ("power cap", "temperature (hardware)"))


@pytest.fixture
def gpu(monkeypatch):
    """A fake CUDA runtime with two devices, and a fake NVML."""
    runtime = SimpleNamespace(
        getDeviceProperties=lambda number: PROPERTIES,
        driverGetVersion=lambda: 12090,
        runtimeGetVersion=lambda: 12080,
        deviceGetPCIBusId={1: BUS, 0: "another"}.get,
    )
    nvml = SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByPciBusId={BUS: HANDLE}.get,  # CUDA and NVML number devices differently
        nvmlSystemGetDriverVersion=lambda: b"575.57.08",
        nvmlDeviceGetClockInfo=lambda *query: {(HANDLE, 1): 1755, (HANDLE, 2): 2619}[query],
        nvmlDeviceGetMaxClockInfo=lambda *query: {(HANDLE, 1): 1980}[query],
        nvmlDeviceGetTemperature=lambda *query: {(HANDLE, 0): 41}[query],
        nvmlDeviceGetPowerUsage={HANDLE: 118_250}.get,
        nvmlDeviceGetCurrentClocksThrottleReasons={HANDLE: 0x1 | 0x4 | 0x40}.get,
    )
    cupy = SimpleNamespace(cuda=SimpleNamespace(runtime=runtime), __version__="13.6.0")
    cudnn = SimpleNamespace(cudnn=SimpleNamespace(getVersion=lambda: 8907))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setattr(cuda, "cuda", cudnn, raising=False)
    monkeypatch.setattr(cuda, "cudnn_enabled", True)
    monkeypatch.delenv("CUPY_TF32", raising=False)
    return runtime, nvml


def test_gpu_and_state_have_all_values(gpu):
    assert collect_gpu(1) == ALL
    assert gpu_state(1) == STATE
    gpu[0].getDeviceProperties = lambda number: {"name": b"A\xff"}
    assert collect_gpu(0).name == "A\ufffd"


def test_values_that_the_driver_refuses_are_omitted(gpu):
    n_state_values = 0
    for owner in gpu:
        for name, function in list(vars(owner).items()):
            for refused in (raising(RuntimeError("not supported")), None):
                setattr(owner, name, refused)  # None: an older version does not have it
                now = vars(collect_gpu(1)) | vars(gpu_state(1) or GpuState())
                lost = [
                    key for key, value in (vars(ALL) | vars(STATE)).items() if now[key] != value
                ]
                assert lost
                assert not any(now[key] for key in lost)
                n_state_values += not vars(STATE).keys().isdisjoint(lost)
            setattr(owner, name, function)
    assert n_state_values == 2 * 8


# -- the commit

GIT = ("git", "-c", "user.name=A", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")


def git(folder, *arguments):
    done = subprocess.run(
        [*GIT, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path):
    """A repository with a folder, and its abbreviated commit."""
    folder = tmp_path / "repository"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "file").write_text("text")
    git(folder, "init")
    git(folder, "add", ".")
    git(folder, "commit", "-m", "first")
    return folder, git(folder, "rev-parse", "--short=12", "HEAD")


def test_commit_is_that_of_the_profilers_repository(repository, monkeypatch):
    folder, commit = repository
    before = collect().commit
    monkeypatch.chdir(folder)
    monkeypatch.setenv("GIT_DIR", str(folder / ".git"))
    assert collect().commit == before != commit
    assert commit_of(folder) == commit
    (folder / "inner" / "file").write_text("changed")
    assert commit_of(folder) == f"{commit}-dirty"
    # The profiler may be installed in another repository, such as in a virtual environment.
    assert commit_of(folder / "inner") == ""
    assert commit_of(folder.parent) == ""
