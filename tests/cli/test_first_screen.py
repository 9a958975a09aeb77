"""The first screen answers the main question: a command prints few lines by default."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from chainer_profile.analyse.findings import steps_to_do
from chainer_profile.analyse.summaries import summarise
from chainer_profile.cli.output import FULL
from chainer_profile.record.recording import Recording
from chainer_profile.report import unit
from chainer_profile.report.document import Heading, text
from chainer_profile.report.tables import Column, Table
from chainer_profile.report.writers.terminal import fit_on_screen, written
from chainer_profile.runs.folder import save_recording
from tests import ROOT
from tests.conftest import make_recording, make_training
from tests.report.working import make_device_training, with_work


def noisy(recording):
    """Change a recording so that its report has every warning."""
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
def test_first_screen_of_a_run_is_short_and_adds_up(name, folder, done, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    save_recording(folder, RUNS[name]())
    monkeypatch.chdir(folder.parent)
    out = done("report", folder.name)
    shown = out.splitlines()
    assert len(shown) <= 25
    assert max(map(len, shown[:-1])) <= 80
    for part in (" takes ", "profiled trials", "framework", "slowest of", "report.html"):
        assert part in out
    for unclear in ("to a gap", "both limits", "call cost", "come right after"):
        assert unclear not in out
    findings = summarise(RUNS[name]()).findings
    message = "Next: " in out or "To make it faster, measure what helps" in out
    assert message == (steps_to_do(findings) != [])
    # --full shows the other findings.
    full = done("report", folder.name, "--full", "--format", "none")
    for finding in findings:
        assert finding.text in " ".join(full.split())
    # The table of functions adds up to the trial.
    *parts, whole = _percentages(shown, "profiled trials")
    assert whole == 100
    assert sum(parts) == pytest.approx(100, abs=0.051 * len(parts))


def _percentages(lines, heading):
    """Return the shares in the table below a heading, in per cent."""
    start = next(i for i, line in enumerate(lines) if heading in line and line.endswith("%"))
    end = lines.index("", start)
    return [float(line.rstrip(" #").split()[-1]) for line in lines[start + 1 : end]]


def test_parts_that_do_not_fit_are_named_with_the_option_that_shows_them():
    column = Column("name", "name", unit.TEXT)
    rows = [SimpleNamespace(name=f"name {index}") for index in range(30)]
    tables = [Table([column], rows, f"Table of {name}") for name in "ab"]
    blocks = [text("The answer."), text("Where it helped:"), *tables, Heading(2, "More"), text("!")]
    shown = written(fit_on_screen(blocks, 100, FULL, height=8)).split("\n")
    left = "Table of a, Table of b, 1 paragraph"
    assert shown == ["The answer.", "", f"Not shown: {left} ({FULL})."]
    assert "10 rows not shown" in written(fit_on_screen(blocks, 100, FULL))
