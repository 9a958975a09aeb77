"""Arguments of ``compare``."""

from __future__ import annotations

import argparse

from chainer_profile.basics.errors import UsageError
from chainer_profile.basics.parsing import folder, integer_at_least
from chainer_profile.basics.units import parse_percent
from chainer_profile.basics.words import TYPED
from chainer_profile.cli import FAILED, output_options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Compares runs layer by layer with the first one, and says what is noise. Join several "
        "runs of the same thing with commas (A1,A2,A3 B1,B2,B3): this measures how much they "
        "differ."
    )
    about = "folders of runs, or recordings; at least two"
    parser.add_argument("runs", metavar="DIR", nargs="+", help=about)
    judging = parser.add_argument_group("judging")
    about = "ignore smaller changes (default: %(default)s)"
    judging.add_argument(
        "--min-effect", metavar="PCT", type=parse_percent, default="2%", help=about
    )
    about = (
        f"exit with {FAILED} if the trial, or a layer with more than 1%% of the time, is "
        "significantly slower by more than this"
    )
    judging.add_argument("--fail-above", metavar="PCT", type=parse_percent, help=about)
    about = (
        "what the gate compares: wall times or, for shared machines, the CPU time of unprofiled "
        "trials (default: %(default)s)"
    )
    judging.add_argument("--gate", choices=("wall", "cpu"), default="wall", help=about)
    shown = parser.add_argument_group("what is shown")
    about = (
        "order of the layers; change sorts by the time that a trial gains or loses (default: "
        "%(default)s)"
    )
    orders = ("change", "time", "index", "path")
    shown.add_argument("--sort", choices=orders, default="change", help=about)
    about = "rows of the table, 0 for all (default: 10, or 20 with --full)"
    shown.add_argument("--limit", metavar="N", type=integer_at_least(0), help=about)
    about = "show everything, unchanged layers too"
    shown.add_argument("--full", action="store_true", help=about)
    about = "write comparison.csv, .md, .png and .html into this folder"
    shown.add_argument("-o", "--out", metavar="DIR", type=folder, help=about)
    output_options.add_message_options(shown)


def check(args: argparse.Namespace) -> None:
    if len(args.runs) < 2:
        raise UsageError(f"give at least two runs: {TYPED} compare BEFORE AFTER")
    if args.fail_above is not None and args.fail_above < args.min_effect:
        reason = "below which changes are ignored"
        raise UsageError(f"--fail-above must be at least --min-effect, {reason}")
    if args.gate == "cpu" and args.fail_above is None:
        raise UsageError("--gate cpu needs --fail-above")
