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

WIDTHS = (60, 80, 120, 200)
REGISTRY = {
    "tiny": Entry(),
    "other": Entry(name="other", description="Another network with a rather long description " * 2),
}


def save(name, recording):
    place = Path("reports") / name
    place.mkdir(parents=True)
    save_recording(place, recording)


@pytest.fixture(autouse=True)
def runs(folder, monkeypatch):
    """Two runs of one network and a training; their reports are not written again."""
    written = lambda place, summary, wanted: [place / "layers.csv"]  # noqa: E731
    monkeypatch.setattr(report, "write_reports", written)
    environment = Environment(started="2026-01-02T03:04:05Z", processor="A processor", numpy="2")
    for seed in range(2):
        settings = Settings(model="a-network-with-a-name", input="random", input_shape=(1, 3, 8, 8))
        recording = make_recording(30, seed=seed, settings=settings, environment=environment)
        save(f"a-run-with-a-rather-long-name-{seed}", with_work(recording))
    save("training", with_work(make_training()))


def command(*argv):
    return lambda: cli.main(list(argv), REGISTRY)


A, B = "reports/a-run-with-a-rather-long-name-0", "reports/a-run-with-a-rather-long-name-1"
COMMANDS = {
    "run": ("--model", "tiny", "--trials", "4", "--warmups", "1", "--skip", "memory"),
    "report": ("report", A, "--limit", "0"),
    "report of a training": ("report", "reports/training", "--group-by", "shape"),
    "tree": ("report", "reports/training", "--tree", "9"),
    "summary": ("summary", "--model", "tiny"),
    "machine": ("--machine",),
    "compare": ("compare", A, B, "--full"),
    "sweep": ("sweep", "--model", "tiny,other", "--dry-run"),
    "networks": ("--list-models",),
}
#: Of these all is in colour, of the others nothing.
COLOURED = COMMANDS.keys() - {"machine", "sweep"}


#: How a line begins that is to be copied, and so not broken.
COPIED = "  python profile.py "
#: A code that sets a colour of text or background; bold and dim are none.
COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3\d|4\d|9[0-7]|10[0-7])[;m]")


@pytest.mark.parametrize("name", COMMANDS)
def test_what_is_printed_fits_the_terminal_and_a_pipe(name, monkeypatch):
    ran = command(*COMMANDS[name])
    # A run prints what a report does.
    for width in (80,) if name == "run" else WIDTHS:
        shown = on_terminal(ran, width)
        text = plain(shown)
        assert "Traceback" not in text, text
        lines = [line.rpartition("\r")[2] for line in text.splitlines()]
        assert len(lines) > 1
        wide = [line for line in lines if cell_len(line) > width and not line.startswith(COPIED)]
        assert not wide, (width, wide)
    assert bool(CODES.search(shown)) == (name in COLOURED)
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
