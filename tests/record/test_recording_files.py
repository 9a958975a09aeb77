"""Files that are older, newer, not ours or no longer whole: nothing else is believed."""

import dataclasses
import json
import re
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest

from chainer_profile.analyse.summaries import summarise
from chainer_profile.basics.errors import ProfileError
from chainer_profile.record.journal import recover
from chainer_profile.record.recording import VERSION, Layer, Recording
from chainer_profile.runs.folder import JOURNAL, RECORDING, load_run
from tests.conftest import make_recording
from tests.recordings import assert_same, of_rank, on_gpu, refusal, rewrite, trained, whole
from tests.refusing import refusal as refused
from tests.report.reading import layers_csv


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "recording.npz"
    trained().save(path)
    return path


def test_a_newer_or_strange_version_is_refused_with_what_to_do(saved):
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
        # What stands for its default may be missing.
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
    # Trials of other kinds were in a file of before; they are left out.
    recording = of_rank(left_out=3)
    recording.save(saved)
    other = {"2.self_ns": recording.self_ns[:1, :1], "2.trial_ns": recording.trial_ns[:1]}
    of_other = json.loads(np.load(saved)["meta"].tobytes())
    of_other = {name: of_other[name] for name in ("layers", "phases", "links", "settings")}
    rewrite(saved, lambda meta: meta.update(variants=[of_other], kind=1), **other)
    assert_same(Recording.load(saved), of_rank(left_out=4))


#: Parts that every recording has, and those that it may have.
NEEDED = ("layers", "settings", "environment", "conditions", "ended", "phases")
MORE = ("links", "limits", "memory", "counters", "inside", "rank", "left_out")
#: What is changed in the meta of a recording that holds all, and what is said of it.
DAMAGES = [
    (lambda meta: meta["layers"][0].update(calls=0), "layer 0 has 0 calls"),
    (lambda meta: meta["layers"][1].update(path=""), "layer 1 has the path ''"),
    (lambda meta: meta["layers"][1].update(path=None), "Expected `str`, got `null`"),
    (lambda meta: meta["layers"][1].update(index=5), "layer 1 has the index 5"),
    (lambda meta: meta["layers"][1].update(parent=9), "the parent 9, of 3 layers"),
    (lambda meta: meta["layers"][1].update(flops=-1), "layers: flops is -1"),
    (lambda meta: meta["layers"][1].update(output_shapes=[[1, -3]]), "output_shapes is -3"),
    (lambda meta: meta["links"].append({"path": "/", "kind": "", "calls": -1}), ""),
    (lambda meta: meta["conditions"].update(window_ns=float("nan")), "window_ns is nan"),
    (lambda meta: meta["limits"].update(flops_per_s=float("inf")), "flops_per_s is inf"),
    (lambda meta: meta["limits"].update(copy_nbytes_per_s=0), "limits: one is 0"),
    (lambda meta: meta["settings"].update(batchsize=-2), "settings: batchsize is -2"),
    (lambda meta: meta["settings"].update(trials=2**70), "trials"),
    (lambda meta: meta["memory"].update(high_water_layer=3), "highest in layer 3, of 3"),
    (lambda meta: meta["memory"]["retained_nbytes"].pop() and None, "memory has 2 layers"),
    (lambda meta: meta.update(layers=meta["layers"][:2]), ""),
    (lambda meta: meta["layers"][0].pop("function") and None, "missing required field"),
    (lambda meta: meta["links"][0].pop("calls") and None, "missing required field"),
    (lambda meta: meta["environment"].update(gpu="A GPU"), "Expected `object | null`"),
    (lambda meta: meta["conditions"].update(gpu_after=[0]), "Expected `object | null`"),
    *((lambda meta, of=of: meta["rank"].update(number=of), "") for of in (2, -1)),
    *((lambda meta, name=name: meta.pop(name) and None, "") for name in NEEDED),
    *(
        (lambda meta, name=name: meta.update({name: 3.5}), "Expected `")
        for name in (*NEEDED, *MORE)
    ),
]
#: The same of arrays of a rank's recording.
ARRAYS = [
    ({"left_ns": of_rank().arrived_ns - 1}, "a collective was left before it was entered"),
    ({"arrived_ns": np.full((4, 2), -(2**63))}, "arrived_ns contains -9223372036854775808"),
    ({"iteration": np.zeros(4, int)}, "iteration contains 0"),
    ({"self_ns": None}, "self_ns"),
    ({"self_ns": np.int64(3)}, ""),
    ({"iteration": np.ones(4)}, "iteration contains float64"),
]


def test_damaged_recordings(saved):
    recording = whole(of_rank())
    for number, (change, words) in enumerate(DAMAGES):
        recording.save(saved)
        rewrite(saved, change)
        text = refusal(saved)
        assert "damaged recording" in text, number
        assert words in text
    for arrays, words in ARRAYS:
        of_rank().save(saved)
        rewrite(saved, **arrays)
        assert words in refusal(saved)


def test_times_of_no_run_are_refused_from_a_file_and_by_hand_and_not_written(saved):
    recording = make_recording(n_layers=3, n_trials=6, n_clean=5)
    short = int(recording.self_ns[0].sum()) - 3
    for name, value, words in (
        ("self_ns", -5, "self_ns contains -5"),
        ("trial_ns", -5, "trial_ns contains -5"),
        ("trial_ns", short, "trial 0 is 3 ns shorter than its layers"),
        ("clean_ns", -5, "clean_ns contains -5"),
    ):
        samples = getattr(recording, name).copy()
        samples.flat[0] = value
        made = dataclasses.replace(recording, **{name: samples})
        if value == -5:
            assert f"the recording cannot be from a run: {words}" in refused(summarise, made)
        recording.save(saved)
        before = saved.read_bytes()
        said = refused(made.save, saved)
        assert re.search(f"cannot be from a run, so it is not written .*{words}", said)
        assert saved.read_bytes() == before
        rewrite(saved, **{name: samples})
        assert words in refusal(saved)
    for changes in ({"path": None}, {"calls": 0}):
        layer = Layer(**({"index": 0, "path": "/", "function": "ReLU"} | changes))
        made = Recording((layer,), np.ones((3, 1), np.int64))
        said = refused(summarise, made)
        assert said.startswith("the recording cannot be from a run: layer 0 has ")


def test_other_files_are_not_ours(tmp_path, saved):
    metas = (b"", b"{", b"[]", b"null", b"3", b'"format"', b"\xff\xfe", b"{}")
    for meta in (*metas, b'{"format": "another"}', b'{"format": null, "version": 1}'):
        rewrite(saved, meta=np.frombuffer(meta, np.uint8))
        assert "is not a chainer-profile recording file" in refusal(saved), meta
    path = tmp_path / "other"
    for content in (b"", b"\n", b"layer,time\n0,1\n", bytes(range(256)) * 20, b"PK\x03\x04", b"PK"):
        path.write_bytes(content)
        assert "not a recording" in refusal(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("meta", "text")
    np.savez(tmp_path / "weights.npz", w=np.zeros(3))
    np.save(tmp_path / "array.npy", np.zeros(3))
    np.savez(tmp_path / "pickled.npz", meta=np.array([{"format": 1}], object))
    for name, words in {
        "other": "",
        "weights.npz": "is not a chainer-profile recording (it contains no 'meta')",
        "array.npy": "not a recording",
        "pickled.npz": "not a recording",
        "": "is a folder",
        "none.npz": "no such recording",
        "array.npy/recording.npz": "",
    }.items():
        assert words in refusal(tmp_path / name), name


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


# --- files that older versions left, not made here

#: A run and what a killed run left, by the first version of the format and by the second, of the
#: network in ``net.py``: ``profile.py -m net.py:Net --input-shape 3x8x8 -n 20 -w 2``.
STORED = Path(__file__).parent / "stored"
FORWARD = ["Convolution2DFunction", "FixedBatchNormalization", "ReLU", "Reshape", "LinearFunction"]
TRAINED = [name.removeprefix("Fixed") for name in FORWARD]
BACKWARD = ["cleargrads", "SoftmaxCrossEntropy", *TRAINED[::-1], "WeightDecay"]
BACKWARD += ["MomentumSGD"] * 3
#: By file: profiled trials, functions, and the sum of all layers' times.
EXPECTED = {
    "version1.npz": (20, FORWARD, 32_648_131),
    "version1.journal": (49, FORWARD, 111_895_886),
    "version2.journal": (25, FORWARD, 7_733_128),
    "version2-train.npz": (20, [*TRAINED, "SoftmaxCrossEntropy", *BACKWARD], 159_363_317),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_it_loads_and_is_written_anew_without_loss(name, tmp_path):
    recording = (recover if name.endswith("journal") else Recording.load)(STORED / name)
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
    assert summary.layers["share"].sum() == pytest.approx(1)
    assert len(layers_csv(summary).splitlines()) == len(functions) + 1
    # What was killed is made whole.
    shutil.copy(STORED / name, tmp_path / (RECORDING if name.endswith("npz") else JOURNAL))
    assert_same(load_run(tmp_path), recording)
    assert not (tmp_path / JOURNAL).exists()
    assert_same(Recording.load(tmp_path / RECORDING), recording)
    recording.save(tmp_path / RECORDING)
    assert_same(load_run(tmp_path), recording)
