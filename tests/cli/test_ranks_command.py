"""profile.py report of ranks: its files, and folders with ranks missing, damaged or killed."""

from pathlib import Path

from benchmarks.ranks import training
from chainer_profile.runs.folder import save_recording
from tests import names_in

FILES = ["collectives.csv", "ranks.csv", "ranks.html", "ranks.md"]


def made(*, size=2, **more):
    """The folders of a training's ranks, in ``out``."""
    recordings = training(size, 30, 8, **more)
    for name, recording in recordings.items():
        Path("out", name).mkdir(parents=True)
        save_recording(Path("out", name), recording)
    return recordings


def names(place):
    return [name for name in names_in(place) if "." in name]


def test_text_and_files(done):
    made(planted_ms={(1, 1): 30.0})
    out = done("report", "out")
    assert out.startswith("BatchNormalization at /res0 in forward takes ")
    assert "longer on rank 1 than on the others." in out
    assert "The others most often wait for rank 1: in 8 of 8 iterations." in out
    assert "Written to out: ranks.md" in out
    assert names("out") == FILES
    rows = Path("out/ranks.csv").read_text().splitlines()
    assert [row for row in rows if row.endswith(",yes")] == [
        row for row in rows if row.startswith("1,1,/res0,BatchNormalization,forward,")
    ]
    _, first, *_ = Path("out/collectives.csv").read_text().splitlines()
    assert first.startswith("1,/res0/W,Allreduce,147456,0,")
    assert Path("out/ranks.md").read_text().startswith("# net on 2 ranks\n")
    assert "5 rows not shown (--limit 0 shows all)" in done("report", "out", "--limit", "2")
    assert "not shown" not in Path("out/ranks.md").read_text()
    assert done("report", "out", "-q", "-o", "there/x") == ""
    assert names("there/x") == FILES


def test_missing_and_damaged_ranks_are_said(done):
    made(size=4)
    Path("out/rank-1/recording.npz").write_bytes(b"PK")
    Path("out/rank-2/recording.npz").unlink()
    Path("out/rank-3").rename("out/away")
    out = done("report", "out")
    assert "rank-1: recording.npz: damaged, or not a recording (" in out
    assert "rank-2 contains no run (no recording.npz)" in out
    assert "there is no recording of rank 3 (1 of 4)" in out
    assert "Only rank 0 is recorded" in out
