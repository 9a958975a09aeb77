"""The images that ``train`` uses: CIFAR, or synthetic ones; normalised, and cropped at random."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from chainer.datasets import TransformDataset, TupleDataset

from chainer_profile.networks.cifar import load_cifar

#: Black pixels added on each side before an image is cropped, as He et al. do.
PAD = 4
#: The synthetic set has stripes with these periods in pixels, in three directions, and no stripes.
_PERIODS = np.array([3.0, 5.0, 9.0])
N_SYNTHETIC = 3 * len(_PERIODS) + 1


def load(name: str, data_dir: Path | None, synthetic_size: int, seed: int) -> tuple[Any, Any]:
    """Load or make the training and the test set: float32 images from 0 to 1, int32 labels."""
    if name != "synthetic":
        return load_cifar(name, data_dir)
    rng = np.random.default_rng(seed)
    # The synthetic test set is half as large.
    return synthetic(synthetic_size, rng), synthetic(max(1, synthetic_size // 2), rng)


def synthetic(count: int, rng: np.random.Generator) -> Any:
    """Make ``count`` noisy grey images of 10 classes: stripes in 3 directions and widths, or none.

    The classes differ in texture, and not in colour: the mean colour of a batch of few images would
    depend on their classes, and batch normalization subtracts it.
    """
    labels = rng.permutation(np.arange(count) % N_SYNTHETIC).astype(np.int32)

    def uniform(low: float, high: float) -> Any:
        return rng.uniform(low, high, (count, 1, 1, 1))

    direction, width = np.divmod(labels.reshape(-1, 1, 1, 1), len(_PERIODS))
    down, right = np.indices((32, 32))
    # A flip turns one diagonal into the other.
    along = np.choose(direction, [right, down, (right + down) / np.sqrt(2), 0])
    stripes = np.sin(2 * np.pi * (along / _PERIODS[width] + uniform(0, 1)))
    grey = 120 + uniform(-20, 20) + uniform(60, 100) * np.where(direction < 3, stripes, 0)
    images = grey + rng.normal(0, 15, (count, 3, 32, 32))
    return TupleDataset((images.clip(0, 255) / 255).astype(np.float32), labels)


def prepared(
    images: Any, mean: Sequence[float] | None, std: Sequence[float] | None, crop_seed: int | None
) -> Any:
    """Normalise a set by channel; with a seed, also crop and flip its images at random."""
    shift = np.array(0.0 if mean is None else mean, np.float32).reshape(-1, 1, 1)
    scale = np.array(1.0 if std is None else std, np.float32).reshape(-1, 1, 1)
    rng = None if crop_seed is None else np.random.default_rng(crop_seed)

    def prepare(pair: Any) -> Any:
        image, label = pair
        if rng is not None:
            image = cropped(image, rng)
        return (image - shift) / scale, label

    return TransformDataset(images, prepare)


def cropped(image: Any, rng: np.random.Generator) -> Any:
    """Pad an image by black pixels, crop it at random, and flip it with a probability of 1/2."""
    _, height, width = image.shape
    padded = np.pad(image, ((0, 0), (PAD, PAD), (PAD, PAD)))
    top, left = rng.integers(0, 2 * PAD + 1, 2)
    window = padded[:, top : top + height, left : left + width]
    return window[:, :, ::-1] if rng.random() < 0.5 else window
