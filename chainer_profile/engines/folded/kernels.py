"""What a plan does with arrays, beyond what NumPy and CuPy do in one call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from chainer_profile.engines.trace import anew

if TYPE_CHECKING:
    from chainer_profile.engines.folded.fold import Node

#: Padding at either end of height and width.
Pad = tuple[int, int]


def within(whole: Any, pad: Pad) -> Any:
    """An array without its padding of height and width."""
    if pad == (0, 0):
        return whole
    return whole[:, pad[0] : whole.shape[1] - pad[0], pad[1] : whole.shape[2] - pad[1]]


def same(border: Any, other: Any) -> bool:
    """Whether two borders hold the same numbers."""
    if border is None or other is None:
        return border is other
    return bool(np.array_equal(border, other))


def parts(images: int, lines: int, rows: int) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Cut images into parts of at most so many lines: whole images, or lines of one."""
    if rows >= lines:
        step = rows // lines
        for begin in range(0, images, step):
            yield (begin, min(images, begin + step)), (0, lines)
        return
    for image in range(images):
        for begin in range(0, lines, rows):
            yield (image, image + 1), (begin, min(lines, begin + rows))


def shifts(node: Node, size: tuple[int, int], out: tuple[int, int]) -> Iterator[tuple[Any, Any]]:
    """For every place in a window: which outputs have it within the image, and which inputs."""
    for dy in range(node.ksize[0]):
        for dx in range(node.ksize[1]):
            axes = []
            for d, s, p, n, o in zip((dy, dx), node.stride, node.pad, size, out, strict=True):
                first = max(0, -(-(p - d) // s))
                last = min(o - 1, (n - 1 + p - d) // s)
                begin = first * s + d - p
                axes.append(
                    (slice(first, last + 1), slice(begin, begin + (last - first) * s + 1, s))
                )
            if all(to.stop > to.start for to, _ in axes):
                every = slice(None)
                yield (every, *(to for to, _ in axes)), (every, *(of for _, of in axes))


def fill(array: Any, number: float) -> None:
    """Write one number everywhere."""
    array[...] = number


def mean(x: Any, result: Any) -> None:
    """Mean over height and width."""
    x.mean(axis=(1, 2), keepdims=True, out=result)


def copy_split(result: Any, blocks: Any) -> None:
    """Copy blocks into an array of another shape with as many numbers."""
    result[...] = blocks.reshape(result.shape)


def reshape_into(source: Any, target: Any) -> None:
    """Copy an array into one of another shape."""
    target[...] = source.reshape(target.shape)


def call_function(
    function: Any, arrays: tuple[Any, ...], held: dict[str, Any], targets: list[Any]
) -> None:
    """Run a function of Chainer's as it is; outputs without a target are dropped."""
    # Anew, as Chainer's calls are: a function keeps what it drew (noise, the mask of a dropout).
    called = anew(function)
    vars(called).update(held)
    outputs = called.forward(arrays)
    for target, output in zip(targets, outputs, strict=True):
        if target is not None:
            target[...] = output
