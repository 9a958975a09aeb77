"""Snapshots of a training: written whole or not at all, and read without running anything."""

from __future__ import annotations

import re
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

import chainer
import numpy
from chainer import training
from chainer.training.extensions import snapshot_writers

from chainer_profile.basics.errors import ProfileError
from chainer_profile.basics.files import replacing
from chainer_profile.networks.weights import open_npz, read_npy

_KEPT = 3
_NAME = re.compile(r"snapshot_iter_(\d+)")


def snapshots(folder: Path) -> list[Path]:
    """The snapshots in a folder, the one of the latest iteration last."""
    with suppress(OSError):
        found = [path for path in folder.iterdir() if _NAME.fullmatch(path.name)]
        return sorted(found, key=_iteration)
    return []


def _iteration(path: Path) -> int:
    return int(path.name.rpartition("_")[2])


def snapshot_name(trainer: training.Trainer) -> str:
    """Chainer's usual name of a snapshot."""
    return f"snapshot_iter_{trainer.updater.iteration}"


def read_snapshot(path: Path, wanted: Collection[str] | None = None) -> dict[str, Any]:
    """Reads a snapshot's arrays by their names: all of them, or those wanted that it has.

    Raises:
        ProfileError: If there is no such file, or it is damaged or no npz file.
    """
    if not path.is_file():
        raise ProfileError(f"there is no snapshot {path}")
    with suppress(OSError), open(path, "rb") as file:
        if file.read(2) != b"PK":
            raise ProfileError(f"{path} is not a snapshot of train.py")
    with open_npz(path) as archive:
        names = [name[: -len(".npy")] for name in archive.namelist() if name.endswith(".npy")]
        return {
            name: read_npy(archive, name, path)
            for name in names
            if wanted is None or name in wanted
        }


class SnapshotWriter(snapshot_writers.Writer):
    """Writes snapshots whole or not at all, and keeps the last few.

    Attributes:
        last: The last snapshot, or None.
    """

    def __init__(self) -> None:
        super().__init__()
        self.last: Path | None = None

    def __call__(self, filename: str, outdir: str, target: dict[str, Any]) -> None:
        """Writes a snapshot, called by the extension.

        Raises:
            ProfileError: If weights or momentum are not finite, or it cannot be written.
        """
        path = Path(outdir) / filename
        # The loss is one update behind: the update may have spoilt the weights.
        for name, array in target.items():
            if (
                name.startswith("updater/")
                and array.dtype.kind == "f"
                and not numpy.isfinite(array).all()
            ):
                raise ProfileError(
                    f"{name.partition('/')[2]} is not finite after iteration {_iteration(path)}: "
                    "training stopped; try a smaller --learning-rate"
                )
        with replacing(path) as file:
            chainer.serializers.save_npz(file, target, compression=False)
        self.last = path
        # By age: after --resume with an earlier one, later iterations may be older.
        by_age = sorted(
            snapshots(Path(outdir)), key=lambda path: (path.stat().st_mtime, _iteration(path))
        )
        for old in by_age[:-_KEPT]:
            old.unlink(missing_ok=True)

    def describe_last(self) -> str:
        """Names the last snapshot, for the end of a message."""
        if self.last is None:
            return "there is no snapshot yet"
        return f"the last snapshot is {self.last}"
