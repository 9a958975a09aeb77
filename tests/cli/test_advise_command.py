"""``profile.py advise``, on a tiny network; its processes are played, but in one test."""

import json
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from chainer_profile.advice.changes import AS_IT_IS, Possible
from chainer_profile.advice.results import ADVICE, read_advice
from chainer_profile.advice.worker import BLOCK, READY, WorkerError
from chainer_profile.analyse.findings import Change
from chainer_profile.cli import advise
from chainer_profile.cli import main as cli
from chainer_profile.cli.parsers import parser_of
from chainer_profile.engines.catalogue import ENGINES
from chainer_profile.measure import runner
from chainer_profile.report.content import profile
from chainer_profile.runs.folder import load_run
from tests.command import OWN, Entry, main, one_line

POSSIBLE = Possible({"openvino": "not installed: pip"}, threads=1, cores=1)

START = advise._start


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
def played(monkeypatch):
    monkeypatch.setattr(advise, "_possible", lambda recording: POSSIBLE)
    monkeypatch.setattr(advise, "_start", lambda words, threads, stop, change: Played(change))
    monkeypatch.setattr(advise, "_TRIALS", 4)


def shown():
    """The advice that the last report was given."""
    mocked: Any = profile.report
    return mocked.call_args.kwargs["beside"].advice


def run(*argv):
    registry: Any = {"tiny": Entry()}
    words = argv if argv and not argv[0].startswith("-") else ["--model", "tiny", *argv]
    return cli.main(["advise", *words], registry)


def test_it_profiles_tries_and_writes(capsys):
    assert run("-b", "2") == 0
    out, err = capsys.readouterr()
    assert out.startswith(
        "onnxruntime makes a forward pass 2.00x as fast (CPU time, 95 % interval 2.00"
    )
    assert "export --to net.onnx" in out
    assert "profile.py: first look: " in err
    place = Path("reports/advise-tiny-cpu-b2")
    assert f"Written to {place}: report.md, report.html" in out
    advice = read_advice(place)
    assert advice is not None
    assert [one.candidate.name for one in advice.helping] == ["onnxruntime"]
    assert {one.name for one in advice.untried} >= {"openvino", "more BLAS threads"}
    assert advice.settings.threads == 1
    recording = load_run(place)
    assert recording.settings.command.startswith("python profile.py --model tiny -b 2 --trials 4")
    assert recording.settings.batchsize == 2
    assert shown() == advice
    assert "# What was tried on tiny" in (place / "advice.md").read_text()


def test_the_reports_of_the_run_say_it_again(capsys):
    assert run("--out", "run", "-q") == 0
    assert capsys.readouterr().out == ""
    first = Path("run/advice.md").read_text()
    Path("run/advice.md").unlink()
    assert main("report", "run", "-q") == 0
    assert Path("run/advice.md").read_text() == first
    assert shown() == read_advice(Path("run"))


def test_a_run_that_is_there_gives_its_settings(capsys):
    assert main("-b", "3", "--phase", "train", "--out", "run", "-q") == 0
    began = load_run(Path("run")).environment.started
    assert run("run") == 0
    assert "training step" in capsys.readouterr().out
    found = load_run(Path("run"))
    assert (found.environment.started, found.settings.batchsize) == (began, 3)
    assert shown() == read_advice(Path("run"))
    assert run("run") == 2
    assert "replace it with --force" in one_line(capsys.readouterr().err)
    assert run("run", "--force", "-q") == 0


def test_a_new_run_in_the_folder_takes_the_advice_away():
    assert run("--out", "run", "-q") == 0
    assert main("--out", "run", "--force", "-q") == 0
    assert not list(Path("run").glob("advice*"))


def test_advice_of_another_run_is_not_shown():
    assert run("--out", "run", "-q") == 0
    assert main("--out", "other", "-q") == 0
    content = json.loads(Path("run", ADVICE).read_text())
    content["environment"]["started"] = "2020-01-01T00:00:00Z"
    Path("other", ADVICE).write_text(json.dumps(content))
    assert main("report", "other", "-q") == 0
    assert shown() is None


def test_threads_are_chosen_where_the_profile_did_not(monkeypatch):
    asked = []

    def start(words, threads, stop, change):
        asked.append((threads, change))
        # One thread takes half of the time of two.
        fast = (change.threads or threads) == 1
        return Played(Change(engine="one" * fast))

    possible = Possible(dict.fromkeys(ENGINES, "not installed"), threads=2, cores=2)
    monkeypatch.setattr(advise, "_possible", lambda recording: possible)
    monkeypatch.setattr(advise, "_start", start)
    assert run("--out", "run", "-q") == 0
    advice = read_advice(Path("run"))
    assert advice is not None
    assert advice.settings.threads == 1
    assert asked[:2] == [(2, AS_IT_IS), (2, Change(threads=1))]
    assert {threads for threads, _ in asked[4:]} == {1}
    assert "one BLAS thread" in [one.candidate.name for one in advice.helping]


def test_a_change_that_fails_is_a_line(capsys, monkeypatch):
    def start(words, threads, stop, change):
        return Played(change, broken=change != AS_IT_IS)

    monkeypatch.setattr(advise, "_start", start)
    assert run("--out", "run") == 0
    out, _ = capsys.readouterr()
    assert "Nothing makes a forward pass faster beyond doubt" in out
    assert "onnxruntime: cannot be made ready" in out


def test_the_network_itself_fails(capsys, monkeypatch):
    monkeypatch.setattr(advise, "_start", lambda *given: Played(given[-1], broken=True))
    assert run("--out", "run", "-q") == 1
    said = one_line(capsys.readouterr().err)
    assert said == "profile.py: error: the network as it is: cannot be made ready"


def test_ctrl_c_shows_and_writes_what_there_is(capsys, monkeypatch):
    begun = []

    def start(words, threads, stop, change):
        begun.append(change)
        # Two of the first look and two more are whole, however many changes are proposed.
        if begun.count(Change(engine="onnxruntime")) == 5:
            signal.raise_signal(signal.SIGINT)
        return Played(change)

    monkeypatch.setattr(advise, "_start", start)
    assert run("--out", "run") == 130
    assert "It ended before all was tried (interrupted by SIGINT)" in capsys.readouterr().out
    advice = read_advice(Path("run"))
    assert advice is not None
    assert advice.ended == "interrupted by SIGINT"
    assert advice.helping


def test_ctrl_c_in_the_profile_ends_it(capsys, monkeypatch):
    def interrupted(*given, **more):
        signal.raise_signal(signal.SIGINT)
        return real(*given, **more)

    real = runner.run
    monkeypatch.setattr(runner, "run", interrupted)
    assert run("--out", "run", "-q") == 130
    assert not Path("run", ADVICE).exists()


@pytest.mark.parametrize(
    ("text", "seconds"), [("3m", 180), ("90s", 90), ("1.5", 1.5), ("0.5m", 30)]
)
def test_a_budget(text, seconds):
    assert parser_of("advise").parse_args(["--budget", text]).budget == seconds


@pytest.mark.process
def test_for_real(capsys, monkeypatch):
    Path("nets.py").write_text(OWN)
    monkeypatch.setattr(advise, "_start", START)
    words = ["--model", "nets.py:Net", "--input-shape", "3", "--threads", "1"]
    assert run("--budget", "1s", "--out", "run", *words) == 0
    advice = read_advice(Path("run"))
    assert advice is not None
    (tried,) = [one for one in advice.tried if one.candidate.name == "onnxruntime"]
    assert tried.error == ""
    assert tried.pairs == 1
    assert tried.after_s > 0
