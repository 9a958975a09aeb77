"""Copies and views: no operations, and bytes only where Chainer copies.

Arrays are taken to be contiguous: reshaping one that is not would copy.
"""

from __future__ import annotations

from typing import Any

from chainer_profile.costs.counting import Array, Call
from chainer_profile.costs.registry import backward, forward

Gradients = tuple[Array | None, ...]

_VIEWS = tuple(
    "array." + name
    for name in (
        "reshape.Reshape",
        "transpose.Transpose",
        "swapaxes.Swapaxes",
        "moveaxis.Moveaxis",
        "rollaxis.Rollaxis",
        "expand_dims.ExpandDims",
        "squeeze.Squeeze",
        "flip.Flip",
        "fliplr.FlipLR",
        "flipud.FlipUD",
    )
)
_COPIES = tuple(
    "array." + name
    for name in (
        "depth2space.Depth2Space",
        "space2depth.Space2Depth",
        "permutate.Permutate",
    )
)
_JOINS = tuple(
    "array." + name
    for name in (
        "concat.Concat",
        "stack.Stack",
        "hstack.Hstack",
        "vstack.Vstack",
        "dstack.Dstack",
        "pad_sequence.PadSequence",
    )
)
_SPLITS = ("array.split_axis.SplitAxis", "array.separate.Separate")
_SEQUENCE = "array.transpose_sequence.TransposeSequence"
_SAMPLER = "array.spatial_transformer_sampler.SpatialTransformerSampler"
_GRID = "array.spatial_transformer_grid.SpatialTransformerGrid"


@forward("math.identity.Identity")
def identity(c: Call) -> tuple[Array, ...]:
    """Nothing: hands its inputs on."""
    return c.x


@forward(*_VIEWS)
def view(c: Call) -> Array:
    """No operation and no bytes: a view."""
    return c.x[0].view(c.outputs[0].shape)


@forward(*_COPIES)
def copy(c: Call) -> Array:
    """No operation: a copy in another order."""
    return c.copy(c.x[0], shape=c.outputs[0].shape)


@forward(*_JOINS)
def join(c: Call) -> Array:
    """No operation: copies all inputs into one array."""
    return c.copy(*c.x, shape=c.outputs[0].shape)


@forward(*_SPLITS)
def split(c: Call) -> Gradients:
    """No operation and no bytes: views of the input."""
    return tuple(c.x[0].view(spec.shape) for spec in c.outputs)


@forward(_SEQUENCE)
def transpose_sequence(c: Call) -> Gradients:
    """No operation: copies each row to another array."""
    return tuple(c.copy(*c.x, shape=spec.shape) for spec in c.outputs)


@forward("array.as_strided.AsStrided", "array.diagonal.Diagonal")
def picked_view(c: Call) -> Array:
    """No operation and no bytes: a view."""
    return c.x[0].view(c.outputs[0].shape)


@backward("array.as_strided.AsStrided")
def as_strided_backward(c: Call) -> Array:
    """An addition for each gradient, at the place that it was a view of."""
    return c.count(c.gy[0].size, c.gy[0], shape=c.x[0].shape)


@backward("array.diagonal.Diagonal")
def diagonal_backward(c: Call) -> Array:
    """No operation: writes zeros, and the gradients to the diagonal."""
    return c.copy(c.gy[0], shape=c.x[0].shape)


@forward("array.cast.Cast")
def cast(c: Call) -> Array:
    """No operation: a copy of another type, or the array itself where the type is the same."""
    same = c.inputs[0].dtype == c.outputs[0].dtype
    return c.x[0] if same else c.copy(c.x[0])


@forward("array.copy.Copy")
def device_copy(c: Call) -> Array:
    """No operation: a copy to another device; on one and the same device the array itself."""
    return c.x[0] if _same_device(c.f) else c.copy(c.x[0])


def _same_device(function: Any) -> bool:
    return bool(function._in_device == function.out_device)


@forward("array.get_item.GetItem")
def get_item(c: Call) -> Array:
    """No operation: a view by slices and numbers; by arrays of indices a copy of those elements."""
    (x,) = c.x
    y = c.outputs[0]
    arrays = [s for s in c.f.slices if not _is_basic(s)]
    if not arrays:
        return x.view(y.shape)
    c.take_part(x, y.size)
    c.take_bytes(sum(int(getattr(s, "nbytes", 0)) for s in arrays))
    return c.new(y.shape)


def _is_basic(index: Any) -> bool:
    if index is None or index is Ellipsis or isinstance(index, (slice, int)):
        return True
    # A number of NumPy is one, a boolean of it is an array of them.
    return getattr(index, "shape", None) == () and str(getattr(index, "dtype", "")) != "bool"


@backward("array.get_item.GetItem")
def get_item_backward(c: Call) -> Array:
    """An addition for each gradient, to an array of zeros."""
    return c.count(c.gy[0].size, c.gy[0], shape=c.x[0].shape)


@forward("array.scatter_add.ScatterAdd")
def scatter_add(c: Call) -> Array:
    """A copy of x0, and an addition for each element of x1."""
    return c.count(c.x[1].size, *c.x, shape=c.x[0].shape)


@forward("array.select_item.SelectItem")
def select_item(c: Call) -> Array:
    """No operation: copies an element of each row."""
    x, t = c.x
    c.take(t)
    c.take_part(x, t.size)
    return c.new(c.outputs[0].shape)


@backward("array.select_item.SelectItem")
def select_item_backward(c: Call) -> Gradients:
    """No operation: writes zeros, and each gradient to its place."""
    x, t = c.x
    return c.copy(c.gy[0], t, shape=x.shape), None


@forward("array.select_item.Assign")
def assign(c: Call) -> Array:
    """No operation: writes zeros, and each element to its place; only of double backpropagation."""
    return c.copy(c.x[0], shape=c.outputs[0].shape)


@forward("array.pad.Pad")
def pad(c: Call) -> Array:
    """No operation: a copy, and what is around it."""
    return c.copy(c.x[0], shape=c.outputs[0].shape)


@forward("array.tile.Tile", "array.repeat.Repeat")
def repeat(c: Call) -> Array:
    """No operation: copies."""
    return c.copy(c.x[0], shape=c.outputs[0].shape)


@backward("array.tile.Tile", "array.repeat.Repeat")
def repeat_backward(c: Call) -> Array:
    """Sums over the copies: of n gradients to m elements n - m additions."""
    (x,), (gy,) = c.x, c.gy
    return c.count(max(0, gy.size - x.size), gy, shape=x.shape)


@forward("array.resize_images.ResizeImages")
def resize_images(c: Call) -> Array:
    """4 multiply-adds an output element, and 5 operations an output place for its weights.

    Chainer does the same for ``mode='nearest'``, with weights of 0 and 1.
    """
    y = c.outputs[0]
    return c.count(8 * y.size + _weights(c), c.x[0], shape=y.shape)


@backward("array.resize_images.ResizeImages")
def resize_images_backward(c: Call) -> Array:
    """4 products and 4 additions a gradient, and 5 operations an output place for its weights."""
    (gy,) = c.gy
    return c.count(8 * gy.size + _weights(c), gy, shape=c.x[0].shape)


def _weights(c: Call) -> int:
    # 1 - u; both times v; those taken off: 1 + 2 + 2.
    _, _, height, width = c.outputs[0].shape
    return 5 * height * width


@forward(_GRID)
def spatial_transformer_grid(c: Call) -> Array:
    """A product of each 2 x 3 matrix with the places (x, y, 1): 6 multiply-adds a place."""
    (theta,) = c.x
    y = c.outputs[0]
    return c.products(3 * y.size, theta, shape=y.shape)


@backward(_GRID)
def spatial_transformer_grid_backward(c: Call) -> Array:
    """A product of the gradients with the places: 6 multiply-adds a place."""
    (gy,) = c.gy
    return c.products(3 * gy.size, gy, shape=c.x[0].shape)


@forward(_SAMPLER)
def spatial_transformer_sampler(c: Call) -> Array:
    """4 products and 3 additions an output element; 22 operations a place for its weights.

    A place: u and v scaled (8), bounded (4) and rounded (2), the distances to the neighbours (4),
    and 4 products of those.
    """
    x, grid = c.x
    y = c.outputs[0]
    return c.count(7 * y.size + 22 * (grid.size // 2), x, grid, shape=y.shape)


@backward(_SAMPLER)
def spatial_transformer_sampler_backward(c: Call) -> Gradients:
    """x: 8 products and 4 additions a gradient; grid: 18 operations a gradient, 8 a place.

    A place's distances to its neighbours come first (18). Each of the grid's two gradients takes 4
    products and 3 additions an element, a product with g and the sum over channels; then scaling
    and two comparisons with the edges a place.
    """
    x, grid = c.x
    (gy,) = c.gy
    places = grid.size // 2
    flops = 18 * places
    flops += 12 * gy.size if c.needs(0) else 0
    flops += 18 * gy.size + 8 * places if c.needs(1) else 0
    c.count(flops, x, grid, gy)
    return (
        c.new(x.shape) if c.needs(0) else None,
        c.new(grid.shape) if c.needs(1) else None,
    )


@forward("normalization.l2_normalization._SetItemZero")
def set_item_zero(c: Call) -> Array:
    """No operation: writes zeros, and elements where a mask, which is read, is set."""
    shape = c.outputs[0].shape
    return c.copy(c.x[0], c.kept("mask", shape, "bool"), shape=shape)
