"""``report``: the reports of a run again, from its recording alone."""

from __future__ import annotations

import argparse
from pathlib import Path

from chainer_profile.basics.errors import UsageError
from chainer_profile.basics.parsing import Parser
from chainer_profile.basics.words import PROG
from chainer_profile.cli.running import Context
from chainer_profile.cli.shown import add_shown, show, wanted
from chainer_profile.runs.wanted import check as check_formats


def parser() -> argparse.ArgumentParser:
    """Options of making the reports again."""
    parser = Parser(
        prog=f"{PROG} report",
        description="Makes the table, the plot and the report of a run again, from its recording "
        "alone. Recovers the trials of a run that was killed.",
    )
    parser.add_argument("run", metavar="DIR", type=Path, help="folder of a run, or a recording")
    add_shown(parser)
    return parser


def run(args: argparse.Namespace, context: Context) -> int:
    """Write the reports of a run, or of a run of several engines, and print its tables."""
    from chainer_profile.engines.results import RESULTS
    from chainer_profile.runs.folder import load_run
    from chainer_profile.runs.history import resolve_run

    run = resolve_run(args.run)
    if (run / RESULTS).exists():
        from chainer_profile.cli import engines

        if args.formats:
            raise UsageError(
                f"{run}: holds a run of several engines; --format is for the folder of one of them"
            )
        return engines.report(run, args)
    recording = load_run(run)
    asked = wanted(args)
    check_formats(asked, recording.n_trials)
    show(recording, run if run.is_dir() else run.parent, args)
    return 0
