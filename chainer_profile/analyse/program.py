"""The time of a whole program -> the tree of its parts, and findings that would shorten it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from chainer_profile.analyse.extensions import extension_findings
from chainer_profile.analyse.findings import STEP, Finding, gain_without, sort_findings
from chainer_profile.analyse.grouping import OUTSIDE, framework_by_phase
from chainer_profile.analyse.shares import whole_time
from chainer_profile.analyse.summary import Summary
from chainer_profile.basics.describe import NS
from chainer_profile.basics.paths import joined
from chainer_profile.basics.units import format_duration, format_percent, plural
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

#: Names of the time between the phases of an iteration, such as the program's loop, and of the time
#: between the functions of a phase.
BETWEEN_PHASES, BETWEEN_FUNCTIONS = "code between the phases", "between functions"
_DATA = "data"
#: Parts of a program that consist of trials.
_OF_TRIALS = (ITERATIONS, CALLS, TEST_CALLS)
#: Name of the calls of networks without rows: only the first networks of a program have rows.
NOT_BY_ROW = "other networks, not timed by row"
#: The screen of a program has at most this number of findings.
_MAX_TIPS = 3
#: Number of trials in the memory pass of a program.
_MEMORY_TRIALS = 2


@dataclass(frozen=True)
class ProgramTime:
    """The time of a program, and the recordings of its trials by account: part and name."""

    budget: Budget
    trials: Mapping[tuple[str, str], Sequence[Recording]] = field(default_factory=dict)


@dataclass(frozen=True)
class Part:
    """A part of a program's time, and the parts in it."""

    name: str  #: For a row, the name of its function.
    ns: float
    count: float = 0  #: How often it ran; 0 if that is unknown or has no meaning.
    inner: tuple[Part, ...] = ()
    path: str = ""  #: For a row, the path of its link, such as ``/conv1``.
    sampled: bool = False  #: Whether samples gave its share of the enclosing part.


def program_parts(program: ProgramTime) -> list[Part]:
    """The parts of a program's time without the profiler, largest first; they add up to it."""
    budget = program.budget
    parts = []
    for name in PARTS:
        if name == PROFILER or not (spent := budget.accounts(name)):
            continue
        whole = budget.total(name)
        inner: list[Part] = []
        for entry in _outermost(spent):
            within = _imported_by(entry, spent) or _parts_within(program, entry)
            inner += [Part(entry.name, entry.ns, _count(entry), within)] if entry.name else within
        if len(spent) == 1 and spent[0].name and BENEATH not in spent[0].name:  # one line
            parts.append(replace(inner[0], name=f"{name}: {inner[0].name}"))
            continue
        several = any(entry.name for entry in spent)
        parts.append(Part(name, whole.ns, 0 if several else _count(whole), _ranked(inner)))
    return list(_ranked(parts))


def mean_of_trials(program: ProgramTime, recording: Recording) -> tuple[float, int] | None:
    """Mean seconds and number of all trials in a recording's part, with and without rows.

    None if the part has several recordings, if the number is unknown, or if the mean is outside of
    the range of the trials with rows.
    """
    for (part, name), trials in program.trials.items():
        spent = [entry for entry in program.budget.accounts(part) if entry.name == name]
        if [recording] == list(trials) and part in _OF_TRIALS and spent and spent[0].count:
            mean_ns, times_ns = spent[0].ns / spent[0].count, recording.trial_ns
            if times_ns is None or min(times_ns) <= mean_ns <= max(times_ns):
                return mean_ns * NS, spent[0].count
    return None


def trial_count(program: ProgramTime, recording: Recording) -> int:
    """The number of all trials in a recording's part, with and without rows; 0 without a part."""
    for (part, name), trials in program.trials.items():
        if part in _OF_TRIALS and any(each is recording for each in trials):
            return sum(spent.count for spent in program.budget.accounts(part) if spent.name == name)
    return 0


def with_last_trials(program: ProgramTime) -> ProgramTime:
    """Add the trials that a killed program made after its budget was last written.

    The journal has them. So the budget counts as many trials as the recordings have.
    """
    budget, spent = program.budget, list(program.budget.spent)
    for account, recordings in program.trials.items():
        at = next((n for n, each in enumerate(spent) if (each.part, each.name) == account), None)
        if at is None or account[0] not in _OF_TRIALS:
            continue
        times_ns = _times_by_start(recordings)
        missing = len(times_ns) - spent[at].count
        if missing > 0:
            ns, count = spent[at].ns + sum(times_ns[-missing:]), len(times_ns)
            spent[at] = replace(spent[at], ns=ns, count=count)
    wall_ns = budget.wall_ns + sum(each.ns for each in spent) - sum(x.ns for x in budget.spent)
    return replace(program, budget=replace(budget, spent=tuple(spent), wall_ns=wall_ns))


def _times_by_start(recordings: Sequence[Recording]) -> list[int]:
    """Nanoseconds of the trials of several recordings, sorted by when the trials began."""
    trials = [
        (start_ns, trial_ns)
        for recording in recordings
        if recording.trial_ns is not None and recording.start_ns is not None
        for start_ns, trial_ns in zip(
            recording.start_ns.tolist(), recording.trial_ns.tolist(), strict=True
        )
    ]
    return [trial_ns for _, trial_ns in sorted(trials)]


def _ranked(parts: Iterable[Part]) -> tuple[Part, ...]:
    return tuple(sorted(parts, key=lambda part: -part.ns))


def _count(spent: Spent) -> int:
    """How often it ran; 0 for parts without a meaningful count."""
    return 0 if spent.part in (START, IMPORTS) else spent.count


def _outermost(spent: Sequence[Spent]) -> list[Spent]:
    """The outermost entries, with the time and count of the entries nested in them."""
    outermost: dict[str, Spent] = {}
    for entry in spent:
        name = entry.name.partition(BENEATH)[0]
        before = outermost.get(name, Spent(entry.part, name, 0))
        ns, count = before.ns + entry.ns, before.count + entry.count
        outermost[name] = replace(before, ns=ns, count=count)
    return list(outermost.values())


def _imported_by(package: Spent, spent: Sequence[Spent]) -> tuple[Part, ...]:
    """The packages that a package imports, directly or not; empty for other entries."""
    begin = package.name + BENEATH
    return _ranked(
        Part(entry.name.removeprefix(begin), entry.ns)
        for entry in spent
        if entry.name.startswith(begin)
    )


def _parts_within(program: ProgramTime, spent: Spent) -> tuple[Part, ...]:
    """The inner parts of an account: rows of its trials, and sampled functions of other time."""
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
    if rest_ns < 0:  # the recording of a killed program has later trials than its budget
        factor = spent.ns / in_trials_ns
        phases = {
            name: [replace(row, ns=row.ns * factor) for row in rows]
            for name, rows in phases.items()
        }
    elif spent.part in _OF_TRIALS and others > 0:
        parts.append(Part(_name_without_rows(others, trials), rest_ns, others))
    elif spent.part in _OF_TRIALS:  # the rest is time between the trials
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


def _name_without_rows(others: int, trials: Sequence[Recording]) -> str:
    """A name for the ``others`` trials of a part that have no rows, with the reason if known."""
    counted = sum(_MEMORY_TRIALS for recording in trials if recording.memory is not None)
    if not counted:
        return f"{plural(others, 'other')}, not timed by row"
    if others <= counted:
        return f"{plural(others, 'other')}, for --memory"
    return f"{plural(others, 'other')}, not timed by row ({counted} for --memory)"


def _functions(
    program: ProgramTime, spent: Spent, ns: float, where: Sequence[str]
) -> tuple[Part, ...]:
    """The sampled functions of an account; their samples divide ``ns`` of its time.

    Args:
        program: The time of a program.
        spent: The account.
        ns: Nanoseconds to divide.
        where: Kinds of code to count: network, data loading, other code.
    """
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


def sampling_error_s(budget: Budget) -> float:
    """The error of 1 s that was sampled, in seconds: two standard deviations of a count.

    Samples at an interval of ``d`` count 1 s as ``1 / d``, with the square root of that as the
    standard deviation.
    """
    samples = sum(entry.samples for entry in budget.sampled)
    ns = sum(entry.ns for entry in budget.sampled)
    return 2 * math.sqrt(ns * NS / max(1, samples))


def _phases(trials: Sequence[Recording]) -> dict[str, list[Part]]:
    """The rows of all trials of a part, by phase.

    The slowest row of a phase is first, the time between functions last.
    """
    models = {recording.settings.model for recording in trials}
    times_ns: dict[str, Counter[tuple[str, str]]] = {}
    counts: Counter[tuple[str, str, str]] = Counter()
    between_ns: Counter[str] = Counter()
    for recording in trials:
        # Several networks of a part may have equal paths.
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
    """Nanoseconds of a program without the profiler."""
    return budget.wall_ns - budget.total(PROFILER).ns


def share_of(spent: Spent, budget: Budget) -> float:
    """The time spent, as a fraction of the program's time without the profiler."""
    own = own_ns(budget)
    return spent.ns / own if own else 0.0


def _loading(budget: Budget, summary: Summary) -> Iterator[Finding]:
    """Yield a step if loading examples in other processes and moving them from there is faster."""
    layers, (whole_s, _) = summary.layers, whole_time(summary)
    serial_s = float(layers["mean_s"][layers["function"] == SERIAL_ITERATOR].sum())
    moved = [trials for trials in budget.trials if trials.moved_ns]
    moved_s = sum(each.moved_ns for each in moved) * NS
    free_cores = max((each.free_cores for each in moved), default=0.0)
    if not (whole_s and moved and serial_s > moved_s):
        return
    share = _share_of_trials(budget, summary.recording) / whole_s
    hidden = gain_without(share * (serial_s - moved_s))
    text = (
        f"{SERIAL_ITERATOR} takes {format_percent(share * serial_s)} of the program: "
        f"{format_duration(serial_s)} an iteration. Other processes can load the examples on a "
        f"free core; moving the examples from them takes {format_duration(moved_s)}."
    )
    yield Finding(
        LOADING,
        STEP,
        text,
        "Write.",
        command="chainer.iterators.MultiprocessIterator(train, batchsize)",
        # Loading on more cores than are free slows the rest of the program.
        gain=min(hidden or free_cores, free_cores),
    )


def tips(findings: Sequence[Finding]) -> Sequence[Finding]:
    """The findings on a program's screen: the largest gains, then unknown gains."""
    return sorted(findings, key=lambda finding: finding.gain is None)[:_MAX_TIPS]


def program_findings(budget: Budget, summary: Summary | None = None) -> tuple[Finding, ...]:
    """Findings that would shorten the program, with their gains for the whole program.

    With a summary, they include the steps that would shorten its trials.
    """
    findings = list(extension_findings(budget, own_ns(budget)))
    if summary is not None:
        findings += _loading(budget, summary)
        share = _share_of_trials(budget, summary.recording)
        for finding in summary.findings:
            if finding.severity == STEP and finding.gain:
                gain = gain_without(share * (1 - 1 / finding.gain))
                findings.append(replace(finding, gain=gain))
    return sort_findings(findings)


def _share_of_trials(budget: Budget, recording: Recording) -> float:
    """The time of a recording's trials, as a fraction of the program's without the profiler."""
    part = ITERATIONS if recording.settings.phase == "train" else CALLS
    own = own_ns(budget)
    has_others = sum(trials.part == part for trials in budget.trials) > 1
    if has_others and own and recording.trial_ns is not None:
        return float(recording.trial_ns.sum()) / own
    return share_of(budget.total(part), budget)
