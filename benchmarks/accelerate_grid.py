"""Drawn shapes for ``benchmarks.accelerate --grid``: functions on them, with Chainer and faster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple

import chainer_profile  # noqa: F401  (lets Chainer import)

# isort: split
import chainer
import chainer.functions as F
import numpy as np
from threadpoolctl import threadpool_limits

from chainer_profile.basics.describe import median_interval
from chainer_profile.kernels.accelerate import accelerate, import_kernels
from chainer_profile.kernels.memory import keeping_memory

#: The least ratio that ``accelerate()`` promises.
MIN_FACTOR = 0.95
#: Multiply-adds, and numbers in all windows, of the largest convolution.
_MAX_MACS, _MAX_WINDOWS = 1 << 27, 1 << 23
#: A ratio below this is measured again, for longer.
_CLOSE = 1.1


class _Length(NamedTuple):
    """How long a ratio is measured."""

    blocks: int  #: Pairs of blocks.
    block_s: float
    #: Calls before a block, in at most this many seconds. After a method of a class was replaced,
    #: Python's caches take about 300 calls to fill, in which a call takes 15 us longer.
    warm_ups: int
    warm_up_s: float


_SHORT, _LONG = _Length(5, 2e-3, 1, 0.0), _Length(15, 20e-3, 500, 50e-3)


@dataclass(frozen=True)
class Case:
    """A call of a function, and its name with all sizes."""

    family: str
    name: str
    function: Callable[..., Any]
    arrays: list[Any]


@dataclass(frozen=True)
class Ratio:
    """How many times as fast a phase of a case is, by the median of paired blocks."""

    case: Case
    phase: str
    factor: float
    high: float  #: The upper limit of the factor's 95 % interval.
    chainer_ms: float
    difference: float  #: Largest relative difference of outputs and gradients in float64.

    @property
    def is_below(self) -> bool:
        """Whether the whole interval is below the promised ratio."""
        return self.high < MIN_FACTOR


def measure(kernels: str, count: int, seed: int) -> Iterator[Ratio]:
    """Measure ``count`` convolutions, and a sixth as many calls of each other function."""
    rng = np.random.default_rng(seed)
    module = import_kernels(kernels)
    with threadpool_limits(1), keeping_memory():
        if hasattr(module, "set_threads"):
            module.set_threads(1)
        for draw in _FAMILIES:
            for _ in range(count if draw is _convolution else max(1, count // 6)):
                case = draw(rng)
                difference = _difference(case, kernels)
                for phase, run in (("forward", _forward), ("both", _forward_backward)):
                    step = partial(run, case)
                    factor, high, chainer_s = _ratio(step, kernels, _SHORT)
                    if factor < _CLOSE:
                        factor, high, chainer_s = _ratio(step, kernels, _LONG)
                    yield Ratio(case, phase, factor, high, chainer_s * 1e3, difference)


def table(ratios: list[Ratio]) -> str:
    """A table of the ratios by function and phase.

    ReLU and linear always run Chainer's own code: their ratios show the noise.
    """
    titles = "phase", "calls", "below", "surely", "worst", "median", "float64"
    lines = ["{:22} {:8} {:>5} {:>5} {:>6} {:>6} {:>6} {:>8}".format("function", *titles)]
    for family, phase in dict.fromkeys((ratio.case.family, ratio.phase) for ratio in ratios):
        these = [r for r in ratios if (r.case.family, r.phase) == (family, phase)]
        factors = [ratio.factor for ratio in these]
        difference = max(ratio.difference for ratio in these)
        below = sum(factor < MIN_FACTOR for factor in factors)
        surely = sum(ratio.is_below for ratio in these)
        lines.append(
            f"{family:22} {phase:8} {len(factors):5} {below:5} {surely:6} {min(factors):6.2f} "
            f"{np.median(factors):6.2f} {difference:8.0e}"
        )
    return "\n".join(lines)


def line(ratio: Ratio) -> str:
    """A ratio with its case."""
    return (
        f"{ratio.factor:5.2f} (to {ratio.high:.2f})  {ratio.phase:8} {ratio.chainer_ms:8.3f} ms  "
        f"{ratio.case.family}: {ratio.case.name}"
    )


def _forward(case: Case) -> Any:
    return case.function(*case.arrays)


def _forward_backward(case: Case) -> list[Any]:
    """Run both phases; gives the output and the gradients."""
    variables = [chainer.Variable(x) if x.dtype.kind == "f" else x for x in case.arrays]
    y = case.function(*variables)
    y.grad = _gradient(y.shape).astype(y.dtype, copy=False)
    y.backward()
    return [y.array, *(x.grad for x in variables if isinstance(x, chainer.Variable))]


@lru_cache(maxsize=1)
def _gradient(shape: tuple[int, ...]) -> Any:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def _difference(case: Case, kernels: str) -> float:
    """The largest difference in float64, in parts of the largest number of an array."""
    arrays = [x.astype(np.float64) if x.dtype.kind == "f" else x for x in case.arrays]
    case = replace(case, arrays=arrays)
    stock = _forward_backward(case)
    with accelerate(kernels, keep_memory=False):
        fast = _forward_backward(case)
    with np.errstate(invalid="ignore"):  # infinities are equal
        return max(
            float(np.max(abs(ours - theirs), where=ours != theirs, initial=0) / _largest(theirs))
            for ours, theirs in zip(fast, stock, strict=True)
        )


def _largest(array: Any) -> float:
    return float(np.max(abs(array), where=np.isfinite(array), initial=1e-300))


def _ratio(step: Callable[[], Any], kernels: str, length: _Length) -> tuple[float, float, float]:
    """The median of paired blocks' ratios, its upper limit, and Chainer's seconds of a step."""

    def block(fast: bool, count: int, warm_ups: int) -> float:
        active = accelerate(kernels, keep_memory=False) if fast else None
        try:
            for _ in range(warm_ups):
                step()
            begin = time.process_time()
            for _ in range(count):
                step()
            return (time.process_time() - begin) / count
        finally:
            if active is not None:
                active.undo()

    step_s = max(block(fast, 2, 1) for fast in (True, False))
    count = max(1, int(length.block_s / step_s))
    warm_ups = max(1, min(length.warm_ups, int(length.warm_up_s / step_s)))
    times = []
    for number in range(length.blocks):
        first, second = (block(bool(number % 2 == i), count, warm_ups) for i in (0, 1))
        times.append((second, first) if number % 2 == 0 else (first, second))
    stock, fast = np.array(times).T
    ratios = stock / fast
    return float(np.median(ratios)), median_interval(ratios)[1], float(np.median(stock))


# -- random calls


def _about(rng: np.random.Generator, largest: int) -> int:
    """A whole number from 1 to ``largest``, small ones as often as large ones."""
    return int(np.rint(2 ** rng.uniform(0, np.log2(largest))))


def _array(rng: np.random.Generator, *shape: int) -> Any:
    return rng.standard_normal(shape, np.float32)


def _convolution(rng: np.random.Generator) -> Case:
    while True:
        transposed = rng.random() < 0.2
        n, h, w = _about(rng, 64), _about(rng, 64), _about(rng, 64)
        w = h if rng.random() < 0.7 else w
        k, dilate = int(rng.choice([1, 3, 5, 7])), int(rng.choice([1, 1, 1, 2]))
        stride, pad = int(rng.choice([1, 1, 2, 3])), int(rng.choice([0, k // 2, k // 2]))
        inside, outside = _about(rng, 2048), _about(rng, 2048)
        groups = 1
        if rng.random() < 0.3:
            groups = int(rng.choice([2, 4, 32, inside]))
            inside = max(1, inside // groups) * groups
            outside = max(1, outside // groups) * groups
            if groups == inside:
                outside = inside
        covered = (k - 1) * dilate + 1
        out = [(size + 2 * pad - covered) // stride + 1 for size in (h, w)]
        if transposed:
            out = [stride * (size - 1) + covered - 2 * pad for size in (h, w)]
        if min(out) < 1:
            continue
        pixels = h * w if transposed else out[0] * out[1]
        windows = n * (outside if transposed else inside) * k * k * pixels
        macs = n * inside * outside // groups * k * k * pixels
        sizes = (n * inside * h * w, n * outside * out[0] * out[1], inside * outside * k * k)
        if macs <= _MAX_MACS and windows <= _MAX_WINDOWS and max(sizes) <= _MAX_WINDOWS:
            break
    shape = (inside, outside // groups) if transposed else (outside, inside // groups)
    arrays = [_array(rng, n, inside, h, w), _array(rng, *shape, k, k)]
    bias = bool(rng.random() < 0.5)
    if bias:
        arrays.append(_array(rng, outside))
    call = F.deconvolution_2d if transposed else F.convolution_2d
    options = {"stride": stride, "pad": pad, "dilate": dilate, "groups": groups}
    name = (
        f"b{n} {inside}->{outside} {h}x{w} k{k} s{stride} p{pad} d{dilate} g{groups}"
        f"{' bias' if bias else ''}"
    )

    def function(x: Any, w: Any, b: Any = None) -> Any:
        return call(x, w, b, **options)

    return Case("deconvolution" if transposed else "convolution", name, function, arrays)


def _image(rng: np.random.Generator) -> Any:
    while True:
        h, w = _about(rng, 64), _about(rng, 64)
        shape = _about(rng, 64), _about(rng, 2048), h, h if rng.random() < 0.7 else w
        if np.prod(shape) <= _MAX_WINDOWS >> 2:
            return _array(rng, *shape)


def _pooling(rng: np.random.Generator) -> Case:
    x = _image(rng)
    largest = min(x.shape[2:])
    if rng.random() < 0.3:
        k, stride, pad = x.shape[2:], 1, 0
    else:
        k = int(min(largest, rng.choice([2, 2, 3, 3, 5, 7])))
        stride, pad = int(rng.integers(1, 4)), int(rng.choice([0, k // 2]))
    average = bool(rng.random() < 0.5)
    call: Any = F.average_pooling_2d if average else F.max_pooling_2d
    function = partial(call, ksize=k, stride=stride, pad=pad)
    family = "average pooling" if average else "max pooling"
    return Case(family, f"{_sizes(x)} k{k} s{stride} p{pad}", function, [x])


def _normalization(rng: np.random.Generator) -> Case:
    x = _image(rng)
    c = x.shape[1]
    arrays = [x, rng.uniform(0.5, 2, c).astype(np.float32), _array(rng, c)]
    if rng.random() < 0.5:
        return Case("batch normalisation", _sizes(x), F.batch_normalization, arrays)
    arrays += [_array(rng, c), rng.uniform(0.5, 2, c).astype(np.float32)]
    fixed = F.fixed_batch_normalization
    return Case("fixed normalisation", _sizes(x), fixed, arrays)


def _relu(rng: np.random.Generator) -> Case:
    x = _image(rng)
    return Case("ReLU", _sizes(x), F.relu, [x])


def _embedding(rng: np.random.Generator) -> Case:
    words, numbers, count = _about(rng, 30000), _about(rng, 512), _about(rng, 8192)
    x = rng.integers(0, words, count).astype(np.int32)
    name = f"{count} words of {words}, {numbers} numbers"
    return Case("EmbedID", name, F.embed_id, [x, _array(rng, words, numbers)])


def _linear(rng: np.random.Generator) -> Case:
    n, inside, outside = _about(rng, 256), _about(rng, 4096), _about(rng, 4096)
    arrays = [_array(rng, n, inside), _array(rng, outside, inside), _array(rng, outside)]
    return Case("linear", f"b{n} {inside}->{outside}", F.linear, arrays)


def _sizes(x: Any) -> str:
    return "x".join(map(str, x.shape))


_FAMILIES: tuple[Callable[[np.random.Generator], Case], ...] = (
    _convolution,
    _pooling,
    _normalization,
    _relu,
    _embedding,
    _linear,
)
