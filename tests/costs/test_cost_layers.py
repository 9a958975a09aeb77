"""Pooling and normalisation against loops in plain Python that count each operation."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from tests.costs.test_cost_cases import case
from tests.costs.test_cost_harness import (
    Loop,
    Number,
    Place,
    Tally,
    Zeros,
    adding_to,
    apply,
    at,
    check_backward,
    check_forward,
    largest,
    like,
    numbers,
    total,
)

FORWARD: dict[str, Loop] = {}
BACKWARD: dict[str, Loop] = {}
forward, backward = adding_to(FORWARD), adding_to(BACKWARD)


# -- pooling


def windows(f: Any, coarse: Place) -> Any:
    """Each place of the coarse map, and the places of its window in the fine one."""
    if hasattr(f, "ksize"):
        axes = list(zip(f.ksize, f.stride, f.pad, strict=True))
    else:
        axes = [(f.kh, f.sy, f.ph), (f.kw, f.sx, f.pw)]
    for n, c, *place in np.ndindex(*coarse):
        ranges = (
            range(p * s - pad, p * s - pad + k) for p, (k, s, pad) in zip(place, axes, strict=True)
        )
        yield (n, c, *place), [(n, c, *q) for q in itertools.product(*ranges)]


AVERAGE = ("average_pooling", "average_pooling_global", "average_pooling_nd")
MAX = ("max_pooling", "max_pooling_floor")


def divisor(f: Any, shape: Place, window: list[Place]) -> int:
    if getattr(f, "pad_value", 0) is None:
        return sum(all(0 <= p < n for p, n in zip(q, shape, strict=True)) for q in window)
    return len(window)


@forward(*AVERAGE)
def average_pooling(t: Tally, f: Any, y: Place, x: Any) -> Any:
    out = np.empty(y, object)
    for place, window in windows(f, y):
        out[place] = total([at(x, q) for q in window]) / divisor(f, x.shape, window)
    return out


@backward(*AVERAGE)
def average_pooling_backward(t: Tally, f: Any, gy: Any, x: Any) -> Any:
    gx = Zeros(x.shape, t)
    for place, window in windows(f, gy.shape):
        share = gy[place] / divisor(f, x.shape, window)
        for q in window:
            gx.add(q, share)
    return gx.array


def at_least(array: Any, place: Place) -> Number:
    inside = all(0 <= p < n for p, n in zip(place, array.shape, strict=True))
    return array[place] if inside else Number(-math.inf, array.flat[0].tally)


@forward(*MAX)
def max_pooling(t: Tally, f: Any, y: Place, x: Any) -> Any:
    out = np.empty(y, object)
    for place, window in windows(f, y):
        out[place], _ = largest([at_least(x, q) for q in window])
    return out


@backward(*MAX)
def max_pooling_backward(t: Tally, f: Any, gy: Any, x: Any) -> Any:
    gx = Zeros(x.shape, t)
    for place, window in windows(f, gy.shape):
        # Where the maximum is was found in forward.
        gx.add(max(window, key=lambda q: at_least(x, q).value), gy[place])
    return gx.array


@forward("unpooling_overlap", "unpooling_nd")
def unpooling(t: Tally, f: Any, y: Place, x: Any) -> Any:
    out = Zeros(y, t)
    for place, window in windows(f, x.shape):
        for q in window:
            out.add(q, x[place])
    return out.array


@backward("unpooling", "unpooling_overlap", "unpooling_nd")
def unpooling_backward(t: Tally, f: Any, gy: Any, x: Any) -> Any:
    gx = like(x)
    for place, window in windows(f, x.shape):
        gx[place] = total([at(gy, q) for q in window])
    return gx


def bins(f: Any, x: Any) -> Any:
    """Regions of the cases cover the map, and their bins share it evenly."""
    _, _, height, width = x.shape
    h, w = height // f.outh, width // f.outw
    for i, j in np.ndindex(f.outh, f.outw):
        yield (i, j), list(itertools.product(range(i * h, i * h + h), range(j * w, j * w + w)))


ROI_MAX = ("roi_pooling", "roi_max_pooling")


def region_images(f: Any, arrays: tuple[Any, ...]) -> list[int]:
    indices = arrays[1] if len(arrays) == 2 else arrays[0][:, 0]
    return [int(float(i)) for i in indices]


@forward(*ROI_MAX, "roi_average_pooling")
def roi_pooling(t: Tally, f: Any, y: Place, x: Any, *regions: Any) -> Any:
    out = np.empty(y, object)
    for r, n in enumerate(region_images(f, regions)):
        for c in range(x.shape[1]):
            for place, window in bins(f, x):
                elements = [x[(n, c, *q)] for q in window]
                is_average = "Average" in type(f).__name__
                out[(r, c, *place)] = (
                    total(elements) / len(elements) if is_average else largest(elements)[0]
                )
    return out


@backward(*ROI_MAX, "roi_average_pooling")
def roi_pooling_backward(t: Tally, f: Any, gy: Any, x: Any, *regions: Any) -> Any:
    gx = Zeros(x.shape, t)
    for r, n in enumerate(region_images(f, regions)):
        for c in range(x.shape[1]):
            for place, window in bins(f, x):
                g = gy[(r, c, *place)]
                if "Average" in type(f).__name__:
                    share = g / len(window)
                    for q in window:
                        gx.add((n, c, *q), share)
                else:
                    gx.add((n, c, *max(window, key=lambda q: x[(n, c, *q)].value)), g)
    return (gx.array, *(None for _ in regions))


@forward("resize_images")
def resize_images(t: Tally, f: Any, y: Place, x: Any) -> Any:
    out = Zeros(y, t)
    for i, j in np.ndindex(*y[2:]):
        v, u = (p * (n - 1) / (m - 1) for p, n, m in zip((i, j), x.shape[2:], y[2:], strict=True))
        vw, uw = Number(v % 1, t), Number(u % 1, t)
        w01 = uw
        w00 = 1 - w01
        w10, w11 = w00 * vw, w01 * vw
        w00, w01 = w00 - w10, w01 - w11
        rows = int(v), min(int(v) + 1, x.shape[2] - 1)
        columns = int(u), min(int(u) + 1, x.shape[3] - 1)
        for n, c in np.ndindex(*y[:2]):
            for w, row, column in zip(
                (w00, w01, w10, w11), np.repeat(rows, 2), columns * 2, strict=True
            ):
                out.add((n, c, i, j), w * x[n, c, row, column])
    return out.array


# -- normalisation


def statistics(elements: list[Number]) -> tuple[Number, Number]:
    mean = total(elements) / len(elements)
    squares = []
    for e in elements:
        difference = e - mean
        squares.append(difference * difference)
    return mean, total(squares) / len(elements)


@forward("batch_normalization", "batch_normalization_running")
def batch_normalization(t: Tally, f: Any, y: Place, x: Any, gamma: Any, beta: Any) -> Any:
    out = np.empty(y, object)
    for c in range(x.shape[1]):
        mean, variance = statistics(list(x[:, c].ravel()))
        inv_std = 1 / apply(math.sqrt, variance + f.eps)
        for n, p in np.ndindex(x.shape[0], x.shape[2]):
            out[n, c, p] = (x[n, c, p] - mean) * inv_std * gamma[c] + beta[c]
        for running in (f.running_mean, f.running_var):
            if running is not None:  # already updated: it is the count that matters
                _ = Number(running[c], t) * f.decay + mean * (1 - f.decay)
    return out


@forward("fixed_batch_normalization")
def fixed_batch_normalization(t: Tally, f: Any, y: Place, *arrays: Any) -> Any:
    x, gamma, beta, mean, variance = arrays
    out = np.empty(y, object)
    for c in range(x.shape[1]):
        inv_std = apply(math.sqrt, 1 / (variance[c] + f.eps))
        for n, p in np.ndindex(x.shape[0], x.shape[2]):
            out[n, c, p] = (x[n, c, p] - mean[c]) * inv_std * gamma[c] + beta[c]
    return out


@backward("batch_normalization", "batch_normalization_running")
def batch_normalization_backward(t: Tally, f: Any, gy: Any, x: Any, gamma: Any, _: Any) -> Any:
    gx, ggamma, gbeta = like(x), like(gamma), like(gamma)
    mean, inv_std = numbers(f.mean, t), numbers(f.inv_std, t)
    for c in range(x.shape[1]):
        places = [(n, c, p) for n, p in np.ndindex(x.shape[0], x.shape[2])]
        x_hat = {q: (x[q] - mean[c]) * inv_std[c] for q in places}
        gbeta[c] = total([gy[q] for q in places])
        ggamma[c] = total([gy[q] * x_hat[q] for q in places])
        scale = gamma[c] * inv_std[c]
        for q in places:
            gx[q] = scale * (gy[q] - (x_hat[q] * ggamma[c] + gbeta[c]) * (1 / len(places)))
    return gx, ggamma, gbeta


def neighbours(f: Any, x: Any, n: int, c: int, p: int) -> Number:
    half = f.n // 2
    near = range(max(0, c - half), min(x.shape[1], c + half + 1))
    return total([x[n, k, p] for k in near])


@forward("local_response_normalization")
def local_response_normalization(t: Tally, f: Any, y: Place, x: Any) -> Any:
    squares, out = like(x), like(x)
    for q in np.ndindex(*y):
        squares[q] = apply(lambda v: v * v, x[q])
    for q in np.ndindex(*y):
        out[q] = x[q] * (f.k + f.alpha * neighbours(f, squares, *q)) ** -f.beta
    return out


@backward("local_response_normalization")
def local_response_normalization_backward(t: Tally, f: Any, gy: Any, x: Any) -> Any:
    unit, scale = numbers(f.unit_scale, t), numbers(f.scale, t)
    y = np.vectorize(lambda a, b: Number(float(a) * float(b), t), otypes=[object])(x, scale)
    summand, gx = like(x), like(x)
    for q in np.ndindex(*x.shape):
        summand[q] = y[q] * gy[q] / unit[q]
    for q in np.ndindex(*x.shape):
        gx[q] = gy[q] * scale[q] - 2 * f.alpha * f.beta * x[q] * neighbours(f, summand, *q)
    return gx


@pytest.mark.parametrize("name", FORWARD)
def test_forward_is_what_a_loop_counts(name: str) -> None:
    check_forward(case(name), FORWARD[name])


@pytest.mark.parametrize("name", BACKWARD)
def test_backward_is_what_a_loop_counts(name: str) -> None:
    check_backward(case(name), BACKWARD[name])
