"""Refusals: each is one line."""

import numpy as np
import pytest
from chainer import serializers

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


def arrays_of(model):
    """All that save_npz would write of a network."""
    target = serializers.DictionarySerializer()
    target.save(model)
    return {path: np.copy(array) for path, array in target.target.items()}


def assert_same(arrays, expected):
    """The arrays of two networks."""
    assert arrays.keys() == expected.keys()
    for path in expected:
        np.testing.assert_array_equal(arrays[path], expected[path], err_msg=path)
