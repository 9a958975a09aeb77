"""Makes the batch that a network is run on: a random one, CIFAR-10 images, or a picture."""

from __future__ import annotations

import pickle
import re
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainer_profile.errors import ProfileError, UsageError
from chainer_profile.plain_pickle import load_plain_pickle

if TYPE_CHECKING:
    import numpy
    import PIL.Image

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

_TEST_IMAGES = 10_000
_IMAGE_NBYTES = 3 * 32 * 32
_MAX_PICKLE_NBYTES = 100_000_000  # the real test_batch has 31,035,704


@dataclass(frozen=True)
class InputBatch:
    """What a network is run on.

    Attributes:
        array: float32, shape ``(batch, *shape)``.
        description: What it is, in a few words for the report.
        labels: The class of each image where it is known, else None.
    """

    array: numpy.ndarray[Any, numpy.dtype[numpy.float32]]
    description: str
    labels: tuple[int, ...] | None = None


def make_input(
    kind: str,
    shape: tuple[int, ...],
    batchsize: int,
    *,
    seed: int,
    index: int = 0,
    data_dir: str | Path | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> InputBatch:
    """Makes an input batch for a network that takes ``shape``.

    Args:
        kind: What to make:

            - ``random``: for an image shape, ``(channels, height, width)``, uniform values
              in 0..1, normalised by ``mean`` and ``std``; for any other shape standard
              normal values. Always float32, so it suits no network that takes indices.
            - ``cifar10``: test images of CIFAR-10 from ``index`` on.
            - anything else: the path of a picture that Pillow reads (png, jpg, bmp, webp,
              ...), the same in every place of the batch. It is turned as its EXIF data
              say, resized to fill height x width, and cropped in the middle.
        shape: Shape of one input without the batch. Images need ``(3, height, width)``, a
            picture can be ``(1, height, width)``, grey, as well.
        batchsize: Number of inputs in the batch.
        seed: Seed of the random values; they do not touch NumPy's global generator.
        index: First test image of CIFAR-10, from 0.
        data_dir: Where CIFAR-10 lies; see :func:`load_cifar10_test`.
        mean: What to subtract from each channel of an image scaled to 0..1.
        std: What to divide each channel by after that.

    Returns:
        InputBatch: The batch and what it is.

    Raises:
        UsageError: If the values given do not go together.
        ProfileError: If a file is missing or cannot be read.

    """
    if batchsize < 1:
        raise UsageError(f"the batch size must be at least 1, not {batchsize}")
    if len(shape) == 3:
        for word, values in (("mean", mean), ("std", std)):
            if values is not None and len(values) != shape[0]:
                raise UsageError(
                    f"the {word} is for {len(values)} channels, but the input has {shape[0]}: give "
                    f"a shape of {len(values)} channels"
                )
    try:
        if kind == "random":
            return _random(shape, batchsize, seed, mean, std)
        if kind == "cifar10":
            return _cifar10(shape, batchsize, index, data_dir, mean, std)
        return _picture(kind, shape, batchsize, mean, std)
    except MemoryError as error:
        raise ProfileError(
            f"a batch of {batchsize} inputs of shape {_by(shape)} does not fit into memory"
        ) from error


def parse_shape(text: str) -> tuple[int, ...]:
    """Reads a shape as ``3,32,32`` or ``3x32x32``.

    Args:
        text: Positive whole numbers with commas or ``x`` between them.

    Returns:
        The numbers.

    Raises:
        UsageError: If it is anything else.

    """
    parts = [part.strip() for part in re.split("[,xX]", text)]
    # Nine digits are more than any side has, and keep int() away from endless ones.
    if not all(re.fullmatch("[0-9]{1,9}", part) for part in parts):
        raise UsageError(f"not a shape: {text!r}; write whole numbers such as 3,32,32 or 3x32x32")
    shape = tuple(int(part) for part in parts)
    if 0 in shape:
        raise UsageError(f"not a shape: {text!r}; every number must be at least 1")
    return shape


def load_cifar10_test(
    data_dir: str | Path | None = None,
) -> tuple[numpy.ndarray[Any, Any], numpy.ndarray[Any, Any]]:
    """Reads the 10,000 test images of CIFAR-10. Nothing is downloaded.

    ``data_dir`` holds the dataset as its site gives it (www.cs.toronto.edu/~kriz/cifar.html),
    packed or unpacked, or is the unpacked folder itself: ``cifar-10-python.tar.gz``,
    ``cifar-10-batches-py``, ``cifar-10-binary.tar.gz`` or ``cifar-10-batches-bin``. The
    Python version is a pickle, which could run code; it is read by
    :func:`chainer_profile.plain_pickle.load_plain_pickle`, which refuses that, so no checksum
    is asked for. Without ``data_dir`` it is the copy that
    ``chainer.datasets.get_cifar10()`` keeps.

    Args:
        data_dir: The folder, or None.

    Returns:
        The images, uint8 of shape ``(10000, 3, 32, 32)``, and their labels, 0 to 9, uint8 of
        shape ``(10000,)``.

    Raises:
        ProfileError: If there is no such file, or it is damaged.

    """
    import numpy

    if data_dir is None:
        path, images, labels = _read_chainer_cache()
    else:
        path, images, labels = _read_data_dir(Path(data_dir))
    if (
        not isinstance(images, numpy.ndarray)
        or images.dtype != numpy.uint8
        or images.shape != (_TEST_IMAGES, _IMAGE_NBYTES)
    ):
        raise ProfileError(
            f"{path} is not CIFAR-10: the test images must be bytes of shape "
            f"({_TEST_IMAGES}, {_IMAGE_NBYTES})"
        )
    try:
        numbers = numpy.array(labels)
    except ValueError:  # lists of uneven lengths
        numbers = numpy.empty(0)
    if (
        numbers.shape != (_TEST_IMAGES,)
        or numbers.dtype.kind not in "iu"
        or numbers.min() < 0
        or numbers.max() > 9
    ):
        raise ProfileError(
            f"{path} is not CIFAR-10: there must be {_TEST_IMAGES} labels from 0 to 9"
        )
    # asarray: the pickle gives a subclass of ndarray.
    return numpy.asarray(images).reshape(_TEST_IMAGES, 3, 32, 32), numbers.astype(numpy.uint8)


def _random(
    shape: tuple[int, ...],
    batchsize: int,
    seed: int,
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
) -> InputBatch:
    import numpy

    if seed < 0:
        raise UsageError(f"the seed must not be negative: {seed}")
    generator = numpy.random.default_rng(seed)
    size = (batchsize, *shape)
    if len(shape) == 3:
        array = _normalise(generator.random(size, dtype=numpy.float32), mean, std)
        word = "image"
    else:
        array = generator.standard_normal(size, dtype=numpy.float32)
        word = "array"
    many = "s" if batchsize > 1 else ""
    return InputBatch(array, f"random {word}{many}, seed {seed}")


def _cifar10(
    shape: tuple[int, ...],
    batchsize: int,
    index: int,
    data_dir: str | Path | None,
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
) -> InputBatch:
    import numpy
    from PIL import Image

    if len(shape) != 3 or shape[0] != 3:
        raise UsageError(
            f"CIFAR-10 images are 3 x 32 x 32, but the network takes {_by(shape)}: "
            "use a random input"
        )
    last = index + batchsize - 1
    if index < 0 or last >= _TEST_IMAGES:
        wanted = f"image {index}" if batchsize == 1 else f"images {index} to {last}"
        raise UsageError(
            f"CIFAR-10 has the test images 0 to {_TEST_IMAGES - 1}; asked for: {wanted}"
        )
    all_images, all_labels = load_cifar10_test(data_dir)
    images = all_images[index : last + 1]
    labels = tuple(int(label) for label in all_labels[index : last + 1])
    if batchsize == 1:
        description = f"CIFAR-10 test image {index} ({CIFAR10_CLASSES[labels[0]]})"
    else:
        description = f"CIFAR-10 test images {index} to {last}"
    if shape != (3, 32, 32):
        description += f", resized to {_size(shape)}"
        images = numpy.stack(
            [_fit(Image.fromarray(image.transpose(1, 2, 0)), shape) for image in images]
        )
    array = images.astype(numpy.float32) / numpy.float32(255)
    return InputBatch(_normalise(array, mean, std), description, labels)


def _picture(
    path: str,
    shape: tuple[int, ...],
    batchsize: int,
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
) -> InputBatch:
    import numpy

    if len(shape) != 3 or shape[0] not in (1, 3):
        raise UsageError(
            f"a picture has 1 or 3 channels, height and width, but the network takes "
            f"{_by(shape)}: use a random input"
        )
    picture = _open_picture(Path(path), "L" if shape[0] == 1 else "RGB")
    width, height = picture.size
    description = f"picture {Path(path).name}, {width} x {height}"
    if (height, width) != shape[1:]:
        description += f", resized to {_size(shape)}"
    if batchsize > 1:
        description += f", the same in all {batchsize} places of the batch"
    image = _fit(picture, shape).astype(numpy.float32) / numpy.float32(255)
    image = _normalise(image[numpy.newaxis], mean, std)
    return InputBatch(numpy.repeat(image, batchsize, axis=0), description)


def _open_picture(path: Path, mode: str) -> PIL.Image.Image:
    """Reads a picture, turned upright, in Pillow's ``mode`` (``L`` or ``RGB``)."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            # Pillow only warns of a picture up to twice its limit.
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as file:
                picture = ImageOps.exif_transpose(file)
                if picture.mode.startswith("I;16"):
                    # Pillow's own conversion cuts 16-bit grey off at 255.
                    picture = picture.convert("I").point(lambda value: value / 256).convert("L")
                return picture.convert(mode)
    except FileNotFoundError as error:
        if not path.suffix:
            raise UsageError(
                f"unknown input {str(path)!r}: it is random, cifar10 or the path of a picture"
            ) from error
        raise ProfileError(f"there is no picture {path}") from error
    except UnidentifiedImageError as error:
        raise ProfileError(f"{path} is not a picture that Pillow can read") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        limit = (Image.MAX_IMAGE_PIXELS or 0) // 1_000_000
        raise ProfileError(
            f"the picture {path} is too large: at most {limit} million pixels are read"
        ) from error
    except MemoryError:
        raise
    except Exception as error:  # the readers of each format raise what they like
        reason = error.strerror if isinstance(error, OSError) else None
        raise ProfileError(
            f"cannot read the picture {path}: {reason or ' '.join(str(error).split())}"
        ) from error


def _fit(picture: PIL.Image.Image, shape: tuple[int, ...]) -> numpy.ndarray[Any, Any]:
    """Fills height x width with the middle of a picture (bilinear); uint8 of ``shape``."""
    import numpy
    from PIL import Image, ImageOps

    channels, height, width = shape
    array = numpy.asarray(ImageOps.fit(picture, (width, height), Image.Resampling.BILINEAR))
    return array.reshape(height, width, channels).transpose(2, 0, 1)


def _normalise(
    array: numpy.ndarray[Any, numpy.dtype[numpy.float32]],
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
) -> numpy.ndarray[Any, numpy.dtype[numpy.float32]]:
    """Subtracts ``mean`` from each channel of (batch, channels, H, W), divides by ``std``."""
    import numpy

    if mean is not None:
        array = array - numpy.asarray(mean, dtype=numpy.float32)[:, None, None]
    if std is not None:
        array = array / numpy.asarray(std, dtype=numpy.float32)[:, None, None]
    return numpy.ascontiguousarray(array)


def _by(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def _size(shape: tuple[int, ...]) -> str:
    """Width x height of an image shape, the order in which pictures are described."""
    return f"{shape[2]} x {shape[1]}"


def _read_chainer_cache() -> tuple[Path, Any, Any]:
    """Reads the npz file that ``chainer.datasets.get_cifar10()`` keeps."""
    import numpy
    from chainer.dataset import get_dataset_root

    path = Path(get_dataset_root()) / "pfnet" / "chainer" / "cifar" / "cifar-10.npz"
    try:
        with numpy.load(path, allow_pickle=False) as arrays:
            return path, arrays["test_x"], arrays["test_y"]
    except FileNotFoundError as error:
        raise ProfileError(
            f"no CIFAR-10 here: name its folder with --data-dir, or put {path} there, which "
            "chainer.datasets.get_cifar10() makes on a machine with a network"
        ) from error
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ProfileError(
            f"{path} is damaged: delete it and run chainer.datasets.get_cifar10() again"
        ) from error


def _read_data_dir(folder: Path) -> tuple[Path, Any, Any]:
    """Reads whichever form of the dataset a folder holds."""
    if not folder.is_dir():
        raise ProfileError(f"there is no folder {folder} with CIFAR-10")
    for path in (folder / "test_batch", folder / "cifar-10-batches-py" / "test_batch"):
        if path.is_file():
            return path, *_parse_python(path, _read_file(path))
    for path in (folder / "test_batch.bin", folder / "cifar-10-batches-bin" / "test_batch.bin"):
        if path.is_file():
            return path, *_parse_binary(path, _read_file(path))
    path = folder / "cifar-10-python.tar.gz"
    if path.is_file():
        return path, *_parse_python(path, _read_member(path, "cifar-10-batches-py/test_batch"))
    path = folder / "cifar-10-binary.tar.gz"
    if path.is_file():
        member = "cifar-10-batches-bin/test_batch.bin"
        return path, *_parse_binary(path, _read_member(path, member))
    raise ProfileError(
        f"no CIFAR-10 in {folder}: it must hold cifar-10-python.tar.gz, cifar-10-batches-py, "
        "cifar-10-binary.tar.gz or cifar-10-batches-bin"
    )


def _read_file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_PICKLE_NBYTES)
    except OSError as error:
        raise ProfileError(f"cannot read {path}: {error.strerror or error}") from error


def _read_member(path: Path, name: str) -> bytes:
    """Reads one file out of a tar archive without unpacking it."""
    try:
        with tarfile.open(path, "r:gz") as archive:
            file = archive.extractfile(name)
            if file is None:
                raise ProfileError(f"{path} is not CIFAR-10: {name} in it is not a file")
            return file.read(_MAX_PICKLE_NBYTES)
    except KeyError as error:
        raise ProfileError(f"{path} is not CIFAR-10: there is no {name} in it") from error
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise ProfileError(f"{path} is cut short or damaged: {error}") from error


def _parse_python(path: Path, content: bytes) -> tuple[Any, Any]:
    """Takes images and labels from the pickle of the Python version."""
    try:
        batch = load_plain_pickle(BytesIO(content))
    except pickle.UnpicklingError as error:
        raise ProfileError(f"{path} is not CIFAR-10's test batch, or damaged: {error}") from error
    if isinstance(batch, dict):
        # Written by Python 2, whose strings come as bytes; a rewritten file may have str.
        for data, labels in ((b"data", b"labels"), ("data", "labels")):
            if data in batch and labels in batch:
                return batch[data], batch[labels]
    raise ProfileError(f"{path} is not CIFAR-10's test batch: it holds no data and labels")


def _parse_binary(path: Path, content: bytes) -> tuple[Any, Any]:
    """Takes images and labels from the binary version: a label byte, then 3,072 of image."""
    import numpy

    record = 1 + _IMAGE_NBYTES
    if len(content) != _TEST_IMAGES * record:
        raise ProfileError(
            f"{path} is cut short or not CIFAR-10: the test batch must have "
            f"{_TEST_IMAGES * record} bytes, not {len(content)}"
        )
    records = numpy.frombuffer(content, dtype=numpy.uint8).reshape(_TEST_IMAGES, record)
    return records[:, 1:], records[:, 0]
