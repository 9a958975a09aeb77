"""Input batches: random ones, CIFAR-10 in all its forms, pictures."""

import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import chainer_profile  # noqa: F401  (lets Chainer import on current NumPy)

# isort: split
import chainer

from chainer_profile.basics.errors import ProfileError, UsageError
from chainer_profile.basics.parsing import parse_shape
from chainer_profile.networks.inputs import CIFAR10_CLASSES, make_input

MEAN = (0.4914, 0.4822, 0.4465)
STD = (0.2470, 0.2435, 0.2616)
RGB32 = (3, 32, 32)


def message(error):
    """The text of an error, which must be one line."""
    text = str(error.value)
    assert text
    assert "\n" not in text
    return text


def normalised(values):
    """The same as make_input does, in double precision."""
    return (values - np.reshape(MEAN, (3, 1, 1))) / np.reshape(STD, (3, 1, 1))


# --- shapes


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=6), st.sampled_from([",", "x", "X"]))
def test_a_written_shape_is_read_back(shape, separator):
    assert parse_shape(separator.join(map(str, shape))) == tuple(shape)


def test_spaces_are_allowed():
    assert parse_shape(" 3, 32, 32 ") == RGB32


@pytest.mark.parametrize(
    "text",
    [
        *("", "3,", ",3", "3,,32", "a", "3,b", "-1,2", "+3"),
        *("1.5,2", "1e3", "3 32 32", "²", "٣", "9" * 5000),
    ],
)
def test_nonsense_is_no_shape(text):
    with pytest.raises(UsageError) as error:
        parse_shape(text)
    assert "not a shape" in message(error)
    assert "3,32,32" in message(error)


@pytest.mark.parametrize("text", ["0", "3,0,32", "3x00x1"])
def test_a_shape_has_no_zero(text):
    with pytest.raises(UsageError, match="at least 1"):
        parse_shape(text)


# --- random


def test_a_random_image_is_uniform_in_0_to_1():
    batch = make_input("random", RGB32, 2, seed=0)
    assert batch.array.shape == (2, 3, 32, 32)
    assert batch.array.dtype == np.float32
    assert batch.array.flags.c_contiguous
    assert batch.array.min() >= 0
    assert batch.array.max() < 1
    assert batch.array.std() == pytest.approx(12**-0.5, rel=0.05)
    assert not np.array_equal(batch.array[0], batch.array[1])
    assert batch.description == "random images, seed 0"
    assert batch.labels is None


def test_a_random_image_is_normalised():
    plain = make_input("random", RGB32, 1, seed=0).array
    batch = make_input("random", RGB32, 1, seed=0, mean=MEAN, std=STD)
    np.testing.assert_allclose(batch.array, normalised(plain), rtol=1e-5, atol=1e-6)
    assert batch.array.dtype == np.float32
    assert batch.description == "random image, seed 0"


@pytest.mark.parametrize("shape", [(10,), (4, 7), (3, 4, 5, 6)])
def test_other_shapes_get_standard_normal_values(shape):
    batch = make_input("random", shape, 300, seed=1)
    assert batch.array.shape == (300, *shape)
    assert batch.array.dtype == np.float32
    assert batch.array.mean() == pytest.approx(0, abs=0.1)
    assert batch.array.std() == pytest.approx(1, abs=0.1)
    assert batch.description == "random arrays, seed 1"


def test_the_seed_alone_decides():
    first, again, other = (make_input("random", RGB32, 1, seed=s).array for s in (5, 5, 6))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_the_global_generator_is_left_alone():
    np.random.seed(0)  # noqa: NPY002  (what is tested)
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    make_input("random", RGB32, 1, seed=3)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"batchsize": 0}, "batch size must be at least 1, not 0"),
        ({"seed": -1}, "seed must not be negative: -1"),
        ({"mean": (0.5,)}, "the mean is for 1 channels, but the input has 3"),
        ({"std": (1, 1)}, "the std is for 2 channels, but the input has 3"),
        ({"kind": "cifar"}, "unknown input 'cifar': it is random, cifar10 or the path of"),
        ({"kind": "cifar10", "shape": (10,)}, "the network takes 10"),
        ({"kind": "cifar10", "shape": (1, 32, 32)}, "the network takes 1 x 32 x 32"),
        ({"kind": "a.png", "shape": (2, 8, 8)}, "the network takes 2 x 8 x 8"),
        ({"kind": "a.png", "shape": (8,)}, "a picture has 1 or 3 channels"),
    ],
)
def test_values_that_do_not_go_together(changes, expected):
    arguments = {"kind": "random", "shape": RGB32, "batchsize": 1, "seed": 0, **changes}
    with pytest.raises(UsageError) as error:
        make_input(**arguments)
    assert expected in message(error)


def test_a_batch_that_no_memory_holds():
    with pytest.raises(ProfileError, match=r"needs at least .* TiB of memory, and .* are free"):
        make_input("random", RGB32, 10**13, seed=0)


# --- CIFAR-10; its other forms are in test_cifar.py


@pytest.fixture(scope="module")
def cifar():
    """Images (10000, 3072) and labels; the pixels tell one image from the next."""
    number = np.arange(10_000)[:, None]
    pixel = np.arange(3072)[None, :]
    images = ((number * 7 + pixel) % 256).astype(np.uint8)
    return images, [(3 + 5 * n) % 10 for n in range(10_000)]


@pytest.fixture(scope="module", autouse=True)
def dataset_root(cifar, tmp_path_factory):
    """Chainer's own copy of the test images."""
    images, labels = cifar
    before = chainer.dataset.get_dataset_root()
    root = tmp_path_factory.mktemp("root")
    path = root / "pfnet/chainer/cifar/cifar-10.npz"
    path.parent.mkdir(parents=True)
    np.savez(path, test_x=images, test_y=np.array(labels, np.uint8))
    chainer.dataset.set_dataset_root(str(root))
    yield
    chainer.dataset.set_dataset_root(before)


def test_a_test_image_is_scaled_and_normalised(cifar):
    images, labels = cifar
    batch = make_input("cifar10", RGB32, 1, seed=0, mean=MEAN, std=STD)
    expected = normalised(images[0].reshape(1, 3, 32, 32) / 255)
    np.testing.assert_allclose(batch.array, expected, rtol=1e-5, atol=1e-6)
    assert batch.array.dtype == np.float32
    assert batch.description == "CIFAR-10 test image 0 (cat)"
    assert batch.labels == (labels[0],) == (CIFAR10_CLASSES.index("cat"),)


def test_a_batch_is_the_images_from_the_index_on(cifar):
    images, labels = cifar
    batch = make_input("cifar10", RGB32, 3, seed=0, index=9997)
    np.testing.assert_allclose(batch.array, images[-3:].reshape(3, 3, 32, 32) / 255, rtol=1e-6)
    assert batch.description == "CIFAR-10 test images 9997 to 9999"
    assert batch.labels == tuple(labels[-3:])


@pytest.mark.parametrize(
    ("index", "batchsize", "asked"),
    [(-1, 1, "image -1"), (10_000, 1, "image 10000"), (9999, 2, "images 9999 to 10000")],
)
def test_images_that_there_are_not(index, batchsize, asked):
    with pytest.raises(UsageError) as error:
        make_input("cifar10", RGB32, batchsize, seed=0, index=index)
    assert f"has the test images 0 to 9999; asked for: {asked}" in message(error)


def test_a_test_image_is_resized_for_another_network(cifar):
    batch = make_input("cifar10", (3, 64, 48), 2, seed=0)
    assert batch.array.shape == (2, 3, 64, 48)
    assert batch.array.dtype == np.float32
    assert batch.array.flags.c_contiguous
    assert 0 <= batch.array.min() < batch.array.max() <= 1
    assert batch.description == "CIFAR-10 test images 0 to 1, resized to 48 x 64"
    half = make_input("cifar10", (3, 16, 16), 1, seed=0).array[0]
    whole = make_input("cifar10", RGB32, 1, seed=0).array[0]
    assert half.mean() == pytest.approx(whole.mean(), abs=0.01)


def put(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


# --- pictures


def gradient(width, height):
    """Red grows to the right, green downwards; blue is constant."""
    array = np.zeros((height, width, 3), np.uint8)
    array[..., 0] = np.linspace(0, 255, width)[None, :]
    array[..., 1] = np.linspace(0, 255, height)[:, None]
    array[..., 2] = 51
    return Image.fromarray(array)


@pytest.mark.parametrize("suffix", ["png", "bmp", "jpg", "jpeg", "webp"])
def test_pictures_of_every_format(tmp_path, suffix):
    path = tmp_path / f"dog.{suffix}"
    gradient(64, 48).save(path, quality=95)
    batch = make_input(str(path), RGB32, 1, seed=0)
    assert batch.array.shape == (1, 3, 32, 32)
    assert batch.array.dtype == np.float32
    assert batch.array.flags.c_contiguous
    assert batch.description == f"picture dog.{suffix}, 64 x 48, resized to 32 x 32"
    red, green, blue = batch.array[0]
    assert blue.mean() == pytest.approx(0.2, abs=0.03)
    # The middle 48 of 64 columns, and all the rows.
    assert red[:, 0].mean() == pytest.approx(8.5 / 63, abs=0.03)
    assert red[:, -1].mean() == pytest.approx(54.5 / 63, abs=0.03)
    assert green[0].mean() == pytest.approx(0, abs=0.03)
    assert green[-1].mean() == pytest.approx(1, abs=0.03)


def test_a_picture_of_the_right_size_is_taken_as_it_is(tmp_path):
    picture = gradient(20, 10)
    picture.save(tmp_path / "p.png")
    batch = make_input(str(tmp_path / "p.png"), (3, 10, 20), 2, seed=0, mean=MEAN, std=STD)
    pixels = np.asarray(picture).transpose(2, 0, 1) / 255
    np.testing.assert_allclose(batch.array[0], normalised(pixels), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(batch.array[1], batch.array[0])
    assert batch.description == "picture p.png, 20 x 10, the same in all 2 places of the batch"
    assert batch.labels is None


def test_grey_for_a_network_of_one_channel(tmp_path):
    Image.new("RGB", (8, 8), (255, 255, 255)).save(tmp_path / "white.png")
    batch = make_input(str(tmp_path / "white.png"), (1, 4, 4), 1, seed=0)
    np.testing.assert_array_equal(batch.array, np.ones((1, 1, 4, 4), np.float32))


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "LA", "1", "CMYK", "I;16"])
def test_pictures_of_every_mode(tmp_path, mode):
    path = tmp_path / ("p.tif" if mode == "CMYK" else "p.png")
    if mode == "I;16":
        Image.fromarray(np.full((4, 4), 0x8000, np.uint16)).save(path)
        expected = 0.5
    else:
        Image.new("L", (4, 4), 255).convert("RGB").convert(mode).save(path)
        expected = 1
    batch = make_input(str(path), (3, 4, 4), 1, seed=0)
    assert batch.array == pytest.approx(expected, abs=0.01)


def test_a_picture_is_turned_upright(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # lies on its side: a quarter turn to the right sets it up
    gradient(40, 20).save(tmp_path / "p.png", exif=exif)
    batch = make_input(str(tmp_path / "p.png"), (3, 40, 20), 1, seed=0)
    assert batch.description == "picture p.png, 20 x 40"
    red = batch.array[0, 0]
    assert red[0].max() == 0
    assert red[-1].min() == 1


def refused_picture(path):
    with pytest.raises(ProfileError) as error:
        make_input(str(path), RGB32, 1, seed=0)
    assert error.value.exit_code == 1
    text = message(error)
    assert str(path) in text
    return text


def test_files_that_are_no_pictures(tmp_path):
    assert "there is no picture" in refused_picture(tmp_path / "none.png")
    assert "Is a directory" in refused_picture(tmp_path)
    put(tmp_path / "text.png", b"hello")
    assert "is not a picture that Pillow can read" in refused_picture(tmp_path / "text.png")
    put(tmp_path / "empty.jpg", b"")
    assert "is not a picture that Pillow can read" in refused_picture(tmp_path / "empty.jpg")


@pytest.mark.parametrize("suffix", ["png", "jpg", "bmp", "webp"])
def test_a_truncated_picture(tmp_path, suffix):
    path = tmp_path / f"p.{suffix}"
    gradient(64, 64).save(path)
    content = path.read_bytes()
    put(path, content[: len(content) * 2 // 3])
    assert "picture" in refused_picture(path)


@pytest.mark.parametrize("side", [10_000, 20_000])
def test_a_decompression_bomb(tmp_path, side):
    path = tmp_path / "bomb.png"
    Image.new("1", (8, 8)).save(path)
    content = bytearray(path.read_bytes())
    content[16:24] = struct.pack(">II", side, side)  # width and height in the header
    content[29:33] = struct.pack(">I", zlib.crc32(content[12:29]))
    put(path, bytes(content))
    assert "too large: at most 89 million pixels" in refused_picture(path)


def test_a_picture_that_no_memory_holds(monkeypatch):
    def open_picture(path):
        raise MemoryError

    monkeypatch.setattr(Image, "open", open_picture)
    with pytest.raises(ProfileError, match="1 inputs of shape 3 x 32 x 32 does not fit"):
        make_input("p.png", RGB32, 1, seed=0)
