"""Call sites: the functions and operations that the recorder's events refer to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

import chainer
import numpy as np

from chainer_profile.basics.errors import one_line
from chainer_profile.costs.call import ArraySpec, dtype_name, specs_of
from chainer_profile.costs.work import Work, backward_work, forward_work
from chainer_profile.measure.denormals import largest_denormal_part
from chainer_profile.record.recording import Shape

#: Function of the row that adds up gradients of a variable that several functions use.
ACCUMULATION = "gradient_accumulation"
#: Fields of a layer that describe its work.
WORK_FIELDS = ("flops", "macs", "nbytes_read", "nbytes_written")

Warn = Callable[[str], None]


class Kind(Enum):
    """The kinds of spans."""

    #: One trial.
    TRIAL = auto()
    #: The recorder's own work on a new call site; its time belongs to no row or phase.
    PAUSE = auto()
    #: A phase of a training step; its self time is framework time of that phase.
    PHASE = auto()
    #: An outermost call of a network.
    NETWORK = auto()
    #: One backpropagation through a graph.
    BACKPROP = auto()
    #: A call of a function.
    FUNCTION = auto()
    #: A call of the function that adds up the gradients that several functions give.
    SUM = auto()
    #: The backward of a function.
    BACKWARD = auto()
    #: Another part of a training step that has a row, such as the update of a parameter.
    STEP = auto()


@dataclass(eq=False, slots=True)
class CallSite:
    """Calls that share an event id: one function of one link with inputs of the same shapes.

    Attributes:
        kind: The kind of the spans with this event id.
        path: Path of the link that calls.
        function: Name of the function, which names the row.
        phase: Phase of a PHASE, STEP or NETWORK; a function has the phase of the enclosing span.
        fields: Fields of :class:`.Layer` that are known from the arrays.
        forward_fields: Further fields, which count in the forward phase only.
        work: The work of one call; None if unknown.
        specs: Shapes and types of the inputs and of the outputs; None if unknown.
        new_nbytes: Bytes of the outputs that are no views of inputs.
        denormal_part: The largest fraction of denormal numbers in any array of the first call.
            Parameters are not examined.
    """

    kind: Kind
    path: str = ""
    function: str = ""
    phase: str = ""
    fields: dict[str, Any] = field(default_factory=dict)
    forward_fields: dict[str, Any] = field(default_factory=dict)
    work: Work | None = None
    specs: tuple[tuple[ArraySpec, ...], tuple[ArraySpec, ...]] | None = None
    new_nbytes: int = 0
    denormal_part: float = 0.0

    @property
    def is_backward(self) -> bool:
        return self.kind is Kind.BACKWARD

    @property
    def is_function_or_backward(self) -> bool:
        """Whether Chainer reports these spans to function hooks."""
        return self.kind in (Kind.FUNCTION, Kind.SUM, Kind.BACKWARD)

    def add_inputs(self, in_data: Sequence[Any], parameters: Collection[int]) -> None:
        """Set the fields of the inputs; ``parameters`` are the identities of parameters' arrays."""
        self.fields["input_shapes"] = shapes_of(in_data)
        inputs = [array for array in in_data if id(array) not in parameters]
        used_parameters = [array for array in in_data if id(array) in parameters]
        self.forward_fields |= {
            "input_nbytes": nbytes_of(inputs),
            "parameter_nbytes": nbytes_of(used_parameters),
        }
        self.denormal_part = largest_denormal_part(inputs)

    def add_outputs(
        self, function: Any, in_data: Sequence[Any], outputs: Sequence[Any], warn: Warn
    ) -> None:
        """Set the fields of the outputs, and the work of a call from its cost formula."""
        self.fields |= {"output_shapes": shapes_of(outputs), "dtype": dtype_of(outputs)}
        self.forward_fields["output_nbytes"] = nbytes_of(outputs)
        self.new_nbytes = nbytes_of(
            [y for y in outputs if y is not None and not _is_view(y, in_data)]
        )
        self.denormal_part = max(self.denormal_part, largest_denormal_part(outputs))
        self.specs = inputs, results = specs_of(in_data), specs_of(outputs)
        self.work = work_by(self.function, lambda: forward_work(function, inputs, results), warn)

    def add_gradients(
        self, function: Any, out_grad: Sequence[Any], forward: CallSite, warn: Warn
    ) -> None:
        """Set the fields and work of a backward; ``forward`` is the site of its forward call."""
        needed = tuple(node for node in function.inputs if node.requires_grad)
        self.fields |= {
            "input_shapes": shapes_of(out_grad),
            "output_shapes": shapes_of(needed),
            "dtype": dtype_of(needed),
        }
        self.denormal_part = largest_denormal_part(out_grad)
        known = specs_of(function.inputs), specs_of(out_grad)
        # The calls of a forward site may have many shapes: use its specs only if they match.
        is_known = forward.specs is not None and forward.specs[0] == known[0]
        inputs, outputs = forward.specs if forward.specs is not None and is_known else known
        wanted = tuple(bool(node.requires_grad) for node in function.inputs)
        self.work = work_by(
            self.function, lambda: backward_work(function, inputs, outputs, wanted), warn
        )


def shapes_of(arrays: Sequence[Any]) -> tuple[Shape, ...]:
    """Shapes of arrays or variables; None, and variables without an array, are left out."""
    shapes = (None if array is None else array.shape for array in arrays)
    return tuple(tuple(map(int, shape)) for shape in shapes if shape is not None)


def dtype_of(arrays: Sequence[Any]) -> str:
    """Data type of the first array that is not None; empty without one."""
    dtypes = (None if array is None else array.dtype for array in arrays)
    return next((dtype_name(dtype) for dtype in dtypes if dtype is not None), "")


def nbytes_of(arrays: Sequence[Any]) -> int:
    """Bytes of arrays; an array that occurs twice counts once."""
    distinct = {id(array): array for array in arrays if array is not None}
    return sum(int(array.nbytes) for array in distinct.values())


def _is_view(array: Any, inputs: Sequence[Any]) -> bool:
    """Whether an array may share memory with one of the inputs."""
    may_share: Any = getattr(
        chainer.backend.get_array_module(array), "may_share_memory", np.may_share_memory
    )
    return any(x is not None and may_share(array, x) for x in inputs)


def work_by(name: str, formula: Callable[[], Work | None], warn: Warn) -> Work | None:
    """Compute a cost formula; None with a warning if it raises an exception."""
    try:
        return formula()
    except Exception as error:
        warn(f"the cost formula of {name} failed ({one_line(error)}); it is left out")
        return None
