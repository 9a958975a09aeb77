"""The example of ``run`` in docs/scripts.md agrees with a real run."""

import re
import textwrap

import pytest

from chainer_profile.integrations import script_report
from tests import ROOT
from tests.scripts import python

PAGE = (ROOT / "docs" / "scripts.md").read_text()
PROGRAM = ROOT / "tests/programs/train_ptb_custom_loop.py"


def example():
    """Return the lines of the output on the page."""
    _, _, behind = PAGE.partition("prints this on standard error:\n\n")
    block = re.match(r"(?: {4}.*\n|\n)+", behind)
    return textwrap.dedent(block[0]).strip("\n").split("\n")


def words_of(lines):
    """Join the lines, with a placeholder for each number."""
    text = re.sub(r"~?[\d.,]+ (?:ns|us|ms|s|min|%)(?![a-z])", "N", " ".join(lines))
    return " ".join(re.sub(r"\d[\d,]*", "N", text).split())


@pytest.mark.process
def test_example_agrees_with_the_programs_output(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    words = ("--epoch", "1", "--bproplen", "5")
    command = ("-m", "chainer_profile", "run", "--format", "page", str(PROGRAM), *words)
    ran = python(*command, cwd=tmp_path)
    assert ran.returncode == 0
    shown, here = ran.stderr.rstrip("\n").split("\n"), example()
    for lines in (shown, here):
        assert len(lines) <= script_report._MAX_LINES
        assert all(len(line) <= 80 for line in lines)
    # The first sentence, the table's head, and the text after the table.
    first, first_here = (words_of(lines).partition(")")[0] for lines in (shown, here))
    assert first.replace("--bproplen N ", "") == first_here
    head, head_here = (re.search(r"part .*each", words_of(lines))[0] for lines in (shown, here))
    assert head == head_here
    assert words_of(here).endswith(words_of(shown[-2:]))
