"""Results of a sweep -> their table and report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from chainer_profile.analyse.case_result import CaseResult, machines_of, several_machines
from chainer_profile.basics.units import NOT_KNOWN, format_count, plural
from chainer_profile.report import unit
from chainer_profile.report.document import Block, Code, Figure, Heading, text
from chainer_profile.report.tables import Column, Table, by_key

# fmt: off
#: The columns of ``sweep.csv``; each row is a :class:`.CaseResult`.
COLUMNS = by_key(
    Column("network", "network", unit.TEXT, "Name of the network", field="settings.model", fold=12),
    Column("input", "input", unit.TEXT, field="input_text", fold=12,
           meaning="Height and width of an image, or the shape of one input"),
    Column("batch", "batch", unit.COUNT, "Inputs per trial", field="settings.batchsize"),
    Column("device", "device", unit.TEXT, "cpu, gpu:0 and so on", field="settings.device", fold=6),
    Column("phase", "phase", unit.TEXT, field="settings.phase", fold=8,
           meaning="What a trial is: forward, forward-backward or train"),
    Column("dtype", "dtype", unit.TEXT, field="settings.dtype", fold=8,
           meaning="Data type of parameters and input"),
    Column("blocks", "blocks", unit.TEXT, full="block kind", unknown=NOT_KNOWN, fold=10, drop=4,
           meaning="Kind of the network's blocks, such as basic or bottleneck; empty without "
                   "blocks"),
    Column("mean", "mean ms", unit.MS,
           meaning="Mean latency of the unprofiled trials; empty for a case that failed"),
    Column("std", "std ms", unit.MS, "Its standard deviation (with trials - 1)"),
    Column("median", "median ms", unit.MS, "Median latency"),
    Column("fps", "FPS", unit.NUMBER, "Inputs a second, batch over mean"),
    Column("trials", "trials", unit.COUNT, value=lambda run: run.timed or None,
           meaning="Number of these trials"),
    Column("trials_kind", "trials_kind", unit.TEXT,
           value=lambda run: ("clean" if run.clean else "profiled") if run.timed else "",
           meaning="clean (unprofiled), or profiled if there were no unprofiled ones"),
    Column("parameters", "params", unit.COUNT, "Number of parameters", full="parameters", drop=3),
    Column("memory", "memory", unit.BYTES, full="memory high water", drop=2,
           meaning="Peak of the bytes allocated in a trial, excluding those that existed before "
                   "it"),
    Column("threads", "threads", unit.COUNT, "BLAS threads in use", full="BLAS threads", drop=5),
    Column("machine", "machine", unit.TEXT, unknown=NOT_KNOWN, fold=10, drop=1,
           meaning="Name of the machine that the case ran on"),
    Column("processor", "processor", unit.TEXT, "Its processor, or its GPU"),
    Column("started", "started", unit.TEXT, "When the case began (UTC)"),
    Column("case", "case", unit.TEXT, "Name of the case's folder", field="name"),
    Column("error", "error", unit.TEXT, "Why the case failed; empty where it did not"),
)
# fmt: on
_TABLE_COLUMNS = (
    *("network", "input", "batch", "device", "phase", "dtype", "blocks"),
    *("median", "std", "fps", "parameters", "memory", "threads", "machine"),
)


def table_columns(results: Sequence[CaseResult]) -> list[Column]:
    """The columns of the table, without settings that have their default in all cases.

    The folder's name is a column if cases differ in other ways, such as a second input's shape.
    """
    settings = [result.settings for result in results]
    columns = {key: COLUMNS[key] for key in _TABLE_COLUMNS}
    if {case.phase for case in settings} <= {"forward"}:
        del columns["phase"]
    if {case.dtype for case in settings} <= {"float32"}:
        del columns["dtype"]
    shown = ("network", "input", "batch", "device", "phase", "dtype")
    if len({tuple(COLUMNS[key].value_of(case) for key in shown) for case in results}) < len(
        results
    ):
        columns["case"] = COLUMNS["case"]
    if several_machines(results):
        marks = {machine: "*" for machine, _ in machines_of(results)[1:]}

        def machine(result: CaseResult) -> str:
            return f"{result.machine or NOT_KNOWN}{marks.get(result.machine, '')}"

        columns["machine"] = replace(COLUMNS["machine"], value=machine, drop=0)
    return list(columns.values())


def notes(results: Sequence[CaseResult]) -> Iterator[str]:
    """Notes on the meaning of the numbers, and cautions."""
    if any(result.timed for result in results):
        yield (
            "Times are of unprofiled trials, and FPS is the batch divided by their mean. Memory is "
            "the peak allocated during a trial, excluding what existed before it (such as "
            "parameters)."
        )
    if names := [case.name for case in results if case.timed and not case.clean]:
        listed = ", ".join(names)
        yield f"Times of profiled trials, because there were no unprofiled ones: {listed}."
    if several_machines(results):
        machines = ", ".join(
            f"{name or NOT_KNOWN} ({processor or NOT_KNOWN})"
            for name, processor in machines_of(results)
        )
        yield (
            f"The cases ran on several machines: {machines}. Do not compare networks by times "
            "of different machines; * marks cases that did not run on the first machine."
        )


def overview(results: Sequence[CaseResult]) -> Iterator[Block]:
    """The table, the notes and the failed cases, as a terminal shows them."""
    good = [result for result in results if not result.error]
    if good:
        yield Table(table_columns(good), good, "The cases")
    yield from map(text, notes(results))
    for case in results:
        if case.error:
            yield text(f"Failed: {case.name}: {case.error}", note=True)


def report(
    name: str, results: Sequence[CaseResult], planned: int, command: str, plots: Sequence[str]
) -> list[Block]:
    """The report of a sweep.

    Args:
        name: The title.
        results: The cases measured so far.
        planned: The number of cases of the whole sweep.
        command: The command that ran the sweep.
        plots: Files of the plots.
    """
    good = sum(1 for result in results if not result.error)
    cases = plural(planned, "case")
    count = cases if good == planned else f"{format_count(good)} of {cases}"
    return [
        Heading(1, name),
        text(f"{count}."),
        *overview(results),
        *(
            Figure(plot, plot.partition(".")[0].replace("-", " ").capitalize(), "")
            for plot in plots
        ),
        text("Made by:"),
        Code(command),
    ]
