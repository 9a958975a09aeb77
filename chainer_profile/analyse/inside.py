"""Stacks -> the parts of the time of layers, of functions and of the framework."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from chainer_profile.basics.describe import NS
from chainer_profile.record.recording import Inside, Recording, Stack, StackFrame

#: Causes of the time of a part.
COPYING = "copying"
PRODUCT = "matrix product"
ELEMENTWISE = "elementwise arithmetic"
ALLOCATION = "allocation"
CALLS = "call overhead"
WAITING = "waiting"
COLLECTION = "garbage collection"
CAUSES = (COPYING, PRODUCT, ELEMENTWISE, ALLOCATION, CALLS, WAITING, COLLECTION)
#: Kinds of framework time other than garbage collection.
GRAPH = "apply and graph"
VARIABLES = "Variables"
TYPE_CHECKS = "type checks"
WRAPPERS = "functions' and links' own Python"
LINKS = "link calls"
CONFIGURATION = "configuration and devices"
UPDATE = "the optimizer"
MODEL = "the network's own code"
OTHER = "other"
_CHECKS = (
    *("check_type_forward", "_check_data_type_forward", "check_layout_forward", "_check_grad_type"),
    *("_check_arrays_forward_compatible", "is_arrays_compatible"),
)
#: Kinds of framework time: beginnings of a file's path in Chainer, names of functions (no names for
#: all functions), and the kind. The first row that fits counts.
KINDS: tuple[tuple[tuple[str, ...], tuple[str, ...], str], ...] = (
    (("utils/type_check.py",), (), TYPE_CHECKS),
    (("",), _CHECKS, TYPE_CHECKS),
    (("configuration.py", "backend", "_backend.py", "__init__.py"), (), CONFIGURATION),
    (("variable.py",), ("backward",), GRAPH),
    (("variable.py",), (), VARIABLES),
    (("function_node.py", "function.py", "function_hook.py", "_backprop"), (), GRAPH),
    (("link.py", "link_hook.py", "sequential.py", "device_resident.py"), (), LINKS),
    (("optimizer.py", "optimizers/"), (), UPDATE),
    (("functions/", "links/", "utils/argument.py"), (), WRAPPERS),
)
_NUMERIC = "numpy/_core/numeric.py"
#: Parts with fixed names: file, function, piece of the source of a line, name, and cause. With an
#: empty piece, a part is the whole function, including its calls.
NAMED = (
    (_NUMERIC, "tensordot", ".reshape(newshape_", "a copy within numpy.tensordot", COPYING),
    (_NUMERIC, "tensordot", "dot(at, bt)", "the matrix product", PRODUCT),
    (_NUMERIC, "tensordot", " ", "numpy.tensordot's own Python", CALLS),
    ("chainer/utils/conv.py", "im2col_cpu", "", "im2col's copy of windows", COPYING),
    ("chainer/utils/conv.py", "col2im_cpu", "", "col2im's adding to windows", COPYING),
    ("chainer/utils/conv_nd.py", "im2col_nd_cpu", "", "im2col's copy of windows", COPYING),
    ("chainer/utils/conv_nd.py", "col2im_nd_cpu", "", "col2im's adding to windows", COPYING),
)
#: Causes by the source of a line; the first pattern that fits counts.
_CAUSES = tuple(
    (cause, re.compile(pattern))
    for cause, pattern in (
        (CALLS, r"^(if|elif|else|for|while|def|assert|with|try|import|from|@)\b"),
        (WAITING, r"\.(wait|acquire|sleep)\("),
        (PRODUCT, r"\b(dot|matmul|tensordot|einsum)\(|[\w\])] @ \w"),
        (
            COPYING,
            r"\.(astype|copy|transpose|reshape|ravel|flatten|take)\(|^\w+\[.*\] = \w+(\[.*\])?$"
            r"|\b(ascontiguousarray|rollaxis|moveaxis|concatenate|stack|pad|copyto|tile|array)\(",
        ),
        (ALLOCATION, r"\b(empty|zeros|ones|full|ndarray)(_like)?\("),
        (
            ELEMENTWISE,
            r"\.(mean|var|sum|max|min|argmax)\(|[\w\])] ?[-+*/]=? ?[\w(]"
            r"|\b(maximum|minimum|exp|log|sqrt|square|tanh|where|clip|sign|add|multiply|subtract"
            r"|(true_)?divide|power|reciprocal)\(",
        ),
    )
)
#: Causes of functions of NumPy, for stacks without lines.
_NUMPY = {"pad": COPYING, "_mean": ELEMENTWISE, "_var": ELEMENTWISE, "_sum": ELEMENTWISE}
#: Name of the part that combines small parts.
REST = "the rest"
#: A part's name shows at most this number of characters of a line.
_LONGEST = 60
#: Parts of a layer or function with a smaller share are combined.
_LEAST = 0.01
#: Measured change of a share that sampling itself causes (docs/why.md).
_MOVED = 0.03
#: Layers and functions with fewer samples are left out: their parts would be off by 10 percentage
#: points.
MIN_SAMPLES = 100


@dataclass(frozen=True)
class Part:
    """One part of the time of a layer, a function or the framework."""

    name: str  #: A description, or the source of a line.
    share: float  #: Its fraction of that time.
    seconds: float  #: The same fraction of the time in the timed trials, in seconds.
    #: Lower end of the fraction's 95 % interval, from the number of independent samples and the
    #: effect of sampling itself; None for the rest.
    low: float | None = None
    high: float | None = None  #: Upper end.
    #: Its cause: ``copying``, ``matrix product``, ``elementwise arithmetic``, ``allocation``,
    #: ``call overhead``, ``waiting``, ``garbage collection``; empty where that is not known.
    cause: str = ""
    where: str = ""  #: File and line (or function) with most of its time.
    source: str = ""  #: The source of that line; empty if lines are not known.


@dataclass(frozen=True)
class Parts:
    """The parts of the time of a layer, of all layers of a function, or of the framework."""

    name: str  #: The layer's label, the function's name, or ``framework``.
    phase: str  #: Its phase; empty for the framework.
    row: int | None  #: The layer's index; None for others.
    #: Median self time in the timed trials, in seconds, including calls within it. A function has
    #: the sum over its layers.
    seconds: float
    samples: int  #: How often it was seen.
    parts: tuple[Part, ...]  #: Largest first; they add up to the whole time.

    @property
    def causes(self) -> dict[str, float]:
        """Fraction of its time by cause, largest first; without parts whose cause is unknown."""
        shares: Counter[str] = Counter()
        for part in self.parts:
            if part.cause:
                shares[part.cause] += part.share  # type: ignore[assignment]
        return dict(shares.most_common())


@dataclass(frozen=True)
class InsideParts:
    """Results of the pass that samples the stacks inside layers."""

    functions: tuple[Parts, ...]  #: One for each function and phase, slowest first.
    layers: tuple[Parts, ...]  #: Layers with enough samples, in the order of the calls.
    framework: Parts | None  #: Between the layers, by kind; None where not seen often enough.

    def layer(self, row: int) -> Parts | None:
        """The parts of a layer; None where they are not known."""
        return next((parts for parts in self.layers if parts.row == row), None)


def inside_parts(recording: Recording, median_s: NDArray[np.float64]) -> InsideParts | None:
    """Split the times of layers, functions and framework by sampled stacks; None without stacks.

    ``median_s`` are the layers' median self times in the timed trials, (layers,).
    """
    inside = recording.inside
    if inside is None:
        return None
    layers, times = recording.layers, [float(value) for value in median_s]
    # The samples of a layer include the calls within it, so its time must include them, too.
    inclusive = list(times)
    for layer in reversed(layers):
        if layer.parent is not None:
            inclusive[layer.parent] += inclusive[layer.index]
    by_row: dict[int, list[Stack]] = defaultdict(list)
    by_function: dict[tuple[str, str], list[Stack]] = defaultdict(list)
    between: list[Stack] = []
    phases = {layer.function: layer.phase for layer in layers}
    # Versions up to 0.2.0 timed the lines of some layers instead of sampling them.
    timed = {stack.row for stack in inside.stacks if not stack.samples}
    for stack in inside.stacks:
        if not (stack.samples and stack.seconds):
            continue
        if stack.row is not None:
            layer = layers[stack.row]
            by_row[stack.row].append(stack)
            by_function[layer.function, layer.phase].append(stack)
        elif stack.function:
            by_function[stack.function, phases[stack.function]].append(stack)
        else:
            between.append(stack)
    rows = [
        _split_time(layers[row].label, layers[row].phase, row, inclusive[row], stacks, inside)
        for row, stacks in sorted(by_row.items())
    ]
    functions = []
    for key, stacks in by_function.items():
        same = [layer.index for layer in layers if (layer.function, layer.phase) == key]
        seconds = sum(times[row] for row in same if row not in timed)
        functions.append(_split_time(*key, None, seconds, stacks, inside))
    functions.sort(key=lambda parts: -parts.seconds if parts else 0.0)
    framework = None
    if recording.trial_ns is not None and between:
        spent = recording.trial_ns - recording.self_ns.sum(axis=1)
        seconds = float(np.median(spent)) * NS
        framework = _split_time("framework", "", None, seconds, between, inside)
    return InsideParts(tuple(filter(None, functions)), tuple(filter(None, rows)), framework)


def _split_time(
    name: str,
    phase: str,
    row: int | None,
    seconds: float,
    stacks: Sequence[Stack],
    inside: Inside,
) -> Parts | None:
    """Split ``seconds`` by sampled stacks; None for too few samples.

    Without a phase it is framework time, which is split by kind.
    """
    spent: Counter[tuple[str, str]] = Counter()
    # For each part, its time by frame.
    places: dict[tuple[str, str], Counter[StackFrame]] = {}
    for stack in stacks:
        chain = [inside.places[place] for place in stack.places]
        part_name, cause, place = part_of(chain) if phase else (kind_of(chain), "", chain[-1])
        spent[part_name, cause] += stack.seconds  # type: ignore[assignment]
        of_part = places.setdefault((part_name, cause), Counter())
        of_part[place] += stack.seconds  # type: ignore[assignment]
    total, samples = sum(spent.values()), sum(stack.samples for stack in stacks)
    if samples / inside.repeats < MIN_SAMPLES:
        return None
    parts, rest = [], 0.0
    for (part_name, cause), part_s in spent.most_common():
        share = part_s / total
        if share < _LEAST and phase:
            rest += share
            continue
        low, high = _interval(share, samples / inside.repeats)
        place = places[part_name, cause].most_common(1)[0][0]
        where = ""
        if phase:
            where = f"{place.file}{f':{place.line}' if place.line else f', {place.function}'}"
        parts.append(Part(part_name, share, share * seconds, low, high, cause, where, place.source))
    if rest:
        parts.append(Part(REST, rest, rest * seconds))
    return Parts(name, phase, row, seconds, samples, tuple(parts))


def _interval(share: float, samples: float) -> tuple[float, float]:
    """95 % interval of a fraction of independent samples (Wilson), widened by :data:`_MOVED`."""
    z2 = 1.96**2 / samples
    middle = (share + z2 / 2) / (1 + z2)
    half = math.sqrt(z2 * share * (1 - share) + z2 * z2 / 4) / (1 + z2)
    return max(0.0, middle - half - _MOVED), min(1.0, middle + half + _MOVED)


def part_of(chain: Sequence[StackFrame]) -> tuple[str, str, StackFrame]:
    """Name, cause and frame of the part of a layer in which a stack ends.

    The part is a line if lines are known, or else a function. Parts with equal names are one part.
    ``chain`` has the outermost frame first.
    """
    # Time within NumPy counts for the line that called it.
    at = len(chain) - 1
    while at and chain[at].file.startswith("numpy/"):
        at -= 1
    for frame in reversed(chain[at:]):
        for file, function, line, name, cause in NAMED:
            if frame.file == file and _name(frame) == function and line in (frame.source or "-"):
                return name, cause, frame
    frame = chain[at]
    kind = kind_of(chain[at:])
    if kind == COLLECTION:
        return kind, COLLECTION, frame
    if kind not in (WRAPPERS, MODEL, OTHER, UPDATE) or frame.file.startswith("chainer/utils/"):
        return (kind if kind != OTHER else _name(frame)), CALLS, frame
    if frame.source:
        line = frame.source if len(frame.source) <= _LONGEST else frame.source[:_LONGEST] + "..."
        return f"{line} in {_name(frame)}", cause_of(frame.source), frame
    if at == len(chain) - 1:
        return frame.function, "", frame
    called = _name(chain[at + 1])
    return f"numpy.{called.strip('_')}", _NUMPY.get(called, ""), chain[at + 1]


def _name(frame: StackFrame) -> str:
    return frame.function.rpartition(".")[2]


def cause_of(source: str) -> str:
    """The cause of a line's time, from its source; empty if the source does not show it."""
    return next((cause for cause, pattern in _CAUSES if pattern.search(source)), "")


def kind_of(chain: Sequence[StackFrame]) -> str:
    """The kind of framework time of a stack, from the innermost frame that has a kind."""
    for frame in reversed(chain):
        if frame.function == "<GC>":
            return COLLECTION
        if frame.own:
            return MODEL
        file = frame.file.removeprefix("chainer/")
        for begins, functions, kind in KINDS if file != frame.file else ():
            if file.startswith(begins) and (not functions or _name(frame) in functions):
                return kind
    return OTHER
