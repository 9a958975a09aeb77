"""Compare the shares of ``--why`` with timers in the functions themselves.

    python -m benchmarks.inside --batchsize 1 32
    python -m benchmarks.inside --known 20 60 200 4000

Timers surround ``im2col_cpu`` and the lines of ``numpy.tensordot`` and of batch normalisation.
Trials with timers alternate with the pass inside the layers. ``--known`` does the same for layers
of four lines that take about this number of microseconds.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import inspect
import statistics
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import chainer_profile  # (lets Chainer import)

# isort: split
import chainer
import numpy as np
from chainer.functions.normalization import batch_normalization as bn
from chainer.utils import conv
from threadpoolctl import threadpool_limits

from chainer_profile.analyse.inside import CALLS, part_of
from chainer_profile.basics.replacements import Replacements
from chainer_profile.measure.inside import look_inside
from chainer_profile.measure.steps import make_step
from chainer_profile.networks.loading import build_model, find_model
from chainer_profile.record.inside import StackFrame
from models.registry import REGISTRY

now_ns = time.perf_counter_ns
#: A function, and its part.
Key = tuple[str, str]
BN = "chainer/functions/normalization/batch_normalization.py"


class Planted:
    """Timers in functions. Subtracts the time of the timers themselves from the total."""

    def __init__(self) -> None:
        self.layer = ""
        self.spent: Counter[Key] = Counter()
        self._inner = [0]
        begin = now_ns()
        for _ in range(10_000):
            self.end(self.begin(), "nothing")
        self._own_ns = (now_ns() - begin - self.spent.pop(("", "nothing"))) // 10_000
        self._inner = [0]

    def whole(self, function: Any, name: str) -> Any:
        """Wrap a function with a timer."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            begin = self.begin()
            try:
                return function(*args, **kwargs)
            finally:
                self.end(begin, name)

        return timed

    def lines(self, function: Any, file: str) -> Any:
        """Compile a function with a timer around every line that computes or copies arrays."""
        function = inspect.unwrap(function)
        source = textwrap.dedent(inspect.getsource(function))
        defined: Any = ast.parse(source).body[0]
        defined.decorator_list = []
        texts = source.splitlines()

        def planted(statements: list[Any]) -> list[Any]:
            timed: list[Any] = []
            for statement in statements:
                for block in ("body", "orelse"):
                    if hasattr(statement, block):
                        setattr(statement, block, planted(getattr(statement, block)))
                line = texts[statement.lineno - 1].strip()
                name, cause, _ = part_of([StackFrame(function.__name__, file, 1, line)])
                if isinstance(statement, ast.Assign | ast.AugAssign) and cause not in ("", CALLS):
                    begin, end = "_begin = _planted.begin()", f"_planted.end(_begin, {name!r})"
                    timed += [*ast.parse(begin).body, statement, *ast.parse(end).body]
                else:
                    timed.append(statement)
            return timed

        defined.body = planted(defined.body)
        namespace = function.__globals__ | {"_planted": self}
        module = ast.fix_missing_locations(ast.Module([defined], []))
        exec(compile(module, file, "exec"), namespace)
        return namespace[function.__name__]

    def begin(self) -> int:
        self._inner.append(0)
        return now_ns()

    def end(self, begin: int, name: str) -> None:
        """End a timer, and add its time without nested timers."""
        took = now_ns() - begin
        self.spent[self.layer, name] += took - self._inner.pop()
        self._inner[-1] += took
        if name != "nothing":
            self.spent[self.layer, ""] -= self._own_ns


class Hook(chainer.FunctionHook):
    name = "benchmarks.inside"

    def __init__(self, planted: Planted) -> None:
        self.planted = planted
        self.begin = 0

    def forward_preprocess(self, function: Any, in_data: Any) -> None:
        self.planted.layer = function._impl_name
        self.begin = now_ns()

    def forward_postprocess(self, function: Any, in_data: Any) -> None:
        self.planted.spent[self.planted.layer, ""] += now_ns() - self.begin


class FourLines(chainer.FunctionNode):
    """A layer of four lines of known times."""

    def __init__(self, matrix: Any, exponents: Any, source: Any) -> None:
        self.matrix, self.exponents, self.source = matrix, exponents, source

    def forward(self, inputs: Any) -> Any:
        (x,) = inputs
        product = self.matrix @ self.matrix
        powers = np.exp(self.exponents)
        copied = self.source.copy()
        added = self.matrix + 1
        return (x + product[0, 0] + powers[0] + copied[0] + added[0, 0],)


class FourLineNet(chainer.Chain):
    """Eight layers of about ``us`` microseconds; their lines take about 40, 30, 20 and 5 %."""

    def __init__(self, us: float) -> None:
        super().__init__()
        side = round(28 * us ** (1 / 3))
        shapes = (side, side), (round(780 * us),), (round(1200 * us),)
        self.arrays = [np.random.default_rng(0).random(shape, np.float32) for shape in shapes]

    def forward(self, x: Any) -> Any:
        for _ in range(8):
            (x,) = FourLines(*self.arrays).apply((x,))
        return x


@contextmanager
def planted(lines: bool) -> Iterator[Planted]:
    """Plant timers in functions, around each of their lines or around the whole function."""
    timers = Planted()
    functions = (
        (np, "tensordot", "numpy/_core/numeric.py", "numpy.tensordot"),
        (bn, "_x_hat", BN, "_x_hat"),
        (bn, "_apply_bn_fwd", BN, "_apply_bn_fwd"),
    )
    with Replacements() as replacements, Hook(timers):
        windows = timers.whole(conv.im2col_cpu, "im2col's copy of windows")
        replacements.put(conv, "im2col_cpu", windows)
        for owner, name, file, part in functions:
            stock = getattr(owner, name)
            new = timers.lines(stock, file) if lines else timers.whole(stock, part)
            replacements.put(owner, name, new)
        replacements.put(FourLines, "forward", timers.lines(FourLines.forward, "four_lines.py"))
        yield timers


def measured(model: Any, x: Any, rounds: int, seconds: float) -> Iterator[tuple[Any, Counter[Key]]]:
    """For each round, run the pass inside the layers, and trials with timers."""
    recording = chainer_profile.profile(model, x, trials=10, warmups=3, memory=False)
    medians_s = np.median(recording.self_ns, axis=0) * 1e-9
    step = make_step("forward", model, (x,))
    with step.configured():
        for _ in range(rounds):
            inside = look_inside(step, recording.layers, medians_s, now_ns, seconds=seconds)
            summary = chainer_profile.summarise(dataclasses.replace(recording, inside=inside))
            assert summary.inside is not None
            parts = [part for function in summary.inside.functions for part in function.parts]
            with planted(any(part.source for part in parts)) as timers:
                end = now_ns() + int(seconds * 1e9)
                while now_ns() < end:
                    step()
            yield summary, timers.spent


def compare(title: str, model: Any, x: Any, rounds: int, seconds: float) -> None:
    """Print both shares, and how often the share by timers is outside the interval of the pass."""
    summaries, timed = zip(*measured(model, x, rounds, seconds), strict=True)
    shares = [
        {(each.name, part.name): part for each in summary.inside.functions for part in each.parts}
        for summary in summaries
    ]
    worst, beyond, intervals = 0.0, 0, 0
    recording = summaries[-1].recording
    inside = recording.inside
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    layer_us = statistics.median(np.median(recording.self_ns, axis=0)) / 1e3
    print(f"\nPython {python}, {title}, layers of {layer_us:.0f} us, {inside.method}, ", end="")
    print(f"samples per independent sample: {inside.repeats:.1f}; {'; '.join(inside.notes)}")
    for function, name in sorted({key for spent in timed for key in spent if key[1]}):
        key = function, name
        by_timer = statistics.median(spent[key] / spent[function, ""] for spent in timed)
        parts = [by_name[key] for by_name in shares if key in by_name]
        if by_timer < 0.02 or not parts:
            continue
        by_pass = statistics.median(part.share for part in parts)
        with_interval = [part for part in parts if part.low is not None]
        intervals += len(with_interval)
        beyond += sum(not part.low <= by_timer <= part.high for part in with_interval)
        counts = max(by_timer, by_pass) >= 0.1
        if counts:
            worst = max(worst, abs(by_pass - by_timer) * 100)
        print(
            f"{function:25.25} {name:60.60} timers {by_timer:6.1%}  --why {by_pass:6.1%}"
            f"{'  *' if counts else ''}"
        )
    framework = summaries[-1].inside.framework
    kinds = [part.share for part in framework.parts] if framework else []
    added = f"add up to {sum(kinds):.4%}" if kinds else "have too few samples"
    print(f"framework's kinds {added}; largest difference {worst:.1f} points; ", end="")
    print(f"{beyond} of {intervals} intervals do not contain the share by timers")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batchsize", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--known", type=float, nargs="+", default=[])
    args = parser.parse_args()
    with threadpool_limits(1):
        for us in args.known:
            x = np.zeros(4, np.float32)
            compare(f"{us:g} us", FourLineNet(us), x, args.rounds, args.seconds)
        for batchsize in [] if args.known else args.batchsize:
            model = build_model(find_model("resnet20", REGISTRY), 0)
            x = np.random.default_rng(0).random((batchsize, 3, 32, 32), np.float32)
            compare(f"batch {batchsize}", model, x, args.rounds, args.seconds)


if __name__ == "__main__":
    main()
