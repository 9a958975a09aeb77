"""Files that are older, newer, not ours or no longer whole: nothing else is believed."""

import dataclasses
import math
import re
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from chainer_profile.analyse.summaries import summarise
from chainer_profile.basics.errors import ProfileError
from chainer_profile.record.recording import VERSION, LinkCalls, Recording
from chainer_profile.runs.folder import RECORDING, load_run
from tests.conftest import make_recording
from tests.recordings import assert_same, of_rank, on_gpu, refusal, rewrite, trained, whole
from tests.refusing import refusal as refused
from tests.report.reading import layers_csv


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "recording.npz"
    trained().save(path)
    return path


def test_a_newer_or_strange_version_is_refused_with_advice(saved):
    rewrite(saved, lambda meta: meta.update(version=VERSION + 1))
    text = refusal(saved)
    assert f"has format version {VERSION + 1}, but this program reads up to {VERSION}" in text
    assert "update the program" in text
    for version in ("1", None, 1.5, [1]):
        rewrite(saved, lambda meta, of=version: meta.update(version=of))
        assert "version" in refusal(saved)
    rewrite(saved, lambda meta: meta.pop("version") and None)
    assert "version" in refusal(saved)


def test_files_of_later_and_earlier_writers(saved):
    def later(meta):
        meta["weather"] = {"cycles": [1, 2]}
        for part in ("settings", "environment", "conditions"):
            meta[part]["later"] = {"a": 1}
        meta["environment"]["gpu"]["mig"] = True
        meta["conditions"]["gpu_after"]["fans"] = [1, 2]
        for layer in meta["layers"]:
            layer["colour"] = 12
        # Fields with their default may be missing.
        del meta["settings"]["until_ci"], meta["environment"]["blas"]

    on_gpu().save(saved)
    rewrite(saved, later, counters=np.arange(3), names=np.array(["a", "b"]))
    assert_same(on_gpu(), Recording.load(saved))
    gone = dict.fromkeys(("probe_ns", "probe_threads", "warmup_ns", "trial_ns"))
    trained().save(saved)
    rewrite(saved, **gone)
    loaded = Recording.load(saved)
    assert loaded.trial_ns is None
    assert len(loaded.probe_ns) == len(loaded.warmup_ns) == 0


PAIR = np.array([1, 2])
FULL = whole(of_rank(warmup_ns=PAIR, probe_ns=PAIR, probe_threads=PAIR))


def with_layer(place, **changes):
    """Layers of which one is changed."""
    layer = dataclasses.replace(FULL.layers[place], **changes)
    return {"layers": (*FULL.layers[:place], layer, *FULL.layers[place + 1 :])}


def with_part(name, **changes):
    return {name: dataclasses.replace(getattr(FULL, name), **changes)}


def with_stack(**changes):
    return with_part("inside", stacks=(dataclasses.replace(FULL.inside.stacks[0], **changes),))


def with_counter(**changes):
    return with_part(
        "counters", counted=(dataclasses.replace(FULL.counters["wall_ns"], **changes),)
    )


def negative(name, value=-5):
    samples = getattr(FULL, name).copy()
    samples.flat[0] = value
    return {name: samples}


#: Fields of recordings that no run has measured, and the message about each.
IMPOSSIBLE = [
    *(
        (negative(name), f"{name} contains -5, but must be 0 or more")
        for name in ("self_ns", "held_ns")
    ),
    (negative("iteration", 0), "iteration contains 0, but must be 1 or more"),
    (negative("start_ns", -(2**63)), "start_ns contains -9223372036854775808, but must be -46"),
    (negative("start_ns", 2**62), "start_ns contains 4611686018427387904, but must be below 2**62"),
    (negative("warmup_ns", 2**62), "but all its times must be below 2**62 ns"),
    ({"left_ns": FULL.arrived_ns - 1}, "a collective was left before it was entered"),
    (with_layer(0, calls=0), "layer 0 has 0 calls, but must have more than 0"),
    (with_layer(1, path=""), "layer 1 has the path '', which names nothing"),
    (with_layer(1, index=5), "layer 1 has the index 5, but must have its place"),
    (with_layer(1, parent=9), "layer 1 has the parent 9, of 3 layers"),
    (with_layer(1, output_shapes=((1, -3),)), "layers: output_shapes is -3"),
    ({"links": (LinkCalls("", "Net", 1, 0),)}, "a link has no path"),
    ({"phases": ("update", "update", "backward")}, "phases are named twice"),
    (with_part("limits", flops_per_s=math.inf), "limits: flops_per_s is inf, but must be a number"),
    (with_part("limits", copy_nbytes_per_s=0.0), "copy_nbytes_per_s is 0.0, but must be above 0"),
    (with_part("settings", max_seconds=math.nan), "settings: max_seconds is nan"),
    (with_part("settings", trials=2**63), "settings: trials is 9223372036854775808"),
    (with_part("memory", high_water_layer=3), "memory is highest in layer 3, of 3"),
    (with_part("memory", peak_nbytes=(9, 9)), "memory has 2 layers, not 3"),
    (with_part("memory", retained_nbytes=(9, 9)), "memory has 2 layers, not 3"),
    (with_counter(layers=(1,)), "counters: wall_ns has 1 layers and 3 phases, not 3 and 3"),
    (with_counter(trial=(9,)), "counters: wall_ns has 1 trials, not 2"),
    (with_part("inside", repeats=0.5), "inside: repeats is 0.5, but must be 1 or more"),
    (with_stack(row=3), "a stack is in layer 3, of 3"),
    (with_stack(function="Nowhere"), "a stack is in Nowhere, but no layer is"),
    (with_stack(places=(0, 2)), "a stack passes places (0, 2), of 2 places"),
    (with_part("rank", number=2), "rank: there is no rank 2 of 2"),
]


#: Messages about recordings that cannot be summarised either.
NOT_SUMMARISED = r"contains|2\*\*62|entered|calls, but|memory|counters|repeats|stack"


@pytest.mark.parametrize(("changes", "words"), IMPOSSIBLE, ids=[words for _, words in IMPOSSIBLE])
def test_impossible_recordings_are_refused_by_hand_from_a_file_and_not_written(
    changes, words, saved
):
    made = dataclasses.replace(FULL, **changes)
    if re.search(NOT_SUMMARISED, words):
        text = refused(summarise, made)
        assert text.startswith("the recording cannot be from a run: ")
        assert words in text
    before = saved.read_bytes()
    text = refused(made.save, saved)
    assert text.startswith("the recording cannot be from a run, so it is not written (")
    assert words in text
    assert saved.read_bytes() == before
    with mock.patch("chainer_profile.record.recording.check_file"):
        made.save(saved)
    text = refusal(saved)
    assert text.startswith("damaged recording (")
    assert words in text


def test_a_trial_that_is_shorter_than_its_layers_is_refused(saved):
    recording = make_recording(n_layers=3, n_trials=6, n_clean=5)
    trial_ns = recording.trial_ns.copy()
    trial_ns[0] = recording.self_ns[0].sum() - 3
    made = dataclasses.replace(recording, trial_ns=trial_ns)
    recording.save(saved)
    rewrite(saved, trial_ns=trial_ns)
    for text in (refused(made.save, saved), refusal(saved)):
        assert "trial 0 is 3 ns shorter than its layers" in text
    # Nor is a part of another type written.
    assert "Expected `str`" in refused(dataclasses.replace(recording, ended=3).save, saved)


def test_other_files_are_not_ours(tmp_path, saved):
    for meta in (b"", b"{", b"[]", b"null", b"\xff\xfe", b"{}", b'{"format": "another"}'):
        rewrite(saved, meta=np.frombuffer(meta, np.uint8))
        assert "is not a chainer-profile recording file" in refusal(saved), meta
    path = tmp_path / "other"
    for content in (b"", b"\n", b"layer,time\n0,1\n", bytes(range(256)) * 20, b"PK\x03\x04", b"PK"):
        path.write_bytes(content)
        assert "not a recording" in refusal(path)
    np.savez(tmp_path / "weights.npz", w=np.zeros(3))
    np.save(tmp_path / "array.npy", np.zeros(3))
    np.savez(tmp_path / "pickled.npz", meta=np.array([{"format": 1}], object))
    for name, words in {
        "weights.npz": "is not a chainer-profile recording (it contains no 'meta')",
        "array.npy": "not a recording",
        "pickled.npz": "not a recording",
        "": "is a folder",
        "none.npz": "no such recording",
    }.items():
        assert words in refusal(tmp_path / name), name


def test_a_flipped_bit_is_noticed_or_does_no_harm(saved):
    content, before = saved.read_bytes(), Recording.load(saved)
    harmless = 0
    places = range(0, len(content), 7)
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


# --- files that older versions left, not made here

#: A run by the first version of the format and by the second, of the network in ``net.py``:
#: ``profile.py -m net.py:Net --input-shape 3x8x8 -n 20 -w 2``.
STORED = Path(__file__).parent / "stored"
FORWARD = ["Convolution2DFunction", "FixedBatchNormalization", "ReLU", "Reshape", "LinearFunction"]
TRAINED = [name.removeprefix("Fixed") for name in FORWARD]
BACKWARD = ["cleargrads", "SoftmaxCrossEntropy", *TRAINED[::-1], "WeightDecay"]
BACKWARD += ["MomentumSGD"] * 3
#: By file: profiled trials, functions, and the sum of all layers' times.
EXPECTED = {
    "version1.npz": (20, FORWARD, 32_648_131),
    "version2-train.npz": (20, [*TRAINED, "SoftmaxCrossEntropy", *BACKWARD], 159_363_317),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_it_loads_and_is_written_anew_without_loss(name, tmp_path):
    recording = Recording.load(STORED / name)
    trials, functions, total_ns = EXPECTED[name]
    assert recording.n_trials == trials
    assert [layer.function for layer in recording.layers] == functions
    assert int(recording.self_ns.sum()) == total_ns
    assert (len(recording.clean_ns), len(recording.warmup_ns)) == (5, 2)
    assert recording.clean_cpu_ns is None
    assert recording.trial_ns is not None
    assert (recording.trial_ns >= recording.self_ns.sum(axis=1)).all()
    assert recording.settings.input_shape == (1, 3, 8, 8)
    assert (recording.on_device, recording.environment.gpu) == (False, None)
    summary = summarise(recording)
    framework = summary.totals.framework_share or 0.0
    assert summary.layers["share"].sum() + framework == pytest.approx(1)
    assert len(layers_csv(summary).splitlines()) == len(functions) + 1
    recording.save(tmp_path / RECORDING)
    assert_same(load_run(tmp_path), recording)
