"""What one trial of a notebook's cell runs: its code, in the user's own names."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from types import CodeType
from typing import TYPE_CHECKING, Any

import chainer

from chainer_profile.basics.paths import joined
from chainer_profile.measure.arguments import Arguments
from chainer_profile.measure.devices import clock_of, device_name
from chainer_profile.measure.entries import Entries
from chainer_profile.measure.hooks import WalkHook
from chainer_profile.measure.loop import LoopTrial

if TYPE_CHECKING:
    from chainer_profile.measure.clock import Clock
    from chainer_profile.measure.windows import Enter, Leave


class CellStep:
    """Runs a cell's code: the networks and optimizers are those that the user's variables hold.

    The cell decides what a trial does; Chainer's configuration stays as it is. Forward and backward
    are told apart, batches that are loaded are rows, and so are the parts of an optimizer's update.

    Args:
        code: The cell, compiled.
        namespace: The user's variables. What the cell sets stays there, from its last run.

    Attributes:
        roots: The networks among the variables, each with ``/`` and the name of its variable.
        optimizers: The optimizers among them, see :func:`optimizers`.
        given: What the outermost links were called with in :meth:`first_run`.
        inputs: The arrays of it.
        error: What the cell raised, if it did.
        train_mode: Whether ``chainer.config.train`` was on at the first function.
        clock: The clock for the device that the first function worked on.
        device: The name of that device.
        called: Classes of the links called from outside of all others, in order.
        calls: Number of functions called.
    """

    def __init__(self, code: CodeType, namespace: dict[str, Any]) -> None:
        self._code = code
        self._namespace = namespace
        self.roots: Sequence[tuple[str, Any]] = networks(namespace)
        self.given: list[Arguments] = []
        self.inputs: tuple[Any, ...] = ()
        self.error: BaseException | None = None
        self.train_mode = False
        cpu = chainer.get_device("@numpy")
        self.clock: Clock = clock_of(cpu)
        self.device = device_name(cpu)
        self.called: list[str] = []
        self.calls = 0
        self.optimizers = optimizers(namespace, code.co_names)

    def first_run(self) -> None:
        """Run the cell as if it stood alone, its output shown, and look at what it does.

        Raises:
            BaseException: Whatever the cell raises.
        """
        functions, links = _FunctionsSeen(), _LinksSeen()
        with functions.hook, links:
            exec(self._code, self._namespace)
        self.train_mode, self.calls = functions.train_mode, functions.calls
        self.called, self.given = links.kinds, links.given
        self.inputs = tuple(array for given in links.given for array in given.arrays)
        if functions.device is not None:
            self.clock = clock_of(functions.device)
            self.device = device_name(functions.device)
        # The cell may have made its networks, or an optimizer.
        self.roots = networks(self._namespace)
        self.optimizers = optimizers(self._namespace, self._code.co_names)

    def __call__(self) -> None:
        """Run the cell once."""
        try:
            exec(self._code, self._namespace)
        except BaseException as error:
            self.error = error
            raise

    @contextmanager
    def configured(self) -> Iterator[None]:
        """The configuration is the user's; what the cell prints is thrown away."""
        with redirect_stdout(_Nowhere()):
            yield

    @contextmanager
    def timed(self, enter: Enter, leave: Leave) -> Iterator[None]:
        """Times the phases, the loading of data, and the parts of the optimizers' updates."""
        found = [(prefix_of(optimizer, self.roots), optimizer) for optimizer in self.optimizers]
        loop = LoopTrial(self.roots, found)
        with Entries(loop.around), loop.timed(enter, leave):
            yield

    def remade(self) -> bool:
        """Whether the cell's networks are others than before: it makes them in every trial."""
        before = {id(root) for _, root in self.roots}
        return any(id(root) not in before for _, root in networks(self._namespace))


class _Nowhere(io.TextIOBase):
    def write(self, text: str) -> int:
        """Throw it away."""
        return len(text)


class _FunctionsSeen:
    """Notes how the first function is called, and counts all."""

    def __init__(self) -> None:
        self.calls = 0
        self.train_mode = False
        self.device: Any = None
        self.hook = WalkHook(lambda function, arrays, *_: self._note(arrays))

    def _note(self, arrays: tuple[Any, ...]) -> None:
        if not self.calls:
            self.train_mode = bool(chainer.config.train)
            first = next((array for array in arrays if array is not None), None)
            if first is not None:
                self.device = chainer.backend.get_device_from_array(first)
        self.calls += 1


class _LinksSeen(chainer.LinkHook):
    """Notes the links that are called from outside of all others, and with what."""

    name = "chainer_profile.LinksSeen"

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self.given: list[Arguments] = []
        self._depth = 0

    def forward_preprocess(self, args: Any) -> None:
        """Note that a link begins."""
        if not self._depth:
            self.kinds.append(type(args.link).__name__)
            self.given.append(Arguments(tuple(args.args), dict(args.kwargs)))
        self._depth += 1

    def forward_postprocess(self, args: Any) -> None:
        """Note that it ends."""
        self._depth -= 1


def prefix_of(optimizer: Any, roots: Sequence[tuple[str, Any]]) -> str:
    """What the paths of an optimizer's network begin with."""
    for prefix, root in roots:
        for path, link in root.namedlinks():
            if link is optimizer.target:
                return joined(prefix, str(path))
    return ""


def networks(namespace: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The networks among variables, each with ``/`` and its name; no links of other networks.

    Names that begin with ``_`` are IPython's own.
    """
    found: dict[int, tuple[str, Any]] = {}
    for name, value in namespace.items():
        if isinstance(value, chainer.Link) and not name.startswith("_"):
            found.setdefault(id(value), (f"/{name}", value))
    below = {id(link) for _, root in found.values() for link in root.links(skipself=True)}
    return [named for identity, named in found.items() if identity not in below]


def optimizers(namespace: Mapping[str, Any], names: Sequence[str]) -> list[Any]:
    """The optimizers among variables that are set up, one for a parameter.

    Of several for the same parameters it is one that the cell names, or else the last.
    """
    known = {
        id(value): (name, value)
        for name, value in reversed(list(namespace.items()))
        if isinstance(value, chainer.Optimizer)
        and value.target is not None
        and not name.startswith("_")
    }
    chosen, taken = [], set[int]()
    for _, optimizer in sorted(known.values(), key=lambda named: named[0] not in names):
        params = {id(param) for param in optimizer.target.params()}
        if not params & taken:
            chosen.append(optimizer)
            taken |= params
    return chosen
