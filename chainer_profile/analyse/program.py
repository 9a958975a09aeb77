"""The time of a whole program -> the tree of its parts, and findings of what would shorten it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from chainer_profile.analyse.extensions import beside_the_network
from chainer_profile.analyse.findings import LEAST_GAIN, STEP, Finding, gain_without, in_order
from chainer_profile.analyse.grouping import OUTSIDE
from chainer_profile.analyse.summary import Summary
from chainer_profile.basics.describe import NS
from chainer_profile.basics.paths import joined
from chainer_profile.basics.units import plural
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
    Budget,
    Spent,
)
from chainer_profile.record.recording import Recording

#: Names of an iteration's time outside of its phases, such as the program's loop; and in a phase.
BETWEEN_PHASES, BETWEEN_FUNCTIONS = "code between the phases", "between functions"
_DATA = "data"
#: Calls of networks that were not measured: only the first networks of a program are.
NOT_BY_ROW = "other networks, not timed by row"


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

    None where the part has other trials as well, and where their number is not known.
    """
    for (part, name), trials in program.trials.items():
        spent = [entry for entry in program.budget.part(part) if entry.name == name]
        if [recording] == list(trials) and part in (ITERATIONS, CALLS) and spent and spent[0].count:
            return spent[0].ns * NS / spent[0].count, spent[0].count
    return None


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
    in_trials_ns = sum(phase.ns for phase in phases.values())
    rest_ns = spent.ns - in_trials_ns
    others = spent.count - sum(recording.n_trials for recording in trials)
    parts: list[Part] = []
    if rest_ns < 0:  # the end of a program that was killed is in its trials alone
        for phase in phases.values():
            phase.scale(spent.ns / in_trials_ns)
    elif spent.part in (ITERATIONS, CALLS) and others > 0:
        parts.append(Part(f"{plural(others, 'other')}, not timed by row", rest_ns, others))
    elif spent.part in (ITERATIONS, CALLS):  # what is around the trials
        last = phases[OUTSIDE] if OUTSIDE in phases else list(phases.values())[-1]
        last.between_ns += rest_ns
    else:
        for calls in unmeasured:
            parts.append(Part(NOT_BY_ROW, calls.ns, calls.count))
            rest_ns -= calls.ns
        parts += _functions(program, spent, rest_ns, (LOADING, OTHER))
    for name, phase in phases.items():
        inner = phase.parts()
        if name == OUTSIDE:
            parts += _outside(program, spent, phase.ns)
        elif len(phases) == 1:
            parts += inner
        else:
            if name == _DATA and inner:
                loads, *more = inner
                functions = _functions(program, spent, loads.ns, (LOADING,))
                inner = [replace(loads, inner=functions), *more]
            parts.append(Part(name, phase.ns, inner=tuple(inner)))
    return _ranked(parts)


def _outside(program: ProgramTime, spent: Spent, ns: float) -> Iterator[Part]:
    if ns > 0:
        functions = _functions(program, spent, ns, (OTHER,))
        yield Part(BETWEEN_PHASES, ns, inner=functions)


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


@dataclass
class _Phase:
    """The rows of a phase with their nanoseconds and calls, and the time between them."""

    rows: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict)
    between_ns: float = 0.0

    @property
    def ns(self) -> float:
        return sum(ns for ns, _ in self.rows.values()) + self.between_ns

    def add(self, path: str, function: str, ns: float, calls: float) -> None:
        before_ns, before = self.rows.get((path, function), (0.0, 0.0))
        self.rows[path, function] = before_ns + ns, before + calls

    def scale(self, by: float) -> None:
        self.between_ns *= by
        self.rows = {key: (ns * by, calls) for key, (ns, calls) in self.rows.items()}

    def parts(self) -> list[Part]:
        """Its rows, the slowest first, and what is between them."""
        rows = [
            Part(function, ns, calls, path=path)
            for (path, function), (ns, calls) in self.rows.items()
        ]
        return [*_ranked(rows), Part(BETWEEN_FUNCTIONS, self.between_ns)]


def _phases(trials: Sequence[Recording]) -> dict[str, _Phase]:
    """The phases of all trials of a part, with what they took in all."""
    models = {recording.settings.model for recording in trials}
    phases: dict[str, _Phase] = {}
    for recording in trials:
        # Networks of one part may have links of the same paths.
        network = f"/{recording.settings.model}" if len(models) > 1 else ""
        ns = recording.self_ns.sum(axis=0).tolist()
        counts = recording.calls
        calls = (
            [layer.calls * recording.n_trials for layer in recording.layers]
            if counts is None
            else counts.sum(axis=0).tolist()
        )
        for layer, layer_ns, n_calls in zip(recording.layers, ns, calls, strict=True):
            path = joined(network, layer.path) if layer.path.startswith("/") else layer.path
            phase = phases.setdefault(layer.phase, _Phase())
            phase.add(path, layer.function, layer_ns, n_calls)
        if recording.trial_ns is None:
            continue
        between_ns = int(recording.trial_ns.sum()) - sum(ns)
        if recording.framework_ns is not None:
            sums = recording.framework_ns.sum(axis=0).tolist()
            for name, phase_ns in zip(recording.phases, sums, strict=True):
                phases.setdefault(name, _Phase()).between_ns += phase_ns
                between_ns -= phase_ns
        single = next(iter(phases)) if len(phases) == 1 else OUTSIDE
        phases.setdefault(single, _Phase()).between_ns += between_ns
    return phases


def own_ns(budget: Budget) -> int:
    """Nanoseconds of the program without the profiler."""
    return budget.wall_ns - budget.of(PROFILER).ns


def share_of(spent: Spent, budget: Budget) -> float:
    """A part of the program's own time."""
    own = own_ns(budget)
    return spent.ns / own if own else 0.0


def program_findings(budget: Budget, summary: Summary | None = None) -> tuple[Finding, ...]:
    """What would shorten the program; with what would shorten its trials, by what that is of it."""
    findings = list(beside_the_network(budget, own_ns(budget)))
    if summary is not None:
        trains = summary.recording.settings.phase == "train"
        share = share_of(budget.of(ITERATIONS if trains else CALLS), budget)
        for finding in summary.findings:
            if finding.severity == STEP and finding.gain:
                gain = gain_without(share * (1 - 1 / finding.gain))
                findings.append(replace(finding, gain=gain))
    return in_order(
        finding for finding in findings if finding.gain is None or finding.gain >= LEAST_GAIN
    )
