"""``train``, which ``train.py`` begins: trains a network with Chainer's Trainer."""

from __future__ import annotations

import argparse
import io
import shlex
import sys
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from chainer_profile.basics.errors import ProfileError, UsageError, one_line
from chainer_profile.basics.files import locked, made, remove_file, replacing
from chainer_profile.basics.parsing import Parser, folder
from chainer_profile.basics.units import format_count, plural
from chainer_profile.basics.words import PROG, TRAIN_COMMAND, TRAIN_PROG, VERSION
from chainer_profile.cli.options import MACHINE, MESSAGES, check_fast, take
from chainer_profile.cli.running import Context, Interrupted
from chainer_profile.runs.written import LIST, Written, refuse_foreign

#: What a training writes into its folder, beside snapshots.
_FILES = ("log", "loss.png", "accuracy.png", "model.npz")
#: By these a folder is that of a training; the second is of older versions.
_MARKS = (LIST, "training.json")


class Defaults(NamedTuple):
    """How a set is trained on unless told otherwise, and its number of classes."""

    classes: int
    epochs: int
    batchsize: int
    learning_rate: float


#: The sets by what ``--dataset`` calls them. For CIFAR 64,000 iterations, as He et al. trained;
#: the synthetic set is too small for large batches and rates.
DATASETS = {
    "cifar10": Defaults(10, 164, 128, 0.1),
    "cifar100": Defaults(100, 164, 128, 0.1),
    "synthetic": Defaults(10, 6, 32, 0.02),
}
SYNTHETIC_SIZE = 1000


def parser() -> argparse.ArgumentParser:
    """Options of a training."""
    parser = Parser(
        prog=TRAIN_PROG,
        description="Trains a network on CIFAR-10, CIFAR-100 or a small synthetic set with "
        "Chainer's Trainer: momentum SGD, the learning rate falls to a tenth at half and again "
        "at three quarters of the epochs.",
    )
    parser.add_argument("--version", action="version", version=VERSION)
    group = parser.add_argument_group("network and data")
    model = (
        f"a network of {PROG} --list-models, package.module:Callable or path/to/file.py:Callable"
    )
    take(group, "--model", help=f"{model} (default: %(default)s)")
    take(group, "--dataset")
    archive = (
        "folder with the archive of the set, such as cifar-10-python.tar.gz (default: Chainer's "
        "own copy, downloaded if need be)"
    )
    take(group, "--data-dir", type=folder, help=archive)
    take(group, "--synthetic-size", "--no-augmentation")
    group = parser.add_argument_group("training")
    take(group, "--epoch")
    take(group, "--batchsize", help="images per iteration (default: 128, for synthetic 32)")
    take(group, "--learning-rate")
    what = "the weights, the order, the crops and the synthetic set"
    take(group, "--seed", help=f"seed of {what} (default: %(default)s)")
    # Without -d: a training takes its data by that.
    take(group, *MACHINE[:-1])
    take(group, "--device", short=False)
    take(group, "--fast", "--profile")
    group = parser.add_argument_group("output")
    take(group, "--out", help="folder (default: results/MODEL-DATASET)")
    take(group, "--force", help="replace a training in the folder")
    take(group, "--resume", "--snapshot")
    take(group, *MESSAGES)
    return parser


def run(args: argparse.Namespace, context: Context) -> int:
    """Make a training, or go on with the newest snapshot in its folder."""
    if args.resume and args.force:
        raise UsageError("--resume goes on with a training, --force replaces it: give one of them")
    check_fast(args)
    if args.synthetic_size is not None and args.dataset != "synthetic":
        raise UsageError("--synthetic-size is for --dataset synthetic")
    if args.data_dir is not None and args.dataset == "synthetic":
        raise UsageError("--data-dir is for CIFAR: the synthetic set is made anew each time")

    from chainer_profile.networks import loading

    classes = DATASETS[args.dataset].classes
    # A user's own network has its number of classes already: a first batch will tell.
    own = args.model not in context.registry
    source = loading.find_model(args.model, context.registry, None if own else classes)
    out = args.out or Path("results") / f"{source.name}-{args.dataset}"
    if args.resume and not out.is_dir():
        raise UsageError(f"--resume: there is no folder {out}; name it with --out")
    with made(out), locked(out, "another training writes into it"):
        _check_folder(out, args)
        return _train(args, source, out, context)


def _check_folder(out: Path, args: argparse.Namespace) -> None:
    """Refuse a folder whose files a training would replace unasked, or without a snapshot."""
    from chainer_profile.training.training import SNAPSHOT, snapshots

    def is_of_training(name: str) -> bool:
        return name in _FILES or name.startswith(SNAPSHOT)

    if args.resume:
        if not snapshots(out):
            raise ProfileError(
                f"--resume: there is no snapshot in {out}; name its folder with --out"
            )
    elif not any((out / mark).exists() for mark in _MARKS):
        refuse_foreign(out, args.force, is_of_training, "training")
    elif not args.force and any(is_of_training(path.name) for path in out.iterdir()):
        raise UsageError(
            f"--out {out}: holds a training already; go on with it by --resume, replace it by "
            "--force, or name another folder"
        )


def _train(args: argparse.Namespace, source: Any, out: Path, context: Context) -> int:
    """Build the training, run it, and say what came out."""
    import chainer
    import matplotlib
    import numpy as np
    from threadpoolctl import threadpool_limits

    from chainer_profile.kernels.accelerate import accelerate
    from chainer_profile.measure.devices import move_to_gpu
    from chainer_profile.networks import loading
    from chainer_profile.training import data, training

    matplotlib.use("Agg")
    defaults, interrupts = DATASETS[args.dataset], context.interrupts
    epochs = args.epoch or defaults.epochs
    batchsize = args.batchsize or defaults.batchsize
    size = args.synthetic_size or SYNTHETIC_SIZE
    train, test = data.load(args.dataset, args.data_dir, size, args.seed)
    if batchsize > len(train):
        raise UsageError(
            f"--batchsize {batchsize}: the training set has only {plural(len(train), 'image')}"
        )
    crop_seed = None if args.no_augmentation else args.seed
    train = data.prepared(train, source.mean, source.std, crop_seed)
    test = data.prepared(test, source.mean, source.std, None)
    network = loading.build_model(source, args.seed)
    np.random.seed(args.seed)  # noqa: NPY002  (Chainer's iterator and dropout draw from it)
    images = np.stack([test[0][0], test[-1][0]])
    if args.gpu >= 0:
        images, _ = move_to_gpu(network, images, args.gpu)
    _try_network(network, images, defaults.classes, source.name)
    model = chainer.links.Classifier(network)
    console = training.Console(io.StringIO() if args.quiet else sys.stdout)
    trainer = training.build_trainer(
        model,
        train,
        test,
        out,
        epochs=epochs,
        batchsize=batchsize,
        learning_rate=args.learning_rate or defaults.learning_rate,
        device="@numpy" if args.gpu < 0 else f"@cupy:{args.gpu}",
        stop=interrupts.reason,
        resume=args.resume,
        snapshot_every=args.snapshot,
        console=console,
    )
    if args.profile:
        from chainer_profile.integrations.trainer import LayerProfile

        command = shlex.join([*TRAIN_COMMAND, *context.argv])
        trigger = (args.profile, "iteration")
        trainer.extend(LayerProfile(trigger, title=source.name, command=command))
    if args.resume:
        console.write(f"Going on from {training.snapshots(out)[-1]}\n")
    elif args.force:
        for path in (*training.snapshots(out), *(out / name for name in _FILES)):
            remove_file(path)
    console.write(
        f"{source.name} on {args.dataset}: {format_count(len(train))} training and "
        f"{format_count(len(test))} test images, {defaults.classes} classes; "
        f"{plural(epochs, 'epoch')} of {len(train) / batchsize:.4g} iterations\n"
    )
    threads = threadpool_limits(args.threads, "blas")  # None leaves them as they are
    fast = nullcontext() if args.fast is None else accelerate(args.fast, threads=args.threads)
    Written(out).begin()
    with threads, fast, chainer.using_config("cudnn_deterministic", True):
        _run(trainer, out, interrupts)
    if interrupts.signum:
        print(
            f"{TRAIN_PROG}: {interrupts.reason()}: the snapshot is {training.snapshots(out)[-1]}; "
            "go on with --resume",
            file=sys.stderr,
        )
        return 128 + interrupts.signum
    with replacing(out / "model.npz") as file:
        chainer.serializers.save_npz(file, network)
    log = trainer.get_extension("LogReport").log
    accuracy = f"Test accuracy {log[-1][training.TEST_ACCURACY]:.2%}; " if log else ""
    console.write(f"{accuracy}written to {out}: model.npz, log, loss.png, accuracy.png\n")
    return 0


def _run(trainer: Any, out: Path, interrupts: Any) -> None:
    """Train until the last epoch, or a signal; a snapshot of the last iteration is there then."""
    import numpy as np

    from chainer_profile.training.training import SNAPSHOT, snapshots

    def last() -> str:
        found = snapshots(out)
        return f"the last snapshot is {found[-1]}" if found else "there is no snapshot yet"

    try:
        # FailOnNonNumber tells of numbers that are not finite, not NumPy's warnings.
        with (
            interrupts.measuring(),
            np.errstate(over="ignore", invalid="ignore"),
            warnings.catch_warnings(),
        ):
            # A snapshot of a run without a progress bar, or without --profile, has none of theirs.
            warnings.filterwarnings("ignore", "The previous value of", UserWarning)
            trainer.run(show_loop_exception_msg=False)
            iteration = trainer.updater.iteration
            if iteration and not (out / f"{SNAPSHOT}{iteration}").exists():
                trainer.get_extension("snapshot")(trainer)
    except Interrupted as interrupt:
        interrupt.hint = f"; {last()}"
        raise
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        raise ProfileError(
            f"training failed after iteration {trainer.updater.iteration}: {one_line(error)}; "
            f"{last()}"
        ) from error


def _try_network(network: Any, images: Any, classes: int, name: str) -> None:
    """Refuse a network that takes no such images, or gives no row of floats for each."""
    import chainer

    what = f"{name} cannot be trained on images of {' x '.join(map(str, images.shape[1:]))}"
    try:
        with chainer.using_config("train", False), chainer.no_backprop_mode():
            output = network(images)
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
