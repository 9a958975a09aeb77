"""Run commands on a tiny network: helpers for tests of the command line."""

import os
import re
import resource
import shlex
import signal
import sys
from collections.abc import Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import chainer
import chainer.functions as F
import chainer.links as L
import pytest

from chainer_profile.basics.words import COMMAND
from chainer_profile.cli import main as cli
from chainer_profile.cli.main import Context
from chainer_profile.cli.parsers import parser_of
from chainer_profile.measure import machine
from chainer_profile.record.recording import MachineLimits
from chainer_profile.report import page
from chainer_profile.report.pictures.figures import Picture
from tests import ROOT
from tests.scripts import python

#: Files of a run without limits of the machine.
FILES = ["layers.csv", "layers.png", "layers.svg", "links.csv", "recording.npz"]
FILES += ["report.html", "report.md"]
ALL_FILES = [*FILES, "roofline.png", "roofline.svg"]

# The structure pass calls the network three times. One warm-up and the profiled trials follow.
FIRST_TRIAL = 5

#: A file with a user's network, for tests in another process.
OWN = """
import chainer.functions as F
import chainer.links as L

class Net(L.Linear):
    def __init__(self):
        super().__init__(3, 2)

    def forward(self, x):
        return F.relu(super().forward(x))
"""


class Net(chainer.Chain):
    """Two layers. Subclasses override ``at_call``."""

    def __init__(self):
        super().__init__()
        self.calls = 0
        with self.init_scope():
            self.fc = L.Linear(3, 2)

    def at_call(self, number):
        pass

    def forward(self, x):
        self.calls += 1
        y = self.fc(x)
        self.at_call(self.calls)
        return F.relu(y)


def acting(number, act):
    """Make a network class that calls ``act`` in one of its calls."""

    class Acting(Net):
        def at_call(self, call):
            if call == number:
                act()

    return Acting


def raising(error):
    """Make a function that raises an error."""

    def act(*_, **__):
        raise error

    return act


def sending(signum, times=1):
    """Make a function that sends signals to this process."""
    return lambda: [os.kill(os.getpid(), signum) for _ in range(times)]


@dataclass(frozen=True)
class Entry:
    """A registered network."""

    build: Any = Net
    name: str = "tiny"
    description: str = "A tiny network"
    input_shape: tuple[int, ...] = (3,)
    classes: int | None = None
    mean: Any = None
    std: Any = None


#: Default arguments of commands that take a network: a tiny network and few trials.
_NETWORK, _FEW = ["--model", "tiny"], ["--trials", "4", "--warmups", "1"]
DEFAULTS = {"": [*_NETWORK, *_FEW], "engines": [*_NETWORK, *_FEW], "train": _NETWORK}
DEFAULTS |= dict.fromkeys(("advise", "export", "summary"), _NETWORK)


def main(*argv, build=Net, **entry):
    """Run a command in this process, by default on a tiny network with few trials."""
    name, args = ("", argv) if not argv or argv[0].startswith("-") else (argv[0], argv[1:])
    takes_folder = args and not args[0].startswith("-") and name != "export"
    defaults = [] if takes_folder else DEFAULTS.get(name, [])
    if name == "train":
        entry = {"input_shape": (3, 32, 32), "classes": 10} | entry
        build = (lambda classes: L.Linear(3072, classes)) if build is Net else build
    registry: Mapping[str, Any] = {each: Entry(build, each, **entry) for each in ("tiny", "other")}
    return cli.main([*([name] if name else []), *defaults, *args], registry)


def command(name, argv, registry=None, **more):
    """Run a command in this process without handling its errors and signals."""
    module = import_module(f"chainer_profile.cli.{name}")
    no_interrupts: Any = SimpleNamespace(signum=0, reason=str, measuring=nullcontext)
    context = Context(
        list(argv), shlex.join([*COMMAND, name, *argv]), no_interrupts, registry or {}, **more
    )
    return int(module.run(parser_of(name).parse_args(argv), context))


def process(*argv, **more):
    """Run profile.py in a new process, without measuring the machine."""
    return python(ROOT / "profile.py", *argv, "--skip", "machine", **more)


def stand_in(environment, device, seconds=0):
    """Return limits without measuring them: 200 GFLOP/s, 40 GB/s, 20 GB/s."""
    return MachineLimits(
        key=machine.limits_key(environment, device),
        device=device.name,
        measured="2026-01-02T03:04:05Z",
        threads=max((library.threads for library in environment.blas), default=0),
        flops_per_s=2e11,
        half_flops_per_s=None,
        copy_nbytes_per_s=4e10,
        fresh_nbytes_per_s=2e10,
        copied_nbytes=1 << 27,
    )


class QuietMachine:
    """A fake CpuWatch: no other program is busy."""

    def other_cpu(self):
        return 0.0


def one_line(text):
    """Return the only line of a message, and fail if there are more."""
    lines = text.splitlines()
    assert len(lines) == 1, text
    return lines[0]


@pytest.fixture
def done(capsys):
    """Function that runs a successful command without warnings, and returns its output."""

    def run(*argv, **more):
        capsys.readouterr()
        assert main(*argv, **more) == 0
        out, err = capsys.readouterr()
        assert err == ""
        return out

    return run


@pytest.fixture
def fails(capsys):
    """Function that runs a command that fails with this exit code, and returns its message."""

    def run(*argv, code=1, **more):
        capsys.readouterr()
        assert main(*argv, **more) == code
        out, err = capsys.readouterr()
        assert out == ""
        return re.sub(r"^(profile|train)\.py: error: ", "", one_line(err))

    return run


@pytest.fixture(autouse=True)
def folder(tmp_path, tmp_path_factory, monkeypatch):
    """An empty current folder without data of the user. Plots, pages and limits are fakes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setattr(machine, "measure_limits", stand_in)
    monkeypatch.setattr(machine, "CpuWatch", QuietMachine)
    monkeypatch.setattr(chainer.dataset.download, "_dataset_root", str(tmp_path / "datasets"))
    for form in ("png", "svg"):
        monkeypatch.setattr(Picture, form, lambda self: b"plot")
    monkeypatch.setattr(page, "render", lambda *_, **__: "page")
    return tmp_path


@contextmanager
def file_size_limit(nbytes):
    """Limit the size of files, which simulates a full disk.

    Disables bytecode files, because a truncated one would break later imports.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, before[1]))
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "dont_write_bytecode", True)
            patch.setenv("PYTHONDONTWRITEBYTECODE", "1")
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
