"""CIFAR is loaded by Chainer's loaders, from archives in the original format."""

import hashlib
import io
import pickle
import tarfile

import chainer
import numpy as np
import pytest

from chainer_profile.networks import cifar
from chainer_profile.networks.cifar import load_cifar
from tests.command import raising
from tests.refusing import refusal

RNG = np.random.default_rng(0)
SPLITS = {
    name: (RNG.integers(0, 256, (count, 3072), np.uint8), RNG.integers(0, 100, count).tolist())
    for name, count in (("train", 20), ("test", 4))
}
CACHED = "pfnet/chainer/cifar/cifar-100.npz"


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    """An empty dataset root of Chainer, without a network connection."""
    request = chainer.dataset.download.request
    monkeypatch.setattr(request, "urlretrieve", raising(OSError("no network")))
    before = chainer.dataset.get_dataset_root()
    chainer.dataset.set_dataset_root(str(tmp_path / "root"))
    yield tmp_path / "root"
    chainer.dataset.set_dataset_root(before)


@pytest.fixture
def archive(tmp_path):
    path = tmp_path / "mine" / "cifar-100-python.tar.gz"
    path.parent.mkdir()
    with tarfile.open(path, "w:gz", compresslevel=1) as file:
        for name, (images, labels) in SPLITS.items():
            data = {"fine_labels": labels, "data": images}
            content = pickle.dumps(data, protocol=2)  # the protocol of Python 2
            info = tarfile.TarInfo(f"cifar-100-python/{name}")
            info.size = len(content)
            file.addfile(info, io.BytesIO(content))
    return path


def test_archive_in_a_folder_is_loaded_and_cached_like_by_chainer(archive, root, monkeypatch):
    before = archive.read_bytes()
    monkeypatch.setitem(cifar._MD5, "cifar-100", hashlib.md5(before).hexdigest())
    datasets = load_cifar("cifar100", archive.parent)
    for dataset, (images, labels) in zip(datasets, SPLITS.values(), strict=True):
        assert len(dataset) == len(images)
        for pair, image, label in zip(dataset, images, labels, strict=True):
            np.testing.assert_allclose(pair[0], image.reshape(3, 32, 32) / 255, rtol=1e-6)
            assert (pair[0].dtype, pair[1].dtype, pair[1]) == (np.float32, np.int32, label)
    assert archive.read_bytes() == before
    assert list(archive.parent.iterdir()) == [archive]
    assert (root / CACHED).exists()
    # From now on, Chainer's copy is enough.
    archive.unlink()
    assert len(load_cifar("cifar100")[0]) == 20


def test_only_the_known_archive_is_unpickled(archive, tmp_path, root):
    message = refusal(load_cifar, "cifar10", tmp_path)
    assert message.startswith(
        f"--data-dir {tmp_path}: cifar-10-python.tar.gz cannot be read (No such"
    )
    assert refusal(load_cifar, "cifar100") == (
        "no CIFAR-100 here, and it cannot be downloaded (OSError: no network): name a folder with "
        "cifar-100-python.tar.gz with --data-dir"
    )
    message = refusal(load_cifar, "cifar100", archive.parent)
    assert message.startswith(f"{archive} is not the known archive (its MD5")
    assert not (root / CACHED).exists()


def test_user_images_are_read_from_a_file_of_arrays(tmp_path, root):
    rng, path = np.random.default_rng(1), tmp_path / "cifar-10.npz"
    images = rng.integers(0, 256, (12, 3, 32, 32), np.uint8)
    labels = np.arange(12) % 10
    flat = images[:5].reshape(5, 3072)
    np.savez(path, train_x=images, train_y=labels, test_x=flat, test_y=labels[:5])
    train, test = load_cifar("cifar10", tmp_path)
    assert (len(train), len(test)) == (12, 5)
    for dataset in (train, test):
        for (image, label), user_image, number in zip(dataset, images, labels, strict=False):
            np.testing.assert_allclose(image, user_image / 255, rtol=1e-6)
            assert (image.dtype, label.dtype, label) == (np.float32, np.int32, number)
    test_images, test_labels = cifar.load_cifar10_test(tmp_path)
    np.testing.assert_array_equal(test_images, images[:5])
    assert test_labels.tolist() == labels[:5].tolist()
    assert not root.exists()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"train_x": np.zeros((4, 3, 32, 32), "f")}, "train_x does not fit: it has train_x and"),
        ({"train_x": np.zeros((4, 3, 30, 30), np.uint8)}, "train_x does not fit"),
        ({"test_y": np.array([10, 0])}, "test_y must be whole numbers from 0 to 9"),
        ({"test_y": np.array([0.5, 1])}, "test_y must be whole numbers from 0 to 9"),
        ({"train_y": np.array([None] * 4)}, "cannot be read"),
    ],
)
def test_file_of_user_images_with_unsuitable_arrays_is_refused(tmp_path, change, reason):
    arrays = {"train_x": np.zeros((4, 3072), np.uint8), "train_y": np.zeros(4, int)}
    arrays |= {"test_x": np.zeros((2, 3072), np.uint8), "test_y": np.zeros(2, int)}
    path = tmp_path / "cifar-10.npz"
    np.savez(path, **arrays | change)
    message = refusal(load_cifar, "cifar10", tmp_path)
    assert message.startswith(f"{path}")
    assert reason in message
