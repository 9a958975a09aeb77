from __future__ import annotations

import signal
from contextlib import suppress

import pytest

from chainer_profile.basics.errors import ProfileError, UsageError
from chainer_profile.cli.running import Interrupted, Interrupts, run_command


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


@pytest.mark.parametrize(
    "ending", [lambda interrupts: 7, raising(Interrupted(15)), raising(ZeroDivisionError())]
)
def test_signals_are_handled_as_before_by_whoever_calls_a_command(ending) -> None:
    def handler(*_: object) -> None: ...

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        with suppress(ZeroDivisionError):
            run_command("x.py", [], ending)
        assert [signal.getsignal(number) for number in numbers] == [handler, handler]
    finally:
        for number, handler_before in before.items():
            signal.signal(number, handler_before)
