"""Output on a terminal fits its width; only terminals get colour."""

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
from tests.conftest import make_recording
from tests.report.working import with_work
from tests.terminals import CODES, plain, run_on_terminal

pytestmark = pytest.mark.process

A, B = (f"reports/a-run-with-a-rather-long-name-{seed}" for seed in range(2))
#: Commands, and whether their output has colour.
COMMANDS = {
    "run": (("--model", "tiny", "--trials", "4", "--warmups", "1", "--skip", "memory"), True),
    "report": (("report", A, "--limit", "0"), True),
    "summary": (("summary", "--model", "tiny"), True),
    "compare": (("compare", A, B, "--full"), True),
    "sweep": (("sweep", "--model", "tiny", "--dry-run"), False),
    "networks": (("--list-models",), True),
}
#: Beginning of a line that users copy, so it is not broken.
COPIED = "  python profile.py "
#: A code that sets a colour of text or background; bold and dim do not count.
COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3\d|4\d|9[0-7]|10[0-7])[;m]")


@pytest.mark.parametrize("name", COMMANDS)
def test_output_fits_the_terminal_and_has_no_colour_in_a_pipe(name, folder, monkeypatch):
    # Reports are not written again.
    monkeypatch.setattr(report, "write_reports", lambda place, *_: [place / "layers.csv"])
    environment = Environment(started="2026-01-02T03:04:05Z", processor="A processor", numpy="2")
    settings = Settings(model="a-network-with-a-name", input="random", input_shape=(1, 3, 8, 8))
    for seed, place in enumerate((A, B)):
        recording = make_recording(30, seed=seed, settings=settings, environment=environment)
        Path(place).mkdir(parents=True)
        save_recording(Path(place), with_work(recording))
    words, is_coloured = COMMANDS[name]
    registry = {"tiny": Entry(description="A network with a rather long description " * 3)}

    def command():
        return cli.main([*words], registry)

    for width in (80,) if name == "run" else (60, 200):
        shown = run_on_terminal(command, width)
        text = plain(shown)
        assert "Traceback" not in text, text
        lines = [line.rpartition("\r")[2] for line in text.splitlines()]
        assert len(lines) > 1
        wide = [line for line in lines if cell_len(line) > width and not line.startswith(COPIED)]
        assert not wide, (width, wide)
    assert bool(CODES.search(shown)) == is_coloured
    if name == "run":  # with a progress bar
        assert "4/4" in shown
    # Only terminals that support colour get codes.
    assert not CODES.search(run_on_terminal(command, environment={"TERM": "dumb"}))
    assert not COLOUR.search(run_on_terminal(command, environment={"NO_COLOR": "1"}))
    pipe = io.StringIO()
    monkeypatch.setattr("sys.stdout", pipe)
    assert command() == 0
    assert all(line.isprintable() for line in pipe.getvalue().splitlines())
