"""The environment: machine and software."""

import re
import sys
import time

import chainer_profile
from chainer_profile.measure import environment
from chainer_profile.measure.environment import CpuWatch, blas_libraries, collect
from chainer_profile.record.recording import BlasLibrary


def test_collect_knows_this_process(monkeypatch):
    collected = collect()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", collected.started)
    assert (collected.chainer, collected.profiler) == ("7.8.1", chainer_profile.__version__)
    assert all([collected.numpy, collected.system, collected.processor])
    assert collected.python.startswith("CPython 3.")
    assert collected.usable_cores >= 1
    assert collected.memory_nbytes > 1 << 20

    def missing(name):
        raise environment.metadata.PackageNotFoundError(name)

    # A package that is not installed has no version.
    monkeypatch.setattr(environment.metadata, "version", missing)
    monkeypatch.delitem(sys.modules, "chainer")
    assert collect().chainer == ""


def test_only_the_blas_of_numpy_is_noted(monkeypatch):
    def library(place, threads, api="blas", **more):
        fields = {"user_api": api, "internal_api": "openblas", "version": None}
        return fields | {"filepath": f"/lib/{place}/libopenblas.so", "num_threads": threads} | more

    libraries = [
        library("scipy.libs", 8),
        library("numpy.libs", 4, architecture="Haswell"),
        library("x", 2, "openmp"),
    ]
    monkeypatch.setattr(environment, "threadpool_info", lambda: libraries)
    assert blas_libraries() == (BlasLibrary("openblas", "", 4, "Haswell"),)
    del libraries[1:]
    assert blas_libraries() == (BlasLibrary("openblas", "", 8, ""),)
    libraries.clear()
    assert blas_libraries() == ()


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
