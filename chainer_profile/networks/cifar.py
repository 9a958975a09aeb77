"""Reads CIFAR-10 and CIFAR-100 in the forms in which they are given."""

from __future__ import annotations

import hashlib
import pickle
import socket
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from chainer_profile.basics.errors import ProfileError, one_line
from chainer_profile.networks.plain_pickle import load_plain_pickle

if TYPE_CHECKING:
    import numpy

#: The names of CIFAR-10's labels 0 to 9.
CIFAR10_CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)

#: MD5 of the pickled files, whose contents are read only if it matches.
KNOWN_MD5 = {
    "cifar-10-python.tar.gz": "c58f30108f718f92721af3b95e74349a",
    "cifar-10-batches-py/data_batch_1": "c99cafc152244af753f735de768cd75f",
    "cifar-10-batches-py/data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "cifar-10-batches-py/data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "cifar-10-batches-py/data_batch_4": "634d18415352ddfa80567beed471001a",
    "cifar-10-batches-py/data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "cifar-10-batches-py/test_batch": "40351d587109b95175f43aff81a1287e",
    "cifar-100-python.tar.gz": "eb9058c3a382ffc7106e4002c42a8d85",
    "cifar-100-python/train": "16019d7e3df5f24257cddd939b257f8d",
    "cifar-100-python/test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
}

_IMAGE_NBYTES = 3 * 32 * 32
_MAX_FILE_NBYTES = 400_000_000  # the largest real file has 175 MB
_SITE = "www.cs.toronto.edu/~kriz/cifar.html"


class Images(NamedTuple):
    """One part of a set.

    Attributes:
        images: uint8, shape ``(images, 3, 32, 32)``; red, green, blue.
        labels: uint8, shape ``(images,)``.
    """

    images: numpy.ndarray[Any, Any]
    labels: numpy.ndarray[Any, Any]


@dataclass(frozen=True)
class Cifar:
    """A set in CIFAR's file format.

    Attributes:
        name: What messages call it.
        classes: Number of classes; labels are 0 to ``classes - 1``.
        stem: Begin of its archives' names.
        python_folder: Folder of the unpacked Python version.
        binary_folder: Folder of the unpacked binary version.
        files: For ``train`` and ``test``, the files of the Python version; those of the binary
            version end in ``.bin``.
        counts: For ``train`` and ``test``, the number of images in each file.
        label_key: Where a pickle has the labels.
        label_nbytes: Label bytes before each image of a binary file; the last one counts.
    """

    name: str
    classes: int
    stem: str
    python_folder: str
    binary_folder: str
    files: Mapping[str, tuple[str, ...]]
    counts: Mapping[str, int]
    label_key: str = "labels"
    label_nbytes: int = 1


_CIFAR10_FILES = {
    "train": tuple(f"data_batch_{number}" for number in range(1, 6)),
    "test": ("test_batch",),
}
CIFAR10 = Cifar(
    name="CIFAR-10",
    classes=10,
    stem="cifar-10",
    python_folder="cifar-10-batches-py",
    binary_folder="cifar-10-batches-bin",
    files=_CIFAR10_FILES,
    counts={"train": 10_000, "test": 10_000},
)
CIFAR100 = Cifar(
    name="CIFAR-100",
    classes=100,
    stem="cifar-100",
    python_folder="cifar-100-python",
    binary_folder="cifar-100-binary",
    files={"train": ("train",), "test": ("test",)},
    counts={"train": 50_000, "test": 10_000},
    label_key="fine_labels",
    label_nbytes=2,  # the coarse label, then the fine one
)


def load_cifar(
    cifar: Cifar, data_dir: str | Path | None, parts: Sequence[str] = ("train", "test")
) -> list[Images]:
    """Reads parts of a set. Nothing is downloaded.

    ``data_dir`` holds the set as its site gives it (www.cs.toronto.edu/~kriz/cifar.html),
    packed or unpacked, or is the unpacked folder itself. The binary version is preferred. The
    Python version is a pickle, which could run code: its MD5 must be the known one, and it is
    read by :func:`.plain_pickle.load_plain_pickle`. Without ``data_dir`` it is
    the copy that ``chainer.datasets.get_cifar10()`` or ``get_cifar100()`` keeps.

    Args:
        cifar: Which set.
        data_dir: The folder, or None.
        parts: ``train``, ``test`` or both.

    Returns:
        The parts in the order asked for.

    Raises:
        ProfileError: If there is no such file, or it is damaged or another set.

    """
    if data_dir is None:
        return _read_cache(cifar, parts)
    return _read_data_dir(cifar, Path(data_dir), parts)


def load_or_download(cifar: Cifar) -> list[Images]:
    """Reads both parts of a set from Chainer's cache, after downloading them if need be.

    Args:
        cifar: CIFAR-10 or CIFAR-100.

    Returns:
        The training part and the test part.

    Raises:
        ProfileError: If the copy is damaged, or there is none and no network.

    """
    import numpy
    from chainer.dataset import cached_download

    from chainer_profile.basics.files import replacing

    place = _cache(cifar)
    if place.exists():
        return load_cifar(cifar, None)
    name = f"{cifar.stem}-python.tar.gz"
    timeout = socket.getdefaulttimeout()
    socket.setdefaulttimeout(30)
    try:
        archive = Path(cached_download(f"https://www.cs.toronto.edu/~kriz/{name}"))
    except Exception as error:  # urllib and http raise many kinds
        raise ProfileError(
            f"no {cifar.name} here, and it cannot be downloaded ({one_line(error)}): name the "
            "folder of its files with --data-dir, or train on --dataset synthetic"
        ) from error
    finally:
        socket.setdefaulttimeout(timeout)
    content = _read_file(archive)
    if _md5(content) != KNOWN_MD5[name]:
        archive.unlink(missing_ok=True)
        raise ProfileError(
            f"what was downloaded is not {name}, or damaged (MD5 {_md5(content)}): try again, or "
            "name the folder of its files with --data-dir"
        )
    found = _read_archive(cifar, archive, content, ("train", "test"), _parse_python)
    arrays: dict[str, Any] = {}
    for part, (images, labels) in zip(("train", "test"), found, strict=True):
        arrays[f"{part}_x"] = images.reshape(-1, _IMAGE_NBYTES)
        arrays[f"{part}_y"] = labels
    # Without this copy the archive, which is kept as well, is read the next time.
    with suppress(OSError, ProfileError):
        place.parent.mkdir(parents=True, exist_ok=True)
        with replacing(place) as file:
            numpy.savez_compressed(file, **arrays)
    return found


def _cache(cifar: Cifar) -> Path:
    """Where ``chainer.datasets.get_cifar10()`` keeps its copy."""
    from chainer.dataset import get_dataset_root

    return Path(get_dataset_root()) / "pfnet" / "chainer" / "cifar" / f"{cifar.stem}.npz"


def _read_cache(cifar: Cifar, parts: Sequence[str]) -> list[Images]:
    import numpy

    path = _cache(cifar)
    maker = f"chainer.datasets.get_{cifar.stem.replace('-', '')}()"
    try:
        with numpy.load(path, allow_pickle=False) as arrays:
            read = [(arrays[f"{part}_x"], arrays[f"{part}_y"]) for part in parts]
    except FileNotFoundError as error:
        raise ProfileError(
            f"no {cifar.name} here: name its folder with --data-dir, or put {path} there, which "
            f"{maker} makes on a machine with a network"
        ) from error
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ProfileError(f"{path} is damaged: delete it and run {maker} again") from error
    return [
        _checked(cifar, path, images, labels, cifar.counts[part] * len(cifar.files[part]))
        for part, (images, labels) in zip(parts, read, strict=True)
    ]


_Parse = Callable[[Cifar, Path, bytes, str, int], Images]


def _read_data_dir(cifar: Cifar, folder: Path, parts: Sequence[str]) -> list[Images]:
    """Reads whichever form of the set a folder holds."""
    if not folder.is_dir():
        raise ProfileError(f"there is no folder {folder} with {cifar.name}")
    wanted = [name for part in parts for name in cifar.files[part]]
    forms: tuple[tuple[str, str, str, _Parse], ...] = (
        ("binary", cifar.binary_folder, ".bin", _parse_binary),
        ("python", cifar.python_folder, "", _parse_python),
    )
    for word, inner, suffix, parse in forms:
        for place in (folder, folder / inner):
            if any((place / f"{name}{suffix}").is_file() for name in wanted):
                return _read_unpacked(cifar, place, parts, suffix, parse)
        path = folder / f"{cifar.stem}-{word}.tar.gz"
        if path.is_file():
            content = _read_file(path)
            if word == "python":
                _check_md5(cifar, path, content, path.name)
            return _read_archive(cifar, path, content, parts, parse)
    raise ProfileError(
        f"no {cifar.name} in {folder}: it must hold {cifar.stem}-python.tar.gz, "
        f"{cifar.python_folder}, {cifar.stem}-binary.tar.gz or {cifar.binary_folder}"
    )


def _read_unpacked(
    cifar: Cifar, folder: Path, parts: Sequence[str], suffix: str, parse: _Parse
) -> list[Images]:
    def read(name: str, count: int) -> Images:
        path = folder / f"{name}{suffix}"
        return parse(cifar, path, _read_file(path), name, count)

    return _join(cifar, parts, read)


def _read_archive(
    cifar: Cifar, path: Path, content: bytes, parts: Sequence[str], parse: _Parse
) -> list[Images]:
    """Reads files out of a tar archive without unpacking it."""
    binary = parse is _parse_binary
    inner = cifar.binary_folder if binary else cifar.python_folder
    members = {
        f"{inner}/{name}{'.bin' if binary else ''}": name
        for part in parts
        for name in cifar.files[part]
    }
    contents: dict[str, bytes] = {}
    try:
        # One pass: going back in a compressed archive reads it again from its begin.
        with tarfile.open(fileobj=BytesIO(content), mode="r:gz") as archive:
            for member in archive:
                if member.name in members and (file := archive.extractfile(member)) is not None:
                    contents[members[member.name]] = file.read(_MAX_FILE_NBYTES)
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise ProfileError(f"{path} is cut short or damaged: {error}") from error
    for member_name, name in members.items():
        if name not in contents:
            raise ProfileError(f"{path} is not {cifar.name}: there is no {member_name} in it")
    # What lies in an archive of the known MD5 needs no MD5 of its own: it has no name here.
    return _join(
        cifar, parts, lambda name, count: parse(cifar, path, contents.pop(name), "", count)
    )


def _join(cifar: Cifar, parts: Sequence[str], read: Callable[[str, int], Images]) -> list[Images]:
    """Reads the files of each part and puts them together."""
    import numpy

    joined = []
    for part in parts:
        files = [read(name, cifar.counts[part]) for name in cifar.files[part]]
        images, labels = (numpy.concatenate(arrays) for arrays in zip(*files, strict=True))
        joined.append(Images(images, labels))
    return joined


def _read_file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_FILE_NBYTES)
    except OSError as error:
        raise ProfileError(f"cannot read {path}: {error.strerror or error}") from error


def _md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def _check_md5(cifar: Cifar, path: Path, content: bytes, name: str) -> None:
    if _md5(content) != KNOWN_MD5[name]:
        raise ProfileError(
            f"{path} is not the known {name} (MD5 {_md5(content)}, not {KNOWN_MD5[name]}), and "
            "another pickle is not read, as it could run code: get the binary version, "
            f"{cifar.stem}-binary.tar.gz, from {_SITE}"
        )


def _parse_python(cifar: Cifar, path: Path, content: bytes, name: str, count: int) -> Images:
    """Takes images and labels from a pickle of the Python version.

    ``name`` is that of a file which must have its known MD5; empty if the archive had it.
    """
    if name:
        _check_md5(cifar, path, content, f"{cifar.python_folder}/{name}")
    try:
        batch = load_plain_pickle(BytesIO(content))
    except pickle.UnpicklingError as error:
        raise ProfileError(f"{path} is not {cifar.name}, or damaged: {error}") from error
    if isinstance(batch, dict):
        # Written by Python 2, whose strings come as bytes.
        for data, labels in ((b"data", cifar.label_key.encode()), ("data", cifar.label_key)):
            if data in batch and labels in batch:
                return _checked(cifar, path, batch[data], batch[labels], count)
    raise ProfileError(f"{path} is not {cifar.name}: it holds no data and {cifar.label_key}")


def _parse_binary(cifar: Cifar, path: Path, content: bytes, name: str, count: int) -> Images:
    """Takes images and labels from a file of the binary version, a record for each image."""
    import numpy

    record = cifar.label_nbytes + _IMAGE_NBYTES
    if len(content) != count * record:
        raise ProfileError(
            f"{path} is cut short or not {cifar.name}: a file of {count} images must have "
            f"{count * record} bytes, not {len(content)}"
        )
    records = numpy.frombuffer(content, dtype=numpy.uint8).reshape(count, record)
    n = cifar.label_nbytes
    return _checked(cifar, path, records[:, n:], records[:, n - 1], count)


def _checked(cifar: Cifar, path: Path, images: Any, labels: Any, count: int) -> Images:
    """What a file holds, if it is ``count`` images with labels of the set."""
    import numpy

    if (
        not isinstance(images, numpy.ndarray)
        or images.dtype != numpy.uint8
        or images.shape != (count, _IMAGE_NBYTES)
    ):
        raise ProfileError(
            f"{path} is not {cifar.name}: its images must be bytes of shape "
            f"({count}, {_IMAGE_NBYTES})"
        )
    try:
        numbers = numpy.array(labels)
    except ValueError:  # lists of uneven lengths
        numbers = numpy.empty(0)
    right = f"there must be {count} labels from 0 to {cifar.classes - 1}"
    if numbers.shape != (count,) or numbers.dtype.kind not in "iu":
        raise ProfileError(f"{path} is not {cifar.name}: {right}")
    outside = numbers[(numbers < 0) | (numbers >= cifar.classes)]
    if len(outside):
        raise ProfileError(
            f"{path} is not {cifar.name}: {right}, but {len(outside)} are outside, such as "
            f"{outside[0]}"
        )
    # asarray: the pickle gives a subclass of ndarray.
    return Images(
        numpy.asarray(images).reshape(count, 3, 32, 32), numbers.astype(numpy.uint8, copy=False)
    )


def binary_records(cifar: Cifar, images: Any, labels: Any) -> bytes:
    """A file of the binary version.

    Args:
        cifar: The set; where it has two label bytes, the first is written as 0.
        images: uint8, shape ``(images, 3, 32, 32)``.
        labels: Shape ``(images,)``.
    """
    import numpy

    records = numpy.zeros((len(images), cifar.label_nbytes + _IMAGE_NBYTES), numpy.uint8)
    records[:, cifar.label_nbytes - 1] = labels
    records[:, cifar.label_nbytes :] = images.reshape(len(images), -1)
    return records.tobytes()
