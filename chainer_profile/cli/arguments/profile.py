"""Arguments of ``profile``, the default command."""

from __future__ import annotations

import argparse

from chainer_profile.basics.errors import UsageError
from chainer_profile.basics.parsing import Parser
from chainer_profile.basics.words import PROG, VERSION
from chainer_profile.cli import COMMANDS, PROFILE, options, output_options

#: The options of ``profile.py --help``; ``--help-all`` shows the others too.
COMMON = (
    *("--model", "--input-shape", "--batchsize", "--phase", "--fast", "--trials"),
    *("--threads", "--gpu", "--why", "--out", "--format", "--full"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _add_commands(parser)
    network = options.add_network_options(parser)
    about = "list the networks and exit"
    network.add_argument("--list-models", action="store_true", help=about)
    options.add_dtype_option(network)
    options.add_fast_option(network)
    about = "let glibc keep freed memory in the process; --fast implies it"
    network.add_argument("--keep-memory", action="store_true", help=about)
    options.add_trial_options(parser)
    options.add_input_options(parser)
    measuring = parser.add_argument_group("measuring")
    options.add_count_options(measuring, trials=1000, warmups=50, clean_trials=True)
    options.add_device_options(measuring, options.CHOSEN_THREADS_HELP)
    _add_passes(measuring)
    options.add_seed_option(measuring)
    results = "folder of the results (default: the next free reports/MODEL-DEVICE-bBATCH)"
    output_options.add_output_options(parser, results)
    output_options.add_table_options(parser)
    output_options.add_report_options(parser)


def _add_passes(group: options.Group) -> None:
    """Add options of the passes after the trials."""
    about = (
        "sample the layers for some seconds after the trials, to show which code in and between "
        "them takes the time"
    )
    group.add_argument("--why", action="store_true", help=about)
    about = (
        "count each layer's CPU time, page faults and context switches in 5 s of further trials "
        "(default: in a tenth of the trials' time, at most 5 s; on a CPU)"
    )
    group.add_argument("--counters", action="store_true", default=None, help=about)
    group.add_argument(
        "--skip",
        metavar="A,B",
        type=options.parse_skipped_passes,
        default=(),
        help=options.SKIP_HELP,
    )
    about = (
        "show this machine's limits and exit: kept from the first time (default), or measured again"
    )
    group.add_argument("--machine", nargs="?", choices=("kept", "again"), const="kept", help=about)
    about = (
        "run each layer in a function named after it, for samplers such as py-spy and perf; adds "
        "about 7 us a call"
    )
    group.add_argument("--layer-frames", action="store_true", help=about)


def check(args: argparse.Namespace) -> None:
    if args.list_models or args.machine:
        return
    output_options.check_folder(args)
    options.check_input(args)
    options.check_fast(args)
    if args.counters and args.gpu >= 0:
        raise UsageError("--counters is for the CPU: leave out --counters or --gpu")
    if args.counters and "counters" in args.skip:
        raise UsageError("--counters is for the CPU: leave out --counters or --skip")


# -- the help


def _add_commands(parser: argparse.ArgumentParser) -> None:
    """Add the description of the program, the list of its commands, and the help options."""
    parser.usage = f"{PROG} [options]\n       {PROG} COMMAND [options]"
    parser.description = (
        "Profiles a Chainer network layer by layer and writes tables, plots and a report."
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    width = max(map(len, COMMANDS)) + 2
    lines = [f"{word:{width}}{about}" for word, about in COMMANDS.items() if word != PROFILE]
    parser.add_argument_group("commands, each with --help of its own", "\n".join(lines))
    group = parser.add_argument_group("help")
    about = "show the options for most runs, and exit"
    group.add_argument("-h", "--help", action=_Help, nargs=0, default=argparse.SUPPRESS, help=about)
    group.add_argument("--help-all", action="help", help="show all options, and exit")
    group.add_argument("--version", action="version", version=VERSION)


class _Help(argparse.Action):
    """Prints the help of the common options."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        short = Parser(prog=parser.prog, add_help=False)
        _add_commands(short)
        group = short.add_argument_group("options for most runs")
        for option in COMMON:
            group._add_action(parser._option_string_actions[option])
        short.print_help()
        parser.exit()
