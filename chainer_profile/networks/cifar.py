"""CIFAR-10 and CIFAR-100, as Chainer's own loaders read and keep them, or images like these."""

from __future__ import annotations

import hashlib
import math
import socket
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chainer_profile.basics.errors import ProfileError, one_line
from chainer_profile.basics.files import read_regular, write_file

#: The names of CIFAR-10's labels 0 to 9.
CIFAR10_CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
#: MD5 of the archives, as their site gives it. Chainer unpickles them, which can run code.
_MD5 = {
    "cifar-10": "c58f30108f718f92721af3b95e74349a",
    "cifar-100": "eb9058c3a382ffc7106e4002c42a8d85",
}
_DOWNLOAD_TIMEOUT_S = 30
_SHAPE = (3, 32, 32)
_OWN = (
    "it has train_x and test_x, images of uint8 with 3 x 32 x 32 numbers each, and their labels, "
    "train_y and test_y"
)
#: The archives have 170 MB.
_MOST_NBYTES = 1 << 30


def load_cifar(name: str, data_dir: Path | None = None) -> tuple[Any, Any]:
    """The training and the test set of ``cifar10`` or ``cifar100``: images from 0 to 1.

    Args:
        name: ``cifar10`` or ``cifar100``.
        data_dir: A folder with the site's archive, or with a file such as ``cifar-10.npz`` of the
            user's own images. By default Chainer downloads the archive, and keeps a copy.
    """
    from chainer import datasets

    stem = name.replace("cifar", "cifar-")
    if (own := _own_file(stem, data_dir)) is not None:
        return _own_sets(own, int(name.removeprefix("cifar")))
    copy = _copy(stem)
    if data_dir is not None and not copy.exists():
        _take_archive(stem, data_dir)
    had_copy = copy.exists()
    timeout = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_DOWNLOAD_TIMEOUT_S)
    try:
        train, test = getattr(datasets, f"get_{name}")(dtype="float32")
        return train, test
    except Exception as error:  # urllib, tarfile, zipfile and pickle raise many kinds
        if had_copy:
            raise ProfileError(f"{copy} is damaged: delete it and try again") from error
        raise ProfileError(
            f"no {stem.upper()} here, and it cannot be downloaded ({one_line(error)}): name a "
            f"folder with {stem}-python.tar.gz with --data-dir"
        ) from error
    finally:
        socket.setdefaulttimeout(timeout)


def load_cifar10_test(data_dir: Path | None = None) -> tuple[NDArray[Any], NDArray[Any]]:
    """The test images of CIFAR-10 as uint8 and their labels, without the memory that all take."""
    if (own := _own_file("cifar-10", data_dir)) is not None:
        return _own_images(own, "test", len(CIFAR10_CLASSES))
    copy = _copy("cifar-10")
    if not copy.exists():
        load_cifar("cifar10", data_dir)
    try:
        with np.load(copy, allow_pickle=False) as arrays:
            return arrays["test_x"].reshape(-1, 3, 32, 32), arrays["test_y"]
    except Exception as error:  # zipfile, zlib and NumPy raise many kinds
        raise ProfileError(f"{copy} is damaged: delete it and try again") from error


def _own_file(stem: str, folder: Path | None) -> Path | None:
    """The file of the user's own images in a folder; None if there is none."""
    path = None if folder is None else folder / f"{stem}.npz"
    return path if path is not None and path.is_file() else None


def _own_sets(path: Path, classes: int) -> tuple[Any, Any]:
    """The sets in a file of the user's own, as Chainer's loaders return them."""
    from chainer.datasets import TupleDataset

    train, test = (
        TupleDataset(images.astype(np.float32) / np.float32(255), labels)
        for images, labels in (_own_images(path, part, classes) for part in ("train", "test"))
    )
    return train, test


def _own_images(path: Path, part: str, classes: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Images of uint8, (images, 3, 32, 32), and int32 labels of a part of the user's own file."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            images, labels = arrays[f"{part}_x"], arrays[f"{part}_y"]
    except Exception as error:  # zipfile, zlib and NumPy raise many kinds
        raise ProfileError(f"{path} cannot be read ({one_line(error)}): {_OWN}") from error
    count = math.prod(labels.shape)
    if images.dtype != np.uint8 or images.size != count * math.prod(_SHAPE) or not count:
        raise ProfileError(f"{path}: {part}_x does not fit: {_OWN}")
    if labels.dtype.kind not in "iu" or not 0 <= labels.min() <= labels.max() < classes:
        raise ProfileError(f"{path}: {part}_y must be whole numbers from 0 to {classes - 1}")
    return images.reshape(count, *_SHAPE), labels.reshape(count).astype(np.int32)


def _copy(stem: str) -> Path:
    from chainer.dataset import get_dataset_root

    return Path(get_dataset_root(), "pfnet", "chainer", "cifar", f"{stem}.npz")


def _take_archive(stem: str, folder: Path) -> None:
    """Put the archive where Chainer would have downloaded it to."""
    from chainer.dataset import get_dataset_root

    name = f"{stem}-python.tar.gz"
    archive = folder / name
    try:
        content = read_regular(archive, _MOST_NBYTES)
    except OSError as error:
        raise ProfileError(
            f"--data-dir {folder}: {name} cannot be read ({error.strerror}); it comes from "
            "https://www.cs.toronto.edu/~kriz/cifar.html"
        ) from error
    digest = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if digest != _MD5[stem]:
        raise ProfileError(
            f"{archive} is not the known archive (its MD5 is {digest}, not {_MD5[stem]}); download "
            "it again from https://www.cs.toronto.edu/~kriz/cifar.html, or give images of your own "
            f"as {stem}.npz: {_OWN}"
        )
    url = f"https://www.cs.toronto.edu/~kriz/{name}"
    write_file(
        Path(get_dataset_root(), "_dl_cache", hashlib.md5(url.encode()).hexdigest()), content
    )
