"""The synthetic set: in CIFAR-10's format, deterministic, and made of classes that can be told."""

from pathlib import Path

import numpy as np
import pytest

from chainer_profile.basics.errors import ProfileError, UsageError
from chainer_profile.networks.cifar import CIFAR10, load_cifar
from chainer_profile.training.augmentation import augment
from chainer_profile.training.synthetic import _COLOURS, synthetic_set, write_synthetic


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_it_is_read_by_the_loader_of_cifar10(tmp_path):
    made = write_synthetic(tmp_path / "set", 50, seed=3)
    train, test = load_cifar(made, tmp_path / "set")
    assert train.images.shape == (50, 3, 32, 32)
    assert test.images.shape == (25, 3, 32, 32)
    assert np.bincount(train.labels, minlength=10).tolist() == [5] * 10
    assert set(test.labels) == set(range(10))
    names = {f"{name}.bin" for part in CIFAR10.files.values() for name in part}
    assert set(contents(tmp_path / "set")) == names | {"batches.meta.txt", "synthetic.txt"}
    lines = (tmp_path / "set" / "batches.meta.txt").read_text().splitlines()
    assert len(set(lines)) == 10
    assert not list(tmp_path.glob(".*"))


def test_the_real_set_s_reader_tells_that_it_is_another(tmp_path):
    write_synthetic(tmp_path / "set", 50, seed=3)
    with pytest.raises(ProfileError, match="must have 30730000 bytes, not 30730"):
        load_cifar(CIFAR10, tmp_path / "set")


def test_the_seed_decides(tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_synthetic(tmp_path / name, 50, seed)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    first, other = (load_cifar(synthetic_set(50), tmp_path / name)[0] for name in "ac")
    assert not np.array_equal(first.images, other.images)


def tell(image):
    """The class of an image, by the colour of its stripes."""
    image = image[:, 4:-4, 4:-4].astype(float)  # without what cropping may have added
    tint = image.mean(axis=(1, 2)) - 120
    colours = np.array([colour for _, colour in _COLOURS])
    return int((colours @ tint / np.linalg.norm(colours, axis=1)).argmax())


def test_the_classes_can_be_told_after_cropping_and_flipping(tmp_path):
    made = write_synthetic(tmp_path / "set", 500, seed=0)
    train, test = load_cifar(made, tmp_path / "set")
    for images, labels in (test, (augment(train.images, np.random.default_rng(0)), train.labels)):
        told = [tell(image) for image in images]
        assert np.mean(told == labels) > 0.98


def test_they_cannot_be_told_from_one_pixel(tmp_path):
    made = write_synthetic(tmp_path / "set", 1000, seed=0)
    test = load_cifar(made, tmp_path / "set", ["test"])[0]
    told = [tell(np.repeat(np.repeat(i[:, 9:10, 9:10], 32, 1), 32, 2)) for i in test.images]
    assert np.mean(told == test.labels) < 0.7


@pytest.mark.parametrize("count", [1, 9, 15, 101])
def test_other_numbers(tmp_path, count):
    with pytest.raises(UsageError, match=f"multiple of 10 training images.*not {count}"):
        write_synthetic(tmp_path / "set", count, seed=0)
    assert not list(tmp_path.iterdir())


def test_the_same_set_is_left_alone(tmp_path):
    folder = tmp_path / "set"
    write_synthetic(folder, 50, seed=3)
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    write_synthetic(folder, 50, seed=3)
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before


def test_an_empty_folder_is_taken(tmp_path):
    write_synthetic(tmp_path, 50, seed=3)
    assert (tmp_path / "test_batch.bin").exists()


def test_another_set_is_replaced_only_when_that_is_asked_for(tmp_path):
    folder = tmp_path / "set"
    write_synthetic(folder, 50, seed=3)
    before = contents(folder)
    with pytest.raises(UsageError) as error:
        write_synthetic(folder, 60, seed=3)
    assert str(error.value) == (
        f"{folder} holds a synthetic set of 50 training images, seed 3, not a synthetic set of 60 "
        "training images, seed 3: name an empty folder"
    )
    assert contents(folder) == before
    made = write_synthetic(folder, 60, seed=3, replace=True)
    assert len(load_cifar(made, folder)[0].images) == 60


def test_a_set_with_somebody_s_file_beside_it_is_not_replaced(tmp_path):
    folder = tmp_path / "set"
    write_synthetic(folder, 50, seed=3)
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="holds other files, not a synthetic set of 60"):
        write_synthetic(folder, 60, seed=3, replace=True)
    assert (folder / "notes.txt").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


@pytest.mark.parametrize("replace", [False, True])
def test_somebody_s_files_are_never_replaced(tmp_path, replace):
    (tmp_path / "data_batch_1.bin").write_bytes(b"the real one")
    with pytest.raises(UsageError, match="holds other files, not a synthetic set"):
        write_synthetic(tmp_path, 50, seed=0, replace=replace)
    assert contents(tmp_path) == {"data_batch_1.bin": b"the real one"}


def test_a_place_that_cannot_be_written(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"")
    for place in (file, Path(file, "set")):
        with pytest.raises(ProfileError, match="cannot be written"):
            write_synthetic(place, 50, seed=0)
