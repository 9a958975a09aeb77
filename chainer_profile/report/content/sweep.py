"""Results of a sweep -> what is said of them, and their table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from chainer_profile.analyse.case_result import CaseResult, machines_of, several_machines
from chainer_profile.basics.units import NOT_KNOWN, format_count, plural
from chainer_profile.report.document import Block, Code, Figure, Heading, text
from chainer_profile.report.tables import Column, Table, columns

#: The columns, of a :class:`.CaseResult`; all of them are in ``sweep.csv``.
COLUMNS = columns(
    """
network settings.model | | text 12 | Name of the network
input input_text | | text 12 | Height and width of an image, or the shape of one input
batch settings.batchsize | | count | Inputs per trial
device settings.device | | text 6 | cpu, gpu:0 and so on
phase settings.phase | | text 8 | What a trial is: forward, forward-backward or train
dtype settings.dtype | | text 8 | Data type of parameters and input
blocks | blocks = block kind !4 | text? 10 | Kind of the network's blocks, such as
  basic or bottleneck; empty without blocks
mean | mean ms | ms | Mean latency of the unprofiled trials; empty for a case that
  failed
std | std ms | ms | Its standard deviation (with trials - 1)
median | median ms | ms | Median latency
fps | FPS | number | Inputs a second, batch over mean
trials timed | | count | Number of these trials
trials_kind kind | | text | clean (unprofiled), or profiled if there were no unprofiled ones
parameters | params = parameters !3 | count | Number of parameters
memory | memory = memory high water !2 | bytes | Peak of the bytes
  allocated in a trial, excluding those that existed before it
threads | threads = BLAS threads !5 | count | BLAS threads in use
machine | !1 | text? 10 | Name of the machine that the case ran on
processor | | text | Its processor, or its GPU
started | | text | When the case began (UTC)
case name | | text | Name of the case's folder
error | | text | Why the case failed; empty where it did not
""",
    timed=lambda run: run.timed or None,
    kind=lambda run: ("clean" if run.clean else "profiled") if run.timed else "",
)
_READ = (
    *("network", "input", "batch", "device", "phase", "dtype", "blocks"),
    *("median", "std", "fps", "parameters", "memory", "threads", "machine"),
)


def table_columns(results: Sequence[CaseResult]) -> list[Column]:
    """The columns to read; what is the same in all rows and as usual has none."""
    asked = [result.settings for result in results]
    found = {key: COLUMNS[key] for key in _READ}
    if {run.phase for run in asked} <= {"forward"}:
        del found["phase"]
    if {run.dtype for run in asked} <= {"float32"}:
        del found["dtype"]
    if several_machines(results):
        marks = {machine: "*" for machine, _ in machines_of(results)[1:]}

        def machine(result: CaseResult) -> str:
            return f"{result.machine or NOT_KNOWN}{marks.get(result.machine, '')}"

        found["machine"] = replace(COLUMNS["machine"], value=machine, drop=0)
    return list(found.values())


def notes(results: Sequence[CaseResult]) -> list[str]:
    """What the numbers mean, and what to be careful with: a sentence or two each."""
    found = []
    if any(result.timed for result in results):
        found.append(
            "Times are of unprofiled trials, and FPS is the batch divided by their mean. Memory is "
            "the peak allocated during a trial, excluding what existed before it (such as "
            "parameters)."
        )
    if names := [one.name for one in results if one.timed and not one.clean]:
        found.append(
            f"Times of profiled trials, because there were no unprofiled ones: {', '.join(names)}."
        )
    if several_machines(results):
        machines = ", ".join(
            f"{name or NOT_KNOWN} ({processor or NOT_KNOWN})"
            for name, processor in machines_of(results)
        )
        found.append(
            f"The cases ran on several machines: {machines}. Do not compare networks by times "
            "of different machines; * marks cases that did not run on the first machine."
        )
    return found + [f"Failed: {one.name}: {one.error}" for one in results if one.error]


def overview(results: Sequence[CaseResult]) -> Iterator[Block]:
    """The table, and what to be careful with: what a terminal shows of it."""
    good = [result for result in results if not result.error]
    if good:
        yield Table(table_columns(good), good, "The cases")
    for note in notes(results):
        yield text(note, note=note.startswith("Failed"))


def report(
    name: str, results: Sequence[CaseResult], planned: int, command: str, plots: Sequence[str]
) -> list[Block]:
    """The report of a sweep: of so many cases those that there are so far, and their plots."""
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
