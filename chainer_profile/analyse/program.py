"""The time of a whole program -> the tree of its parts, and what would shorten it, as findings."""

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

#: What an iteration takes outside of its phases, such as the program's own loop; and in a phase.
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
    """A part of a program's time, and what is known to be in it."""

    name: str  #: Of a row its function.
    ns: float
    count: float = 0
    inner: tuple[Part, ...] = ()
    path: str = ""  #: Of a row, such as ``/conv1``.
    sampled: bool = False  #: Whether its share of the part above it is by samples.


def program_parts(program: ProgramTime) -> list[Part]:
    """The parts of a program's own time, which add up to it, the largest first."""
    budget = program.budget
    found = []
    for part in PARTS:
        if part == PROFILER or not (spent := budget.part(part)):
            continue
        whole = budget.of(part)
        inner: list[Part] = []
        for one in _outermost(spent):
            beneath = _beneath(one, spent) or _in_account(program, one)
            inner += [Part(one.name, one.ns, _count(one), beneath)] if one.name else beneath
        if len(spent) == 1 and spent[0].name and BENEATH not in spent[0].name:  # one line
            found.append(replace(inner[0], name=f"{part}: {inner[0].name}"))
            continue
        several = any(one.name for one in spent)
        found.append(Part(part, whole.ns, 0 if several else _count(whole), _ranked(inner)))
    return list(_ranked(found))


def mean_of_trials(program: ProgramTime, recording: Recording) -> tuple[float, int] | None:
    """Seconds of a trial and their number, those that are not in rows with them.

    None where the part has other trials as well, and where their number is not known.
    """
    for (part, name), trials in program.trials.items():
        spent = [one for one in program.budget.part(part) if one.name == name]
        if [recording] == list(trials) and part in (ITERATIONS, CALLS) and spent and spent[0].count:
            return spent[0].ns * NS / spent[0].count, spent[0].count
    return None


def _ranked(parts: Iterable[Part]) -> tuple[Part, ...]:
    return tuple(sorted(parts, key=lambda part: -part.ns))


def _count(spent: Spent) -> int:
    return 0 if spent.part in (START, IMPORTS) else spent.count


def _outermost(spent: Sequence[Spent]) -> list[Spent]:
    """What has a name of its own, with the time and count of all beneath it."""
    found: dict[str, Spent] = {}
    for one in spent:
        outer = one.name.partition(BENEATH)[0]
        above = found.get(outer, Spent(one.part, outer, 0))
        found[outer] = replace(above, ns=above.ns + one.ns, count=above.count + one.count)
    return list(found.values())


def _beneath(above: Spent, spent: Sequence[Spent]) -> tuple[Part, ...]:
    """What a package imports."""
    begin = above.name + BENEATH
    return _ranked(
        Part(one.name.removeprefix(begin), one.ns) for one in spent if one.name.startswith(begin)
    )


def _in_account(program: ProgramTime, spent: Spent) -> tuple[Part, ...]:
    """Rows of the trials in a part, and functions in the rest of its time."""
    account = spent.part, spent.name
    trials = program.trials.get(account, ())
    unmeasured = [one for one in program.budget.unmeasured if (one.part, one.name) == account]
    if not (trials or unmeasured):
        return _functions(program, spent, spent.ns, (LOADING, NETWORK, OTHER))
    phases = _phases(trials)
    in_trials_ns = sum(phase.ns for phase in phases.values())
    rest_ns = spent.ns - in_trials_ns
    others = spent.count - sum(recording.n_trials for recording in trials)
    found: list[Part] = []
    if rest_ns < 0:  # the end of a program that was killed is in its trials alone
        for phase in phases.values():
            phase.scale(spent.ns / in_trials_ns)
    elif spent.part in (ITERATIONS, CALLS) and others > 0:
        found.append(Part(f"{plural(others, 'other')}, not timed by row", rest_ns, others))
    elif spent.part in (ITERATIONS, CALLS):  # what is around the trials
        last = phases[OUTSIDE] if OUTSIDE in phases else list(phases.values())[-1]
        last.between_ns += rest_ns
    else:
        for calls in unmeasured:
            found.append(Part(NOT_BY_ROW, calls.ns, calls.count))
            rest_ns -= calls.ns
        found += _functions(program, spent, rest_ns, (LOADING, OTHER))
    for name, phase in phases.items():
        inner = phase.parts()
        if name == OUTSIDE:
            found += _outside(program, spent, phase.ns)
        elif len(phases) == 1:
            found += inner
        else:
            if name == _DATA and inner:
                loads, *more = inner
                functions = _functions(program, spent, loads.ns, (LOADING,))
                inner = [replace(loads, inner=functions), *more]
            found.append(Part(name, phase.ns, inner=tuple(inner)))
    return _ranked(found)


def _outside(program: ProgramTime, spent: Spent, ns: float) -> Iterator[Part]:
    if ns > 0:
        functions = _functions(program, spent, ns, (OTHER,))
        yield Part(BETWEEN_PHASES, ns, inner=functions)


def _functions(
    program: ProgramTime, spent: Spent, ns: float, where: Sequence[str]
) -> tuple[Part, ...]:
    """The functions that samples found in a part, and their shares of so much of its time."""
    account = spent.part, spent.name
    seen = [one for one in program.budget.sampled if (one.part, one.name) == account]
    seen = [one for one in seen if one.where in where]
    whole_ns = sum(one.ns for one in seen)
    return _ranked(
        Part(one.function, ns * one.ns / whole_ns, sampled=True) for one in seen if one.function
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
    found: dict[str, _Phase] = {}
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
            phase = found.setdefault(layer.phase, _Phase())
            phase.add(path, layer.function, layer_ns, n_calls)
        if recording.trial_ns is None:
            continue
        between_ns = int(recording.trial_ns.sum()) - sum(ns)
        if recording.framework_ns is not None:
            sums = recording.framework_ns.sum(axis=0).tolist()
            for name, phase_ns in zip(recording.phases, sums, strict=True):
                found.setdefault(name, _Phase()).between_ns += phase_ns
                between_ns -= phase_ns
        single = next(iter(found)) if len(found) == 1 else OUTSIDE
        found.setdefault(single, _Phase()).between_ns += between_ns
    return found


def own_ns(budget: Budget) -> int:
    """Nanoseconds of the program without the profiler."""
    return budget.wall_ns - budget.of(PROFILER).ns


def share_of(spent: Spent, budget: Budget) -> float:
    """A part of the program's own time."""
    own = own_ns(budget)
    return spent.ns / own if own else 0.0


def program_findings(budget: Budget, summary: Summary | None = None) -> tuple[Finding, ...]:
    """What would shorten the program; with what would shorten its trials, by what that is of it."""
    found = list(beside_the_network(budget, own_ns(budget)))
    if summary is not None:
        trains = summary.recording.settings.phase == "train"
        share = share_of(budget.of(ITERATIONS if trains else CALLS), budget)
        for one in summary.findings:
            if one.severity == STEP and one.gain:
                found.append(replace(one, gain=gain_without(share * (1 - 1 / one.gain))))
    return in_order(one for one in found if one.gain is None or one.gain >= LEAST_GAIN)
