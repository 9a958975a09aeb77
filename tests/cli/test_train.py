"""train.py on a tiny network."""

import io
import json
import os
import signal
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest
from chainer.training import extensions

from chainer_profile.basics import parsing
from chainer_profile.basics.files import locked
from chainer_profile.cli import train
from chainer_profile.measure import environment, threads
from chainer_profile.measure.clock import Clock
from chainer_profile.record.recording import BlasLibrary, Environment
from chainer_profile.runs.folder import load_run
from tests import ROOT, command, names_in
from tests.command import raising, sending
from tests.scripts import python
from tests.terminals import Terminal


class Net(chainer.Chain):
    """A tiny network. A test may replace ``at_call``, or set ``SIGNAL`` to send a signal."""

    def __init__(self, classes=10):
        super().__init__()
        self.calls = 0
        with self.init_scope():
            self.conv = L.Convolution2D(3, 4, 5, stride=4)
            self.bn = L.BatchNormalization(4)
            self.fc = L.Linear(196, classes)

    def at_call(self, number):
        name, _, call = os.environ.get("SIGNAL", "").partition(" ")
        if call == str(number):
            os.kill(os.getpid(), getattr(signal, name))

    def forward(self, x):
        if chainer.config.train:
            self.calls += 1
            self.at_call(self.calls)
        return self.fc(F.dropout(F.tanh(self.bn(self.conv(x))), 0.2))


@pytest.fixture(autouse=True)
def no_plots(monkeypatch):
    monkeypatch.setattr(extensions.PlotReport, "available", staticmethod(lambda: False))


#: 3 epochs of 5 iterations.
SMALL = ["train", "-d", "synthetic:50", "-b", "10", "-e", "3", "-l", "0.1"]
DEFAULT = Path("results", "tiny-synthetic")


def main(*words):
    """Run train.py in this process on a tiny network."""
    return command.main(*SMALL, "-q", *words, build=Net)


def log(out=DEFAULT):
    """Return the log without the times."""
    entries = json.loads(Path(out, "log").read_text())
    return [{name: entry[name] for name in entry if name != "elapsed_time"} for entry in entries]


def iterations(out=DEFAULT):
    return [entry["iteration"] for entry in log(out)]


def content(out=DEFAULT):
    return {path.name: path.read_bytes() for path in Path(out).glob("[!.]*") if path.is_file()}


def test_training_writes_its_files_and_replaces_them_only_with_force(done, fails):
    lines = done(*SMALL, build=Net).splitlines()
    assert lines[0].startswith("tiny on synthetic: 50 training and 25 test images, 10 classes; ")
    assert [line.split()[:2] for line in lines[2:5]] == [["1", "5"], ["2", "10"], ["3", "15"]]
    # Every test image counts once, also in the last batch.
    accuracy = log()[-1]["validation/main/accuracy"]
    assert accuracy * 25 == pytest.approx(round(accuracy * 25))
    assert lines[5].startswith(f"Test accuracy {accuracy:.2%}; written to {DEFAULT}: model.npz")
    # The learning rate falls at half and at three quarters of the epochs.
    assert [entry["lr"] for entry in log()] == pytest.approx([0.1, 0.01, 0.001])
    # A failed command does not change the files.
    before = content()
    assert "contains a training already; continue it with" in fails(*SMALL, "-q", code=2)
    message = fails(*SMALL, "--force", build=lambda classes: Net(classes + 1))
    assert message.endswith("must return floats of shape (2, 10), but it returns (2, 11)")
    assert content() == before
    Path(DEFAULT, "snapshot_iter_99").write_bytes(b"")
    Path(DEFAULT, "notes").write_text("mine")
    assert main("--force", "--seed", "1", "-e", "1", "--snapshot", "every=4") == 0
    assert names_in(DEFAULT) == ["log", "model.npz", "notes", "snapshot_iter_4", "snapshot_iter_5"]
    with locked(DEFAULT, ""):
        message = fails(*SMALL, "-q")
    assert message == f"{DEFAULT}: another training is writing there; wait until it ends"


def test_same_seed_gives_the_same_model_with_or_without_a_profile():
    for name, *words in (("a", "1"), ("b", "1", "--profile"), ("c", "2")):
        assert main("-e", "2", "-o", name, "--seed", *words) == 0
    assert log("a") == log("b") != log("c")
    with np.load("a/model.npz") as first, np.load("b/model.npz") as second:
        assert all(np.array_equal(first[name], second[name]) for name in first)
    recording = load_run(Path("b", "profile"))
    assert recording.n_trials >= 2
    assert recording.settings.model == "tiny"
    assert recording.settings.command.startswith("python train.py ")


def test_training_resumes_from_the_newest_snapshot(done):
    assert main("-e", "2") == 0
    first = log()
    out = done(*SMALL, "-r", build=Net)
    assert out.splitlines()[0] == f"Continuing from {DEFAULT / 'snapshot_iter_10'}"
    assert log()[:2] == first
    assert main("-r", "-e", "4", "--profile") == 0
    assert iterations() == [5, 10, 15, 20]
    assert main("--resume") == 0  # the last epoch is done already
    assert iterations() == [5, 10, 15, 20]


def test_resume_with_other_options_asks_for_the_same(fails):
    assert main("-e", "1") == 0
    before = content()
    message = fails(*SMALL, "-q", "-r", "-d", "synthetic:60", code=2, build=Net)
    assert message.startswith(f"--resume: {DEFAULT / 'snapshot_iter_5'} does not fit this training")
    assert message.endswith("; repeat the options of the training that wrote it")
    assert content() == before


@pytest.mark.process
@pytest.mark.smoke
@pytest.mark.parametrize(("name", "call", "snapshot"), [("SIGINT", 7, 7), ("SIGKILL", 12, 0)])
def test_training_continues_after_a_signal(name, call, snapshot):
    own = ("-m", "tests.cli.test_train:Net", "-o", "run")
    stopped = python(ROOT / "train.py", *SMALL[1:], *own, env={"SIGNAL": f"{name} {call}"})
    signum = getattr(signal, name)
    assert stopped.returncode == (128 + signum if snapshot else -signum)
    hint = f"the snapshot is {Path('run', 'snapshot_iter_7')}; continue with --resume"
    message = f"train.py: interrupted by {name}: {hint}\n" if snapshot else ""
    assert stopped.stderr == message
    assert not Path("run", "model.npz").exists()
    assert main(*own, "--resume") == 0
    assert iterations("run") == [5, 10, 15]
    assert Path("run", "model.npz").exists()


FAILED = "training failed after iteration"
#: An action, the number of its call, the exit code, the message, and whether a snapshot is kept.
ENDS = [
    (raising(RuntimeError("no\nmore")), 3, 1, f"{FAILED} 2: RuntimeError: no more; there", False),
    (lambda net: net.fc.b.array.fill(np.nan), 8, 1, f"{FAILED} 8: RuntimeError: ", True),
    (lambda net: sending(signal.SIGTERM, 2)(), 7, 143, "train.py: interrupted; ", True),
]


@pytest.mark.parametrize(("act", "number", "code", "begin", "is_kept"), ENDS)
def test_training_that_ends_early_keeps_its_last_snapshot(act, number, code, begin, is_kept, fails):
    at_call = lambda self, call: act(self) if call == number else None  # noqa: E731
    message = fails(*SMALL, "-q", code=code, build=type("Acting", (Net,), {"at_call": at_call}))
    assert message.startswith(begin)
    assert message.endswith(f"the last snapshot is {DEFAULT / 'snapshot_iter_5'}") is is_kept
    assert (DEFAULT / "snapshot_iter_5").exists() is is_kept
    assert not (DEFAULT / "model.npz").exists()


def test_progress_is_shown_on_a_terminal_and_training_finishes_without_a_reader(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    assert command.main(*SMALL, "-e", "2", "-o", "shown", build=Net) == 0
    assert "this epoch [" in terminal.getvalue()
    gone = io.StringIO()
    gone.write = raising(BrokenPipeError())
    monkeypatch.setattr(sys, "stdout", gone)
    assert command.main(*SMALL, build=Net) == 0
    assert (DEFAULT / "model.npz").exists()


# -- BLAS threads

MANY = 4


@pytest.fixture
def blas(monkeypatch):
    """Fake a BLAS library on four cores; record the threads in each call of the network."""
    limits, ran = [MANY], []

    @contextmanager
    def limit(threads, user_api):
        limits.append(threads)
        try:
            yield
        finally:
            limits.pop()

    class Noting(Net):
        def forward(self, x):
            ran.append(limits[-1])
            return super().forward(x)

    library = BlasLibrary("openblas", "1", MANY)
    where = Environment(physical_cores=MANY, usable_cores=MANY, blas=(library,))
    for name in threads._VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(threads, "threadpool_limits", limit)
    monkeypatch.setattr(environment, "collect", lambda: where)
    monkeypatch.setattr(parsing, "usable_cores", lambda: MANY)
    # Only the probe reads the clock, twice around each of its trials.
    monkeypatch.setattr(train, "HOST_CLOCK", Clock(iter(range(0, 10**12, 1000)).__next__))
    return SimpleNamespace(ran=ran, net=Noting)


def test_training_uses_one_blas_thread_if_it_is_at_least_as_fast(blas, done):
    out = done(*SMALL, build=blas.net).splitlines()
    times = "forward and backward take 1.000 us, and 1.000 us with 4 threads"
    assert out[1] == f"One BLAS thread: {times}"
    probe, ran = blas.ran[: -3 * (5 + 3)], blas.ran[-3 * (5 + 3) :]
    assert set(ran) == {1}
    assert {MANY, 1} == set(probe[2:])


def test_probe_of_threads_does_not_change_the_training(blas, monkeypatch):
    assert main("-o", "probed") == 0
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", str(MANY))
    assert main("-o", "plain") == 0
    assert log("probed") == log("plain")
    with np.load("probed/model.npz") as first, np.load("plain/model.npz") as second:
        assert all(np.array_equal(first[name], second[name]) for name in first)


def test_training_uses_the_requested_number_of_threads(blas):
    assert command.main(*SMALL, "-q", "--threads", "2", build=blas.net) == 0
    # The first call only checks the network.
    assert set(blas.ran[1:]) == {2}
