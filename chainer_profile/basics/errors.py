"""The two errors that end a command with one clear line instead of a traceback."""

from __future__ import annotations

from argparse import ArgumentTypeError


class ProfileError(Exception):
    """An error outside this program: in a file, a network or a device.

    The message is one line for the user. It says what is wrong and what to do.
    """

    exit_code = 1


class UsageError(ProfileError, ArgumentTypeError):
    """An argument that a command or function does not accept (exit code 2).

    Option parsers raise it; argparse adds the option's name.
    """

    exit_code = 2


def text_of(error: BaseException) -> str:
    """Text of an exception on one line; empty if its ``__str__`` fails."""
    try:
        return " ".join(str(error).split())
    except Exception:
        return ""


def one_line(error: BaseException) -> str:
    """Type and text of an exception on one line."""
    text = text_of(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
