"""Messages show values and exceptions, even if these cannot describe themselves."""

import pytest

from chainer_profile.basics.checks import short_repr, whole_number
from chainer_profile.basics.errors import UsageError, one_line
from tests.refusing import refusal


class MuteError(Exception):
    def __str__(self):
        raise RuntimeError("no text")

    __repr__ = __str__


def test_an_exception_is_one_line():
    assert one_line(ValueError("a\n b")) == "ValueError: a b"
    assert one_line(ValueError()) == "ValueError"


@pytest.mark.parametrize("text", [lambda self: 3, lambda self: 1 / 0])
def test_an_exception_without_a_text_has_its_name(text):
    assert one_line(type("Odd", (Exception,), {"__str__": text})()) == "Odd"


def test_a_value_that_cannot_be_shown_has_the_name_of_its_class():
    assert short_repr(MuteError()) == "a MuteError"
    message = refusal(whole_number, "trials", MuteError(), 1, error=UsageError)
    assert message == "trials is a MuteError: give a whole number, 1 or more"
