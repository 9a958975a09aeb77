"""The images that ``train`` trains on: CIFAR-10, CIFAR-100, or a synthetic set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from chainer.datasets import TransformDataset, TupleDataset

from chainer_profile.networks.cifar import load_cifar

#: Black pixels added on each side before an image is cropped, as He et al. do.
PAD = 4
#: The classes of the synthetic set: colours of stripes, which crops and flips leave as they are.
_COLOURS = np.array(
    [
        *((1, -1, -1), (1, 0, -1), (1, 1, -1), (-1, 1, -1), (-1, 1, 1)),
        *((-1, 0, 1), (-1, -1, 1), (1, -1, 1), (1, 1, 1), (-1, -1, -1)),
    ]
)


def load(name: str, data_dir: Path | None, synthetic_size: int, seed: int) -> tuple[Any, Any]:
    """The training and the test set: float32 images from 0 to 1, int32 labels.

    ``synthetic_size`` is the number of training images; the synthetic set has half as many to test.
    """
    if name != "synthetic":
        return load_cifar(name, data_dir)
    rng = np.random.default_rng(seed)
    return synthetic(synthetic_size, rng), synthetic(max(1, synthetic_size // 2), rng)


def synthetic(count: int, rng: np.random.Generator) -> Any:
    """Stripes of ten colours under noise, which a network learns in two minutes.

    Direction, width and place of the stripes, contrast and brightness are random.
    """
    labels = rng.permutation(np.arange(count) % len(_COLOURS)).astype(np.int32)

    def uniform(low: float, high: float) -> Any:
        return rng.uniform(low, high, (count, 1, 1, 1))

    angle, place = uniform(0, np.pi), np.arange(32)
    along = np.cos(angle) * place + np.sin(angle) * place.reshape(-1, 1)
    stripes = np.sin(2 * np.pi * (along / uniform(5, 12) + uniform(0, 1)))
    colours = _COLOURS[labels].reshape(-1, 3, 1, 1)
    images = 120 + uniform(-10, 10) + uniform(80, 120) * (stripes + 1) / 2 * colours
    images = images + rng.normal(0, 25, (count, 3, 32, 32))
    return TupleDataset((images.clip(0, 255) / 255).astype(np.float32), labels)


def prepared(
    images: Any, mean: Sequence[float] | None, std: Sequence[float] | None, crop_seed: int | None
) -> Any:
    """A set as the network takes it: normalised by each channel's mean and std, if there are any.

    With a ``crop_seed`` each image is cropped and flipped by chance.
    """
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
    """An image padded by black pixels, cropped to its size at random, every second one flipped."""
    _, height, width = image.shape
    padded = np.pad(image, ((0, 0), (PAD, PAD), (PAD, PAD)))
    top, left = rng.integers(0, 2 * PAD + 1, 2)
    window = padded[:, top : top + height, left : left + width]
    return window[:, :, ::-1] if rng.random() < 0.5 else window
