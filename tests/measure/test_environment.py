"""What is noted about the machine and the software."""

import re
import subprocess
import sys
import time
from pathlib import Path

import chainer
import psutil

import chainer_profile
from chainer_profile import profile, summarise
from chainer_profile.basics.free_memory import free_nbytes
from chainer_profile.measure import environment
from chainer_profile.measure.environment import CpuWatch, blas_libraries, collect
from chainer_profile.record.recording import BlasLibrary
from tests.nets import image
from tests.report.reading import report_md


def git(*words):
    subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", *words],
        check=True,
        capture_output=True,
    )


def test_collect_knows_this_process(monkeypatch):
    found = collect()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", found.started)
    assert (found.chainer, found.profiler) == ("7.8.1", chainer_profile.__version__)
    assert all([found.numpy, found.system, found.processor])
    assert found.python.startswith("CPython 3.")
    assert found.usable_cores >= 1
    assert found.memory_nbytes > 1 << 20

    def missing(name):
        raise environment.metadata.PackageNotFoundError(name)

    # A package that is not installed has no version.
    monkeypatch.setattr(environment.metadata, "version", missing)
    monkeypatch.delitem(sys.modules, "chainer")
    assert collect().chainer == ""


def test_only_the_blas_of_numpy_is_noted(monkeypatch):
    def library(place, threads, api="blas", **more):
        known = {"user_api": api, "internal_api": "openblas", "version": None}
        return known | {"filepath": f"/lib/{place}/libopenblas.so", "num_threads": threads} | more

    found = [
        library("scipy.libs", 8),
        library("numpy.libs", 4, architecture="Haswell"),
        library("x", 2, "openmp"),
    ]
    monkeypatch.setattr(environment, "threadpool_info", lambda: found)
    assert blas_libraries() == (BlasLibrary("openblas", "", 4, "Haswell"),)
    del found[1:]
    assert blas_libraries() == (BlasLibrary("openblas", "", 8, ""),)
    found.clear()
    assert blas_libraries() == ()


def test_variables_that_the_libraries_obey(monkeypatch):
    every = [name for names in environment._VARIABLES.values() for name in names]
    for library, seen in (
        ("openblas", ["OPENBLAS_CORETYPE"]),
        ("mkl", ["MKL_ENABLE_INSTRUCTIONS", "MKL_CBWR", "MKL_DEBUG_CPU_TYPE"]),
        ("blis", ["BLIS_ARCH_TYPE"]),
        ("", []),
    ):
        libraries = (BlasLibrary(library, "1", 1),) if library else ()
        monkeypatch.setattr(environment, "blas_libraries", lambda libraries=libraries: libraries)
        for value in ("", "x y"):
            for name in every:
                monkeypatch.setenv(name, value)
            obeyed = [name for name in every if name in seen or name.startswith("NPY_")]
            expected = tuple(f"{name}={value}" for name in obeyed if value)
            assert collect().variables == expected


def test_the_commit_of_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.chdir(tmp_path)
    assert collect().commit == ""
    git("init", "-q")
    assert collect().commit == ""
    Path("file").write_text("1")
    git("add", "file")
    git("commit", "-qm", "one")
    clean = collect().commit
    assert re.fullmatch("[0-9a-f]{12}", clean)
    git("tag", "-a", "v1", "-m", "one")
    assert collect().commit == clean
    Path("file").write_text("2")
    assert collect().commit == f"{clean}-dirty"
    monkeypatch.setenv("PATH", str(tmp_path))  # without git
    assert collect().commit == ""


def test_cores_that_others_kept_busy(monkeypatch):
    before = time.monotonic()
    wall, busy, own = CpuWatch._read()
    assert before <= wall <= time.monotonic()
    assert 0 < own <= busy + 1  # the machine used about as much as this process at least
    for end, expected in (
        ((10.0, 12.0, 7.0), 0.5),  # 12 s busy, 7 s of them ours, in 10 s
        ((10.0, 7.0, 7.0), 0.0),
        ((10.0, 6.9, 7.0), 0.0),  # the two clocks tick in steps of their own
        ((0.1, 5.0, 0.0), None),  # too short to say
    ):
        reads = iter([(0.0, 0.0, 0.0), end])
        monkeypatch.setattr(CpuWatch, "_read", staticmethod(lambda reads=reads: next(reads)))
        assert CpuWatch().other_cpu() == expected


def test_a_system_that_tells_nothing(monkeypatch):
    """Such as one without /proc: what is not known is left out."""

    def missing(*_, **__):
        raise FileNotFoundError("/proc/cpuinfo")

    for name in ("cpu_count", "virtual_memory", "cpu_times", "Process"):
        monkeypatch.setattr(psutil, name, missing)
    found = collect()
    assert (found.physical_cores, found.memory_nbytes) == (None, None)
    watch = CpuWatch()
    assert watch.other_cpu() is None
    assert free_nbytes(Path("nowhere"), Path("nowhere")) is None
    recording = profile(chainer.links.Linear(2, 3), image(), trials=2)
    assert recording.conditions.other_cpu is None
    assert "2 trials" in report_md(summarise(recording))
