"""The recording and its file: a saved recording is loaded unchanged."""

import dataclasses
import json
import re
import zipfile
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.record import recording as parts
from chainer_profile.record.recording import Layer, Recording, build
from tests.conftest import make_recording
from tests.record.test_journal import runs
from tests.recordings import ARRAYS, assert_same, of_rank, refusal, rewrite

# --- the types

#: Changes of single arrays, and the message about each.
UNFIT = [
    ({"trial_ns": np.zeros((4, 1), np.int64)}, "trial_ns has 2 axes, not one"),
    ({"calls": np.zeros((4, 3))}, "calls is float64, not int64 nanoseconds"),
    ({"start_ns": np.zeros(3, np.int64)}, "start_ns is (3,), for 4 trials"),
    ({"gap_ns": np.zeros((4, 2), np.int64)}, "gap_ns is (4, 2), for 3 layers"),
    ({"left_ns": np.zeros((4, 1), np.int64)}, "left_ns is (4, 1), for 2 rows of communication"),
    ({"self_ns": np.zeros((4, 2), np.int64)}, "self_ns is (4, 2), for 3 layers"),
    ({"framework_ns": None}, "framework_ns is not there, for phases"),
    ({"span_ns": None}, "host_ns, gap_ns, launch_ns, span_ns must be all there or all absent"),
    ({"arrived_ns": None}, "arrived_ns, left_ns must be all there or all absent"),
    ({"held_ns": None}, "held_ns, held_span_ns must be all there or all absent"),
    ({"clean_start_ns": np.zeros(9, np.int64)}, "clean_start_ns is (9,), for 5 unprofiled trials"),
    ({"probe_ns": np.zeros(9, np.int64)}, "probe_threads is (0,), for 9 probes"),
    ({"clean_cpu_ns": np.zeros(9, np.int64)}, "clean_cpu_ns has more trials than clean_ns"),
]


def test_arrays_that_do_not_fit_are_no_recording_by_hand_or_from_a_file(tmp_path):
    path = tmp_path / "recording.npz"
    for arrays, message in UNFIT:
        with pytest.raises(ValueError, match=re.escape(message)):
            of_rank(**arrays)
        of_rank().save(path)
        rewrite(path, **arrays)
        text = refusal(path)
        assert "damaged recording" in text
        assert re.sub(r" is (\S+), not int64( nanoseconds)?", r" contains \1", message) in text
    # What a file says of a part is made into tuples; unknown fields are ignored.
    values = {"index": 0, "path": "/", "function": "f", "input_shapes": [[1, 2], []], "colour": 7}
    assert build(Layer, values) == Layer(0, "/", "f", input_shapes=((1, 2), ()))


# --- there and back

texts = st.text(max_size=12) | st.sampled_from(
    ["../../etc/passwd", "a\nb", "\0", "\u202e", "名前", "\ud800", '",";', "\x1b[31m", "__class__"]
)
#: Any values of a field, by its type.
ANY = {
    "str": texts,
    "int": st.integers(0, 2**40),
    "int | float": st.integers(1, 9),
    "float": st.floats(0, 1e9),
    "bool": st.booleans(),
    "Shape": st.lists(st.integers(0, 2**40), max_size=4).map(tuple),
}


def any_of(kind):
    """Values of a type, which is written as it is at a field: parts of a recording, too."""
    if kind in ANY:
        return ANY[kind]
    if kind.endswith(" | None"):
        return st.none() | any_of(kind.removesuffix(" | None"))
    if kind.startswith("tuple["):
        return st.lists(any_of(kind[6:].removesuffix(", ...]")), max_size=3).map(tuple)
    part = getattr(parts, kind)
    return st.builds(part, **{item.name: any_of(item.type) for item in dataclasses.fields(part)})


@st.composite
def recordings(draw):
    """Any arrays, and any values of all other fields."""
    run = draw(runs())
    layers = [dataclasses.replace(draw(any_of("Layer")), phase=row.phase) for row in run.layers]
    others = {
        item.name: draw(any_of(item.type))
        for item in dataclasses.fields(Recording)
        if not item.metadata and item.name not in ("layers", "phases")
    }
    phases = tuple(f"{draw(texts)}{at}" for at in range(len(run.phases)))
    return dataclasses.replace(run, **others | {"layers": tuple(layers), "phases": phases})


#: Refuses to write and read recordings that no run has measured.
CHECK = "chainer_profile.record.recording.check_file"


@given(recording=recordings())
def test_saved_recordings_are_loaded_without_pickles(recording, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "any.npz"
    with mock.patch(CHECK):
        recording.save(path)
        assert_same(recording, Recording.load(path))
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
    with np.load(path, allow_pickle=False) as archive:
        assert {archive[name].dtype.kind for name in archive.files} <= set("iu")


def test_a_file_is_named_as_it_was_asked_and_holds_all_fields_in_few_bytes(tmp_path):
    path = tmp_path / "run.recording"
    of_rank().save(path)
    assert [file.name for file in tmp_path.iterdir()] == ["run.recording"]
    with open(path, "wb") as file:
        of_rank().save(file)
    assert_same(of_rank(), Recording.load(path))
    # A new field of the recording must not be forgotten in its file.
    fields = {field.name for field in dataclasses.fields(Recording)}
    with np.load(path) as archive:
        assert set(archive.files) == {*ARRAYS, "meta"}
        meta = json.loads(archive["meta"].tobytes())
    assert fields == set(ARRAYS) | (meta.keys() - {"format", "version"})
    # Times below 4 seconds take 32 bits.
    make_recording(n_trials=10).save(path)
    with np.load(path) as archive:
        assert archive["self_ns"].dtype == np.uint32
    for value in (2**32 - 1, 2**32, -1, 2**63 - 1, -(2**63)):
        edge = make_recording(n_layers=1, n_trials=1, self_ns=np.array([[value]], np.int64))
        with mock.patch(CHECK):
            edge.save(path)
            assert Recording.load(path).self_ns.tolist() == [[value]]
