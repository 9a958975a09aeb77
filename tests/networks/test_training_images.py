"""Images of a training: synthetic ones, normalised and cropped at random."""

import numpy as np

from chainer_profile.networks.training_images import PAD, cropped, load, prepared


def test_crops_cover_the_padded_image_with_and_without_flips():
    height, width = 3, 2
    image = np.arange(1, 2 * height * width + 1, dtype=np.float32).reshape(2, height, width)
    padded = np.pad(image, ((0, 0), (PAD, PAD), (PAD, PAD)))
    parts = {
        part.tobytes()
        for top in range(2 * PAD + 1)
        for left in range(2 * PAD + 1)
        for crop in [padded[:, top : top + height, left : left + width]]
        for part in (crop, crop[:, :, ::-1])
    }
    rng = np.random.default_rng(0)
    assert {cropped(image, rng).tobytes() for _ in range(3000)} == parts


def test_synthetic_images_are_normalised_and_only_training_images_are_cropped():
    train, test = load("synthetic", None, 50, seed=0)
    labels = [int(label) for _, label in train]
    assert [labels.count(label) for label in range(10)] == [5] * 10
    assert len(test) == 25
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.25, 0.5)
    plain = prepared(test, mean, std, None)
    for (image, label), (raw, expected) in zip(plain, test, strict=True):
        assert 0 <= raw.min() <= raw.max() <= 1
        by_channel = (raw - np.array(mean).reshape(3, 1, 1)) / np.array(std).reshape(3, 1, 1)
        np.testing.assert_allclose(image, by_channel, rtol=1e-4, atol=1e-5)
        assert (image.dtype, label) == (np.float32, expected)
    augmented = prepared(test, None, None, 3)
    assert any(not np.array_equal(a[0], b[0]) for a, b in zip(augmented, test, strict=True))
