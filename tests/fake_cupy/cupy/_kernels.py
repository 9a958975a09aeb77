"""Kernels in CUDA C: the table of those that NumPy does instead, by their names.

An entry takes a kernel's inputs, then its outputs as they are, as NumPy arrays and numbers, and
gives what is to be written into the outputs. Arrays that Chainer hands over by ``reduced_view()``
have kept their shapes.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from cupy import fake
from cupy._array import ndarray, to_host
from cupy.cuda import runtime

# -- windows of images


def _places(outs: Any, ks: Any, ss: Any, ds: Any) -> Iterator[tuple[int, int, slice, slice]]:
    """Row and column in the windows, and the pixels of a padded image that are there."""
    for y, x in np.ndindex(*ks):
        top, left = y * ds[0], x * ds[1]
        rows = slice(top, top + ss[0] * outs[0], ss[0])
        yield y, x, rows, slice(left, left + ss[1] * outs[1], ss[1])


def _padded(n: int, dims: Any, outs: Any, ks: Any, ss: Any, ps: Any, ds: Any) -> list[int]:
    """Shape of padded images, large enough for all windows."""
    sides = zip(dims, outs, ks, ss, ps, ds, strict=True)
    return [n, *(max(d + 2 * p, (k - 1) * di + s * out) for d, out, k, s, p, di in sides)]


def _windows(img: Any, outs: Any, ks: Any, ss: Any, ps: Any, ds: Any, fill: float) -> Any:
    """Windows of images (..., h, w): (images, kh, kw, out_h, out_w)."""
    img = img.reshape(-1, *img.shape[-2:])
    n, h, w = img.shape
    padded = np.full(_padded(n, (h, w), outs, ks, ss, ps, ds), fill, img.dtype)
    padded[:, ps[0] : ps[0] + h, ps[1] : ps[1] + w] = img
    col = np.empty((n, *ks, *outs), img.dtype)
    for y, x, rows, columns in _places(outs, ks, ss, ds):
        col[:, y, x] = padded[:, rows, columns]
    return col


def _add_windows(col: Any, dims: Any, ss: Any, ps: Any, ds: Any) -> Any:
    """Images (images, h, w) of windows (images, kh, kw, out_h, out_w), added up."""
    ks, outs = col.shape[1:3], col.shape[3:]
    padded = np.zeros(_padded(len(col), dims, outs, ks, ss, ps, ds), col.dtype)
    for y, x, rows, columns in _places(outs, ks, ss, ds):
        padded[:, rows, columns] += col[:, y, x]
    return padded[:, ps[0] : ps[0] + dims[0], ps[1] : ps[1] + dims[1]]


def _im2col(
    img: Any, h: int, w: int, out_h: int, out_w: int, kh: int, kw: int,
    sy: int, sx: int, ph: int, pw: int, dy: int, dx: int, col: Any,
) -> Any:  # fmt: skip
    return _windows(img, (out_h, out_w), (kh, kw), (sy, sx), (ph, pw), (dy, dx), 0)


def _col2im(
    col: Any, h: int, w: int, out_h: int, out_w: int, kh: int, kw: int,
    sy: int, sx: int, ph: int, pw: int, dx: int, dy: int, img: Any,
) -> Any:  # fmt: skip
    col = col.reshape(-1, kh, kw, out_h, out_w)
    return _add_windows(col, (h, w), (sy, sx), (ph, pw), (dy, dx))


def _average(
    img: Any, h: int, w: int, out_h: int, out_w: int, kh: int, kw: int,
    sy: int, sx: int, ph: int, pw: int, coeff: float, out: Any,
) -> Any:  # fmt: skip
    col = _windows(img, (out_h, out_w), (kh, kw), (sy, sx), (ph, pw), (1, 1), 0)
    return col.sum(axis=(1, 2)) * coeff


def _average_backward(
    gy: Any, h: int, w: int, out_h: int, out_w: int, kh: int, kw: int,
    sy: int, sx: int, ph: int, pw: int, coeff: float, gx: Any,
) -> Any:  # fmt: skip
    gy = (gy * coeff).reshape(-1, 1, 1, out_h, out_w)
    col = np.broadcast_to(gy, (len(gy), kh, kw, out_h, out_w))
    return _add_windows(col, (h, w), (sy, sx), (ph, pw), (1, 1))


def _max(
    img: Any, h: int, w: int, out_h: int, out_w: int, kh: int, kw: int,
    sy: int, sx: int, ph: int, pw: int, out: Any, indexes: Any,
) -> Any:  # fmt: skip
    col = _windows(img, (out_h, out_w), (kh, kw), (sy, sx), (ph, pw), (1, 1), -np.inf)
    col = col.reshape(-1, kh * kw, out_h, out_w)
    return col.max(axis=1), col.argmax(axis=1)


def _max_backward(
    gy: Any, indexes: Any, h: int, w: int, out_h: int, out_w: int, kh: int, kw: int,
    sy: int, sx: int, ph: int, pw: int, gx: Any,
) -> Any:  # fmt: skip
    at = np.arange(kh * kw)[:, None, None] == indexes.reshape(-1, 1, out_h, out_w)
    col = (at * gy.reshape(-1, 1, out_h, out_w)).reshape(-1, kh, kw, out_h, out_w)
    return _add_windows(col, (h, w), (sy, sx), (ph, pw), (1, 1))


# -- losses and optimizers


def _cross_entropy(t: Any, log_y: Any, n_channel: int, coeff: Any, ignore: int, out: Any) -> Any:
    labels = t.ravel()
    chosen = log_y.reshape(-1, n_channel)[np.arange(t.size), np.where(labels == ignore, 0, labels)]
    return -coeff * np.where(labels == ignore, 0, chosen).sum(dtype=out.dtype)


def _cross_entropy_backward(
    y: Any, t: Any, gloss: Any, coeff: Any, n_channel: int, n_unit: int, ignore: int, gx: Any
) -> Any:
    channels = np.arange(n_channel).reshape(-1, *[1] * (y.ndim - 2))
    return np.where(t == ignore, 0, gloss * coeff * (y - (channels == t)))


def _momentum_sgd(grad: Any, lr: Any, momentum: Any, param: Any, v: Any) -> Any:
    v = momentum * v - lr * grad
    return param + v, v


def _adam(
    grad: Any, alpha: Any, one_minus_beta1: Any, one_minus_beta2: Any,
    eps: Any, eta: Any, decay: Any, dummy: Any, param: Any, m: Any, v: Any,
) -> Any:  # fmt: skip
    m = m + one_minus_beta1 * (grad - m)
    v = v + one_minus_beta2 * (grad * grad - v)
    return param - eta * (alpha * m / (np.sqrt(v) + eps) + decay * param), m, v


def _update_mean_var(
    mean: Any, var: Any, decay: float, adjust: float, r_mean: Any, r_var: Any
) -> Any:
    return r_mean * decay + mean * (1 - decay), r_var * decay + var * (1 - decay) * adjust


ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "relu_bwd": lambda y, gy, gx: np.where(y > 0, gy, 0),
    "sigmoid_fwd": lambda x, y: np.tanh(x * 0.5) * 0.5 + 0.5,
    "sigmoid_bwd": lambda y, gy, gx: gy * y * (1 - y),
    "dropout_fwd": lambda x, r, scale, ratio, mask, y: (
        (r >= ratio) * scale,
        x * ((r >= ratio) * scale),
    ),
    "bn_fwd": lambda x, mean, inv_std, gamma, beta, y: gamma * (x - mean) * inv_std + beta,
    "bn_bwd": lambda gy, x_hat, gamma, inv_std, ggamma, gbeta, inv_m, gx: (
        (gamma * inv_std) * (gy - (x_hat * ggamma + gbeta) * inv_m)
    ),
    "update_mean_var": _update_mean_var,
    "im2col": _im2col,
    "col2im": _col2im,
    "avg_pool_fwd": _average,
    "avg_pool_bwd": _average_backward,
    "max_pool_2d_fwd": _max,
    "max_pool_2d_bwd": _max_backward,
    "softmax_crossent_bwd": _cross_entropy_backward,
    "weight_decay": lambda p, decay, g: g + decay * p,
    "sgd": lambda grad, lr, param: param - lr * grad,
    "momentum_sgd": _momentum_sgd,
    "adam": _adam,
}
#: These give the result of the whole reduction.
REDUCTION: dict[str, Callable[..., Any]] = {"crossent_fwd": _cross_entropy}
#: These give nanoseconds that the device works for; None is a kernel's usual duration.
RAW: dict[str, Callable[..., int | None]] = {"hold": lambda nanoseconds: int(nanoseconds)}


def _stand_in(table: dict[str, Callable[..., Any]], name: str, n_args: int) -> Callable[..., Any]:
    call = table.get(name)
    if call is None or len(inspect.signature(call).parameters) != n_args:
        raise NotImplementedError(f"the CuPy stand-in has no kernel {name!r} of {n_args} arguments")
    return call


class _Params:
    """Parameters as in ``raw T x, int32 n``: which are whole arrays, and their types."""

    def __init__(self, text: str) -> None:
        found = re.findall(r"(raw\s+)?(\w+)\s+(\w+)\s*(?:,|$)", text.strip())
        self.raws = [bool(raw) for raw, _, _ in found]
        self.types = [kind for _, kind, _ in found]


class _Kernel:
    """A kernel that allocates the outputs it is not given."""

    table: dict[str, Callable[..., Any]]

    def __init__(self, in_params: str, out_params: str, name: str) -> None:
        self.name = name
        self._ins, self._outs = _Params(in_params), _Params(out_params)
        self.nin, self.nout = len(self._ins.types), len(self._outs.types)

    def _types(self, args: tuple[Any, ...]) -> dict[str, np.dtype[Any]]:
        """The types that T and so on stand for: those of arrays, which must agree."""
        types: dict[str, np.dtype[Any]] = {}
        for kind, arg in zip(self._ins.types + self._outs.types, args, strict=False):
            known = isinstance(arg, ndarray) and len(kind) == 1
            if known and types.setdefault(kind, arg.dtype) != arg.dtype:
                raise TypeError(f"Type is mismatched. {kind} {arg.dtype} {types[kind]}")
        return types

    def _run(self, args: tuple[Any, ...], shape: tuple[int, ...]) -> Any:
        call = _stand_in(self.table, self.name, self.nin + self.nout)
        types = self._types(args)
        outs = list(args[self.nin :]) or [
            ndarray(shape, types[kind] if len(kind) == 1 else kind) for kind in self._outs.types
        ]
        hosts = [to_host(arg, {}) for arg in (*args[: self.nin], *outs)]

        def compute() -> None:
            with np.errstate(all="ignore"):
                results = call(*hosts)
            results = results if isinstance(results, tuple) else (results,)
            for host, result in zip(hosts[self.nin :], results, strict=True):
                fits = np.size(result) == host.size
                host[...] = np.reshape(result, host.shape) if fits else result

        compute()
        new = [] if args[self.nin :] else hosts[self.nin :]
        fake.launch(runtime.getDevice(), self.name, again=compute, new=new)
        return outs[0] if len(outs) == 1 else tuple(outs)


class ElementwiseKernel(_Kernel):
    """A kernel of :data:`ELEMENTWISE`; the shape is that of all arrays but the raw ones."""

    table = ELEMENTWISE

    def __init__(
        self, in_params: str, out_params: str, operation: str, name: str = "kernel", **_: Any
    ) -> None:
        super().__init__(in_params, out_params, name)

    def __call__(self, *args: Any, size: int | None = None, **_: Any) -> Any:
        if len(args) not in (self.nin, self.nin + self.nout):
            raise TypeError(f"Wrong number of arguments for '{self.name}'")
        shapes = [
            arg.shape
            for arg, raw in zip(args, self._ins.raws, strict=False)
            if isinstance(arg, ndarray) and not raw
        ]
        return self._run(args, np.broadcast_shapes(*shapes) if size is None else (size,))


class ReductionKernel(_Kernel):
    """A kernel of :data:`REDUCTION`; over all axes only."""

    table = REDUCTION

    def __init__(
        self,
        in_params: str,
        out_params: str,
        map_expr: str,
        reduce_expr: str,
        post_map_expr: str,
        identity: Any,
        name: str = "reduce_kernel",
        **_: Any,
    ) -> None:
        super().__init__(in_params, out_params, name)

    def __call__(self, *args: Any, axis: Any = None, **_: Any) -> Any:
        if axis is not None:
            raise NotImplementedError(f"the CuPy stand-in reduces over all axes: {self.name!r}")
        return self._run(args, ())


class RawKernel:
    """A kernel of :data:`RAW`."""

    def __init__(self, code: str, name: str, *_: Any, **__: Any) -> None:
        self.code = code
        self.name = name

    def __call__(self, grid: Any, block: Any, args: tuple[Any, ...], **_: Any) -> None:
        call = _stand_in(RAW, self.name, len(args))
        duration_ns = call(*(to_host(arg, {}) for arg in args))
        fake.launch(runtime.getDevice(), self.name, duration_ns)
