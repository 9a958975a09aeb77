"""``profile.py advise``, on a tiny network; its processes are played, but in one test."""

import json
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest

from chainer_profile.advice.changes import AS_IT_IS, Possible
from chainer_profile.advice.results import read_advice
from chainer_profile.advice.worker import BLOCK, READY, WorkerError
from chainer_profile.analyse.findings import Change
from chainer_profile.cli import advise
from chainer_profile.cli.parsers import parser_of
from chainer_profile.engines.catalogue import ENGINES
from chainer_profile.record.budget import ADVICE
from chainer_profile.record.recording import Settings
from chainer_profile.report.content import profile
from chainer_profile.runs.folder import load_run, save_recording
from tests.command import OWN, main
from tests.conftest import make_recording

START = advise._start
RUN = Path("run")
INTO = ("advise", "-q", "--out", "run")


@dataclass
class Played:
    """A process in which ``onnxruntime`` takes half of the time, and nothing else is faster."""

    change: Change
    broken: bool = False

    def ask(self, question, patience_s):
        if question != BLOCK:
            if self.broken and question == READY:
                raise WorkerError("cannot be made ready")
            return [] if question == "layers" else ""
        run_s = 1e-3 if self.change.engine else 2e-3
        return {"cpu_s": run_s, "wall_s": run_s}

    def close(self):
        pass


@pytest.fixture(autouse=True)
def run_folder(folder):
    RUN.mkdir()


@pytest.fixture(autouse=True)
def starts(monkeypatch):
    """Sets what starts a process, given its threads and its change, and what may be tried."""

    def starts(start, **possible):
        possible = {"threads": 1, "cores": 1} | possible
        missing = possible.pop("missing", {"torch": "not installed: pip"})
        monkeypatch.setattr(advise, "_possible", lambda _: Possible(missing, **possible))
        monkeypatch.setattr(advise, "_start", lambda words, threads, stop, to: start(threads, to))

    monkeypatch.setattr(advise, "_TRIALS", 4)
    starts(lambda threads, change: Played(change))
    return starts


def shown():
    """The advice that the last report was given."""
    return profile.report.call_args.kwargs["beside"].advice


def test_it_profiles_tries_and_writes(capsys):
    assert main("advise", "-b", "2") == 0
    out, err = capsys.readouterr()
    assert out.startswith(
        "With onnxruntime a forward pass is 2.00x as fast (CPU time, 95 % interval 2.00"
    )
    assert "export net.onnx" in out
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


def test_advice_belongs_to_its_run(done):
    assert done(*INTO) == ""
    first = Path("run/advice.md").read_text()
    Path("run/advice.md").unlink()
    done("report", "run", "-q")  # says it again
    assert Path("run/advice.md").read_text() == first
    # That of another run is not shown; a new run takes it away.
    content = json.loads(Path("run", ADVICE).read_text())
    content["environment"]["started"] = "2020-01-01T00:00:00Z"
    Path("run", ADVICE).write_text(json.dumps(content))
    done("report", "run", "-q")
    assert shown() is None
    done("--out", "run", "--force", "-q")
    assert not list(RUN.glob("advice*"))


def test_a_run_that_is_there_gives_its_settings(fails, capsys):
    assert main("-b", "3", "--phase", "train", "--out", "run", "-q") == 0
    before = load_run(RUN)
    assert main("advise", "run") == 0
    assert "training step" in capsys.readouterr().out
    assert load_run(RUN).environment == before.environment
    assert shown() == read_advice(RUN)
    assert "replace it with --force" in fails("advise", "run", code=2)
    assert main("advise", "run", "--force", "-q") == 0


@pytest.mark.parametrize(
    ("command", "options", "gone"),
    [
        ("-b 3 --no-memory --index 5", {"batchsize": 3, "input": "cifar10:5"}, "--no-memory"),
        ("--input-size 8x8 --format pdf --trace-trial=3", {"formats": ()}, "--trace-trial=3"),
        ("-q --format json", {"quiet": True}, ""),
    ],
)
def test_a_run_of_before_is_taken_without_options_that_are_gone(
    command, options, gone, capsys, monkeypatch
):
    asked = []

    def start(words, threads, stop, change):
        asked.append(parser_of("profile").parse_known_args(words))
        return Played(change)

    monkeypatch.setattr(advise, "_start", start)
    settings = Settings(command=f"python profile.py {command}")
    save_recording(RUN, make_recording(settings=settings))
    assert main("advise", "run", "-q") == 0
    for given, left in asked:
        assert options.items() <= vars(given).items()
        assert left == gone.split()
    sizes = [spec.shape for spec in asked[0][0].input_shape or ()]
    assert sizes == [(8, 8)] * ("8x8" in command)
    said = f"profile.py: run is taken without {gone}: this version has no such option\n"
    assert capsys.readouterr().err == (said if gone else "")


def test_a_program_is_told_how_to_measure_a_change(fails):
    recording = make_recording(settings=Settings(command="python profile.py run train.py"))
    save_recording(RUN, recording)
    assert fails("advise", "run", code=2) == (
        "run is the run of a program, and advise builds networks; to try what makes the program "
        "faster: python profile.py run --try train.py"
    )


def test_threads_are_chosen_where_the_profile_did_not(starts):
    asked = []

    def start(threads, change):
        asked.append((threads, change))
        # One thread takes half of the time of two.
        fast = (change.threads or threads) == 1
        return Played(Change(engine="one" * fast))

    starts(start, missing=dict.fromkeys(ENGINES, "not installed"), threads=2, cores=2)
    assert main(*INTO) == 0
    advice = read_advice(RUN)
    assert advice.settings.threads == 1
    assert asked[:2] == [(2, AS_IT_IS), (2, Change(threads=1))]
    assert "one BLAS thread" in [one.candidate.name for one in advice.helping]


def test_what_fails_is_a_line_or_an_error(starts, fails, capsys):
    starts(lambda threads, change: Played(change, broken=change != AS_IT_IS))
    assert main("advise", "--out", "run") == 0
    out, _ = capsys.readouterr()
    assert "No change makes a forward pass significantly faster" in out
    assert "onnxruntime: cannot be made ready" in out
    starts(lambda threads, change: Played(change, broken=True))
    assert fails(*INTO, "--force") == "the network as it is: cannot be made ready"


def test_ctrl_c_keeps_what_there_is(starts, capsys):
    begun = []

    def start(threads, change):
        begun.append(change)
        # Two of the first look and two more are whole, however many changes are proposed.
        if begun.count(Change(engine="onnxruntime")) == 5:
            signal.raise_signal(signal.SIGINT)
        return Played(change)

    starts(start)
    assert main("advise", "--out", "run") == 130
    assert "ended before everything was tried (interrupted by SIGINT)" in capsys.readouterr().out
    assert read_advice(RUN).ended == "interrupted by SIGINT"
    assert read_advice(RUN).helping


@pytest.mark.process
def test_for_real(monkeypatch):
    Path("nets.py").write_text(OWN)
    monkeypatch.setattr(advise, "_start", START)
    words = ["--model", "nets.py:Net", "--input-shape", "3", "--threads", "1"]
    assert main(*INTO, "--budget", "1s", *words) == 0
    (tried,) = [one for one in read_advice(RUN).tried if one.candidate.name == "onnxruntime"]
    assert tried.error == ""
    assert tried.pairs == 1
    assert tried.after_s > 0
