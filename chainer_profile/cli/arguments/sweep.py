"""Arguments of ``sweep``, and the options of one of its cases."""

from __future__ import annotations

import argparse
from pathlib import Path

from chainer_profile.basics import parsing
from chainer_profile.basics.words import DTYPES, PHASES
from chainer_profile.cli import options, output_options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments. Values of cases stay text: :func:`add_case_options` parses each case."""
    parser.description = (
        "Profiles each combination of the lists in a process of its own, and writes one table and "
        "plots. The same command continues an interrupted sweep."
    )
    about = "file with the cases, instead of the lists"
    parser.add_argument("file", metavar="FILE.toml", nargs="?", type=Path, help=about)
    title = "cases (all combinations of these lists, separated by commas)"
    _add_lists(parser.add_argument_group(title))
    title = "settings of every case, which override the file"
    _add_settings(parser.add_argument_group(title))
    running = parser.add_argument_group("running")
    about = "local (one case at a time), local:N or dask://HOST:PORT (default: local)"
    running.add_argument(
        "--executor", metavar="WHERE", type=parsing.executor, default="local", help=about
    )
    about = "list the cases and their commands and exit"
    running.add_argument("--dry-run", action="store_true", help=about)
    results = (
        "folder of the results (default: reports/sweep-NAME, named after the file or the networks)"
    )
    force = "measure everything again and replace another sweep"
    output_options.add_message_options(output_options.add_output_options(parser, results, force))


def _add_lists(group: options.Group) -> None:
    group.add_argument("--model", help="networks, as profile.py takes them")
    about = "shapes without the batch, or sizes of images; once for each argument"
    group.add_argument("--input-shape", metavar="SPEC", action="append", help=about)
    group.add_argument("--batchsize", metavar="N", help="inputs per trial (default: 1)")
    group.add_argument("--device", metavar="DEVICE", help="cpu, gpu:0 and so on (default: cpu)")
    group.add_argument("--phase", metavar="PHASE", help="phases (default: forward)")


def _add_settings(group: options.Group) -> None:
    group.add_argument("--model-args", metavar="ARGS", help=options.MODEL_ARGS_HELP)
    group.add_argument("--classes", metavar="N", help="number of outputs")
    group.add_argument("--weights", metavar="FILE.npz", help="weights saved with save_npz")
    group.add_argument("--trials", metavar="N", help="profiled trials (default: 1000)")
    about = "warm-up trials, for at most 10 s (default: 50)"
    group.add_argument("--warmups", metavar="N", help=about)
    group.add_argument("--threads", metavar="N", help="BLAS threads of every case (default: 1)")
    about = "seed of the weights and of the random input (default: 0)"
    group.add_argument("--seed", metavar="N", help=about)
    group.add_argument("--dtype", choices=DTYPES, help=options.DTYPE_HELP)
    group.add_argument("--max-seconds", metavar="S", help="time limit of all passes")
    group.add_argument("--skip", metavar="A,B", help=options.SKIP_HELP)


def add_case_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of one case, with the parsers of ``profile``."""
    parser.add_argument("--model")
    parser.add_argument("--input-shape", type=parsing.parse_input, action="append")
    parser.add_argument("--batchsize", type=parsing.integer_at_least(1))
    parser.add_argument("--device", dest="gpu", type=parsing.parse_device)
    parser.add_argument("--phase", choices=PHASES)
    parser.add_argument("--model-args")
    parser.add_argument("--classes", type=parsing.integer_at_least(1))
    parser.add_argument("--weights")
    parser.add_argument("--trials", type=parsing.integer_at_least(1))
    parser.add_argument("--warmups", type=parsing.integer_at_least(0))
    # The case may run on a machine with more cores.
    parser.add_argument("--threads", type=parsing.integer_at_least(1))
    parser.add_argument("--seed", type=parsing.integer_at_least(0))
    parser.add_argument("--dtype", choices=DTYPES)
    parser.add_argument("--max-seconds", type=parsing.positive_seconds)
    parser.add_argument("--skip", type=options.parse_skipped_passes)
