"""The runs of the history -> their table, and the same with all digits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chainer_profile.basics.units import (
    NOT_KNOWN,
    format_count,
    format_exact,
    format_exact_ms,
    format_exact_percent,
    format_ms,
    format_shape,
    format_significant,
)
from chainer_profile.report import csv_file as csv
from chainer_profile.report.document import Column
from chainer_profile.report.tables import Table
from chainer_profile.report.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chainer_profile.record.digest import Run
    from chainer_profile.report.document import Block

#: The columns of the CSV and what they mean.
COLUMNS = {
    "when": "When the run began (UTC)",
    "model": "Name of the network",
    "device": "cpu, gpu:0 and so on",
    "batch": "Inputs per trial",
    "phase": "What a trial is: forward, forward-backward or train",
    "dtype": "Data type of parameters and input",
    "input_shape": "Shape of the input, batch included",
    "commit": "Commit of the repository that the run was started in",
    "latency_ms": "Median of the trials",
    "trials_kind": "clean (without hooks), or profiled where there were no clean ones",
    "fps": "Inputs a second, batch over mean",
    "hot_layer": "Label of the slowest layer",
    "hot_path": "Its path",
    "hot_share_percent": "Its part of the layers' time",
    "trials": "Number of profiled trials",
    "ended": "complete, or why the run ended before",
    "processor": "Processor, or GPU",
    "folder": "Folder of the run below the reports: its name",
    "command": "The command line",
}
_COMMIT = 12
_PROFILED = "*"


def overview(runs: Sequence[Run], hidden: int = 0) -> list[Block]:
    """The table of the runs.

    Args:
        runs: The runs.
        hidden: How many more there are.
    """
    legend = []
    if any(not run.digest.clean for run in runs):
        legend.append(("", f"{_PROFILED} of profiled trials: there were no clean ones."))
    if hidden:
        legend.append(("", f"{format_count(hidden)} more not shown (--limit 0 shows all)."))
    return [Table(table_columns(), runs, "The runs", legend=legend)]


def table_columns() -> list[Column]:
    """The columns to read."""

    def latency(run: Run) -> str:
        return format_ms(run.digest.median_s) + ("" if run.digest.clean else _PROFILED)

    return [
        Column("when", lambda run: _when(run.digest.started), folds=16),
        Column("model", lambda run: printable(run.digest.settings.model) or NOT_KNOWN, folds=12),
        Column("device", lambda run: printable(run.digest.settings.device), folds=6),
        Column("batch", lambda run: format_count(run.digest.settings.batchsize)),
        Column("phase", lambda run: printable(run.digest.settings.phase), folds=7, drop=3),
        Column("commit", lambda run: _commit(run.digest.commit), folds=_COMMIT, drop=2),
        Column("latency ms", latency, "latency [ms]"),
        Column("FPS", lambda run: format_significant(run.digest.fps), drop=4),
        Column("hot layer", lambda run: printable(run.digest.hot_layer), folds=12, drop=1),
        Column("folder", lambda run: printable(run.name), folds=12),
    ]


def render_csv(runs: Sequence[Run]) -> str:
    """One row a run, with all digits; see :data:`COLUMNS`."""
    rows = [
        {
            "when": csv.safe(run.digest.started),
            "model": csv.safe(run.digest.settings.model),
            "device": csv.safe(run.digest.settings.device),
            "batch": str(run.digest.settings.batchsize),
            "phase": csv.safe(run.digest.settings.phase),
            "dtype": csv.safe(run.digest.settings.dtype),
            "input_shape": csv.safe(_shape(run.digest.settings.input_shape)),
            "commit": csv.safe(run.digest.commit),
            "latency_ms": format_exact_ms(run.digest.median_s),
            "trials_kind": "clean" if run.digest.clean else "profiled",
            "fps": format_exact(run.digest.fps),
            "hot_layer": csv.safe(run.digest.hot_layer),
            "hot_path": csv.safe(run.digest.hot_path),
            "hot_share_percent": format_exact_percent(run.digest.hot_share),
            "trials": str(run.digest.trials),
            "ended": csv.safe(run.digest.ended),
            "processor": csv.safe(run.digest.processor),
            "folder": csv.safe(run.name),
            "command": csv.safe(run.digest.settings.command),
        }
        for run in runs
    ]
    return csv.table_text(COLUMNS, rows)


def _when(started: str) -> str:
    """``2026-11-21 09:15``, in UTC as it is recorded."""
    return printable(started[:16].replace("T", " ")) or NOT_KNOWN


def _shape(shape: tuple[int, ...]) -> str:
    return format_shape(shape) if shape else ""


def _commit(commit: str) -> str:
    name, _, changed = printable(commit).partition("-")
    if not name:
        return NOT_KNOWN
    return f"{name[:7]}+" if changed else name[:7]
