"""Formulas of functions that view, copy or select elements of arrays."""

from __future__ import annotations

from typing import Any

from chainer_profile.costs.call import Call, Work
from chainer_profile.costs.table import FunctionCost, about, exact, view


def _copy(c: Call) -> Work:
    f = c.function
    return view(c) if f._in_device == f.out_device else c.work(0, read=c.y.nbytes)


def _cast(c: Call) -> Work:
    source = c.y if c.needed else c.x
    return view(c) if c.x.dtype == c.y.dtype else c.work(0, read=source.nbytes)


def _get_item(c: Call) -> Work:
    """Count no work for slices and numbers, which make a view, and a copy for arrays of indices."""
    arrays = [index for index in c.function.slices if not _is_basic(index)]
    if not arrays:
        return view(c)
    indices = sum(int(getattr(index, "nbytes", 0)) for index in arrays)
    return c.work(0, read=min(c.x.nbytes, c.y.nbytes) + indices)


def _is_basic(index: Any) -> bool:
    if index is None or index is Ellipsis or isinstance(index, (slice, int)):
        return True
    # NumPy treats its own integers as integers, and its own booleans as arrays.
    return getattr(index, "shape", None) == () and str(getattr(index, "dtype", "")) != "bool"


def _select_item(c: Call) -> Work:
    return c.work(0, read=c.y.nbytes + c.read(1))


def _embed_id(c: Call) -> Work:
    """Count only the rows of the labels as read."""
    return c.work(0, read=c.x.nbytes + min(c.y.nbytes, c.inputs[1].nbytes))


TABLE = (
    FunctionCost(
        "Identity Reshape Transpose Swapaxes Moveaxis Rollaxis ExpandDims Squeeze Flip FlipLR "
        "FlipUD",
        forward=view,
        backward=view,
    ),
    FunctionCost("SplitAxis Separate", forward=view, backward=exact(0, only_gradients=True)),
    FunctionCost("Diagonal", forward=view, backward=about(0, only_gradients=True)),
    FunctionCost("AsStrided Broadcast", forward=view, backward=about(1, only_gradients=True)),
    # Copies.
    FunctionCost(
        "Concat Stack Hstack Vstack Dstack PadSequence Pad CudnnRNNWeightConcat",
        forward=exact(0),
        backward=view,
    ),
    FunctionCost(
        "TransposeSequence Depth2Space Space2Depth Permutate Shift",
        forward=exact(0),
        backward=exact(0, only_gradients=True),
    ),
    FunctionCost("Tile Repeat Im2Col", forward=exact(0), backward=about(1, only_gradients=True)),
    FunctionCost("Assign MaxPoolingNDWithIndexes _SetItemZero", forward=about(0)),
    FunctionCost("Where Upsampling2D", forward=about(0), backward=about(0, only_gradients=True)),
    FunctionCost("Cast", forward=_cast, backward=_cast),
    FunctionCost("Copy", forward=_copy, backward=_copy),
    # Selected elements.
    FunctionCost("ScatterAdd", forward=about(1), backward=about(0, only_gradients=True)),
    FunctionCost(
        "GetItem",
        forward=_get_item,
        # Adds the gradient to an array of zeros.
        backward=lambda c: c.work(c.y.size, read=c.read()),
    ),
    FunctionCost(
        "SelectItem",
        forward=_select_item,
        backward=lambda c: c.work(0, read=c.read(1)),
    ),
    FunctionCost(
        "EmbedIDFunction",
        forward=_embed_id,
        backward=lambda c: c.work(c.y.size, read=c.read(0)),
    ),
    FunctionCost("EmbedIDGrad", forward=lambda c: c.inputs[1].size),
)
