"""A run takes a folder, fills it, and is loaded from it."""

import json
import math
import os
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from chainer_profile.analyse.summaries import summarise
from chainer_profile.basics import files
from chainer_profile.basics.errors import ProfileError, UsageError
from chainer_profile.measure.machine import limits_file, load_limits, save_limits
from chainer_profile.record.journal import PROFILED, WARMUP, Header, Journal, Rows, Trial
from chainer_profile.record.recording import MachineLimits, Recording
from chainer_profile.runs.folder import JOURNAL, RECORDING, load_run, save_recording, take_folder
from tests import names_in
from tests.conftest import make_recording

DEFAULT = Path("reports/net-cpu-b1")
RUN = Path("run")


def write_journal(file, n_trials=3):
    """Write trials like a run in progress."""
    recording = make_recording(n_layers=2, n_trials=max(n_trials, 1), n_clean=0)
    journal = Journal(file)
    journal.add(
        Header(recording.settings, recording.environment),
        Rows(recording.layers, settings=recording.settings),
        Trial(WARMUP, 0, 5),
    )
    for index in range(n_trials):
        journal.add(Trial(PROFILED, index, 10**9, {"self_ns": recording.self_ns[index].tobytes()}))
    return recording


def put_run(folder=RUN):
    """Make a folder with a finished run."""
    folder.mkdir(parents=True, exist_ok=True)
    recording = make_recording(n_layers=2, n_trials=5)
    save_recording(folder, recording)
    return recording


def put_killed_run(folder=RUN, n_trials=3):
    """Make a folder with the files of a killed run."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / JOURNAL, "w+b") as file:
        return write_journal(file, n_trials)


def take(out=RUN, *, force=False, **more):
    return take_folder(out, DEFAULT, force=force, **more)


def holds(recording, read=load_run, path=RUN):
    """Return whether the folder of the run has this recording."""
    return np.array_equal(read(path).self_ns, recording.self_ns)


def test_run_leaves_its_recording_or_trials_and_all_earlier_files():
    place = Path("a/b/run")  # parent folders are created
    with take(place) as run:
        recording = write_journal(run.journal)
        assert names_in(place) == [JOURNAL]
        assert run.has_trials()
        run.save(recording)
        assert not run.has_trials()
    assert names_in(place) == [RECORDING]
    assert holds(recording, path=place)
    for n_trials in (None, 0):  # without a trial
        with take(Path("c/d/e")) as run:
            if n_trials is not None:
                write_journal(run.journal, n_trials)
        assert os.listdir() == ["a"]
    Path("c/d").mkdir(parents=True)
    Path("c/mine.txt").write_text("mine")
    with pytest.raises(ZeroDivisionError), take(Path("c/d/e")):
        raise ZeroDivisionError
    with take(Path("c"), force=True):
        pass
    assert names_in("c") == ["d", "mine.txt"]
    assert names_in("c/d") == []
    with take() as run:
        write_journal(run.journal)
    assert names_in("run") == [JOURNAL]
    assert load_run(RUN).n_trials == 3


def test_default_folder_is_the_next_free_one(monkeypatch):
    DEFAULT.mkdir(parents=True)
    (DEFAULT / "layers.csv").write_text("mine")
    DEFAULT.with_name("net-cpu-b1-2").write_text("mine")
    put_run(DEFAULT.with_name("net-cpu-b1-3"))
    put_killed_run(DEFAULT.with_name("net-cpu-b1-4"))
    DEFAULT.with_name("net-cpu-b1-5").mkdir()
    (DEFAULT.with_name("net-cpu-b1-5") / ".DS_Store").write_text("the Finder's")
    with take(None) as first:
        assert first.path.name == "net-cpu-b1-5"
        free = files.is_free
        with monkeypatch.context() as patch:  # another run takes the folder first
            patch.setattr(files, "is_free", lambda folder: folder == first.path or free(folder))
            with take(None) as second:
                assert second.path.name == "net-cpu-b1-6"
    assert (DEFAULT / "layers.csv").read_text() == "mine"


def test_ranks_share_a_folder_that_no_other_run_uses():
    def ranks(*numbers, out=None):
        with ExitStack() as stack:
            takes = [take_folder(out, Path("profile"), force=False, rank=n) for n in numbers]
            runs = [stack.enter_context(take) for take in takes]
            for run in runs:
                run.save(write_journal(run.journal))
            return [run.path for run in runs]

    assert ranks(0, 1) == [Path("profile/rank-0"), Path("profile/rank-1")]
    # If a rank finds its folder taken, all ranks use a new folder, also ranks without an old one.
    assert ranks(1, 2, 0) == [Path(f"profile-2/rank-{n}") for n in (1, 2, 0)]
    Path("profile-3/rank-1").mkdir(parents=True)
    Path("profile-3/rank-1/notes.txt").write_text("mine")
    assert ranks(0) == [Path("profile-4/rank-0")]
    assert ranks(2, out=Path("named")) == [Path("named/rank-2")]
    with pytest.raises(UsageError, match="named/rank-2 contains a run already"):
        ranks(2, out=Path("named"))
    assert ranks(1, out=Path("named")) == [Path("named/rank-1")]


@pytest.mark.parametrize("put", [put_run, put_killed_run])
def test_force_replaces_a_run_only_when_the_new_one_is_saved(put):
    old = put()
    before = {path.name: path.read_bytes() for path in Path("run").iterdir()}
    with pytest.raises(UsageError, match=r"^run contains a run already;.* --force"), take():
        pass
    assert {path.name: path.read_bytes() for path in Path("run").iterdir()} == before
    for n_trials in (None, 0):  # a run without trials
        with take(force=True) as run:
            if n_trials is not None:
                write_journal(run.journal, n_trials)
        assert names_in("run") == [RECORDING]
        assert holds(old)
    with take(force=True) as run:
        new = write_journal(run.journal)
        assert holds(old, Recording.load, RUN / RECORDING)
        run.save(new)
    assert names_in("run") == [RECORDING]
    assert holds(new)


def test_old_reports_are_removed_and_other_files_stay():
    stale = ["budget.json", "layers.csv", "roofline.png", "trace.json"]

    def put_reports():
        for name in (*stale, "notes.txt"):
            Path("run", name).write_text("old")

    put_run()
    put_reports()
    with take(force=True) as run:
        assert names_in("run") == sorted([*stale, "notes.txt", JOURNAL, RECORDING])
        run.save(write_journal(run.journal))
    assert names_in("run") == ["notes.txt", RECORDING]
    # Recovery of a killed run keeps budget.json, which that run itself wrote.
    put_reports()
    new = put_killed_run()
    assert holds(new)
    assert names_in("run") == ["budget.json", "notes.txt", RECORDING]
    # Without a recording in the folder, nothing is removed.
    (RUN / RECORDING).unlink()
    put_reports()
    with take(force=True) as run:
        run.save(write_journal(run.journal))
    assert names_in("run") == sorted([*stale, "notes.txt", RECORDING])


def test_folder_of_a_running_run_is_refused():
    with take() as run:
        recording = write_journal(run.journal)
        message = "^run: a run is still writing into it; wait until it ends$"
        with pytest.raises(ProfileError, match=message):
            load_run(RUN)
        with pytest.raises(ProfileError, match=message), take(force=True):
            pass
        assert names_in("run") == [JOURNAL]
        run.save(recording)
    assert load_run(RUN).n_trials == recording.n_trials


def test_empty_journal_does_not_hide_the_recording_and_is_not_a_run():
    for size in (0, 100, None):
        old = put_run()
        put_killed_run(n_trials=0)
        if size is not None:
            os.truncate(RUN / JOURNAL, size)
        assert holds(old), size
    put_killed_run(Path("killed"), n_trials=0)
    message = "^killed: the run was killed before its first trials were written; run it again with"
    with pytest.raises(ProfileError, match=message):
        load_run(Path("killed"))
    os.truncate(Path("killed") / JOURNAL, 100)
    lost = r"^killed: the run was killed before its end; 74 bytes of its journal are damaged or cut"
    with pytest.raises(ProfileError, match=lost):
        load_run(Path("killed"))


# -- the machine's limits, in a folder of the user


def make_limits(key="here", flops_per_s=1e11):
    measured = "2026-01-02T03:04:05Z"
    return MachineLimits(key, "cpu", measured, 2, flops_per_s, None, 4e10, 2e10, 1 << 28)


def test_limits_are_saved_below_home_without_a_cache_folder(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    for value in ("", "relative/folder"):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert limits_file() == Path("/home/me/.cache/chainer-profile/machine.json")
    # Without a home folder, nothing is saved.
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert (limits_file(), load_limits()) == (None, {})
    with pytest.raises(ProfileError, match=r"^there is no home folder; set XDG_CACHE_HOME to a"):
        save_limits(make_limits())


def test_limits_are_saved_by_key_and_unreadable_files_are_ignored(monkeypatch, folder):
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    first, second, again = make_limits("a"), make_limits("b"), make_limits("a", 2e11)
    for limits, kept in ((first, {}), (second, {"a": first}), (again, {"a": first, "b": second})):
        assert load_limits() == kept
        save_limits(limits)
    assert load_limits() == {"a": again, "b": second}
    good = asdict(make_limits())
    for content in (b"", b"\xff\xfe", b"[" * 100_000, b"null", b'{"version": 1, "limits": []}'):
        limits_file().write_bytes(content)
        assert load_limits() == {}, content[:60]
    for name, value in (("key", 1), ("half_flops_per_s", 0.0), ("flops_per_s", math.nan)):
        entries = [None, good | {name: value}, good]
        limits_file().write_text(json.dumps({"version": 2, "limits": entries}))
        assert load_limits() == {"here": make_limits()}, name
        save_limits(second)


def test_summary_saves_the_same_files_as_a_run():
    summary = summarise(make_recording())
    place = Path("a/b")
    paths = summary.save(place, ["json", "folded"], title="Mine", author="Me")
    assert paths[0].name == RECORDING
    assert {"report.html", "report.json", "stacks.folded"} <= {path.name for path in paths}
    assert (place / "report.md").read_text().startswith("# Mine\n\n**Author**: Me\n")
    assert holds(summary.recording, path=place)
    summary.save(str(place))
    assert not (place / "report.json").exists()  # not requested this time
    RUN.mkdir()
    (RUN / "links.csv").write_text("mine")
    with pytest.raises(ProfileError, match=r"run contains links\.csv, but no run; name another"):
        summary.save(RUN)
    assert names_in(RUN) == ["links.csv"]
