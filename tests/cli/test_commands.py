from __future__ import annotations

import pytest

from chainer_profile.basics.errors import ProfileError, UsageError
from chainer_profile.cli.interrupts import Interrupted, Interrupts
from chainer_profile.cli.running import run_command
from tests.command import signals  # noqa: F401


def raising(error: BaseException):
    def command(interrupts: Interrupts) -> int:
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (ProfileError("no such thing"), 1, "x.py: error: no such thing\n"),
        (UsageError("no such word"), 2, "x.py: error: no such word\n"),
        (Interrupted(15), 143, "x.py: interrupted\n"),
    ],
)
def test_an_error_is_one_line_and_a_code(error, code, says, capsys) -> None:
    assert run_command("x.py", [], raising(error)) == code
    assert capsys.readouterr() == ("", says)


def test_debug_shows_the_traceback(capsys) -> None:
    assert run_command("x.py", ["--debug"], raising(ProfileError("here"))) == 1
    err = capsys.readouterr().err
    assert err.startswith("Traceback")
    assert err.endswith("x.py: error: here\n")


def test_the_code_of_a_command_is_its_own(capsys) -> None:
    assert run_command("x.py", [], lambda interrupts: 7) == 7
    assert capsys.readouterr() == ("", "")


def test_an_error_of_ours_is_no_line() -> None:
    with pytest.raises(ZeroDivisionError):
        run_command("x.py", [], raising(ZeroDivisionError()))
