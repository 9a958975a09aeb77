"""The result of the pass inside the layers: stacks of Python functions, with times."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StackFrame:
    """A frame of a stack."""

    function: str  #: Name of the Python function; ``Class.method`` from Python 3.11 on.
    file: str  #: Path relative to the folder of the import (``numpy/_core/numeric.py``).
    line: int = 0  #: Number of the line; 0 if unknown.
    source: str = ""  #: Text of that line.
    #: Whether the user wrote this code; false for Python and installed packages.
    own: bool = False


@dataclass(frozen=True)
class Stack:
    """The frames from the call of a layer or network down to the code that takes the time."""

    places: tuple[int, ...]  #: Indices of the frames in :attr:`Inside.places`, outermost first.
    seconds: float  #: Time per trial that the innermost frame takes itself, in seconds.
    samples: int = 0  #: Number of samples; 0 in recordings of 0.2.0 that timed lines.
    row: int | None = None  #: Index of the layer; None if the layer is unknown.
    function: str = ""  #: Function of the layer, if only this is known; empty in framework time.


@dataclass(frozen=True)
class Inside:
    """The result of the pass inside the layers, which sees only the main thread."""

    method: str  #: The sampler: ``py-spy 0.4.3``.
    samples: int  #: Number of samples during trials.
    seconds: float  #: Wall time of these trials, in seconds.
    trials: int  #: Number of these trials.
    places: tuple[StackFrame, ...] = ()  #: All distinct frames.
    stacks: tuple[Stack, ...] = ()  #: All distinct stacks, without frames of the profiler.
    notes: tuple[str, ...] = ()  #: Limitations of this pass, one sentence each.
    #: Number of samples per independent sample. It is above 1 if the program waited for a
    #: processor, so that many successive samples found the same frame.
    repeats: float = 1.0
