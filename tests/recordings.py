"""Recordings of a training, and what is done to their files: what their tests share."""

import dataclasses
import json

import numpy as np
import pytest

from chainer_profile.errors import ProfileError
from chainer_profile.recording import (
    LinkCalls,
    Recording,
)
from tests.conftest import make_recording

ARRAYS = (
    "self_ns",
    "framework_ns",
    "trial_ns",
    "start_ns",
    "clean_ns",
    "clean_start_ns",
    "warmup_ns",
    "probe_ns",
    "probe_threads",
)


def assert_same(a, b):
    for name in ("layers", "phases", "links", "settings", "environment", "conditions", "ended"):
        assert getattr(a, name) == getattr(b, name)
    for name in ARRAYS:
        first, second = getattr(a, name), getattr(b, name)
        if first is None:
            assert second is None
        else:
            assert second.dtype == np.int64
            np.testing.assert_array_equal(first, second)


def refusal(path):
    """The message with which a file is refused: one line that names the file."""
    with pytest.raises(ProfileError) as error:
        Recording.load(path)
    text = str(error.value)
    assert "\n" not in text
    assert text.startswith(f"{path}: ")
    assert len(text) > len(f"{path}: ")
    return text.removeprefix(f"{path}: ")


#: What a recording of a training has beside.
TRAINING = {
    "phases": ("update", "forward", "backward"),
    "links": (LinkCalls("/", "Net", 1, 0), LinkCalls("/conv1", "Convolution2D", 2, 432)),
}


def trained(**changes):
    """A recording of 4 trials of 3 rows, with the framework time of 3 phases."""
    recording = make_recording(n_layers=3, n_trials=4, n_clean=5)
    framework_ns = np.arange(12, dtype=np.int64).reshape(4, 3) * 1000
    return dataclasses.replace(recording, **TRAINING | {"framework_ns": framework_ns} | changes)


def rewrite(path, change_meta=None, **arrays):
    """Change a saved file: its meta, or some of its arrays (None takes one away)."""
    with np.load(path) as archive:
        content = {name: archive[name] for name in archive.files}
    if change_meta is not None:
        meta = json.loads(content["meta"].tobytes())
        meta = change_meta(meta) or meta
        content["meta"] = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    content = {k: v for k, v in (content | arrays).items() if v is not None}
    np.savez(path, **content)
