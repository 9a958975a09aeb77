"""The result of the pass inside the layers: stacks of Python functions, with their time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """A frame of a stack."""

    function: str  #: Name of the Python function; ``Class.method`` from Python 3.11 on.
    file: str  #: Its file, from the folder that it was imported from (``numpy/_core/numeric.py``).
    line: int = 0  #: Number of the line; 0 where lines are not known.
    source: str = ""  #: Text of that line.
    #: Whether it is neither Python's nor an installed package's: the network's own code.
    own: bool = False


@dataclass(frozen=True)
class Stack:
    """The frames from a layer, or from the network's call, to the code that takes the time."""

    places: tuple[int, ...]  #: Indices of the frames in :attr:`Inside.places`, outermost first.
    seconds: float  #: Time of a trial that ends here, in seconds, as the pass saw it.
    samples: int = 0  #: Number of its samples; 0 in recordings of 0.2.0 whose lines were timed.
    row: int | None = None  #: Index of its layer; None where the layer is unknown.
    function: str = ""  #: Function of its layer, if only this is known; empty in framework time.


@dataclass(frozen=True)
class Inside:
    """The result of the pass inside the layers, which sees only the main thread."""

    method: str  #: The sampler: ``py-spy 0.4.3``.
    samples: int  #: Number of samples while a trial ran.
    seconds: float  #: Wall time of these trials, in seconds.
    trials: int  #: Their number.
    places: tuple[Place, ...] = ()  #: Every frame once.
    stacks: tuple[Stack, ...] = ()  #: The time of a trial, without the profiler's own frames.
    notes: tuple[str, ...] = ()  #: What it could not see, a sentence each.
    #: Number of samples that are worth one independent sample: above 1 where the program waited for
    #: a processor, and was seen at one place many times.
    repeats: float = 1.0
