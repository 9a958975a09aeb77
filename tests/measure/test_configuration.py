"""Chainer's configuration of a run."""

import chainer.links as L
import numpy as np
import pytest

from chainer_profile import profile
from chainer_profile.measure.configuration import configured, dtype_name, input_dtype
from chainer_profile.record.recording import Settings
from models import REGISTRY


def test_configured_sets_and_restores_the_data_type():
    for dtype in ("float32", "float16", "mixed16"):
        half = np.float32 if dtype == "float32" else np.float16
        with configured(Settings(dtype=dtype)):
            assert dtype_name() == dtype
            assert input_dtype() == L.Linear(2, 3).W.dtype == half
            # Only with mixed16 does Chainer keep statistics in float32.
            statistics = np.float32 if dtype == "mixed16" else half
            assert L.BatchNormalization(3).gamma.dtype == statistics
        with pytest.raises(ValueError, match="no"), configured(Settings(dtype=dtype)):
            raise ValueError("no")
        assert dtype_name() == "float32"


@pytest.mark.parametrize("dtype", ["float16", "mixed16"])
def test_run_records_the_data_type_of_its_layers(dtype):
    with configured(Settings(dtype=dtype)):
        model = REGISTRY["resnet20"].build(depth=8)
        x = np.zeros((1, 3, 8, 8), input_dtype())
        recording = profile(model, x, trials=1, warmups=0, clean_trials=0, phase="train")
    assert recording.settings.dtype == dtype
    assert {layer.dtype for layer in recording.layers if layer.phase == "forward"} == {"float16"}
