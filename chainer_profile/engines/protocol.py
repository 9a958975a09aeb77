"""Protocol of an engine, which runs a Chainer network's forward pass in another way.

Your own engine is a class with :class:`Engine`'s three methods that is created without arguments;
``--engines my_module:MyEngine`` measures it with the others.
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
    """A network for engines, which must not change it."""

    name: str  #: Name of the network.
    model: Any  #: The network, a :class:`chainer.Link`, on its device.
    inputs: tuple[Any, ...]  #: Its arguments: arrays on the same device.
    #: Chainer's layers in a forward pass in test mode, in the order of their calls.
    layers: tuple[Layer, ...]
    device: str = "cpu"  #: ``cpu`` or ``gpu:0``.
    threads: int | None = None  #: Threads that the engine may use; None: its own choice.

    @property
    def gpu(self) -> bool:
        return self.device != "cpu"


@dataclass(frozen=True)
class EngineNode:
    """A step of an engine."""

    name: str  #: Its name in the engine.
    kind: str  #: The engine's word for such steps (``FusedConv``).
    #: Indices of Chainer's layers that it executes, ascending: several where they were fused. Empty
    #: for a step of the engine's own, such as a change of the arrays' layout. Several nodes may
    #: execute the same layer.
    layers: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class EngineProfile:
    """An engine's own times, node by node."""

    nodes: tuple[EngineNode, ...]  #: Its nodes, in the order in which they run.
    #: Time of every node in every trial, int64 nanoseconds, (trials, nodes).
    node_ns: NDArray[np.int64]
    #: Time of every trial as a whole, (trials,); time outside its nodes is overhead.
    run_ns: NDArray[np.int64]
    #: Indices of Chainer's layers that no node executes: removed views, and layers that were folded
    #: into constants.
    gone: tuple[int, ...] = ()


class Engine(Protocol):
    """The three methods of an engine. It may also have:

    - ``version``: text, such as ``1.20.1``.
    - ``note``: a remark on its times, once it is prepared.
    - ``load(network, path)``, which prepares the engine from a file, with the weights of that file.
      It raises EngineError if the file is missing, damaged, or of another network.
    - ``other_weights()``: the path of the first parameter that differs between that file and the
      network; an empty text if all are equal.
    - ``intermediates(inputs)``: output arrays by index of Chainer's layer, as far as it has them.
    - ``block()``: a context manager around runs in a row. It may prepare for them, and leaves the
      process as it was.
    """

    #: Its name in tables.
    name: str

    def prepare(self, network: Network) -> None:
        """Make the network ready to run: convert, compile, allocate memory.

        Raises:
            EngineError: The engine cannot run this network, for the reason in the message.
        """

    def run(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Run a forward pass, which is complete on return.

        Args:
            inputs: Arrays of the shapes and types of the network's inputs.

        Returns:
            The outputs, arrays in the order in which the network returns them.
        """

    def layers(self, inputs: tuple[Any, ...], trials: int) -> EngineProfile | None:
        """Measure the engine's nodes in ``trials`` trials; None if it cannot."""


def flat_arrays(value: Any) -> tuple[Any, ...]:
    """The arrays in a network's output: a variable, or tuples, lists and dicts of variables."""
    arrays = []
    for part in leaves(value):
        array = getattr(part, "array", part)
        if not hasattr(array, "shape") or not hasattr(array, "dtype"):
            raise EngineError(f"the network returns a {type(part).__name__}, not arrays")
        arrays.append(array)
    return tuple(arrays)


def leaves(value: Any) -> Iterator[Any]:
    """The values in nested tuples, lists and dicts, in order; any other value alone."""
    if isinstance(value, (tuple, list, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from leaves(part)
    else:
        yield value
