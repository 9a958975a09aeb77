"""Names that NumPy has removed, and their replacements."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

#: Replacements of names, by the version of NumPy that removed them. The table does not contain
#: names with a new meaning: ``np.bool``, ``np.long`` and ``np.ulong``.
_BY_VERSION = {
    "1.18": {"rank": "np.ndim"},
    "1.23": {"alen": "len", "asscalar": "x.item()"},
    "1.24": {
        **{name: name for name in ("complex", "float", "int", "object", "str")},
        "MachAr": "np.finfo(float)",
        "typeDict": "np.sctypeDict",
        "unicode": "str",
    },
    "2.0": {
        # Numbers.
        **dict.fromkeys(("Inf", "Infinity", "PINF", "infty"), "np.inf"),
        "NAN": "np.nan",
        "NINF": "-np.inf",
        "NZERO": "-0.0",
        "NaN": "np.nan",
        "PZERO": "0.0",
        # Types.
        "bool8": "np.bool_",
        "bytes0": "np.bytes_",
        "cfloat": "np.complex128",
        "clongfloat": "np.clongdouble",
        "complex_": "np.complex128",
        "float_": "np.float64",
        "int0": "np.intp",
        "longcomplex": "np.clongdouble",
        "longfloat": "np.longdouble",
        "object0": "np.object_",
        "singlecomplex": "np.complex64",
        "str0": "np.str_",
        "string_": "np.bytes_",
        "uint0": "np.uintp",
        "unicode_": "np.str_",
        "void0": "np.void",
        # Exceptions and warnings.
        **{
            name: f"np.exceptions.{name}"
            for name in (
                *("AxisError", "ComplexWarning", "ModuleDeprecationWarning"),
                *("RankWarning", "TooHardError", "VisibleDeprecationWarning"),
            )
        },
        # Functions and more.
        "DataSource": "np.lib.npyio.DataSource",
        "alltrue": "np.all",
        "asfarray": "np.asarray(x, dtype=float)",
        "byte_bounds": "np.lib.array_utils.byte_bounds",
        "cast": "np.asarray(x, dtype=dtype)",
        "compare_chararrays": "np.char.compare_chararrays",
        "cumproduct": "np.cumprod",
        "disp": "print",
        "fastCopyAndTranspose": "x.T.copy()",
        "find_common_type": "np.result_type",
        "format_parser": "np.rec.format_parser",
        "issubclass_": "issubclass",
        "issubsctype": "np.issubdtype",
        "mat": "np.asmatrix",
        "math": "math",
        "msort": "np.sort(x, axis=0)",
        "nbytes": "np.dtype(x).itemsize",
        "obj2sctype": "np.dtype(x).type",
        "product": "np.prod",
        "round_": "np.round",
        "safe_eval": "ast.literal_eval",
        "sctype2char": "np.dtype(x).char",
        "sctypes": "the types themselves",
        "sometrue": "np.any",
        "tracemalloc_domain": "np.lib.tracemalloc_domain",
    },
    "2.4": {"in1d": "np.isin", "trapz": "np.trapezoid"},
}
#: Replacement of each name, as code.
WRITE = {name: text for names in _BY_VERSION.values() for name, text in names.items()}
#: The version of NumPy that removed each name.
GONE_SINCE = {name: version for version, names in _BY_VERSION.items() for name in names}


@cache
def value(name: str) -> Any:
    """Make the object with which a removed name of NumPy is restored."""
    import numpy as np

    definitions = _definitions()
    if name in definitions:
        return definitions[name]
    return eval(WRITE[name], {"ast": ast, "math": math, "np": np})


def _definitions() -> dict[str, object]:
    """Make the objects for which the replacement in the table is not enough, by their names."""
    import numpy as np

    def asfarray(a: Any, dtype: Any = np.float64) -> Any:
        return np.asarray(a, dtype if np.issubdtype(dtype, np.inexact) else np.float64)

    def disp(mesg: object, device: Any = None, linefeed: bool = True) -> None:
        print(mesg, end="\n" if linefeed else "", file=device, flush=True)

    def find_common_type(array_types: Sequence[Any], scalar_types: Sequence[Any]) -> Any:
        if not array_types or not scalar_types:
            return np.result_type(*array_types, *scalar_types)
        arrays, scalars = np.result_type(*array_types), np.result_type(*scalar_types)
        kinds = "buifcSUVOMm"
        wider = kinds.index(scalars.kind) > kinds.index(arrays.kind)
        return np.promote_types(arrays, scalars) if wider else arrays

    class Cast:
        def __getitem__(self, dtype: Any) -> Callable[[Any], Any]:
            return lambda x: np.asarray(x).astype(dtype)

    return {
        "MachAr": lambda *_, **__: np.finfo(float),
        "asfarray": asfarray,
        "asscalar": lambda a: a.item(),
        "cast": Cast(),
        "disp": disp,
        "fastCopyAndTranspose": lambda a: np.asarray(a).T.copy(),
        "find_common_type": find_common_type,
        "msort": lambda a: np.sort(a, axis=0),
        "nbytes": {kind: np.dtype(kind).itemsize for kind in np.sctypeDict.values()},
        "obj2sctype": lambda rep, default=None: np.dtype(rep).type,
        "sctype2char": lambda sctype: np.dtype(sctype).char,
        "sctypes": {
            "int": [np.int8, np.int16, np.int32, np.int64],
            "uint": [np.uint8, np.uint16, np.uint32, np.uint64],
            "float": [np.float16, np.float32, np.float64, np.longdouble],
            "complex": [np.complex64, np.complex128, np.clongdouble],
            "others": [bool, object, bytes, str, np.void],
        },
    }
