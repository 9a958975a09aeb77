"""What ``train.py`` takes: its options, and how their values are read."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import NamedTuple

from chainer_profile.basics.errors import UsageError
from chainer_profile.basics.parsing import Parser, checked, folder, whole
from chainer_profile.basics.words import DEFAULT_MODEL, VERSION
from chainer_profile.cli.options import add_machine, add_messages
from chainer_profile.networks.cifar import CIFAR10, CIFAR100

PROG = "train.py"


class Defaults(NamedTuple):
    """How a set is trained on unless told otherwise, and its number of classes."""

    classes: int
    epochs: int
    batchsize: int
    learning_rate: float


#: The sets by what ``--dataset`` calls them. For CIFAR 64,000 iterations, as He et al. trained;
#: the synthetic set is too small for large batches and rates.
DATASETS = {
    "cifar10": Defaults(CIFAR10.classes, 164, 128, 0.1),
    "cifar100": Defaults(CIFAR100.classes, 164, 128, 0.1),
    "synthetic": Defaults(10, 6, 32, 0.02),
}
SYNTHETIC_SIZE = 1000
#: ``--resume`` without a file.
NEWEST = True


def _every(text: str) -> int:
    match = re.fullmatch("every=([1-9][0-9]{0,17})", text)
    if match is None:
        raise UsageError(f"must be every=N with N iterations, 1 or more, not {text[:40]!r}")
    return int(match[1])


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate < float("inf"):
        raise UsageError(f"must be a number above 0, not {text[:40]!r}")
    return rate


def _file(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("must be the name of a file, not ''")
    return Path(text)


def parser() -> argparse.ArgumentParser:
    """Options of a training."""
    usual, small = DATASETS["cifar10"], DATASETS["synthetic"]
    parser = Parser(
        prog=PROG,
        description="Trains a network on CIFAR-10, CIFAR-100 or a small synthetic set with "
        "Chainer's Trainer: momentum SGD, the learning rate falls to a tenth at half and again "
        "at three quarters of the epochs.",
    )
    parser.add_argument("--version", action="version", version=VERSION)

    group = parser.add_argument_group("network and data")
    group.add_argument(
        "-m",
        "--model",
        default=DEFAULT_MODEL,
        help="a network of profile.py --list-models, package.module:Callable or "
        "path/to/file.py:Callable (default: %(default)s)",
    )
    group.add_argument(
        "-d",
        "--dataset",
        choices=tuple(DATASETS),
        default="cifar10",
        help="what to train on (default: %(default)s); synthetic needs no download",
    )
    group.add_argument(
        "--data-dir",
        metavar="DIR",
        type=folder,
        help="folder of the set's files (default: Chainer's own copy, downloaded if need be; for "
        "synthetic the folder it is made in, default OUT/synthetic)",
    )
    group.add_argument(
        "--synthetic-size",
        metavar="N",
        type=whole(1),
        default=None,
        help=f"training images of the synthetic set, a multiple of 10 (default: {SYNTHETIC_SIZE})",
    )
    group.add_argument(
        "--no-augmentation", action="store_true", help="do not crop and flip the training images"
    )

    group = parser.add_argument_group("training")
    group.add_argument(
        "-e",
        "--epoch",
        metavar="N",
        type=whole(1),
        help=f"epochs (default: {usual.epochs}, for synthetic {small.epochs})",
    )
    group.add_argument(
        "-b",
        "--batchsize",
        metavar="N",
        type=whole(1),
        help=f"images per iteration (default: {usual.batchsize}, for synthetic {small.batchsize})",
    )
    group.add_argument(
        "-l",
        "--learning-rate",
        metavar="RATE",
        type=checked(_rate),
        help=f"learning rate at the begin (default: {usual.learning_rate}, for synthetic "
        f"{small.learning_rate})",
    )
    group.add_argument(
        "--seed",
        metavar="N",
        type=whole(0),
        default=0,
        help="seed of the weights, the order, the crops and the synthetic set "
        "(default: %(default)s)",
    )
    add_machine(group)
    group.add_argument(
        "--profile",
        metavar="every=N",
        type=checked(_every),
        help="profile every N-th iteration layer by layer, into OUT/profile",
    )

    group = parser.add_argument_group("output")
    group.add_argument(
        "-o", "--out", metavar="DIR", type=folder, help="folder (default: results/MODEL-DATASET)"
    )
    group.add_argument(
        "-r",
        "--resume",
        metavar="FILE",
        nargs="?",
        const=NEWEST,
        type=_file,
        help="go on from a snapshot, without FILE from the newest in --out; give the other "
        "options as before. More epochs leave the learning rate's falls where they were",
    )
    group.add_argument("--force", action="store_true", help="replace a training in the folder")
    group.add_argument(
        "--snapshot",
        metavar="every=N",
        type=checked(_every),
        help="write a snapshot every N iterations (default: every epoch); the last 3 are kept",
    )
    add_messages(group)
    return parser
