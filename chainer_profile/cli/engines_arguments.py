"""What ``profile.py engines`` takes: its options."""

from __future__ import annotations

import argparse
from pathlib import Path

from chainer_profile.basics.choosing import split_names
from chainer_profile.basics.errors import UsageError
from chainer_profile.basics.parsing import Parser, checked, folder, whole
from chainer_profile.basics.words import PROG
from chainer_profile.cli.options import (
    add_classes,
    add_input,
    add_machine,
    add_max_seconds,
    add_messages,
    add_model,
    add_seed,
    add_weights,
    check_input,
)
from chainer_profile.engines.protocol import PRECISIONS

#: Trials in which nodes are timed, at most, where none were asked for.
LAYER_TRIALS = 200


def parser() -> argparse.ArgumentParser:
    """Options of the command."""
    parser = Parser(
        prog=f"{PROG} engines",
        description="Runs the same network with the same weights under several engines, compares "
        "their outputs with Chainer's, and shows how fast each is and what became of every layer.",
    )
    group = parser.add_argument_group("network")
    add_model(group)
    add_classes(group)
    add_weights(group)
    group = parser.add_argument_group("input")
    add_input(group)

    group = parser.add_argument_group("engines")
    group.add_argument(
        "--engines",
        metavar="A,B",
        type=checked(split_names),
        help="names of --list-engines, or module:Class of your own; chainer always comes first "
        "(default: all that can run on the device)",
    )
    group.add_argument("--list-engines", action="store_true", help="list the engines and exit")
    group.add_argument(
        "--precision",
        choices=PRECISIONS,
        default=PRECISIONS[0],
        help="what the other engines compute in; Chainer stays in fp32 (default: %(default)s)",
    )
    group.add_argument(
        "--tolerance",
        metavar="F",
        type=_fraction,
        help="largest difference of an output that is right, as a fraction of the largest output "
        "(default: 1e-4 for fp32, 1e-2 for fp16, 5e-2 for bf16)",
    )
    group.add_argument(
        "--save-engine",
        metavar="FILE",
        type=Path,
        help="keep an engine made ready; the file's ending says which",
    )
    group.add_argument(
        "--load-engine",
        metavar="FILE",
        type=Path,
        help="run an engine from such a file, with the weights that are in it",
    )

    group = parser.add_argument_group("measuring")
    group.add_argument(
        "-n",
        "--trials",
        metavar="N",
        type=whole(1),
        default=1000,
        help="trials of each engine, taken in turn (default: %(default)s)",
    )
    group.add_argument(
        "-w",
        "--warmups",
        metavar="N",
        type=whole(0),
        default=10,
        help="warm-up runs of each (default: %(default)s)",
    )
    group.add_argument(
        "--layer-trials",
        metavar="N",
        type=whole(1),
        help="further trials of each, in which its layers are timed (default: as many as trials, "
        f"{LAYER_TRIALS} at most)",
    )
    add_max_seconds(group)
    add_machine(group, "-d")
    add_seed(group)

    group = parser.add_argument_group("output")
    group.add_argument(
        "-o",
        "--out",
        metavar="DIR",
        type=folder,
        help="folder of the results (default: the next free reports/engines-MODEL-DEVICE-bBATCH)",
    )
    group.add_argument(
        "--force", action="store_true", help="replace a run in the --out folder, or a saved engine"
    )
    group.add_argument(
        "--report", metavar="DIR", type=folder, help="make the reports of such a run again"
    )
    add_messages(group)
    return parser


def _fraction(text: str) -> float:
    """A number above 0 and up to 1."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(
            f"must be a number above 0 up to 1, such as 1e-4, not {text[:40]!r}"
        )
    return value


def check(args: argparse.Namespace) -> None:
    """Refuse options that do not go together, before anything is done.

    Raises:
        UsageError: Some do not.
    """
    if args.force and args.out is None and args.save_engine is None:
        raise UsageError("--force replaces the run in a folder: name it with --out")
    check_input(args)
    if args.load_engine is not None and not args.load_engine.is_file():
        raise UsageError(f"--load-engine {args.load_engine}: there is no such file")
    if args.save_engine is not None and args.save_engine.exists() and not args.force:
        raise UsageError(
            f"--save-engine {args.save_engine}: is there already; replace it with --force"
        )
