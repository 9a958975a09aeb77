"""Trains a network with Chainer's Trainer, so that a resumed training goes on exactly."""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import chainer
import chainer.links as L
import numpy
from chainer import training
from chainer.iterators import SerialIterator
from chainer.training import extensions

from chainer_profile.basics.errors import ProfileError, UsageError, one_line
from chainer_profile.basics.files import replacing
from chainer_profile.networks.cifar import Images
from chainer_profile.networks.weights import load_weights
from chainer_profile.training.exact_resume import (
    Batches,
    DecayingRate,
    Plot,
    ShuffleByOrder,
    StopAfter,
    TrainingState,
)
from chainer_profile.training.snapshots import SnapshotWriter, read_snapshot, snapshot_name

LOSS, ACCURACY = "main/loss", "main/accuracy"
TEST_LOSS, TEST_ACCURACY = f"validation/{LOSS}", f"validation/{ACCURACY}"
#: Files of a training beside its snapshots.
LOG, PLOTS, MODEL = "log", ("loss.png", "accuracy.png"), "model.npz"

MOMENTUM = 0.9
WEIGHT_DECAY = 1e-4
_SETTINGS = "extensions/TrainingState/settings"
_PRINTED = ("epoch", "iteration", LOSS, TEST_LOSS, ACCURACY, TEST_ACCURACY, "lr", "elapsed_time")


class Console(Protocol):
    """Where PrintReport and ProgressBar write."""

    def write(self, text: str, /) -> Any:
        """Writes a text."""

    def flush(self) -> None:
        """Shows what was written."""


@dataclass(frozen=True)
class TrainingSettings:
    """What decides how a training goes; a resumed one must have the same but for ``epochs``.

    Attributes:
        model: The network.
        dataset: The data set.
        images: Number of training images.
        checksum: SHA-256 of the training images and labels.
        batchsize: Images per iteration.
        learning_rate: Learning rate at the begin; a tenth of it from half of the epochs on, a
            hundredth from three quarters on.
        augmentation: Whether images are cropped and flipped.
        seed: Seed of the initial weights, of the order and of the augmentation.
        epochs: Number of epochs.
        fast: The kernels under Chainer's functions, ``none`` where they are Chainer's own.
    """

    model: str
    dataset: str
    images: int
    checksum: str
    batchsize: int
    learning_rate: float
    augmentation: bool
    seed: int
    epochs: int
    fast: str = "none"

    def decay_iterations(self) -> tuple[int, int]:
        """Iterations after which the learning rate falls."""
        quarters = self.epochs * self.images
        half, three_quarters = (-(-quarters * n // (4 * self.batchsize)) for n in (2, 3))
        return half, three_quarters


@dataclass(frozen=True)
class Training:
    """A training that can be run.

    Attributes:
        trainer: Chainer's Trainer.
        classifier: The network in a :class:`chainer.links.Classifier`.
        settings: How it goes.
        writer: What writes its snapshots.
    """

    trainer: training.Trainer
    classifier: L.Classifier
    settings: TrainingSettings
    writer: SnapshotWriter

    def resume(self, path: Path) -> int:
        """Takes up the state of a snapshot.

        Args:
            path: The snapshot.

        Returns:
            int: The number of epochs that the training was to have when it was made.

        Raises:
            ProfileError: If the file is damaged, or of a training with other settings, another
                network or other images.
            UsageError: If it has more epochs behind it than this training is to have.

        """
        arrays = read_snapshot(path)
        before = snapshot_settings(path)
        check_same(before, asdict(self.settings), path)
        # This checks that each array fits the network, and says what does not.
        load_weights(self.classifier, path)
        try:
            with warnings.catch_warnings():
                # A run in a terminal has a progress bar more than one that is not.
                warnings.filterwarnings("ignore", "The previous value of", UserWarning)
                chainer.serializers.NpzDeserializer(arrays).load(self.trainer)
        except Exception as error:  # a missing or odd array raises anything
            raise ProfileError(f"{path} cannot be taken up: {one_line(error)}") from error
        if self.trainer.updater.epoch > self.settings.epochs:
            raise UsageError(
                f"--epoch {self.settings.epochs}: {path} has {self.trainer.updater.epoch} epochs "
                "behind it; give as many or more"
            )
        self.writer.last = path
        return int(before["epochs"])

    def run(self) -> None:
        """Trains until the last epoch is done, or the stop that was asked for.

        A snapshot of the last iteration is there afterwards.

        Raises:
            ProfileError: If training fails, the loss is no number, or a file cannot be written;
                the message names the iteration and the last snapshot.

        """
        updater = self.trainer.updater
        try:
            # A loss that is no number is told by LossGuard, not by NumPy's warnings.
            with numpy.errstate(over="ignore", invalid="ignore"):
                self.trainer.run(show_loop_exception_msg=False)
            snapshot = self.trainer.get_extension("snapshot")
            if self.writer.last != Path(self.trainer.out) / snapshot_name(self.trainer):
                snapshot(self.trainer)
        except ProfileError as error:
            raise ProfileError(f"{error}; {self.writer.describe_last()}") from error
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            raise ProfileError(
                f"training failed after iteration {updater.iteration}: {one_line(error)}; "
                f"{self.writer.describe_last()}"
            ) from error

    def is_complete(self) -> bool:
        """Whether all epochs are done."""
        return bool(self.trainer.updater.epoch >= self.settings.epochs)

    def test_accuracy(self) -> float:
        """Accuracy on the test images after the last epoch, 0 to 1."""
        return float(self.trainer.get_extension("LogReport").log[-1][TEST_ACCURACY])

    def save_model(self) -> Path:
        """Writes the bare network for ``profile.py --weights``.

        Raises:
            ProfileError: If it cannot be written.
        """
        path = Path(self.trainer.out) / MODEL
        with replacing(path) as file:
            chainer.serializers.save_npz(file, self.classifier.predictor)
        return path


def build_training(
    predictor: chainer.Link,
    train: Images,
    test: Images,
    settings: TrainingSettings,
    out: Path,
    *,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    device: str = "@numpy",
    stop: Callable[[], str] = lambda: "",
    console: Console | None = None,
    progress: Console | None = None,
    snapshot_every: int | None = None,
    profile_every: int | None = None,
    command: str = "",
) -> Training:
    """Puts a training together: momentum SGD, evaluation, log, plots and snapshots.

    Args:
        predictor: The network, on its device.
        train: Training images.
        test: Test images.
        settings: How to train.
        out: Folder of the results.
        mean: What to subtract from each channel of an image scaled to 0..1.
        std: What to divide each channel by after that.
        device: Chainer's name of the network's device.
        stop: Gives why to stop after the running iteration, or an empty text.
        console: Where a line is printed for each epoch.
        progress: Where a progress bar is drawn.
        snapshot_every: Iterations between snapshots; None for an epoch.
        profile_every: Iterations between profiled ones; None profiles none.
        command: The command line, for the reports of profiled iterations.

    Returns:
        Training: The training, at its begin.

    """
    classifier = L.Classifier(predictor)
    optimizer = chainer.optimizers.MomentumSGD(lr=settings.learning_rate, momentum=MOMENTUM)
    optimizer.setup(classifier)
    optimizer.add_hook(chainer.optimizer_hooks.WeightDecay(WEIGHT_DECAY))

    place = chainer.get_device(device)
    batches = Batches(mean, std, settings.seed if settings.augmentation else None)
    iterator = SerialIterator(
        chainer.datasets.TupleDataset(*train),
        settings.batchsize,
        order_sampler=ShuffleByOrder(settings.seed),
    )
    updater = training.updaters.StandardUpdater(
        iterator, optimizer, converter=batches, input_device=place
    )
    batches.iteration = lambda: int(updater.iteration)
    trainer = training.Trainer(updater, StopAfter(settings.epochs, stop), out=str(out))

    test_iterator = SerialIterator(
        chainer.datasets.TupleDataset(*test), settings.batchsize, repeat=False, shuffle=False
    )
    trainer.extend(TrainingState(json.dumps(asdict(settings))))
    trainer.extend(LossGuard())
    trainer.extend(
        extensions.Evaluator(
            test_iterator,
            classifier,
            converter=Batches(mean, std),
            device=place,
            eval_func=_weighted(classifier),
        )
    )
    trainer.extend(extensions.observe_lr())
    trainer.extend(DecayingRate("lr", 0.1, settings.decay_iterations(), settings.learning_rate))
    trainer.extend(extensions.LogReport(filename=LOG))
    plotted = (((LOSS, TEST_LOSS), "loss"), ((ACCURACY, TEST_ACCURACY), "accuracy"))
    for file, (keys, what) in zip(PLOTS, plotted, strict=True):
        trainer.extend(Plot(keys, what, file))
    if console is not None:
        trainer.extend(
            extensions.PrintReport(_PRINTED, out=console), trigger=(1, "epoch"), priority=50
        )
    if progress is not None:
        bar = extensions.ProgressBar(update_interval=1)
        bar._pbar._out = progress  # the constructor's out is not passed on
        trainer.extend(bar, priority=40)
    if profile_every is not None:
        from chainer_profile.integrations.trainer import LayerProfile

        trainer.extend(
            LayerProfile((profile_every, "iteration"), title=settings.model, command=command)
        )
    writer = SnapshotWriter()
    trigger = (1, "epoch") if snapshot_every is None else (snapshot_every, "iteration")
    trainer.extend(
        extensions.snapshot(filename=snapshot_name, writer=writer),
        name="snapshot",
        trigger=trigger,
    )
    return Training(trainer, classifier, settings, writer)


def try_network(
    predictor: chainer.Link, images: Any, classes: int, shape: tuple[int, ...], name: str
) -> None:
    """Runs a network on a batch before it is trained.

    Args:
        predictor: The network.
        images: The batch, on the network's device.
        classes: Number of classes.
        shape: Shape of one image, for the message.
        name: The network's name, for the message.

    Raises:
        ProfileError: If it does not take such images, or does not give a row of ``classes``
            float values for each.

    """
    what = f"{name} cannot be trained on images of {' x '.join(map(str, shape))}"
    try:
        with chainer.using_config("train", False), chainer.no_backprop_mode():
            output = predictor(images)
    except (Exception, SystemExit) as error:
        raise ProfileError(f"{what}: {one_line(error)}") from error
    array = output.array if isinstance(output, chainer.Variable) else output
    expected = (len(images), classes)
    if getattr(array, "shape", None) != expected or array.dtype.kind != "f":
        given = getattr(array, "shape", type(output).__name__)
        raise ProfileError(
            f"{what}: for {len(images)} images it must give floats of the shape {expected}, but "
            f"it gives {given}"
        )


def checksum(images: Images) -> str:
    """SHA-256 of images and labels."""
    digest = hashlib.sha256()
    for array in images:
        digest.update(numpy.ascontiguousarray(array).data)
    return digest.hexdigest()


def snapshot_settings(path: Path) -> dict[str, Any]:
    """Reads the :class:`TrainingSettings` of the training that made a snapshot.

    Raises:
        ProfileError: If there is no such file, or it is damaged or no snapshot of ``train.py``.
    """
    arrays = read_snapshot(path, [_SETTINGS])
    if not arrays:
        raise ProfileError(f"{path} is not a snapshot of train.py: it holds no settings")
    try:
        settings = json.loads(str(arrays[_SETTINGS]))
        return {**settings, "epochs": int(settings["epochs"])}
    except (ValueError, KeyError, TypeError) as error:
        raise ProfileError(f"{path} is damaged: its settings cannot be read") from error


_OPTIONS = {
    "model": "--model",
    "dataset": "--dataset",
    "batchsize": "--batchsize",
    "learning_rate": "--learning-rate",
    "augmentation": "augmentation",
    "seed": "--seed",
    "images": "a number of training images of",
    "checksum": "training images of the SHA-256",
    "fast": "--fast",
}


def check_same(before: Mapping[str, Any], now: Mapping[str, Any], path: Path) -> None:
    """Refuses a snapshot of a training with other settings.

    Args:
        before: The snapshot's settings.
        now: Settings of this training; those that are there are compared.
        path: The snapshot.

    Raises:
        ProfileError: If they differ in more than the number of epochs.

    """
    for key, option in _OPTIONS.items():
        # Snapshots of before have no --fast.
        was = before.get(key, "none" if key == "fast" else None)
        if key in now and was != now[key]:
            raise ProfileError(
                f"{path} is of a training with {option} {was}, not {now[key]}: give "
                "the same options to go on with it, or train anew in another folder"
            )


def _weighted(classifier: L.Classifier) -> Callable[[Any, Any], None]:
    """The classifier, each of whose values counts as often as its batch has images.

    The Evaluator takes the mean of the batches otherwise, also where the last one is smaller.
    """

    def evaluate(x: Any, t: Any) -> None:
        observation: dict[str, Any] = {}
        with chainer.reporter.report_scope(observation):
            classifier(x, t)
        chainer.report({name: (value, len(t)) for name, value in observation.items()})

    return evaluate


class LossGuard(training.Extension):
    """Ends training at a loss that is no number, before anything is done with that state."""

    name = "LossGuard"
    priority = training.PRIORITY_WRITER + 100

    def __call__(self, trainer: training.Trainer) -> None:
        """Looks at the loss of the iteration."""
        loss = float(trainer.observation[LOSS].array)
        if not math.isfinite(loss):
            raise ProfileError(
                f"the loss is {loss} in iteration {trainer.updater.iteration}: training stopped; "
                "try a smaller --learning-rate"
            )
