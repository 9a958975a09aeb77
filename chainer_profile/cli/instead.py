"""What options ask for in place of a run, without Chainer: networks, engines, an old run again."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from chainer_profile.basics.units import format_shape
from chainer_profile.cli.main import Context
from chainer_profile.cli.shown import FULL, say_written, show
from chainer_profile.engines.catalogue import EngineEntry, listed
from chainer_profile.engines.results import EnginesRun
from chainer_profile.record.recording import Recording
from chainer_profile.report import unit
from chainer_profile.report.columns import properties
from chainer_profile.report.tables import Column, Table, by_key
from chainer_profile.runs import engines as run_folder

_NETWORKS = by_key(
    Column("network", "network", unit.TEXT, value=lambda item: item[0], fold=12),
    Column("input", "input", unit.TEXT, value=lambda item: format_shape(item[1].input_shape)),
    Column("description", "description", unit.TEXT, value=lambda item: item[1].description),
)


def run(args: argparse.Namespace, context: Context) -> int:
    """Answer the one of these options that is given."""
    if getattr(args, "report", None) is not None:
        report_engines(args.report, args)
        return 0
    if getattr(args, "list_models", False):
        show([Table(_NETWORKS, context.registry.items(), "The networks")])
    else:
        show([properties((entry.name, _described(entry)) for entry in listed())])
    return 0


def _described(entry: EngineEntry) -> str:
    lacks = entry.lacks()
    state = f"{lacks}: {entry.install}" if lacks else "installed"
    return f"{entry.description} ({state})"


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
