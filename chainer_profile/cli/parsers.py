"""The parsers of all commands."""

from __future__ import annotations

from importlib import import_module

from chainer_profile.basics.parsing import Parser
from chainer_profile.basics.words import PROG, TRAIN_PROG
from chainer_profile.cli import COMMANDS, PROFILE


def parsers() -> dict[str, Parser]:
    return {word: parser_of(word) for word in COMMANDS}


def parser_of(word: str) -> Parser:
    """The parser of a command, by its module in :mod:`.arguments`."""
    arguments = import_module(f"{__package__}.arguments.{word}")
    prog = {PROFILE: PROG, "train": TRAIN_PROG}.get(word, f"{PROG} {word}")
    # The command without a word has a --help of its own.
    parser = Parser(prog=prog, add_help=word != PROFILE, check=getattr(arguments, "check", None))
    arguments.add_arguments(parser)
    return parser
