"""Check one-line error messages, and compare networks."""

import numpy as np
import pytest
from chainer import serializers

from chainer_profile.basics.errors import ProfileError


def refusal(call, *args, error=ProfileError, **more):
    """Return the one-line message of the error that a call raises."""
    with pytest.raises(error) as caught:
        call(*args, **more)
    assert getattr(caught.value, "exit_code", 1) == getattr(error, "exit_code", 1)
    message = str(caught.value)
    assert message
    assert "\n" not in message
    return message


def arrays_of(model):
    """All arrays that save_npz would write for a network."""
    target = serializers.DictionarySerializer()
    target.save(model)
    return {path: np.copy(array) for path, array in target.target.items()}


def assert_same(arrays, expected):
    """Check that the arrays of two networks are equal."""
    assert arrays.keys() == expected.keys()
    for path in expected:
        np.testing.assert_array_equal(arrays[path], expected[path], err_msg=path)
