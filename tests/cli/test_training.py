"""The images that train trains on."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.cli.train import PAD, cropped, load, prepared


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 2**32))
def test_a_crop_is_a_part_of_the_padded_image(height: int, width: int, seed: int) -> None:
    image = np.arange(1, 2 * height * width + 1, dtype=np.float32).reshape(2, height, width)
    padded = np.pad(image, ((0, 0), (PAD, PAD), (PAD, PAD)))
    found = cropped(image, np.random.default_rng(seed))
    places = [
        padded[:, top : top + height, left : left + width]
        for top in range(2 * PAD + 1)
        for left in range(2 * PAD + 1)
    ]
    assert any(
        np.array_equal(found, one) or np.array_equal(found, one[:, :, ::-1]) for one in places
    )


def test_all_crops_and_flips_come() -> None:
    image = np.arange(1, 26, dtype=np.float32).reshape(1, 5, 5)
    rng = np.random.default_rng(0)
    assert len({cropped(image, rng).tobytes() for _ in range(3000)}) == 2 * (2 * PAD + 1) ** 2


def test_images_are_normalised_and_only_training_images_are_cropped() -> None:
    _, test = load("synthetic", None, 20, seed=0)
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.25, 0.5)
    plain = prepared(test, mean, std, None)
    for (image, label), (raw, expected) in zip(plain, test, strict=True):
        by_channel = (raw - np.array(mean).reshape(3, 1, 1)) / np.array(std).reshape(3, 1, 1)
        np.testing.assert_allclose(image, by_channel, rtol=1e-4, atol=1e-5)
        assert (image.dtype, label) == (np.float32, expected)
    first, again = prepared(test, None, None, 3), prepared(test, None, None, 3)
    assert all(np.array_equal(a[0], b[0]) for a, b in zip(first, again, strict=True))
    assert any(not np.array_equal(a[0], b[0]) for a, b in zip(first, test, strict=True))


@pytest.mark.parametrize("size", [1, 7, 50])
def test_the_synthetic_set(size: int) -> None:
    train, test = load("synthetic", None, size, seed=1)
    assert (len(train), len(test)) == (size, max(1, size // 2))
    images = np.stack([image for image, _ in train])
    assert (images.shape, images.dtype) == ((size, 3, 32, 32), np.float32)
    assert 0 <= images.min() <= images.max() <= 1
    labels = [int(label) for _, label in train]
    assert max(map(labels.count, range(10))) - min(map(labels.count, range(10))) <= 1
    again, other = load("synthetic", None, size, seed=1), load("synthetic", None, size, seed=2)
    assert np.array_equal(again[0][0][0], train[0][0])
    assert not np.array_equal(other[0][0][0], train[0][0])


def test_the_classes_are_told_by_colour_and_not_by_one_pixel() -> None:
    """The mean colour of an image tells its class; crops and flips leave it."""
    train, _ = load("synthetic", None, 300, seed=0)
    colours = np.stack(
        [cropped(image, np.random.default_rng(0)).mean((1, 2)) for image, _ in train]
    )
    directions = colours - colours.mean(axis=1, keepdims=True)
    labels = np.array([label for _, label in train])
    red, blue = labels == 0, labels == 6
    assert directions[red].mean(0).argmax() == 0
    assert directions[blue].mean(0).argmax() == 2
    pixels = np.stack([image[:, 16, 16] for image, _ in train])
    spread = pixels[red].std(0)
    assert (spread > 0.05).all()
