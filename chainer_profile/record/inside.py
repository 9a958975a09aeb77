"""What the pass inside the layers found: where the interpreter was, as stacks added up."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """A frame of a stack.

    Attributes:
        function: Name of the Python function; ``Class.method`` from Python 3.11 on.
        file: Its file, from the folder that it was imported from (``numpy/_core/numeric.py``).
        line: Number of the line; 0 where the method does not tell lines.
        source: What is on that line.
        own: Whether it is neither Python's nor an installed package's: the network's own code.
    """

    function: str
    file: str
    line: int = 0
    source: str = ""
    own: bool = False


@dataclass(frozen=True)
class Stack:
    """One way from a layer, or from the network's call, to where the time goes.

    Attributes:
        places: Indices of the frames in :attr:`Inside.places`, outermost first.
        seconds: Time of a trial that ends here, in seconds, as the pass saw it.
        samples: How often it was seen; 0 where every line was timed.
        row: Index of the layer that it is in; None where that is not known.
        function: Name of the function of the layers that it is in, where that is all that is
            known. Framework time has neither.
    """

    places: tuple[int, ...]
    seconds: float
    samples: int = 0
    row: int | None = None
    function: str = ""


@dataclass(frozen=True)
class Inside:
    """What the pass inside the layers found. It sees the main thread alone.

    Attributes:
        method: What looked: ``py-spy 0.4.3``.
        samples: How often it looked while a trial ran.
        seconds: Wall time of these trials, in seconds.
        trials: Their number.
        places: Every frame once.
        stacks: Where the time of a trial goes. What the profiler's own frames take is left out.
        notes: What it could not tell, a sentence each.
        repeats: How many samples tell as much as one that depends on no other: above 1 where the
            program waited for a processor, and was seen again and again at one place.
    """

    method: str
    samples: int
    seconds: float
    trials: int
    places: tuple[Place, ...] = ()
    stacks: tuple[Stack, ...] = ()
    notes: tuple[str, ...] = ()
    repeats: float = 1.0
