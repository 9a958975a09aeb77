"""``completion``: a script that lets a shell complete the command's options."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Collection, Iterable
from typing import Any

from chainer_profile.basics.errors import ProfileError
from chainer_profile.cli import COMMANDS, PROFILE
from chainer_profile.cli.main import Context, printing
from chainer_profile.cli.parsers import COMPLETED, parsers


def run(args: argparse.Namespace, context: Context) -> int:
    text = script(args.shell, context.registry)
    with printing():
        print(text, flush=True)
    return 0


def script(shell: str, names: Collection[str]) -> str:
    """The script for a shell; ``names`` are the networks that ``--model`` knows."""
    try:
        import shtab
    except ImportError:
        raise ProfileError(
            "completion needs the package shtab: python -m pip install shtab"
        ) from None
    found = parsers()
    whole = found.pop(PROFILE)
    whole.prog = COMPLETED
    commands = whole.add_subparsers(metavar="COMMAND")
    for word, parser in found.items():
        commands.add_parser(
            word,
            parents=[parser],
            add_help=False,
            description=parser.description,
            help=COMMANDS[word],
        )
    by_option = {
        "--model": _words_or_files("model", names),
        "--models": _words_or_files("model", names),
        "--input": _words_or_files("input", ("random", "cifar10")),
    }
    for action in [action for one in (whole, *found.values()) for action in one._actions]:
        metavar = str(action.metavar or "").partition(".")[0]
        kind: Any = {"DIR": "directory", "FILE": "file"}.get(metavar)
        for option in action.option_strings:
            kind = by_option.get(option, kind)
        if kind is not None:
            action.complete = kind  # type: ignore[attr-defined]
    return str(shtab.complete(whole, shell)).rstrip()


def _words_or_files(what: str, words: Iterable[str]) -> dict[str, Any]:
    """What completes one of these words, or the name of a file, in the words of shtab."""
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
