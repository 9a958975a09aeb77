"""Parts of a Trainer that go on exactly where a snapshot was.

Whatever is random is a function of the seed and of what a snapshot holds: the crops of an
iteration of its number, the order of an epoch of the order before it. A snapshot also keeps the
state of NumPy's global generator, which dropout draws from.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import chainer
import numpy
from chainer import training
from chainer.iterators import OrderSampler
from chainer.training import extensions

from chainer_profile.networks.inputs import normalise
from chainer_profile.training.augmentation import augment


class Batches(chainer.dataset.Converter):
    """Makes the arrays of an iteration from its images.

    Attributes:
        iteration: Gives the number of the iteration, from 0.
    """

    def __init__(
        self,
        mean: Sequence[float] | None,
        std: Sequence[float] | None,
        augmentation_seed: int | None = None,
    ) -> None:
        self._mean = mean
        self._std = std
        self._seed = augmentation_seed
        self.iteration: Callable[[], int] = lambda: 0

    def __call__(self, batch: list[tuple[Any, Any]], device: Any) -> tuple[Any, Any]:
        """Gives images, float32, and labels, int32, on the device."""
        images = numpy.stack([image for image, _ in batch])
        labels = numpy.array([label for _, label in batch], dtype=numpy.int32)
        if self._seed is not None:
            generator = numpy.random.default_rng([self._seed, self.iteration()])
            images = augment(images, generator)
        array = images.astype(numpy.float32) / numpy.float32(255)
        return device.send(normalise(array, self._mean, self._std)), device.send(labels)


class ShuffleByOrder(OrderSampler):
    """Shuffles by the seed and the order so far alone, since a snapshot holds that order.

    Chainer's ShuffleOrderSampler draws from a generator whose state no snapshot holds.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def __call__(self, current_order: Any, current_position: int) -> Any:
        """Gives the next order."""
        digest = hashlib.sha256(current_order.astype("<i8").tobytes()).digest()
        generator = numpy.random.default_rng([self._seed, int.from_bytes(digest, "little")])
        return generator.permutation(len(current_order))


class StopAfter:
    """Ends training after so many epochs, or when there is a reason.

    Chainer's IntervalTrigger remembers when it was asked last; resumed from a snapshot of the
    last iteration it would train on.
    """

    def __init__(self, epochs: int, reason: Callable[[], str]) -> None:
        self._epochs = epochs
        self._reason = reason

    def __call__(self, trainer: training.Trainer) -> bool:
        """Whether training ends here."""
        return bool(self._reason()) or trainer.updater.epoch >= self._epochs

    def get_training_length(self) -> tuple[int, str]:
        """For the progress bar."""
        return self._epochs, "epoch"


class TrainingState(training.Extension):
    """Keeps the settings, and the state of NumPy's global generator, in the snapshots."""

    name = "TrainingState"

    def __init__(self, settings: str) -> None:
        self._settings = settings

    def __call__(self, trainer: training.Trainer) -> None:
        """Does nothing: only snapshots need it."""

    def serialize(self, serializer: Any) -> None:
        """Saves both, and sets the generator's state from a snapshot."""
        state = numpy.random.get_state(legacy=True)  # noqa: NPY002  (what Chainer draws from)
        kind, keys, *rest = state
        values = [serializer("keys", keys)]
        for name, value in zip(("position", "has_gauss", "gauss"), rest, strict=True):
            values.append(serializer(name, value))
        if isinstance(serializer, chainer.Serializer):
            serializer("settings", self._settings)
        else:
            numpy.random.set_state((kind, *values))  # noqa: NPY002


class DecayingRate(extensions.MultistepShift):
    """MultistepShift that goes on where a snapshot was.

    Chainer's own sets the initial rate in the first iteration after resuming. The iterations
    at which the rate falls come from the snapshot, too: more epochs do not move them.
    """

    def __init__(self, attr: str, gamma: float, steps: Sequence[int], init: float) -> None:
        self._step_value: Any
        super().__init__(attr, gamma, numpy.array(steps), init)

    def initialize(self, trainer: training.Trainer) -> None:
        """Sets the rate of the iteration that comes next."""
        optimizer = trainer.updater.get_optimizer("main")
        setattr(optimizer, self._attr, self._init * self._gamma**self._current_step)

    def serialize(self, serializer: Any) -> None:
        """Saves and loads the iterations as well."""
        super().serialize(serializer)
        self._step_value = serializer("step_value", self._step_value)


class Plot(extensions.PlotReport):
    """PlotReport that keeps the running epoch, and its mean, in the snapshot as well.

    Args:
        keys: What is plotted.
        what: What that is, for the axis.
        file: Name of the picture.
    """

    def __init__(self, keys: Sequence[str], what: str, file: str) -> None:
        def label(figure: Any, axes: Any, summary: Any) -> None:
            axes.set(xlabel="epoch", ylabel=what)

        super().__init__(keys, "epoch", filename=file, postprocess=label)

    def serialize(self, serializer: Any) -> None:
        """Saves and loads the running mean as well, and when there was a point last."""
        super().serialize(serializer)
        self._summary.serialize(serializer["_summary"])
        self._trigger.serialize(serializer["_trigger"])
