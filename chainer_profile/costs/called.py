"""The work of a backward without a formula: that of the functions that it calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from chainer_profile.basics.words import FORWARD
from chainer_profile.costs import table
from chainer_profile.costs.call import ArraySpec, Call, Work


class _Inner(NamedTuple):
    function: Any
    inputs: tuple[ArraySpec, ...]
    outputs: tuple[ArraySpec, ...]
    memories: tuple[int, ...]
    """Which memory each input lies in."""


class Called:
    """Follows one backward: the functions it calls, and which arrays are whose.

    Operations are those of the functions. Bytes are those of the backward as one: memory that was
    there before is read once, however many functions read it; what they hand to one another counts
    for nothing; memory of the gradients that was not there before is written.

    Args:
        given: Arrays that are there: inputs, outputs and gradients of outputs.
        kept: What the function keeps. An array that is none of these nor of a function that was
            called was computed by other means, and what that took is not known.
    """

    def __init__(self, given: Any, kept: Any = ()) -> None:
        # Of each memory its bytes, and the array that holds it: no other gets its identity so.
        self._memories: dict[int, tuple[int, Any]] = {}
        self._handed_on = {self._memory_given(array) for array in arrays_of(given)}
        self._given = self._handed_on | {self._memory_given(one) for one in arrays_of(kept)}
        self._made: set[int] = set()
        self._inner: list[_Inner] = []
        self._written = 0
        self._known = True
        self._nbytes: dict[int, int] | None = None

    def _memory(self, array: Any) -> int:
        """The memory that an array lies in."""
        while getattr(array, "base", None) is not None and hasattr(array.base, "nbytes"):
            array = array.base
        self._memories.setdefault(id(array), (int(array.nbytes), array))
        return id(array)

    def _memory_given(self, array: Any) -> int:
        """The same of an array that is there, which counts as one that is contiguous."""
        memory = self._memory(array)
        nbytes, holder = self._memories[memory]
        self._memories[memory] = max(nbytes, int(array.nbytes)), holder
        return memory

    def call(self, function: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Note that it called a function.

        What comes behind its return is Chainer's adding up of gradients, which is a row of its own.
        """
        if self._nbytes is not None:
            return
        memories = tuple(map(self._memory, inputs))
        self._known &= all(one in self._made or one in self._given for one in memories)
        specs = specs_of(inputs), specs_of(outputs)
        self._inner.append(_Inner(table.inner(function), *specs, memories))
        made = {self._memory(array) for array in outputs if array is not None}
        self._made |= made - self._given

    def end(self, gradients: Any) -> None:
        """Note what it returned of what is needed; no array is kept any longer."""
        written: dict[int, int] = {}
        for array in arrays_of(gradients):
            memory = self._memory(array)
            self._known &= memory in self._made or memory in self._handed_on
            if memory in self._made:
                written[memory] = written.get(memory, 0) + int(array.nbytes)
        self._nbytes = sizes = {memory: nbytes for memory, (nbytes, _) in self._memories.items()}
        self._written = sum(min(n, sizes[memory]) for memory, n in written.items())
        self._memories = {}

    def work(self) -> Work | None:
        """Its work; None where a function has no formula, or something else was computed."""
        sizes = self._nbytes
        if sizes is None or not self._known:
            return None
        total, read = Work(0, 0, self._written), dict.fromkeys(self._given, 0)
        for inner in self._inner:
            entry = table.find(inner.function, FORWARD)
            if entry is None:
                return None
            call = Call(inner.function, inner.inputs, inner.outputs)
            work = table.evaluate(entry, call)
            if work is None:
                return None
            others = work.nbytes_read - sum(call.inputs_read)
            total += replace(work, nbytes_read=max(0, others), nbytes_written=0)
            for memory, nbytes in zip(inner.memories, call.inputs_read, strict=True):
                if memory in read:
                    read[memory] = min(read[memory] + nbytes, sizes[memory])
        return total + Work(0, sum(read.values()), 0)


def arrays_of(value: Any, depth: int = 3) -> list[Any]:
    """The arrays in something: in Variables, sequences, dictionaries, and so on."""
    if hasattr(value, "requires_grad") and hasattr(value, "array"):  # a Variable
        return arrays_of(value.array, depth)
    if isinstance(getattr(value, "shape", None), tuple) and hasattr(value, "nbytes"):
        return [value]
    if depth and isinstance(value, dict):
        value = tuple(value.values())
    if depth and isinstance(value, (list, tuple)):
        return [array for one in value for array in arrays_of(one, depth - 1)]
    return []


def specs_of(arrays: Sequence[Any]) -> tuple[ArraySpec, ...]:
    """Shapes and types of arrays."""
    # An output that is not there (None) has no elements.
    return tuple(
        ArraySpec((0,), "float32") if array is None else ArraySpec.of(array) for array in arrays
    )
