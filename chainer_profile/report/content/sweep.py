"""Results of a sweep -> what is said of them, and their table with all digits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chainer_profile.basics.units import (
    NOT_KNOWN,
    format_count,
    format_exact,
    format_exact_ms,
    format_ms,
    format_nbytes,
    format_significant,
    plural,
)
from chainer_profile.record.digest import machines_of, several_machines
from chainer_profile.report import csv_file as csv
from chainer_profile.report.document import (
    Code,
    Column,
    Figure,
    Heading,
    points,
    text,
)
from chainer_profile.report.tables import Table
from chainer_profile.report.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from chainer_profile.record.digest import Run
    from chainer_profile.report.document import Block

#: The columns of ``sweep.csv`` and what they mean.
COLUMNS = {
    "network": "Name of the network",
    "input": "Height and width of an image, or the shape of one input",
    "batch": "Inputs per trial",
    "device": "cpu, gpu:0 and so on",
    "phase": "What a trial is: forward, forward-backward or train",
    "dtype": "Data type of parameters and input",
    "blocks": "Kind of the network's blocks, such as basic or bottleneck; empty without blocks",
    "mean_ms": "Mean latency of the clean trials; empty for a case that failed",
    "std_ms": "Its standard deviation (with trials - 1)",
    "median_ms": "Median latency",
    "fps": "Inputs a second, batch over mean",
    "trials": "Number of these trials",
    "trials_kind": "clean (without hooks), or profiled where there were no clean ones",
    "parameters": "Number of parameters",
    "memory_nbytes": "Most bytes that were allocated in a trial beyond those at its begin",
    "threads": "BLAS threads in use",
    "machine": "Name of the machine that the case ran on",
    "processor": "Its processor, or its GPU",
    "started": "When the case began (UTC)",
    "case": "Name of the case's folder",
    "error": "Why the case failed; empty where it did not",
}


def render_csv(results: Sequence[Run]) -> str:
    """One row a case, with all digits; see :data:`COLUMNS`."""
    rows = [
        {
            "network": csv.safe(result.digest.settings.model),
            "input": result.digest.input_text,
            "batch": str(result.digest.settings.batchsize),
            "device": csv.safe(result.digest.settings.device),
            "phase": csv.safe(result.digest.settings.phase),
            "dtype": csv.safe(result.digest.settings.dtype),
            "blocks": csv.safe(result.digest.blocks),
            "mean_ms": format_exact_ms(result.digest.mean_s),
            "std_ms": format_exact_ms(result.digest.std_s),
            "median_ms": format_exact_ms(result.digest.median_s),
            "fps": format_exact(result.digest.fps),
            "trials": str(result.digest.timed or ""),
            "trials_kind": ("clean" if result.digest.clean else "profiled")
            if result.digest.timed
            else "",
            "parameters": "" if result.digest.parameters is None else str(result.digest.parameters),
            "memory_nbytes": ""
            if result.digest.memory_nbytes is None
            else str(result.digest.memory_nbytes),
            "threads": "" if result.digest.threads is None else str(result.digest.threads),
            "machine": csv.safe(result.machine),
            "processor": csv.safe(result.digest.processor),
            "started": csv.safe(result.digest.started),
            "case": csv.safe(result.name),
            "error": csv.safe(result.error),
        }
        for result in results
    ]
    return csv.table_text(COLUMNS, rows)


def table_columns(results: Sequence[Run]) -> list[Column]:
    """The columns to read; what is the same in all rows and as usual has none."""
    asked = [result.digest.settings for result in results]
    machines = several_machines(results)
    mark = {machine: "*" for machine, _ in machines_of(results)[1:]} if machines else {}

    def machine(result: Run) -> str:
        return f"{printable(result.machine) or NOT_KNOWN}{mark.get(result.machine, '')}"

    found = [
        Column("network", lambda row: printable(row.digest.settings.model), folds=12),
        Column("input", lambda row: row.digest.input_text, folds=12),
        Column("batch", lambda row: format_count(row.digest.settings.batchsize)),
        Column("device", lambda row: row.digest.settings.device, folds=6),
    ]
    if {run.phase for run in asked} - {"forward"}:
        found.append(Column("phase", lambda row: row.digest.settings.phase, folds=8))
    if {run.dtype for run in asked} - {"float32"}:
        found.append(Column("dtype", lambda row: row.digest.settings.dtype, folds=8))
    return [
        *found,
        Column(
            "blocks",
            lambda row: printable(row.digest.blocks) or NOT_KNOWN,
            "block kind",
            10,
            drop=4,
        ),
        Column("median ms", lambda row: format_ms(row.digest.median_s), "median [ms]"),
        Column("std ms", lambda row: format_ms(row.digest.std_s), "std [ms]"),
        Column("FPS", lambda row: format_significant(row.digest.fps)),
        Column("params", lambda row: _count(row.digest.parameters), "parameters", drop=3),
        Column(
            "memory",
            lambda row: format_nbytes(row.digest.memory_nbytes),
            "memory high water",
            drop=2,
        ),
        Column("threads", lambda row: _count(row.digest.threads), "BLAS threads", drop=5),
        Column("machine", machine, folds=10, drop=0 if machines else 1),
    ]


def notes(results: Sequence[Run]) -> list[str]:
    """What the numbers mean, and what to be careful with: a sentence or two each."""
    found = []
    if any(result.digest.timed for result in results):
        found.append(
            "Times are of clean trials, without hooks. Memory is the most that a trial allocates "
            "beyond what is there at its begin, such as the parameters."
        )
    if any(result.digest.timed and not result.digest.clean for result in results):
        names = [printable(r.name) for r in results if r.digest.timed and not r.digest.clean]
        found.append(f"Of profiled trials, as there were no clean ones: {', '.join(names)}.")
    if several_machines(results):
        machines = ", ".join(
            f"{printable(name) or NOT_KNOWN} ({printable(processor) or NOT_KNOWN})"
            for name, processor in machines_of(results)
        )
        found.append(
            f"The cases ran on several machines: {machines}. Times of different machines are no "
            "comparison of networks; * marks those that did not run on the first machine."
        )
    failed = [result for result in results if result.error]
    for result in failed:
        found.append(f"Failed: {printable(result.name)}: {printable(result.error)}")
    return found


def overview(results: Sequence[Run]) -> Iterator[Block]:
    """The table, and what to be careful with."""
    good = [result for result in results if not result.error]
    if good:
        yield Table(table_columns(good), good, "The cases")
    for note in notes(results):
        yield text(note, note=note.startswith("Failed"))


def report(
    name: str, results: Sequence[Run], planned: int, command: str, plots: Sequence[str]
) -> list[Block]:
    """The report of a sweep.

    Args:
        name: The sweep's name.
        results: The results so far.
        planned: How many cases there are in all.
        command: The command line that made it.
        plots: Names of the plots' files.
    """
    good = [result for result in results if not result.error]
    cases = plural(planned, "case")
    count = cases if len(good) == planned else f"{format_count(len(good))} of {cases}"
    return [
        Heading(1, name),
        text(f"{count}."),
        *([Table(table_columns(good), good, "The cases")] if good else []),
        *([points(said)] if (said := notes(results)) else []),
        *(Figure(plot, _alt(plot), "") for plot in plots),
        text("Made by:"),
        Code(command),
    ]


def _alt(plot: str) -> str:
    return plot.partition(".")[0].replace("-", " ").capitalize()


def _count(value: int | None) -> str:
    return NOT_KNOWN if value is None else format_count(value)
