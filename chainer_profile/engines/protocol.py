"""Protocol of an engine, which runs the forward pass of a Chainer network in another way.

Your own engine is a class with the three methods of :class:`Engine` and a constructor without
arguments. ``--engines my_module:MyEngine`` measures it with the others.
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


class EngineError(ProfileError):
    """An engine cannot run the network; the message gives the reason, without the engine's name."""


@dataclass(frozen=True, eq=False)
class Network:
    """A network for engines. Engines must not change it."""

    name: str  #: Name of the network.
    model: Any  #: The network, a :class:`chainer.Link`, on its device.
    inputs: tuple[Any, ...]  #: Arguments of the network: arrays on the same device.
    #: Chainer's layers in a forward pass in test mode, in the order of their calls.
    layers: tuple[Layer, ...]
    device: str = "cpu"  #: ``cpu`` or ``gpu:0``.
    threads: int | None = None  #: Threads that the engine may use; None lets the engine choose.

    @property
    def gpu(self) -> bool:
        return self.device != "cpu"


@dataclass(frozen=True)
class EngineNode:
    """A node of an engine's graph."""

    name: str  #: Name of the node in the engine.
    kind: str  #: Type of the node in the engine (``FusedConv``).
    #: Ascending indices of the layers of Chainer that the node computes: several for fused layers,
    #: none for a node that Chainer does not have, such as a change of layout. Several nodes may
    #: compute the same layer.
    layers: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class EngineProfile:
    """Times of an engine's nodes, measured by the engine."""

    nodes: tuple[EngineNode, ...]  #: The nodes in the order in which they run.
    #: Time of every node in every trial, int64 nanoseconds, (trials, nodes).
    node_ns: NDArray[np.int64]
    #: Time of every trial, int64 nanoseconds, (trials,). Time outside the nodes is overhead.
    run_ns: NDArray[np.int64]
    #: Indices of the layers of Chainer that no node computes: removed views, and layers that were
    #: folded into constants.
    gone: tuple[int, ...] = ()


class Engine(Protocol):
    """The three methods of an engine. It may also have:

    - ``version``: text, such as ``1.20.1``.
    - ``note``: a remark on its times, after ``prepare``.
    - ``load(network, path)``, which prepares the engine from a file, with the weights of that file.
      It raises EngineError if the file is missing, damaged, or of another network.
    - ``other_weights()``: the path of the first parameter that differs between that file and the
      network; an empty text if all are equal.
    - ``intermediates(inputs)``: available output arrays, by index of the layer of Chainer.
    - ``block()``: a context manager around successive runs. It may change the process, but must
      restore it.
    """

    name: str  #: Name in tables.

    def prepare(self, network: Network) -> None:
        """Make the network ready to run: convert, compile, allocate memory.

        Raises:
            EngineError: The engine cannot run this network. The message has the reason.
        """

    def run(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Run a forward pass, and return when it is complete.

        Args:
            inputs: Arrays of the shapes and types of the network's inputs.

        Returns:
            The output arrays, in the order in which the network returns them.
        """

    def layers(self, inputs: tuple[Any, ...], trials: int) -> EngineProfile | None:
        """Measure the engine's nodes in this number of trials; None if this is impossible."""


def flat_arrays(value: Any) -> tuple[Any, ...]:
    """Collect the arrays of a network's output: a variable, or nested tuples, lists and dicts."""
    arrays = []
    for part in leaves(value):
        array = getattr(part, "array", part)
        if not hasattr(array, "shape") or not hasattr(array, "dtype"):
            raise EngineError(f"the network returns a {type(part).__name__}, not arrays")
        arrays.append(array)
    return tuple(arrays)


def leaves(value: Any) -> Iterator[Any]:
    """Yield the values in nested tuples, lists and dicts in order; or the value itself."""
    if isinstance(value, (tuple, list, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from leaves(part)
    else:
        yield value
