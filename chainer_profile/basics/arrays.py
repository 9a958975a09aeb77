"""Arrays in NumPy's files, read without pickle, which could run code."""

from __future__ import annotations

from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from chainer_profile.basics.errors import text_of


def read_array(file: BinaryIO) -> NDArray[Any]:
    """Read an array from the content of a .npy file.

    Raises:
        ValueError: The content is no array, or an array of Python objects.
    """
    try:
        array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
    except ValueError as error:
        # NumPy's message says how to read pickled objects all the same.
        if "pickle" in text_of(error):
            raise ValueError("it contains Python objects, not numbers") from None
        raise
    return array
