"""Summary -> stacks for flame graphs: ``stacks.folded``."""

from __future__ import annotations

from collections.abc import Iterator

from chainer_profile.analyse import timeline
from chainer_profile.analyse.grouping import parent_of
from chainer_profile.analyse.summary import Summary
from chainer_profile.basics.paths import below
from chainer_profile.record.recording import Place
from chainer_profile.report.text import printable

FRAMEWORK = "(framework)"
#: Kind of a frame below a layer.
_PLACE = "place"

#: Kind and name of every frame, outermost first.
_Stack = tuple[tuple[str, str], ...]


def render_folded(summary: Summary) -> str:
    """The mean trial, a line a stack: ``network;res2;0;conv1;Convolution2DFunction 12345``, in ns.

    The numbers add up to the mean profiled trial, rounded; each is within 1 ns of its mean.
    """
    totals: dict[str, int] = {}
    for stack, spent in _mean_stacks(summary):
        line = ";".join(_folded(kind, name) for kind, name in stack)
        totals[line] = totals.get(line, 0) + spent
    return "".join(f"{line} {spent}\n" for line, spent in totals.items())


def _folded(kind: str, name: str) -> str:
    """A name for a folded stack; of a link its part of the path."""
    name = (name.rpartition("/")[2] or name) if kind == timeline.LINK else name
    name = "".join("_" if char == ";" or char.isspace() else char for char in printable(name))
    return name or "_"


def _mean_stacks(summary: Summary) -> Iterator[tuple[_Stack, int]]:
    """Every layer with its stack and its mean over all trials, and the framework, in ns."""
    # Rounding makes good for what earlier parts have lost or gained.
    trials = summary.recording.n_trials
    total = 0
    for stack, spent, row in _summed_stacks(summary):
        before, total = total, total + spent
        yield from _below(summary, stack, _rounded(total, trials) - _rounded(before, trials), row)


def _below(
    summary: Summary, stack: _Stack, spent: int, row: int | None
) -> Iterator[tuple[_Stack, int]]:
    """The same time by the places below a layer, where they are known."""
    inside, parts = summary.recording.inside, summary.inside
    if inside is None or parts is None or row is None or parts.layer(row) is None:
        yield stack, spent
        return
    below_row = [sampled for sampled in inside.stacks if sampled.row == row]
    whole, done, given = sum(sampled.seconds for sampled in below_row), 0.0, 0
    for sampled in below_row:
        done += sampled.seconds
        before, given = given, round(spent * min(1.0, done / whole))
        frames = ((_PLACE, _place(inside.places[place])) for place in sampled.places)
        yield (*stack, *frames), given - before
    if given < spent:
        yield stack, spent - given


def _place(place: Place) -> str:
    where = f"{place.file}:{place.line}" if place.line else place.file
    return f"{place.function} ({where})"


def _rounded(total: int, parts: int) -> int:
    return (2 * total + parts) // (2 * parts)


def _summed_stacks(summary: Summary) -> Iterator[tuple[_Stack, int, int | None]]:
    """The same with sums over all trials, and the index of a layer; framework ends its phase."""
    recording = summary.recording
    sums = [int(value) for value in recording.self_ns.sum(axis=0)]
    of_phases: list[int] = []
    if recording.framework_ns is not None and recording.trial_ns is not None:
        of_phases = [int(value) for value in recording.framework_ns.sum(axis=0)]
    between = sum(timeline.wall_ns(recording)) - sum(sums)
    by_phase, outside = timeline.phase_framework_ns(recording, of_phases, between)
    phases = {*(layer.phase for layer in recording.layers), *by_phase}
    root = ((timeline.TRIAL, recording.settings.model or "network"),)
    tops: dict[str, _Stack] = {
        phase: (*root, (timeline.PHASE, phase)) if len(phases) > 1 else root for phase in phases
    }
    last = {layer.phase: index for index, layer in enumerate(recording.layers)}
    stacks: list[_Stack] = []
    for index, layer in enumerate(recording.layers):
        parent = parent_of(layer, index)
        holder = tops[layer.phase] if parent is None else stacks[parent]
        at = "/" if parent is None else recording.layers[parent].path
        links = ((timeline.LINK, path) for path in below(layer.path, at))
        stacks.append((*holder, *links, (timeline.FUNCTION, layer.function)))
        yield stacks[-1], sums[index], index
        if layer.phase in by_phase and last[layer.phase] == index:
            yield (
                (*tops[layer.phase], (timeline.FUNCTION, FRAMEWORK)),
                by_phase.pop(layer.phase),
                None,
            )
    for phase, spent in by_phase.items():  # those without layers
        yield (*tops[phase], (timeline.FUNCTION, FRAMEWORK)), spent, None
    if outside:
        yield (*root, (timeline.FUNCTION, FRAMEWORK)), outside, None
