"""What options ask for in place of a run, without Chainer: networks, engines, an old run again."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from chainer_profile.cli.main import Context, printing
from chainer_profile.cli.shown import FULL, say_written, show, terminal_width
from chainer_profile.engines.catalogue import listed
from chainer_profile.engines.results import EnginesRun
from chainer_profile.record.recording import Recording
from chainer_profile.report.writers.terminal import wrapped
from chainer_profile.runs import engines as run_folder


def run(args: argparse.Namespace, context: Context) -> int:
    """Answer the one of these options that is given."""
    if getattr(args, "report", None) is not None:
        report_engines(args.report, args)
        return 0
    with printing():
        if getattr(args, "list_models", False):
            width = terminal_width()
            for name, model in context.registry.items():
                line = f"{name:23} {'x'.join(map(str, model.input_shape)):10} {model.description}"
                print(wrapped(line, width, 24))
        else:
            engines = listed()
            width = max(len(entry.name) for entry in engines)
            for entry in engines:
                lacks = entry.lacks()
                state = f"{lacks}: {entry.install}" if lacks else "installed"
                print(f"{entry.name:{width}} {entry.description} ({state})")
    return 0


def report_engines(place: Path, args: argparse.Namespace) -> None:
    """Write the reports of a run of several engines again, from its recordings."""
    found, recordings = run_folder.read_run(place)
    files = run_folder.write_reports(place, found, recordings)
    show_engines(found, recordings, args)
    say_written(place, files, args.quiet)


def show_engines(
    run: EnginesRun, recordings: Mapping[str, Recording], args: argparse.Namespace
) -> None:
    """Print the tables of a run of several engines."""
    # Not at the top: it compares, and with that SciPy is loaded.
    from chainer_profile.report.content.engines import overview

    show(overview(run, recordings), args.quiet, hint="" if args.full else FULL)
