"""A training with Chainer's Trainer: momentum SGD, evaluation, log, plots and snapshots."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

import chainer
from chainer import training
from chainer.iterators import SerialIterator
from chainer.training import extensions, triggers

MOMENTUM, WEIGHT_DECAY = 0.9, 1e-4
SNAPSHOT = "snapshot_iter_"
TEST_ACCURACY = "validation/main/accuracy"
#: Snapshots that are kept.
_KEPT = 3
_PRINTED = (
    *("epoch", "iteration", "main/loss", "validation/main/loss", "main/accuracy"),
    *(TEST_ACCURACY, "lr", "elapsed_time"),
)


class Until:
    """Ends training after so many epochs, or when there is a reason.

    Chainer's own trigger of epochs fires when one ends: resumed behind the last one, a training
    would go on for ever.
    """

    def __init__(self, epochs: int, reason: Callable[[], str]) -> None:
        self._epochs, self._reason = epochs, reason

    def __call__(self, trainer: training.Trainer) -> bool:
        """Whether training ends here."""
        return bool(self._reason()) or trainer.updater.epoch >= self._epochs

    def get_training_length(self) -> tuple[int, str]:
        """For the progress bar."""
        return self._epochs, "epoch"


def build_trainer(
    model: chainer.Link,
    train: Any,
    test: Any,
    out: Path,
    *,
    epochs: int,
    batchsize: int,
    learning_rate: float,
    device: str,
    stop: Callable[[], str],
    resume: bool,
    snapshot_every: int | None,
    console: Console,
) -> training.Trainer:
    """Put a training of a classifier together, which is on its device already.

    ``stop`` gives why to stop after the running iteration, or an empty text; ``snapshot_every`` is
    in iterations, None for one snapshot an epoch.
    """
    optimizer = chainer.optimizers.MomentumSGD(learning_rate, MOMENTUM).setup(model)
    optimizer.add_hook(chainer.optimizer_hooks.WeightDecay(WEIGHT_DECAY))
    place = chainer.get_device(device)
    updater = training.updaters.StandardUpdater(
        SerialIterator(train, batchsize), optimizer, device=place
    )
    trainer = training.Trainer(updater, Until(epochs, stop), str(out))
    tested = SerialIterator(test, batchsize, repeat=False, shuffle=False)
    trainer.extend(extensions.FailOnNonNumber())
    trainer.extend(extensions.Evaluator(tested, model, device=place, eval_func=_weighted(model)))
    trainer.extend(extensions.observe_lr())
    falls = triggers.ManualScheduleTrigger([epochs / 2, epochs * 3 / 4], "epoch")
    trainer.extend(extensions.ExponentialShift("lr", 0.1), trigger=falls)
    trainer.extend(extensions.LogReport(filename="log"))
    for what in ("loss", "accuracy"):
        keys = [f"main/{what}", f"validation/main/{what}"]
        trainer.extend(extensions.PlotReport(keys, "epoch", filename=f"{what}.png"), name=what)
    every = (1, "epoch") if snapshot_every is None else (snapshot_every, "iteration")
    kept = extensions.snapshot(n_retains=_KEPT, autoload=resume)
    trainer.extend(kept, name="snapshot", trigger=every)
    trainer.extend(extensions.PrintReport(_PRINTED, out=console))
    if console.is_terminal:
        trainer.extend(extensions.ProgressBar(update_interval=10))
    return trainer


def _weighted(classifier: chainer.Link) -> Callable[[Any, Any], None]:
    """Lets the last batch of the Evaluator count by its images, where it is a smaller one."""

    def evaluate(x: Any, t: Any) -> None:
        observation: dict[str, Any] = {}
        with chainer.reporter.report_scope(observation):
            classifier(x, t)
        chainer.report({name: (value, len(t)) for name, value in observation.items()})

    return evaluate


class Console:
    """A stream whose end does not end training; without the terminal's codes where it is none."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self.is_terminal = stream, stream.isatty()

    def write(self, text: str) -> None:
        """Write a text if that is possible."""
        with suppress(OSError, ValueError):
            self._stream.write(text if self.is_terminal else text.replace("\033[J", ""))
            self._stream.flush()

    def flush(self) -> None:
        """Nothing to do: what is written is flushed already."""


def snapshots(folder: Path) -> list[Path]:
    """The snapshots in a folder, the newest last."""
    return sorted(folder.glob(f"{SNAPSHOT}*"), key=lambda path: path.stat().st_mtime)
