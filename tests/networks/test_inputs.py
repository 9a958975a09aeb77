"""Input batches: random ones, CIFAR-10's test images, pictures."""

import os
import pickle

import numpy as np
import pytest
from PIL import Image

from chainer_profile.basics.errors import ProfileError, UsageError
from chainer_profile.basics.parsing import parse_shape
from chainer_profile.networks import inputs
from chainer_profile.networks.inputs import load_arguments, make_input
from tests.command import raising
from tests.refusing import refusal

NORMAL = {"mean": (0.4914, 0.4822, 0.4465), "std": (0.2470, 0.2435, 0.2616)}
RGB32 = (3, 32, 32)


def make_batch(kind="random", shape=RGB32, batchsize=1, seed=0, **more):
    """Make a batch, and check the properties that every network needs."""
    batch = make_input(str(kind), shape, batchsize, seed=seed, **more)
    assert batch.array.shape == (batchsize, *shape)
    assert batch.array.dtype == np.float32
    assert batch.array.flags.c_contiguous
    return batch


def refused(kind="random", shape=RGB32, batchsize=1, seed=0, error=UsageError, **more):
    """Return the one-line message about invalid options."""
    return refusal(make_input, str(kind), shape, batchsize, seed=seed, error=error, **more)


def normalised(values):
    """Normalise like make_input, in double precision."""
    mean, std = (np.reshape(constants, (3, 1, 1)) for constants in NORMAL.values())
    return (values - mean) / std


def test_random_inputs_are_uniform_images_or_normal_arrays_and_depend_only_on_the_seed():
    batch = make_batch(batchsize=2, seed=5)
    assert 0 <= batch.array.min() < batch.array.max() < 1
    assert batch.array.std() == pytest.approx(12**-0.5, rel=0.05)
    assert not np.array_equal(batch.array[0], batch.array[1])
    assert batch.description == "random images, seed 5"
    np.testing.assert_array_equal(make_batch(batchsize=2, seed=5).array, batch.array)
    assert not np.array_equal(make_batch(batchsize=2, seed=6).array, batch.array)
    assert make_batch(**NORMAL).description == "random image, seed 0"
    batch = make_batch("random", (4, 7), 300, seed=1)
    assert batch.array.mean() == pytest.approx(0, abs=0.1)
    assert batch.array.std() == pytest.approx(1, abs=0.1)
    assert batch.description == "random arrays, seed 1"


def test_inconsistent_input_options_are_refused():
    for changes, expected in (
        ({"batchsize": 0}, "batch size must be at least 1, not 0"),
        ({"seed": -1}, "seed must not be negative: -1"),
        ({"mean": (0.5,)}, "the mean is for 1 channel, but the input has 3"),
        ({"std": (1, 1)}, "the std is for 2 channels, but the input has 3"),
        ({"kind": "cifar10", "shape": (1, 32, 32)}, "the network takes 1 x 32 x 32"),
        ({"kind": "a.png", "shape": (2, 8, 8)}, "the network takes 2 x 8 x 8"),
    ):
        assert expected in refused(**changes)
    with pytest.raises(ProfileError, match=r"needs at least .* TiB of memory, but .* are free"):
        make_batch(batchsize=10**13)
    for text in ("", "3,", "3,,32", "-1,2", "+3", "1.5,2", "3 32 32", "²", "٣", "9" * 5000):
        assert "not a shape" in refusal(parse_shape, text, error=UsageError)
    assert "at least 1" in refusal(parse_shape, "3x00x1", error=UsageError)


def test_cifar10_images_are_selected_normalised_and_resized(monkeypatch):
    # All images are different.
    images = ((np.arange(10_000)[:, None] * 7 + np.arange(3072)) % 256).astype(np.uint8)
    images, labels = images.reshape(-1, 3, 32, 32), [(3 + 5 * n) % 10 for n in range(10_000)]
    monkeypatch.setattr(inputs, "load_cifar10_test", lambda _: (images, labels))
    cifar = images / 255
    batch = make_batch("cifar10", **NORMAL)
    np.testing.assert_allclose(batch.array, normalised(cifar[:1]), rtol=1e-5, atol=1e-6)
    assert batch.description == "CIFAR-10 test image 0 (cat)"
    batch = make_batch("cifar10", batchsize=3, index=9997)
    np.testing.assert_allclose(batch.array, cifar[-3:], rtol=1e-6)
    assert batch.description == "CIFAR-10 test images 9997 to 9999"
    for index, batchsize, requested in ((-1, 1, "image -1"), (9999, 2, "images 9999 to 10000")):
        message = refused("cifar10", batchsize=batchsize, index=index)
        assert f"has test images 0 to 9999, not {requested}" in message
    # Resized for another network.
    batch = make_batch("cifar10", (3, 16, 12), 2)
    assert batch.description == "CIFAR-10 test images 0 to 1, resized to 12 x 16"
    assert batch.array.mean() == pytest.approx(cifar[:2].mean(), abs=0.01)


@pytest.fixture
def picture():
    """A picture in which red grows to the right and green downwards; blue is constant."""
    array = np.full((48, 64, 3), 51, np.uint8)
    array[..., 0] = np.linspace(0, 255, 64)
    array[..., 1] = np.linspace(0, 255, 48)[:, None]
    return Image.fromarray(array)


def test_pictures_are_cropped_and_resized_if_needed(tmp_path, picture):
    path = tmp_path / "dog.png"
    picture.save(path)
    batch = make_batch(path)
    assert batch.description == "picture dog.png, 64 x 48, resized to 32 x 32"
    red, green, blue = batch.array[0]
    assert blue.mean() == pytest.approx(0.2, abs=0.01)
    # The middle 48 of 64 columns, and all rows.
    ends = [red[:, 0].mean(), red[:, -1].mean(), green[0].mean(), green[-1].mean()]
    assert ends == pytest.approx([8.5 / 63, 54.5 / 63, 0, 1], abs=0.03)
    batch = make_batch(path, (3, 48, 64), 2, **NORMAL)
    pixels = np.asarray(picture).transpose(2, 0, 1) / 255
    for array in batch.array:
        np.testing.assert_allclose(array, normalised(pixels), rtol=1e-5, atol=1e-6)
    assert batch.description == "picture dog.png, 64 x 48, 2 times"


def test_files_that_are_not_pictures_are_refused(tmp_path, picture, monkeypatch):
    path = tmp_path / "p.png"
    assert "Is a directory" in refused(tmp_path, error=ProfileError)
    path.touch()
    assert refused(path, error=ProfileError) == f"{path} is not a picture that Pillow can read"
    picture.save(path)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) * 2 // 3])
    assert str(path) in refused(path, error=ProfileError)
    path.write_bytes(content)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 2000)
    assert f"{path} is too large: at most " in refused(path, error=ProfileError)
    monkeypatch.setattr(Image, "open", raising(MemoryError()))
    assert "1 inputs of shape 3 x 32 x 32 does not fit" in refused(path, error=ProfileError)


# -- arrays of files


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("x.npy", np.array([None, 1]), "(it contains Python objects, not numbers): give a file of"),
        ("x.npz", np.array([None, 1]), "(it contains Python objects, not numbers): give a file of"),
        ("x.npy", np.array(["a"]), "contains <U1: save arrays of numbers"),
        ("x.npz", np.zeros(2, "datetime64[s]"), "contains datetime64[s]: save arrays of numbers"),
    ],
)
def test_arrays_of_a_file_are_numbers(name, array, message, tmp_path):
    path = tmp_path / name
    (np.savez if path.suffix == ".npz" else np.save)(path, array)
    text = refusal(load_arguments, path)
    assert text.startswith(str(path))
    assert message in text
    assert "allow_pickle" not in text


@pytest.mark.parametrize("name", ["x.npy", "x.npz"])
def test_files_that_hold_no_arrays_are_refused_without_advice_to_unpickle(name, tmp_path):
    path = tmp_path / name
    for content in (b"", b"1,2,3\n", pickle.dumps([1]), b"\x93NUMPY\x01\x00", b"PK\x03\x04"):
        path.write_bytes(content)
        text = refusal(load_arguments, path)
        assert text.startswith(f"{path} cannot be read (")
        assert text.endswith("): give a file of numpy.save or numpy.savez")
        assert "pickle" not in text
    path.unlink()
    os.mkfifo(path)
    assert f"{path} cannot be read (not a regular file)" in refusal(load_arguments, path)
    path.unlink()
    assert refusal(load_arguments, path) == f"there is no file {path}"


def test_picture_must_be_a_regular_file(tmp_path):
    os.mkfifo(tmp_path / "p.png")
    message = refused(tmp_path / "p.png", error=ProfileError)
    assert message == f"cannot read the picture {tmp_path / 'p.png'}: not a regular file"
