"""The iterations of a program: their networks, optimizers, batches and settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import get_ident
from typing import Any

import chainer

from chainer_profile.basics.paths import joined
from chainer_profile.measure import observers
from chainer_profile.measure.configuration import current_configuration
from chainer_profile.measure.devices import device_name, device_of
from chainer_profile.measure.operations import actual_optimizer
from chainer_profile.record.recording import Layer, Rank, Settings


@dataclass
class Batch:
    """The size of the batches of an iteration."""

    size: int = 0  # number of examples
    loaded_nbytes: int = 0
    converted_nbytes: int = 0

    def add_loaded(self, error: BaseException | None, batch: Any) -> None:
        """Add a batch at the end of its load; None if the load raised."""
        self.loaded_nbytes += _nbytes(batch)
        self.size += len(batch) if hasattr(batch, "__len__") else 0

    def add_converted(self, error: BaseException | None, batch: Any) -> None:
        """Add a batch at the end of its conversion; None if that raised."""
        self.converted_nbytes += _nbytes(batch)

    def add(self, other: Batch) -> None:
        """Add the batches of another part of the iteration."""
        self.size += other.size
        self.loaded_nbytes += other.loaded_nbytes
        self.converted_nbytes += other.converted_nbytes

    @property
    def input_nbytes(self) -> int:
        """Bytes of the converted arrays, or of the loaded ones if nothing was converted."""
        return self.converted_nbytes or self.loaded_nbytes


@dataclass(frozen=True)
class Subject:
    """The names of a network, its device and its optimizers."""

    model: str
    device: str
    optimizers: tuple[str, ...] = ()

    def settings(
        self, layers: Sequence[Layer], batch: Batch, train_mode: bool, command: str
    ) -> Settings:
        """Make the settings of iterations; their phase follows from the rows ``layers``."""
        phases = {layer.phase for layer in layers}
        phase = "forward-backward" if "backward" in phases else "forward"
        optimizers: list[str] = []
        if "update" in phases:
            phase = "train"
            updates = {layer.function for layer in layers if layer.phase == "update"}
            optimizers = [name for name in self.optimizers if name in updates]
        inputs = [layer.input_shapes for layer in layers if layer.phase == "forward"]
        shape = inputs[0][0] if inputs and inputs[0] else ()
        return Settings(
            model=self.model,
            input="training batches" if phase == "train" else "the program's own",
            input_shape=shape,
            batchsize=batch.size or (shape[0] if shape else 1),
            device=self.device,
            phase=phase,
            optimizer=" and ".join(optimizers),
            train_mode=train_mode,
            command=command,
            **current_configuration(),
        )


def class_names(optimizers: Sequence[Any]) -> tuple[str, ...]:
    """Names of the classes of optimizers."""
    return tuple(type(actual_optimizer(optimizer)).__name__ for optimizer in optimizers)


class Loop:
    """The iterations of the user's own code: their networks, optimizers and batches.

    As an observer of operations, it adds up the size of the batches.

    Args:
        roots: The networks, each with the prefix of its links' paths.
        optimizers: The optimizers.
        title: Name of the model in the settings. Default: the class of the first network.
        command: The user's command, for the settings.
    """

    network_is_phase = True

    def __init__(
        self,
        roots: Sequence[tuple[str, Any]],
        optimizers: Sequence[Any] = (),
        title: str = "",
        command: str = "",
    ) -> None:
        self.roots: Sequence[tuple[str, Any]] = roots
        self.inputs: tuple[Any, ...] = ()
        #: The rank of the process in a training with ChainerMN.
        self.rank: Rank | None = None
        self.optimizers = list(optimizers)
        self._title, self._command = title, command
        self.thread = 0
        self.clear()

    def clear(self) -> None:
        """Forget the batches so far, and observe the calling thread."""
        self.thread = get_ident()
        self.batch = Batch()
        self._train_mode = bool(chainer.config.train)

    def settings(self, layers: Sequence[Layer]) -> Settings:
        """Make the settings of iterations; their phase follows from the rows ``layers``."""
        device, name = chainer.get_device("@numpy"), "a block"
        if self.roots:
            device, name = device_of(self.roots[0][1]), name_of(self.roots[0][1])
        subject = Subject(self._title or name, device_name(device), class_names(self.optimizers))
        return subject.settings(layers, self.batch, self._train_mode, self._command)

    # -- the interface of observers.Observer

    def begin_operation(
        self, operation: str, owner: Any, args: tuple[Any, ...]
    ) -> observers.End | None:
        return {
            observers.LOAD: self.batch.add_loaded,
            observers.CONVERT: self.batch.add_converted,
        }.get(operation)

    def begin_elsewhere(self, operation: str) -> None:
        """Do nothing: other threads load batches of later iterations."""

    def fail(self, error: Exception) -> None:
        """Do nothing: the sizes of later batches stay unknown."""


def loop_of(updater: Any, title: str = "", command: str = "") -> Loop:
    """Make the loop of an updater, from its networks and optimizers."""
    named = updater.get_all_optimizers()
    # Paths begin with the optimizer's name if there are several.
    roots = [
        ("" if len(named) == 1 else f"/{name}", optimizer.target)
        for name, optimizer in named.items()
    ]
    # A ParallelUpdater has a copy of the network for every other device.
    targets = [root for _, root in roots]
    roots += [
        (f"/{name}", model)
        for name, model in (getattr(updater, "_models", None) or {}).items()
        if not any(model is target for target in targets)
    ]
    return Loop(roots, list(named.values()), title, command)


def name_of(network: Any) -> str:
    """Name of a network's class; a Classifier has the name of its predictor."""
    return type(getattr(network, "predictor", network)).__name__


def _nbytes(batch: Any) -> int:
    """Bytes of the arrays in a batch: in tuples, lists and dictionaries of them."""
    try:
        if isinstance(batch, dict):
            batch = list(batch.values())
        if isinstance(batch, tuple | list):
            return sum(map(_nbytes, batch))
        return int(getattr(batch, "nbytes", 0))
    except Exception:  # a batch may be any object of the user's
        return 0


def prefix_of(optimizer: Any, roots: Sequence[tuple[str, Any]]) -> str:
    """Return the path of an optimizer's network among these networks, or an empty text."""
    for prefix, root in roots:
        for path, link in root.namedlinks():
            if link is optimizer.target:
                return joined(prefix, str(path))
    return ""


def networks(namespace: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The networks among variables, each with its path: ``/`` and the variable's name.

    Links of other networks are left out.
    """
    # Names that begin with _ are IPython's own.
    links: dict[int, tuple[str, Any]] = {}
    for name, value in namespace.items():
        if isinstance(value, chainer.Link) and not name.startswith("_"):
            links.setdefault(id(value), (f"/{name}", value))
    below = {id(link) for _, root in links.values() for link in root.links(skipself=True)}
    return [named for identity, named in links.items() if identity not in below]


def optimizers(namespace: Mapping[str, Any], names: Sequence[str]) -> list[Any]:
    """The optimizers among variables; no two of them update the same parameter.

    Optimizers with one of these names are preferred, then the variables that were defined last.
    """
    candidates = {
        id(value): (name, value)
        for name, value in reversed(list(namespace.items()))
        if isinstance(value, chainer.Optimizer)
        and value.target is not None
        and not name.startswith("_")
    }
    chosen, used_params = [], set[int]()
    for _, optimizer in sorted(candidates.values(), key=lambda named: named[0] not in names):
        params = {id(param) for param in optimizer.target.params()}
        if not params & used_params:
            chosen.append(optimizer)
            used_params |= params
    return chosen
