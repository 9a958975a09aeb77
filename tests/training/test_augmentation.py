"""Random crops and flips."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.training.augmentation import PAD, augment


def all_crops(image):
    """Every image that the augmentation may make of one, by (top, left, flip)."""
    _, height, width = image.shape
    padded = np.pad(image, ((0, 0), (PAD, PAD), (PAD, PAD)))
    crops = {}
    for top in range(2 * PAD + 1):
        for left in range(2 * PAD + 1):
            crop = padded[:, top : top + height, left : left + width]
            crops[crop.tobytes()] = (top, left, False)
            crops[crop[:, :, ::-1].tobytes()] = (top, left, True)
    return crops


@given(st.integers(1, 3), st.integers(5, 9), st.integers(5, 9), st.integers(0, 2**32))
def test_each_image_is_one_of_its_crops(channels, height, width, seed):
    generator = np.random.default_rng(seed)
    images = generator.integers(1, 256, (4, channels, height, width), dtype=np.uint8)
    before = images.copy()
    made = augment(images, np.random.default_rng(seed))
    assert (made.shape, made.dtype) == (images.shape, images.dtype)
    np.testing.assert_array_equal(images, before)
    for image, result in zip(images, made, strict=True):
        assert result.tobytes() in all_crops(image)


def test_all_crops_and_flips_are_equally_likely():
    image = np.random.default_rng(0).integers(1, 256, (3, 8, 8), dtype=np.uint8)
    made = augment(np.repeat(image[None], 16_200, axis=0), np.random.default_rng(1))
    crops = all_crops(image)
    assert len(crops) == 162
    found = [crops[result.tobytes()] for result in made]
    counts = np.unique(found, axis=0, return_counts=True)[1]
    assert len(counts) == 162
    assert 50 < counts.min() <= counts.max() < 150  # 100 each


def test_the_generator_alone_decides():
    images = np.random.default_rng(0).integers(0, 256, (20, 3, 32, 32), dtype=np.uint8)
    first, again, other = (augment(images, np.random.default_rng(s)) for s in (5, 5, 6))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_what_is_added_is_black(dtype):
    made = augment(np.ones((50, 1, 32, 32), dtype), np.random.default_rng(0))
    assert made.dtype == dtype
    assert set(np.unique(made)) == {0, 1}
    # At most 4 rows and 4 columns are outside.
    assert made.mean(axis=(1, 2, 3)).min() >= (28 / 32) ** 2
