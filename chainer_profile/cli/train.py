"""``train``, which ``train.py`` begins: trains a network with Chainer's Trainer."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

from chainer_profile.basics.errors import ProfileError, UsageError
from chainer_profile.basics.files import locked, made
from chainer_profile.basics.parsing import Parser, folder
from chainer_profile.basics.words import PROG, TRAIN_PROG, VERSION
from chainer_profile.cli.options import MACHINE, MESSAGES, check_fast, take
from chainer_profile.cli.running import Context
from chainer_profile.runs.written import LIST, refuse_foreign

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
        from chainer_profile.cli.training import train

        return train(args, source, DATASETS[args.dataset], out, context)


def _check_folder(out: Path, args: argparse.Namespace) -> None:
    """Refuse a folder whose files a training would replace unasked, or without a snapshot."""
    from chainer_profile.cli.training import FILES, SNAPSHOT, snapshots

    def is_of_training(name: str) -> bool:
        return name in FILES or name.startswith(SNAPSHOT)

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
