"""What ``--why`` tells against timers that are planted in the functions themselves.

    python benchmarks/inside.py --batchsize 1 32
    python benchmarks/inside.py --cost

Every statement of ``numpy.tensordot``, ``im2col_cpu`` and of batch normalisation gets a clock read
before and behind it, in trials that take turns with the pass inside the layers. ``--cost`` says
what the sampler adds to a trial: it looks for a second, and does not, in turn.
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
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import chainer
import numpy as np
from chainer.functions.normalization import batch_normalization as bn
from chainer.utils import conv

import chainer_profile  # isort: split  (mends Chainer)
from chainer_profile.analyse.inside import part_of
from chainer_profile.basics.describe import median_interval
from chainer_profile.basics.replacements import Replacements
from chainer_profile.measure.inside import look_inside
from chainer_profile.measure.steps import make_step
from chainer_profile.networks.loading import build_model, find_model
from chainer_profile.record.inside import Place
from models.registry import REGISTRY

now_ns = time.perf_counter_ns
#: Seconds of each part, by the function of the layer and by name.
Shares = dict[str, Counter[str]]


class Planted:
    """Timers in the statements of functions.

    Args:
        lines: Whether parts are lines; else they are functions.
    """

    def __init__(self, lines: bool) -> None:
        self._lines = lines
        self.layer = ""
        self.spent: Counter[tuple[str, str]] = Counter()
        self._inner = [0]

    def whole(self, function: Any, name: str) -> Any:
        """The function with one timer around it."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            begin = self.begin()
            try:
                return function(*args, **kwargs)
            finally:
                self.end(begin, name)

        return timed

    def statements(self, function: Any, file: str) -> Any:
        """The function with a timer around every simple statement of it."""
        function = inspect.unwrap(function)
        source = textwrap.dedent(inspect.getsource(function))
        tree = ast.parse(source)
        defined: Any = tree.body[0]
        defined.decorator_list = []
        texts = source.splitlines()

        def planted(statements: list[ast.stmt]) -> list[ast.stmt]:
            found: list[ast.stmt] = []
            for one in statements:
                for block in ("body", "orelse", "handlers"):
                    if hasattr(one, block) and not isinstance(one, ast.ExceptHandler):
                        inner = getattr(one, block)
                        if block != "handlers":
                            setattr(one, block, planted(inner))
                if not isinstance(one, ast.Assign | ast.AugAssign):
                    found.append(one)
                    continue
                line = texts[one.lineno - 1].strip() if self._lines else ""
                name = (
                    part_of([Place(function.__name__, file, 1, line)])[0]
                    if line
                    else (
                        part_of(
                            [
                                Place("forward", "chainer/functions/x.py"),
                                Place(function.__name__, file),
                            ]
                        )[0]
                    )
                )
                found += [
                    ast.parse("_begin = _planted.begin()").body[0],
                    one,
                    ast.parse(f"_planted.end(_begin, {name!r})").body[0],
                ]
            return found

        defined.body = planted(defined.body)
        namespace = function.__globals__ | {"_planted": self}
        exec(compile(ast.fix_missing_locations(tree), file, "exec"), namespace)
        return namespace[function.__name__]

    def begin(self) -> int:
        """A part begins."""
        self._inner.append(0)
        return now_ns()

    def end(self, begin: int, name: str) -> None:
        """It ends; what began within it is not a part of it."""
        took = now_ns() - begin
        self.spent[self.layer, name] += took - self._inner.pop()
        self._inner[-1] += took


class Hook(chainer.FunctionHook):
    """Times whole functions."""

    name = "benchmarks.inside"

    def __init__(self, planted: Planted) -> None:
        self.planted = planted
        self.begin = 0

    def forward_preprocess(self, function: Any, in_data: Any) -> None:
        self.planted.layer = function._impl_name
        self.begin = now_ns()

    def forward_postprocess(self, function: Any, in_data: Any) -> None:
        self.planted.spent[self.planted.layer, ""] += now_ns() - self.begin


@contextmanager
def planted(lines: bool) -> Iterator[Planted]:
    found = Planted(lines)
    with Replacements() as replacements, Hook(found):
        replacements.put(np, "tensordot", found.statements(np.tensordot, "numpy/_core/numeric.py"))
        replacements.put(
            conv, "im2col_cpu", found.whole(conv.im2col_cpu, "im2col's copy of windows")
        )
        file = "chainer/functions/normalization/batch_normalization.py"
        for name in ("_x_hat", "_apply_bn_fwd"):
            replacements.put(bn, name, found.statements(getattr(bn, name), file))
        yield found


def compare(batchsize: int, rounds: int, seconds: float) -> float:
    """Print both shares; gives the largest difference for parts of 10 % and more, in points."""
    model = build_model(find_model("resnet20", REGISTRY), 0)
    x = np.random.default_rng(0).random((batchsize, 3, 32, 32), np.float32)
    recording = chainer_profile.profile(model, x, trials=10, warmups=3, memory=False)
    medians_s = np.median(recording.self_ns, axis=0) * 1e-9
    step = make_step("forward", model, (x,))
    timed: list[Counter[tuple[str, str]]] = []
    told: list[dict[tuple[str, str], float]] = []
    with step.configured():
        for _ in range(rounds):
            inside = look_inside(step, recording.layers, medians_s, now_ns, seconds=seconds)
            summary = chainer_profile.summarise(dataclasses.replace(recording, inside=inside))
            found = summary.inside
            assert found is not None
            told.append(
                {(one.name, part.name): part.share for one in found.functions for part in one.parts}
            )
            lines = any(part.source for one in found.functions for part in one.parts)
            with planted(lines) as timers:
                end = now_ns() + int(seconds * 1e9)
                while now_ns() < end:
                    step()
            timed.append(timers.spent)
    worst = 0.0
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    print(f"\nPython {python}, batch {batchsize}, {inside.method}; {'; '.join(inside.notes)}")
    names = sorted({key for one in timed for key in one if key[1]})
    for function, name in names:
        by_timer = statistics.median(one[function, name] / one[function, ""] for one in timed)
        by_pass = statistics.median(one.get((function, name), 0.0) for one in told)
        if by_timer < 0.02:
            continue
        counts = max(by_timer, by_pass) >= 0.1
        if counts:
            worst = max(worst, abs(by_pass - by_timer) * 100)
        print(
            f"{function:25.25} {name:60.60} timers {by_timer:6.1%}  told {by_pass:6.1%}"
            f"{'  *' if counts else ''}"
        )
    assert found is not None
    kinds = [part.share for part in found.framework.parts] if found.framework else []
    print(f"framework's kinds add up to {sum(kinds):.4%}; largest difference {worst:.1f} points")
    return worst


def cost(batchsize: int, pairs: int) -> None:
    """Print what the sampler adds to a trial, in wall and in CPU time."""
    model = build_model(find_model("resnet20", REGISTRY), 0)
    step = make_step("forward", model, (np.zeros((batchsize, 3, 32, 32), np.float32),))
    looked: list[tuple[float, float]] = []

    def second() -> None:
        begin, cpu, count = time.perf_counter(), time.process_time(), 0
        while not count or time.perf_counter() - begin < 1:
            step()
            count += 1
        looked.append(((time.perf_counter() - begin) / count, (time.process_time() - cpu) / count))

    for stopped in (False, True):
        looked.clear()
        with step.configured():
            second()
            looked.clear()
            for _ in range(pairs):
                second()
                samplers.sampled(second, now_ns, stopped=stopped)
        without, under = looked[::2], looked[1::2]
        for at, what in enumerate(("wall", "CPU")):
            added = np.array([b[at] / a[at] - 1 for a, b in zip(without, under, strict=True)])
            low, high = median_interval(added)
            print(
                f"batch {batchsize}, {'stopped for each look' if stopped else 'not stopped'}: "
                f"{what} {float(np.median(added)):+.1%} (95 % {low:+.1%} to {high:+.1%})"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batchsize", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--cost", action="store_true")
    args = parser.parse_args()
    for batchsize in args.batchsize:
        if args.cost:
            cost(batchsize, 12)
            continue
        compare(batchsize, args.rounds, args.seconds)


if __name__ == "__main__":
    main()
