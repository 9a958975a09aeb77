"""What an engine is: something that runs a Chainer network's forward pass in another way.

An engine of one's own is a class with :class:`Engine`'s three methods, which is made without
arguments; ``--engines my_module:MyEngine`` measures it beside the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from chainer_profile.basics.errors import ProfileError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from chainer_profile.record.recording import Layer

#: What engines may compute in; Chainer itself, the baseline, stays in float32.
PRECISIONS = ("fp32", "bf16", "fp16")


class EngineError(ProfileError):
    """An engine cannot run the network; the message says why in one line, without its name."""


@dataclass(frozen=True, eq=False)
class Network:
    """What engines are given; they leave it as it is."""

    name: str  #: Name of the network.
    model: Any  #: The network, a :class:`chainer.Link`, on its device.
    inputs: tuple[Any, ...]  #: Its arguments: arrays on the same device.
    #: Chainer's layers of one forward pass in test mode, in the order of their calls.
    layers: tuple[Layer, ...]
    device: str = "cpu"  #: ``cpu`` or ``gpu:0``.
    #: One of :data:`PRECISIONS`. An engine that cannot compute in it raises :class:`EngineError`.
    precision: str = "fp32"
    threads: int | None = None  #: Threads that the engine may use; None leaves its own choice.

    @property
    def gpu(self) -> bool:
        return self.device != "cpu"


@dataclass(frozen=True)
class EngineNode:
    """One step of an engine."""

    name: str  #: Its name in the engine.
    kind: str  #: What it is, in the engine's words (``FusedConv``).
    #: Indices of Chainer's layers that it does, ascending: several where they were fused. Empty for
    #: a step of the engine's own, such as a change of the arrays' layout. A layer may be done by
    #: several nodes.
    layers: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class EngineProfile:
    """An engine's own times, node by node."""

    nodes: tuple[EngineNode, ...]  #: Its nodes, in the order in which they run.
    #: Time of every node in every trial, int64 nanoseconds, (trials, nodes).
    node_ns: NDArray[np.int64]
    #: Time of every trial as a whole, (trials,); what no node took of it is the runtime's overhead.
    run_ns: NDArray[np.int64]
    #: Indices of Chainer's layers that no node does any more: views that became nothing, and layers
    #: that were folded into constants.
    gone: tuple[int, ...] = ()


class Engine(Protocol):
    """The three things that an engine does, and what else it may have.

    - ``version``: text, such as ``1.20.1``.
    - ``suffix``, what its files end with, ``save(path)``, which writes the prepared engine into a
      file, and ``load(network, path)``, which makes it ready from one; weights and all are the
      file's. It raises EngineError where that is missing, damaged, or of another network.
    - ``intermediates(inputs)``: output arrays by index of Chainer's layer, as far as it can tell.
    - ``block()``: a context manager, within which runs are made in a row; it may make ready for
      them, and leaves the process as it was.
    - ``serve(inputs, requests, jobs)``: makes ready for so many runs on these inputs, so many at a
      time; gives what makes them, and returns when all are done.
    """

    #: What tables call it.
    name: str

    def prepare(self, network: Network) -> None:
        """Make the network ready to run: convert, compile, take memory.

        Raises:
            EngineError: The engine cannot run this network; says why.
        """

    def run(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """One forward pass; done when it returns.

        Args:
            inputs: Arrays of the shapes and types of the network's inputs.

        Returns:
            The outputs, arrays in the order in which the network gives them.
        """

    def layers(self, inputs: tuple[Any, ...], trials: int) -> EngineProfile | None:
        """Times of the engine's nodes over so many trials; None where it cannot tell them."""


def flat_arrays(value: Any) -> tuple[Any, ...]:
    """The arrays in what a network gives: a variable, or tuples, lists and dicts of them."""
    arrays = []
    for part in leaves(value):
        array = getattr(part, "array", part)
        if not hasattr(array, "shape") or not hasattr(array, "dtype"):
            raise EngineError(f"the network gives a {type(part).__name__}, not arrays")
        arrays.append(array)
    return tuple(arrays)


def leaves(value: Any) -> Iterator[Any]:
    """What is in tuples, lists and dicts of them, in order; a value that is none by itself."""
    if isinstance(value, (tuple, list, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from leaves(part)
    else:
        yield value
