"""docs/scripts.md shows ``run``: its example agrees with a run."""

import re
import textwrap

import pytest

from chainer_profile.analyse.program import program_parts
from chainer_profile.integrations import script_report
from chainer_profile.record.budget import REST
from chainer_profile.report.text import short
from chainer_profile.runs.folder import load_run
from chainer_profile.runs.write import beside
from tests import ROOT
from tests.scripts import python

PAGE = (ROOT / "docs" / "scripts.md").read_text()
PROGRAM = "tests/programs/train_ptb_custom_loop.py"


def example():
    """The lines of the screen that the page shows."""
    _, _, behind = PAGE.partition("prints this on standard error:\n\n")
    block = re.match(r"(?: {4}.*\n|\n)+", behind)
    return textwrap.dedent(block[0]).strip("\n").split("\n")


def words_of(text):
    """A text with a sign for each figure."""
    text = re.sub(r"~?[\d.,]+ (?:ns|us|ms|s|min|%)(?![a-z])", "N", text)
    return " ".join(re.sub(r"\d[\d,]*", "N", text).split())


def rows_of(lines):
    """Names of a table's rows, with those above them."""
    begin = next(at for at, line in enumerate(lines) if line.startswith("---"))
    above = []
    for line in lines[begin + 1 :]:
        row = re.match(r"( *)(\S.*?) {2,}(~?)[\d.]+ (?:us|ms|s|min) ", line)
        if row is None:
            return
        above = [*above[: len(row[1]) // 2], row[2]]
        yield tuple(above), bool(row[3])


def names_of(parts, above=()):
    """All that a program's tree has, in the same way."""
    for part in parts:
        name = f"{part.path} {short(part.name)}" if part.path else part.name
        here = *above, name.replace(REST, "train_ptb_custom_loop.py's own code")
        yield here
        yield from names_of(part.inner, here)


@pytest.mark.process
def test_the_example_agrees_with_the_program_s_output(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    words = ("--epoch", "1", "--bproplen", "5")
    command = ("-m", "chainer_profile", "run", "--format", "page", str(ROOT / PROGRAM), *words)
    ran = python(*command, cwd=tmp_path)
    assert ran.returncode == 0
    shown, here = ran.stderr.rstrip("\n").split("\n"), example()
    for lines in (shown, here):
        assert len(lines) <= script_report._MOST_LINES
        assert all(len(line) <= 80 for line in lines)
    # The first sentence, and the table's head.
    ends = [words_of(" ".join(lines)).partition(")")[0] for lines in (shown, here)]
    assert ends[0].replace("--bproplen N ", "") == ends[1]
    heads = [next(line for line in lines if line.startswith("part ")) for lines in (shown, here)]
    assert [head.split()[-4:] for head in heads] == [["time", "share", "count", "each"]] * 2
    # All rows are in the program's tree; of the smaller ones this run shows others.
    folder = tmp_path / "reports" / "train_ptb_custom_loop"
    names = set(names_of(program_parts(beside(folder, load_run(folder)).program)))
    rows = list(rows_of(here))
    assert len(rows) > 9
    for row, sampled in rows:
        assert row[-1] == "other" or sampled or row in names, row
    assert words_of(" ".join(here)).endswith(words_of(" ".join(shown[-2:])))
