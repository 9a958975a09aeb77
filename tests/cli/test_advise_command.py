"""``profile.py advise`` on a tiny network. Only one test starts real processes."""

import json
import shlex
import signal
from dataclasses import dataclass
from pathlib import Path

import onnx
import pytest

from chainer_profile.advice.changes import UNCHANGED, Capabilities
from chainer_profile.advice.results import read_advice
from chainer_profile.advice.worker import BLOCK, READY, WorkerError
from chainer_profile.analyse.findings import Change
from chainer_profile.cli import advise
from chainer_profile.cli.parsers import parser_of
from chainer_profile.engines.catalogue import ENGINES
from chainer_profile.engines.onnx.nodes import read_origin
from chainer_profile.record.budget import ADVICE
from chainer_profile.record.recording import Settings
from chainer_profile.report.content import profile
from chainer_profile.runs.folder import load_run, save_recording
from tests.command import OWN, main
from tests.conftest import make_recording

RUN = Path("run")
INTO = ("advise", "-q", "--out", "run")


@dataclass
class Played:
    """A fake process: ``onnxruntime`` takes half of the time, and other changes have no effect."""

    change: Change
    broken: bool = False

    def ask(self, request, timeout_s):
        if request != BLOCK:
            if self.broken and request == READY:
                raise WorkerError("cannot be made ready")
            return [] if request == "layers" else ""
        run_s = 1e-3 if self.change.engine else 2e-3
        return {"cpu_s": run_s, "wall_s": run_s}

    def close(self):
        pass


@pytest.fixture
def starts(folder, monkeypatch):
    """Set the function that starts processes, the packages that are missing, and the threads."""

    def starts(start, missing=("torch",), threads=1):
        capabilities = Capabilities(
            dict.fromkeys(missing, "not installed"), threads=threads, cores=threads
        )
        monkeypatch.setattr(advise, "_capabilities", lambda _: capabilities)
        monkeypatch.setattr(advise, "_start", lambda words, threads, stop, to: start(threads, to))

    RUN.mkdir()
    monkeypatch.setattr(advise, "_MAX_PROFILE_TRIALS", 4)
    starts(lambda threads, change: Played(change))
    return starts


def shown():
    """Return the advice in the last report."""
    return profile.report.call_args.kwargs["related"].advice


def test_advise_profiles_tries_changes_and_writes_advice(starts, capsys):
    assert main("advise", "-b", "2") == 0
    out, err = capsys.readouterr()
    assert out.startswith("With onnxruntime a forward pass is 2.00x as fast (CPU time, 95 % interv")
    assert "profile.py: first look: " in err
    place = Path("reports/advise-tiny-cpu-b2")
    assert f"Written to {place}: report.md, advice.md, report.html" in out
    advice = read_advice(place)
    assert [tried.candidate.name for tried in advice.helping] == ["onnxruntime"]
    assert "more BLAS threads" in {each.name for each in advice.untried}
    command = load_run(place).settings.command
    assert command.startswith("python profile.py --model tiny -b 2 --trials 4")
    assert shown() == advice
    assert "# What was tried on tiny" in (place / "advice.md").read_text()


def test_command_to_export_the_network_for_an_engine_is_complete(starts, capsys):
    Path("nets.py").write_text(OWN)
    words = (
        "--model",
        "nets.py:Net",
        "--input-shape",
        "3",
        "-b2",
        "--seed=3",
        "--dtype",
        "float32",
    )
    assert main("advise", "--out", "run", *words, "--threads", "1") == 0
    (tried,) = read_advice(RUN).helping
    command = (
        "python profile.py export net.onnx --model nets.py:Net --seed 3 --input-shape 3 "
        "--batchsize 2"
    )
    assert tried.candidate.keep == command
    assert command in " ".join(capsys.readouterr().out.split())
    assert f"`{command}`" in (RUN / "advice.md").read_text()
    assert main(*shlex.split(command)[2:]) == 0
    assert read_origin(onnx.load("net.onnx")).network == "nets-Net"


def test_advice_is_shown_only_with_its_own_run(starts, done):
    assert done(*INTO) == ""
    content = json.loads(Path("run", ADVICE).read_text())
    content["environment"]["started"] = "2020-01-01T00:00:00Z"
    Path("run", ADVICE).write_text(json.dumps(content))
    done("report", "run", "-q")
    assert shown() is None  # advice of another run is not shown
    done("--out", "run", "--force", "-q")
    assert not list(RUN.glob("advice*"))


def test_advice_about_an_existing_run_uses_its_settings(starts, fails, capsys):
    assert main("-b", "3", "--phase", "train", "--out", "run", "-q") == 0
    before = load_run(RUN)
    assert main("advise", "run") == 0
    assert "training step" in capsys.readouterr().out
    assert load_run(RUN).environment == before.environment
    assert shown() == read_advice(RUN)
    assert "replace it with --force" in fails("advise", "run", code=2)
    assert main("advise", "run", "--force", "-q") == 0


def test_removed_options_of_an_old_run_are_ignored(starts, capsys, monkeypatch):
    taken = []

    def start(words, *_):
        taken.append(parser_of("profile").parse_known_args(words))
        return Played(UNCHANGED)

    monkeypatch.setattr(advise, "_start", start)
    command = "python profile.py -b 3 --no-memory --index 5 --input-size 8x8 --format pdf"
    save_recording(RUN, make_recording(settings=Settings(command=command)))
    assert main("advise", "run", "-q") == 0
    for args, left in taken:
        assert (args.batchsize, args.input, args.formats) == (3, "cifar10:5", ())
        assert [spec.shape for spec in args.input_shape] == [(8, 8)]
        assert left == ["--no-memory"]
    message = "run is taken without --no-memory: this version has no such option"
    assert capsys.readouterr().err == f"profile.py: {message}\n"


def test_threads_are_tried_if_the_profile_did_not_compare_them(starts):
    # One thread takes half of the time of two.
    starts(
        lambda threads, to: Played(Change(engine="one" * ((to.threads or threads) == 1))),
        missing=ENGINES,
        threads=2,
    )
    assert main(*INTO) == 0
    advice = read_advice(RUN)
    assert advice.settings.threads == 1
    assert "one BLAS thread" in [tried.candidate.name for tried in advice.helping]


def test_failed_change_is_listed_and_failed_network_is_an_error(starts, fails, capsys):
    starts(lambda threads, change: Played(change, broken=change != UNCHANGED))
    assert main("advise", "--out", "run") == 0
    out, _ = capsys.readouterr()
    assert "No change makes a forward pass significantly faster" in out
    assert "onnxruntime: cannot be made ready" in out
    starts(lambda threads, change: Played(change, broken=True))
    assert fails(*INTO, "--force") == "the unchanged network failed: cannot be made ready"


def test_ctrl_c_keeps_the_changes_that_were_measured(starts, capsys):
    begun = []

    def start(threads, change):
        begun.append(change)
        # The interrupt comes after two pairs of the first look and two more, for any number of
        # changes.
        if begun.count(Change(engine="onnxruntime")) == 5:
            signal.raise_signal(signal.SIGINT)
        return Played(change)

    starts(start)
    assert main("advise", "--out", "run") == 130
    assert "ended before everything was tried (interrupted by SIGINT)" in capsys.readouterr().out
    assert read_advice(RUN).ended == "interrupted by SIGINT"
    assert read_advice(RUN).helping


@pytest.mark.process
def test_advise_measures_onnxruntime_in_real_processes():
    Path("nets.py").write_text(OWN)
    words = ["--model", "nets.py:Net", "--input-shape", "3", "--threads", "1"]
    assert main(*INTO, "--budget", "1s", *words) == 0
    (tried,) = [each for each in read_advice(RUN).tried if each.candidate.name == "onnxruntime"]
    assert (tried.error, tried.pairs) == ("", 1)
    assert tried.after_s > 0
