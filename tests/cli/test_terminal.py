"""What the commands print on a terminal: as wide as it is, with colour only where it is wanted."""

import io
import re
from pathlib import Path

import pytest
from rich.cells import cell_len

from chainer_profile.cli import main as cli
from chainer_profile.cli import report
from chainer_profile.record.recording import Environment, Settings
from chainer_profile.runs.folder import save_recording
from tests.command import Entry
from tests.conftest import make_recording, make_training
from tests.report.working import with_work
from tests.terminals import CODES, on_terminal, plain

pytestmark = pytest.mark.process

REGISTRY = {
    "tiny": Entry(),
    "other": Entry(name="other", description="Another network with a rather long description " * 2),
}
A, B = (f"reports/a-run-with-a-rather-long-name-{seed}" for seed in range(2))
#: Commands, and whether their output is in colour.
COMMANDS = {
    "run": (("--model", "tiny", "--trials", "4", "--warmups", "1", "--skip", "memory"), True),
    "report": (("report", A, "--limit", "0"), True),
    "tree": (("report", "reports/training", "--tree", "9"), True),
    "summary": (("summary", "--model", "tiny"), True),
    "machine": (("--machine",), False),
    "compare": (("compare", A, B, "--full"), True),
    "sweep": (("sweep", "--model", "tiny,other", "--dry-run"), False),
    "networks": (("--list-models",), True),
}
#: How a line begins that is to be copied, and so not broken.
COPIED = "  python profile.py "
#: A code that sets a colour of text or background; bold and dim are none.
COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3\d|4\d|9[0-7]|10[0-7])[;m]")


@pytest.fixture(autouse=True)
def runs(folder, monkeypatch):
    """Two runs of one network and a training; their reports are not written again."""
    monkeypatch.setattr(report, "write_reports", lambda place, *_: [place / "layers.csv"])
    environment = Environment(started="2026-01-02T03:04:05Z", processor="A processor", numpy="2")
    settings = Settings(model="a-network-with-a-name", input="random", input_shape=(1, 3, 8, 8))
    made = {"reports/training": make_training()}
    for seed, place in enumerate((A, B)):
        made[place] = make_recording(30, seed=seed, settings=settings, environment=environment)
    for place, recording in made.items():
        Path(place).mkdir(parents=True)
        save_recording(Path(place), with_work(recording))


@pytest.mark.parametrize("name", COMMANDS)
def test_what_is_printed_fits_the_terminal_and_a_pipe(name, monkeypatch):
    words, coloured = COMMANDS[name]

    def ran():
        return cli.main([*words], REGISTRY)

    # A run prints what a report does.
    for width in (80,) if name == "run" else (60, 80, 200):
        shown = on_terminal(ran, width)
        text = plain(shown)
        assert "Traceback" not in text, text
        lines = [line.rpartition("\r")[2] for line in text.splitlines()]
        assert len(lines) > 1
        wide = [line for line in lines if cell_len(line) > width and not line.startswith(COPIED)]
        assert not wide, (width, wide)
    assert bool(CODES.search(shown)) == coloured
    if name == "run":  # with a bar
        assert "profiling" in shown
        assert "4/4" in shown
        assert COLOUR.search(shown)
    # Codes are for terminals that want them.
    assert not CODES.search(on_terminal(ran, environment={"TERM": "dumb"}))
    assert not COLOUR.search(on_terminal(ran, environment={"NO_COLOR": "1"}))
    for variable in ("COLUMNS", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(variable, raising=False)
    pipe = io.StringIO()
    monkeypatch.setattr("sys.stdout", pipe)
    assert ran() == 0
    assert pipe.getvalue()
    assert all(line.isprintable() for line in pipe.getvalue().splitlines())
