"""The folder of a sweep keeps finished cases. No case is run here."""

import json
from concurrent.futures import CancelledError, Future
from dataclasses import replace
from pathlib import Path

import pytest

from chainer_profile.basics.errors import ProfileError, UsageError
from chainer_profile.record.recording import Recording
from chainer_profile.runs.executors import Outcome, Workers
from chainer_profile.runs.folder import load_run, save_recording
from chainer_profile.runs.sweep import Case, run_cases, take_sweep
from tests import names_in
from tests.sweeping import make_case, recording_of

OUT = Path("s")
CASES = [make_case("resnet18"), make_case("resnet34"), make_case("resnet18", batchsize=2)]
NAMES = ["resnet18-8x8-cpu-b1", "resnet34-8x8-cpu-b1", "resnet18-8x8-cpu-b2"]


class Answers:
    """Workers that answer at once; the second case fails ``failures`` times before it succeeds."""

    def __init__(self, *failures):
        self.failures = [*failures]
        self.messages: list[str] = []
        self.stopped: list[str] = []
        self.tried: list[Case] = []

    def submit(self, sweep, words, folder):
        (case,) = (case for case in CASES if case.words == words)
        assert folder == str(Path.cwd())
        self.tried.append(case)
        future: Future[Outcome] = Future()
        answer = self.failures.pop() if case is CASES[1] and self.failures else None
        if isinstance(answer, Exception):
            future.set_exception(answer)
            return future
        recording_of(case.settings).save(Path("sent.npz"))
        good = Outcome(Path("sent.npz").read_bytes(), machine="there")
        future.set_result(answer or good)
        return future

    def run(self, taken, cases=CASES):
        taken.begin()
        workers = Workers(self.submit, self.stopped.append)
        return [result for _, result in run_cases(cases, taken, workers, self.messages.append)]


def test_cases_run_one_after_another_and_are_kept():
    answers = Answers()
    with take_sweep(OUT, CASES, force=False) as taken:
        assert [taken.finished(case) for case in CASES] == [None] * 3
        results = answers.run(taken)
        assert [taken.finished(case) for case in CASES] == results
    assert [(result.name, result.machine) for result in results] == [(n, "there") for n in NAMES]
    assert (answers.messages, answers.stopped) == ([], [])
    # The command in the recording repeats the case.
    command = load_run(OUT / NAMES[0]).settings.command
    assert command == f"python profile.py {' '.join(CASES[0].words)} --out s/{NAMES[0]}"


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (Outcome(error="no luck"), "no luck"),
        (Outcome(b"something else"), "the result is unusable: "),
        (ImportError("no\nmodule"), "ImportError: no module"),
    ],
)
def test_failed_case_is_tried_twice_and_the_other_cases_run(failure, error, times):
    answers = Answers(*[failure] * times)
    with take_sweep(OUT, CASES, force=False) as taken:
        *others, last = answers.run(taken)
        assert bool(taken.finished(CASES[1])) is (times == 1)
    assert answers.tried == [*CASES, CASES[1]]
    (message,) = answers.messages
    assert message.startswith(f"{NAMES[1]}: {error}")
    assert message.endswith("; trying once more")
    assert [result.error for result in others] == ["", ""]
    assert last.error.startswith(error) if times == 2 else last.error == ""


def test_sweep_that_ends_early_stops_its_workers():
    answers = Answers(CancelledError())
    with take_sweep(OUT, CASES, force=False) as taken:
        with pytest.raises(ProfileError, match="the scheduler disconnected; repeat the command"):
            answers.run(taken)
        assert taken.finished(CASES[0])
    assert len(answers.stopped) == 1


def test_only_complete_cases_of_the_same_command_are_finished():
    def change(**changes):
        (place / "recording.npz").unlink(missing_ok=True)
        save_recording(place, replace(recording, **changes))

    place = OUT / NAMES[0]
    with take_sweep(OUT, CASES, force=False) as taken:
        Answers().run(taken)
        recording = Recording.load(place / "recording.npz")
        for spoil in (
            lambda: change(settings=CASES[1].settings),
            lambda: change(ended="interrupted by SIGTERM"),
            lambda: (place / "recording.npz").write_bytes(b"x"),
            lambda: (place / "recording.npz").unlink(),
        ):
            change()
            assert taken.finished(CASES[0]).machine == "there"
            spoil()
            assert taken.finished(CASES[0]) is None
        change()
        (place / "case.json").write_text("[")
        assert taken.finished(CASES[0]).machine == ""


def test_sweep_can_grow_is_locked_and_is_replaced_with_force():
    with take_sweep(OUT, CASES[:1], force=False) as taken:
        Answers().run(taken, CASES[:1])
    with take_sweep(OUT, CASES, force=False) as taken:
        assert [bool(taken.finished(case)) for case in CASES] == [True, False, False]
        busy = "another sweep is writing there"
        with pytest.raises(ProfileError, match=busy), take_sweep(OUT, CASES, force=False):
            pass
        Answers().run(taken)
    other = [make_case("resnet34"), make_case("resnet50")]
    # A sweep that differs only in its number of trials has cases of the same names.
    more = [replace(case, settings=replace(case.settings, trials=9)) for case in CASES]
    text = r"--out s contains another sweep \(with resnet18-8x8-cpu-b1\); name another folder, or"
    for cases in (other, more):
        with pytest.raises(UsageError, match=text), take_sweep(OUT, cases, force=False):
            pass
    with take_sweep(OUT, other, force=True) as taken:
        assert taken.finished(other[0]) is None  # the case is measured again
        assert len(names_in(OUT)) == 4  # no file is removed yet
        taken.begin()
    assert names_in(OUT) == ["sweep.json"]
    plan = json.loads((OUT / "sweep.json").read_text())
    assert [entry["model"] for entry in plan["cases"]] == ["resnet34", "resnet50"]


PLAN = '{"format": "chainer-profile sweep", "version": %d, "cases": %s}'
DAMAGED = ["{", "null", PLAN % (2, "[]"), PLAN % (1, "3"), PLAN % (1, '[{"name": "../x"}]')]


@pytest.mark.parametrize("content", DAMAGED)
def test_damaged_plan_is_refused_in_one_line(content):
    OUT.mkdir()
    (OUT / "sweep.json").write_text(content)
    message = r"sweep\.json: damaged, or of a newer version; remove it, or name another folder"
    with pytest.raises(UsageError, match=message), take_sweep(OUT, CASES, True):
        pass
