"""Snapshots: which are kept, what is refused, and a disk that is full."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from chainer_profile.basics.errors import ProfileError
from chainer_profile.training import snapshots
from chainer_profile.training.training import Training
from tests.command import file_size_limit
from tests.trainings import (  # noqa: F401
    Losses,
    failure,
    make,
    no_plots,
    settings,
    stop_at,
    whole_training,
)


def test_the_last_three_snapshots_are_kept_and_nothing_else_is_touched(tmp_path: Path) -> None:
    for name in ("snapshot_iter_1_mine", "snapshot_iter_x", "notes"):
        (tmp_path / name).write_text("mine")
    made, _ = make(tmp_path, snapshot_every=2)
    made.run()
    # The last iteration has one though 25 is odd.
    assert [path.name for path in snapshots.snapshots(tmp_path)] == [
        "snapshot_iter_22",
        "snapshot_iter_24",
        "snapshot_iter_25",
    ]
    names = {path.name for path in tmp_path.iterdir()}
    assert {"snapshot_iter_1_mine", "snapshot_iter_x", "notes"} < names
    assert not [name for name in names if name.startswith(".")]


def test_resuming_from_an_earlier_snapshot_keeps_what_it_writes(
    whole: tuple[Path, Losses, Training], tmp_path: Path
) -> None:
    for number in (20, 24, 25):
        path = tmp_path / f"snapshot_iter_{number}"
        path.write_bytes((whole[0] / path.name).read_bytes())
        os.utime(path, (number, number))
    made, _ = make(tmp_path, snapshot_every=1, plan=settings(epochs=4))
    made.resume(tmp_path / "snapshot_iter_20")
    stop_at(made, 22)
    assert [path.name for path in snapshots.snapshots(tmp_path)] == [
        "snapshot_iter_21",
        "snapshot_iter_22",
        "snapshot_iter_25",
    ]


def test_files_that_are_no_snapshots(whole: tuple[Path, Losses, Training], tmp_path: Path) -> None:
    made, _ = make(tmp_path)
    content = (whole[0] / "snapshot_iter_7").read_bytes()
    (tmp_path / "cut").write_bytes(content[: len(content) // 2])
    (tmp_path / "text").write_text("hello")
    (tmp_path / "empty").write_text("")
    np.savez(tmp_path / "other.npz", a=1)
    settings_name = "extensions/TrainingState/settings"
    np.savez(tmp_path / "odd.npz", **{settings_name: "no JSON"})
    np.savez(tmp_path / "list.npz", **{settings_name: "[1]"})
    np.savez(tmp_path / "pickled.npz", **{settings_name: np.array(Path("x"), dtype=object)})
    for name, said in {
        "none": "there is no snapshot ",
        "cut": " is cut short or damaged",
        "text": " is not a snapshot of train.py",
        "empty": " is not a snapshot of train.py",
        "other.npz": " is not a snapshot of train.py: it holds no settings",
        "odd.npz": " is damaged: its settings cannot be read",
        "list.npz": " is damaged: its settings cannot be read",
        "pickled.npz": " is a Python object",
    }.items():
        with pytest.raises(ProfileError) as error:
            made.resume(tmp_path / name)
        assert said in str(error.value)
        assert "\n" not in str(error.value)


def test_weights_that_are_no_numbers_reach_no_snapshot(tmp_path: Path) -> None:
    # The loss of the iteration was still one: its update was not.
    made, losses = make(tmp_path, snapshot_every=1)
    update = made.trainer.updater.update

    def spoil() -> None:
        update()
        if made.trainer.updater.iteration == 5:
            made.classifier.predictor.conv.W.array[0, 0, 0, 0] = np.nan

    made.trainer.updater.update = spoil
    assert failure(made) == (
        "model:main/predictor/conv/W is not finite after iteration 5: training stopped; try a "
        f"smaller --learning-rate; the last snapshot is {tmp_path / 'snapshot_iter_4'}"
    )
    assert len(losses.by_iteration) == 5
    assert [path.name for path in snapshots.snapshots(tmp_path)][-1] == "snapshot_iter_4"


def test_a_full_disk_at_a_snapshot(whole: tuple[Path, Losses, Training], tmp_path: Path) -> None:
    made, losses = make(tmp_path)
    stop_at(made, 7)
    first = tmp_path / "snapshot_iter_7"
    before = first.read_bytes()
    again, _ = make(tmp_path)
    again.resume(first)
    with file_size_limit(len(before) - 1000):
        text = failure(again)
    assert text == (
        f"{tmp_path / 'snapshot_iter_13'}: cannot be written (File too large); "
        f"the last snapshot is {first}"
    )
    assert first.read_bytes() == before
    assert [path.name for path in snapshots.snapshots(tmp_path)] == ["snapshot_iter_7"]
    last, second = make(tmp_path)
    last.resume(first)
    last.run()
    assert losses.by_iteration | second.by_iteration == whole[1].by_iteration
