"""docs/cli.md lists just the options that there are."""

import argparse
import re

from chainer_profile.cli.parsers import parsers
from tests import ROOT

DOCS = ROOT / "docs" / "cli.md"

HEAD = """# The command line

This file is generated from the parsers (`python -m tests.docs.test_cli_docs`); a test checks it.
Every command shows the same with `--help`. An option that a command shares with `profile.py` is
explained only there. Write an option's value after it, as in `--trials 100` or `--trials=100`.
Options cannot be abbreviated.

Exit codes: 0 for success, 1 for a failure, 2 for wrong arguments, 3 if `compare --fail-above` finds
a run slower, 4 if outputs differ from Chainer's, and 128 plus the signal's number if a signal ended
the run (130 after Ctrl-C). An error is one line; `--debug` adds its traceback.

Tables fit the width of the terminal; columns that do not fit are named below the table. Only
terminals get colour: a pipe or a file gets plain text, and so does a terminal with `NO_COLOR` set
or with `TERM=dumb`.
"""


def escaped(text):
    return text.replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")


def value(action):
    """How an option's value is written: ``N``, ``{a,b}``, or nothing for a flag."""
    if action.nargs == 0:
        return ""
    if action.metavar is not None:
        return str(action.metavar)
    if action.choices is not None:
        return "{" + ",".join(map(str, action.choices)) + "}"
    return action.dest.upper()


def name(action):
    """All ways to write an option, in code."""
    shown = value(action)
    if not action.option_strings:
        several = {"+": f"{shown} [{shown} ...]", "*": f"[{shown} ...]", "?": f"[{shown}]"}
        return f"`{several.get(str(action.nargs), shown)}`"
    return ", ".join(f"`{option} {shown}`".replace(" `", "`") for option in action.option_strings)


def meaning(parser, action):
    """The help of an option, with its default where the words do not say it."""
    help = action.help or ""
    default = action.default
    said = "default" in help or not action.option_strings or action.nargs == 0
    if not said and default not in (None, False, "", (), argparse.SUPPRESS):
        help += " (default: %(default)s)"
    text = help % {**vars(action), "prog": parser.prog}
    return escaped(text)


def row(parser, action):
    return f"| {name(action)} | {meaning(parser, action)} |"


def section(parser, known):
    """A command's options; those that ``profile.py`` has with the same words are named alone."""
    lines = [f"## {parser.prog}", "", escaped(parser.description or "")]
    shared: list[str] = []
    for group in parser._action_groups:
        actions = [action for action in group._group_actions if action.help != argparse.SUPPRESS]
        shared += [
            f"`{action.option_strings[-1]}`" for action in actions if row(parser, action) in known
        ]
        rows = [row(parser, action) for action in actions if row(parser, action) not in known]
        if not rows:
            continue
        first = actions[0].option_strings[:1] == ["-h"] or not actions[0].option_strings
        if not first:
            lines += ["", f"### {parser.prog}: {group.title}"]
        kind = "argument" if not actions[0].option_strings else "option"
        lines += ["", f"| {kind} | meaning |", "| --- | --- |", *rows]
    if shared:
        lines += ["", f"As for [profile.py](#profilepy): {', '.join(shared)}."]
    return "\n".join(lines)


def documentation():
    found = list(parsers().values())
    first = found[0]
    known = {row(first, action) for action in first._actions}
    listed = [
        f"- [{parser.prog}](#{re.sub('[^a-z -]', '', parser.prog.lower()).replace(' ', '-')})"
        for parser in found
    ]
    return (
        "\n\n".join(
            [
                HEAD.strip(),
                "\n".join(listed),
                *(section(one, known if one is not first else set()) for one in found),
            ]
        )
        + "\n"
    )


def test_the_documentation_is_that_of_the_code():
    assert DOCS.read_text() == documentation()


def test_every_option_of_every_command_is_there_and_has_a_meaning():
    lines = DOCS.read_text()
    for parser in parsers().values():
        assert parser.description
        part = lines.partition(f"\n## {parser.prog}\n")[2].partition("\n## ")[0]
        for action in parser._actions:
            found = [one for one in action.option_strings if re.search(f"`{one}[ `]", part)]
            assert found or not action.option_strings, f"{parser.prog} {action.option_strings}"
            assert meaning(parser, action), f"{parser.prog} {action.option_strings}"


if __name__ == "__main__":
    DOCS.write_text(documentation())
