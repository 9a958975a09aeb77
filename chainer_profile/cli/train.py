"""``train``: trains a network on images with Chainer's Trainer."""

from __future__ import annotations

import argparse
import io
import shlex
import sys
import warnings
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import chainer
import matplotlib
import numpy as np
from chainer import training
from chainer.iterators import SerialIterator
from chainer.training import extensions, triggers

from chainer_profile.basics.describe import NS
from chainer_profile.basics.errors import ProfileError, UsageError, one_line
from chainer_profile.basics.files import locked, remove_file, removed_if_empty, replacing
from chainer_profile.basics.units import format_count, format_duration, plural
from chainer_profile.basics.words import TRAIN_COMMAND, TRAIN_PROG
from chainer_profile.cli.main import Context, Interrupted, Interrupts
from chainer_profile.kernels.accelerate import accelerate
from chainer_profile.measure import environment
from chainer_profile.measure.clock import HOST_CLOCK
from chainer_profile.measure.devices import move_to_gpu
from chainer_profile.measure.state import preserved_state
from chainer_profile.measure.steps import make_step
from chainer_profile.measure.threads import (
    PROBE_PART,
    PROBE_SECONDS,
    Probe,
    default_blas_threads,
    limit_blas_threads,
    probe_threads,
)
from chainer_profile.networks import loading
from chainer_profile.networks.training_images import N_SYNTHETIC, load, prepared
from chainer_profile.runs.output_files import refuse_foreign

SNAPSHOT = "snapshot_iter_"
#: Files of a training beside its snapshots.
FILES = ("log", "loss.png", "accuracy.png", "model.npz")
TEST_ACCURACY = "validation/main/accuracy"
_MAX_SNAPSHOTS = 3
_PRINTED = (
    *("epoch", "iteration", "main/loss", "validation/main/loss", "main/accuracy"),
    *(TEST_ACCURACY, "lr", "elapsed_time"),
)


class Defaults(NamedTuple):
    """The defaults of training on a data set, and its number of classes."""

    classes: int
    epochs: int
    batchsize: int
    learning_rate: float


#: The data sets by their names. CIFAR has 64,000 iterations, as He et al. trained; the synthetic
#: set is too small for large batches and rates.
DATASETS = {
    "cifar10": Defaults(10, 164, 128, 0.1),
    "cifar100": Defaults(100, 164, 128, 0.1),
    "synthetic": Defaults(N_SYNTHETIC, 6, 32, 0.02),
}


def run(args: argparse.Namespace, context: Context) -> int:
    """Train a network, or continue from the newest snapshot in the folder."""
    dataset, _ = args.dataset
    classes = DATASETS[dataset].classes
    # The number of classes of a user's own network is checked by _try_network().
    is_own = args.model not in context.registry
    source = loading.find_model(
        args.model, context.registry, None if is_own else classes, args.model_args
    )
    out = args.out or Path("results") / f"{source.name}-{dataset}"
    if args.resume and not out.is_dir():
        raise UsageError(f"--resume: there is no folder {out}; name it with --out")
    with removed_if_empty(out), locked(out, "another training is writing there"):
        _check_folder(out, args)
        return train(args, source, out, context)


def _check_folder(out: Path, args: argparse.Namespace) -> None:
    """Refuse to replace files without --force, and --resume in a folder without a snapshot."""

    def is_of_training(name: str) -> bool:
        return name in FILES or name.startswith(SNAPSHOT)

    if args.resume:
        if not snapshots(out):
            raise ProfileError(
                f"--resume: there is no snapshot in {out}; name its folder with --out"
            )
    elif not args.force and any(is_of_training(path.name) for path in out.iterdir()):
        raise UsageError(
            f"--out {out} contains a training already; continue it with --resume, replace it "
            "with --force, or name another folder"
        )
    else:
        refuse_foreign(out, is_of_training, "training", has_results=False, force=args.force)


def train(args: argparse.Namespace, source: Any, out: Path, context: Context) -> int:
    """Build the training, run it, and print its result; returns the exit code."""
    matplotlib.use("Agg")
    (dataset, size), interrupts = args.dataset, context.interrupts
    defaults = DATASETS[dataset]
    epochs = args.epoch or defaults.epochs
    batchsize = args.batchsize or defaults.batchsize
    train, test = load(dataset, args.data_dir, size, args.seed)
    if batchsize > len(train):
        raise UsageError(
            f"--batchsize {batchsize}: the training set has only {plural(len(train), 'image')}"
        )
    train = prepared(train, source.mean, source.std, None if args.no_augmentation else args.seed)
    test = prepared(test, source.mean, source.std, None)
    network = loading.build_model(source, args.seed)
    np.random.seed(args.seed)  # noqa: NPY002  (Chainer's iterator and dropout draw from it)
    images = np.stack([test[0][0], test[-1][0]])
    if args.gpu >= 0:
        images, _ = move_to_gpu(network, images, args.gpu)
    _try_network(network, images, defaults.classes, source.name)
    model = chainer.links.Classifier(network)
    optimizer = chainer.optimizers.MomentumSGD(args.learning_rate or defaults.learning_rate, 0.9)
    optimizer.setup(model).add_hook(chainer.optimizer_hooks.WeightDecay(1e-4))
    device = chainer.get_device("@numpy" if args.gpu < 0 else f"@cupy:{args.gpu}")
    iterator = SerialIterator(train, batchsize)
    updater = training.updaters.StandardUpdater(iterator, optimizer, device=device)
    trainer = training.Trainer(updater, Until(epochs, interrupts.reason), str(out))
    test_iterator = SerialIterator(test, batchsize, repeat=False, shuffle=False)
    evaluator = extensions.Evaluator(
        test_iterator, model, device=device, eval_func=_weighted(model)
    )
    console = Console(io.StringIO() if args.quiet else sys.stdout)
    _extend(trainer, evaluator, epochs, args, console)
    if args.profile:
        from chainer_profile.integrations.trainer import LayerProfile

        command = shlex.join([*TRAIN_COMMAND, *context.argv])
        trainer.extend(LayerProfile(title=source.name, command=command))
    _begin(args, out, console)
    sizes = f"{format_count(len(train))} training and {format_count(len(test))} test images"
    length = f"{plural(epochs, 'epoch')} of {len(train) / batchsize:.4g} iterations"
    console.write(f"{source.name} on {dataset}: {sizes}, {defaults.classes} classes; {length}\n")
    fast = nullcontext() if args.fast is None else accelerate(args.fast, threads=args.threads)
    with (
        limit_blas_threads(args.threads),
        fast,
        chainer.using_config("cudnn_deterministic", True),
    ):
        probe = Probe()
        if args.threads is None and args.gpu < 0:
            batch = np.resize(images, (batchsize, *images.shape[1:]))
            iterations = epochs * len(train) / batchsize
            probe = _probe_threads(network, batch, iterations, interrupts.reason)
        if probe.threads is not None:
            console.write(f"{_why_one_thread(probe)}\n")
        with limit_blas_threads(probe.threads):
            _run(trainer, out, interrupts, args.resume)
    return _end(trainer, network, out, console, interrupts)


def _begin(args: argparse.Namespace, out: Path, console: Console) -> None:
    """Write from which snapshot the training continues, or remove the files of an earlier one."""
    if args.resume:
        console.write(f"Continuing from {snapshots(out)[-1]}\n")
    elif args.force:
        for path in (*snapshots(out), *(out / name for name in FILES)):
            remove_file(path)


def _end(trainer: Any, network: Any, out: Path, console: Console, interrupts: Interrupts) -> int:
    """Save the network and write the test accuracy, unless a signal has stopped the training.

    Returns the exit code.
    """
    if interrupts.signum:
        print(
            f"{TRAIN_PROG}: {interrupts.reason()}: the snapshot is {snapshots(out)[-1]}; "
            "continue with --resume",
            file=sys.stderr,
        )
        return interrupts.code
    with replacing(out / "model.npz") as file:
        chainer.serializers.save_npz(file, network)
    log = trainer.get_extension("LogReport").log
    accuracy = f"Test accuracy {log[-1][TEST_ACCURACY]:.2%}; " if log else ""
    console.write(f"{accuracy}written to {out}: model.npz, log, loss.png, accuracy.png\n")
    return 0


def _probe_threads(network: Any, batch: Any, iterations: float, stop: Callable[[], str]) -> Probe:
    """Compare one BLAS thread with all in a few iterations, and restore the network after them."""
    threads = default_blas_threads(environment.collect())
    step = make_step("forward-backward", network, (batch,), loss="softmax_cross_entropy")
    if threads < 2:
        return Probe()
    now_ns = HOST_CLOCK.now_ns
    with preserved_state(network, batch), step.configured():
        step()
        begin_ns = now_ns()
        step()
        trial_s = (now_ns() - begin_ns) * NS
        max_s = max(PROBE_SECONDS, PROBE_PART * iterations * trial_s)
        return probe_threads(step, now_ns, threads, trial_s=trial_s, max_s=max_s, stop=stop)


def _why_one_thread(probe: Probe) -> str:
    """Explain by the times of a probe why one BLAS thread is used."""
    times_ns: dict[int, list[int]] = {}
    for _, wall_ns, used in probe.trials:
        times_ns.setdefault(used, []).append(wall_ns)
    medians = {n: format_duration(float(np.median(walls)) * NS) for n, walls in times_ns.items()}
    threads = max(medians)
    return (
        f"One BLAS thread: forward and backward take {medians[1]}, and {medians[threads]} with "
        f"{threads} threads"
    )


def _extend(
    trainer: Any, evaluator: Any, epochs: int, args: argparse.Namespace, console: Console
) -> None:
    """Give a trainer its evaluation, learning rate, log, plots and snapshots."""
    trainer.extend(extensions.FailOnNonNumber())
    trainer.extend(evaluator)
    trainer.extend(extensions.observe_lr())
    rate_falls = triggers.ManualScheduleTrigger([epochs / 2, epochs * 3 / 4], "epoch")
    trainer.extend(extensions.ExponentialShift("lr", 0.1), trigger=rate_falls)
    trainer.extend(extensions.LogReport(filename="log"))
    for value in ("loss", "accuracy"):
        keys = [f"main/{value}", f"validation/main/{value}"]
        trainer.extend(extensions.PlotReport(keys, "epoch", filename=f"{value}.png"), name=value)
    every = (1, "epoch") if args.snapshot is None else (args.snapshot, "iteration")
    snapshot = extensions.snapshot(n_retains=_MAX_SNAPSHOTS, autoload=args.resume)
    trainer.extend(snapshot, name="snapshot", trigger=every)
    trainer.extend(extensions.PrintReport(_PRINTED, out=console))
    if console.is_terminal:
        trainer.extend(extensions.ProgressBar(update_interval=10))


def _run(trainer: Any, out: Path, interrupts: Interrupts, resumes: bool) -> None:
    """Train until the last epoch or a signal, and write a snapshot of the last iteration.

    If it ``resumes``, the Trainer loads the newest snapshot first.
    """

    def last_snapshot() -> str:
        files = snapshots(out)
        return f"the last snapshot is {files[-1]}" if files else "there is no snapshot yet"

    try:
        # FailOnNonNumber reports numbers that are not finite, so NumPy need not warn.
        with (
            interrupts.measuring(),
            np.errstate(over="ignore", invalid="ignore"),
            warnings.catch_warnings(),
        ):
            # The progress bar and LayerProfile warn if the loaded snapshot was made without them.
            warnings.filterwarnings("ignore", "The previous value of", UserWarning)
            trainer.run(show_loop_exception_msg=False)
            iteration = trainer.updater.iteration
            if iteration and not (out / f"{SNAPSHOT}{iteration}").exists():
                trainer.get_extension("snapshot")(trainer)
    except Interrupted as interrupt:
        interrupt.hint = f"; {last_snapshot()}"
        raise
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        if resumes and not trainer.updater.iteration:
            raise UsageError(
                f"--resume: {snapshots(out)[-1]} does not fit this training ({one_line(error)}); "
                "repeat the options of the training that wrote it"
            ) from error
        raise ProfileError(
            f"training failed after iteration {trainer.updater.iteration}: {one_line(error)}; "
            f"{last_snapshot()}"
        ) from error


def _try_network(network: Any, images: Any, classes: int, name: str) -> None:
    """Refuse a network that fails on these images, or does not return floats (images, classes)."""
    refusal = f"{name} cannot be trained on images of {' x '.join(map(str, images.shape[1:]))}"
    try:
        with chainer.using_config("train", False), chainer.no_backprop_mode():
            output = network(images)
    except (Exception, SystemExit) as error:
        raise ProfileError(f"{refusal}: {one_line(error)}") from error
    array = output.array if isinstance(output, chainer.Variable) else output
    expected = (len(images), classes)
    if getattr(array, "shape", None) != expected or array.dtype.kind != "f":
        given = getattr(array, "shape", type(output).__name__)
        raise ProfileError(
            f"{refusal}: for {len(images)} images it must return floats of shape {expected}, but "
            f"it returns {given}"
        )


# -- parts of Chainer's Trainer


class Until:
    """A stop trigger: fires after a number of epochs, or when ``reason()`` is not empty."""

    def __init__(self, epochs: int, reason: Callable[[], str]) -> None:
        self._epochs, self._reason = epochs, reason

    # Chainer's own trigger fires only at the end of an epoch: a training that is resumed after the
    # last epoch would never end.
    def __call__(self, trainer: training.Trainer) -> bool:
        return bool(self._reason()) or trainer.updater.epoch >= self._epochs

    def get_training_length(self) -> tuple[int, str]:
        return self._epochs, "epoch"


def _weighted(classifier: chainer.Link) -> Callable[[Any, Any], None]:
    """Make an evaluation that weights batches by their images, because the last may be smaller."""

    def evaluate(x: Any, t: Any) -> None:
        observation: dict[str, Any] = {}
        with chainer.reporter.report_scope(observation):
            classifier(x, t)
        chainer.report({name: (value, len(t)) for name, value in observation.items()})

    return evaluate


class Console:
    """A text stream that ignores errors of writing, and writes control codes only to terminals."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self.is_terminal = stream, stream.isatty()

    def write(self, text: str) -> None:
        with suppress(OSError, ValueError):
            self._stream.write(text if self.is_terminal else text.replace("\033[J", ""))
            self._stream.flush()

    def flush(self) -> None:
        """Nothing to do, since each write flushes."""


def snapshots(folder: Path) -> list[Path]:
    """Find the snapshots in a folder, the newest last."""
    return sorted(folder.glob(f"{SNAPSHOT}*"), key=lambda path: path.stat().st_mtime)
