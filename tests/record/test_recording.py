"""The recording and its file: what goes in comes out."""

import dataclasses
import io
import json
import re
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.record import recording as parts
from chainer_profile.record.recording import (
    Conditions,
    Layer,
    Recording,
    build,
)
from tests.conftest import make_recording
from tests.recordings import ARRAYS, assert_same, of_rank, on_gpu, refusal, rewrite, trained

# --- the types


def ints(*shape):
    return np.zeros(shape, np.int64)


ALL_OR_NONE = "of host_ns, gap_ns, launch_ns, span_ns there are all or none"
HELD = "held_ns and held_span_ns differ"
#: A recording, what is changed in it, and what is said of it by hand; from a file the same but for
#: numbers of another kind.
DO_NOT_FIT = [
    (trained, {"self_ns": ints(4, 2)}, "for 3 layers"),
    (trained, {"self_ns": ints(12)}, "for 3 layers"),
    (trained, {"trial_ns": ints(5)}, "trial_ns is (5,), for 4 trials"),
    (trained, {"start_ns": ints(3)}, "start_ns is (3,), for 4 trials"),
    (trained, {"start_ns": ints(4, 1)}, "start_ns has 2 axes, not one"),
    (trained, {"clean_ns": ints(4)}, "clean_ns and clean_start_ns differ"),
    (trained, {"clean_start_ns": ints(0)}, "clean_ns and clean_start_ns differ"),
    (trained, {"clean_cpu_ns": ints(9)}, "clean_ns and clean_cpu_ns differ"),
    (trained, {"probe_ns": ints(1)}, "probe_ns and probe_threads differ"),
    (trained, {"framework_ns": ints(4, 2)}, "framework_ns is (4, 2), for phases"),
    (trained, {"framework_ns": ints(3, 3)}, "framework_ns is (3, 3), for phases"),
    (trained, {"framework_ns": ints(12)}, "framework_ns is (12,), for phases"),
    (trained, {"framework_ns": None}, "framework_ns is (0, 0), for phases"),
    (trained, {"framework_ns": np.zeros((4, 3))}, "framework_ns is float64, not int64"),
    (on_gpu, {"host_ns": ints(3, 3)}, "host_ns is (3, 3), for 4 trials"),
    (on_gpu, {"gap_ns": ints(5, 3)}, "gap_ns is (5, 3), for 4 trials"),
    (on_gpu, {"launch_ns": ints(3)}, "launch_ns is (3,), for 4 trials"),
    (on_gpu, {"span_ns": ints(5)}, "span_ns is (5,), for 4 trials"),
    (on_gpu, {"host_ns": ints(4, 2)}, "host_ns is (4, 2), for 3 layers"),
    (on_gpu, {"gap_ns": ints(4, 4)}, "gap_ns is (4, 4), for 3 layers"),
    (on_gpu, {"held_ns": ints(2, 4)}, "held_ns is (2, 4), for 3 layers"),
    (on_gpu, {"gap_ns": ints(4)}, "gap_ns has 1 axes, not two"),
    (on_gpu, {"held_ns": ints(2, 3, 1)}, "held_ns has 3 axes, not two"),
    (on_gpu, {"span_ns": ints(4, 3)}, "span_ns has 2 axes, not one"),
    (on_gpu, {"launch_ns": np.zeros(4)}, "launch_ns is float64, not int64"),
    (on_gpu, {"held_span_ns": np.array(["1"] * 2)}, "held_span_ns is <U1, not int64"),
    (on_gpu, {"span_ns": np.zeros(4, complex)}, "span_ns is complex128, not int64"),
    (on_gpu, {"held_ns": None}, HELD),
    (on_gpu, {"held_span_ns": None}, HELD),
    (on_gpu, {"held_span_ns": ints(3)}, HELD),
    *((on_gpu, {one: None}, ALL_OR_NONE) for one in ("host_ns", "gap_ns", "launch_ns", "span_ns")),
    (of_rank, {"iteration": np.arange(3)}, "iteration is (3,), for 4 trials"),
    (of_rank, {"iteration": ints(4, 2)}, "iteration has 2 axes, not one"),
    (of_rank, {"arrived_ns": ints(3, 2)}, "arrived_ns is (3, 2), for 4 trials"),
    (of_rank, {"left_ns": ints(4, 3)}, "left_ns is (4, 3), for 2 rows of communication"),
    (of_rank, {"left_ns": ints(4)}, "left_ns has 1 axes, not two"),
    (of_rank, {"arrived_ns": None}, "of arrived_ns, left_ns there are all or none"),
    (of_rank, {"left_ns": None}, "of arrived_ns, left_ns there are all or none"),
]


@pytest.mark.parametrize(("make", "arrays", "message"), DO_NOT_FIT)
def test_arrays_that_do_not_fit_are_no_recording_by_hand_or_from_a_file(
    make, arrays, message, tmp_path
):
    with pytest.raises(ValueError, match=re.escape(message)):
        make(**arrays)
    path = tmp_path / "recording.npz"
    make().save(path)
    rewrite(path, **arrays)
    text = refusal(path)
    assert "damaged recording" in text
    assert re.sub(r" is (\S+), not int64", r" holds \1", message) in text


def test_phases_of_other_framework_times_are_no_recording():
    for phases in ((), ("forward",)):
        with pytest.raises(ValueError, match=r"framework_ns is \(4, 3\), for phases"):
            trained(phases=phases)


def test_build_makes_tuples_of_lists_and_passes_over_what_it_does_not_know():
    values = {"index": 0, "path": "/", "function": "f", "input_shapes": [[1, 2], []], "colour": 7}
    assert build(Layer, values) == Layer(0, "/", "f", input_shapes=((1, 2), ()))


# --- there and back

texts = st.text(max_size=12) | st.sampled_from(
    ["../../etc/passwd", "a\nb", "\0", "\u202e", "名前", "\ud800", '",";', "\x1b[31m", "__class__"]
)
nanoseconds = st.integers(0, 2**31) | st.integers(0, 2**62) | st.integers(-5, 5)
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
    fields = {item.name: item for item in dataclasses.fields(Recording)}
    arrays = [name for name in fields if name in ARRAYS]
    layers = tuple(
        dataclasses.replace(layer, phase=draw(st.just(layer.phase) | st.just("communication")))
        for layer in draw(any_of("tuple[Layer, ...]"))
    )
    made = {"layers": layers}
    for name, item in fields.items():
        if name not in (*arrays, "layers"):
            made[name] = draw(any_of(item.type))
    n_moves = sum(layer.phase == "communication" for layer in layers)
    sizes = {"layers": len(layers), "phases": len(made["phases"])}
    sizes["rows of communication"] = n_moves
    none = {"framework_ns"} if not made["phases"] else set()
    for together in (
        ("host_ns", "gap_ns", "launch_ns", "span_ns"),
        ("held_ns", "held_span_ns"),
        ("arrived_ns", "left_ns"),
        *((name,) for name in ("calls", "trial_ns", "start_ns", "iteration", "clean_cpu_ns")),
    ):
        none |= set(together) if draw(st.booleans()) else set()
    for name in (name for name in arrays if name not in none):
        axes = fields[name].metadata["axes"]
        shape = [sizes.setdefault(axis, draw(st.integers(0, 4))) for axis in axes]
        size = int(np.prod(shape))
        values = draw(st.lists(nanoseconds, min_size=size, max_size=size))
        made[name] = np.array(values, np.int64).reshape(shape)
    return Recording(**made)


@given(recording=recordings())
def test_what_is_saved_is_loaded(recording, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "any.npz"
    with pytest.MonkeyPatch.context() as patch:
        no_checks(patch)
        recording.save(path)
        assert_same(recording, Recording.load(path))


def no_checks(patch):
    """Write and read what no run has measured."""
    patch.setattr("chainer_profile.record.recording.check_file", lambda recording: None)


def test_all_fields_are_kept(tmp_path):
    path = tmp_path / "run.recording"  # taken as it is
    run = trained(
        conditions=Conditions(1.0, 130.5, 0.25),
        probe_ns=np.array([5, 6], np.int64),
        probe_threads=np.array([1, 2], np.int64),
        ended="time limit reached",
    )
    for recording in (run, on_gpu(), on_gpu(held_ns=None, held_span_ns=None), of_rank()):
        recording.save(path)
        assert [file.name for file in tmp_path.iterdir()] == ["run.recording"]
        assert_same(recording, Recording.load(path))
        with open(path, "wb") as file:
            recording.save(file)
        assert_same(recording, Recording.load(path))


def test_every_array_field_is_in_the_file(tmp_path):
    # A new field of the recording must not be forgotten in its file.
    saved = tmp_path / "recording.npz"
    of_rank().save(saved)
    fields = {field.name for field in dataclasses.fields(Recording)}
    with np.load(saved) as archive:
        names = set(archive.files)
        meta = json.loads(archive["meta"].tobytes())
    assert names == set(ARRAYS) | {"meta"}
    assert fields == set(ARRAYS) | (meta.keys() - {"format", "version"})


@given(recording=recordings())
def test_a_file_holds_integers_and_no_pickles(recording):
    file = io.BytesIO()
    with pytest.MonkeyPatch.context() as patch:
        no_checks(patch)
        recording.save(file)
    with zipfile.ZipFile(file) as archive:
        assert archive.testzip() is None
    file.seek(0)
    with np.load(file, allow_pickle=False) as archive:
        for name in archive.files:
            assert archive[name].dtype.kind in "iu"


def test_times_below_4_seconds_are_written_in_32_bits(tmp_path, monkeypatch):
    no_checks(monkeypatch)
    # Big enough to see the zip's own bytes vanish in the sum.
    short = make_recording(n_trials=10)
    short.save(tmp_path / "short.npz")
    with np.load(tmp_path / "short.npz") as archive:
        assert archive["self_ns"].dtype == np.uint32
    for value in (2**32 - 1, 2**32, -1, 2**63 - 1, -(2**63)):
        edge = make_recording(n_layers=1, n_trials=1, self_ns=np.array([[value]], np.int64))
        edge.save(tmp_path / "edge.npz")
        assert Recording.load(tmp_path / "edge.npz").self_ns.tolist() == [[value]]
