"""Summary -> stacks for flame graphs: ``stacks.folded``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from chainer_profile.analyse import timeline
from chainer_profile.analyse.grouping import framework_by_phase, parent_of
from chainer_profile.analyse.summary import Summary
from chainer_profile.basics.paths import links_below
from chainer_profile.record.recording import StackFrame
from chainer_profile.report.text import printable

FRAMEWORK = "(framework)"


def render_folded(summary: Summary) -> str:
    """Format the mean trial, one stack per line, in nanoseconds.

    A line is for example ``network;res2;0;conv1;Convolution2DFunction 12345``. The numbers add up
    to the mean profiled trial, rounded; each is within 1 ns of its mean.
    """
    trials = summary.recording.n_trials
    totals: Counter[str] = Counter()
    # Differences of rounded running totals add up to the rounded mean of the whole.
    total = 0
    for stack, spent, row in _summed_stacks(summary):
        mean = _rounded(total + spent, trials) - _rounded(total, trials)
        total += spent
        for whole_stack, ns in _sampled_stacks(summary, stack, mean, row):
            totals[whole_stack] += ns
    return "".join(f"{stack} {spent}\n" for stack, spent in totals.items())


def _rounded(total: int, divisor: int) -> int:
    """``total / divisor``, rounded to the nearest integer."""
    return (2 * total + divisor) // (2 * divisor)


def _frame(name: str) -> str:
    """Format a name as a frame of a folded stack, which has no spaces and semicolons."""
    text = printable(name)
    return "".join("_" if char == ";" or char.isspace() else char for char in text) or "_"


def _sampled_stacks(
    summary: Summary, stack: str, spent: int, row: int | None
) -> Iterator[tuple[str, int]]:
    """Divide the time of a row among its sampled stacks: pairs of a stack and its nanoseconds.

    A row without samples yields its own stack and time.
    """
    inside, parts = summary.recording.inside, summary.inside
    if inside is None or parts is None or row is None or parts.layer(row) is None:
        yield stack, spent
        return
    sampled = [sample for sample in inside.stacks if sample.row == row]
    ends = np.cumsum([sample.seconds for sample in sampled])
    parts_ns = np.diff(np.round(spent * ends / ends[-1]), prepend=0)
    for sample, ns in zip(sampled, parts_ns, strict=True):
        frames = (_frame(_location(inside.places[place])) for place in sample.places)
        yield ";".join([stack, *frames]), int(ns)


def _location(frame: StackFrame) -> str:
    where = f"{frame.file}:{frame.line}" if frame.line else frame.file
    return f"{frame.function} ({where})"


def _summed_stacks(summary: Summary) -> Iterator[tuple[str, int, int | None]]:
    """Yield each stack, its total over all trials in ns, and its layer's index.

    Framework time comes after the layers of its phase, without an index.
    """
    recording = summary.recording
    sums = [int(value) for value in recording.self_ns.sum(axis=0)]
    framework = framework_by_phase(recording).items()
    by_phase, outside = timeline.limit_framework({phase: int(ns.sum()) for phase, ns in framework})
    phases = {*(layer.phase for layer in recording.layers), *by_phase}
    root = _frame(recording.settings.model or "network")
    tops = {phase: f"{root};{_frame(phase)}" if len(phases) > 1 else root for phase in phases}
    last = {layer.phase: index for index, layer in enumerate(recording.layers)}
    stacks: list[str] = []
    for index, layer in enumerate(recording.layers):
        parent = parent_of(layer, index)
        holder = tops[layer.phase] if parent is None else stacks[parent]
        at = "/" if parent is None else recording.layers[parent].path
        # The frame of a link is the last name of its path.
        links = (_frame(path.rpartition("/")[2] or path) for path in links_below(layer.path, at))
        stacks.append(";".join([holder, *links, _frame(layer.function)]))
        yield stacks[-1], sums[index], index
        if layer.phase in by_phase and last[layer.phase] == index:
            yield f"{tops[layer.phase]};{FRAMEWORK}", by_phase.pop(layer.phase), None
    for phase, spent in by_phase.items():  # phases without layers
        yield f"{tops[phase]};{FRAMEWORK}", spent, None
    if outside:
        yield f"{root};{FRAMEWORK}", outside, None
