"""profile.py report of ranks: its files, and folders with missing, damaged or killed ranks."""

from pathlib import Path

from benchmarks.ranks import training
from chainer_profile.runs.folder import save_recording
from tests import names_in

FILES = ["collectives.csv", "ranks.csv", "ranks.html", "ranks.md"]


def make_ranks(size=2, **more):
    """Make the folders of a training's ranks, in ``out``."""
    for name, recording in training(size, 30, 8, **more).items():
        Path("out", name).mkdir(parents=True)
        save_recording(Path("out", name), recording)


def test_report_of_ranks_prints_and_writes_tables(done):
    make_ranks(planted_ms={(1, 1): 30.0})
    out = done("report", "out")
    assert out.startswith("BatchNormalization at /res0 in forward takes ")
    assert "The others most often wait for rank 1: in 8 of 8 iterations." in out
    assert "Written to out: ranks.md" in out
    assert names_in("out") == sorted([*FILES, "rank-0", "rank-1"])
    slow = [row for row in Path("out/ranks.csv").read_text().splitlines() if row.endswith(",yes")]
    assert [row.split(",")[:5] for row in slow] == [
        ["1", "1", "/res0", "BatchNormalization", "forward"]
    ]
    assert "5 rows not shown (--limit 0 shows all)" in done("report", "out", "--limit", "2")
    assert "not shown" not in Path("out/ranks.md").read_text()
    assert done("report", "out", "-q", "-o", "there/x") == ""
    assert names_in("there/x") == FILES


def test_missing_and_damaged_ranks_are_reported(done):
    make_ranks(size=4)
    Path("out/rank-1/recording.npz").write_bytes(b"PK")
    Path("out/rank-2/recording.npz").unlink()
    Path("out/rank-3").rename("out/away")
    out = done("report", "out")
    assert "rank-1: recording.npz: damaged, or not a recording (" in out
    assert "rank-2 contains no run (no recording.npz)" in out
    assert "there is no recording of rank 3 (1 of 4)" in out
    assert "Only rank 0 is recorded" in out
