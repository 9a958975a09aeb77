"""Changes that were tried -> their blocks, the answer first."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from chainer_profile.advice.changes import BEFORE, CPU, UNCHANGED
from chainer_profile.advice.results import MIN_GAIN, TOGETHER, best_of, together
from chainer_profile.analyse.program import own_ns
from chainer_profile.basics import units
from chainer_profile.basics.describe import NS
from chainer_profile.record.recording import COMPLETE
from chainer_profile.report import unit
from chainer_profile.report.document import Code, Heading, code, listing, points, strong, text
from chainer_profile.report.tables import Column, Table
from chainer_profile.report.text import model_name, printable, script_name, settings_text

if TYPE_CHECKING:
    from chainer_profile.advice.results import Advice, ChangeResult, LossChange
    from chainer_profile.analyse.program import ProgramTime
    from chainer_profile.engines.results import Speedup
    from chainer_profile.report.document import Block, Inline

#: Names of a trial by phase.
_TRIAL_NAMES = {
    "forward": "forward pass",
    "forward-backward": "forward and backward pass",
    "train": "training step",
}
#: Changes whose layers are shown, at most.
_MAX_WITH_LAYERS = 2


def report(advice: Advice, program: ProgramTime | None = None) -> list[Block]:
    return [
        Heading(1, f"What was tried on {_subject(advice)}"),
        *section(advice, program),
        Heading(2, "Method"),
        *([Code(printable(advice.settings.command))] if advice.settings.command else []),
        points(_PROGRAM_METHOD if advice.script else _NETWORK_METHOD),
    ]


def section(
    advice: Advice, program: ProgramTime | None = None, *, below_answer: bool = False
) -> Iterator[Block]:
    """The changes that were tried, and their gains.

    Args:
        advice: The changes.
        program: The time of the program that they were tried in; None if it is unknown.
        below_answer: Whether a report's answer above has the verdict; if so, this omits it.
    """
    if not (below_answer and best_of(advice.tried)):
        yield text(strong(verdict(advice, program)))
    if advice.ended != COMPLETE:
        yield text(
            f"The search ended before everything was tried ({advice.ended}).", note=True, below=True
        )
    if advice.script:
        yield from _program_gains(advice, program)
    elif advice.helping:
        yield Table(_NETWORK_COLUMNS, advice.helping, "What helps")
        threads = units.plural(advice.settings.threads or 1, "BLAS thread")
        yield text(
            f"Compared with the unchanged network, with {threads}; milliseconds are wall time of "
            "one input. Each row comes from pairs of new processes that were started after the "
            "change had been chosen."
        )
        yield points(
            (strong(tried.candidate.name), ": ", *how_to_keep(tried)) for tried in advice.helping
        )
    for tried in [tried for tried in advice.helping if tried.layers][:_MAX_WITH_LAYERS]:
        yield text(f"Where {tried.candidate.name} helped the most:")
        yield Table(_LAYER_COLUMNS, tried.layers, f"Layers under {tried.candidate.name}")
    no_gain = _changes_without_gain(advice)
    failed = [tried for tried in advice.tried if tried.error]
    more = "let the program run for longer" if advice.script else "run again with a larger --budget"
    for heading, items in (
        (f"Undecided; {more}:", [_gain_text(tried, advice) for tried in no_gain if tried.open]),
        ("Tried, no gain:", [_gain_text(tried, advice) for tried in no_gain if not tried.open]),
        ("What failed:", [f"{tried.candidate.name}: {tried.error}" for tried in failed]),
        ("Not tried:", [f"{untried.name}: {untried.why}" for untried in advice.untried]),
    ):
        yield from (block for items in listing(items) for block in (text(heading), items))
    if advice.script:
        return
    took = units.format_of_limit(advice.took_s, advice.budget_s)
    yield text(f"{settings_text(advice.settings)}; this took {took} allowed.", aside=True)


def screen_blocks(advice: Advice, program: ProgramTime) -> Iterator[Block]:
    """The changes that were tried in a program, in a few lines."""
    yield text(strong(verdict(advice, program)))
    yield from _program_gains(advice, program)
    if no_gain := _changes_without_gain(advice):
        names = (
            f"{t.candidate.name} ({_factor_text(t.gain)}, {_interval_text(t.gain)})"
            for t in no_gain
        )
        yield text(f"No significant gain: {', '.join(names)}.", below=True)
    for tried in advice.tried:
        if tried.error:
            failure = f"Failed: {tried.candidate.name}: {tried.error}."
            yield text(failure, note=True, below=True)
    if advice.untried:
        names = (f"{untried.name} ({untried.why})" for untried in advice.untried)
        yield text(f"Not tried: {', '.join(names)}.", below=True)


def _changes_without_gain(advice: Advice) -> list[ChangeResult]:
    """The changes without a significant gain, except failed ones.

    For a program, omits all changes together, which have a row in the table of gains.
    """
    whole = together(advice.tried) if advice.script else None
    return [t for t in advice.tried if not (t.helps or t.error or t is whole)]


def _program_gains(advice: Advice, program: ProgramTime | None) -> Iterator[Block]:
    """A table of the changes that help a program, and how to make the best one."""
    if not advice.helping:
        return
    columns = _program_columns(_program_time(advice, program))
    yield Table(columns, _program_rows(advice), f"What makes {_subject(advice)} faster")
    if any(tried.candidate.against != UNCHANGED for tried in advice.helping):
        yield text("A change with + is added to others and compared with them.", below=True)
    for instruction in _instructions(advice):
        yield text(*instruction, below=True)


def _instructions(advice: Advice) -> Iterator[Inline]:
    """The command to type and the code to write for the best change of a program."""
    for where, line in advice.lines:
        if where == BEFORE:
            yield "Start it with: ", code(line)
        else:
            yield f"Import chainer_profile before Chainer, and write around {where}: ", code(line)


def _program_rows(advice: Advice) -> list[ChangeResult]:
    """The changes that help, with all of them together last."""
    whole = together(advice.tried)
    if whole is None:
        return list(advice.helping)
    name = TOGETHER if whole.pairs else f"{TOGETHER} (product, not measured)"
    candidate = replace(whole.candidate, name=name)
    rows = [tried for tried in advice.helping if tried is not whole]
    return [*rows, replace(whole, candidate=candidate)]


def _program_time(advice: Advice, program: ProgramTime | None) -> Callable[[float], str] | None:
    """Return a function from the seconds of an iteration to the program's estimated time, as text.

    It assumes that the rest of the program takes as long as it took. Returns None if the program's
    time is unknown.
    """
    if program is None or not advice.trials:
        return None
    rest_s = own_ns(program.budget) * NS - advice.trials_s
    return lambda iteration_s: units.format_duration(rest_s + advice.trials * iteration_s)


def _program_columns(program_time: Callable[[float], str] | None) -> tuple[Column, ...]:
    """The columns of a program's table of gains; see :func:`_program_time` for the argument."""

    def of_program(tried: ChangeResult) -> str | None:
        if program_time is None:
            return None
        return f"{program_time(tried.before_s)} -> {program_time(tried.after_s)}"

    # fmt: off
    return (
        Column("change", "change", unit.TEXT, field="candidate.name", fold=20),
        Column("wall", "iteration", unit.FIGURE, full="Times as fast (iteration)",
               value=lambda tried: _factor_text(tried.wall)),
        Column("wall_interval", "95 %", unit.FIGURE, full="95 % interval",
               value=lambda tried: _interval_text(tried.wall)),
        Column("program", "program, about", unit.FIGURE, full="The whole program, estimated",
               value=of_program),
        Column("loss", "change in loss", unit.FIGURE, value=lambda tried: _loss_text(tried.loss)),
    )
    # fmt: on


def _loss_text(change: LossChange | None) -> str | None:
    """Format the change in loss; if it is not significant, the smallest change that would be."""
    if change is None:
        return None
    if math.isnan(change.part):
        return "not a number"
    if change.differs:
        return units.format_change(change.part)
    smallest = change.high - change.part
    if smallest >= 1:  # such as in a program's first iterations, where the loss falls
        return "unknown"
    return f"none above {units.format_percent(smallest)}"


def _subject(advice: Advice) -> str:
    return script_name(advice.script) if advice.script else model_name(advice.settings)


def verdict(advice: Advice, program: ProgramTime | None = None) -> str:
    """The answer: ``With accelerate() a training step is 2.40x as fast: 540 ms an input ...``."""
    trial, best = _TRIAL_NAMES.get(advice.settings.phase, "trial"), best_of(advice.tried)
    if advice.script:
        trial += f" of {_subject(advice)}"
    if best is None or best.gain is None:
        measured = sum(1 for tried in advice.tried if tried.gain)
        changes = units.plural(measured, "change")
        return f"No change makes a {trial} significantly faster: {changes} measured."
    name, factor = best.candidate.name, units.format_factor(best.gain.factor)
    interval = f"95 % interval {_interval_text(best.gain)}"
    if advice.script:
        program_time = _program_time(advice, program)
        after, before = map(program_time or units.format_duration, (best.after_s, best.before_s))
        # Only some iterations had the change.
        takes = "an iteration takes" if program_time is None else "the program would take about"
        took = f"{takes} {after} instead of {before}."
        return f"With {name} a {trial} is {factor} as fast ({interval}): {took}"
    than = "" if best.candidate.against == UNCHANGED else " as with BLAS's own choice"
    before, after = map(units.format_duration, (best.before_s, best.after_s))
    by = f"wall time, {interval}"
    if best.candidate.decides == CPU:  # the times that follow are wall times
        by = f"CPU time, {interval}; wall time {_factor_text(best.wall)}"
    return (
        f"With {name} a {trial} is {factor} as fast{than} ({by}): {before} an input before, "
        f"{after} after."
    )


def _interval_text(gain: Speedup | None) -> str:
    if gain is None:
        return units.NOT_KNOWN
    return units.format_interval(gain.low, gain.high, "{:.2f}".format)


def _factor_text(gain: Speedup | None) -> str:
    return units.NOT_KNOWN if gain is None else units.format_factor(gain.factor)


# fmt: off
_NETWORK_COLUMNS = (
    Column("change", "change", unit.TEXT, field="candidate.name", fold=14),
    Column("wall", "times as fast", unit.FIGURE, full="Times as fast (wall)",
           value=lambda tried: _factor_text(tried.wall)),
    Column("wall_interval", "95 %", unit.FIGURE, full="95 % interval",
           value=lambda tried: _interval_text(tried.wall), drop=3),
    Column("cpu", "CPU time", unit.FIGURE, full="Times as fast (CPU time)",
           value=lambda tried: _factor_text(tried.cpu)),
    Column("cpu_interval", "95 % CPU", unit.FIGURE, full="95 % interval (CPU)",
           value=lambda tried: _interval_text(tried.cpu), drop=2),
    Column("decides", "decides", unit.TEXT, full="Decided by", field="candidate.decides", fold=4,
           drop=4),
    Column("before", "before ms", unit.MS, drop=5),
    Column("after", "after ms", unit.MS, drop=5),
    Column("pairs", "pairs", unit.PLAIN, drop=6),
)
_LAYER_COLUMNS = (
    Column("layer", "layer", unit.TEXT, field="label", fold=14),
    Column("path", "path", unit.TEXT, fold=8),
    Column("phase", "phase", unit.TEXT, fold=8, drop=1),
    Column("before", "before ms", unit.MS),
    Column("after", "after ms", unit.MS),
    Column("times", "times as fast", unit.FACTOR,
           value=lambda layer: layer.before_s / layer.after_s if layer.after_s else None),
)
# fmt: on


def what_helped(advice: Advice) -> Inline:
    """The best change, and how to keep it; empty if no change helps."""
    best = best_of(advice.tried)
    if best is None:
        return ()
    if advice.script:
        pieces = [piece for line in _instructions(advice) for piece in (" ", *line, ".")]
        return (verdict(advice), *pieces)
    return (f"{verdict(advice)} To keep it: ", *how_to_keep(best))


def how_to_keep(tried: ChangeResult) -> Inline:
    """The code or command that keeps a change, and why it helps."""
    than = "" if tried.candidate.against == UNCHANGED else "the other rows include it"
    reason = "; ".join(filter(None, (tried.candidate.reason, than)))
    return code(tried.candidate.keep), f" ({reason})" if reason else ""


def _gain_text(tried: ChangeResult, advice: Advice) -> Inline:
    """A change without a significant gain, with its gain, interval and number of pairs."""
    figures = f"{_factor_text(tried.gain)}, {_interval_text(tried.gain)}, "
    if advice.script:
        figures += units.plural(tried.pairs, "round")
    else:
        figures += f"{units.plural(tried.pairs, 'pair')}, by {tried.candidate.decides}"
    return (strong(tried.candidate.name), f": {figures}")


_PROGRAM_METHOD = (
    "The program ran once. Variants with and without the changes were interleaved, in blocks of "
    "iterations of 50 ms or more. In each round every variant had one block, in random order. "
    "Between iterations the program ran unchanged.",
    "The times of a variant are summed over the rounds and divided by its work. Its work is the "
    "number of its iterations or, if iterations differ, a fit of their times to their calls and "
    "the sizes of their inputs. The interval is Student's, from the residuals of the two blocks of "
    "each round.",
    f"A change helps if it is at least {MIN_GAIN}x as fast and its interval excludes 1. The "
    "numbers of BLAS threads were tried first, then the other changes with the best number, and "
    "then all changes that helped, together. If there were enough rounds after a change had been "
    "chosen, only these count.",
    "The change in loss compares the losses of the same blocks. If it is not significant, the "
    "table shows how large it would have to be.",
)
_NETWORK_METHOD = (
    "The unchanged network and each change ran in separate processes. These took turns in "
    "blocks of a hundredth of a second or of one run, so a disturbance of the machine affects "
    "all of them equally. A pair of processes gives one ratio: the median of its rounds' "
    "ratios. Each pair uses new processes, because their memory layout differs.",
    "A first look chose the promising changes. New processes then measured their gains again, "
    "and only these measurements are reported (plus the first one where there was time for a "
    "single pair): the mean of the pairs' logarithms, with Student's interval.",
    f"A change helps if it is at least {MIN_GAIN}x as fast and its interval excludes 1. CPU "
    "time decides if both run on one thread, wall time if there are more threads.",
    "We compared the outputs of engines, and the outputs or gradients under other kernels, "
    "with Chainer's own.",
)
