"""The recording and its file: what goes in comes out, and nothing else is believed."""

import dataclasses
import io
import json
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainer_profile.errors import ProfileError
from chainer_profile.recording import (
    VERSION,
    BlasLibrary,
    Conditions,
    Environment,
    Layer,
    Recording,
    Settings,
    build,
)
from tests.conftest import make_recording

ARRAYS = (
    "self_ns",
    "trial_ns",
    "start_ns",
    "clean_ns",
    "clean_start_ns",
    "warmup_ns",
    "probe_ns",
    "probe_threads",
)


def assert_same(a, b):
    for name in ("layers", "settings", "environment", "conditions", "ended"):
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


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "recording.npz"
    make_recording(n_layers=3, n_trials=4, n_clean=5).save(path)
    return path


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


# --- the types


def test_a_layer_is_labelled_by_index_and_function():
    assert Layer(21, "/res3/0/conv1", "Convolution2DFunction").label == "21_Convolution2DFunction"


def test_the_number_of_trials_is_that_of_the_rows():
    assert make_recording(n_trials=7).n_trials == 7
    assert Recording((), np.zeros((0, 0), np.int64)).n_trials == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"self_ns": np.zeros((100, 5), np.int64)}, "for 6 layers"),
        ({"self_ns": np.zeros(600, np.int64)}, "for 6 layers"),
        ({"trial_ns": np.zeros(99, np.int64)}, "trial_ns is .*for 100 trials"),
        ({"start_ns": np.zeros(101, np.int64)}, "start_ns is .*for 100 trials"),
        ({"clean_ns": np.zeros(9, np.int64)}, "clean_ns and clean_start_ns differ"),
        ({"clean_start_ns": np.zeros(0, np.int64)}, "clean_ns and clean_start_ns differ"),
        ({"probe_ns": np.zeros(1, np.int64)}, "probe_ns and probe_threads differ"),
    ],
)
def test_arrays_of_other_lengths_are_no_recording(change, message):
    with pytest.raises(ValueError, match=message):
        make_recording(**change)


def test_build_passes_over_what_it_does_not_know():
    assert build(Layer, {"index": 1, "path": "/", "function": "f", "flops": 7}) == Layer(
        1, "/", "f"
    )


def test_build_makes_tuples_of_lists():
    values = {"index": 0, "path": "/", "function": "f", "input_shapes": [[1, 2], []]}
    assert build(Layer, values).input_shapes == ((1, 2), ())


# --- there and back

texts = st.text(max_size=12) | st.sampled_from(
    ["../../etc/passwd", "a\nb", "\0", "\u202e", "名前", "\ud800", '",";', "\x1b[31m", "__class__"]
)
shapes = st.lists(st.lists(st.integers(0, 2**40), max_size=4).map(tuple), max_size=3).map(tuple)
nanoseconds = st.integers(0, 2**31) | st.integers(0, 2**62) | st.integers(-5, 5)


@st.composite
def recordings(draw):
    layers = tuple(
        Layer(
            index,
            draw(texts),
            draw(texts),
            input_shapes=draw(shapes),
            output_shapes=draw(shapes),
            dtype=draw(texts),
            parent=draw(st.none() | st.integers(0, 9)),
        )
        for index in range(draw(st.integers(0, 4)))
    )
    n_trials, n_clean, n_warmups, n_probes = (draw(st.integers(0, 4)) for _ in range(4))

    def times(*shape):
        size = int(np.prod(shape))
        values = draw(st.lists(nanoseconds, min_size=size, max_size=size))
        return np.array(values, np.int64).reshape(shape)

    return Recording(
        layers=layers,
        self_ns=times(n_trials, len(layers)),
        trial_ns=draw(st.just(None)) if draw(st.booleans()) else times(n_trials),
        start_ns=draw(st.just(None)) if draw(st.booleans()) else times(n_trials),
        clean_ns=times(n_clean),
        clean_start_ns=times(n_clean),
        warmup_ns=times(n_warmups),
        probe_ns=times(n_probes),
        probe_threads=times(n_probes),
        settings=Settings(
            model=draw(texts),
            input_shape=tuple(draw(st.lists(st.integers(0, 9), max_size=4))),
            threads=draw(st.none() | st.integers(1, 64)),
            max_seconds=draw(st.none() | st.floats(0, 1e9)),
            command=draw(texts),
        ),
        environment=Environment(
            processor=draw(texts),
            blas=tuple(BlasLibrary(draw(texts), "1", n) for n in range(draw(st.integers(0, 2)))),
        ),
        conditions=Conditions(window_ns=draw(st.none() | st.floats(0, 1e6))),
        ended=draw(texts),
    )


@settings(max_examples=60)
@given(recording=recordings())
def test_what_is_saved_is_loaded(recording, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "any.npz"
    recording.save(path)
    assert_same(recording, Recording.load(path))


def test_all_fields_of_a_run_are_kept(tmp_path):
    recording = make_recording(
        conditions=Conditions(1.0, 130.5, 0.25),
        probe_ns=np.array([5, 6], np.int64),
        probe_threads=np.array([1, 2], np.int64),
        ended="time limit reached",
    )
    path = tmp_path / "recording.npz"
    with open(path, "wb") as file:
        recording.save(file)
    assert_same(recording, Recording.load(path))


def test_every_array_field_is_in_the_file(saved):
    # A new field of the recording must not be forgotten in its file.
    fields = {field.name for field in dataclasses.fields(Recording)}
    with np.load(saved) as archive:
        names = set(archive.files)
        meta = json.loads(archive["meta"].tobytes())
    assert names == set(ARRAYS) | {"meta"}
    assert fields == set(ARRAYS) | (meta.keys() - {"format", "version"})


def test_a_path_is_taken_as_it_is(tmp_path):
    path = tmp_path / "run.recording"
    recording = make_recording()
    recording.save(path)
    assert [file.name for file in tmp_path.iterdir()] == ["run.recording"]
    assert_same(recording, Recording.load(path))


@settings(max_examples=20)
@given(recording=recordings())
def test_a_file_holds_integers_and_no_pickles(recording):
    file = io.BytesIO()
    recording.save(file)
    with zipfile.ZipFile(file) as archive:
        assert archive.testzip() is None
    file.seek(0)
    with np.load(file, allow_pickle=False) as archive:
        for name in archive.files:
            assert archive[name].dtype.kind in "iu"


def test_times_below_4_seconds_are_written_in_32_bits(tmp_path):
    # Big enough to see the zip's own bytes vanish in the sum.
    short = make_recording(n_trials=10)
    short.save(tmp_path / "short.npz")
    with np.load(tmp_path / "short.npz") as archive:
        assert archive["self_ns"].dtype == np.uint32
    for value in (2**32 - 1, 2**32, -1, 2**63 - 1, -(2**63)):
        edge = make_recording(n_layers=1, n_trials=1, self_ns=np.array([[value]], np.int64))
        edge.save(tmp_path / "edge.npz")
        assert Recording.load(tmp_path / "edge.npz").self_ns.tolist() == [[value]]


# --- files that are not ours, or no longer whole


def test_a_newer_version_is_refused_with_what_to_do(saved):
    rewrite(saved, lambda meta: meta.update(version=VERSION + 1))
    text = refusal(saved)
    assert f"has format version {VERSION + 1}, this program reads up to {VERSION}" in text
    assert "update the program" in text


@pytest.mark.parametrize("version", ["1", None, 1.5, [1]])
def test_a_strange_version_is_refused(saved, version):
    rewrite(saved, lambda meta: meta.update(version=version))
    assert "version" in refusal(saved)


def test_a_file_without_a_version_is_refused(saved):
    rewrite(saved, lambda meta: meta.pop("version") and None)
    assert "version" in refusal(saved)


def test_fields_of_a_later_writer_are_passed_over(saved):
    before = Recording.load(saved)

    def later(meta):
        meta["counters"] = {"cycles": [1, 2]}
        for part in ("settings", "environment", "conditions"):
            meta[part]["later"] = {"a": 1}
        for layer in meta["layers"]:
            layer["flops"] = 12
        meta["environment"]["blas"] = []

    rewrite(saved, later, counters=np.arange(3), names=np.array(["a", "b"]))
    assert_same(before, Recording.load(saved))


def test_a_file_of_an_earlier_writer_has_defaults_for_the_rest(saved):
    def earlier(meta):
        del meta["settings"]["until_ci"]
        del meta["environment"]["blas"]

    rewrite(saved, earlier, probe_ns=None, probe_threads=None, warmup_ns=None, trial_ns=None)
    loaded = Recording.load(saved)
    assert loaded.settings.until_ci is None
    assert loaded.trial_ns is None
    assert len(loaded.probe_ns) == len(loaded.warmup_ns) == 0


@pytest.mark.parametrize(
    ("arrays", "names"),
    [
        ({"self_ns": None}, "self_ns"),
        ({"self_ns": np.zeros((4, 2), int)}, "for 3 layers"),
        ({"self_ns": np.zeros(12, int)}, "for 3 layers"),
        ({"self_ns": np.int64(3)}, ""),
        ({"self_ns": np.zeros((4, 3))}, "self_ns holds float64"),
        ({"trial_ns": np.full(4, np.nan)}, "trial_ns holds float64"),
        ({"trial_ns": np.array(["1"] * 4)}, "trial_ns holds <U1"),
        ({"trial_ns": np.zeros(4, complex)}, "trial_ns holds complex128"),
        ({"trial_ns": np.zeros(5, int)}, "for 4 trials"),
        ({"start_ns": np.zeros((4, 1), int)}, "start_ns has 2 axes, not one"),
        ({"clean_ns": np.zeros(4, int)}, "clean_ns and clean_start_ns differ"),
        ({"clean_start_ns": None}, "clean_ns and clean_start_ns differ"),
        ({"probe_threads": np.zeros(4, int)}, "probe_ns and probe_threads differ"),
    ],
)
def test_wrong_arrays_are_a_damaged_recording(saved, arrays, names):
    rewrite(saved, **arrays)
    text = refusal(saved)
    assert "damaged recording" in text
    assert names in text


@pytest.mark.parametrize(
    "change",
    [
        lambda meta: meta.pop("layers") and None,
        lambda meta: meta.pop("settings") and None,
        lambda meta: meta.pop("ended") and None,
        lambda meta: meta.update(layers=[1, 2, 3]),
        lambda meta: meta.update(layers=None),
        lambda meta: meta.update(layers=meta["layers"][:2]),
        lambda meta: meta["layers"][0].pop("function") and None,
        lambda meta: meta.update(settings=[]),
        lambda meta: meta.update(environment="x"),
    ],
)
def test_wrong_meta_is_a_damaged_recording(saved, change):
    rewrite(saved, change)
    assert "damaged recording" in refusal(saved)


@pytest.mark.parametrize(
    "meta",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"3",
        b'"format"',
        b"\xff\xfe",
        b"{}",
        b'{"format": "another"}',
        b'{"format": null, "version": 1}',
    ],
)
def test_the_meta_of_another_format_is_not_ours(saved, meta):
    rewrite(saved, meta=np.frombuffer(meta, np.uint8))
    assert "is no chainer-profile recording" in refusal(saved)


def test_other_files_are_not_ours(tmp_path):
    path = tmp_path / "other"
    np.savez(tmp_path / "weights.npz", w=np.zeros(3))
    assert "is no chainer-profile recording (it holds no 'meta')" in refusal(
        tmp_path / "weights.npz"
    )
    for content in (b"", b"\n", b"layer,time\n0,1\n", bytes(range(256)) * 20, b"PK\x03\x04", b"PK"):
        path.write_bytes(content)
        assert "not a recording" in refusal(path)
    np.save(tmp_path / "array.npy", np.zeros(3))
    assert "not a recording" in refusal(tmp_path / "array.npy")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("meta", "text")
    refusal(path)
    np.savez(tmp_path / "pickled.npz", meta=np.array([{"format": 1}], object))
    assert "not a recording" in refusal(tmp_path / "pickled.npz")


def test_a_folder_and_a_missing_file(tmp_path):
    assert "is a folder" in refusal(tmp_path)
    assert "there is no such recording" in refusal(tmp_path / "none.npz")
    (tmp_path / "file").write_text("x")
    refusal(tmp_path / "file" / "recording.npz")


def test_a_cut_file_is_refused(saved):
    content = saved.read_bytes()
    for size in [*range(0, len(content), 7), *range(len(content) - 30, len(content))]:
        saved.write_bytes(content[:size])
        refusal(saved)


def test_a_flipped_byte_is_noticed_or_does_no_harm(saved):
    content, before = saved.read_bytes(), Recording.load(saved)
    harmless = 0
    places = range(0, len(content), 3)
    for at in places:
        flipped = content[at] ^ (1 << at % 8)
        saved.write_bytes(content[:at] + bytes([flipped]) + content[at + 1 :])
        try:
            loaded = Recording.load(saved)
        except ProfileError as error:
            assert "\n" not in str(error)  # noqa: PT017
        else:
            assert_same(before, loaded)
            harmless += 1
    # Dates and attributes in the archive's directory: a fraction of the file.
    assert 0 < harmless < len(places) / 2


def test_files_are_closed_after_a_failure(tmp_path, recwarn):
    path = tmp_path / "text"
    path.write_text("not a recording")
    refusal(path)
    assert not [w for w in recwarn if w.category is ResourceWarning]
