"""What one trial does, learned once: its rows, and which of them each moment belongs to."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from chainer import FunctionHook, LinkHook, _backprop_utils

from chainer_profile.basics.errors import ProfileError, one_line
from chainer_profile.basics.units import format_shape
from chainer_profile.costs.work import ArraySpec, Work, backward_work, forward_work
from chainer_profile.measure.owners import Owners
from chainer_profile.measure.windows import FORWARD, Mark
from chainer_profile.record.recording import Layer, LinkCalls, Shape

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from numpy.typing import NDArray

    from chainer_profile.measure.windows import Enter, Leave

ACCUMULATION = "gradient_accumulation"
#: Where a function keeps its structure pass, the index of its row in it and the shapes of its
#: forward: no reference to the function is held.
_ROW = "_chainer_profile_row"
_OUTSIDE = -1
_WORK = ("flops", "macs", "nbytes_read", "nbytes_written")

#: What a trial may enter: a function's forward (its class), or another window.
Entry = type | Mark


class Step(Protocol):
    """What one trial runs; see :mod:`chainer_profile.measure.steps`."""

    @property
    def roots(self) -> Sequence[tuple[str, Any]]:
        """The networks whose links give the paths, each with what is put before its paths."""

    @property
    def inputs(self) -> tuple[Any, ...]:
        """The arrays that the network is given."""

    def __call__(self) -> None:
        """Run it once."""

    def timed(self, enter: Enter, leave: Leave) -> AbstractContextManager[None]:
        """Within this, windows are entered and left for all that is timed beside functions."""


@dataclass(frozen=True)
class Structure:
    """The windows of one trial, and whose the time between every two clock reads is.

    Attributes:
        layers: The rows of the profile, in the order in which they were first entered.
        phases: The phases whose framework time is known by itself.
        links: The links of the network, and how often a trial calls them.
        entries: What was entered, in order, but for backward windows.
        backwards: Class of the function of every backward window, in order.
        owners: What the time after each clock read belongs to, (reads,): an index of layers,
            ``len(layers)`` and on for the framework time of phases, -1 for all other time.
    """

    layers: tuple[Layer, ...]
    phases: tuple[str, ...]
    links: tuple[LinkCalls, ...]
    entries: list[Entry]
    backwards: list[type]
    owners: NDArray[np.intp]

    def times_ns(self, stamps: list[int]) -> NDArray[np.int64]:
        """One trial's clock reads as times: of every layer, then of every phase's framework.

        The time between two reads belongs to one owner, so nothing is counted twice and nothing
        is lost: the times and what passed outside (owner -1) add up to the trial.
        """
        spans = np.diff(np.array(stamps, np.int64))
        return np.add.reduceat(spans[self._order], self._starts)

    @cached_property
    def _order(self) -> NDArray[np.intp]:
        order = np.argsort(self.owners[:-1], kind="stable")
        return order[np.searchsorted(self.owners[:-1][order], 0) :]

    @cached_property
    def _starts(self) -> NDArray[np.intp]:
        columns = np.arange(len(self.layers) + len(self.phases))
        return np.searchsorted(self.owners[self._order], columns)

    def place(self, n_stamps: int) -> str:
        """Label of the last row that had been entered after so many clock reads, if any."""
        rows = self.owners[:n_stamps]
        rows = rows[(rows >= 0) & (rows < len(self.layers))]
        return self.layers[rows[-1]].label if len(rows) and n_stamps <= len(self.owners) else ""

    def difference(self, entries: list[Entry], backwards: list[type], n_stamps: int) -> str:
        """How a trial's windows differ from these, in words; empty if they do not."""
        if entries == self.entries and backwards == self.backwards and n_stamps == len(self.owners):
            return ""
        for what, seen, known in (
            ("", entries, self.entries),
            ("backward ", backwards, self.backwards),
        ):
            for index, (now, first) in enumerate(zip(seen, known, strict=False)):
                if now != first:
                    return (
                        f"{what}call {index} was {_entry_name(now)}, and {_entry_name(first)} in "
                        "the first trial"
                    )
        return (
            f"it made {len(entries) + len(backwards)} function calls, and "
            f"{len(self.entries) + len(self.backwards)} in the first trial"
        )


def _entry_name(entry: Entry) -> str:
    if isinstance(entry, Mark):
        return entry.function or f"the {entry.phase} phase"
    return entry.__name__


class LinkStack(LinkHook):
    """Keeps the links whose forward is running, outermost first, and counts the calls."""

    name = "chainer_profile.LinkStack"

    def __init__(self) -> None:
        self.links: list[Any] = []
        self.calls: dict[int, int] = {}

    def forward_preprocess(self, args: Any) -> None:
        """Note that a link begins."""
        self.links.append(args.link)
        self.calls[id(args.link)] = self.calls.get(id(args.link), 0) + 1

    def forward_postprocess(self, args: Any) -> None:
        """Note that it ends."""
        self.links.pop()


class StructureHook(FunctionHook):
    """Notes everything about every window; slow, so it runs in the structure pass only."""

    name = "chainer_profile.Structure"

    def __init__(self, roots: Sequence[tuple[str, Any]], links: LinkStack) -> None:
        self._layers: list[Layer] = []
        self._phases: list[str] = []
        self._entries: list[Entry] = []
        self._backwards: list[type] = []
        self._owners: list[tuple[str, int]] = []
        # Kind and number of the running windows: ("phase", its place in _phases), ("forward", row)
        # or ("whole", row), in which functions count for the row.
        self._running: list[tuple[str, int]] = [("phase", _OUTSIDE)]
        # Rows of several windows: of backwards by the call's row, and of marks.
        self._rows: dict[int | Mark, int] = {}
        self._outputs: dict[int, dict[str, Any]] = {}
        # Functions of an earlier pass may live on, with rows that are none of this one.
        self._pass = object()
        self._links = links
        self._known = Owners(roots)

    # -- where a call belongs

    def path(self) -> str:
        """Path of the innermost running link that belongs to the network; or ``loss``."""
        found = self._known.innermost(self._links.links)
        if found is not None:
            return found
        in_lossfun = any(
            kind == "phase" and number != _OUTSIDE and self._phases[number] == FORWARD.phase
            for kind, number in self._running
        )
        return "loss" if in_lossfun else "/"

    # -- windows

    def forward_preprocess(self, function: Any, in_data: tuple[Any, ...]) -> None:
        """Note a call, and have its outputs noted."""
        kind, number = self._running[-1]
        self._entries.append(type(function))
        if accumulates_gradients():
            path = self._layers[number].path if kind == "whole" else "/"
            row = self._new_row("backward", path, ACCUMULATION, input_shapes=_shapes(in_data))
            kind = "whole"
        elif kind == "whole":
            setattr(function, _ROW, (self._pass, number, None))
            self._begin(kind, number)
            return
        else:
            row = self._new_row(
                self._phase(kind, number),
                self._known.of_call(self.path(), in_data),
                str(function._impl_name),
                input_shapes=_shapes(in_data),
                parent=number if kind == "forward" else None,
            )
            if self._layers[row].phase == FORWARD.phase:
                others, parameters = self._known.split(in_data)
                self._note(row, input_nbytes=_nbytes(others), parameter_nbytes=_nbytes(parameters))
            kind = "forward"
        setattr(function, _ROW, (self._pass, row, None))
        self._begin(kind, row)

        # The outputs are not yet on the function when forward_postprocess fires.
        forward = function.forward

        def noting_forward(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
            outputs: tuple[Any, ...] = forward(inputs)
            self._outputs[row] = {"output_shapes": _shapes(outputs), "dtype": _dtype(outputs)}
            if self._layers[row].phase == FORWARD.phase:
                self._outputs[row]["output_nbytes"] = _nbytes(outputs)
            specs = _specs(inputs), _specs(outputs)
            setattr(function, _ROW, (self._pass, row, specs))
            name = str(function._impl_name)
            self._add_work(row, _work_of(name, lambda: forward_work(function, *specs)))
            return outputs

        function.forward = noting_forward

    def _add_work(self, row: int, work: Work | None) -> None:
        """Count the work of one more call of a row; without a formula the row's is not known."""
        layer = self._layers[row]
        known = {name: getattr(layer, name) for name in _WORK}
        for name, value in known.items():
            if work is None or (layer.calls > 1 and value is None):
                known[name] = None
            else:
                known[name] = getattr(work, name) + (value or 0)
        self._note(row, **known)

    def _phase(self, kind: str, number: int) -> str:
        """Phase of a call in this window; outside of all phases it is the forward pass."""
        if kind == "forward":
            return self._layers[number].phase
        return FORWARD.phase if number == _OUTSIDE else self._phases[number]

    def forward_postprocess(self, function: Any, in_data: tuple[Any, ...]) -> None:
        """Note the end of a call."""
        _, row = self._running[-1]
        if row in self._outputs:
            del function.forward
            self._note(row, **self._outputs.pop(row))
        self._end()

    def backward_preprocess(
        self, function: Any, in_data: tuple[Any, ...], out_grad: tuple[Any, ...]
    ) -> None:
        """Note that the backward of a call begins; it goes to the link of the call."""
        # A function of a graph that was there before has no row.
        in_pass, forward, specs = getattr(function, _ROW, (None, None, None))
        if in_pass is not self._pass:
            forward = specs = None
        row = None if forward is None else self._rows.get(forward)
        if row is not None:
            self._count(row)
        else:
            known = None if forward is None else self._layers[forward]
            # Nodes know the shapes of arrays that were not kept.
            needed = tuple(node for node in function.inputs if node.requires_grad)
            row = self._new_row(
                "backward",
                known.path if known else "/",
                known.function if known else str(function._impl_name),
                input_shapes=_shapes(out_grad),
                output_shapes=_shapes(needed),
                dtype=_dtype(needed),
                forward=forward if known and known.phase != "backward" else None,
            )
            if forward is not None:
                self._rows[forward] = row
        if specs is not None:
            inputs, outputs = specs
            asked = tuple(bool(node.requires_grad) for node in function.inputs)
            name = str(function._impl_name)
            work = _work_of(name, lambda: backward_work(function, inputs, outputs, asked))
            self._add_work(row, work)
        self._backwards.append(type(function))
        self._begin("whole", row)

    def backward_postprocess(
        self, function: Any, in_data: tuple[Any, ...], out_grad: tuple[Any, ...]
    ) -> None:
        """Note its end."""
        self._end()

    def enter(self, mark: Mark) -> None:
        """Note that a window of another kind begins."""
        self._entries.append(replace(mark, work=None))
        if not mark.function:
            if mark.phase not in self._phases:
                self._phases.append(mark.phase)
            self._begin("phase", self._phases.index(mark.phase))
            return
        row = self._rows.get(mark)
        if row is not None:
            self._count(row)
        else:
            params = self._known.parameters(mark.path) if mark.phase == "update" else ()
            row = self._rows[mark] = self._new_row(
                mark.phase,
                mark.path,
                mark.function,
                input_shapes=_shapes(params),
                output_shapes=_shapes(params),
                dtype=_dtype(params),
            )
        if mark.work is not None:
            self._add_work(row, _work_of(mark.function, mark.work))
        self._begin("whole", row)

    def leave(self) -> None:
        """Note that it ends."""
        self._end()

    def _new_row(self, phase: str, path: str, function: str, **more: Any) -> int:
        index = len(self._layers)
        self._layers.append(Layer(index=index, path=path, function=function, phase=phase, **more))
        return index

    def _note(self, row: int, **fields: Any) -> None:
        self._layers[row] = replace(self._layers[row], **fields)

    def _count(self, row: int) -> None:
        self._note(row, calls=self._layers[row].calls + 1)

    def _begin(self, kind: str, number: int) -> None:
        self._running.append((kind, number))
        self._owners.append(self._running[-1])

    def _end(self) -> None:
        self._running.pop()
        self._owners.append(self._running[-1])

    # -- what came out

    def structure(self) -> Structure:
        """What was learned."""
        n_layers = len(self._layers)
        owners = [
            number if kind != "phase" else number if number == _OUTSIDE else n_layers + number
            for kind, number in self._owners
        ]
        return Structure(
            layers=tuple(self._layers),
            phases=tuple(self._phases),
            links=tuple(self._known.link_calls(self._links.calls)),
            entries=self._entries,
            backwards=self._backwards,
            owners=np.array(owners, np.intp),
        )

    def where(self) -> str:
        """Where the pass stands now, in words: for the message of an exception."""
        kind, number = self._running[-1]
        if kind != "phase":
            layer = self._layers[number]
            of = "" if layer.phase == "forward" else f"the {layer.phase} of "
            return f"in {of}layer {layer.label} at {layer.path}"
        if self._links.links:
            return f"in {type(self._links.links[-1]).__name__} at {self.path()}"
        if self._layers:
            return f"after layer {self._layers[-1].label} at {self._layers[-1].path}"
        return "before its first layer"


class StructureError(Exception):
    """The network raised an exception.

    Attributes:
        where: The layer or link that was running, in words.
        cause: The exception.
    """

    def __init__(self, where: str, cause: Exception) -> None:
        super().__init__(f"{where}: {cause}")
        self.where = where
        self.cause = cause

    def with_input(self, shape: Shape) -> ProfileError:
        """The error that tells the user which input the network failed with."""
        return ProfileError(
            f"the network fails with an input of {format_shape(shape)}, {self.where}: "
            f"{one_line(self.cause)}"
        )


def learn_structure(step: Step) -> Structure:
    """Run one trial and note every window: its function, link path, shapes and nesting.

    Args:
        step: What a trial runs.

    Raises:
        StructureError: The network raised an exception; says in which layer.
    """
    links = LinkStack()
    hook = StructureHook(step.roots, links)
    with links, hook, step.timed(hook.enter, hook.leave):
        try:
            step()
        except Exception as error:
            raise StructureError(hook.where(), error) from error
    return hook.structure()


def accumulates_gradients() -> bool:
    """Whether the running function adds up gradients of a variable that several functions use."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(12):
        if frame is None or frame.f_code is _backprop_utils.backprop_step.__code__:
            return False
        if frame.f_code is _backprop_utils._reduce.__code__:
            return True
        frame = frame.f_back
    return False


def _work_of(name: str, formula: Callable[[], Work | None]) -> Work | None:
    """What a formula gives; a user's formula that fails is as good as none."""
    try:
        return formula()
    except Exception as error:
        warnings.warn(
            f"the cost formula of {name} fails ({one_line(error)}): it is left out",
            stacklevel=2,
        )
        return None


def _specs(arrays: tuple[Any, ...]) -> tuple[ArraySpec, ...]:
    # An output that is not there (None) has no elements.
    return tuple(
        ArraySpec((0,), "float32") if array is None else ArraySpec.of(array) for array in arrays
    )


def _shapes(arrays: tuple[Any, ...]) -> tuple[Shape, ...]:
    return tuple(tuple(int(n) for n in array.shape) for array in arrays if array is not None)


def _dtype(arrays: tuple[Any, ...]) -> str:
    return next((str(array.dtype) for array in arrays if array is not None), "")


def _nbytes(arrays: Sequence[Any]) -> int:
    """Bytes of arrays, of each once."""
    once = {id(array): array for array in arrays if array is not None}
    return sum(int(array.nbytes) for array in once.values())
