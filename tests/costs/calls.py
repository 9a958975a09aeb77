"""Calls of Chainer's functions with their gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import chainer
import numpy as np

from chainer_profile.costs.work import ArraySpec, Work, backward_work, forward_work

RNG = np.random.default_rng(0)


def real(*shape: int) -> Any:
    """Numbers of both signs, none near 0."""
    return RNG.uniform(0.2, 0.9, shape) * RNG.choice([-1.0, 1.0], shape)


def positive(*shape: int) -> Any:
    return RNG.uniform(0.2, 0.9, shape)


def labels(*shape: int, below: int = 3) -> Any:
    return RNG.integers(0, below, shape).astype(np.int32)


def matrices(n: int) -> Any:
    a = RNG.normal(size=(2, n, n))
    return a @ a.transpose(0, 2, 1) + np.eye(n)


@dataclass
class Ran:
    """A call of a Chainer function, with its gradients."""

    function: Any
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    gys: tuple[Any, ...]
    grads: tuple[Any, ...]
    needed: tuple[bool, ...]
    ys: tuple[Any, ...] = ()
    """The outputs as Variables, which hold the graph."""

    @property
    def specs(self) -> tuple[tuple[ArraySpec, ...], tuple[ArraySpec, ...]]:
        return tuple(map(ArraySpec.of, self.inputs)), tuple(map(ArraySpec.of, self.outputs))

    @property
    def differentiable(self) -> bool:
        return not self.grads or any(grad is not None for grad in self.grads)

    def work(self, phase: str, needed: tuple[bool, ...] | None = None) -> Work | None:
        """Its work, if it is known."""
        if phase == "forward":
            return forward_work(self.function, *self.specs)
        needed = needed or self.needed
        if not any(needed) or not self.differentiable:
            return None
        return backward_work(self.function, *self.specs, needed)

    def forward(self) -> Work:
        work = self.work("forward")
        assert work is not None
        return work

    def backward(self, needed: tuple[bool, ...] | None = None) -> Work:
        work = self.work("backward", needed)
        assert work is not None
        return work


class Recorder(chainer.FunctionHook):
    name = "cost-recorder"

    def __init__(self) -> None:
        self.calls: list[tuple[Any, tuple[Any, ...]]] = []
        self.depth = 0

    def forward_preprocess(self, function: Any, in_data: tuple[Any, ...]) -> None:
        if not self.depth:
            self.calls.append((function, in_data))
        self.depth += 1

    def forward_postprocess(self, function: Any, in_data: tuple[Any, ...]) -> None:
        self.depth -= 1


def run(call: Callable[..., Any], *arrays: Any, gradients: bool = True) -> Ran:
    """Call one Chainer function and get the gradients of all its inputs of real numbers."""
    variables = [
        chainer.Variable(a, requires_grad=a.dtype.kind == "f") if isinstance(a, np.ndarray) else a
        for a in arrays
    ]
    with Recorder() as recorder:
        result = call(*variables)
    (function, in_data) = recorder.calls[-1]
    assert len(recorder.calls) == 1
    ys = result if isinstance(result, (tuple, list)) else (result,)
    nodes = function.inputs or ()
    needed = tuple(node.requires_grad for node in nodes)
    gys: tuple[Any, ...] = tuple(np.asarray(real(*y.shape), y.dtype) for y in ys)
    grads: tuple[Any, ...] = ()
    if gradients and any(needed):
        xs = [node.get_variable() for node, need in zip(nodes, needed, strict=True) if need]
        some = iter(chainer.grad(list(ys), xs, [chainer.Variable(gy.copy()) for gy in gys]))
        grads = tuple(
            g if (g := next(some) if need else None) is None else g.array for need in needed
        )
    return Ran(function, in_data, tuple(y.array for y in ys), gys, grads, needed, tuple(ys))
