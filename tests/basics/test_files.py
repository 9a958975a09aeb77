"""JSON files hold values that JSON does not know."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np

from chainer_profile.basics.files import as_json


@dataclass
class Part:
    times: object
    factor: float


def test_json_of_arrays_and_infinity() -> None:
    parts = (Part(np.array([1, 2]), np.inf), Part((1.5, float("nan")), np.float64(0.25)))
    text = as_json({"format": "a file of ours", "parts": parts})
    assert json.loads(text) == {
        "format": "a file of ours",
        "parts": [
            {"times": "1 2", "factor": "inf"},
            {"times": [1.5, "nan"], "factor": 0.25},
        ],
    }
    assert text.endswith("}\n")
