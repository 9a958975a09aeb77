"""Makes the input batch of a network: random arrays, CIFAR-10 images, a picture, or a file."""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from chainer_profile.basics.arrays import read_array
from chainer_profile.basics.errors import ProfileError, UsageError, text_of
from chainer_profile.basics.files import open_regular
from chainer_profile.basics.free_memory import describe_memory_error, limit_to_free_memory
from chainer_profile.basics.parsing import InputSpec
from chainer_profile.basics.units import format_count, plural
from chainer_profile.networks.cifar import CIFAR10_CLASSES, load_cifar10_test

if TYPE_CHECKING:
    import PIL.Image

_TEST_IMAGES = 10_000


@dataclass(frozen=True)
class InputBatch:
    """A network's arguments: a batch of inputs."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    array: NDArray[Any]  #: The first array of the arguments.
    description: str  #: Text for the report.
    #: Arrays with a data type that the user has chosen.
    typed: tuple[NDArray[Any], ...] = ()


def make_arguments(specs: Sequence[InputSpec], batchsize: int, seed: int) -> InputBatch:
    """Make random arguments for a network, without NumPy's global generator."""
    generator = np.random.default_rng(seed)

    def argument(spec: InputSpec) -> Any:
        if spec.lengths is None:
            return _draw(generator, spec, (batchsize, *spec.shape))
        minimum, maximum = spec.lengths
        # Chainer's recurrent links need the longest sequence first.
        steps = sorted(generator.integers(minimum, maximum, batchsize, endpoint=True), reverse=True)
        return [_draw(generator, spec, (int(count), *spec.shape)) for count in steps]

    with _in_memory(f"a batch of {format_count(batchsize)} inputs"):
        arguments = [(spec.name, argument(spec)) for spec in specs]
    batch = as_batch(
        tuple(value for name, value in arguments if not name),
        {name: value for name, value in arguments if name},
        f"random arrays, seed {seed}",
    )
    typed = [value for spec, (_, value) in zip(specs, arguments, strict=True) if spec.dtype]
    arrays = (value if isinstance(value, list) else [value] for value in typed)
    return replace(batch, typed=tuple(chain.from_iterable(arrays)))


def _draw(generator: np.random.Generator, spec: InputSpec, shape: tuple[int, ...]) -> Any:
    """Draw an array: integers, floats from 0 to 1 for images, or else normal floats."""
    if spec.is_float:
        images = len(spec.shape) == 3 and spec.lengths is None
        draw = generator.random if images else generator.standard_normal
        return draw(shape, dtype=np.float32).astype(spec.dtype or np.float32, copy=False)
    minimum, maximum = spec.values
    limits = np.iinfo(spec.dtype)
    if minimum < limits.min or maximum > limits.max:
        raise UsageError(
            f"{spec.dtype} is {limits.min} to {limits.max}, not {minimum} to {maximum}"
        )
    return generator.integers(minimum, maximum, shape, spec.dtype, endpoint=True)


def as_batch(args: tuple[Any, ...], kwargs: Mapping[str, Any], description: str) -> InputBatch:
    """Make a batch of arguments; add their number and sequence lengths to the description."""
    first = (*args, *kwargs.values())[0]
    many = len(args) + len(kwargs)
    text = description if many == 1 else f"{description}, {many} arguments"
    if isinstance(first, list):
        lengths = [len(sequence) for sequence in first]
        text += f", sequences of {min(lengths)} to {max(lengths)} steps"
        first = first[0]
    return InputBatch(args, kwargs, first, text)


def load_arguments(path: Path) -> InputBatch:
    """Read arguments from a file of NumPy: one array (``.npy``), or several by name (``.npz``).

    Arrays named ``arr_0`` and so on are positional arguments.
    """
    with _in_memory(str(path)):
        arrays = _arrays_of(path)
    if not arrays:
        raise ProfileError(f"{path} contains no array")
    for array in arrays.values():
        if array.dtype.kind not in "biufc":
            raise ProfileError(f"{path} contains {array.dtype}: save arrays of numbers")
    if "" in arrays:
        return as_batch((arrays[""],), {}, f"array {path.name}")
    named = {name: array for name, array in arrays.items() if not name.startswith("arr_")}
    rest = tuple(array for name, array in arrays.items() if name.startswith("arr_"))
    return as_batch(rest, named, f"arrays of {path.name}")


def _arrays_of(path: Path) -> dict[str, NDArray[Any]]:
    """Read the arrays of an ``.npz`` file by name, or of an ``.npy`` file with an empty name."""
    try:
        with open_regular(path) as file:
            if path.suffix == ".npy":
                return {"": read_array(file)}
            with zipfile.ZipFile(file) as archive:
                return {
                    name.removesuffix(".npy"): read_array(BytesIO(archive.read(name)))
                    for name in archive.namelist()
                }
    except FileNotFoundError:
        raise ProfileError(f"there is no file {path}") from None
    except MemoryError:
        raise
    except Exception as error:  # a damaged file may raise anything
        why = getattr(error, "strerror", None) or text_of(error)
        raise ProfileError(
            f"{path} cannot be read ({why}): give a file of numpy.save or numpy.savez"
        ) from error


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
    """Make a batch of inputs of a shape.

    Args:
        kind: ``random``, ``cifar10``, or the path of a picture.
        shape: Shape of an input, without the batch.
        batchsize: Number of inputs.
        seed: Seed of random inputs.
        index: Index of the first image in CIFAR-10's test set.
        data_dir: Folder with CIFAR-10's archive. Default: Chainer downloads it.
        mean: Means of an image's channels, which are subtracted.
        std: Standard deviations of an image's channels, by which the difference is divided.
    """
    if batchsize < 1:
        raise UsageError(f"the batch size must be at least 1, not {batchsize}")
    if len(shape) == 3:
        for word, values in (("mean", mean), ("std", std)):
            if values is not None and len(values) != shape[0]:
                wanted = plural(len(values), "channel")
                raise UsageError(
                    f"the {word} is for {wanted}, but the input has {shape[0]}: give a shape of "
                    f"{wanted}"
                )
    with _in_memory(f"a batch of {format_count(batchsize)} inputs of shape {_spaced(shape)}"):
        if kind == "random":
            array, description = _random(shape, batchsize, seed)
        elif kind == "cifar10":
            array, description = _cifar10(shape, batchsize, index, data_dir)
        else:
            array, description = _picture(kind, shape, batchsize)
        if len(shape) == 3 and mean is not None:
            array = array - np.asarray(mean, np.float32)[:, None, None]
        if len(shape) == 3 and std is not None:
            array = array / np.asarray(std, np.float32)[:, None, None]
        # All inputs of the batch are the same picture.
        array = array if len(array) == batchsize else array.repeat(batchsize, axis=0)
        return as_batch((np.ascontiguousarray(array),), {}, description)


@contextmanager
def _in_memory(content: str) -> Iterator[None]:
    """Raise ProfileError, which begins with ``content``, if arrays do not fit into free memory."""
    with limit_to_free_memory() as free:
        try:
            yield
        except MemoryError as error:
            raise ProfileError(f"{content} {describe_memory_error(error, free)}") from error


def _random(shape: tuple[int, ...], batchsize: int, seed: int) -> tuple[NDArray[Any], str]:
    if seed < 0:
        raise UsageError(f"the seed must not be negative: {seed}")
    array = _draw(np.random.default_rng(seed), InputSpec(shape), (batchsize, *shape))
    kind = ("image" if len(shape) == 3 else "array") + "s" * (batchsize > 1)
    return array, f"random {kind}, seed {seed}"


def _cifar10(
    shape: tuple[int, ...], batchsize: int, index: int, data_dir: str | Path | None
) -> tuple[NDArray[Any], str]:
    from PIL import Image

    if len(shape) != 3 or shape[0] != 3:
        raise UsageError(
            f"CIFAR-10 images are 3 x 32 x 32, but the network takes {_spaced(shape)}: "
            "use a random input"
        )
    last = index + batchsize - 1
    wanted = f"image {index}" if batchsize == 1 else f"images {index} to {last}"
    if index < 0 or last >= _TEST_IMAGES:
        raise UsageError(f"CIFAR-10 has test images 0 to {_TEST_IMAGES - 1}, not {wanted}")
    all_images, labels = load_cifar10_test(None if data_dir is None else Path(data_dir))
    if last >= len(all_images):
        raise UsageError(f"{data_dir} has test images 0 to {len(all_images) - 1}, not {wanted}")
    images = all_images[index : last + 1]
    description = f"CIFAR-10 test {wanted}"
    if batchsize == 1:
        description += f" ({CIFAR10_CLASSES[labels[index]]})"
    if shape != (3, 32, 32):
        description += f", resized to {_spaced(shape[:0:-1])}"
        images = np.stack(
            [_fit(Image.fromarray(image.transpose(1, 2, 0)), shape) for image in images]
        )
    return images.astype(np.float32) / np.float32(255), description


def _picture(path: str, shape: tuple[int, ...], batchsize: int) -> tuple[NDArray[Any], str]:
    if len(shape) != 3 or shape[0] not in (1, 3):
        raise UsageError(
            "a picture has 1 or 3 channels, height and width, but the network takes "
            f"{_spaced(shape)}: use a random input"
        )
    picture = _open_picture(Path(path), "L" if shape[0] == 1 else "RGB")
    width, height = picture.size
    description = f"picture {Path(path).name}, {width} x {height}"
    if (height, width) != shape[1:]:
        description += f", resized to {_spaced(shape[:0:-1])}"
    if batchsize > 1:
        description += f", {batchsize} times"
    image = _fit(picture, shape).astype(np.float32) / np.float32(255)
    return image[np.newaxis], description


def _open_picture(path: Path, mode: str) -> PIL.Image.Image:
    """Read a picture in Pillow's ``mode`` (``L`` or ``RGB``), rotated as its EXIF data says."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            # For a picture of up to twice its limit, Pillow only warns.
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with open_regular(path) as opened, Image.open(opened) as file:
                picture = ImageOps.exif_transpose(file)
                if picture.mode.startswith("I;16"):
                    # Pillow's conversion of 16-bit grey would clip at 255.
                    picture = picture.convert("I").point(lambda value: value / 256).convert("L")
                return picture.convert(mode)
    except FileNotFoundError as error:
        if not path.suffix:
            raise UsageError(
                f"unknown input {str(path)!r}: use random, cifar10 or the path of a picture"
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
    except Exception as error:  # the readers of different formats raise different errors
        reason = getattr(error, "strerror", None) or text_of(error)
        raise ProfileError(f"cannot read the picture {path}: {reason}") from error


def _fit(picture: PIL.Image.Image, shape: tuple[int, ...]) -> NDArray[Any]:
    """Crop and resize a picture (centred, bilinear) to ``shape``; returns uint8."""
    from PIL import Image, ImageOps

    channels, height, width = shape
    array = np.asarray(ImageOps.fit(picture, (width, height), Image.Resampling.BILINEAR))
    return array.reshape(height, width, channels).transpose(2, 0, 1)


def _spaced(shape: Sequence[int]) -> str:
    """Format a shape for a sentence: ``3 x 32 x 32``."""
    return " x ".join(map(str, shape))
