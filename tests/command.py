"""The command line on a tiny network: what its tests share."""

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

#: What a run writes that ended before its trials were made, or left the limits out.
FILES = ["layers.csv", "layers.png", "layers.svg", "links.csv", "recording.npz"]
FILES += ["report.html", "report.md"]
ALL_FILES = [*FILES, "roofline.png", "roofline.svg"]

# The structure pass calls the network three times; here come one warm-up and the profiled trials.
FIRST_TRIAL = 5

#: A file with a network of the user's own, for tests that need another process.
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
    """Two layers; ``at_call`` may be replaced."""

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
    """The network that does something in one of its calls."""

    class Acting(Net):
        def at_call(self, call):
            if call == number:
                act()

    return Acting


def raising(error):
    """What raises an error."""

    def act(*_, **__):
        raise error

    return act


def sending(signum, times=1):
    """What sends signals to this process."""
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


#: What the commands that take a network are given, unless told otherwise: a tiny one, few trials.
_NETWORK, _FEW = ["--model", "tiny"], ["--trials", "4", "--warmups", "1"]
USUAL = {"": [*_NETWORK, *_FEW], "engines": [*_NETWORK, *_FEW], "train": _NETWORK}
USUAL |= dict.fromkeys(("advise", "export", "summary"), _NETWORK)


def main(*argv, build=Net, **entry):
    """Run a command in this process; what takes a network takes a tiny one, with few trials."""
    word, words = ("", argv) if not argv or argv[0].startswith("-") else (argv[0], argv[1:])
    of_folder = words and not words[0].startswith("-") and word != "export"
    usual = [] if of_folder else USUAL.get(word, [])
    if word == "train":
        entry = {"input_shape": (3, 32, 32), "classes": 10} | entry
        build = (lambda classes: L.Linear(3072, classes)) if build is Net else build
    registry: Mapping[str, Any] = {name: Entry(build, name, **entry) for name in ("tiny", "other")}
    return cli.main([*([word] if word else []), *usual, *words], registry)


def command(word, argv, registry=None, **more):
    """Run one of the commands in this process without what catches its errors and signals."""
    module = import_module(f"chainer_profile.cli.{word}")
    nobody: Any = SimpleNamespace(signum=0, reason=str, measuring=nullcontext)
    context = Context(
        list(argv), shlex.join([*COMMAND, word, *argv]), nobody, registry or {}, **more
    )
    return int(module.run(parser_of(word).parse_args(argv), context))


def process(*argv, **more):
    """Make a run in a process of its own, which does not measure the machine."""
    return python(ROOT / "profile.py", *argv, "--skip", "machine", **more)


def stand_in(environment, device, seconds=0):
    """Limits that cost no time: 200 GFLOP/s, 40 GB/s, 20 GB/s."""
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
    """In place of CpuWatch: no other program is busy."""

    def other_cpu(self):
        return 0.0


def one_line(text):
    """The single line of a message; fails if there are more."""
    lines = text.splitlines()
    assert len(lines) == 1, text
    return lines[0]


@pytest.fixture
def done(capsys):
    """Runs a command that goes well and complains of nothing; gives what it printed."""

    def run(*argv, **more):
        capsys.readouterr()
        assert main(*argv, **more) == 0
        out, err = capsys.readouterr()
        assert err == ""
        return out

    return run


@pytest.fixture
def fails(capsys):
    """Runs a command that fails with a code, 1 unless told; gives the one line that it says."""

    def run(*argv, code=1, **more):
        capsys.readouterr()
        assert main(*argv, **more) == code
        out, err = capsys.readouterr()
        assert out == ""
        return re.sub(r"^(profile|train)\.py: error: ", "", one_line(err))

    return run


@pytest.fixture(autouse=True)
def folder(tmp_path, tmp_path_factory, monkeypatch):
    """An empty current folder without the user's data; plots, pages and limits cost nothing."""
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
    """No file may grow beyond this: the next best thing to a full disk.

    Python would keep the first bytes of a module that is imported here as its compiled form, and
    no later import of that module would work.
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
