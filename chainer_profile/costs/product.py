"""Matrix products: linear layers, products of matrices and tensors, embeddings.

A product over k terms counts k multiply-adds, 2 k operations, the first addition (to zero)
included.
"""

from __future__ import annotations

import math

from chainer_profile.costs.counting import Array, Call, Shape
from chainer_profile.costs.registry import backward, forward

Gradients = tuple[Array | None, ...]

_LINEAR = "connection.linear."
_MATMUL = "math.matmul."
_SPARSE = "math.sparse_matmul."


@forward(_LINEAR + "LinearFunction")
def linear(c: Call) -> Array:
    """Batch x inputs x outputs multiply-adds, and a bias an output element."""
    x, w = c.x[:2]
    shape = (x.shape[0], w.shape[0])
    y = c.products(math.prod(shape) * w.shape[1], x, w, shape=shape)
    return y + c.x[2] if len(c.x) == 3 else y


@forward(_LINEAR + "LinearGradData")
def linear_gradient_of_x(c: Call) -> Array:
    """Multiply-adds of gy W; a row of its own only in double backpropagation."""
    w, gy = c.x
    return c.matmul(gy, w)


@forward(_LINEAR + "LinearGradWeight")
def linear_gradient_of_w(c: Call) -> Array:
    """Multiply-adds of gy^T x; a row of its own only in double backpropagation."""
    x, gy = c.x
    shape = (gy.shape[1], x.shape[1])
    return c.products(math.prod(shape) * gy.shape[0], x, gy, shape=shape)


@forward("connection.bilinear.BilinearFunction")
def bilinear(c: Call) -> Array:
    """Outer products (batch x J x K), their product with W (batch x J x K x L), linear terms.

    The outer products are multiplications alone; each linear term is a product and an addition.
    """
    e1, e2 = (_as_matrix(array) for array in c.x[:2])
    w = c.x[2]
    n, j, k = e1.shape[0], e1.shape[1], e2.shape[1]
    c.count(n * j * k)
    y = c.products(n * w.size, e1, e2, w, shape=(n, w.shape[2]))
    if len(c.x) == 6:
        v1, v2, b = c.x[3:]
        y = y + c.matmul(e1, v1) + c.matmul(e2, v2) + b
    return y


@backward("connection.bilinear.BilinearFunction")
def bilinear_backward(c: Call) -> Gradients:
    """W: outer products and their product with gy; e1, e2: gy W once, then a sum over the other.

    With linear terms also theirs, as of a linear layer.
    """
    e1, e2 = (_as_matrix(array) for array in c.x[:2])
    w = c.x[2]
    (gy,) = c.gy
    n, j, k = e1.shape[0], e1.shape[1], e2.shape[1]
    gradients: list[Array | None] = [None] * len(c.x)
    if c.needs(0) or c.needs(1):
        c.products(n * w.size, gy, w)
    for i, other in ((0, e2), (1, e1)):
        if c.needs(i):
            gradients[i] = c.products(n * j * k, other, shape=c.x[i].shape)
    if c.needs(2):
        c.count(n * j * k)
        gradients[2] = c.products(n * w.size, e1, e2, gy, shape=w.shape)
    if len(c.x) == 6:
        for i, e in ((0, e1), (1, e2)):
            v = c.x[3 + i]
            if c.needs(i):
                product = c.products(n * v.size, gy, v)
                gradients[i] = c.count(e.size, product, shape=c.x[i].shape)
            if c.needs(3 + i):
                gradients[3 + i] = c.products(n * v.size, e, gy, shape=v.shape)
        if c.needs(5):
            gradients[5] = gy.sum(0)
    return tuple(gradients)


def _as_matrix(array: Array) -> Array:
    return array.view((array.shape[0], math.prod(array.shape[1:])))


@forward(_MATMUL + "MatMul")
def matmul(c: Call) -> Array:
    """Elements of the product x length of the sums multiply-adds; stacks of matrices broadcast."""
    a, b = c.x
    y = c.outputs[0]
    return c.products(y.size * _inner(c, a), a, b, shape=y.shape)


def _inner(c: Call, a: Array) -> int:
    """Length of the sums of a product; whether its result is transposed makes no difference."""
    return a.shape[-2] if c.f.transa and a.ndim > 1 else a.shape[-1]


@forward(_MATMUL + "BatchMatMul")
def batch_matmul(c: Call) -> Array:
    """Elements of the product x length of the sums multiply-adds."""
    a, b = c.x
    inner = a.shape[1] if c.f.transa else math.prod(a.shape[2:])
    y = c.outputs[0]
    return c.products(y.size * inner, a, b, shape=y.shape)


@backward(_MATMUL + "BatchMatMul")
def batch_matmul_backward(c: Call) -> Gradients:
    """As many multiply-adds as forward for each input."""
    a, b = c.x
    (gy,) = c.gy
    macs = gy.size * (a.shape[1] if c.f.transa else math.prod(a.shape[2:]))
    return tuple(
        c.products(macs, gy, other, shape=array.shape) if c.needs(i) else None
        for i, (array, other) in enumerate(((a, b), (b, a)))
    )


@forward("math.tensordot.TensorDot")
def tensordot(c: Call) -> Array:
    """Elements of the product x elements summed over multiply-adds."""
    a, b = c.x
    y = c.outputs[0]
    return c.products(_tensordot_macs(c, a, b), a, b, shape=y.shape)


def _tensordot_macs(c: Call, a: Array, b: Array) -> int:
    """Of r x k, k x n and r x n elements the product is (r k n) squared."""
    return math.isqrt(a.size * b.size * c.outputs[0].size)


@forward("math.einsum.EinSum")
def einsum(c: Call) -> Array:
    """Places of all indices x operands operations, as one sum over all of them at once.

    For each place that is one multiplication for every operand after the first and one addition
    (to zero at first). With two operands these are multiply-adds; with one, additions alone.
    Chainer may contract three and more operands in steps, which is less work.
    """
    return _einsum(c, list(c.x), c.f.in_subs.split(","), c.f.out_sub, c.outputs[0].shape)


def _einsum(c: Call, operands: list[Array], subs: list[str], out: str, shape: Shape) -> Array:
    """Count a sum over all places of the operands' indices; without one it is a copy."""
    sizes: dict[str, int] = {}
    for operand, sub in zip(operands, subs, strict=True):
        for letter, n in _named_axes(sub, operand.shape):
            sizes[letter] = max(n, sizes.get(letter, 1))
    places = math.prod(sizes.values())
    # Letters of the result that no operand has: its diagonal, or elements that stay zero.
    kept = math.prod(n for letter, n in sizes.items() if letter[0] in out)
    if len(operands) == 1:
        return c.count(max(0, places - kept), *operands, shape=shape)
    if len(operands) == 2 and places > kept:
        return c.products(places, *operands, shape=shape)
    additions = places if places > kept else 0
    return c.count((len(operands) - 1) * places + additions, *operands, shape=shape)


def _named_axes(sub: str, shape: Shape) -> list[tuple[str, int]]:
    """Names of an operand's axes; those of an ellipsis (``@``) count from the last."""
    before, ellipsis, after = sub.partition("@")
    names = list(before)
    if ellipsis:
        n = len(shape) - len(before) - len(after)
        names += [f"@{n - i}" for i in range(n)]
    return list(zip(names + list(after), shape, strict=True))


@forward(_SPARSE + "CooMatMul")
def sparse_matmul(c: Call) -> Array:
    """Stored elements x columns of the product multiply-adds; the indices are read as well."""
    sparse, dense = c.x
    _take_indices(c, sparse)
    return c.products(sparse.size * _columns(c, dense), sparse, dense, shape=c.outputs[0].shape)


@backward(_SPARSE + "CooMatMul")
def sparse_matmul_backward(c: Call) -> Gradients:
    """As many multiply-adds as forward for each input, at the stored places alone.

    On the CPU Chainer makes the full product for the sparse input's gradient and then picks.
    """
    sparse, dense = c.x
    macs = sparse.size * _columns(c, dense)
    _take_indices(c, sparse)
    return (
        c.products(macs, c.gy[0], dense, shape=sparse.shape) if c.needs(0) else None,
        c.products(macs, c.gy[0], sparse, shape=dense.shape) if c.needs(1) else None,
    )


def _columns(c: Call, dense: Array) -> int:
    return dense.shape[-2] if c.f.transb else dense.shape[-1]


def _take_indices(c: Call, sparse: Array) -> None:
    c.take(c.kept("sp_row", sparse.shape, "int32"), c.kept("sp_col", sparse.shape, "int32"))


@forward("connection.embed_id.EmbedIDFunction")
def embed_id(c: Call) -> Array:
    """No operation: copies a row of W for each index, and reads no other."""
    x, w = c.x
    y = c.outputs[0]
    c.take(x)
    c.take_part(w, y.size)
    return c.new(y.shape)


@forward("connection.embed_id.EmbedIDGrad")
def embed_id_gradient(c: Call) -> Array:
    """An addition for each element of gy; a row of its own only in double backpropagation."""
    x, gy = c.x
    return c.count(gy.size, x, gy, shape=c.outputs[0].shape)


@forward("noise.simplified_dropconnect.SimplifiedDropconnect")
def dropconnect(c: Call) -> Array:
    """A mask of W (of each example) drawn and compared, W scaled, the product, and a bias.

    Multiplying by the mask is choosing.
    """
    x, w = _as_matrix(c.x[0]), c.x[1]
    n = x.shape[0]
    masks = (n, *w.shape) if c.f.use_batchwise_mask else w.shape
    drawn = c.random("mask", masks) >= 0
    y = c.products(n * w.size, x, c.where(drawn, w * 1.0, 0), shape=(n, w.shape[0]))
    return y + c.x[2] if len(c.x) == 3 else y


@backward("noise.simplified_dropconnect.SimplifiedDropconnect")
def dropconnect_backward(c: Call) -> Gradients:
    """x: W scaled, masked, and a product; W: outer products, masked, summed, scaled; b: a sum."""
    x, w = _as_matrix(c.x[0]), c.x[1]
    (gy,) = c.gy
    n = x.shape[0]
    mask = c.kept("mask", (n, *w.shape), "bool")
    gx = gw = None
    if c.needs(0):
        gx = c.products(n * w.size, gy, c.where(mask, w * 1.0, 0), shape=c.x[0].shape)
    if c.needs(1):
        outer = c.count(n * w.size, gy, x, shape=(n, *w.shape))
        gw = c.where(mask, outer, 0).sum(0) * 1.0
    if len(c.x) < 3:
        return gx, gw
    return gx, gw, gy.sum(0) if c.needs(2) else None
