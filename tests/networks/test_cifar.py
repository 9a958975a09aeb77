"""CIFAR by Chainer's loaders, from archives of its site's format that are made here."""

import hashlib
import io
import pickle
import tarfile
from pathlib import Path

import chainer
import numpy as np
import pytest

from chainer_profile.networks import cifar
from chainer_profile.networks.cifar import load_cifar
from tests.refusing import refusal

RNG = np.random.default_rng(0)
PARTS = {
    name: (RNG.integers(0, 256, (count, 3072), np.uint8), RNG.integers(0, 100, count).tolist())
    for name, count in (("train", 20), ("test", 4))
}
COPY = "pfnet/chainer/cifar/cifar-100.npz"


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    """Chainer's dataset root, empty, and no network."""

    def download(*_):
        raise OSError("no network")

    monkeypatch.setattr(chainer.dataset.download.request, "urlretrieve", download)
    before = chainer.dataset.get_dataset_root()
    chainer.dataset.set_dataset_root(str(tmp_path / "root"))
    yield tmp_path / "root"
    chainer.dataset.set_dataset_root(before)


def write_archive(folder, content=None):
    folder.mkdir(exist_ok=True)
    path = folder / "cifar-100-python.tar.gz"
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for name, (images, labels) in PARTS.items():
            data = {"fine_labels": labels, "data": images}
            part = content or pickle.dumps(data, protocol=2)  # as Python 2 has them
            info = tarfile.TarInfo(f"cifar-100-python/{name}")
            info.size = len(part)
            archive.addfile(info, io.BytesIO(part))
    return path


def test_an_archive_in_a_folder_is_read_and_kept_as_chainer_keeps_it(tmp_path, root, monkeypatch):
    archive = write_archive(tmp_path / "mine")
    before = archive.read_bytes()
    monkeypatch.setitem(cifar._MD5, "cifar-100", hashlib.md5(before).hexdigest())
    datasets = load_cifar("cifar100", archive.parent)
    for dataset, (images, labels) in zip(datasets, PARTS.values(), strict=True):
        assert len(dataset) == len(images)
        for pair, image, label in zip(dataset, images, labels, strict=True):
            np.testing.assert_allclose(pair[0], image.reshape(3, 32, 32) / 255, rtol=1e-6)
            assert (pair[0].dtype, pair[1].dtype, pair[1]) == (np.float32, np.int32, label)
    assert archive.read_bytes() == before
    assert list(archive.parent.iterdir()) == [archive]
    assert (root / COPY).exists()
    # Chainer's copy is enough from then on.
    archive.unlink()
    assert len(load_cifar("cifar100")[0]) == 20


def test_only_the_right_archive_is_unpickled(tmp_path, root):
    said = refusal(load_cifar, "cifar10", tmp_path)
    assert said.startswith(f"--data-dir {tmp_path}: cifar-10-python.tar.gz cannot be read (No such")
    assert refusal(load_cifar, "cifar100") == (
        "no CIFAR-100 here, and it cannot be downloaded (OSError: no network): name a folder with "
        "cifar-100-python.tar.gz with --data-dir"
    )
    assert not (root / COPY).exists()
    mark = tmp_path / "mark"

    class Evil:
        def __reduce__(self):
            return Path.touch, (mark,)

    path = write_archive(tmp_path / "mine", pickle.dumps(Evil()))
    said = refusal(load_cifar, "cifar100", path.parent)
    assert said.startswith(f"{path} is not the known archive (its MD5")
    assert not mark.exists()
    assert not (root / COPY).exists()
