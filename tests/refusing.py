"""Refusals: each is one line."""

import pytest

from chainer_profile.basics.errors import ProfileError


def refusal(call, *given, error=ProfileError, **more):
    """The one line with which this is refused."""
    with pytest.raises(error) as caught:
        call(*given, **more)
    assert getattr(caught.value, "exit_code", 1) == getattr(error, "exit_code", 1)
    said = str(caught.value)
    assert said
    assert "\n" not in said
    return said
