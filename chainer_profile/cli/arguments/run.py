"""Arguments of ``run``."""

from __future__ import annotations

import argparse

from chainer_profile.basics.errors import UsageError
from chainer_profile.basics.words import TYPED
from chainer_profile.cli import options, output_options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Runs a Chainer program unchanged, on current Python, NumPy and CuPy, and shows where its "
        "time went: imports, data, iterations by layer, evaluation, each extension of a Trainer, "
        "snapshots. The exit code is the program's."
    )
    kinds = ("SCRIPT", "-m MODULE", "-c TEXT")
    parser.usage = "\n       ".join(f"%(prog)s [options] {kind} [ARGS ...]" for kind in kinds)
    group = parser.add_mutually_exclusive_group()
    about = "run a module by its name, like python -m"
    group.add_argument("-m", "--module", action="store_true", help=about)
    about = "run a program given as text, like python -c"
    group.add_argument("-c", dest="text", action="store_true", help=about)
    about = "switch changes that could make the program faster on and off, and show what each gains"
    parser.add_argument("--try", dest="tries", action="store_true", help=about)
    about = "show what each layer allocates: two iterations count memory, and are not timed"
    parser.add_argument("--memory", action="store_true", help=about)
    about = "make Chainer run on this Python and NumPy, but measure nothing"
    parser.add_argument("--compat-only", action="store_true", help=about)
    about = (
        "leave out measurements: layers (only the program's parts are timed then) or samples (of "
        "the Python functions in the main thread, up to 100 times a second)"
    )
    parser.add_argument(
        "--skip",
        metavar="A,B",
        type=options.skip_parser("layers", "samples"),
        default=(),
        help=about,
    )
    output_options.add_format_option(parser)
    about = "print nothing but the program's own output"
    parser.add_argument("-q", "--quiet", action="store_true", help=about)
    parser.add_argument("program", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    results = "folder of the results (default: the next free reports/NAME of the script)"
    output_options.add_output_options(parser, results)


def check(args: argparse.Namespace) -> None:
    if args.program in ([], ["--"]):
        raise UsageError(f"name a program: {TYPED} run SCRIPT [ARGS ...]")
    if args.tries and args.compat_only:
        raise UsageError("--try measures iterations: leave out --compat-only")
    if args.tries and "layers" in args.skip:
        raise UsageError("--try measures iterations: leave out --skip layers")
    output_options.check_folder(args)
