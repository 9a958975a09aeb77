"""What NumPy changed since Chainer's days, for programs that end by it: what to write instead."""

from __future__ import annotations

import re

#: Names that NumPy had, and what to write for them.
_NAMES = {
    **{name: name for name in ("bool", "complex", "float", "int", "object", "str")},
    "long": "int",
    "unicode": "str",
    "bool8": "np.bool_",
    "float_": "np.float64",
    "complex_": "np.complex128",
    "string_": "np.bytes_",
    "unicode_": "np.str_",
    "Inf": "np.inf",
    "Infinity": "np.inf",
    "infty": "np.inf",
    "PINF": "np.inf",
    "NINF": "-np.inf",
    "NaN": "np.nan",
    "alltrue": "np.all",
    "asfarray": "np.asarray(x, dtype=float)",
    "asscalar": "x.item()",
    "cast": "np.asarray(x, dtype=dtype)",
    "cumproduct": "np.cumprod",
    "find_common_type": "np.result_type",
    "in1d": "np.isin",
    "mat": "np.asmatrix",
    "msort": "np.sort(x, axis=0)",
    "obj2sctype": "np.dtype(x).type",
    "product": "np.prod",
    "rank": "np.ndim",
    "round_": "np.round",
    "row_stack": "np.vstack",
    "sometrue": "np.any",
    "trapz": "np.trapezoid",
    "typeDict": "np.sctypeDict",
}
#: Methods that arrays had, likewise.
_METHODS = {
    "itemset": "x[index] = value",
    "newbyteorder": "x.view(x.dtype.newbyteorder(order))",
    "ptp": "np.ptp(x)",
    "tostring": "x.tobytes()",
}
#: Where a message names what is gone.
_GONE = (
    (r"module 'numpy' has no attribute '(\w+)'", "np.", _NAMES),
    (r"`np\.(\w+)` was removed", "np.", _NAMES),
    (r"cannot import name '(\w+)' from 'numpy'", "np.", _NAMES),
    (r"'numpy\.ndarray' object has no attribute '(\w+)'", "ndarray.", _METHODS),
    (r"`(\w+)` was removed from the ndarray class", "ndarray.", _METHODS),
)
#: Other messages, and what to say of them.
_REFUSED = {
    "only 0-dimensional arrays can be converted to Python scalars": (
        "converts only 0-dimensional arrays to numbers; write x.item() for an array of one element"
    ),
    "inhomogeneous shape": (
        "no longer makes an array from rows of different lengths; write "
        "np.array(rows, dtype=object)"
    ),
    "Unable to avoid copy while creating an array": (
        "fails with copy=False where it has to copy; write np.asarray(x)"
    ),
    r"Python integer -?\d+ out of bounds for (\w+)": (
        "no longer wraps a number that {0} cannot hold; write np.array(number).astype(np.{0})"
    ),
    "The binary mode of fromstring is removed": (
        "no longer reads bytes with np.fromstring; write np.frombuffer(x, dtype).copy()"
    ),
    "Object arrays cannot be loaded when allow_pickle=False": (
        "loads pickled objects only on request; write np.load(file, allow_pickle=True) for a "
        "file that you trust"
    ),
    'arrays to stack must be passed as a "sequence" type': (
        "no longer stacks generators; write np.stack(list(arrays))"
    ),
}


def advice(error: BaseException | None) -> str:
    """What NumPy changed, where an exception is due to that; else nothing."""
    if not isinstance(error, AttributeError | ImportError | TypeError | ValueError | OverflowError):
        return ""
    message = str(error)
    for pattern, owner, names in _GONE:
        found = re.search(pattern, message)
        if found and found[1] in names:
            return f"NumPy removed {owner}{found[1]}; write {names[found[1]]}"
    for pattern, said in _REFUSED.items():
        found = re.search(pattern, message)
        if found:
            return f"NumPy {said.format(*found.groups())}"
    return ""
