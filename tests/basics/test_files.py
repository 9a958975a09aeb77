"""JSON files with values that JSON does not support."""

import json
from dataclasses import dataclass

import numpy as np

from chainer_profile.basics.files import as_json


@dataclass
class Part:
    times: object
    factor: float


def test_json_has_arrays_and_infinity_as_text():
    parts = (Part(np.array([1, 2]), np.inf), Part((1.5, float("nan")), np.float64(0.25)))
    assert json.loads(as_json({"parts": parts})) == {
        "parts": [{"times": "1 2", "factor": "inf"}, {"times": [1.5, "nan"], "factor": 0.25}]
    }
