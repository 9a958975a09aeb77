"""What the pass inside the layers found: where the interpreter was, as stacks added up."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """A frame of a stack."""

    function: str  #: Name of the Python function; ``Class.method`` from Python 3.11 on.
    file: str  #: Its file, from the folder that it was imported from (``numpy/_core/numeric.py``).
    line: int = 0  #: Number of the line; 0 where the method does not tell lines.
    source: str = ""  #: What is on that line.
    #: Whether it is neither Python's nor an installed package's: the network's own code.
    own: bool = False


@dataclass(frozen=True)
class Stack:
    """One way from a layer, or from the network's call, to where the time goes."""

    places: tuple[int, ...]  #: Indices of the frames in :attr:`Inside.places`, outermost first.
    seconds: float  #: Time of a trial that ends here, in seconds, as the pass saw it.
    samples: int = 0  #: How often it was seen; 0 where every line was timed.
    row: int | None = None  #: Index of the layer that it is in; None where that is not known.
    #: Name of the function of the layers that it is in, where that is all that is known. Framework
    #: time has neither.
    function: str = ""


@dataclass(frozen=True)
class Inside:
    """What the pass inside the layers found. It sees the main thread alone."""

    method: str  #: What looked: ``py-spy 0.4.3``.
    samples: int  #: How often it looked while a trial ran.
    seconds: float  #: Wall time of these trials, in seconds.
    trials: int  #: Their number.
    places: tuple[Place, ...] = ()  #: Every frame once.
    #: Where the time of a trial goes. What the profiler's own frames take is left out.
    stacks: tuple[Stack, ...] = ()
    notes: tuple[str, ...] = ()  #: What it could not tell, a sentence each.
    #: How many samples tell as much as one that depends on no other: above 1 where the program
    #: waited for a processor, and was seen again and again at one place.
    repeats: float = 1.0
