"""Which files of a folder are ours, and what becomes of those that are not."""

import itertools
import os
import shutil
from pathlib import Path

import pytest

from chainer_profile.basics import files
from chainer_profile.basics.errors import ProfileError, UsageError
from chainer_profile.runs.folder import JOURNAL, RECORDING, is_of_run
from chainer_profile.runs.written import LIST, Written, refuse_foreign
from tests import ROOT, names_in

STORED = ROOT / "tests" / "record" / "stored"


def test_what_we_wrote_is_replaced_and_removed_until_somebody_changes_it():
    run = Path("run")
    Written(run).write({"report.md": b"first", "layers.csv": b"1"})
    Written(run).write({"report.md": b"second"})
    assert Written(run).is_ours("report.md")
    Path("run/report.md").write_text("second, and what I think of it")
    Path("run/trace.json").write_text("mine")
    assert not Written(run).is_ours("report.md")
    for name in ("report.md", "trace.json"):
        with pytest.raises(UsageError, match=rf"^run/{name} was not written by chainer-profile,"):
            Written(run).write({"layers.csv": b"2", name: b"third"})
    assert Path("run/layers.csv").read_text() == "1"  # all or nothing
    Written(run).remove(is_of_run)
    assert names_in("run") == ["report.md", "trace.json"]


def test_a_kill_between_two_files_leaves_both_ours(monkeypatch):
    run = Path("run")
    Written(run).write({"a": b"1", "b": b"1"})
    replace = os.replace

    def killed(part, path):
        if Path(path).name == "b":
            raise KeyboardInterrupt
        replace(part, path)

    for content in (b"2", b"3"):
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", killed)
            with pytest.raises(KeyboardInterrupt):
                Written(run).write({"a": content, "b": content})
        assert [Path("run", name).read_bytes() for name in "ab"] == [content, b"1"]
        assert all(map(Written(run).is_ours, "ab"))
    Written(run).write({"a": b"4", "b": b"4"})
    assert len((run / LIST).read_text().splitlines()) == 5  # it does not grow


def test_a_result_of_any_version_says_that_it_is_ours():
    Path("run").mkdir()
    for stored, name in (
        *(("version1.npz", RECORDING), ("version2-train.npz", RECORDING)),
        *(("version1.journal", JOURNAL), ("version2.journal", JOURNAL)),
    ):
        shutil.copy(STORED / stored, Path("run", name))
        assert Written(Path("run")).is_ours(name), stored
        os.rename(Path("run", name), "elsewhere")
        os.symlink("../elsewhere", Path("run", name))
        assert not Written(Path("run")).is_ours(name)
        Path("run", name).unlink()


def test_in_a_folder_of_an_older_version_names_decide_and_nothing_is_removed():
    run = Path("run")
    run.mkdir()
    shutil.copy(STORED / "version1.npz", run / RECORDING)
    for name in ("layers.csv", "report.pdf", "layers-2.csv"):
        (run / name).write_text("old")
    refuse_foreign(run, True, is_of_run)
    Written(run).write({"layers.csv": b"new"})
    Written(run).remove(lambda name: name != RECORDING)
    assert names_in(run) == ["layers-2.csv", RECORDING, "report.pdf"]
    Written(run).write({"report.pdf": b"new"})
    (run / "layers-2.csv").write_text("mine by now")
    with pytest.raises(UsageError, match=r"^run/layers-2\.csv was not written"):
        refuse_foreign(run, True, is_of_run)


def test_a_folder_of_somebody_else_is_refused():
    names = ("report.md", "recording.npz", "recording.journal", "budget.json")
    for name, content in itertools.product(names, (b"mine", b"", b"PK\x03\x04", None)):
        place = Path("run", name)
        place.parent.mkdir()
        place.mkdir() if content is None else place.write_bytes(content)
        if (name, content) != ("recording.journal", b""):  # as a run leaves that is killed at once
            said = rf"^--out run contains {name}, but no run; name another"
            with pytest.raises(UsageError, match=said):
                refuse_foreign(Path("run"), False, is_of_run)
            with pytest.raises(UsageError, match=rf"^{place} was not written by chainer-profile"):
                refuse_foreign(Path("run"), True, is_of_run)
        shutil.rmtree("run")
    # What is hidden is no obstacle.
    Path("run").mkdir()
    for name in (".DS_Store", ".gitignore", "Thumbs.db"):
        Path("run", name).write_text("hidden")
    refuse_foreign(Path("run"), False, is_of_run)


def test_a_folder_with_what_somebody_put_there_stays():
    for name in ("ours", "mixed"):
        Written(Path(name)).write({"layers.csv": b"1"})
    Path("mixed/mine.txt").write_text("mine")
    for name in ("ours", "mixed", "nowhere"):
        Written(Path(name)).remove_all()
    assert names_in(".") == ["mixed"]
    assert names_in("mixed") == ["mine.txt"]


def test_no_link_is_followed_and_no_temporary_name_can_be_foreseen(monkeypatch):
    Path("victim").write_text("mine")
    os.symlink("victim", "file")
    for name in (".file.part", ".file.tmp"):
        os.symlink("victim", name)
    before = os.umask(0o027)
    try:
        with files.replacing(Path("file")) as file:
            file.write(b"new")
    finally:
        os.umask(before)
    assert Path("victim").read_text() == "mine"
    assert Path("file").read_bytes() == b"new"
    assert not Path("file").is_symlink()
    assert Path("file").stat().st_mode & 0o777 == 0o640
    # Also one that is foreseen is not followed.
    foreseen = Path(".foreseen.part")
    os.symlink("victim", foreseen)
    monkeypatch.setattr(files, "part_of", lambda path: foreseen)
    with pytest.raises(ProfileError, match="cannot be written"), files.replacing(Path("file")):
        pass
    assert Path("victim").read_text() == "mine"
    Path("victim").write_bytes(b"chainer-profile journal\n")
    os.symlink("victim", "journal")
    with pytest.raises(OSError, match="symbolic link"):
        files.open_unfollowed(Path("journal"))
