"""GPUs, as far as they can be tested without one: what is missing is said in one line."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import chainer
import pytest

from chainer_profile.clock import HOST_CLOCK
from chainer_profile.devices import clock_of, move_to_gpu
from chainer_profile.errors import ProfileError
from tests.command import OWN, process

INSTALL = "python -m pip install -r requirements-gpu.txt"

#: What CuPy says when one of its libraries is missing.
NOT_IMPORTED = '''
raise ImportError("""
================================================================
Failed to import CuPy.

If you installed CuPy via wheels (cupy-cudaXXX), make sure that the package matches with the
version of CUDA installed.

Original error:
  ImportError: libcublas.so.12: cannot open shared object file
================================================================
""")
'''
_PACKAGE = """
__version__ = "13.6.0"

class ndarray:
    pass

class _Runtime:
    def getDeviceCount(self):
        {count}

class cuda:
    runtime = _Runtime()
"""
NO_DRIVER = _PACKAGE.format(count='raise RuntimeError("cudaErrorInsufficientDriver: too old")')
ONE_DEVICE = _PACKAGE.format(count="return 1")
TWO_DEVICES = _PACKAGE.format(count="return 2")
BROKEN = 'raise OSError("something else")'


def put_cupy(folder: Path, source: str) -> str:
    """A package of that name; gives the folder that belongs on the path."""
    (folder / "fake" / "cupy").mkdir(parents=True)
    (folder / "fake" / "cupy" / "__init__.py").write_text(source)
    return str(folder / "fake")


@pytest.mark.parametrize(
    ("source", "gpu", "message"),
    [
        (
            NOT_IMPORTED,
            0,
            "--gpu 0: CuPy cannot be imported (ImportError: libcublas.so.12: cannot open shared "
            f"object file); install it anew: {INSTALL}",
        ),
        (
            BROKEN,
            0,
            f"--gpu 0: CuPy cannot be imported (something else); install it anew: {INSTALL}",
        ),
        (
            "import a_module_that_is_missing",
            0,
            "--gpu 0: CuPy cannot be imported (No module named 'a_module_that_is_missing'); "
            f"install it anew: {INSTALL}",
        ),
        (
            NO_DRIVER,
            0,
            "--gpu 0: CuPy 13.6.0 finds no usable CUDA driver or device "
            "(cudaErrorInsufficientDriver: too old); run without --gpu for the CPU",
        ),
        (
            ONE_DEVICE,
            7,
            "--gpu 7: there is no such device; this machine has only --gpu 0",
        ),
        (
            TWO_DEVICES,
            2,
            "--gpu 2: there is no such device; this machine has --gpu 0 to 1",
        ),
    ],
)
def test_what_is_missing_is_said(
    source: str, gpu: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    monkeypatch.syspath_prepend(put_cupy(tmp_path, source))
    with pytest.raises(ProfileError) as caught:
        move_to_gpu(None, None, gpu)
    assert str(caught.value) == message
    monkeypatch.delitem(sys.modules, "cupy", raising=False)


def test_no_cupy_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(ProfileError) as caught:
        move_to_gpu(None, None, 0)
    assert str(caught.value) == f"--gpu 0: CuPy is not installed; install it with: {INSTALL}"


class FakeCuPy(SimpleNamespace):
    """One device, whose stream notes when it is waited for."""

    def __init__(self, events: list[str]) -> None:
        super().__init__(__version__="13.6.0", __name__="cupy")
        stream = SimpleNamespace(synchronize=lambda: events.append("wait"))
        self.cuda = SimpleNamespace(
            runtime=SimpleNamespace(getDeviceCount=lambda: 1), get_current_stream=lambda: stream
        )


def test_the_network_moves_and_the_clock_waits_for_the_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events: list[str] = []
    cupy = FakeCuPy(events)
    device = SimpleNamespace(
        use=lambda: events.append("use"), send=lambda array: [*array, "there"], xp=cupy
    )
    model = SimpleNamespace(to_device=lambda to: events.append("moved" if to is device else "?"))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(chainer, "get_device", {"@cupy:0": device}.__getitem__)
    array, clock = move_to_gpu(model, ["image"], 0)
    assert (array, events) == (["image", "there"], ["use", "moved"])
    first = clock.now_ns()
    assert events[2:] == ["wait"]
    assert clock.now_ns() >= first
    assert events[2:] == ["wait", "wait"]


def test_the_clock_of_a_device() -> None:
    events: list[str] = []
    clock = clock_of(SimpleNamespace(xp=FakeCuPy(events)))
    assert clock is not HOST_CLOCK
    clock.now_ns()
    assert events == ["wait"]
    assert clock_of(chainer.get_device("@numpy")) is HOST_CLOCK
    assert clock_of(SimpleNamespace(xp=object())) is HOST_CLOCK


def test_a_device_that_refuses_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> Any:
        raise RuntimeError("out of\nmemory")

    monkeypatch.setitem(sys.modules, "cupy", FakeCuPy([]))
    monkeypatch.setattr(chainer, "get_device", refuse)
    with pytest.raises(ProfileError) as caught:
        move_to_gpu(None, None, 0)
    assert str(caught.value) == (
        "--gpu 0: the network cannot be moved there: RuntimeError: out of memory"
    )


@pytest.mark.parametrize("source", [NOT_IMPORTED, BROKEN, NO_DRIVER], ids=["lib", "os", "driver"])
def test_the_cpu_works_beside_a_broken_cupy(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(OWN)
    env = os.environ | {"PYTHONPATH": put_cupy(tmp_path, source)}
    words = ["-m", "own.py:Net", "--input-shape", "3", "-n", "4"]
    result = process(*words, "-q", "-o", "run", env=env)
    assert (result.returncode, result.stderr) == (0, "")
    assert Path("run/recording.npz").exists()
