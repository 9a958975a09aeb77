"""Arguments of ``train``."""

from __future__ import annotations

import argparse

from chainer_profile.basics.errors import UsageError
from chainer_profile.basics.parsing import every, folder, integer_at_least, number
from chainer_profile.basics.words import VERSION
from chainer_profile.cli import options, output_options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Trains a network with Chainer's Trainer: momentum SGD, the learning rate divided by ten "
        "after half and three quarters of the epochs."
    )
    parser.add_argument("--version", action="version", version=VERSION)
    data = parser.add_argument_group("network and data")
    options.add_model_options(data)
    _add_data(data)
    training = parser.add_argument_group("training")
    about = "epochs (default: 164, or 6 for synthetic)"
    training.add_argument("-e", "--epoch", metavar="N", type=integer_at_least(1), help=about)
    about = "images per iteration (default: 128, or 32 for synthetic)"
    training.add_argument("-b", "--batchsize", metavar="N", type=integer_at_least(1), help=about)
    about = "initial learning rate (default: 0.1, or 0.02 for synthetic)"
    rate = number("a number above 0")
    training.add_argument("-l", "--learning-rate", metavar="RATE", type=rate, help=about)
    about = "seed of the weights, the order, the crops and the synthetic set (default: %(default)s)"
    options.add_seed_option(training, about)
    # Without -d for --device: here it means --dataset.
    options.add_device_options(training, options.CHOSEN_THREADS_HELP, short_device=False)
    options.add_fast_option(training)
    about = "profile every iteration, into OUT/profile"
    training.add_argument("--profile", action="store_true", help=about)
    results = "folder (default: results/MODEL-DATASET)"
    output = output_options.add_output_options(parser, results, "replace a training in the folder")
    about = "go on from the newest snapshot in the folder; repeat the other options"
    output.add_argument("-r", "--resume", action="store_true", help=about)
    about = "write a snapshot every N iterations, and keep the last 3 (default: every epoch)"
    output.add_argument("--snapshot", metavar="every=N", type=every, help=about)
    output_options.add_message_options(output)


def _add_data(group: options.Group) -> None:
    about = (
        "cifar10, cifar100, or synthetic, which needs no download and has 1000 training images, or "
        "N as synthetic:N (default: %(default)s)"
    )
    group.add_argument(
        "-d", "--dataset", metavar="NAME", type=_dataset, default="cifar10", help=about
    )
    about = (
        "folder with the archive, such as cifar-10-python.tar.gz, or with cifar-10.npz or "
        "cifar-100.npz of your own (default: Chainer's copy, downloaded if necessary)"
    )
    group.add_argument("--data-dir", metavar="DIR", type=folder, help=about)
    about = "do not crop and flip the training images"
    group.add_argument("--no-augmentation", action="store_true", help=about)


def _dataset(text: str) -> tuple[str, int]:
    """Parse ``cifar10``, ``cifar100`` or ``synthetic:N``; return the name and N (default: 1000)."""
    name, colon, size = text.partition(":")
    if name not in ("cifar10", "cifar100", "synthetic") or (colon and name != "synthetic"):
        raise UsageError(f"{text[:40]!r} is no data set: choose cifar10, cifar100 or synthetic:N")
    return name, integer_at_least(1)(size) if colon else 1000


def check(args: argparse.Namespace) -> None:
    options.check_fast(args)
    if args.resume and args.force:
        why = "--resume continues a training and --force replaces it: give only one of them"
        raise UsageError(why)
    if args.data_dir and args.dataset[0] == "synthetic":
        raise UsageError("--data-dir is for CIFAR: the synthetic set is generated each time")
