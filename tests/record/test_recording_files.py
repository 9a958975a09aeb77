"""Files that are older, newer, not ours or no longer whole: nothing else is believed."""

import json
import zipfile

import numpy as np
import pytest

from chainer_profile.basics.errors import ProfileError
from chainer_profile.record.digest import read_digest
from chainer_profile.record.recording import VERSION, Recording
from tests import ROOT
from tests.recordings import (
    assert_same,
    of_rank,
    on_gpu,
    refusal,
    rewrite,
    trained,
)


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "recording.npz"
    trained().save(path)
    return path


# --- files that are not ours, or no longer whole


def test_a_newer_version_is_refused_with_what_to_do(saved):
    rewrite(saved, lambda meta: meta.update(version=VERSION + 1))
    text = refusal(saved)
    assert f"has format version {VERSION + 1}, this program reads up to {VERSION}" in text
    assert "update the program" in text


def test_a_strange_version_or_none_is_refused(saved):
    for version in ("1", None, 1.5, [1]):
        rewrite(saved, lambda meta, of=version: meta.update(version=of))
        assert "version" in refusal(saved)
    rewrite(saved, lambda meta: meta.pop("version") and None)
    assert "version" in refusal(saved)


def test_fields_of_a_later_writer_are_passed_over(saved):
    on_gpu().save(saved)

    def later(meta):
        meta["weather"] = {"cycles": [1, 2]}
        for part in ("settings", "environment", "conditions"):
            meta[part]["later"] = {"a": 1}
        meta["environment"]["gpu"]["mig"] = True
        meta["conditions"]["gpu_after"]["fans"] = [1, 2]
        for layer in meta["layers"]:
            layer["colour"] = 12
        meta["environment"]["blas"] = []

    rewrite(saved, later, counters=np.arange(3), names=np.array(["a", "b"]))
    assert_same(on_gpu(), Recording.load(saved))


def test_a_file_of_an_earlier_writer_has_defaults_for_the_rest(saved):
    def earlier(meta):
        del meta["settings"]["until_ci"]
        del meta["environment"]["blas"]

    rewrite(saved, earlier, probe_ns=None, probe_threads=None, warmup_ns=None, trial_ns=None)
    loaded = Recording.load(saved)
    assert loaded.settings.until_ci is None
    assert loaded.trial_ns is None
    assert len(loaded.probe_ns) == len(loaded.warmup_ns) == 0


SAMPLES = sorted((ROOT / "reports" / "samples").glob("*/recording.npz"))


def test_the_samples_of_earlier_versions(tmp_path):
    assert len(SAMPLES) >= 5
    for path in SAMPLES:
        recording = Recording.load(path)
        assert recording.n_trials >= 100
        on_cpu = recording.settings.device == "cpu"
        assert recording.on_device is not on_cpu
        assert (recording.environment.gpu is None) is on_cpu
        recording.save(tmp_path / "again.npz")
        assert_same(recording, Recording.load(tmp_path / "again.npz"))


@pytest.mark.parametrize(
    ("arrays", "names"),
    [
        ({"left_ns": of_rank().arrived_ns - 1}, "a collective was left before it was entered"),
        ({"arrived_ns": np.full((4, 2), -(2**63))}, "arrived_ns holds -9223372036854775808"),
        ({"iteration": np.zeros(4, int)}, "iteration holds 0"),
        ({"self_ns": None}, "self_ns"),
        ({"self_ns": np.int64(3)}, ""),
        ({"iteration": np.ones(4)}, "iteration holds float64"),
    ],
)
def test_wrong_arrays_of_a_rank_are_a_damaged_recording(saved, arrays, names):
    of_rank().save(saved)
    rewrite(saved, **arrays)
    assert names in refusal(saved)


def test_trials_of_other_kinds_in_a_file_of_before_are_left_out(saved):
    recording = of_rank(left_out=3)
    recording.save(saved)
    other = {"2.self_ns": recording.self_ns[:1, :1], "2.trial_ns": recording.trial_ns[:1]}
    of_other = json.loads(np.load(saved)["meta"].tobytes())
    of_other = {name: of_other[name] for name in ("layers", "phases", "links", "settings")}
    rewrite(saved, lambda meta: meta.update(variants=[of_other], kind=1), **other)
    assert_same(Recording.load(saved), of_rank(left_out=4))


@pytest.mark.parametrize(
    "change",
    [
        *(lambda meta, name=name: meta.pop(name) and None for name in ("settings", "ended")),
        lambda meta: meta.pop("layers") and None,
        lambda meta: meta.update(layers=[1, 2, 3]),
        lambda meta: meta.update(layers=None),
        lambda meta: meta.update(layers=meta["layers"][:2]),
        lambda meta: meta["layers"][0].pop("function") and None,
        lambda meta: meta.update(phases=["forward"]),
        lambda meta: meta.update(phases=None),
        lambda meta: meta.update(links=[1]),
        lambda meta: meta["links"][0].pop("calls") and None,
        lambda meta: meta.update(settings=[]),
        lambda meta: meta.update(environment="x"),
        *(lambda meta, gpu=gpu: meta["environment"].update(gpu=gpu) for gpu in (3, "A GPU", [1])),
        *(lambda meta, of=of: meta["conditions"].update(gpu_after=of) for of in (1.5, "hot", [0])),
        lambda meta: meta["rank"].update(number=2),
        lambda meta: meta["rank"].update(number=-1),
    ],
)
def test_wrong_meta_is_a_damaged_recording(saved, change):
    of_rank().save(saved)
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
    content, whole = saved.read_bytes(), Recording.load(saved)
    with zipfile.ZipFile(saved) as archive:
        end = len(content) - len(archive.comment)
    for size in [*range(0, end, 7), *range(end - 30, end)]:
        saved.write_bytes(content[:size])
        refusal(saved)
    # Behind all that is measured stands the digest, which can be made again.
    for size in (end, end + 1, len(content) - 1):
        saved.write_bytes(content[:size])
        assert read_digest(saved) is None
        assert_same(Recording.load(saved), whole)


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
