"""A small labelled set in CIFAR-10's file format, so that training can be tried offline."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainer_profile.basics.errors import ProfileError, UsageError
from chainer_profile.basics.files import part_of
from chainer_profile.networks.cifar import CIFAR10, Cifar, Images, binary_records

if TYPE_CHECKING:
    import numpy

_MARK = "synthetic.txt"
_NAMES = "batches.meta.txt"


def synthetic_set(train_images: int) -> Cifar:
    """A set of ``train_images`` training and half as many test images in CIFAR-10's format.

    Raises:
        UsageError: If the number is not a multiple of 10.
    """
    if train_images < 10 or train_images % 10:
        raise UsageError(
            f"a synthetic set has a multiple of 10 training images (10 classes, 5 files), "
            f"not {train_images}"
        )
    return Cifar(
        name="the synthetic set",
        classes=10,
        stem="synthetic",
        python_folder="synthetic-py",
        binary_folder="synthetic-bin",
        files=CIFAR10.files,
        counts={"train": train_images // 5, "test": train_images // 2},
    )


def write_synthetic(folder: Path, train_images: int, seed: int, replace: bool = False) -> Cifar:
    """Writes a small labelled set in CIFAR-10's binary format, for :func:`load_cifar`.

    The ten classes are ten colours of stripes on grey: what cropping and flipping leave as it is.
    Direction, width and place of the stripes, contrast and brightness are random, and there is
    noise.

    Args:
        folder: Where to; must be absent or empty, or hold the same set, which is left as it is.
        train_images: Number of training images, a multiple of 10; there are half as many test
            images. All classes are equally frequent as far as that goes.
        seed: Seed of the images.
        replace: Whether another synthetic set in the folder may be replaced, if nothing else is in
            it.

    Returns:
        Cifar: The description to read it with.

    Raises:
        UsageError: If the number is not right, or the folder holds something else.
        ProfileError: If the files cannot be written.

    """
    import numpy

    cifar = synthetic_set(train_images)
    mark = f"a synthetic set of {train_images} training images, seed {seed} (chainer-profile, 1)\n"
    part = part_of(folder)
    try:
        if folder.exists():
            held = (folder / _MARK).read_text() if (folder / _MARK).is_file() else ""
            if held == mark:
                return cifar
            own = {_MARK, _NAMES, *(f"{n}.bin" for names in cifar.files.values() for n in names)}
            others = {path.name for path in folder.iterdir()} - (own if held else set())
            if others or (held and not replace):
                what = "other files" if others else held.partition(" (")[0]
                raise UsageError(
                    f"{folder} holds {what}, not {mark.partition(' (')[0]}: name an empty folder"
                )
        part.mkdir(parents=True)
        generator = numpy.random.default_rng(seed)
        for files, count in zip(cifar.files.values(), cifar.counts.values(), strict=True):
            for name in files:
                images, labels = _draw(count, generator)
                (part / f"{name}.bin").write_bytes(binary_records(cifar, images, labels))
        names = "".join(f"{name}\n" for name, _ in _COLOURS)
        (part / _NAMES).write_text(names)
        (part / _MARK).write_text(mark)
        if folder.exists():
            shutil.rmtree(folder)
        os.replace(part, folder)
    except OSError as error:
        raise ProfileError(f"{folder}: cannot be written ({error.strerror or error})") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return cifar


#: The classes: colours towards which the stripes go from grey.
_COLOURS = (
    ("red", (1, -1, -1)),
    ("orange", (1, 0, -1)),
    ("yellow", (1, 1, -1)),
    ("green", (-1, 1, -1)),
    ("cyan", (-1, 1, 1)),
    ("azure", (-1, 0, 1)),
    ("blue", (-1, -1, 1)),
    ("magenta", (1, -1, 1)),
    ("white", (1, 1, 1)),
    ("black", (-1, -1, -1)),
)


def _draw(count: int, generator: numpy.random.Generator) -> Images:
    """Images of all classes in turn, shuffled."""
    import numpy

    labels = generator.permutation(numpy.arange(count, dtype=numpy.uint8) % len(_COLOURS))

    def uniform(low: float, high: float) -> Any:
        return generator.uniform(low, high, (count, 1, 1, 1))

    angle = uniform(0, numpy.pi)
    place = numpy.arange(32)
    along = numpy.cos(angle) * place + numpy.sin(angle) * place.reshape(-1, 1)
    stripes = numpy.sin(2 * numpy.pi * (along / uniform(5, 12) + uniform(0, 1)))
    colours = numpy.array([colour for _, colour in _COLOURS])[labels].reshape(-1, 3, 1, 1)
    images = 120 + uniform(-10, 10) + uniform(80, 120) * (stripes + 1) / 2 * colours
    images = images + generator.normal(0, 25, (count, 3, 32, 32))
    return Images(images.clip(0, 255).astype(numpy.uint8), labels)
