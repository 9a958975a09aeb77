"""Finds the command that was asked for, and runs it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from chainer_profile.basics.errors import UsageError
from chainer_profile.basics.parsing import with_nearest
from chainer_profile.basics.words import COMMAND, PROG, TRAIN_PROG
from chainer_profile.cli import COMMANDS, INSTEAD, PROFILE
from chainer_profile.cli.running import Context, Interrupts, run_command


def main(
    argv: list[str],
    registry: Mapping[str, Any],
    formats: Sequence[Any] = (),
) -> int:
    """Run a command; returns the exit code."""

    def command(interrupts: Interrupts) -> int:
        from chainer_profile.cli.parsers import parser_of  # an error in it is one of a command

        word, words = _split(argv)
        args = parser_of(word).parse_args(words)
        line = shlex.join([*COMMAND, *argv])
        context = Context(words, line, interrupts, registry, formats)
        asks = any(getattr(args, option, None) for option in INSTEAD)
        module = import_module(f"{__package__}.{'instead' if asks else word}")
        return int(module.run(args, context))

    return run_command(TRAIN_PROG if argv[:1] == ["train"] else PROG, argv, command)


def _split(argv: list[str]) -> tuple[str, list[str]]:
    """The command, and the arguments behind its word."""
    first = argv[0] if argv else "-"
    if first in COMMANDS:
        return first, argv[1:]
    if not first.startswith("-"):
        raise UsageError(
            f"unknown command {with_nearest(first, COMMANDS)}; {PROG} --help lists the commands"
        )
    return PROFILE, argv
