"""Loads a network's weights from an npz file."""

from __future__ import annotations

import io
import pickletools
import zipfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib import format as npy

from chainer_profile.basics.errors import ProfileError, one_line
from chainer_profile.basics.files import open_regular
from chainer_profile.basics.free_memory import describe_memory_error, limit_to_free_memory

if TYPE_CHECKING:
    import chainer

_SAVE = "weights come from chainer.serializers.save_npz or a Trainer snapshot"


def load_weights(model: chainer.Link, path: str | Path) -> str:
    """Load weights of ``save_npz`` or of a Trainer's snapshot.

    Checks all arrays before it changes the network, and runs no code in the file.

    Returns:
        The prefix of the loaded arrays in the file; empty for a file of ``save_npz``.
    """
    from chainer import serializers

    path = Path(path)
    target = serializers.DictionarySerializer()
    target.save(model)
    expected: dict[str, Any] = target.target

    with limit_to_free_memory() as free, _open_npz(path) as archive:
        names = {name[: -len(".npy")] for name in archive.namelist() if name.endswith(".npy")}
        if not names:
            raise ProfileError(f"{path} is a zip file without arrays: {_SAVE}")
        prefix = _find_prefix(names, set(expected), path)
        keys = {key for key in names if key.startswith(prefix)}
        try:
            stored = {key[len(prefix) :]: _read_npy(archive, key, path) for key in sorted(keys)}
        except MemoryError as error:
            raise ProfileError(f"{path} {describe_memory_error(error, free)}") from error

    parameters = {name.lstrip("/") for name, _ in model.namedparams()}
    part = f" ({prefix[:-1]})" if prefix else ""
    _require_fit(expected, stored, f"{path}{part}", parameters)
    try:
        serializers.NpzDeserializer(stored).load(model)
    except Exception as error:  # serialize() of a user's link may raise anything
        raise ProfileError(f"loading {path} failed: {one_line(error)}") from error
    return prefix


@contextmanager
def _open_npz(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open an npz file, which is a zip file of npy files."""
    try:
        file = open_regular(path)
    except FileNotFoundError as error:
        raise ProfileError(f"there is no weights file {path}") from error
    except IsADirectoryError as error:
        raise ProfileError(f"{path} is a folder, not a weights file") from error
    except OSError as error:
        raise ProfileError(f"cannot read {path}: {error.strerror}") from error
    with file:
        try:
            archive = zipfile.ZipFile(file)
        except (zipfile.BadZipFile, OSError) as error:
            file.seek(0)
            is_zip = file.read(2) == b"PK"
            reason = "is cut short or damaged" if is_zip else f"is not an npz file: {_SAVE}"
            raise ProfileError(f"{path} {reason}") from error
        yield archive


def _read_npy(archive: zipfile.ZipFile, key: str, path: Path) -> Any:
    """Read an array of an npz file. The only allowed pickle is None, for a missing value."""
    try:
        file = io.BytesIO(archive.read(f"{key}.npy"))
        read_header = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
        version = npy.read_magic(file)
        if version not in read_header or not read_header[version](file)[2].hasobject:
            file.seek(0)
            return npy.read_array(file, allow_pickle=False)
        # Loading a pickle can run code; disassembling it does not.
        steps = [step.name for step, _, _ in pickletools.genops(file)]
    except MemoryError:
        raise
    except Exception as error:  # zipfile, zlib and numpy raise many kinds on damaged files
        raise ProfileError(f"{path} is cut short or damaged: {key} cannot be read") from error
    opcodes = " ".join(step for step in steps if "PUT" not in step and step != "MEMOIZE")
    if "EMPTY_LIST NONE APPEND" not in opcodes:
        raise ProfileError(f"{path}: {key} is a Python object, not an array")
    return np.array(None)


def _find_prefix(names: set[str], expected: set[str], path: Path) -> str:
    """Find the prefix of the network's arrays; raise ProfileError if a snapshot has no network."""
    if names & expected:
        return ""
    prefix = ""
    models = sorted({name.split("/")[1] for name in names if name.startswith("updater/model:")})
    if models:
        prefix = "updater/model:main/"
        if "model:main" not in models:
            raise ProfileError(
                f"{path} is a Trainer snapshot with {', '.join(models)}, but no model:main: "
                "save the wanted network with chainer.serializers.save_npz"
            )
    elif any(name.startswith(("updater/", "optimizer:")) for name in names):
        raise ProfileError(f"{path} contains the state of a training, but no network: {_SAVE}")
    inner = f"{prefix}predictor/"
    # If the network has a child called predictor, the network itself is the classifier.
    if any(name.startswith(inner) for name in names) and not any(
        key.startswith("predictor/") for key in expected
    ):
        prefix = inner
    return prefix


def _require_fit(
    expected: Mapping[str, Any],
    stored: Mapping[str, Any],
    source: str,
    parameters: Collection[str],
) -> None:
    """Raise ProfileError if the arrays of ``source`` do not fit the expected arrays."""
    # An array with the object None is a missing value. A persistent value may be missing in both.
    problems = [f"it has no {key}" for key in sorted(expected.keys() - stored.keys())]
    problems += [f"the network has no {key}" for key in sorted(stored.keys() - expected.keys())]
    for key in sorted(expected.keys() & stored.keys()):
        wanted, given = expected[key], stored[key]
        if given.dtype == object:
            if wanted.dtype != object or key in parameters:
                problems.append(f"it has no values for {key} (was it saved before the first call?)")
        elif wanted.dtype == object:
            continue
        elif given.shape != wanted.shape:
            problems.append(
                f"{key} is {given.shape} in the file, but {wanted.shape} in the network"
            )
        elif not np.can_cast(given.dtype, wanted.dtype, casting="same_kind"):
            problems.append(
                f"{key} is {given.dtype} in the file, but {wanted.dtype} in the network"
            )
    if problems:
        rest = f", and {len(problems) - 3} more" if len(problems) > 3 else ""
        raise ProfileError(f"{source} does not fit this network: {'; '.join(problems[:3])}{rest}")
