"""docs/cli.md lists just the options that there are; the words at its top stay."""

import argparse
import re

from chainer_profile.cli.parsers import parsers
from tests import ROOT

DOCS = ROOT / "docs" / "cli.md"


def escaped(text):
    return text.replace("*", "\\*").replace("<", "&lt;")


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
    return f"- {name(action)}: {meaning(parser, action)}"


def section(parser, shared_rows):
    """A command's options in lists; those that ``profile.py`` has too are named alone."""
    lines = [f"## {parser.prog}", "", escaped(parser.description or "")]
    shared: list[str] = []
    for group in parser._action_groups:
        hidden = ["-h", "--help"] if shared_rows else []  # every command has it
        actions = [
            action
            for action in group._group_actions
            if action.help != argparse.SUPPRESS and action.option_strings != hidden
        ]
        shared += [
            f"`{action.option_strings[-1]}`"
            for action in actions
            if row(parser, action) in shared_rows
        ]
        rows = [row(parser, action) for action in actions if row(parser, action) not in shared_rows]
        if not rows:
            continue
        is_first = group.title in ("help", "options") or not actions[0].option_strings
        if not is_first:
            lines += ["", f"**{group.title[0].upper()}{group.title[1:]}**"]
        lines += ["", *rows]
    if shared:
        lines += ["", f"As for [profile.py](#profilepy): {', '.join(shared)}."]
    return "\n".join(lines)


def documentation():
    all_parsers = list(parsers().values())
    shared_rows = {row(all_parsers[0], action) for action in all_parsers[0]._actions}
    names = [parser.prog for parser in all_parsers]
    anchors = [re.sub("[^a-z -]", "", name.lower()).replace(" ", "-") for name in names]
    listed = [f"[{name.split()[-1]}](#{to})" for name, to in zip(names, anchors, strict=True)]
    head = DOCS.read_text().partition("\n\n[profile.py](")[0]
    sections = (
        section(command, set() if command is all_parsers[0] else shared_rows)
        for command in all_parsers
    )
    return "\n\n".join([head, ", ".join(listed), *sections]) + "\n"


def test_the_documentation_is_that_of_the_code_and_every_option_has_a_meaning():
    assert DOCS.read_text() == documentation()
    for parser in parsers().values():
        assert parser.description
        for action in parser._actions:
            assert meaning(parser, action), f"{parser.prog} {action.option_strings}"


if __name__ == "__main__":
    DOCS.write_text(documentation())
