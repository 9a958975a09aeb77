"""The pass inside the layers: trials during which something looks where the interpreter is.

Its times are not used: it tells into which parts those of the timed trials fall.
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
from chainer_profile.measure.passes import Pass, Timed
from chainer_profile.measure.samplers import Frame, Frames, sampled
from chainer_profile.measure.step import Step
from chainer_profile.record.inside import Inside, Place, Stack
from chainer_profile.record.recording import Layer

#: How long trials are sampled.
SECONDS = 6.0
#: In shorter layers py-spy stops the program for each sample.
STOPPED_BELOW_S = 1e-3
#: Fewer samples tell nothing.
LEAST_SAMPLES = 100
#: A stack that takes less of its layer's time than this is not kept by itself.
_LEAST_PART = 1e-3
_TRIAL = "(trial)"
_NO_LINES = "py-spy reports wrong lines on Python 3.12 to 3.14, so only functions are shown"
#: Trials that begin within so many seconds are a group, and fewer groups tell nothing by how much
#: they differ.
_GROUP_S = 0.1
_LEAST_GROUPS = 10
_LABEL = re.compile(r"(\d+)_(.+?)@(.*?)( backward)?$")
#: Where the frames of the measuring itself are, which a trial has without it neither.
_OURS = str(Path(__file__).parent)


class Owner(NamedTuple):
    """What a stack is in; see :class:`~chainer_profile.record.inside.Stack`."""

    row: int | None = None
    function: str = ""


#: By owner and stack: time, and how often it was seen.
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
    """Make trials and look where the interpreter is; within the step's configuration."""
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
        seen = sampled(run, stopped=_typical_s(medians_s) < STOPPED_BELOW_S)
    groups: defaultdict[str, list[tuple[Frames, int]]] = defaultdict(list)
    for stack, count in seen.samples.items():
        group, inner = _within_trial(stack)
        if inner:
            groups[group].append((inner, count))
    samples = sum(count for group in groups.values() for _, count in group)
    if samples < LEAST_SAMPLES:
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
    return _inside(inside, _together(by_group))


def _typical_s(medians_s: Sequence[float]) -> float:
    """Half of the layers' time is in layers of at least this time."""
    slowest = sorted(medians_s, reverse=True)
    half_s = sum(slowest) / 2
    return next(
        time_s
        for time_s, sum_s in zip(slowest, accumulate(slowest), strict=True)
        if sum_s >= half_s
    )


def _within_trial(stack: Frames) -> tuple[str, Frames]:
    """Group of a trial, and what is below its frame; nothing outside of it."""
    for at, frame in enumerate(stack):
        if frame.function.startswith(_TRIAL) and frame.file == FILE:
            return frame.function, stack[at + 1 :]
    return "", ()


def _summed(parts: Iterable[tuple[tuple[Owner, Frames], tuple[float, int]]]) -> _Spent:
    """Time and samples by owner and stack."""
    sums: _Spent = {}
    for key, (seconds, samples) in parts:
        before = sums.get(key, (0.0, 0))
        sums[key] = before[0] + seconds, before[1] + samples
    return sums


def _together(groups: Sequence[_Spent]) -> _Spent:
    return _summed(part for group in groups for part in group.items())


def _repeats(groups: Sequence[_Spent]) -> float:
    """How many samples tell as much as one that depends on no other."""
    # Where the machine is busy, the program that waits is seen again and again at one place: shares
    # differ more from group to group than independent samples would have it.
    if len(groups) < _LEAST_GROUPS:
        return 1.0
    rows: dict[Owner, list[Frames]] = {}
    together = _together(groups)
    for owner, frames in together:
        rows.setdefault(owner, []).append(frames)
    seen, expected = 0.0, 0.0
    for owner, places in rows.items():
        keys = [(owner, frames) for frames in places]
        spent = np.array([[group.get(key, (0.0, 0))[0] for key in keys] for group in groups])
        samples = sum(together[key][1] for key in keys)
        whole = spent.sum()
        if not whole:
            continue
        shares = spent.sum(axis=0) / whole
        # The variance of a ratio of sums over groups; and of a share of independent samples.
        apart = (spent - np.outer(spent.sum(axis=1), shares)) / whole
        seen += samples**2 * float((apart**2).sum())
        expected += samples * float((shares * (1 - shares)).sum())
    return max(1.0, seen / expected * len(groups) / (len(groups) - 1)) if expected else 1.0


def _spent(stacks: Iterable[tuple[Frames, float, int]], rows: _Rows, lines: bool) -> _Spent:
    """The stacks by what they are in, without the frames of the measuring itself."""

    def of(stack: Frames) -> tuple[Owner, Frames]:
        owner, inner = rows.owner(stack)
        return owner, tuple(
            frame if lines and owner != Owner() else frame._replace(line=0)
            for frame in inner
            if not frame.file.startswith(_OURS) and frame.file != FILE
        )

    parts = (
        (of(stack), (spent_s, count))
        for stack, spent_s, count in stacks
        if stack and not stack[-1].file.startswith(_OURS)
    )
    return _summed(part for part in parts if part[0][1])


class _Rows:
    """Which row a stack is in."""

    def __init__(self, layers: Sequence[Layer], by_link: bool = False) -> None:
        # A label counts the calls that are in no other one.
        self._calls = [
            layer for layer in layers if layer.parent is None and layer.phase == "forward"
        ]
        # Beside links there are the functions of a loss.
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
        """What a stack is in, and its frames below that; of no layer all of them."""
        for at, frame in enumerate(stack):
            inner = stack[at + 1 :]
            name = frame.function.rpartition(".")[2]
            if frame.file == FILE:
                label = _LABEL.fullmatch(frame.function)
                if label is not None:
                    return self._of_label(label, inner, stack)
            elif name == "update" and frame.file.endswith("chainer/variable.py") and inner:
                return self._named(self._update, inner, stack)
            elif "chainer/optimizer_hooks/" in frame.file:
                return self._named(self._hook, stack[at:], stack)
            elif name == "cleargrads" and frame.file.endswith("chainer/link.py"):
                return self._named(name, stack[at:], stack)
        return Owner(), stack

    def _named(self, function: str, inner: Frames, stack: Frames) -> tuple[Owner, Frames]:
        """A row that is known by the name of its function alone."""
        if function not in self._names:
            return Owner(), stack
        return Owner(None, function), inner

    def _layer(self, number: str, function: str, path: str) -> Layer | None:
        if self._by_path:
            return self._by_path.get((path, function))
        layer = self._calls[int(number)] if int(number) < len(self._calls) else None
        return layer if layer is not None and layer.function == function else None

    def _of_label(self, label: re.Match[str], inner: Frames, stack: Frames) -> tuple[Owner, Frames]:
        inner = tuple(frame for frame in inner if not frame.file.startswith(_OURS))
        layer = self._layer(*label.groups()[:3])
        function, backward = label[2], label[4]
        if backward is not None:
            # It ends by adding up gradients, which are rows of their own.
            if any(frame.function == "_reduce" for frame in inner[:2]):
                return self._named("gradient_accumulation", inner[1:], stack)
            index = None if layer is None else self._backward.get(layer.index)
            return (Owner(index), inner[1:] or inner) if index is not None else (Owner(), stack)
        # A layer's time is what apply() does between the hooks; the rest is the framework's.
        is_forward = len(inner) > 1 and inner[1].function.rpartition(".")[2] in _FORWARD
        if not is_forward and not (inner and inner[0].line in _between_hooks()):
            return Owner(), stack
        inner = inner[1:] if is_forward else inner
        return self._named(function, inner, stack) if layer is None else (Owner(layer.index), inner)


#: What FunctionNode.apply calls for the function's own work.
_FORWARD = ("forward", "static_forward_optimizations")


@cache
def _between_hooks() -> range:
    """The lines of ``FunctionNode.apply`` between the hooks of a function."""
    lines = inspect.getsource(function_node).splitlines()
    begin, end = (
        next((at for at, line in enumerate(lines, 1) if f"hook.forward_{when}process(" in line), 0)
        for when in ("pre", "post")
    )
    return range(begin + 1, end - 1)


def _short(spent: _Spent) -> _Spent:
    """The same, with what is next to nothing added to the outermost frame."""
    whole: dict[Owner, float] = defaultdict(float)
    for (owner, _), (seconds, _count) in spent.items():
        whole[owner] += seconds
    return _summed(
        ((owner, frames if time[0] >= _LEAST_PART * whole[owner] else frames[:1]), time)
        for (owner, frames), time in spent.items()
    )


def _inside(inside: Inside, spent: _Spent) -> Inside:
    places: dict[Place, int] = {}
    stacks = []
    for (owner, frames), (seconds, samples) in _short(spent).items():
        numbers = tuple(places.setdefault(_place(frame), len(places)) for frame in frames)
        stacks.append(Stack(numbers, seconds, samples, owner.row, owner.function))
    stacks.sort(key=lambda stack: -stack.seconds)
    return replace(inside, places=tuple(places), stacks=tuple(stacks))


@cache
def _place(frame: Frame) -> Place:
    """A frame with what is on its line, and its file's name without the machine's folders."""
    path = frame.file
    installed = path.startswith(_installed())
    bases = [base for base in sys.path if base and path.startswith(base.rstrip("/\\") + "/")]
    short = path[len(max(bases, key=len).rstrip("/\\")) + 1 :] if bases else Path(path).name
    source = linecache.getline(path, frame.line).strip() if frame.line else ""
    own = Path(path).is_absolute() and (not installed or "chainer_profile/models/" in path)
    ours = str(Path(_OURS).parent)
    return Place(frame.function, short, frame.line, source, own and not path.startswith(ours + "/"))


@cache
def _installed() -> tuple[str, ...]:
    """Where Python and installed packages are."""
    paths = sysconfig.get_paths()
    folders = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return tuple(folders | set(site.getsitepackages()) | {site.getusersitepackages()})


def _measure(timed: Timed) -> Inside:
    recording = timed.recording
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
