"""The two errors that end a command with one clear line instead of a traceback."""

from __future__ import annotations

from argparse import ArgumentTypeError


class ProfileError(Exception):
    """Something outside the program is wrong: a file, a network, a device.

    The message is one line for the user: what is wrong, and what would be right.
    """

    exit_code = 1


class UsageError(ProfileError, ArgumentTypeError):
    """The command got words or values that it does not accept (exit code 2).

    Parsers of options raise it; argparse adds the option's name.
    """

    exit_code = 2


def one_line(error: BaseException) -> str:
    """An exception of other code as one line: its type, and its text if there is any."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
