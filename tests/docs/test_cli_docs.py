"""docs/cli.md lists exactly the options of the code; its introduction is written by hand."""

import argparse
import re

from chainer_profile.cli.parsers import parsers
from tests import ROOT

DOCS = ROOT / "docs" / "cli.md"


def escaped(text):
    return text.replace("*", "\\*").replace("<", "&lt;")


def value(action):
    """Format an option's value: ``N``, ``{a,b}``, or nothing for a flag."""
    if action.nargs == 0:
        return ""
    if action.metavar is not None:
        return str(action.metavar)
    if action.choices is not None:
        return "{" + ",".join(map(str, action.choices)) + "}"
    return action.dest.upper()


def name(action):
    """Format every name of an option as code; the last one shows the option's value."""
    shown = value(action)
    if not action.option_strings:
        several = {"+": f"{shown} [{shown} ...]", "*": f"[{shown} ...]", "?": f"[{shown}]"}
        return f"`{several.get(str(action.nargs), shown)}`"
    *short, last = action.option_strings
    return ", ".join(f"`{option}`" for option in (*short, f"{last} {shown}".rstrip()))


def meaning(parser, action):
    """Return the help of an option, and its default if the help does not mention it."""
    help = action.help or ""
    default = action.default
    message = "default" in help or not action.option_strings or action.nargs == 0
    if not message and default not in (None, False, "", (), argparse.SUPPRESS):
        help += " (default: %(default)s)"
    text = help % {**vars(action), "prog": parser.prog}
    return escaped(text)


def row(parser, action):
    return f"- {name(action)}: {meaning(parser, action)}"


def section(parser, shared_rows):
    """List a command's options; options that it shares with ``profile.py`` only by name."""
    lines, shared = [f"## {parser.prog}", "", escaped(parser.description or "")], []
    for group in parser._action_groups:
        rows = []
        for action in group._group_actions:
            # Every command has --help.
            if action.help == argparse.SUPPRESS or (shared_rows and action.dest == "help"):
                continue
            if row(parser, action) in shared_rows:
                shared.append(f"`{action.option_strings[-1]}`")
            else:
                rows.append(action)
        if rows and group.title not in ("help", "options") and rows[0].option_strings:
            lines += ["", f"**{group.title[0].upper()}{group.title[1:]}**"]
        lines += ["", *(row(parser, action) for action in rows)] if rows else []
    if shared:
        lines += ["", f"As for [profile.py](#profilepy): {', '.join(shared)}."]
    return "\n".join(lines)


def documentation():
    first, *others = parsers().values()
    shared = {row(first, action) for action in first._actions}
    listed = []
    for parser in (first, *others):
        anchor = re.sub("[^a-z -]", "", parser.prog.lower()).replace(" ", "-")
        listed.append(f"[{parser.prog.split()[-1]}](#{anchor})")
    head = DOCS.read_text().partition("\n\n[profile.py](")[0]
    sections = section(first, set()), *(section(parser, shared) for parser in others)
    return "\n\n".join([head, ", ".join(listed), *sections]) + "\n"


def test_documentation_matches_the_code_and_explains_every_option():
    assert DOCS.read_text() == documentation()
    for parser in parsers().values():
        assert parser.description
        for action in parser._actions:
            assert meaning(parser, action), f"{parser.prog} {action.option_strings}"


if __name__ == "__main__":
    DOCS.write_text(documentation())
