"""Trainings: what they see, write and leave when they fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest
from chainer.training import extensions

from chainer_profile.basics.errors import ProfileError
from chainer_profile.networks.cifar import Images
from chainer_profile.networks.weights import load_weights
from chainer_profile.training import snapshots, training
from chainer_profile.training.training import Training, checksum
from tests.trainings import (  # noqa: F401
    LAST,
    MEAN,
    STD,
    TEST,
    TRAIN,
    Losses,
    Net,
    breaking,
    failure,
    log,
    make,
    no_plots,
    settings,
    whole_training,
)


def test_the_learning_rate_falls_at_half_and_three_quarters(
    whole: tuple[Path, Losses, Training],
) -> None:
    rates = [whole[1].by_iteration[i][1] for i in range(1, LAST + 1)]
    assert rates == pytest.approx([0.1] * 13 + [0.01] * 6 + [0.001] * 6)
    assert settings().decay_iterations() == (13, 19)
    assert settings(epochs=164, images=50_000, batchsize=128).decay_iterations() == (32_032, 48_047)


def test_the_seed_decides_the_order_the_crops_and_the_weights(tmp_path: Path) -> None:
    def losses(name: str, **changes: Any) -> dict[int, tuple[bytes, float]]:
        made, found = make(tmp_path / name, plan=settings(epochs=1, **changes))
        made.run()
        return found.by_iteration

    first = losses("a")
    assert losses("b") == first
    assert losses("c", seed=4) != first
    assert losses("d", augmentation=False) != first


def test_training_images_are_normalised_and_test_images_stay_whole(tmp_path: Path) -> None:
    seen: dict[bool, list[Any]] = {True: [], False: []}

    class Watching(Net):
        def forward(self, x: Any) -> Any:
            seen[bool(chainer.config.train)].append(x)
            return super().forward(x)

    made, _ = make(tmp_path, Watching, settings(epochs=1))
    seen[False].clear()
    made.run()
    expected = TEST.images.astype(np.float32) / 255
    expected = (expected - np.reshape(MEAN, (3, 1, 1))) / np.reshape(STD, (3, 1, 1))
    tested = np.concatenate(seen[False])
    assert tested.dtype == np.float32
    np.testing.assert_allclose(tested, expected, rtol=1e-4, atol=1e-5)
    black = (0 - np.array(MEAN)) / STD
    trained = np.concatenate(seen[True])
    assert trained.shape == (7 * 8, 3, 32, 32)
    np.testing.assert_allclose(trained.min(axis=(0, 2, 3)), black, rtol=1e-4)


def test_the_test_accuracy_counts_every_image_once(
    whole: tuple[Path, Losses, Training],
) -> None:
    # 23 test images in batches of 8, 8 and 7.
    made = whole[2]
    images = (TEST.images.astype(np.float32) / 255 - np.reshape(MEAN, (3, 1, 1))).astype("f")
    images /= np.reshape(STD, (3, 1, 1)).astype("f")
    with chainer.using_config("train", False):
        right = made.classifier.predictor(images).array.argmax(axis=1) == TEST.labels
    assert made.test_accuracy() == pytest.approx(right.mean(), abs=1e-6)
    assert round(made.test_accuracy() * 23) == pytest.approx(made.test_accuracy() * 23, abs=1e-4)


def test_what_is_in_the_folder_and_in_the_log(whole: tuple[Path, Losses, Training]) -> None:
    out, losses, made = whole
    entries = log(out)
    assert [entry["iteration"] for entry in entries] == [7, 13, 19, 25]
    assert [entry["epoch"] for entry in entries] == [1, 2, 3, 4]
    mean = np.mean([np.frombuffer(losses.by_iteration[i][0], "f")[0] for i in range(1, 8)])
    assert entries[0]["main/loss"] == pytest.approx(mean, rel=1e-5)
    assert set(entries[0]) == {
        "epoch",
        "iteration",
        "lr",
        *(f"{part}main/{key}" for part in ("", "validation/") for key in ("loss", "accuracy")),
    }
    assert made.is_complete()


def test_the_model_is_what_profile_py_loads(
    whole: tuple[Path, Losses, Training], tmp_path: Path
) -> None:
    made = whole[2]
    path = made.save_model()
    assert path.name == "model.npz"
    for file in (path, whole[0] / f"snapshot_iter_{LAST}"):
        net = Net()
        load_weights(net, file)
        for (name, param), (_, other) in zip(
            net.namedparams(), made.classifier.predictor.namedparams(), strict=True
        ):
            np.testing.assert_array_equal(param.array, other.array, err_msg=name)


def test_plots_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setattr(extensions.PlotReport, "available", staticmethod(lambda: True))
    made, _ = make(tmp_path, plan=settings(epochs=1, batchsize=50))
    made.run()
    for name in ("loss.png", "accuracy.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


# --- failures


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_loss_that_is_no_number_ends_training_at_once(
    whole: tuple[Path, Losses, Training], tmp_path: Path, value: float
) -> None:
    def spoil(net: Any) -> None:
        net.fc.b.array[:1] = value

    made, losses = make(tmp_path, breaking(9, spoil), snapshot_every=1)
    assert failure(made) == (
        "the loss is nan in iteration 9: training stopped; try a smaller --learning-rate; "
        f"the last snapshot is {tmp_path / 'snapshot_iter_8'}"
    )
    assert max(losses.by_iteration) == 8
    assert [path.name for path in snapshots.snapshots(tmp_path)][-1] == "snapshot_iter_8"
    # Nothing is lost: it goes on from there.
    again, second = make(tmp_path)
    again.resume(tmp_path / "snapshot_iter_8")
    again.run()
    assert losses.by_iteration | second.by_iteration == whole[1].by_iteration


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit, MemoryError])
def test_a_network_that_fails(
    tmp_path: Path, kind: type[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(net: Any) -> None:
        raise kind("in two\nlines")

    made, _ = make(tmp_path, breaking(9, fail))
    assert failure(made) == (
        f"training failed after iteration 8: {kind.__name__}: in two lines; "
        f"the last snapshot is {tmp_path / 'snapshot_iter_7'}"
    )
    assert capsys.readouterr() == ("", "")


def test_a_failure_before_the_first_snapshot(tmp_path: Path) -> None:
    def fail(net: Any) -> None:
        raise ValueError

    made, _ = make(tmp_path, breaking(1, fail))
    assert failure(made) == (
        "training failed after iteration 0: ValueError; there is no snapshot yet"
    )


# --- networks that do not fit


@pytest.mark.parametrize(
    ("network", "said"),
    [
        (lambda x: F.sum(x), "it must give floats of the shape (2, 10), but it gives ()"),
        (lambda x: F.mean(x, axis=(2, 3)), "of the shape (2, 10), but it gives (2, 3)"),
        (lambda x: x, "but it gives (2, 3, 32, 32)"),
        (lambda x: (x, x), "but it gives tuple"),
        (lambda x: None, "but it gives NoneType"),
        (lambda x: x[0, 0, 99], "IndexError: "),
        (L.Linear(5, 10), "InvalidType: "),
    ],
)
def test_a_network_that_does_not_fit(network: Any, said: str) -> None:
    with pytest.raises(ProfileError) as error:
        training.try_network(network, np.zeros((2, 3, 32, 32), "f"), 10, (3, 32, 32), "net")
    text = str(error.value)
    assert text.startswith("net cannot be trained on images of 3 x 32 x 32: ")
    assert said in text
    assert "\n" not in text


def test_trying_a_network_leaves_it_as_it_is() -> None:
    net = Net()
    before = net.bn.avg_mean.copy()
    training.try_network(net, np.ones((2, 3, 32, 32), "f"), 10, (3, 32, 32), "net")
    np.testing.assert_array_equal(net.bn.avg_mean, before)
    assert net.calls == 0


def test_the_checksum_is_of_images_and_labels() -> None:
    labels = TRAIN.labels.copy()
    labels[0] += 1
    assert checksum(TRAIN) == checksum(Images(TRAIN.images.copy(), TRAIN.labels))
    assert checksum(TRAIN) != checksum(Images(TRAIN.images, labels))


def test_signals_are_not_this_module_s() -> None:
    assert "signal" not in vars(training)
