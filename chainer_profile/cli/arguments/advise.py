"""Arguments of ``advise``."""

from __future__ import annotations

import argparse

from chainer_profile.basics.parsing import duration
from chainer_profile.basics.words import ADVISE_SECONDS
from chainer_profile.cli import options, output_options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Profiles a network, then tries changes that could make it faster on the CPU, each in "
        "processes that take turns with the unchanged network. It says what each change gains, and "
        "how to keep it."
    )
    about = "folder of a run: use its network and settings, and write the advice there"
    parser.add_argument("run", metavar="DIR", nargs="?", help=about)
    options.add_dtype_option(options.add_network_options(parser))
    options.add_trial_options(parser)
    options.add_input_options(parser)
    measuring = parser.add_argument_group("measuring")
    options.add_threads_option(measuring, options.CHOSEN_THREADS_HELP)
    options.add_seed_option(measuring)
    add_own_options(parser)


def add_own_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``advise`` that a profile does not take."""
    trying = parser.add_argument_group("trying")
    about = f"total time, such as 90s or 3m (default: {ADVISE_SECONDS / 60:.0f}m)"
    trying.add_argument(
        "--budget", metavar="TIME", type=duration, default=ADVISE_SECONDS, help=about
    )
    results = "folder of the results (default: the next free reports/advise-MODEL-cpu-bBATCH)"
    force = "replace a run in the --out folder, or the advice in DIR"
    output = output_options.add_output_options(parser, results, force)
    output_options.add_full_option(output)
    output_options.add_message_options(output)


def check(args: argparse.Namespace) -> None:
    if not args.run:  # with a run, advise.run() refuses options
        output_options.check_folder(args)
        options.check_input(args)
