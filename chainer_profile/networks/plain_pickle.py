"""Reads pickles of plain values without running what they ask for."""

from __future__ import annotations

import math
import pickle
from typing import IO, Any


def load_plain_pickle(file: IO[bytes]) -> Any:
    """Reads a pickle of plain values, and runs nothing that it asks for.

    Numbers, strings, bytes, lists, tuples, dicts, None and NumPy arrays are read, whichever
    Python wrote them (the strings of Python 2 come as bytes). A pickle is a program that can
    call any function by name; here every name is refused but the few that rebuild an array,
    and those stand for stand-ins that check what they are given: NumPy's own would take a
    forged data type, and with it any address in memory.

    Args:
        file: The pickle, read from where it stands.

    Returns:
        The value. Arrays are of a subclass of :class:`numpy.ndarray`.

    Raises:
        pickle.UnpicklingError: If the pickle asks for anything else, or is damaged.

    """
    try:
        return _PlainUnpickler(file).load()
    except pickle.UnpicklingError:
        raise
    except Exception as error:  # a damaged pickle raises nearly anything
        raise pickle.UnpicklingError(f"damaged: {type(error).__name__}") from error


class _PlainUnpickler(pickle.Unpickler):
    """Knows the names of :func:`_array_names` and no other."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(file, encoding="bytes")
        self._names = _array_names()

    def find_class(self, module: str, name: str) -> Any:
        # NumPy 2 moved numpy.core to numpy._core; files of both are about.
        key = f"{module.replace('numpy._core', 'numpy.core', 1)}.{name}"
        if key not in self._names:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return self._names[key]


def _array_names() -> dict[str, Any]:
    """The names by which pickles rebuild arrays, and what is called in their place.

    Made anew for every file, since a pickle can set attributes of what it is given.
    """
    import numpy

    class DType:
        """A data type without fields; pickles set its byte order as its state."""

        def __init__(self, spec: Any, align: Any = False, copy: Any = False) -> None:
            self.value = numpy.dtype(spec.decode("ascii") if isinstance(spec, bytes) else spec)
            if self.value.kind not in "biufcSUO":
                raise pickle.UnpicklingError(f"it holds an array of {self.value}")

        def __setstate__(self, state: tuple[Any, ...]) -> None:
            order: Any = state[1]
            if isinstance(order, bytes):
                order = order.decode("ascii")
            self.value = self.value.newbyteorder(order)

    class Array(numpy.ndarray[Any, numpy.dtype[Any]]):
        """An array that gets its contents as its state."""

        def __setstate__(self, state: tuple[Any, ...]) -> None:
            version, shape, dtype, is_fortran, data = state
            size = math.prod(shape)
            if dtype.value.kind == "O":
                fits = isinstance(data, list) and len(data) == size
            else:
                fits = isinstance(data, bytes) and len(data) == size * dtype.value.itemsize
            if not fits:
                raise pickle.UnpicklingError("damaged: an array does not fill its shape")
            super().__setstate__((version, shape, dtype.value, is_fortran, data))

    def reconstruct(array_type: Any, shape: Any, kind: Any) -> Array:
        return Array((0,), dtype=numpy.int8)

    def from_buffer(data: Any, dtype: DType, shape: Any, order: Any) -> Any:
        return numpy.frombuffer(data, dtype.value).reshape(shape, order=order).view(Array)

    def encode(text: str, encoding: str) -> bytes:
        # Protocols 0 to 2 write bytes as latin-1 text.
        if encoding not in ("latin1", b"latin1"):
            raise pickle.UnpicklingError(f"it encodes as {encoding!r}")
        return text.encode("latin1")

    return {
        "numpy.core.multiarray._reconstruct": reconstruct,
        "numpy.core.numeric._frombuffer": from_buffer,
        "numpy.ndarray": object(),  # only ever handed to _reconstruct
        "numpy.dtype": DType,
        "_codecs.encode": encode,
    }
