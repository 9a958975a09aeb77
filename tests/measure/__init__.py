"""What tests of measuring share."""

import pytest

from chainer_profile.basics.errors import ProfileError


def refusal(call, *args, kind=ProfileError, **kwargs):
    """The one line with which a call is refused."""
    with pytest.raises(kind) as caught:
        call(*args, **kwargs)
    assert type(caught.value) is kind
    assert "\n" not in str(caught.value)
    return str(caught.value)
