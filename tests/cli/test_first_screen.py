"""The first screen is the answer: what a command shows by default has 40 lines of 100 columns."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from chainer_profile.analyse.findings import next_step
from chainer_profile.analyse.summaries import summarise
from chainer_profile.cli.shown import FULL
from chainer_profile.record.recording import Recording
from chainer_profile.report import unit
from chainer_profile.report.document import Heading, text
from chainer_profile.report.tables import Column, Table
from chainer_profile.report.writers.terminal import first_screen, written
from chainer_profile.runs.folder import save_recording
from tests import ROOT
from tests.conftest import make_recording, make_training
from tests.report.working import make_device_training, with_work


def noisy(recording):
    """The same with all that a warning can be made of."""
    walls = recording.trial_ns
    factor = np.where(np.arange(len(walls)) < len(walls) // 2, 3, 1)
    return replace(recording, trial_ns=walls * factor, ended="interrupted by the user")


RUNS = {
    "forward": lambda: with_work(make_recording(66)),
    "noisy": lambda: noisy(with_work(make_training(200))),
    "GPU": make_device_training,
    "a sample": lambda: Recording.load(
        ROOT / "reports" / "samples" / "resnet20-cpu-b1" / "recording.npz"
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run(name, folder, done, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    save_recording(folder, RUNS[name]())
    out = done("report", str(folder))
    shown = out.splitlines()
    assert len(shown) <= 40
    assert max(map(len, shown[:-3])) <= 100
    for part in (" takes ", "Where the time of a trial goes", "median ms", "report.html"):
        assert part in out
    findings = summarise(RUNS[name]()).findings
    assert ("Next: " in out) == (next_step(findings) is not None)
    # All the rest is there with --full.
    full = done("report", str(folder), "--full", "--format", "none")
    for finding in findings:
        assert finding.text in " ".join(full.split())


def test_what_has_no_room_is_named_with_what_leads_to_it():
    column = Column("name", "name", unit.TEXT)
    rows = [SimpleNamespace(name=f"name {at}") for at in range(30)]
    tables = [Table([column], rows, f"Table of {name}") for name in "ab"]
    blocks = [text("The answer."), text("Where it helped:"), *tables, Heading(2, "More"), text("!")]
    shown = written(first_screen(blocks, 100, FULL, most=8)).split("\n")
    left = "Table of a, Table of b, 1 paragraph"
    assert shown == ["The answer.", "", f"Not shown: {left} ({FULL})."]
    assert "10 rows not shown" in written(first_screen(blocks, 100, FULL))
