"""Losses and recurrent cells against loops in plain Python that count each operation."""

from __future__ import annotations

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
    check_backward,
    check_forward,
    largest,
    like,
    numbers,
    total,
)
from tests.costs.test_cost_loops import einsum

FORWARD: dict[str, Loop] = {}
BACKWARD: dict[str, Loop] = {}
forward, backward = adding_to(FORWARD), adding_to(BACKWARD)


def exp(x: Number) -> Number:
    return apply(math.exp, x)


def log(x: Number) -> Number:
    return apply(math.log, x)


def tanh(x: Number) -> Number:
    return apply(math.tanh, x)


def sigmoid(x: Number) -> Number:
    result: Number = tanh(x * 0.5) * 0.5 + 0.5
    return result


def relu(x: Number) -> Number:
    return x if x > 0 else Number(0.0, x.tally)


# -- losses

CROSS_ENTROPY = (
    "softmax_cross_entropy",
    "softmax_cross_entropy_weight",
    "softmax_cross_entropy_no",
)


def label(t: Any, *place: int) -> int:
    return int(float(t[place]))


@forward(*CROSS_ENTROPY)
def softmax_cross_entropy(tally: Tally, f: Any, y: Place, x: Any, t: Any) -> Any:
    losses = like(t)
    for place in np.ndindex(*t.shape):
        n, *rest = place
        row = [x[(n, c, *rest)] for c in range(x.shape[1])]
        m, _ = largest(row)
        log_z = m + log(total([exp(e - m) for e in row]))
        log_y = [e - log_z for e in row]
        for e in log_y:
            exp(e)
        if f.class_weight is not None:
            log_y = [e * w for e, w in zip(log_y, f.class_weight, strict=True)]
        losses[place] = log_y[label(t, *place)]
    if f.reduce == "mean":
        return np.array(total(list(losses.ravel())) * (-1 / losses.size), object)
    for place in np.ndindex(*t.shape):
        losses[place] = -losses[place]
    return losses


@backward(*CROSS_ENTROPY)
def softmax_cross_entropy_backward(tally: Tally, f: Any, gy: Any, x: Any, t: Any) -> Any:
    gx = numbers(f.y, tally)
    factor = gy.item() * (1 / t.size) if f.reduce == "mean" else None
    for place in np.ndindex(*t.shape):
        n, *rest = place
        c = label(t, *place)
        gx[(n, c, *rest)] = gx[(n, c, *rest)] - 1
        for k in range(x.shape[1]):
            q = (n, k, *rest)
            if f.class_weight is not None:
                gx[q] = gx[q] * f.class_weight[c]
            gx[q] = gx[q] * (gy[place] if factor is None else factor)
    return gx, None


@forward("hinge", "hinge_l2")
def hinge(tally: Tally, f: Any, y: Place, x: Any, t: Any) -> Any:
    losses = like(x)
    for n, c in np.ndindex(*x.shape):
        signed = -x[n, c] if c == label(t, n) else x[n, c]
        losses[n, c] = relu(signed + 1)
        if f.norm == "L2":
            losses[n, c] = losses[n, c] ** 2
    if f.reduce == "no":
        return losses
    return np.array(total(list(losses.ravel())) / len(x), object)


@forward("negative_sampling")
def negative_sampling(tally: Tally, f: Any, y: Place, x: Any, t: Any, w: Any) -> Any:
    losses = []
    for n in range(len(x)):
        samples = []
        for i, k in enumerate(f.samples[n]):
            wx = einsum(tally, "d,d->", x[n], w[k]).item()
            samples.append(apply(lambda v: math.log1p(math.exp(v)), -wx if i == 0 else wx))
        losses.append(total(samples))
    return np.array(total(losses), object)


@backward("negative_sampling")
def negative_sampling_backward(tally: Tally, f: Any, gy: Any, x: Any, t: Any, w: Any) -> Any:
    gx, gw = Zeros(x.shape, tally), Zeros(w.shape, tally)
    for n in range(len(x)):
        for i, k in enumerate(f.samples[n]):
            wx = einsum(tally, "d,d->", x[n], w[k]).item()
            wx = -wx if i == 0 else wx
            g = gy.item() / (1 + exp(-wx))
            g = -g if i == 0 else g
            for d in range(x.shape[1]):
                gx.add((n, d), g * w[k, d])
                gw.add((int(k), d), g * x[n, d])
    return gx.array, None, gw.array


# -- recurrent cells


def gates(x: Any, n: int, interleaved: bool = True) -> list[Any]:
    if interleaved:
        return [x[:, i::n] for i in range(n)]
    return list(np.split(x, n, axis=1))


def cell_gradients(gx: list[Any], t: Number, place: Place, a: Number, i: Number) -> None:
    gx[0][place] = t * i * (1 - a * a)
    gx[1][place] = t * a * (i * (1 - i))


@forward("lstm")
def lstm(t: Tally, f: Any, y: Place, c_prev: Any, x: Any) -> Any:
    c, h = numbers(np.zeros(c_prev.shape), t), np.empty((len(x), c_prev.shape[1]), object)
    c[len(x) :] = c_prev[len(x) :]
    a, i, forget, o = gates(x, 4)
    for q in np.ndindex(*h.shape):
        c[q] = tanh(a[q]) * sigmoid(i[q]) + sigmoid(forget[q]) * c_prev[q]
        h[q] = sigmoid(o[q]) * tanh(c[q])
    return c, h


@backward("lstm")
def lstm_backward(t: Tally, f: Any, gc: Any, gh: Any, c_prev: Any, x: Any) -> Any:
    gx, gc_prev = like(x), gc.copy()
    a, i, forget, o = gates(x, 4)
    out = gates(gx, 4)
    for q in np.ndindex(*gh.shape):
        ta, si, sf, so = tanh(a[q]), sigmoid(i[q]), sigmoid(forget[q]), sigmoid(o[q])
        # The new state is an output that was retained.
        c = Number(float(ta) * float(si) + float(sf) * float(c_prev[q]), t)
        co = tanh(c)
        g = gh[q] * so * (1 - co * co) + gc[q]
        cell_gradients(out, g, q, ta, si)
        out[2][q] = g * c_prev[q] * (sf * (1 - sf))
        out[3][q] = gh[q] * co * (so * (1 - so))
        gc_prev[q] = g * sf
    return gc_prev, gx


@forward("slstm")
def slstm(t: Tally, f: Any, y: Place, c1: Any, c2: Any, x1: Any, x2: Any) -> Any:
    c, h = like(c1), like(c1)
    (a1, i1, f1, o1), (a2, i2, f2, o2) = gates(x1, 4), gates(x2, 4)
    for q in np.ndindex(*c1.shape):
        c[q] = (
            tanh(a1[q]) * sigmoid(i1[q])
            + tanh(a2[q]) * sigmoid(i2[q])
            + sigmoid(f1[q]) * c1[q]
            + sigmoid(f2[q]) * c2[q]
        )
        h[q] = sigmoid(o1[q] + o2[q]) * tanh(c[q])
    return c, h


@forward("tree_lstm")
def tree_lstm(t: Tally, f: Any, y: Place, *arrays: Any) -> Any:
    *children, x = arrays
    c, h = like(children[0]), like(children[0])
    a, i, o, *forgets = gates(x, 3 + len(children), interleaved=False)
    for q in np.ndindex(*c.shape):
        c[q] = tanh(a[q]) * sigmoid(i[q])
        for forget, child in zip(forgets, children, strict=True):
            c[q] = c[q] + sigmoid(forget[q]) * child[q]
        h[q] = sigmoid(o[q]) * tanh(c[q])
    return c, h


@pytest.mark.parametrize("name", FORWARD)
def test_forward_is_what_a_loop_counts(name: str) -> None:
    check_forward(case(name), FORWARD[name])


@pytest.mark.parametrize("name", BACKWARD)
def test_backward_is_what_a_loop_counts(name: str) -> None:
    check_backward(case(name), BACKWARD[name])
