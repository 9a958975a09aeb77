"""Folders that may hold files of the user's: what is refused, replaced and removed."""

import os
from pathlib import Path

import pytest

from chainer_profile.basics import files
from chainer_profile.basics.errors import ProfileError, UsageError
from chainer_profile.runs.folder import RECORDING, is_of_run
from chainer_profile.runs.written import refuse_foreign, remove, remove_all, write
from tests import names_in
from tests.refusing import refusal

RUN = Path("run")


def put(*names):
    for name in names:
        place = RUN / name
        place.parent.mkdir(exist_ok=True)
        place.write_text("mine")


def refuse(has_results=False, force=None):
    refuse_foreign(RUN, is_of_run, "run", has_results, force)


NO_RUN = ", but no run; name another folder"
FORCE = ", or write into it with --force"
#: Files in the folder, whether it has a run, --force (None: the command has none), the refusal.
FOLDERS = [
    ((), False, False, ""),
    ((".DS_Store", "Thumbs.db"), False, False, ""),
    (("notes.txt",), False, False, f"run contains notes.txt{NO_RUN}{FORCE}"),
    (("report.md",), False, False, f"run contains report.md{NO_RUN}{FORCE}"),
    ((RECORDING, "z", ".hidden"), False, None, f"run contains {RECORDING} and 1 more{NO_RUN}"),
    (("notes.txt",), False, True, ""),
    (
        ("notes.txt", RECORDING),
        *(True, False),
        "run contains a run already; name another folder, or replace it with --force",
    ),
    (("notes.txt", RECORDING), True, None, ""),
    (("notes.txt", RECORDING), True, True, ""),
]


@pytest.mark.parametrize(("names", "has_results", "force", "said"), FOLDERS)
def test_which_folders_are_refused(names, has_results, force, said):
    refuse(has_results, force)  # a folder that is not there
    RUN.mkdir()
    put(*names)
    if said:
        assert refusal(refuse, has_results, force, error=UsageError) == said
    else:
        refuse(has_results, force)


def test_a_folder_that_has_the_name_of_a_file_is_refused_by_force_too():
    (RUN / "report.md").mkdir(parents=True)
    said = r"^run/report\.md is a folder; move it away, or name another folder$"
    with pytest.raises(UsageError, match=said):
        refuse(force=True)
    with pytest.raises(UsageError, match=said):
        write(RUN, {"layers.csv": b"1", "report.md": b"1"})
    assert names_in(RUN) == ["report.md"]  # all or nothing
    remove(RUN, is_of_run)
    assert names_in(RUN) == ["report.md"]


def test_only_files_of_a_run_s_names_are_replaced_and_removed_with_an_empty_folder():
    assert write(Path("nowhere"), {}) == []
    assert not Path("nowhere").exists()
    put("notes.txt", "report.md", "trace.json", "layers-2.csv")
    assert write(RUN, {"report.md": b"new", "a.csv": b"new"}) == [RUN / "report.md", RUN / "a.csv"]
    assert (RUN / "report.md").read_text() == "new"
    write(Path("ours"), {"layers.csv": b"1"})
    for name in ("run", "ours", "nowhere"):
        remove_all(Path(name), is_of_run)
    assert names_in(".") == ["run"]
    assert names_in(RUN) == ["a.csv", "layers-2.csv", "notes.txt"]
    assert (RUN / "notes.txt").read_text() == "mine"


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
