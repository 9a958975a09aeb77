"""Options that several commands share, and what they ask for."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from chainer_profile.basics.errors import UsageError
from chainer_profile.basics.input_spec import InputSpec, parse_input
from chainer_profile.basics.parsing import (
    checked,
    folder,
    input_shape,
    named_device,
    parse_device,
    parse_shape,
    positive_seconds,
    size,
    thread_count,
    whole,
)
from chainer_profile.basics.words import DEFAULT_MODEL, DTYPES, LOSSES, PHASES
from chainer_profile.engines.protocol import PRECISIONS

if TYPE_CHECKING:
    from chainer_profile.networks.inputs import InputBatch
    from chainer_profile.networks.loading import ModelSource


def add_model(group: argparse._ArgumentGroup) -> None:
    """The option of which network."""
    group.add_argument(
        "-m",
        "--model",
        default=DEFAULT_MODEL,
        help="a name of --list-models, package.module:Callable or path/to/file.py:Callable "
        "(default: %(default)s)",
    )


def add_model_args(group: argparse._ArgumentGroup) -> None:
    """The option of what a network of one's own is made with."""
    group.add_argument(
        "--model-args",
        metavar="ARGS",
        default="",
        help='arguments of your own network, literals only: "100, n_out=10"',
    )


def add_classes(group: argparse._ArgumentGroup) -> None:
    """The option of how many outputs."""
    group.add_argument(
        "--classes", metavar="N", type=whole(1), help="outputs, in place of the network's own"
    )


def add_fast(group: argparse._ArgumentGroup) -> None:
    """The option of faster kernels."""
    group.add_argument(
        "--fast",
        nargs="?",
        choices=("numpy", "torch"),
        const="numpy",
        metavar="KERNELS",
        help="faster kernels under Chainer's functions, see docs/accelerate.md: numpy (the "
        "default), or torch for PyTorch's (CPU)",
    )


def check_fast(args: argparse.Namespace) -> None:
    """Refuse them on a GPU."""
    if args.fast is not None and args.gpu >= 0:
        raise UsageError("--fast is for the CPU: leave out --gpu")


def add_batchsize(group: argparse._ArgumentGroup, what: str, default: int | None = 1) -> None:
    """The option of how many inputs at once; what they are is for the help."""
    group.add_argument(
        "-b",
        "--batchsize",
        metavar="N",
        type=whole(1),
        default=default,
        help=f"{what} (default: 1)",
    )


def add_input_shape(group: argparse._ArgumentGroup, *, several: bool = False) -> None:
    """Options of the shape of one input; :func:`input_shape` reads them.

    Args:
        group: Where they are added.
        several: Take several arguments, of any data type, and sequences.
    """
    if several:
        group.add_argument(
            "--input-shape",
            metavar="SPEC",
            action="append",
            type=checked(parse_input),
            help="shape of one input without the batch; needed for your own network. Once for each "
            "argument: [NAME=]SHAPE[:DTYPE[:RANGE]], such as 3x224x224, 20:int32:10000 (integers "
            "below that), one:int32:1000 (a number for each input), or 5..20x128 (a list of "
            "sequences of 5 to 20 steps)",
        )
    else:
        group.add_argument(
            "--input-shape",
            metavar="CxHxW",
            type=checked(parse_shape),
            help="shape of one input without the batch; needed for your own network",
        )
    group.add_argument(
        "--input-size",
        metavar="HxW",
        type=checked(size),
        help="height and width of the images, such as 1024x2048",
    )


def add_machine(
    group: argparse._ArgumentGroup, *device: str, default: str = "as many as BLAS chooses"
) -> None:
    """Options of where a network runs.

    Args:
        group: Where they are added.
        device: Short names of ``--device``.
        default: What the number of threads is without the option.
    """
    add_threads(group, default)
    group.add_argument(
        "-g",
        "--gpu",
        metavar="ID",
        type=whole(-1),
        default=-1,
        help="GPU to run on (default: -1, the CPU)",
    )
    group.add_argument(
        *device,
        "--device",
        metavar="DEVICE",
        dest="gpu",
        type=checked(parse_device),
        default=argparse.SUPPRESS,
        help="the same in Chainer's words: @numpy or @cupy:0",
    )


def add_threads(group: argparse._ArgumentGroup, default: str) -> None:
    """The option of BLAS's threads; what their number is without it is for the help."""
    group.add_argument(
        "--threads",
        metavar="N",
        type=checked(thread_count),
        help=f"BLAS threads (default: {default})",
    )


def add_dtype(group: argparse._ArgumentGroup) -> None:
    """The option of Chainer's data type."""
    group.add_argument(
        "--dtype",
        choices=DTYPES,
        default=DTYPES[0],
        help="data type of parameters and input (Chainer's config.dtype; mixed16 is float16 with "
        "float32 where precision needs it; default: %(default)s)",
    )


def add_trial(group: argparse._ArgumentGroup) -> None:
    """Options of what a trial is."""
    group.add_argument(
        "--phase",
        choices=PHASES,
        default=PHASES[0],
        help="forward: inference; forward-backward: with a loss and its backward; train: a whole "
        "step, with the update by momentum SGD (default: %(default)s)",
    )
    group.add_argument(
        "--loss",
        choices=LOSSES,
        default=LOSSES[0],
        help="loss to go back from, against random labels; output: the network gives its loss "
        "(default: %(default)s, softmax_cross_entropy unless the output is one number)",
    )
    group.add_argument(
        "--train-mode",
        action="store_true",
        help="run the forward phase with chainer.config.train on; inference is done in test mode, "
        "without it",
    )


def add_messages(group: argparse._ArgumentGroup) -> None:
    """Options of what is said."""
    group.add_argument("-q", "--quiet", action="store_true", help="print nothing but errors")
    add_debug(group)


def add_debug(group: argparse._ActionsContainer) -> None:
    """The option of tracebacks, which :func:`.running.run_command` reads."""
    group.add_argument("--debug", action="store_true", help="show the traceback of an error")


def add_weights(group: argparse._ArgumentGroup) -> None:
    """The option of the weights' file."""
    group.add_argument(
        "--weights",
        metavar="FILE.npz",
        help="weights saved with save_npz, or a torchvision ResNet's state dict saved as .npz",
    )


def add_seed(group: argparse._ArgumentGroup) -> None:
    """The option of the seed."""
    group.add_argument(
        "--seed",
        metavar="N",
        type=whole(0),
        default=0,
        help="seed of the weights and of the random input (default: %(default)s)",
    )


def add_max_seconds(group: argparse._ArgumentGroup, what: str) -> None:
    """The option that ends the trials; what it bounds is for the help."""
    group.add_argument(
        "--max-seconds",
        metavar="S",
        type=positive_seconds,
        help=what,
    )


def add_trials(group: argparse._ArgumentGroup, what: str) -> None:
    """The option of how many trials; what they are is for the help."""
    group.add_argument(
        "-n",
        "--trials",
        metavar="N",
        type=whole(1),
        default=1000,
        help=f"{what} (default: %(default)s)",
    )


def add_warmups(group: argparse._ArgumentGroup, what: str, default: int) -> None:
    """The option of how many trials come first and do not count."""
    group.add_argument(
        "-w",
        "--warmups",
        metavar="N",
        type=whole(0),
        default=default,
        help=f"{what} (default: %(default)s)",
    )


def add_variant(group: argparse._ActionsContainer, what: str, more: str = "") -> None:
    """Which kind of trials, where a run has several."""
    group.add_argument(
        "--variant",
        metavar="N",
        type=whole(1),
        default=1,
        help=f"kind of trials to {what}, where a run has several (default: 1, the commonest){more}",
    )


def add_limit(group: argparse._ArgumentGroup, what: str, default: int | None = 20) -> None:
    """The option of how many rows are shown."""
    group.add_argument("--limit", metavar="N", type=whole(0), default=default, help=what)


def add_out(group: argparse._ArgumentGroup, what: str, force: str = "") -> None:
    """The option of the folder of the results, and of replacing what is in it."""
    group.add_argument("-o", "--out", metavar="DIR", type=folder, help=what)
    if force:
        group.add_argument("--force", action="store_true", help=force)


def add_precision(group: argparse._ArgumentGroup, what: str) -> None:
    """The option of what an engine computes in."""
    group.add_argument(
        "--precision",
        choices=PRECISIONS,
        default=PRECISIONS[0],
        help=f"{what} (default: %(default)s)",
    )


def add_input(group: argparse._ArgumentGroup) -> None:
    """Options of what a network runs on; :func:`read_input` reads them."""
    group.add_argument(
        "-i",
        "--input",
        default="random",
        help="random, cifar10 (a test image), a picture's file, or the arguments themselves, batch "
        "included, in a .npy or .npz file (default: %(default)s)",
    )
    group.add_argument(
        "--index", metavar="I", type=whole(0), default=0, help="first test image (default: 0)"
    )
    group.add_argument("--data-dir", metavar="DIR", help="folder with cifar-10-python.tar.gz")
    add_input_shape(group, several=True)
    add_batchsize(group, "inputs per trial", default=None)


def check_input(args: argparse.Namespace) -> None:
    """Refuse options of an input that is another one.

    Raises:
        UsageError: One is for CIFAR-10, and the input is not.
    """
    if args.input != "cifar10" and (args.index or args.data_dir is not None):
        option = "--index" if args.index else "--data-dir"
        raise UsageError(f"{option} is for CIFAR-10: give --input cifar10 as well")
    if args.input != "random" and _asks_for_more(args):
        raise UsageError(
            f"--input {args.input} is one array of floats: give one plain --input-shape"
        )
    if _is_file_of_arrays(args.input):
        if args.input_shape or args.input_size:
            raise UsageError(f"--input {args.input} has its own shapes: leave --input-shape out")
        if args.batchsize is not None:
            raise UsageError(f"--input {args.input} has its own batch: leave --batchsize out")


def _is_file_of_arrays(name: str) -> bool:
    return name.endswith((".npy", ".npz"))


def _asks_for_more(args: argparse.Namespace) -> bool:
    """Whether other arguments than one array of floats are wanted."""
    specs = args.input_shape or []
    return len(specs) > 1 or any(one != InputSpec(one.shape) for one in specs)


def read_input(args: argparse.Namespace, source: ModelSource) -> InputBatch:
    """The batch that the options of :func:`add_input` ask for.

    Args:
        args: The options, with ``seed``.
        source: The network.

    Raises:
        ProfileError: A picture or a data set cannot be read.
        UsageError: The shape of the input is not known.
    """
    from chainer_profile.networks.inputs import load_arguments, make_arguments, make_input

    if _is_file_of_arrays(args.input):
        return load_arguments(Path(args.input))
    batchsize = args.batchsize or 1
    if _asks_for_more(args):
        if args.input_size is not None:
            raise UsageError("--input-size is for one image: write it into --input-shape")
        return make_arguments(args.input_shape, batchsize, args.seed)
    return make_input(
        args.input,
        input_shape(args, source.input_shape),
        batchsize,
        seed=args.seed,
        index=args.index,
        data_dir=args.data_dir,
        mean=source.mean,
        std=source.std,
    )


def asked_device(args: argparse.Namespace) -> str:
    """The device of :func:`add_machine`'s options: ``cpu``, ``gpu:0``."""
    return named_device(args.gpu)
