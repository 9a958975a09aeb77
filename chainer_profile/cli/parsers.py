"""The parsers of all commands."""

from __future__ import annotations

from importlib import import_module

from chainer_profile.basics.parsing import Parser
from chainer_profile.basics.words import PROG, TRAIN_PROG
from chainer_profile.cli import COMMANDS, PROFILE


def parsers() -> dict[str, Parser]:
    """Make the parsers of all commands, by the command's word."""
    return {word: parser_of(word) for word in COMMANDS}


def parser_of(word: str) -> Parser:
    """Make the parser of a command from its module in :mod:`.arguments`."""
    arguments = import_module(f"{__package__}.arguments.{word}")
    prog = {PROFILE: PROG, "train": TRAIN_PROG}.get(word, f"{PROG} {word}")
    # The default command adds its own --help.
    parser = Parser(prog=prog, add_help=word != PROFILE, check=getattr(arguments, "check", None))
    arguments.add_arguments(parser)
    return parser
