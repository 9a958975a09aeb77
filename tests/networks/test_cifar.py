"""CIFAR-10 and CIFAR-100 in all the forms of their site, made here with fewer images."""

import gzip
import hashlib
import io
import os
import pickle
import re
import struct
import tarfile
import urllib.error
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import chainer_profile  # noqa: F401  (lets Chainer import on current NumPy)

# isort: split
import chainer

from chainer_profile.basics.errors import ProfileError
from chainer_profile.networks import cifar
from chainer_profile.networks.cifar import (
    CIFAR10,
    CIFAR100,
    KNOWN_MD5,
    Images,
    binary_records,
    load_cifar,
    load_or_download,
)

SMALL10 = replace(CIFAR10, counts={"train": 4, "test": 3})
SMALL100 = replace(CIFAR100, counts={"train": 20, "test": 3})
SETS = pytest.mark.parametrize("small", [SMALL10, SMALL100], ids=["10", "100"])


def message(error):
    """The text of an error, which must be one line."""
    text = str(error.value)
    assert text
    assert "\n" not in text
    return text


def draw(small, part, seed=0):
    """All images of a part, and their labels, both ends of the classes among them."""
    count = small.counts[part] * len(small.files[part])
    generator = np.random.default_rng([seed, part == "train"])
    labels = generator.integers(0, small.classes, count).astype(np.uint8)
    labels[:2] = 0, small.classes - 1
    return Images(generator.integers(0, 256, (count, 3, 32, 32), dtype=np.uint8), labels)


def python2_pickle(images, labels, key="labels"):
    """What cPickle of Python 2 writes for a batch, opcode for opcode (protocol 2)."""

    def short(text):
        return b"U" + bytes([len(text)]) + text

    data = images.tobytes()
    return b"".join(
        [
            b"\x80\x02}(",
            short(b"batch_label"),
            short(b"testing batch 1 of 1"),
            short(key.encode()),
            b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e",
            short(b"data"),
            b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R",
            b"(K\x01M" + struct.pack("<H", len(images)),
            b"M" + struct.pack("<H", 3072) + b"\x86",
            b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb",
            b"\x89T" + struct.pack("<I", len(data)) + data + b"tb",
            b"u.",
        ]
    )


def python3_pickle(images, labels, key="labels"):
    content = {"data": images.reshape(-1, 3072), key: [int(label) for label in labels]}
    return pickle.dumps(content, protocol=5)


def files_of(small, form):
    """The files of a form, ``{name: content}``, with what is in them for each part."""
    files = {}
    for part in ("train", "test"):
        images, labels = draw(small, part)
        count = small.counts[part]
        for i, name in enumerate(small.files[part]):
            one = slice(i * count, (i + 1) * count)
            if form == "binary":
                files[f"{name}.bin"] = binary_records(small, images[one], labels[one])
            else:
                write = python3_pickle if form == "python3" else python2_pickle
                files[name] = write(images[one], labels[one], small.label_key)
    return files


def put(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def pack(path, files):
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


@pytest.fixture
def known(monkeypatch):
    """Makes files known: ``known(name, content)``."""

    def known(name, content):
        md5 = hashlib.md5(content).hexdigest()
        monkeypatch.setitem(cifar.KNOWN_MD5, name, md5)

    return known


FORMS = ["binary", "binary folder", "binary archive"]
FORMS += [f"{version}{place}" for version in ("python2", "python3") for place in ("", " folder")]
FORMS += ["python2 archive"]


def write_set(small, folder, form, known):
    """Writes a set in one of the forms."""
    version, _, place = form.partition(" ")
    inner = small.binary_folder if version == "binary" else small.python_folder
    files = files_of(small, version)
    if place == "archive":
        word = "binary" if version == "binary" else "python"
        path = folder / f"{small.stem}-{word}.tar.gz"
        # In an order of its own, as in the real archives.
        pack(path, {f"{inner}/{name}": files[name] for name in sorted(files, reverse=True)})
        known(path.name, path.read_bytes())
    for name, content in files.items():
        if place != "archive":
            put(folder / (inner if place else "") / name, content)
        if version != "binary" and place != "archive":
            known(f"{inner}/{name}", content)


@SETS
@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_read(small, tmp_path, form, known):
    write_set(small, tmp_path, form, known)
    read = load_cifar(small, str(tmp_path))
    for part, images in zip(("train", "test"), read, strict=True):
        expected = draw(small, part)
        assert type(images.images) is np.ndarray
        assert images.images.dtype == images.labels.dtype == np.uint8
        np.testing.assert_array_equal(images.images, expected.images)
        np.testing.assert_array_equal(images.labels, expected.labels)


def test_the_python2_pickle_is_one_that_python_reads():
    images, labels = draw(SMALL10, "test")
    batch = pickle.loads(python2_pickle(images, labels), encoding="latin-1")
    np.testing.assert_array_equal(batch["data"], images.reshape(-1, 3072))
    assert batch["labels"] == labels.tolist()


@given(st.data(), st.sampled_from([CIFAR10, CIFAR100]), st.integers(1, 4))
def test_the_binary_format_goes_round(tmp_path_factory, data, whole, count):
    images = data.draw(
        hnp.arrays(np.uint8, (count, 3, 32, 32), elements=st.integers(0, 255), fill=st.just(7))
    )
    labels = data.draw(hnp.arrays(np.uint8, count, elements=st.integers(0, whole.classes - 1)))
    folder = tmp_path_factory.mktemp("round")
    content = binary_records(whole, images, labels)
    assert len(content) == count * (3072 + (2 if whole is CIFAR100 else 1))
    (folder / f"{whole.files['test'][0]}.bin").write_bytes(content)
    (read,) = load_cifar(replace(whole, counts={"test": count}), folder, ["test"])
    np.testing.assert_array_equal(read.images, images)
    np.testing.assert_array_equal(read.labels, labels)


def test_a_binary_record_is_as_the_site_says():
    image = np.arange(3072, dtype=np.uint16).astype(np.uint8).reshape(1, 3, 32, 32)
    assert binary_records(CIFAR10, image, [6]) == b"\x06" + image.tobytes()
    assert binary_records(CIFAR100, image, [98]) == b"\x00\x62" + image.tobytes()


def test_the_coarse_label_of_cifar100_is_passed_over(tmp_path):
    images, labels = draw(SMALL100, "test")
    content = bytearray(binary_records(SMALL100, images, labels))
    content[0::3074] = b"\x13" * 3
    put(tmp_path / "test.bin", content)
    (read,) = load_cifar(SMALL100, tmp_path, ["test"])
    np.testing.assert_array_equal(read.labels, labels)


def test_only_the_part_asked_for_is_needed(tmp_path, known):
    write_set(SMALL10, tmp_path, "binary", known)
    for number in range(1, 6):
        (tmp_path / f"data_batch_{number}.bin").unlink()
    (test,) = load_cifar(SMALL10, tmp_path, ["test"])
    np.testing.assert_array_equal(test.images, draw(SMALL10, "test").images)
    assert "cannot read" in refused(tmp_path)


def test_the_binary_version_comes_first(tmp_path, known):
    write_set(SMALL10, tmp_path, "binary archive", known)
    put(tmp_path / "test_batch", b"a pickle of an unknown MD5")
    put(tmp_path / "cifar-10-python.tar.gz", b"another")
    train, _ = load_cifar(SMALL10, tmp_path)
    np.testing.assert_array_equal(train.labels, draw(SMALL10, "train").labels)


def test_the_real_sets():
    assert {name for name in KNOWN_MD5 if name.endswith(".gz")} == {
        "cifar-10-python.tar.gz",
        "cifar-100-python.tar.gz",
    }
    for whole in (CIFAR10, CIFAR100):
        counts = {part: whole.counts[part] * len(whole.files[part]) for part in whole.counts}
        assert counts == {"train": 50_000, "test": 10_000}
        for names in whole.files.values():
            for name in names:
                assert f"{whole.python_folder}/{name}" in KNOWN_MD5
    assert len(set(KNOWN_MD5.values())) == len(KNOWN_MD5) == 10
    assert all(re.fullmatch("[0-9a-f]{32}", md5) for md5 in KNOWN_MD5.values())


# --- what is refused


def refused(folder, small=SMALL10, parts=("train", "test")):
    with pytest.raises(ProfileError) as error:
        load_cifar(small, folder, parts)
    text = message(error)
    assert str(folder) in text
    return text


@SETS
@pytest.mark.parametrize("form", ["python3", "python2 folder", "python2 archive"])
def test_a_pickle_of_another_md5_is_not_opened(small, tmp_path, form, known, monkeypatch):
    write_set(small, tmp_path, form, lambda name, content: None)
    monkeypatch.setattr(cifar, "load_plain_pickle", None)
    text = refused(tmp_path, small)
    assert f"get the binary version, {small.stem}-binary.tar.gz" in text
    assert "is not the known" in text


class Evil:
    """Makes a folder when it is unpickled the ordinary way."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("packed", [False, True])
def test_a_malicious_pickle_is_not_run_even_if_its_md5_were_right(tmp_path, packed, known):
    trap = tmp_path / "ran"
    content = pickle.dumps({"data": Evil(trap), "labels": [0]}, protocol=2)
    if packed:
        path = tmp_path / "cifar-10-python.tar.gz"
        pack(path, {"cifar-10-batches-py/test_batch": content})
        known(path.name, path.read_bytes())
    else:
        put(tmp_path / "test_batch", content)
        known("cifar-10-batches-py/test_batch", content)
    text = refused(tmp_path, parts=["test"])
    assert f"it asks for {os.mkdir.__module__}.mkdir" in text
    assert not trap.exists()
    # The trap works: reading the same pickle the ordinary way springs it.
    pickle.loads(content)
    assert trap.exists()


IMAGES = draw(SMALL10, "test").images.reshape(3, 3072)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (pickle.dumps([1, 2]), "holds no data and labels"),
        (pickle.dumps({"data": IMAGES, "fine_labels": [1, 2, 3]}), "holds no data and labels"),
        (b"not a pickle", "is not CIFAR-10, or damaged"),
        (python2_pickle(IMAGES, [1, 2, 3])[:-1000], "or damaged"),
        (python2_pickle(IMAGES[:2], [1, 2]), "must be bytes of shape (3, 3072)"),
        (pickle.dumps({"data": [[1], [2, 3]], "labels": [0]}), "bytes of shape (3, 3072)"),
        (pickle.dumps({"data": IMAGES.astype("f"), "labels": [0]}), "bytes of shape (3, 3072)"),
        (pickle.dumps({"data": IMAGES, "labels": [0, 10, 200]}), "but 2 are outside, such as 10"),
        (pickle.dumps({"data": IMAGES, "labels": [0, -1, 0]}), "1 are outside, such as -1"),
        (pickle.dumps({"data": IMAGES, "labels": [0, 1]}), "must be 3 labels from 0 to 9"),
        (pickle.dumps({"data": IMAGES, "labels": [[0], 1, 2]}), "must be 3 labels from 0 to 9"),
        (pickle.dumps({"data": IMAGES, "labels": ["a"] * 3}), "must be 3 labels from 0 to 9"),
        (pickle.dumps({"data": IMAGES, "labels": [0.5] * 3}), "must be 3 labels from 0 to 9"),
    ],
)
def test_a_pickle_of_something_else(tmp_path, known, content, expected):
    put(tmp_path / "test_batch", content)
    known("cifar-10-batches-py/test_batch", content)
    assert expected in refused(tmp_path, parts=["test"])


@SETS
def test_a_binary_file_of_the_wrong_size(small, tmp_path, known):
    write_set(small, tmp_path, "binary", known)
    path = tmp_path / f"{small.files['train'][-1]}.bin"
    content = path.read_bytes()
    for wrong in (content[:-1], content + b"x", b""):
        path.write_bytes(wrong)
        text = refused(tmp_path, small)
        assert f"{path} is cut short or not {small.name}: a file of " in text
        assert f"must have {len(content)} bytes, not {len(wrong)}" in text


@SETS
def test_a_binary_file_with_labels_outside_the_classes(small, tmp_path, known):
    write_set(small, tmp_path, "binary", known)
    path = tmp_path / f"{small.files['train'][0]}.bin"
    content = bytearray(path.read_bytes())
    content[small.label_nbytes - 1] = small.classes
    path.write_bytes(content)
    text = refused(tmp_path, small)
    assert f"{path} is not {small.name}" in text
    assert f"labels from 0 to {small.classes - 1}, but 1 are outside, such as" in text


def test_a_file_that_is_not_there(tmp_path, known):
    write_set(SMALL10, tmp_path, "binary", known)
    (tmp_path / "data_batch_3.bin").unlink()
    assert f"cannot read {tmp_path / 'data_batch_3.bin'}: No such file" in refused(tmp_path)


def test_damaged_archives(tmp_path, known):
    path = tmp_path / "cifar-10-binary.tar.gz"
    name = "cifar-10-batches-bin/test_batch.bin"
    pack(path, {name: np.random.default_rng(0).bytes(300_000)})
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], b"hello", gzip.compress(b"hello"), b""):
        put(path, content)
        assert "is cut short or damaged" in refused(tmp_path, parts=["test"])
    put(path, whole)
    assert f"must have {3 * 3073} bytes, not 300000" in refused(tmp_path, parts=["test"])
    pack(path, {"something/else": b""})
    assert f"there is no {name} in it" in refused(tmp_path, parts=["test"])
    with tarfile.open(path, "w:gz") as archive:
        info = tarfile.TarInfo(name)
        info.type = tarfile.DIRTYPE
        archive.addfile(info)
    assert f"there is no {name} in it" in refused(tmp_path, parts=["test"])


@SETS
def test_folders_without_the_set(small, tmp_path):
    assert f"it must hold {small.stem}-python.tar.gz, {small.python_folder}" in refused(
        tmp_path, small
    )
    assert f"there is no folder {tmp_path / 'none'}" in refused(tmp_path / "none", small)


# --- Chainer's copy, and downloading


@pytest.fixture
def dataset_root(tmp_path):
    before = chainer.dataset.get_dataset_root()
    chainer.dataset.set_dataset_root(str(tmp_path / "root"))
    yield tmp_path / "root"
    chainer.dataset.set_dataset_root(before)


GET = {"cifar-10": chainer.datasets.get_cifar10, "cifar-100": chainer.datasets.get_cifar100}


def fake_download(monkeypatch, path):
    """Stands for Chainer's download; gives the URLs asked for."""
    urls = []

    def download(url):
        urls.append(url)
        return str(path)

    monkeypatch.setattr(chainer.dataset, "cached_download", download)
    return urls


@SETS
def test_a_download_is_read_and_kept_as_chainer_keeps_it(
    small, tmp_path, dataset_root, known, monkeypatch
):
    write_set(small, tmp_path, "python2 archive", known)
    archive = tmp_path / f"{small.stem}-python.tar.gz"
    urls = fake_download(monkeypatch, archive)
    downloaded = load_or_download(small)
    assert urls == [f"https://www.cs.toronto.edu/~kriz/{small.stem}-python.tar.gz"]
    kept = load_or_download(small)
    assert len(urls) == 1
    theirs = GET[small.stem]()
    for part, new, again, their in zip(("train", "test"), downloaded, kept, theirs, strict=True):
        expected = draw(small, part)
        for images in (new, again):
            np.testing.assert_array_equal(images.images, expected.images)
            np.testing.assert_array_equal(images.labels, expected.labels)
        assert len(their) == len(expected.images)
        np.testing.assert_allclose(their[1][0] * 255, expected.images[1], rtol=1e-5)
        assert their[1][1] == small.classes - 1


def test_a_damaged_download_is_not_kept(tmp_path, dataset_root, monkeypatch):
    archive = tmp_path / "download"
    archive.write_bytes(b"a page that asks to log in")
    fake_download(monkeypatch, archive)
    with pytest.raises(ProfileError) as error:
        load_or_download(SMALL10)
    assert "is not cifar-10-python.tar.gz, or damaged" in message(error)
    assert not archive.exists()


def test_no_network(dataset_root, monkeypatch):
    def download(url):
        raise urllib.error.URLError("Name or service not known")

    monkeypatch.setattr(chainer.dataset, "cached_download", download)
    with pytest.raises(ProfileError) as error:
        load_or_download(CIFAR100)
    text = message(error)
    assert text.startswith("no CIFAR-100 here, and it cannot be downloaded (URLError: ")
    assert "--data-dir" in text
    assert "--dataset synthetic" in text


@pytest.mark.parametrize("part", ["train", "test"])
def test_a_copy_of_another_size(dataset_root, part):
    path = dataset_root / "pfnet/chainer/cifar/cifar-100.npz"
    path.parent.mkdir(parents=True)
    arrays = {}
    for word in ("train", "test"):
        images, labels = draw(SMALL100, word)
        arrays |= {f"{word}_x": images.reshape(-1, 3072), f"{word}_y": labels}
    arrays[f"{part}_x"] = arrays[f"{part}_x"][:-1]
    np.savez(path, **arrays)
    with pytest.raises(ProfileError) as error:
        load_cifar(SMALL100, None)
    count = SMALL100.counts[part]
    assert f"cifar-100.npz is not CIFAR-100: its images must be bytes of shape ({count}, " in (
        message(error)
    )


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 and no more", b"hello"])
def test_a_damaged_copy(dataset_root, content):
    put(dataset_root / "pfnet/chainer/cifar/cifar-100.npz", content)
    for load in (lambda: load_cifar(CIFAR100, None), lambda: load_or_download(CIFAR100)):
        with pytest.raises(ProfileError) as error:
            load()
        assert "is damaged: delete it and run chainer.datasets.get_cifar100()" in message(error)
