"""``completion``: a script that lets a shell complete the command's options.

:func:`parsers` is also what the reference of the command line (docs/cli.md) is made from.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterable
from importlib import import_module
from typing import Any

from chainer_profile.basics.errors import ProfileError
from chainer_profile.basics.parsing import Parser
from chainer_profile.basics.words import PROG
from chainer_profile.cli import COMMANDS, PROFILE
from chainer_profile.cli.options import take
from chainer_profile.cli.running import Context, printing

SHELLS = ("bash", "zsh", "fish")
#: What is completed: the installed command.
_COMPLETED = "chainer-profile"


def parser() -> argparse.ArgumentParser:
    """Options of the command."""
    parser = Parser(
        prog=f"{PROG} completion",
        description=f"Prints a script that lets a shell complete the commands, options and "
        f"networks of the installed command. For bash put 'eval \"$({_COMPLETED} completion "
        f"bash)\"' into ~/.bashrc, for zsh the same with zsh into ~/.zshrc, behind compinit; for "
        f"fish write the output into ~/.config/fish/completions/{_COMPLETED}.fish.",
    )
    parser.add_argument("shell", choices=SHELLS, help="the shell")
    take(parser, "--debug")
    return parser


def run(args: argparse.Namespace, context: Context) -> int:
    """Print the script."""
    text = script(args.shell, context.registry)
    with printing():
        print(text, flush=True)
    return 0


def parsers() -> dict[str, argparse.ArgumentParser]:
    """The parsers of all commands, by their words; a run, which needs none, is ``run``."""
    return {word: import_module(f"{__package__}.{word}").parser() for word in COMMANDS}


def script(shell: str, names: Iterable[str]) -> str:
    """The script for one of :data:`SHELLS`; ``names`` are the networks that ``--model`` knows."""
    try:
        import shtab
    except ImportError:
        raise ProfileError(
            "completion needs the package shtab: python -m pip install shtab"
        ) from None

    return str(shtab.complete(_whole(tuple(names)), shell)).rstrip()


def _whole(names: tuple[str, ...]) -> argparse.ArgumentParser:
    """One parser of the run's options, with all commands below it."""
    found = parsers()
    whole = found[PROFILE]
    whole.prog = _COMPLETED
    commands = whole.add_subparsers(metavar="COMMAND")
    for word, of_command in found.items():
        if word != PROFILE:
            commands.add_parser(
                word,
                parents=[of_command],
                add_help=False,
                description=of_command.description,
                help=COMMANDS[word],
            )
        for action in of_command._actions:
            _mark(action, names)
    return whole


def _mark(action: argparse.Action, names: tuple[str, ...]) -> None:
    """Say what completes an option's value, in the words of shtab: a name, a folder, a file."""
    metavar = str(action.metavar or "")
    kind: Any = None
    if "--model" in action.option_strings or "--models" in action.option_strings:
        kind = _words_or_files("model", names)
    elif "--input" in action.option_strings:
        kind = _words_or_files("input", ("random", "cifar10"))
    elif metavar == "DIR":
        kind = "directory"
    elif metavar.startswith("FILE"):
        kind = "file"
    if kind is not None:
        action.complete = kind  # type: ignore[attr-defined]


def _words_or_files(what: str, words: tuple[str, ...]) -> dict[str, Any]:
    """What completes one of these words, or the name of a file."""
    function, listed = f"_chainer_profile_{what}", " ".join(map(shlex.quote, words))
    return {
        "bash": function,
        "zsh": function,
        "fish": f"{listed} (__fish_complete_path (commandline -ct))",
        "preamble": {
            "bash": f'{function}() {{\n  compgen -W "{listed}" -- "$1"\n  compgen -f -- "$1"\n}}',
            "zsh": f"{function}() {{\n  compadd -- {listed}\n  _files\n}}",
        },
    }
