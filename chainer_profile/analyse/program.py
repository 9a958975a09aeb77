"""The time of a whole program -> the tree of its parts, and findings of what would shorten it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from chainer_profile.analyse.extensions import beside_the_network
from chainer_profile.analyse.findings import STEP, Finding, gain_without, in_order
from chainer_profile.analyse.grouping import OUTSIDE, framework_by_phase
from chainer_profile.analyse.shares import whole
from chainer_profile.analyse.summary import Summary
from chainer_profile.basics.describe import NS
from chainer_profile.basics.paths import joined
from chainer_profile.basics.sentences import fill
from chainer_profile.basics.units import plural
from chainer_profile.basics.words import SERIAL_ITERATOR
from chainer_profile.record.budget import (
    BENEATH,
    CALLS,
    IMPORTS,
    ITERATIONS,
    LOADING,
    NETWORK,
    OTHER,
    PARTS,
    PROFILER,
    START,
    TEST_CALLS,
    Budget,
    Spent,
)
from chainer_profile.record.recording import Recording

#: Names of an iteration's time outside of its phases, such as the program's loop; and in a phase.
BETWEEN_PHASES, BETWEEN_FUNCTIONS = "code between the phases", "between functions"
_DATA = "data"
#: Parts that are trials and nothing else.
_OF_TRIALS = (ITERATIONS, CALLS, TEST_CALLS)
#: Calls of networks that were not measured: only the first networks of a program are.
NOT_BY_ROW = "other networks, not timed by row"
#: Findings on the screen of a program at most.
_MOST_TIPS = 3
#: Trials of a program that the memory pass takes.
_MEMORY_TRIALS = 2


@dataclass(frozen=True)
class ProgramTime:
    """The time of a program, and the recordings of the trials that are in its parts."""

    budget: Budget
    trials: Mapping[tuple[str, str], Sequence[Recording]] = field(default_factory=dict)


@dataclass(frozen=True)
class Part:
    """A part of a program's time, and the parts in it."""

    name: str  #: Of a row its function.
    ns: float
    count: float = 0
    inner: tuple[Part, ...] = ()
    path: str = ""  #: Of a row, such as ``/conv1``.
    sampled: bool = False  #: Whether its share of the part above it is by samples.


def program_parts(program: ProgramTime) -> list[Part]:
    """The parts of a program's own time, which add up to it, the largest first."""
    budget = program.budget
    parts = []
    for name in PARTS:
        if name == PROFILER or not (spent := budget.part(name)):
            continue
        whole = budget.of(name)
        inner: list[Part] = []
        for entry in _outermost(spent):
            beneath = _beneath(entry, spent) or _in_account(program, entry)
            inner += [Part(entry.name, entry.ns, _count(entry), beneath)] if entry.name else beneath
        if len(spent) == 1 and spent[0].name and BENEATH not in spent[0].name:  # one line
            parts.append(replace(inner[0], name=f"{name}: {inner[0].name}"))
            continue
        several = any(entry.name for entry in spent)
        parts.append(Part(name, whole.ns, 0 if several else _count(whole), _ranked(inner)))
    return list(_ranked(parts))


def mean_of_trials(program: ProgramTime, recording: Recording) -> tuple[float, int] | None:
    """Seconds of a trial and their number, with those trials that are in no rows.

    None where the part has other trials as well, where their number is not known, and where the
    others take so much that the mean is no time of a trial in rows.
    """
    for (part, name), trials in program.trials.items():
        spent = [entry for entry in program.budget.part(part) if entry.name == name]
        if [recording] == list(trials) and part in _OF_TRIALS and spent and spent[0].count:
            mean_ns, times_ns = spent[0].ns / spent[0].count, recording.trial_ns
            if times_ns is None or min(times_ns) <= mean_ns <= max(times_ns):
                return mean_ns * NS, spent[0].count
    return None


def trials_like(program: ProgramTime, recording: Recording) -> int:
    """The number of trials in the part of a recording's trials; 0 if it has none."""
    for (part, name), trials in program.trials.items():
        if part in _OF_TRIALS and any(each is recording for each in trials):
            return sum(spent.count for spent in program.budget.part(part) if spent.name == name)
    return 0


def _ranked(parts: Iterable[Part]) -> tuple[Part, ...]:
    return tuple(sorted(parts, key=lambda part: -part.ns))


def _count(spent: Spent) -> int:
    return 0 if spent.part in (START, IMPORTS) else spent.count


def _outermost(spent: Sequence[Spent]) -> list[Spent]:
    """The entries with names of their own, with the time and count of all beneath them."""
    outermost: dict[str, Spent] = {}
    for entry in spent:
        outer = entry.name.partition(BENEATH)[0]
        above = outermost.get(outer, Spent(entry.part, outer, 0))
        ns, count = above.ns + entry.ns, above.count + entry.count
        outermost[outer] = replace(above, ns=ns, count=count)
    return list(outermost.values())


def _beneath(above: Spent, spent: Sequence[Spent]) -> tuple[Part, ...]:
    """The imports of a package."""
    begin = above.name + BENEATH
    return _ranked(
        Part(entry.name.removeprefix(begin), entry.ns)
        for entry in spent
        if entry.name.startswith(begin)
    )


def _in_account(program: ProgramTime, spent: Spent) -> tuple[Part, ...]:
    """Rows of the trials in a part, and functions in the rest of its time."""
    account = spent.part, spent.name
    trials = program.trials.get(account, ())
    unmeasured = [
        calls for calls in program.budget.unmeasured if (calls.part, calls.name) == account
    ]
    if not (trials or unmeasured):
        return _functions(program, spent, spent.ns, (LOADING, NETWORK, OTHER))
    phases = _phases(trials)
    in_trials_ns = sum(row.ns for rows in phases.values() for row in rows)
    rest_ns = spent.ns - in_trials_ns
    others = spent.count - sum(recording.n_trials for recording in trials)
    parts: list[Part] = []
    if rest_ns < 0:  # the end of a program that was killed is in its trials alone
        by = spent.ns / in_trials_ns
        phases = {
            name: [replace(row, ns=row.ns * by) for row in rows] for name, rows in phases.items()
        }
    elif spent.part in _OF_TRIALS and others > 0:
        parts.append(Part(_not_by_row(others, trials), rest_ns, others))
    elif spent.part in _OF_TRIALS:  # what is around the trials
        last = phases[OUTSIDE] if OUTSIDE in phases else list(phases.values())[-1]
        last[-1] = replace(last[-1], ns=last[-1].ns + rest_ns)
    else:
        for calls in unmeasured:
            parts.append(Part(NOT_BY_ROW, calls.ns, calls.count))
            rest_ns -= calls.ns
        parts += _functions(program, spent, rest_ns, (LOADING, OTHER))
    for name, rows in phases.items():
        phase_ns = sum(row.ns for row in rows)
        if name == OUTSIDE:
            if phase_ns > 0:
                functions = _functions(program, spent, phase_ns, (OTHER,))
                parts.append(Part(BETWEEN_PHASES, phase_ns, inner=functions))
        elif len(phases) == 1:
            parts += rows
        else:
            if name == _DATA:
                functions = _functions(program, spent, rows[0].ns, (LOADING,))
                rows[0] = replace(rows[0], inner=functions)
            parts.append(Part(name, phase_ns, inner=tuple(rows)))
    return _ranked(parts)


def _not_by_row(others: int, trials: Sequence[Recording]) -> str:
    """What the trials of a part are called that are in no rows."""
    counted = sum(_MEMORY_TRIALS for recording in trials if recording.memory is not None)
    if not counted:
        return f"{plural(others, 'other')}, not timed by row"
    if others <= counted:
        return f"{plural(others, 'other')}, for --memory"
    return f"{plural(others, 'other')}, not timed by row ({counted} for --memory)"


def _functions(
    program: ProgramTime, spent: Spent, ns: float, where: Sequence[str]
) -> tuple[Part, ...]:
    """The functions that samples found in a part, and their shares of so much of its time."""
    account = spent.part, spent.name
    sampled = [
        entry
        for entry in program.budget.sampled
        if (entry.part, entry.name) == account and entry.where in where
    ]
    whole_ns = sum(entry.ns for entry in sampled)
    return _ranked(
        Part(entry.function, ns * entry.ns / whole_ns, sampled=True)
        for entry in sampled
        if entry.function
    )


def _phases(trials: Sequence[Recording]) -> dict[str, list[Part]]:
    """Rows in all trials of a part, by phase; slowest first, then the time between functions."""
    models = {recording.settings.model for recording in trials}
    times_ns: dict[str, Counter[tuple[str, str]]] = {}
    counts: Counter[tuple[str, str, str]] = Counter()
    between_ns: Counter[str] = Counter()
    for recording in trials:
        # Networks of one part may have links of the same paths.
        network = f"/{recording.settings.model}" if len(models) > 1 else ""
        calls = recording.calls
        if calls is None:
            one_trial = [layer.calls for layer in recording.layers]
            calls = np.full(recording.self_ns.shape, one_trial)
        sums_ns, sums = recording.self_ns.sum(axis=0).tolist(), calls.sum(axis=0).tolist()
        for layer, layer_ns, n_calls in zip(recording.layers, sums_ns, sums, strict=True):
            path = joined(network, layer.path) if layer.path.startswith("/") else layer.path
            times_ns.setdefault(layer.phase, Counter())[path, layer.function] += layer_ns
            counts[layer.phase, path, layer.function] += n_calls
        for phase in recording.phases:
            times_ns.setdefault(phase, Counter())
        single = next(iter(times_ns)) if len(times_ns) == 1 else OUTSIDE
        for phase, framework_ns in framework_by_phase(recording).items():
            at = single if phase == OUTSIDE else phase
            times_ns.setdefault(at, Counter())
            between_ns[at] += int(framework_ns.sum())
    return {
        phase: [
            *(
                Part(function, ns, counts[phase, path, function], path=path)
                for (path, function), ns in rows.most_common()
            ),
            Part(BETWEEN_FUNCTIONS, between_ns[phase]),
        ]
        for phase, rows in times_ns.items()
    }


def own_ns(budget: Budget) -> int:
    """Nanoseconds of the program without the profiler."""
    return budget.wall_ns - budget.of(PROFILER).ns


def share_of(spent: Spent, budget: Budget) -> float:
    """A part of the program's own time."""
    own = own_ns(budget)
    return spent.ns / own if own else 0.0


def _loading(budget: Budget, summary: Summary) -> Iterator[Finding]:
    """Loading that other processes can do, where it takes longer than moving what is loaded."""
    layers, (whole_s, _) = summary.layers, whole(summary)
    serial_s = float(layers["mean_s"][layers["function"] == SERIAL_ITERATOR].sum())
    moved = [trials for trials in budget.trials if trials.moved_ns]
    moved_s = sum(each.moved_ns for each in moved) * NS
    free_cores = max((each.free_cores for each in moved), default=0.0)
    if not (whole_s and moved and serial_s > moved_s):
        return
    share = _share_of_trials(budget, summary.recording) / whole_s
    hidden = gain_without(share * (serial_s - moved_s))
    text = fill(
        "{name} takes {share:%} of the program: {serial_s:s} an iteration. To move the examples "
        "from other processes, which can load them meanwhile on a free core, takes {moved_s:s}.",
        name=SERIAL_ITERATOR,
        share=share * serial_s,
        serial_s=serial_s,
        moved_s=moved_s,
    )
    yield Finding(
        LOADING,
        STEP,
        text,
        "Write.",
        command="chainer.iterators.MultiprocessIterator(train, batchsize)",
        # Work on more cores than were free takes its time elsewhere.
        gain=min(hidden or free_cores, free_cores),
    )


def tips(findings: Sequence[Finding]) -> Sequence[Finding]:
    """The findings of a program on its screen: those with the largest gains, or the first one."""
    return [finding for finding in findings if finding.gain][:_MOST_TIPS] or findings[:1]


def program_findings(budget: Budget, summary: Summary | None = None) -> tuple[Finding, ...]:
    """What would shorten the program; with what would shorten its trials, by what that is of it."""
    findings = list(beside_the_network(budget, own_ns(budget)))
    if summary is not None:
        findings += _loading(budget, summary)
        share = _share_of_trials(budget, summary.recording)
        for finding in summary.findings:
            if finding.severity == STEP and finding.gain:
                gain = gain_without(share * (1 - 1 / finding.gain))
                findings.append(replace(finding, gain=gain))
    return in_order(findings)


def _share_of_trials(budget: Budget, recording: Recording) -> float:
    """What the trials of a recording are of the program's own time."""
    part = ITERATIONS if recording.settings.phase == "train" else CALLS
    own = own_ns(budget)
    has_others = sum(trials.part == part for trials in budget.trials) > 1
    if has_others and own and recording.trial_ns is not None:
        return float(recording.trial_ns.sum()) / own
    return share_of(budget.of(part), budget)
