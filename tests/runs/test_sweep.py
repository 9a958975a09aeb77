"""A sweep in its folder: what is done stays done."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from chainer_profile.basics.errors import ProfileError, UsageError
from chainer_profile.record.digest import Run
from chainer_profile.record.recording import Recording
from chainer_profile.runs.executors import Outcome, Task, Workers
from chainer_profile.runs.folder import load_run, save_recording
from chainer_profile.runs.sweep import (
    SweepFolder,
    planned_names,
    run_cases,
    take_sweep,
)
from chainer_profile.runs.sweep_cases import Case
from tests import names_in
from tests.sweeping import make_case, recording_of

OUT = Path("s")
CASES = [make_case("resnet18"), make_case("resnet34"), make_case("resnet18", batchsize=2)]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


class AtOnce:
    """Runs nothing: gives what a function makes of a task, or raises it."""

    def __init__(self, answer: Callable[[Task], Outcome]) -> None:
        self.answer = answer
        self.tasks: list[Task] = []

    def submit(self, task: Task) -> Future[Outcome]:
        self.tasks.append(task)
        future: Future[Outcome] = Future()
        try:
            future.set_result(self.answer(task))
        except BaseException as error:
            future.set_exception(error)
        return future


class Heard:
    """Notes what a sweep tells."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def begun(self, name: str) -> None:
        self.said.append(f"begun {name}")

    def waiting(self, workers: int) -> None:
        self.said.append(f"waiting {workers}")

    def again(self, name: str, error: str) -> None:
        self.said.append(f"again {name}: {error}")

    def ended(self, result: Run, seconds: float) -> None:
        self.said.append(f"ended {result.name}")


def case_of(task: Task) -> Case:
    (case,) = (case for case in CASES if case.arguments == task.arguments[: len(case.arguments)])
    return case


def good(task: Task) -> Outcome:
    path = Path("sent.npz")
    recording_of(case_of(task).settings).save(path)
    return Outcome(path.read_bytes(), "there", 1.5)


def run(
    folder: SweepFolder,
    answer: Callable[[Task], Outcome] = good,
    cases: list[Case] = CASES,
    local: bool = True,
) -> tuple[list[Run], list[str], list[Task]]:
    executor, heard, stopped = AtOnce(answer), Heard(), []
    workers = Workers(executor.submit, lambda: 1, stopped.append, local=local)
    folder.begin()
    results = [run for _, run in run_cases(cases, folder, workers, heard)]
    assert stopped == []
    return results, heard.said, executor.tasks


def test_cases_are_run_one_after_another_and_kept(folder: Path) -> None:
    with take_sweep(OUT, CASES, force=False) as taken:
        assert [taken.finished(case) for case in CASES] == [None] * 3
        results, said, tasks = run(taken)
        kept = [taken.finished(case) for case in CASES]
    names = [f"{case.model}-8x8-cpu-b{case.batchsize}" for case in CASES]
    assert said == [f"{what} {name}" for name in names for what in ("begun", "ended")]
    assert kept == results
    assert [result.name for result in results] == names
    assert [task.arguments for task in tasks] == [case.arguments for case in CASES]
    assert {task.folder for task in tasks} == {str(folder)}
    assert names_in(OUT) == sorted([*names, "sweep.json"])
    assert names_in(OUT / names[0]) == ["case.json", "recording.npz"]


def test_the_kept_command_repeats_the_case() -> None:
    with take_sweep(OUT, CASES, force=False) as taken:
        run(taken, cases=CASES[:1])
    recording = load_run(OUT / "resnet18-8x8-cpu-b1")
    words = " ".join(CASES[0].arguments)
    assert recording.settings.command == f"python profile.py {words} --out s/resnet18-8x8-cpu-b1"


def test_workers_elsewhere_have_their_own_scratch() -> None:
    with take_sweep(OUT, CASES, force=False) as taken:
        *_, tasks = run(taken, local=False)
    assert {task.scratch for task in tasks} == {None}


def test_a_failing_case_is_reported_and_the_rest_done() -> None:
    def answer(task: Task) -> Outcome:
        if case_of(task) is CASES[1]:
            return Outcome(error="no luck", machine="there")
        return good(task)

    with take_sweep(OUT, CASES, force=False) as taken:
        results, said, _ = run(taken, answer)
        assert [result.error for result in results] == ["", "no luck", ""]
        assert taken.finished(CASES[1]) is None
    assert len(said) == 6


@pytest.mark.parametrize("deaths", [1, 2])
def test_a_case_whose_process_dies_is_tried_once_more(deaths: int) -> None:
    left = [deaths]

    def answer(task: Task) -> Outcome:
        if case_of(task) is CASES[0] and left[0]:
            left[0] -= 1
            return Outcome(error="its process was killed by SIGKILL", died=True)
        return good(task)

    with take_sweep(OUT, CASES, force=False) as taken:
        results, said, tasks = run(taken, answer)
    assert "again resnet18-8x8-cpu-b1: its process was killed by SIGKILL" in said
    assert len(tasks) == 4
    wrong = "its process was killed by SIGKILL, twice"
    assert results[0].error == ("" if deaths == 1 else wrong)
    assert [result.error for result in results[1:]] == ["", ""]


def test_an_executor_that_raises_is_a_failed_case() -> None:
    def answer(task: Task) -> Outcome:
        raise ImportError("no module named chainer_profile")

    with take_sweep(OUT, CASES, force=False) as taken:
        results, *_ = run(taken, answer)
    assert {result.error for result in results} == {"ImportError: no module named chainer_profile"}


def test_what_is_no_recording_is_a_failed_case() -> None:
    with take_sweep(OUT, CASES, force=False) as taken:
        results, *_ = run(taken, lambda task: Outcome(b"something else", "there"))
        assert results[0].error.startswith("what came back is bad: ")
        assert taken.finished(CASES[0]) is None
    assert names_in(OUT / results[0].name) == ["case.json"]


def test_an_interruption_stops_the_workers() -> None:
    class Never(AtOnce):
        def submit(self, task: Task) -> Future[Outcome]:
            self.tasks.append(task)
            return Future()

    class Impatient(Heard):
        def begun(self, name: str) -> None:
            raise KeyboardInterrupt

    stopped: list[str] = []
    executor = Never(good)
    with take_sweep(OUT, CASES, force=False) as taken:
        taken.begin()
        workers = Workers(executor.submit, lambda: 1, stopped.append, local=True)
        with pytest.raises(KeyboardInterrupt):
            list(run_cases(CASES, taken, workers, Impatient()))
    assert stopped == [executor.tasks[0].sweep]
    assert not (OUT / ".running").exists()


def test_several_workers_have_several_cases_at_a_time() -> None:
    heard = Heard()
    with take_sweep(OUT, CASES, force=False) as taken:
        taken.begin()
        workers = Workers(AtOnce(good).submit, lambda: 2, lambda name: None)
        assert len(list(run_cases(CASES, taken, workers, heard))) == 3
    assert [word.split()[0] for word in heard.said[:3]] == ["begun", "begun", "ended"]


def change(place: Path, **changes: Any) -> None:
    recording = Recording.load(place / "recording.npz")
    values = {name: getattr(recording, name) for name in ("layers", "self_ns", "settings")}
    save_recording(place, Recording(**(values | changes)))


@pytest.mark.parametrize("what", ["other settings", "interrupted", "damaged", "gone", "no machine"])
def test_only_what_is_whole_is_done(what: str) -> None:
    with take_sweep(OUT, CASES, force=False) as taken:
        run(taken)
        place = OUT / taken.names[CASES[0]]
        if what == "other settings":
            change(place, settings=CASES[1].settings)
        elif what == "interrupted":
            change(place, ended="interrupted by SIGTERM")
        elif what == "damaged":
            (place / "recording.npz").write_bytes(b"x")
        elif what == "gone":
            (place / "recording.npz").unlink()
        else:
            (place / "case.json").write_text("[")
        found = taken.finished(CASES[0])
        if what == "no machine":
            assert found is not None
            assert found.machine == ""
        else:
            assert found is None


def test_a_sweep_may_grow() -> None:
    with take_sweep(OUT, CASES[:1], force=False) as taken:
        run(taken, cases=CASES[:1])
    with take_sweep(OUT, CASES, force=False) as taken:
        assert [bool(taken.finished(case)) for case in CASES] == [True, False, False]


def test_another_sweep_is_refused_and_replaced_by_force() -> None:
    with take_sweep(OUT, CASES, force=False) as taken:
        run(taken)
    other = [make_case("resnet34"), make_case("resnet50")]
    message = r"--out s: holds another sweep \(with resnet18-8x8-cpu"
    with pytest.raises(UsageError, match=message), take_sweep(OUT, other, force=False):
        pass
    with take_sweep(OUT, other, force=True) as taken:
        assert taken.finished(other[0]) is None  # measured again
        assert len(names_in(OUT)) == 4  # nothing is removed yet
        taken.begin()
    assert names_in(OUT) == ["sweep.json"]
    assert [entry["model"] for entry in json.loads((OUT / "sweep.json").read_text())["cases"]] == [
        "resnet34",
        "resnet50",
    ]


def test_names_without_writing() -> None:
    planned = planned_names(OUT, CASES)
    assert planned.names[CASES[0]] == "resnet18-8x8-cpu-b1"
    assert planned.finished(CASES[0]) is None
    assert os.listdir() == []


def test_two_sweeps_at_once_in_one_folder() -> None:
    with (
        take_sweep(OUT, CASES, force=False),
        pytest.raises(ProfileError, match="another sweep is writing there"),
        take_sweep(OUT, CASES, force=False),
    ):
        pass
    with take_sweep(OUT, CASES, force=False):
        pass


def test_folders_that_are_no_place_for_a_sweep() -> None:
    Path("file").touch()
    with pytest.raises(UsageError, match="is a file"), take_sweep(Path("file"), CASES, False):
        pass
    Path("run").mkdir()
    Path("run/recording.npz").touch()
    with pytest.raises(UsageError, match="holds a run"), take_sweep(Path("run"), CASES, False):
        pass
    message = "a part of this path is a file"
    with pytest.raises(ProfileError, match=message), take_sweep(Path("file/in"), CASES, False):
        pass


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        "{}",
        '{"format": "chainer-profile sweep", "version": 2, "cases": []}',
        '{"format": "chainer-profile sweep", "version": 1, "cases": [{"name": "../x"}]}',
        '{"format": "chainer-profile sweep", "version": 1, "cases": [{"name": ".."}]}',
        '{"format": "chainer-profile sweep", "version": 1, "cases": [3]}',
    ],
)
def test_a_damaged_plan_is_one_line(content: str) -> None:
    OUT.mkdir()
    (OUT / "sweep.json").write_text(content)
    for force in (False, True):
        message = r"sweep\.json: damaged, or of a newer version"
        with pytest.raises(UsageError, match=message), take_sweep(OUT, CASES, force):
            pass
