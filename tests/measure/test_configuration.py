"""Chainer's configuration of a run."""

from __future__ import annotations

import os

import chainer.links as L
import numpy as np
import pytest

from chainer_profile import profile
from chainer_profile.measure import configuration
from chainer_profile.measure.configuration import configured, dtype_name, input_dtype
from chainer_profile.record.recording import Settings
from models import REGISTRY


@pytest.mark.parametrize(
    ("dtype", "parameters", "inputs"),
    [
        ("float32", np.float32, np.float32),
        ("float16", np.float16, np.float16),
        ("mixed16", np.float16, np.float16),
    ],
)
def test_networks_are_built_in_the_data_type(dtype, parameters, inputs):
    with configured(Settings(dtype=dtype)):
        assert dtype_name() == dtype
        assert input_dtype() == inputs
        assert L.Linear(2, 3).W.dtype == parameters
        # Chainer keeps statistics in float32 in mixed16 alone.
        statistics = np.float32 if dtype == "mixed16" else parameters
        assert L.BatchNormalization(3).gamma.dtype == statistics
    assert dtype_name() == "float32"


def test_it_is_put_back_after_an_exception():
    with pytest.raises(ValueError, match="no"), configured(Settings(dtype="float16")):
        raise ValueError("no")
    assert dtype_name() == "float32"


def test_tf32(monkeypatch):
    monkeypatch.setenv("CUPY_TF32", "0")
    configuration.allow_tf32()
    assert os.environ["CUPY_TF32"] == "1"


@pytest.mark.parametrize("dtype", ["float16", "mixed16"])
def test_a_run_in_it(dtype):
    with configured(Settings(dtype=dtype)):
        model = REGISTRY["resnet20"].build(depth=8)
        x = np.zeros((1, 3, 8, 8), input_dtype())
        recording = profile(model, x, trials=1, warmups=0, clean_trials=0, phase="train")
    assert recording.settings.dtype == dtype
    assert {layer.dtype for layer in recording.layers if layer.phase == "forward"} == {"float16"}
