"""Folders with the user's files are refused; only our files are replaced or removed."""

import os
from pathlib import Path

import pytest

from chainer_profile.basics import files
from chainer_profile.basics.errors import ProfileError, UsageError
from chainer_profile.runs.folder import RECORDING, is_run_file
from chainer_profile.runs.output_files import refuse_foreign, remove_all, write
from tests import names_in
from tests.refusing import refusal

RUN = Path("run")


def put(*names):
    RUN.mkdir(exist_ok=True)
    for name in names:
        (RUN / name).write_text("mine")


NO_RUN = ", but no run; name another folder"
FORCE = ", or write into it with --force"
AGAIN = "run contains a run already; name another folder, or replace it with --force"
#: Files in the folder, whether it has a run, --force (None: no such option), and the message.
FOLDERS = [
    ((), False, False, ""),
    ((".DS_Store", "Thumbs.db"), False, False, ""),
    (("report.md",), False, False, f"run contains report.md{NO_RUN}{FORCE}"),
    ((RECORDING, "z", ".hidden"), False, None, f"run contains {RECORDING} and 1 more{NO_RUN}"),
    (("notes.txt",), False, True, ""),
    (("notes.txt", RECORDING), True, False, AGAIN),
    (("notes.txt", RECORDING), True, None, ""),
    (("notes.txt", RECORDING), True, True, ""),
]


@pytest.mark.parametrize(("names", "has_results", "force", "message"), FOLDERS)
def test_folder_with_foreign_files_is_refused(names, has_results, force, message):
    given = (RUN, is_run_file, "run", has_results, force)
    refuse_foreign(*given)  # the folder does not exist
    put(*names)
    if message:
        assert refusal(refuse_foreign, *given, error=UsageError) == message
    else:
        refuse_foreign(*given)


def test_folder_with_the_name_of_a_report_is_refused_even_with_force():
    (RUN / "report.md").mkdir(parents=True)
    message = "run/report.md is a folder; move it away, or name another folder"
    given = (RUN, is_run_file, "run", False, True)
    assert refusal(refuse_foreign, *given, error=UsageError) == message
    contents = {"layers.csv": b"1", "report.md": b"1"}
    assert refusal(write, RUN, contents, error=UsageError) == message
    assert names_in(RUN) == ["report.md"]  # no file is removed


def test_only_files_of_a_run_are_replaced_or_removed_with_their_empty_folder():
    put("notes.txt", "report.md", "trace.json", "layers-2.csv")
    assert write(RUN, {"report.md": b"new", "a.csv": b"new"}) == [RUN / "report.md", RUN / "a.csv"]
    assert (RUN / "report.md").read_text() == "new"
    write(Path("ours"), {"layers.csv": b"1"})
    for name in ("run", "ours", "nowhere"):
        remove_all(Path(name), is_run_file)
    assert names_in(".") == ["run"]
    assert names_in(RUN) == ["a.csv", "layers-2.csv", "notes.txt"]


def test_symbolic_links_are_not_followed(monkeypatch):
    Path("victim").write_text("mine")
    for name in ("file", ".foreseen.part", "journal"):
        os.symlink("victim", name)
    before = os.umask(0o027)
    try:
        with files.replacing(Path("file")) as file:
            file.write(b"new")
    finally:
        os.umask(before)
    assert Path("file").read_bytes() == b"new"
    assert not Path("file").is_symlink()
    assert Path("file").stat().st_mode & 0o777 == 0o640
    # The name of the temporary file may be a link, too.
    monkeypatch.setattr(files, "temporary_path", lambda path: Path(".foreseen.part"))
    with pytest.raises(ProfileError, match="cannot be written"), files.replacing(Path("file")):
        pass
    with pytest.raises(OSError, match="symbolic link"):
        files.open_unfollowed(Path("journal"))
    assert Path("victim").read_text() == "mine"
