"""Warnings name the line that called us, and never become exceptions."""

import linecache
import sys
import warnings

import pytest

from chainer_profile.basics import warning
from chainer_profile.basics.warning import warn_user, warner


@pytest.fixture(autouse=True)
def nothing_printed(monkeypatch):
    monkeypatch.setattr(warning, "_printed", set())


def test_warning_is_attributed_to_the_line_that_called_our_code():
    with pytest.warns(UserWarning, match="^a: full$") as caught:
        warner("a: ")("full")
    assert caught[0].filename == __file__
    assert 'warner("a: ")("full")' in linecache.getline(__file__, caught[0].lineno)


def test_warning_is_printed_in_one_line_if_it_would_be_an_exception(capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            warn_user("two\nlines")
    assert capsys.readouterr().err == "chainer-profile: two lines\n"


@pytest.mark.parametrize("stream", [None, "closed"])
def test_warning_without_a_usable_stderr_is_dropped(stream, monkeypatch, tmp_path):
    if stream is not None:
        stream = (tmp_path / "err").open("w")
        stream.close()
    monkeypatch.setattr(sys, "stderr", stream)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_user("lost")


def test_session_warns_about_each_problem_once():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for warn in (warner("a: "), warner("a: ")):
            for problem in ("x", "y", "x"):
                warn(problem)
    assert [str(each.message) for each in caught] == ["a: x", "a: y"] * 2
