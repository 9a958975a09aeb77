"""Recording files of older and newer versions, other files, and damaged files."""

import copy
import json
import math
import os
import re
import tracemalloc
import zipfile
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.analyse.summaries import summarise
from chainer_profile.basics.errors import ProfileError, UsageError
from chainer_profile.record import recording
from chainer_profile.record.recording import VERSION, LinkCalls, Recording
from chainer_profile.report.writers import json_report
from tests import names_in
from tests.command import raising
from tests.conftest import make_recording, make_training
from tests.recordings import (
    JSON_VALUES,
    assert_same,
    gpu_recording,
    json_paths,
    loading_error,
    rank_recording,
    rewrite,
    training_recording,
    with_all_fields,
)
from tests.refusing import refusal
from tests.report.reading import report_md, terminal_text


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "recording.npz"
    training_recording().save(path)
    return path


def test_unknown_format_version_is_refused_with_advice(saved):
    for version in (VERSION + 1, "1", None, 1.5, [1]):
        rewrite(saved, lambda meta, version=version: meta.update(version=version))
        text = f"format version {version!r}, but this program reads up to {VERSION}: update the pro"
        assert text in loading_error(saved)


def test_files_with_more_or_fewer_fields_are_loaded(saved):
    def later(meta):
        meta["weather"] = {"cycles": [1, 2]}
        parts = (meta["settings"], meta["environment"]["gpu"], meta["conditions"], *meta["layers"])
        for part in parts:
            part["later"] = {"a": [1]}
        # Fields with their default may be missing.
        del meta["settings"]["until_ci"], meta["environment"]["blas"]

    gpu_recording().save(saved)
    rewrite(saved, later, counters=np.arange(3), names=np.array(["a", "b"]))
    assert_same(gpu_recording(), Recording.load(saved))
    training_recording().save(saved)
    rewrite(saved, **dict.fromkeys(("probe_ns", "probe_threads", "warmup_ns", "trial_ns")))
    loaded = Recording.load(saved)
    assert loaded.trial_ns is None
    assert len(loaded.probe_ns) == len(loaded.warmup_ns) == 0


# --- recordings that cannot be from a run

PAIR = np.array([1, 2])
FULL = with_all_fields(rank_recording(warmup_ns=PAIR, probe_ns=PAIR, probe_threads=PAIR))


def changed(node, path, value):
    """Copy a recording, or a value in it, with a new value at a path of field names and indices."""
    if not path:
        return value
    key, *below = path
    if not isinstance(key, int):
        return replace(node, **{key: changed(getattr(node, key), below, value)})
    if isinstance(node, np.ndarray):
        return np.array([value, *node.flat[1:]]).reshape(node.shape)
    return (*node[:key], changed(node[key], below, value), *node[key + 1 :])


#: Paths in recordings, impossible values, and messages about them.
IMPOSSIBLE = [
    ("self_ns 0", -5, "self_ns contains -5, but must be 0 or more"),
    ("held_ns 0", -5, "held_ns contains -5, but must be 0 or more"),
    ("iteration 0", 0, "iteration contains 0, but must be 1 or more"),
    ("start_ns 0", -(2**63), "start_ns contains -9223372036854775808, but must be -46"),
    ("start_ns 0", 2**62, "start_ns contains 4611686018427387904, but must be below 2**62"),
    ("warmup_ns 0", 2**62, "but all its times must be below 2**62 ns"),
    ("left_ns", FULL.arrived_ns - 1, "a collective was left before it was entered"),
    ("layers 0 calls", 0, "layer 0 has 0 calls, but must have more than 0"),
    ("layers 1 path", "", "layer 1 has an empty path"),
    ("layers 1 index", 5, "layer 1 has the index 5, but must have 1"),
    ("layers 1 parent", 9, "layer 1 has the parent 9, but there are 3 layers"),
    ("layers 1 output_shapes", ((1, -3),), "layers: output_shapes is -3"),
    ("links", (LinkCalls("", "Net", 1, 0),), "a link has no path"),
    ("phases", ("update", "update", "backward"), "phases appear twice"),
    ("limits flops_per_s", math.inf, "limits: flops_per_s is inf, but must be a number"),
    ("limits copy_nbytes_per_s", 0.0, "copy_nbytes_per_s is 0.0, but must be above 0"),
    ("settings max_seconds", math.nan, "settings: max_seconds is nan"),
    ("settings trials", 2**63, "settings: trials is 9223372036854775808"),
    ("memory high_water_layer", 3, "memory: the peak is in layer 3, but there are 3 layers"),
    ("memory peak_nbytes", (9, 9), "memory has 2 layers, not 3"),
    ("memory retained_nbytes", (9, 9), "memory has 2 layers, not 3"),
    ("counters counted 0 layers", (1,), "wall_ns has 1 layers and 3 phases, not 3 and 3"),
    ("counters counted 0 trial", (9,), "counters: wall_ns has 1 trials, not 2"),
    ("inside repeats", 0.5, "inside: repeats is 0.5, but must be 1 or more"),
    ("inside stacks 0 seconds", math.nan, "a stack has nan s, but must have 0 or more"),
    ("inside stacks 0 row", 3, "a stack is in layer 3, but there are 3 layers"),
    ("inside stacks 0 function", "Nowhere", "a stack is in Nowhere, but no layer has this"),
    ("inside stacks 0 places", (0, 2), "a stack has the frames (0, 2), but there are 2"),
    ("rank number", 2, "rank: the number is 2, but there are 2 ranks"),
    ("ended", 3, "Expected `str`"),
]
#: Messages about recordings that cannot be summarised either.
NOT_SUMMARISED = r"contains|2\*\*62|entered|calls, but|memory|counters|repeats|stack"
CHECKS = "chainer_profile.record.recording.check_file"


@pytest.mark.parametrize(("path", "value", "message"), IMPOSSIBLE)
def test_impossible_recordings_are_not_summarised_written_or_read(path, value, message, saved):
    keys = [int(key) if key.isdecimal() else key for key in path.split()]
    impossible, before = changed(FULL, keys, value), saved.read_bytes()
    of_run, not_written = "the recording cannot be from a run", ", so it is not written ("
    texts = [(refusal(impossible.save, saved), of_run + not_written)]
    assert saved.read_bytes() == before
    if re.search(NOT_SUMMARISED, message):
        texts.append((refusal(summarise, impossible), f"{of_run}: "))
    if path != "ended":
        with mock.patch(CHECKS):
            impossible.save(saved)
        texts.append((loading_error(saved), "damaged recording ("))
    for text, begin in texts:
        assert text.startswith(begin)
        assert message in text


def test_trial_shorter_than_its_layers_and_framework_is_refused(saved):
    recording = training_recording()
    trial_ns = recording.self_ns.sum(axis=1) + recording.framework_ns.sum(axis=1)
    replace(recording, trial_ns=trial_ns).save(saved)
    trial_ns[1] -= 3
    text = "trial 1 is 3 ns shorter than its layers"
    assert text in refusal(replace(recording, trial_ns=trial_ns).save, saved)
    rewrite(saved, trial_ns=trial_ns)
    assert text in loading_error(saved)


ARRAYS = {
    "negated": lambda a: -a,
    "one below 0": lambda a: np.where(np.arange(a.size).reshape(a.shape) == 0, -5, a),
    "the most": lambda a: np.full_like(a, 2**63 - 1),
    "all the same": lambda a: np.full_like(a, 7),
    "one less": lambda a: a[:-1],
    "floats": lambda a: a * 1.5,
    "empty": lambda a: a[:0],
    "gone": lambda a: None,
}


@given(st.data())
def test_changed_recording_is_refused_in_one_line_or_can_be_summarised(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "absurd.npz"
    bases = (make_recording(n_layers=3, n_trials=6, n_clean=5), make_training(4), rank_recording())
    with_all_fields(data.draw(st.sampled_from(bases))).save(path)
    with np.load(path) as archive:
        content = {name: archive[name] for name in archive.files}
    meta = json.loads(content.pop("meta").tobytes())
    for _ in range(data.draw(st.integers(1, 2))):
        if data.draw(st.integers(0, 2)):
            # Choose a field first, because there are many more layers than other values.
            key = data.draw(st.sampled_from(sorted(meta.keys() - {"format", "version"})))
            below = json_paths(meta[key]) if isinstance(meta[key], dict | list) else []
            node = meta
            for step in data.draw(st.sampled_from([(), *below])):
                node, key = node[key], step
            # The next change may be within this value, so it must be a copy.
            node[key] = copy.deepcopy(data.draw(st.sampled_from(JSON_VALUES)))
        else:
            name = data.draw(st.sampled_from(sorted(content)))
            change = ARRAYS[data.draw(st.sampled_from(sorted(ARRAYS)))]
            if content[name] is not None:
                content[name] = change(content[name].astype(np.int64))
    rewrite(path, lambda _: meta, **content)
    try:
        summary = summarise(Recording.load(path))
        json.loads(json_report.render(summary))
        report_md(summary)
        terminal_text(summary)
    except ProfileError as error:
        assert "\n" not in str(error)  # noqa: PT017


# --- other files


def test_other_files_are_refused(tmp_path, saved):
    for meta in (b"", b"{", b"[]", b"null", b"\xff\xfe", b"{}", b'{"format": "another"}'):
        rewrite(saved, meta=np.frombuffer(meta, np.uint8))
        assert "is not a chainer-profile recording file" in loading_error(saved), meta
    path = tmp_path / "other"
    for content in (b"", b"layer,time\n0,1\n", bytes(range(256)) * 20, b"PK\x03\x04", b"PK"):
        path.write_bytes(content)
        assert "not a recording" in loading_error(path)
    np.savez(tmp_path / "weights.npz", w=np.zeros(3))
    np.save(tmp_path / "array.npy", np.zeros(3))
    np.savez(tmp_path / "pickled.npz", meta=np.array([{"format": 1}], object))
    for name, message in {
        "weights.npz": "is not a chainer-profile recording (it contains no 'meta')",
        "array.npy": "not a recording",
        "pickled.npz": "not a recording",
        "": "is a folder",
        "none.npz": "no such recording",
    }.items():
        assert message in loading_error(tmp_path / name), name


def test_path_must_name_a_regular_file(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", Path("/dev/zero")):
        assert loading_error(path) == "cannot be read (not a regular file)"
    for nothing in (3, None, "", "a\0b"):
        message = refusal(Recording.load, nothing, error=UsageError)
        assert message == f"path is {nothing!r}: give the path of a file"


def npz_of_zeros(path, **sizes):
    """Write a compressed archive with arrays of zeros; sizes are in bytes."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, nbytes in sizes.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                header = {"descr": "<i8", "fortran_order": False, "shape": (nbytes // 8,)}
                np.lib.format.write_array_header_1_0(file, header)
                for _ in range(nbytes >> 20):
                    file.write(bytes(1 << 20))


@pytest.mark.parametrize("name", ["self_ns", "meta"])
def test_small_file_with_huge_arrays_is_not_unpacked(name, tmp_path):
    path = tmp_path / "bomb.npz"
    npz_of_zeros(path, **{name: 300 << 20})
    tracemalloc.start()
    message = loading_error(path)
    assert tracemalloc.get_traced_memory()[1] < 10 << 20
    tracemalloc.stop()
    expected = re.escape("damaged, or not a recording (ValueError: it unpacks to 300.0 MiB, ")
    assert re.fullmatch(expected + r"1,\d\d\d times its size\)", message)


def test_file_larger_than_free_memory_is_not_unpacked(saved, monkeypatch):
    monkeypatch.setattr(recording, "_ALWAYS_UNPACKED", 100)
    monkeypatch.setattr(recording, "free_nbytes", lambda: 1000)
    assert "of memory, but 1000 B are free)" in loading_error(saved)
    monkeypatch.setattr(recording, "free_nbytes", lambda: None)
    assert_same(training_recording(), Recording.load(saved))


def test_arrays_of_objects_are_refused_without_advice_to_unpickle(saved):
    rewrite(saved, self_ns=np.array([None, 1]))
    message = loading_error(saved)
    assert message == (
        "damaged, or not a recording (ValueError: it contains Python objects, not numbers)"
    )


def test_recording_is_replaced_completely_or_not_at_all(saved, monkeypatch):
    before = saved.read_bytes()
    monkeypatch.setattr(np, "savez_compressed", raising(OSError(28, "No space left on device")))
    message = refusal(training_recording().save, saved)
    assert message == f"{saved}: cannot be written (No space left on device)"
    assert (saved.read_bytes(), names_in(saved.parent)) == (before, ["recording.npz"])


def test_path_that_cannot_be_written_is_refused_in_one_line(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    for name, reason in {
        "none/recording.npz": f"cannot be written (there is no folder {tmp_path / 'none'})",
        "folder": "cannot be written (not a regular file)",
        "fifo": "cannot be written (not a regular file)",
    }.items():
        assert refusal(training_recording().save, tmp_path / name) == f"{tmp_path / name}: {reason}"
    assert (
        refusal(training_recording().save, 3, error=UsageError)
        == "file is 3: give the path of a file"
    )


def test_recording_is_saved_to_a_string_path_and_through_a_link(tmp_path):
    path, link = tmp_path / "recording", tmp_path / "link"
    training_recording().save(str(path))
    assert_same(training_recording(), Recording.load(str(path)))
    link.symlink_to(path)
    gpu_recording().save(link)
    assert link.is_symlink()
    assert_same(gpu_recording(), Recording.load(path))


def test_flipped_bit_is_detected_or_harmless(saved):
    content, before, harmless = saved.read_bytes(), Recording.load(saved), 0
    positions = range(0, len(content), 7)
    for at in positions:
        flipped = content[at] ^ (1 << at % 8)
        saved.write_bytes(content[:at] + bytes([flipped]) + content[at + 1 :])
        try:
            loaded = Recording.load(saved)
        except ProfileError as error:
            assert "\n" not in str(error)  # noqa: PT017
        else:
            assert_same(before, loaded)
            harmless += 1
    # Dates and attributes in the archive's directory are harmless.
    assert 0 < harmless < len(positions) / 2


#: Functions, and sum of all layer times, of files that older versions wrote for a small network
#: (``profile.py --input-shape 3x8x8 -n 20 -w 2``).
FORWARD = "Convolution2DFunction {}BatchNormalization ReLU Reshape LinearFunction"
BACKWARD = " ".join(FORWARD.format("").split()[::-1])
STORED = {
    "version1.npz": (FORWARD.format("Fixed"), 32_648_131),
    "version2-train.npz": (
        f"{FORWARD.format('')} SoftmaxCrossEntropy cleargrads SoftmaxCrossEntropy {BACKWARD}"
        " WeightDecay MomentumSGD MomentumSGD MomentumSGD",
        159_363_317,
    ),
}


@pytest.mark.parametrize("name", STORED)
def test_files_of_older_versions_are_loaded_and_saved_without_loss(name, saved):
    recording = Recording.load(Path(__file__).parent / "stored" / name)
    functions, total_ns = STORED[name]
    assert " ".join(layer.function for layer in recording.layers) == functions
    assert int(recording.self_ns.sum()) == total_ns
    counts = [len(recording.self_ns), len(recording.clean_ns), len(recording.warmup_ns)]
    assert counts == [20, 5, 2]
    assert recording.settings.input_shape == (1, 3, 8, 8)
    summary = summarise(recording)
    framework = summary.totals.framework_share or 0.0
    assert summary.layers["share"].sum() + framework == pytest.approx(1)
    recording.save(saved)
    assert_same(Recording.load(saved), recording)
