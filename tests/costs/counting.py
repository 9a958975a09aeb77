"""Arrays that count the operations on them: whatever NumPy code runs on such arrays is counted."""

from typing import Any

import numpy as np

#: Logic, and what is no arithmetic.
FREE = {"logical_and", "logical_not", "bitwise_and", "invert", "isnan"}
PRODUCTS = (np.dot, np.tensordot, np.einsum)


class Counting(np.ndarray[Any, Any]):
    """An array that counts the operations on it, and gives arrays that count."""

    flops = 0

    def __array_ufunc__(self, ufunc, method, *inputs, **more):
        plain = [plainly(given) for given in inputs]
        out = more.pop("out", ())
        if out:
            more["out"] = tuple(map(plainly, out))
        result = getattr(ufunc, method)(*plain, **more)
        if ufunc is np.matmul:
            Counting.flops += 2 * int(np.sum(np.matmul(*map(np.ones_like, plain))))
        elif method == "reduce":
            Counting.flops += np.size(plain[0]) - np.size(result)
        elif method == "at":
            Counting.flops += np.size(plain[2])
        elif ufunc.__name__ not in FREE:
            Counting.flops += np.size(result)
        return out[0] if out else counting(result)

    def __array_function__(self, function, types, args, more):
        if function not in PRODUCTS:
            return super().__array_function__(function, types, args, more)
        args = [plainly(given) for given in args]
        ones = [np.ones_like(given) if isinstance(given, np.ndarray) else given for given in args]
        Counting.flops += 2 * int(np.sum(function(*ones, **more)))
        return counting(function(*args, **more))

    def dot(self, other, *_):
        return np.dot(self, other)


def counting(array):
    return array.view(Counting) if isinstance(array, np.ndarray) else array


def plainly(array):
    return array.view(np.ndarray) if isinstance(array, Counting) else array
