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

from chainer_profile.record.recording import (
    BlasLibrary,
    Conditions,
    Environment,
    Gpu,
    GpuState,
    Layer,
    LinkCalls,
    Rank,
    Recording,
    Settings,
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

ranks = st.none() | st.builds(
    Rank, st.integers(0, 9), st.integers(10, 2**20), st.text(), st.integers(), st.integers(0)
)
texts = st.text(max_size=12) | st.sampled_from(
    ["../../etc/passwd", "a\nb", "\0", "\u202e", "名前", "\ud800", '",";', "\x1b[31m", "__class__"]
)
shapes = st.lists(st.lists(st.integers(0, 2**40), max_size=4).map(tuple), max_size=3).map(tuple)
nanoseconds = st.integers(0, 2**31) | st.integers(0, 2**62) | st.integers(-5, 5)


links = st.builds(LinkCalls, texts, texts, st.integers(0, 9), st.integers(0, 2**40))
numbers = st.none() | st.integers(0, 2**40)
gpus = st.none() | st.builds(
    Gpu,
    st.integers(0, 15),
    *[texts] * 2,
    numbers,
    *[texts] * 4,
    st.none() | st.booleans(),
)
gpu_states = st.none() | st.builds(
    GpuState,
    *[numbers] * 4,
    st.none() | st.floats(0, 1e4),
    st.lists(texts, max_size=3).map(tuple),
)


@st.composite
def recordings(draw):
    layers = tuple(
        Layer(
            index,
            draw(texts),
            draw(texts),
            draw(texts | st.just("communication")),
            input_shapes=draw(shapes),
            output_shapes=draw(shapes),
            dtype=draw(texts),
            parent=draw(st.none() | st.integers(0, 9)),
            forward=draw(st.none() | st.integers(0, 9)),
            calls=draw(st.integers(1, 9)),
        )
        for index in range(draw(st.integers(0, 4)))
    )
    phases = tuple(draw(st.lists(texts, max_size=3)))
    n_trials, n_clean, n_warmups, n_probes = (draw(st.integers(0, 4)) for _ in range(4))

    def times(*shape):
        size = int(np.prod(shape))
        values = draw(st.lists(nanoseconds, min_size=size, max_size=size))
        return np.array(values, np.int64).reshape(shape)

    device = {}
    if draw(st.booleans()):
        device |= {name: times(n_trials, len(layers)) for name in ("host_ns", "gap_ns")}
        device |= {name: times(n_trials) for name in ("launch_ns", "span_ns")}
    if draw(st.booleans()):
        n_held = draw(st.integers(0, 4))
        device |= {"held_ns": times(n_held, len(layers)), "held_span_ns": times(n_held)}
    rows = sum(layer.phase == "communication" for layer in layers)
    if rows:
        device |= {name: times(n_trials, rows) for name in ("arrived_ns", "left_ns")}
    return Recording(
        layers=layers,
        self_ns=times(n_trials, len(layers)),
        phases=phases,
        framework_ns=times(n_trials, len(phases)) if phases else None,
        links=tuple(draw(st.lists(links, max_size=3))),
        trial_ns=draw(st.just(None)) if draw(st.booleans()) else times(n_trials),
        start_ns=draw(st.just(None)) if draw(st.booleans()) else times(n_trials),
        iteration=times(n_trials) if draw(st.booleans()) else None,
        rank=draw(ranks),
        **device,
        clean_ns=times(n_clean),
        clean_start_ns=times(n_clean),
        clean_cpu_ns=times(n_clean) if draw(st.booleans()) else None,
        warmup_ns=times(n_warmups),
        probe_ns=times(n_probes),
        probe_threads=times(n_probes),
        settings=Settings(
            model=draw(texts),
            phase=draw(texts),
            loss=draw(texts),
            optimizer=draw(texts),
            input_shape=tuple(draw(st.lists(st.integers(0, 9), max_size=4))),
            threads=draw(st.none() | st.integers(1, 64)),
            max_seconds=draw(st.none() | st.floats(0, 1e9)),
            command=draw(texts),
            dtype=draw(texts),
        ),
        environment=Environment(
            processor=draw(texts),
            blas=tuple(BlasLibrary(draw(texts), "1", n) for n in range(draw(st.integers(0, 2)))),
            gpu=draw(gpus),
        ),
        conditions=Conditions(
            window_ns=draw(st.none() | st.floats(0, 1e6)),
            gpu_before=draw(gpu_states),
            gpu_after=draw(gpu_states),
        ),
        ended=draw(texts),
    )


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
