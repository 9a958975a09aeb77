"""What memory every layer takes: measured by the memory pass, and by the sizes of its arrays."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from chainer_profile.basics.words import FORWARD

if TYPE_CHECKING:
    from chainer_profile.record.recording import Layer, Recording

#: Columns of :func:`layer_memory`: measured, by the sizes of arrays, and of both.
MEASURED = ("peak_nbytes", "retained_nbytes")
SIZES = ("input_nbytes", "parameter_nbytes", "output_nbytes")
MEMORY = (*MEASURED, *SIZES, "workspace_nbytes")


def layer_memory(recording: Recording) -> dict[str, Any]:
    """The memory of every layer: :data:`MEMORY`, in bytes, <NA> where not known.

    The measured are those of :class:`.MemoryUse`; the workspace is what a forward call allocates at
    most beyond its outputs.
    """
    layers, use = recording.layers, recording.memory
    data: dict[str, list[int | None]] = {
        name: [None] * len(layers) if use is None else list(getattr(use, name)) for name in MEASURED
    }
    data["input_nbytes"] = [layer.input_nbytes for layer in layers]
    data["parameter_nbytes"] = [layer.parameter_nbytes for layer in layers]
    data["output_nbytes"] = [_output_nbytes(layer) for layer in layers]
    data["workspace_nbytes"] = [
        max(0, peak - output)
        if layer.phase == FORWARD and peak is not None and output is not None
        else None
        for layer, peak, output in zip(
            layers, data["peak_nbytes"], data["output_nbytes"], strict=True
        )
    ]
    return {name: pd.array(values, dtype="Int64") for name, values in data.items()}


def _output_nbytes(layer: Layer) -> int | None:
    """Bytes of the outputs; by shapes and data type where an older recording has no size."""
    if layer.output_nbytes is not None or layer.phase != FORWARD or not layer.dtype:
        return layer.output_nbytes
    try:
        # NumPy knows bfloat16 only where another package has taught it.
        itemsize = 2 if layer.dtype == "bfloat16" else np.dtype(layer.dtype).itemsize
    except (TypeError, ValueError, SyntaxError):  # one that NumPy does not know
        return None
    return sum(math.prod(shape) * itemsize for shape in layer.output_shapes)
