"""A resumed training goes on exactly; one that is not the same is not resumed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chainer.training import extensions

from chainer_profile.basics.errors import ProfileError, UsageError
from chainer_profile.training import exact_resume
from chainer_profile.training.exact_resume import ShuffleByOrder
from chainer_profile.training.training import Training
from tests.trainings import (  # noqa: F401
    LAST,
    Losses,
    Net,
    log,
    make,
    no_plots,
    settings,
    stop_at,
    whole_training,
)


@pytest.mark.parametrize("cut", [1, 5, 7, 12, 13, 14, 18, 19, 20, 24])
def test_a_resumed_training_has_the_same_losses_to_the_last_bit(
    whole: tuple[Path, Losses, Training], tmp_path: Path, cut: int
) -> None:
    out, losses, full = whole
    np.random.seed(99)  # noqa: NPY002  (whatever it was, it must not matter)
    made, resumed = make(tmp_path)
    assert made.resume(out / f"snapshot_iter_{cut}") == 4
    np.random.random(5)  # noqa: NPY002  (drawn before resuming or after: this is after)
    made.resume(out / f"snapshot_iter_{cut}")
    made.run()
    expected = {i: value for i, value in losses.by_iteration.items() if i > cut}
    assert resumed.by_iteration == expected
    assert log(tmp_path) == log(out)
    for (name, param), (_, other) in zip(
        made.classifier.namedparams(), full.classifier.namedparams(), strict=True
    ):
        np.testing.assert_array_equal(param.array, other.array, err_msg=name)
    assert made.test_accuracy() == full.test_accuracy()


@pytest.mark.parametrize("cut", [3, 10, 13, 14, 24])
def test_the_plots_of_a_resumed_training_are_those_of_a_whole_one(
    tmp_path: Path, cut: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extensions.PlotReport, "available", staticmethod(lambda: True))
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda *_, **__: None)

    def points(made: Training) -> list[Any]:
        plots = [made.trainer.get_extension(name) for name in ("Plot", "Plot_1")]
        return [json.loads(json.dumps(plot._data)) for plot in plots]

    whole, _ = make(tmp_path / "whole")
    whole.run()
    assert [len(line) for plot in points(whole) for line in plot.values()] == [4, 4, 4, 4]
    first, _ = make(tmp_path / "cut", snapshot_every=1)
    stop_at(first, cut)
    second, _ = make(tmp_path / "cut")
    second.resume(tmp_path / "cut" / f"snapshot_iter_{cut}")
    second.run()
    assert points(second) == points(whole)


def test_what_makes_it_exact_matters(
    whole: tuple[Path, Losses, Training], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without the decay's own initialize, the generator's state, the crops' or the order's rule
    # the comparison above would fail: it sees each of them.
    out, losses, _ = whole

    def first_difference(cut: int) -> int | None:
        made, resumed = make(tmp_path / str(cut))
        made.resume(out / f"snapshot_iter_{cut}")
        made.run()
        differences = [i for i, value in resumed.by_iteration.items() if value != expected[i]]
        return min(differences, default=None)

    expected = losses.by_iteration
    assert first_difference(14) is None
    with monkeypatch.context() as patch:
        patch.setattr(exact_resume.DecayingRate, "initialize", extensions.MultistepShift.initialize)
        assert first_difference(14) == 15
    with monkeypatch.context() as patch:
        patch.setattr(np.random, "set_state", lambda state: None)
        assert first_difference(14) == 15
    with monkeypatch.context() as patch:
        patch.setattr(exact_resume, "augment", lambda images, generator: images)
        assert first_difference(14) == 15
    with monkeypatch.context() as patch:
        random = np.random.default_rng(0)
        patch.setattr(
            ShuffleByOrder, "__call__", lambda self, order, position: random.permutation(order)
        )
        assert (
            first_difference(14) == 19
        )  # the batch that ends the epoch has two images of the next


def test_every_epoch_has_each_image_once_in_an_order_of_its_own() -> None:
    order = np.arange(50)
    sampler = ShuffleByOrder(7)
    orders = []
    for _ in range(5):
        order = sampler(order, 0)
        assert sorted(order) == list(range(50))
        orders.append(order)
    assert len({tuple(order) for order in orders}) == 5
    np.testing.assert_array_equal(ShuffleByOrder(7)(orders[2], 13), orders[3])
    assert not np.array_equal(ShuffleByOrder(8)(orders[2], 0), orders[3])


@pytest.mark.parametrize("cut", [3, 7, 25])
def test_a_stopped_training_has_a_snapshot_to_go_on_from(
    whole: tuple[Path, Losses, Training], tmp_path: Path, cut: int
) -> None:
    made, first = make(tmp_path)
    stop_at(made, cut)
    assert made.is_complete() == (cut == LAST)
    assert made.writer.last == tmp_path / f"snapshot_iter_{cut}"
    again, second = make(tmp_path)
    again.resume(made.writer.last)
    again.run()
    assert first.by_iteration | second.by_iteration == whole[1].by_iteration
    assert log(tmp_path) == log(whole[0])


def test_more_epochs_come_after_the_old_ones(
    whole: tuple[Path, Losses, Training], tmp_path: Path
) -> None:
    made, losses = make(tmp_path, plan=settings(epochs=6))
    assert made.resume(whole[0] / "snapshot_iter_10") == 4
    made.run()
    old = whole[1].by_iteration
    assert {i: losses.by_iteration[i] for i in range(11, 26)} == {i: old[i] for i in range(11, 26)}
    assert max(losses.by_iteration) == 38
    assert losses.by_iteration[38][1] == pytest.approx(0.001)


def test_fewer_epochs_than_are_done(whole: tuple[Path, Losses, Training], tmp_path: Path) -> None:
    made, _ = make(tmp_path, plan=settings(epochs=2))
    with pytest.raises(UsageError, match=r"--epoch 2: .*snapshot_iter_20 has 3 epochs behind it"):
        made.resume(whole[0] / "snapshot_iter_20")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model": "other"}, "--model net, not other"),
        ({"dataset": "cifar10"}, "--dataset synthetic, not cifar10"),
        ({"images": 49}, "a number of training images of 50, not 49"),
        ({"checksum": "0"}, "training images of the SHA-256 "),
        ({"batchsize": 9}, "--batchsize 8, not 9"),
        ({"learning_rate": 0.2}, "--learning-rate 0.1, not 0.2"),
        ({"augmentation": False}, "augmentation True, not False"),
        ({"seed": 4}, "--seed 3, not 4"),
    ],
)
def test_a_snapshot_of_a_training_with_other_settings(
    whole: tuple[Path, Losses, Training], tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    made, _ = make(tmp_path, plan=settings(**changes))
    with pytest.raises(ProfileError) as error:
        made.resume(whole[0] / "snapshot_iter_7")
    assert f"snapshot_iter_7 is of a training with {said}" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_snapshot_of_another_network_of_the_same_name(
    whole: tuple[Path, Losses, Training], tmp_path: Path
) -> None:
    made, _ = make(tmp_path, lambda: Net(classes=11))
    with pytest.raises(ProfileError, match="does not fit this network: predictor/fc/W is"):
        made.resume(whole[0] / "snapshot_iter_7")


def test_a_snapshot_without_a_part(whole: tuple[Path, Losses, Training], tmp_path: Path) -> None:
    made, _ = make(tmp_path)
    with np.load(whole[0] / "snapshot_iter_7") as arrays:
        kept = {name: arrays[name] for name in arrays.files if "/conv/W/v" not in name}
        assert len(kept) == len(arrays.files) - 1
    np.savez(tmp_path / "part.npz", **kept)
    with pytest.raises(ProfileError, match=r"part.npz cannot be taken up: KeyError: .*conv/W/v"):
        made.resume(tmp_path / "part.npz")
