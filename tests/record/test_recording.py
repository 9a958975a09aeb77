"""Recordings are checked, saved and loaded unchanged."""

import dataclasses
import json
import re
import zipfile
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.record.recording import Environment, Layer, Recording, Settings, build
from tests.conftest import make_recording
from tests.record.test_journal import runs
from tests.recordings import (
    ARRAYS,
    assert_same,
    loading_error,
    rank_recording,
    rewrite,
    with_all_fields,
)

# --- the types

#: Changes of single arrays, and the message about each.
UNFIT = [
    ({"trial_ns": np.zeros((4, 1), np.int64)}, "trial_ns has 2 axes, not one"),
    ({"calls": np.zeros((4, 3))}, "calls is float64, not int64 nanoseconds"),
    ({"start_ns": np.zeros(3, np.int64)}, "start_ns is (3,), for 4 trials"),
    ({"self_ns": np.zeros((4, 2), np.int64)}, "self_ns is (4, 2), for 3 layers"),
    ({"left_ns": np.zeros((4, 1), np.int64)}, "left_ns is (4, 1), for 2 rows of communication"),
    ({"framework_ns": None}, "framework_ns is not there, for phases"),
    ({"span_ns": None}, "host_ns, gap_ns, launch_ns, span_ns must be all there or all absent"),
    ({"arrived_ns": None}, "arrived_ns, left_ns must be all there or all absent"),
    ({"held_ns": None}, "held_ns, held_span_ns must be all there or all absent"),
    ({"clean_start_ns": np.zeros(9, np.int64)}, "clean_start_ns is (9,), for 5 unprofiled trials"),
    ({"probe_ns": np.zeros(9, np.int64)}, "probe_threads is (0,), for 9 probes"),
    ({"clean_cpu_ns": np.zeros(9, np.int64)}, "clean_cpu_ns has more trials than clean_ns"),
]


def test_arrays_of_wrong_shape_or_type_are_refused(tmp_path):
    path = tmp_path / "recording.npz"
    for arrays, message in UNFIT:
        with pytest.raises(ValueError, match=re.escape(message)):
            rank_recording(**arrays)
        rank_recording().save(path)
        rewrite(path, **arrays)
        text = loading_error(path)
        assert "damaged recording" in text
        assert re.sub(r" is (\S+), not int64( nanoseconds)?", r" contains \1", message) in text
    # Lists in a file become tuples; unknown fields are ignored.
    values = {"index": 0, "path": "/", "function": "f", "input_shapes": [[1, 2], []], "colour": 7}
    assert build(Layer, values) == Layer(0, "/", "f", input_shapes=((1, 2), ()))


# --- round trips

TEXTS = st.text(max_size=12) | st.sampled_from(
    ["../../etc/passwd", "a\nb", "\0", "\u202e", "名前", "\ud800", '",";', "\x1b[31m", "__class__"]
)
#: The check that refuses recordings that cannot be from a run.
CHECK = "chainer_profile.record.recording.check_file"


@given(run=runs(), text=TEXTS, number=st.floats(0, 1e9))
def test_recording_survives_a_round_trip_without_pickles(run, text, number, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "any.recording"
    recording = dataclasses.replace(
        run,
        settings=Settings(text, command=text, max_seconds=number, until_ci=None),
        layers=tuple(dataclasses.replace(row, path=text, function=text) for row in run.layers),
        environment=Environment(text, variables=(text,)),
        ended=text,
    )
    with mock.patch(CHECK):
        recording.save(path)
        assert_same(recording, Recording.load(path))
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
    with np.load(path, allow_pickle=False) as archive:
        assert {archive[name].dtype.kind for name in archive.files} <= set("iu")


def test_file_has_all_fields_and_short_times_in_32_bits(tmp_path):
    path = tmp_path / "recording.npz"
    with open(path, "wb") as file:
        with_all_fields(rank_recording()).save(file)
    assert_same(with_all_fields(rank_recording()), Recording.load(path))
    # The file must contain new fields of the recording.
    with np.load(path) as archive:
        assert set(archive.files) == {*ARRAYS, "meta"}
        meta = json.loads(archive["meta"].tobytes())
    fields = {field.name for field in dataclasses.fields(Recording)}
    assert fields == set(ARRAYS) | (meta.keys() - {"format", "version"})
    for value in (2**32 - 1, 2**32, -1, 2**63 - 1, -(2**63)):
        edge = make_recording(n_layers=1, n_trials=1, self_ns=np.array([[value]], np.int64))
        with mock.patch(CHECK):
            edge.save(path)
            assert Recording.load(path).self_ns.tolist() == [[value]]
        with np.load(path) as archive:
            assert archive["self_ns"].itemsize == (4 if 0 <= value < 2**32 else 8)
