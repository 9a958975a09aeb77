"""The pass inside the layers: trials whose Python stacks a sampler records.

The samples show which parts of its code a layer spends its time in. The layer's time itself comes
from the timed trials.
"""

from __future__ import annotations

import inspect
import linecache
import re
import site
import sys
import sysconfig
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import numpy as np
from chainer import function_node

from chainer_profile.basics.describe import NS
from chainer_profile.basics.errors import ProfileError
from chainer_profile.measure.clock import NowNs
from chainer_profile.measure.layer_frames import FILE, frame_named, labelled_frames
from chainer_profile.measure.passes import Pass, PassInput
from chainer_profile.measure.samplers import Frame, Frames, sample_stacks
from chainer_profile.measure.step import Step
from chainer_profile.record.inside import Inside, Stack, StackFrame
from chainer_profile.record.recording import Layer

#: Time for which trials are sampled, in seconds.
SECONDS = 6.0
#: If layers are shorter than this, py-spy stops the program for each sample.
STOPPED_BELOW_S = 1e-3
#: The shares of layers need at least this many samples.
MIN_SAMPLES = 100
#: A stack is listed separately if it has at least this share of its layer's time.
_MIN_SHARE = 1e-3
_TRIAL = "(trial)"
_NO_LINES = "py-spy reports wrong lines on Python 3.12 to 3.14, so only functions are shown"
#: Trials that begin in the same interval of this length form a group. The variance between groups
#: is unknown if there are fewer groups than this.
_GROUP_S = 0.1
_MIN_GROUPS = 10
_LABEL = re.compile(r"(\d+)_(.+?)@(.*?)( backward)?$")
#: Folder of the profiler's own frames, which stacks must not show.
_PROFILER_FOLDER = str(Path(__file__).parent)


class Owner(NamedTuple):
    """The row of a stack, or only the function of its row if the row is unknown.

    Without a row and a function, the stack belongs to the framework.
    """

    row: int | None = None
    function: str = ""


#: Seconds and number of samples by owner and stack.
_Spent = dict[tuple[Owner, Frames], tuple[float, int]]


def look_inside(
    step: Step,
    layers: Sequence[Layer],
    medians_s: Sequence[float],
    now_ns: NowNs,
    *,
    seconds: float = SECONDS,
    stop: Callable[[], str] = lambda: "",
    by_link: bool = False,
) -> Inside:
    """Sample the stacks of trials for a number of seconds; the step must be configured.

    Args:
        step: Runs one trial.
        layers: The rows of the timed trials.
        medians_s: Median self time of each row, (rows,).
        now_ns: The clock.
        seconds: Time for which trials are made; at least one is made.
        stop: Returns a reason to stop, or an empty string.
        by_link: Whether rows are functions of links instead of single calls.

    Raises:
        ProfileError: No sampler can attach, or there are too few samples.
    """
    walls: list[int] = []

    def run() -> None:
        start = now_ns()
        while not walls or (now_ns() - start < seconds / NS and not stop()):
            begin_trial()
            begin = now_ns()
            frame_named(f"{_TRIAL} {int((begin - start) * NS / _GROUP_S)}")(step)
            walls.append(now_ns() - begin)

    rows = _Rows(layers, by_link)
    with labelled_frames(step.roots if by_link else None) as begin_trial:
        seen = sample_stacks(run, stopped=_weighted_median_s(medians_s) < STOPPED_BELOW_S)
    groups: defaultdict[str, list[tuple[Frames, int]]] = defaultdict(list)
    for stack, count in seen.samples.items():
        group, inner = _frames_in_trial(stack)
        if inner:
            groups[group].append((inner, count))
    samples = sum(count for group in groups.values() for _, count in group)
    if samples < MIN_SAMPLES:
        raise ProfileError(f"{samples} samples of trials are too few")
    wall_s, trials = sum(walls) * NS, len(walls)
    sample_s = wall_s / trials / samples
    by_group = [
        _spent(((inner, count * sample_s, count) for inner, count in group), rows, seen.has_lines)
        for group in groups.values()
    ]
    inside = Inside(
        seen.method,
        samples,
        wall_s,
        trials,
        notes=() if seen.has_lines else (_NO_LINES,),
        repeats=_repeats(by_group),
    )
    return _with_stacks(inside, _all_groups(by_group))


def _weighted_median_s(medians_s: Sequence[float]) -> float:
    """The median of the layers' times, weighted by these times."""
    slowest = sorted(medians_s, reverse=True)
    half_s = sum(slowest) / 2
    return next(
        time_s
        for time_s, sum_s in zip(slowest, accumulate(slowest), strict=True)
        if sum_s >= half_s
    )


def _frames_in_trial(stack: Frames) -> tuple[str, Frames]:
    """The group of a stack's trial and the frames inside the trial; both empty outside trials."""
    for position, frame in enumerate(stack):
        if frame.function.startswith(_TRIAL) and frame.file == FILE:
            return frame.function, stack[position + 1 :]
    return "", ()


def _summed(parts: Iterable[tuple[tuple[Owner, Frames], tuple[float, int]]]) -> _Spent:
    """Add up time and samples by owner and stack."""
    sums: _Spent = {}
    for key, (seconds, samples) in parts:
        before = sums.get(key, (0.0, 0))
        sums[key] = before[0] + seconds, before[1] + samples
    return sums


def _all_groups(groups: Sequence[_Spent]) -> _Spent:
    return _summed(part for group in groups for part in group.items())


def _repeats(groups: Sequence[_Spent]) -> float:
    """Number of samples that say as much as one independent sample; at least 1."""
    # On a busy machine the program waits for a core, and successive samples show the same stack.
    # The shares of stacks then vary more between groups than independent samples would. The result
    # is the ratio of the observed variance to the expected one.
    if len(groups) < _MIN_GROUPS:
        return 1.0
    rows: dict[Owner, list[Frames]] = {}
    together = _all_groups(groups)
    for owner, frames in together:
        rows.setdefault(owner, []).append(frames)
    observed, expected = 0.0, 0.0
    for owner, stacks in rows.items():
        keys = [(owner, frames) for frames in stacks]
        spent = np.array([[group.get(key, (0.0, 0))[0] for key in keys] for group in groups])
        samples = sum(together[key][1] for key in keys)
        whole = spent.sum()
        if not whole:
            continue
        shares = spent.sum(axis=0) / whole
        # Observed: the variance of a ratio of sums over groups. Expected: the binomial variance of
        # a share.
        deviations = (spent - np.outer(spent.sum(axis=1), shares)) / whole
        observed += samples**2 * float((deviations**2).sum())
        expected += samples * float((shares * (1 - shares)).sum())
    return max(1.0, observed / expected * len(groups) / (len(groups) - 1)) if expected else 1.0


def _spent(stacks: Iterable[tuple[Frames, float, int]], rows: _Rows, lines: bool) -> _Spent:
    """Add up stacks by owner, without the profiler's own frames.

    Line numbers become 0 unless ``lines`` is true, and in framework time.
    """

    def assigned(stack: Frames) -> tuple[Owner, Frames]:
        owner, inner = rows.owner(stack)
        return owner, tuple(
            frame if lines and owner != Owner() else frame._replace(line=0)
            for frame in inner
            if not frame.file.startswith(_PROFILER_FOLDER) and frame.file != FILE
        )

    parts = (
        (assigned(stack), (spent_s, count))
        for stack, spent_s, count in stacks
        if stack and not stack[-1].file.startswith(_PROFILER_FOLDER)
    )
    return _summed(part for part in parts if part[0][1])


class _Rows:
    """Finds the row of a stack by the labels of layers in its frames."""

    def __init__(self, layers: Sequence[Layer], by_link: bool = False) -> None:
        # The number in a label counts only calls that are not nested.
        self._calls = [
            layer for layer in layers if layer.parent is None and layer.phase == "forward"
        ]
        # The functions of a loss have the path "loss", but their labels have the root's path.
        self._by_path = {
            (layer.path if layer.path != "loss" else "/", layer.function): layer
            for layer in layers
            if by_link and layer.phase == "forward"
        }
        self._backward = {
            layer.forward: layer.index for layer in layers if layer.forward is not None
        }
        self._update = next(
            (x.function for x in layers if x.phase == "update" and x.path != "optimizer"), ""
        )
        self._hook = next((x.function for x in layers if x.path == "optimizer"), "")
        self._names = {layer.function for layer in layers}

    def owner(self, stack: Frames) -> tuple[Owner, Frames]:
        """The owner of a stack and the frames inside its layer; all frames if it has no layer."""
        for position, frame in enumerate(stack):
            inner = stack[position + 1 :]
            name = frame.function.rpartition(".")[2]
            if frame.file == FILE:
                label = _LABEL.fullmatch(frame.function)
                if label is not None:
                    return self._labelled(label, inner, stack)
            elif name == "update" and frame.file.endswith("chainer/variable.py") and inner:
                return self._named(self._update, inner, stack)
            elif "chainer/optimizer_hooks/" in frame.file:
                return self._named(self._hook, stack[position:], stack)
            elif name == "cleargrads" and frame.file.endswith("chainer/link.py"):
                return self._named(name, stack[position:], stack)
        return Owner(), stack

    def _named(self, function: str, inner: Frames, stack: Frames) -> tuple[Owner, Frames]:
        """Assign a stack to a function, but no row; to the framework if no row has the function."""
        if function not in self._names:
            return Owner(), stack
        return Owner(None, function), inner

    def _layer(self, number: str, function: str, path: str) -> Layer | None:
        """The row of a label; None if the trial called something else there."""
        if self._by_path:
            return self._by_path.get((path, function))
        layer = self._calls[int(number)] if int(number) < len(self._calls) else None
        return layer if layer is not None and layer.function == function else None

    def _labelled(self, label: re.Match[str], inner: Frames, stack: Frames) -> tuple[Owner, Frames]:
        """The owner of a stack with a label; ``inner`` are the frames inside the labelled frame."""
        inner = tuple(frame for frame in inner if not frame.file.startswith(_PROFILER_FOLDER))
        layer = self._layer(*label.groups()[:3])
        function, backward = label[2], label[4]
        if backward is not None:
            # A backward step ends with gradient sums, which have their own rows.
            if any(frame.function == "_reduce" for frame in inner[:2]):
                return self._named("gradient_accumulation", inner[1:], stack)
            index = None if layer is None else self._backward.get(layer.index)
            return (Owner(index), inner[1:] or inner) if index is not None else (Owner(), stack)
        # A layer's time is the part of apply() between the hooks. The rest is framework time.
        is_forward = len(inner) > 1 and inner[1].function.rpartition(".")[2] in _FORWARD
        if not is_forward and not (inner and inner[0].line in _between_hooks()):
            return Owner(), stack
        inner = inner[1:] if is_forward else inner
        return self._named(function, inner, stack) if layer is None else (Owner(layer.index), inner)


#: Methods that FunctionNode.apply calls for the function's own work.
_FORWARD = ("forward", "static_forward_optimizations")


@cache
def _between_hooks() -> range:
    """The lines of ``FunctionNode.apply`` between the hooks of a function."""
    lines = inspect.getsource(function_node).splitlines()
    begin, end = (
        next((n for n, line in enumerate(lines, 1) if f"hook.forward_{when}process(" in line), 0)
        for when in ("pre", "post")
    )
    return range(begin + 1, end - 1)


def _without_small(spent: _Spent) -> _Spent:
    """Add the time of stacks with a negligible share to the outermost frame of their layer."""
    whole: dict[Owner, float] = defaultdict(float)
    for (owner, _), (seconds, _count) in spent.items():
        whole[owner] += seconds
    return _summed(
        ((owner, frames if time[0] >= _MIN_SHARE * whole[owner] else frames[:1]), time)
        for (owner, frames), time in spent.items()
    )


def _with_stacks(inside: Inside, spent: _Spent) -> Inside:
    """Add stacks, longest first, and their frames to the result."""
    numbers_by_frame: dict[StackFrame, int] = {}
    stacks = []
    for (owner, frames), (seconds, samples) in _without_small(spent).items():
        numbers = tuple(
            numbers_by_frame.setdefault(_stack_frame(frame), len(numbers_by_frame))
            for frame in frames
        )
        stacks.append(Stack(numbers, seconds, samples, owner.row, owner.function))
    stacks.sort(key=lambda stack: -stack.seconds)
    return replace(inside, places=tuple(numbers_by_frame), stacks=tuple(stacks))


@cache
def _stack_frame(frame: Frame) -> StackFrame:
    """Add the source line to a frame, and make its file relative to a folder of ``sys.path``."""
    path = frame.file
    installed = path.startswith(_installed_folders())
    bases = [base for base in sys.path if base and path.startswith(base.rstrip("/\\") + "/")]
    short = path[len(max(bases, key=len).rstrip("/\\")) + 1 :] if bases else Path(path).name
    source = linecache.getline(path, frame.line).strip() if frame.line else ""
    is_program = Path(path).is_absolute() and (not installed or "chainer_profile/models/" in path)
    ours = str(Path(_PROFILER_FOLDER).parent)
    return StackFrame(
        frame.function, short, frame.line, source, is_program and not path.startswith(ours + "/")
    )


@cache
def _installed_folders() -> tuple[str, ...]:
    """Folders of Python and of installed packages."""
    paths = sysconfig.get_paths()
    folders = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return tuple(folders | set(site.getsitepackages()) | {site.getusersitepackages()})


def _measure(timed: PassInput) -> Inside:
    recording = timed.recording()
    if recording.on_device:
        raise ProfileError("the layers run on the GPU, where no Python code runs")
    if timed.left_s <= 0:
        raise ProfileError("no time was left")
    return look_inside(
        timed.step,
        recording.layers,
        np.median(recording.self_ns, axis=0) * NS,
        timed.clock.now_ns,
        seconds=min(SECONDS, timed.left_s),
        stop=timed.stop,
        by_link=recording.by_link,
    )


INSIDE = Pass("inside", _measure, "the layers were not sampled: {}", seconds=SECONDS)
