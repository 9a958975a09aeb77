"""Options that several commands share: network, input, trials and device."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from chainer_profile.basics import parsing
from chainer_profile.basics.errors import UsageError
from chainer_profile.basics.units import parse_percent
from chainer_profile.basics.words import DEFAULT_MODEL, DTYPES, LOSSES, PHASES, PROG
from chainer_profile.record.parts import Settings

#: A parser, or a group of its options, to which options can be added.
Group = argparse._ActionsContainer

#: Help texts that ``sweep`` shows, too.
MODEL_ARGS_HELP = 'literal arguments of your own network: "100, n_out=10"'
DTYPE_HELP = (
    "data type of parameters and input; mixed16: float16, float32 where precision needs it "
    f"(default: {DTYPES[0]})"
)
SKIP_HELP = (
    "leave out passes after the trials: memory (two more trials), counters (a tenth of the trials' "
    "time), machine (its limits, which the first run measures and keeps)"
)
#: Help of ``--threads`` for commands that choose the number of threads.
CHOSEN_THREADS_HELP = (
    "BLAS threads (default: one, or as many as BLAS chooses where these are faster)"
)


# -- the network


def add_model_options(group: Group) -> None:
    """Add ``--model`` and ``--model-args``."""
    about = (
        f"a name from {PROG} --list-models, package.module:Callable or path/to/file.py:Callable "
        "(default: %(default)s)"
    )
    group.add_argument("-m", "--model", default=DEFAULT_MODEL, help=about)
    group.add_argument("--model-args", metavar="ARGS", default="", help=MODEL_ARGS_HELP)


def add_network_options(parser: argparse.ArgumentParser) -> Group:
    """Add a group of the network's options; returns it for further options."""
    group = parser.add_argument_group("network")
    add_model_options(group)
    group.add_argument(
        "--classes", metavar="N", type=parsing.integer_at_least(1), help="number of outputs"
    )
    group.add_argument("--weights", metavar="FILE.npz", help="weights saved with save_npz")
    return group


def add_dtype_option(group: Group) -> None:
    group.add_argument("--dtype", choices=DTYPES, default=DTYPES[0], help=DTYPE_HELP)


def add_fast_option(group: Group) -> None:
    about = (
        "faster CPU kernels for Chainer's functions: numpy (default) or torch, PyTorch's; see "
        "docs/accelerate.md"
    )
    kernels = ("numpy", "torch")
    group.add_argument(
        "--fast", metavar="KERNELS", nargs="?", choices=kernels, const="numpy", help=about
    )


def check_fast(args: argparse.Namespace) -> None:
    """Refuse ``--fast`` on a GPU."""
    if args.fast and args.gpu >= 0:
        raise UsageError("--fast is for the CPU: leave out --gpu")


def add_seed_option(
    group: Group, help: str = "seed of the weights and of the random input (default: %(default)s)"
) -> None:
    group.add_argument(
        "--seed", metavar="N", type=parsing.integer_at_least(0), default=0, help=help
    )


# -- the input


def add_input_options(
    parser: argparse.ArgumentParser, batchsize_help: str = "inputs per trial (default: 1)"
) -> None:
    """Add a group of the input's options."""
    group = parser.add_argument_group("input")
    about = (
        "random, cifar10 or cifar10:INDEX (test images from that on), an image file, or a .npy or "
        ".npz file of the arguments, batch included (default: %(default)s)"
    )
    group.add_argument("-i", "--input", default="random", help=about)
    about = "folder with cifar-10-python.tar.gz, or cifar-10.npz of your own (docs/training.md)"
    group.add_argument("--data-dir", metavar="DIR", help=about)
    about = (
        "shape of one input without the batch, required for your own network, once for each "
        "argument: [NAME=]SHAPE[:DTYPE[:RANGE]], such as 3x224x224, 20:int32:10000 (integers below "
        "10000), one:int32:1000 (one integer per input), 5..20x128 (a list of sequences of 5 to 20 "
        "steps); of images also the size alone, such as 1024x2048"
    )
    group.add_argument(
        "--input-shape", metavar="SPEC", type=parsing.parse_input, action="append", help=about
    )
    group.add_argument(
        "-b", "--batchsize", metavar="N", type=parsing.integer_at_least(1), help=batchsize_help
    )


def check_input(args: argparse.Namespace) -> None:
    """Refuse options that do not fit ``--input``."""
    if args.data_dir and parsing.cifar10_index(args.input) is None:
        raise UsageError("--data-dir is for CIFAR-10: add --input cifar10")
    parsing.check_names(args.input_shape)
    if args.input != "random" and parsing.asks_for_more(args):
        one = "one array of floats: give one plain --input-shape"
        raise UsageError(f"--input {args.input} is {one}")
    if parsing.is_file_of_arrays(args.input):
        if args.input_shape is not None:
            raise UsageError(f"--input {args.input} has its own shapes: leave out --input-shape")
        if args.batchsize is not None:
            raise UsageError(f"--input {args.input} has its own batch: leave out --batchsize")


# -- the trials


def add_trial_options(parser: argparse.ArgumentParser) -> None:
    """Add a group of the options that define a trial: phase, loss and mode."""
    group = parser.add_argument_group("what a trial is")
    about = (
        "forward: inference; forward-backward: with a loss and its backward; train: also the "
        "update by momentum SGD (default: %(default)s)"
    )
    group.add_argument("--phase", choices=PHASES, default=PHASES[0], help=about)
    about = (
        "loss, against random labels; output: the network returns it (default: %(default)s, "
        "softmax_cross_entropy unless the output is one number)"
    )
    group.add_argument("--loss", choices=LOSSES, default=LOSSES[0], help=about)
    about = "run inference with chainer.config.train on (default: off)"
    group.add_argument("--train-mode", action="store_true", help=about)


def add_count_options(group: Group, trials: int, warmups: int, *, clean_trials: bool) -> None:
    """Add the numbers of trials, with these defaults, and the limits that end the trials early.

    ``clean_trials`` is whether to add ``--clean-trials``.
    """
    about = "profiled trials (default: %(default)s)"
    group.add_argument(
        "-n", "--trials", metavar="N", type=parsing.integer_at_least(1), default=trials, help=about
    )
    if clean_trials:
        about = (
            "unprofiled trials (default: a tenth of the trials, at least 30 unless the trials are "
            "fewer)"
        )
        group.add_argument(
            "--clean-trials", metavar="N", type=parsing.integer_at_least(0), help=about
        )
    about = "warm-up trials, for at most 10 s (default: %(default)s)"
    group.add_argument(
        "-w",
        "--warmups",
        metavar="N",
        type=parsing.integer_at_least(0),
        default=warmups,
        help=about,
    )
    about = "time limit of all passes"
    group.add_argument("--max-seconds", metavar="S", type=parsing.positive_seconds, help=about)
    about = (
        "stop when the 95%% interval of the median profiled trial is within PCT per cent (from "
        "200 trials on)"
    )
    group.add_argument("--until-ci", metavar="PCT", type=parse_percent, help=about)


def skip_parser(*parts: str) -> Callable[[str], tuple[str, ...]]:
    """Make a parser of the value of ``--skip``, a list of these parts of a run."""

    def parse(text: str) -> tuple[str, ...]:
        names = parsing.split_names(text)
        for name in names:
            if name not in parts:
                raise UsageError(f"{name!r} cannot be skipped: choose {', '.join(parts)}")
        return tuple(names)

    return parse


#: Parses ``--skip`` of a profile or of a sweep's case.
parse_skipped_passes = skip_parser("memory", "counters", "machine")


# -- the device


def add_threads_option(group: Group, help: str) -> None:
    group.add_argument("--threads", metavar="N", type=parsing.thread_count, help=help)


def add_device_options(
    group: Group,
    threads_help: str = "BLAS threads (default: as many as BLAS chooses)",
    *,
    short_device: bool = True,
) -> None:
    """Add ``--threads``, ``--gpu`` and ``--device``, which is also ``-d`` if ``short_device``."""
    add_threads_option(group, threads_help)
    about = "GPU to run on (default: -1, the CPU)"
    group.add_argument(
        "-g", "--gpu", metavar="ID", type=parsing.integer_at_least(-1), default=-1, help=about
    )
    group.add_argument(
        *(["-d"] if short_device else []),
        "--device",
        dest="gpu",
        metavar="DEVICE",
        type=parsing.parse_device,
        default=argparse.SUPPRESS,
        help="device by Chainer's name: @numpy or @cupy:0",
    )


# -- settings

#: Settings that differ from the option of the same name: the command finds them with its value.
_NOT_COPIED = ("model", "input", "input_shape", "loss")


def settings_of(args: argparse.Namespace, **others: Any) -> Settings:
    """Make settings: copy each option to the setting of the same name; ``others`` override them."""
    given: dict[str, Any] = {"device": parsing.named_device(args.gpu)} if "gpu" in args else {}
    for name in (field.name for field in fields(Settings) if field.name not in _NOT_COPIED):
        if getattr(args, name, None) is not None:
            given[name] = getattr(args, name)
    return Settings(**{**given, **others})
