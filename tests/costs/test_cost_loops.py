"""Products, convolutions and pooling against loops in plain Python that count each operation.

A loop computes on numbers that count, so its result is compared with Chainer's as well.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.costs.test_cost_cases import CASES, case
from tests.costs.test_cost_harness import (
    Loop,
    Place,
    Tally,
    Zeros,
    adding_to,
    at,
    check_backward,
    check_forward,
    total,
)

FORWARD: dict[str, Loop] = {}
BACKWARD: dict[str, Loop] = {}
forward, backward = adding_to(FORWARD), adding_to(BACKWARD)


# -- convolutions

CONVOLUTIONS = [name for name in CASES if name.startswith("convolution")]
DECONVOLUTIONS = [name for name in CASES if name.startswith("deconvolution")]


def setup(f: Any, n_axes: int) -> Iterator[tuple[int, int, int]]:
    """Stride, padding and dilation of each axis."""
    if hasattr(f, "stride"):
        return zip(f.stride, f.pad, f.dilate, strict=True)
    return iter([(f.sy, f.ph, f.dy), (f.sx, f.pw, f.dx)])


def taps(f: Any, coarse: Place, w: Any) -> Iterator[tuple[Place, Place, Place]]:
    """Each place of a convolution's output, of its kernel, and the input place they meet at."""
    axes = list(setup(f, len(coarse)))
    for place in itertools.product(*map(range, coarse)):
        for kernel in itertools.product(*map(range, w.shape[2:])):
            fine = tuple(
                p * s - pad + k * d for p, k, (s, pad, d) in zip(place, kernel, axes, strict=True)
            )
            yield place, kernel, fine


def channels(w: Any, groups: int) -> Iterator[tuple[int, int, int]]:
    """Each first channel of a kernel, second channel within its group, and that of the array."""
    for o in range(w.shape[0]):
        for i in range(w.shape[1]):
            yield o, i, o // (w.shape[0] // groups) * w.shape[1] + i


def add_bias(y: Any, b: Any) -> Any:
    for place in np.ndindex(*y.shape):
        y[place] = y[place] + b[place[1]]
    return y


def bias_gradient(gy: Any) -> Any:
    return np.array([total(list(gy[:, c].ravel())) for c in range(gy.shape[1])], object)


@forward(*CONVOLUTIONS)
def convolution(t: Tally, f: Any, y: Place, x: Any, w: Any, b: Any = None) -> Any:
    out = Zeros(y, t)
    for n in range(x.shape[0]):
        for o, i, c in channels(w, f.groups):
            for p, k, q in taps(f, y[2:], w):
                out.add((n, o, *p), at(x, (n, c, *q)) * w[(o, i, *k)])
    return out.array if b is None else add_bias(out.array, b)


@backward(*CONVOLUTIONS)
def convolution_backward(t: Tally, f: Any, gy: Any, x: Any, w: Any, b: Any = None) -> Any:
    gx, gw = Zeros(x.shape, t), Zeros(w.shape, t)
    for n in range(x.shape[0]):
        for o, i, c in channels(w, f.groups):
            for p, k, q in taps(f, gy.shape[2:], w):
                gx.add((n, c, *q), gy[(n, o, *p)] * w[(o, i, *k)])
                gw.add((o, i, *k), gy[(n, o, *p)] * at(x, (n, c, *q)))
    return gx.array, gw.array, *(() if b is None else (bias_gradient(gy),))


@forward(*DECONVOLUTIONS)
def deconvolution(t: Tally, f: Any, y: Place, x: Any, w: Any, b: Any = None) -> Any:
    out = Zeros(y, t)
    for n in range(x.shape[0]):
        for i, o, c in channels(w, f.groups):
            for p, k, q in taps(f, x.shape[2:], w):
                out.add((n, c, *q), x[(n, i, *p)] * w[(i, o, *k)])
    return out.array if b is None else add_bias(out.array, b)


@backward(*DECONVOLUTIONS)
def deconvolution_backward(t: Tally, f: Any, gy: Any, x: Any, w: Any, b: Any = None) -> Any:
    gx, gw = Zeros(x.shape, t), Zeros(w.shape, t)
    for n in range(x.shape[0]):
        for i, o, c in channels(w, f.groups):
            for p, k, q in taps(f, x.shape[2:], w):
                gx.add((n, i, *p), at(gy, (n, c, *q)) * w[(i, o, *k)])
                gw.add((i, o, *k), at(gy, (n, c, *q)) * x[(n, i, *p)])
    return gx.array, gw.array, *(() if b is None else (bias_gradient(gy),))


@forward("local_convolution")
def local_convolution(t: Tally, f: Any, y: Place, x: Any, w: Any, b: Any) -> Any:
    out = Zeros(y, t)
    for n, o, r, s in np.ndindex(*y):
        for i, j, k in np.ndindex(*w.shape[3:]):
            out.add((n, o, r, s), x[n, i, r + j, s + k] * w[o, r, s, i, j, k])
        out.array[n, o, r, s] = out.array[n, o, r, s] + b[o, r, s]
    return out.array


@backward("local_convolution")
def local_convolution_backward(t: Tally, f: Any, gy: Any, x: Any, w: Any, b: Any) -> Any:
    gx, gw = Zeros(x.shape, t), Zeros(w.shape, t)
    for n, o, r, s in np.ndindex(*gy.shape):
        for i, j, k in np.ndindex(*w.shape[3:]):
            gx.add((n, i, r + j, s + k), gy[n, o, r, s] * w[o, r, s, i, j, k])
            gw.add((o, r, s, i, j, k), gy[n, o, r, s] * x[n, i, r + j, s + k])
    gb = np.empty(b.shape, object)
    for place in np.ndindex(*b.shape):
        gb[place] = total(list(gy[(slice(None), *place)]))
    return gx.array, gw.array, gb


# -- products


def einsum(t: Tally, subscripts: str, *operands: Any) -> Any:
    """Every place of all indices: products, added up where a sum remains."""
    ins, out = subscripts.split("->")
    subs = ins.split(",")
    sizes = {
        letter: n
        for sub, operand in zip(subs, operands, strict=True)
        for letter, n in zip(sub, operand.shape, strict=True)
    }
    letters = sorted(sizes)
    result = Zeros(tuple(sizes[letter] for letter in out), t)
    filled = np.zeros(result.array.shape, bool)
    for indices in itertools.product(*(range(sizes[letter]) for letter in letters)):
        where = dict(zip(letters, indices, strict=True))
        elements = [
            operand[tuple(where[letter] for letter in sub)]
            for sub, operand in zip(subs, operands, strict=True)
        ]
        product = elements[0]
        for element in elements[1:]:
            product = product * element
        place = tuple(where[letter] for letter in out)
        # The first addition of a sum of products is to zero; a sum of elements needs none.
        if len(letters) == len(out) or (len(operands) == 1 and not filled[place]):
            result.array[place] = product
        else:
            result.add(place, product)
        filled[place] = True
    return result.array


PRODUCTS = {
    "linear_no_bias": "nc,oc->no",
    "matmul": "ij,jk->ik",
    "matmul_transposed": "ji,kj->ik",
    "matmul_stack": "nij,njk->nik",
    "matmul_vector": "ij,j->i",
    "vector_matmul": "j,jk->k",
    "vector_vector": "j,j->",
    "batch_matmul": "nij,njk->nik",
    "tensordot": "iab,abk->ik",
    "einsum": "nij,njk->nik",
    "einsum_outer": "i,j->ij",
    "einsum_trace": "ii->",
    "einsum_three": "i,ij,j->",
    "einsum_ellipsis": "abi,i->ab",
}


def product(name: str) -> tuple[Loop, Loop]:
    ins, out = PRODUCTS[name].split("->")
    subs = ins.split(",")

    def forward_loop(t: Tally, f: Any, y: Place, *operands: Any) -> Any:
        return einsum(t, PRODUCTS[name], *operands)

    def backward_loop(t: Tally, f: Any, gy: Any, *operands: Any) -> Any:
        return tuple(
            einsum(
                t,
                ",".join([*subs[:i], out, *subs[i + 1 :]]) + "->" + subs[i],
                *operands[:i],
                gy,
                *operands[i + 1 :],
            )
            for i in range(len(operands))
        )

    return forward_loop, backward_loop


for _name in PRODUCTS:
    FORWARD[_name], BACKWARD[_name] = product(_name)
# The gradient of a trace is no sum: the diagonal is filled with it.
del BACKWARD["einsum_trace"]


@forward("matmul_broadcast")
def matmul_broadcast(t: Tally, f: Any, y: Place, a: Any, b: Any) -> Any:
    return einsum(t, "nij,jk->nik", a, b)


@backward("matmul_broadcast")
def matmul_broadcast_backward(t: Tally, f: Any, gy: Any, a: Any, b: Any) -> Any:
    each = einsum(t, "nij,nik->njk", a, gy)
    gb = np.empty(b.shape, object)
    for place in np.ndindex(*b.shape):
        gb[place] = total(list(each[(slice(None), *place)]))
    return einsum(t, "nik,jk->nij", gy, b), gb


@forward("batch_matmul_vector")
def batch_matmul_vector(t: Tally, f: Any, y: Place, a: Any, b: Any) -> Any:
    return einsum(t, "nji,njk->nik", a, b[:, :, None])


@backward("batch_matmul_vector")
def batch_matmul_vector_backward(t: Tally, f: Any, gy: Any, a: Any, b: Any) -> Any:
    ga = einsum(t, "nik,njk->nji", gy, b[:, :, None])
    return ga, einsum(t, "nik,nji->njk", gy, a)[:, :, 0]


@forward("linear")
def linear(t: Tally, f: Any, y: Place, x: Any, w: Any, b: Any) -> Any:
    return add_bias(einsum(t, "nc,oc->no", x, w), b)


@backward("linear")
def linear_backward(t: Tally, f: Any, gy: Any, x: Any, w: Any, b: Any) -> Any:
    gx, gw = einsum(t, "no,oc->nc", gy, w), einsum(t, "no,nc->oc", gy, x)
    return gx, gw, bias_gradient(gy)


@forward("bilinear", "bilinear_no_bias")
def bilinear(t: Tally, f: Any, y: Place, e1: Any, e2: Any, w: Any, *linear: Any) -> Any:
    out = einsum(t, "njk,jkl->nl", einsum(t, "nj,nk->njk", e1, e2), w)
    if linear:
        v1, v2, b = linear
        out = add_bias(out + einsum(t, "nj,jl->nl", e1, v1) + einsum(t, "nk,kl->nl", e2, v2), b)
    return out


@backward("bilinear", "bilinear_no_bias")
def bilinear_backward(t: Tally, f: Any, gy: Any, e1: Any, e2: Any, w: Any, *linear: Any) -> Any:
    gyw = einsum(t, "nl,jkl->njk", gy, w)
    ge1, ge2 = einsum(t, "njk,nk->nj", gyw, e2), einsum(t, "njk,nj->nk", gyw, e1)
    gw = einsum(t, "njk,nl->jkl", einsum(t, "nj,nk->njk", e1, e2), gy)
    if not linear:
        return ge1, ge2, gw
    v1, v2, _ = linear
    ge1 = ge1 + einsum(t, "nl,jl->nj", gy, v1)
    ge2 = ge2 + einsum(t, "nl,kl->nk", gy, v2)
    gv1, gv2 = einsum(t, "nj,nl->jl", e1, gy), einsum(t, "nk,nl->kl", e2, gy)
    return ge1, ge2, gw, gv1, gv2, bias_gradient(gy)


@forward("sparse_matmul")
def sparse_matmul(t: Tally, f: Any, y: Place, a: Any, b: Any) -> Any:
    out = Zeros(y, t)
    for element, row, column in zip(a, f.sp_row, f.sp_col, strict=True):
        for k in range(b.shape[1]):
            out.add((int(row), k), element * b[column, k])
    return out.array


@backward("sparse_matmul")
def sparse_matmul_backward(t: Tally, f: Any, gy: Any, a: Any, b: Any) -> Any:
    ga, gb = Zeros(a.shape, t), Zeros(b.shape, t)
    for i, (row, column) in enumerate(zip(f.sp_row, f.sp_col, strict=True)):
        for k in range(b.shape[1]):
            ga.add((i,), gy[row, k] * b[column, k])
            gb.add((int(column), k), gy[row, k] * a[i])
    return ga.array, gb.array


@backward("embed_id")
def embed_id_backward(t: Tally, f: Any, gy: Any, x: Any, w: Any) -> Any:
    gw = Zeros(w.shape, t)
    for place in np.ndindex(*gy.shape):
        gw.add((int(float(x[place[:-1]])), place[-1]), gy[place])
    return None, gw.array


@backward("im2col")
def im2col_backward(t: Tally, f: Any, gy: Any, x: Any) -> Any:
    gx = Zeros(x.shape, t)
    by_kernel = gy.reshape((x.shape[0], x.shape[1], f.kh, f.kw, *gy.shape[2:]))
    for n, c, ky, kx, py, px in np.ndindex(*by_kernel.shape):
        gx.add((n, c, py + ky, px + kx), by_kernel[n, c, ky, kx, py, px])
    return gx.array


@pytest.mark.parametrize("name", FORWARD)
def test_forward_is_what_a_loop_counts(name: str) -> None:
    check_forward(case(name), FORWARD[name])


@pytest.mark.parametrize("name", BACKWARD)
def test_backward_is_what_a_loop_counts(name: str) -> None:
    check_backward(case(name), BACKWARD[name])


@pytest.mark.parametrize("name", [*CONVOLUTIONS, *DECONVOLUTIONS, "linear", *PRODUCTS])
def test_only_the_products_are_multiply_adds(name: str) -> None:
    ran = case(name)
    forward, backward = ran.forward(), ran.backward()
    biases = math.prod(ran.outputs[0].shape) if len(ran.inputs) == 3 and "einsum" not in name else 0
    if name in ("einsum_outer", "einsum_trace", "einsum_three"):
        assert forward.macs == 0
        return
    assert 2 * forward.macs == forward.flops - biases
    assert 2 * backward.macs <= backward.flops
