"""Chainer's configuration of a run."""

from __future__ import annotations

import os

import chainer
import chainer.links as L
import numpy as np
import pytest
from chainer.backends import cuda

from chainer_profile import profile
from chainer_profile.basics.errors import ProfileError
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


def test_cudnn_is_set_and_put_back(monkeypatch):
    sizes = [8 << 20]
    monkeypatch.setattr(cuda, "get_max_workspace_size", lambda: sizes[-1])
    monkeypatch.setattr(cuda, "set_max_workspace_size", sizes.append)
    before = chainer.config.use_cudnn, chainer.config.autotune
    with configured(Settings(cudnn="never")):
        assert (chainer.config.use_cudnn, chainer.config.autotune) == ("never", before[1])
    with configured(Settings(cudnn="autotune", workspace_nbytes=123)):
        assert (chainer.config.use_cudnn, chainer.config.autotune) == (before[0], True)
        assert sizes == [8 << 20, 123]
    assert sizes == [8 << 20, 123, 8 << 20]
    with configured(Settings()):
        assert (chainer.config.use_cudnn, chainer.config.autotune) == before
    assert sizes == [8 << 20, 123, 8 << 20]


def test_it_is_put_back_after_an_exception():
    with pytest.raises(ValueError, match="no"), configured(Settings(dtype="float16")):
        raise ValueError("no")
    assert dtype_name() == "float32"


def test_cudnn_that_is_not_there(monkeypatch):
    configuration.require_cudnn([])
    monkeypatch.setattr(cuda, "cudnn_enabled", False)
    with pytest.raises(ProfileError, match=r"--workspace: CuPy .*has no cuDNN here"):
        configuration.require_cudnn(["--workspace"])
    monkeypatch.setattr(cuda, "cudnn_enabled", True)
    configuration.require_cudnn(["--workspace"])


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
