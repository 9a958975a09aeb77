"""Loads CIFAR-10 and CIFAR-100 by Chainer's loaders, or similar images from a file of the user."""

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

#: Names of CIFAR-10's labels 0 to 9.
CIFAR10_CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
#: MD5 of the archives, from their site. Chainer unpickles them, which can run code.
_MD5 = {
    "cifar-10": "c58f30108f718f92721af3b95e74349a",
    "cifar-100": "eb9058c3a382ffc7106e4002c42a8d85",
}
_DOWNLOAD_TIMEOUT_S = 30
_SHAPE = (3, 32, 32)
_USER_FILE = (
    "it has train_x and test_x, images of uint8 with 3 x 32 x 32 numbers each, and their labels, "
    "train_y and test_y"
)
#: The archives have 170 MB.
_MAX_NBYTES = 1 << 30


def load_cifar(name: str, data_dir: Path | None = None) -> tuple[Any, Any]:
    """Load the training and test sets of ``cifar10`` or ``cifar100``; images are from 0 to 1.

    Args:
        name: ``cifar10`` or ``cifar100``.
        data_dir: A folder with the site's archive, or with a file of the user's images, such as
            ``cifar-10.npz``. Default: Chainer downloads the archive, and stores it in its cache.
    """
    from chainer import datasets

    stem = name.replace("cifar", "cifar-")
    if (path := _user_file(stem, data_dir)) is not None:
        return _user_sets(path, int(name.removeprefix("cifar")))
    cached = _cached(stem)
    if data_dir is not None and not cached.exists():
        _copy_archive(stem, data_dir)
    was_cached = cached.exists()
    timeout = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_DOWNLOAD_TIMEOUT_S)
    try:
        train, test = getattr(datasets, f"get_{name}")(dtype="float32")
        return train, test
    except Exception as error:  # urllib, tarfile, zipfile and pickle raise many kinds
        if was_cached:
            raise ProfileError(f"{cached} is damaged: delete it and try again") from error
        raise ProfileError(
            f"no {stem.upper()} here, and it cannot be downloaded ({one_line(error)}): name a "
            f"folder with {stem}-python.tar.gz with --data-dir"
        ) from error
    finally:
        socket.setdefaulttimeout(timeout)


def load_cifar10_test(data_dir: Path | None = None) -> tuple[NDArray[Any], NDArray[Any]]:
    """Load only the test images of CIFAR-10, to save memory.

    Returns uint8 images, (images, 3, 32, 32), and labels, (images,).
    """
    if (path := _user_file("cifar-10", data_dir)) is not None:
        return _user_images(path, "test", len(CIFAR10_CLASSES))
    cached = _cached("cifar-10")
    if not cached.exists():
        load_cifar("cifar10", data_dir)
    try:
        with np.load(cached, allow_pickle=False) as arrays:
            return arrays["test_x"].reshape(-1, 3, 32, 32), arrays["test_y"]
    except Exception as error:  # zipfile, zlib and NumPy raise many kinds
        raise ProfileError(f"{cached} is damaged: delete it and try again") from error


def _user_file(stem: str, folder: Path | None) -> Path | None:
    """Find the file of the user's images in a folder; None if it is missing."""
    path = None if folder is None else folder / f"{stem}.npz"
    return path if path is not None and path.is_file() else None


def _user_sets(path: Path, classes: int) -> tuple[Any, Any]:
    """Load the sets in a file of the user, as Chainer's loaders return them."""
    from chainer.datasets import TupleDataset

    train, test = (
        TupleDataset(images.astype(np.float32) / np.float32(255), labels)
        for images, labels in (_user_images(path, part, classes) for part in ("train", "test"))
    )
    return train, test


def _user_images(path: Path, part: str, classes: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Load uint8 images, (images, 3, 32, 32), and int32 labels of a set in a file of the user."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            images, labels = arrays[f"{part}_x"], arrays[f"{part}_y"]
    except Exception as error:  # zipfile, zlib and NumPy raise many kinds
        raise ProfileError(f"{path} cannot be read ({one_line(error)}): {_USER_FILE}") from error
    count = math.prod(labels.shape)
    if images.dtype != np.uint8 or images.size != count * math.prod(_SHAPE) or not count:
        raise ProfileError(f"{path}: {part}_x does not fit: {_USER_FILE}")
    if labels.dtype.kind not in "iu" or not 0 <= labels.min() <= labels.max() < classes:
        raise ProfileError(f"{path}: {part}_y must be whole numbers from 0 to {classes - 1}")
    return images.reshape(count, *_SHAPE), labels.reshape(count).astype(np.int32)


def _cached(stem: str) -> Path:
    """Path of a data set in Chainer's cache."""
    from chainer.dataset import get_dataset_root

    return Path(get_dataset_root(), "pfnet", "chainer", "cifar", f"{stem}.npz")


def _copy_archive(stem: str, folder: Path) -> None:
    """Copy an archive to the path to which Chainer would download it."""
    from chainer.dataset import get_dataset_root

    name = f"{stem}-python.tar.gz"
    archive = folder / name
    try:
        content = read_regular(archive, _MAX_NBYTES)
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
            f"as {stem}.npz: {_USER_FILE}"
        )
    url = f"https://www.cs.toronto.edu/~kriz/{name}"
    write_file(
        Path(get_dataset_root(), "_dl_cache", hashlib.md5(url.encode()).hexdigest()), content
    )
