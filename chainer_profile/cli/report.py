"""``report``: the reports of a run again, from its recording alone."""

from __future__ import annotations

import argparse

from chainer_profile.basics.errors import UsageError
from chainer_profile.cli.running import Context
from chainer_profile.cli.shown import show_run, wanted
from chainer_profile.engines.results import RESULTS
from chainer_profile.runs.folder import load_run
from chainer_profile.runs.history import resolve_run
from chainer_profile.runs.wanted import check as check_formats


def run(args: argparse.Namespace, context: Context) -> int:
    """Write the reports of a run, or of a run of several engines, and print its tables."""
    run = resolve_run(args.run)
    if (run / RESULTS).exists():
        from chainer_profile.cli import engines  # which imports Chainer

        if args.formats:
            raise UsageError(
                f"{run}: holds a run of several engines; --format is for the folder of one of them"
            )
        return engines.report(run, args)
    recording = load_run(run)
    check_formats(wanted(args), recording.n_trials)
    show_run(recording, run if run.is_dir() else run.parent, args)
    return 0
