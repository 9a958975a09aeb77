"""The hooks: what is read on entering and leaving every function, and how it becomes self times."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import chainer
import numpy as np
from chainer import FunctionHook, LinkHook

from chainer_profile.recording import Layer, Shape

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from chainer_profile.clock import NowNs

Step = Callable[[], Any]


class Recorder:
    """What a profiled trial runs under: one clock read on entering and on leaving a function.

    It keeps the function's class, never the function itself. Everything else about the calls is
    known from the structure pass (:func:`learn_structure`).

    Attributes:
        stamps: Clock reads in nanoseconds, in the order of the events.
        classes: Class of every function that was entered, in order.
    """

    def __init__(self, now_ns: NowNs) -> None:
        self.stamps: list[int] = []
        self.classes: list[type] = []
        self._hook = _recording_hook(now_ns, self.stamps, self.classes)

    def __enter__(self) -> Recorder:
        self._hook.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._hook.__exit__()

    def clear(self) -> None:
        """Forget the trial, also one that an exception left unfinished."""
        self.stamps.clear()
        self.classes.clear()

    def window_ns(self, calls: int = 2000) -> float:
        """Median time that the recorder shows for a function that does nothing."""
        self.clear()
        for _ in range(calls):
            self._hook.forward_preprocess(self, ())
            self._hook.forward_postprocess(self, ())
        stamps = np.array(self.stamps, np.int64)
        self.clear()
        return float(np.median(stamps[1::2] - stamps[::2]))


def _recording_hook(now_ns: NowNs, stamps: list[int], classes: list[type]) -> FunctionHook:
    """The hook of a recorder.

    This runs in every window of every trial. Methods of a class that find all they need in
    closure cells are the fastest callbacks: the interpreter caches their look-up, which it does
    not for functions kept on the instance.
    """
    stamp, note_class = stamps.append, classes.append

    class RecordingHook(FunctionHook):
        name = "chainer_profile.Recorder"

        def forward_preprocess(self, function: Any, in_data: Any) -> None:
            note_class(type(function))
            stamp(now_ns())

        def forward_postprocess(self, function: Any, in_data: Any) -> None:
            stamp(now_ns())

    return RecordingHook()


@dataclass(frozen=True)
class Structure:
    """The calls of one trial, learned once, and where their clock reads stand.

    Attributes:
        layers: The calls in the order in which they were entered.
        classes: Class of the function of each call.
        enters: Position among the trial's clock reads of each call's first one, (layers,).
        leaves: Position of its last one, (layers,).
    """

    layers: tuple[Layer, ...]
    classes: list[type]
    enters: NDArray[np.intp]
    leaves: NDArray[np.intp]

    def self_ns(self, stamps: list[int]) -> NDArray[np.int64]:
        """Self time of every layer from one trial's clock reads: nested calls are taken off."""
        reads = np.array(stamps, np.int64)
        if not self._nested_calls:
            return reads[1::2] - reads[::2]
        times = reads[self.leaves] - reads[self.enters]
        inclusive = times.copy()
        for parent, child in self._nested_calls:
            times[parent] -= inclusive[child]
        return times

    @cached_property
    def _nested_calls(self) -> list[tuple[int, int]]:
        return [(layer.parent, layer.index) for layer in self.layers if layer.parent is not None]

    def difference(self, classes: list[type], n_stamps: int) -> str:
        """How a trial's calls differ from these, in words; empty if they do not."""
        if classes == self.classes and n_stamps == 2 * len(self.layers):
            return ""
        for index, (seen, known) in enumerate(zip(classes, self.classes, strict=False)):
            if seen is not known:
                return f"call {index} was {seen.__name__}, and {known.__name__} in the first trial"
        return f"it made {len(classes)} function calls, and {len(self.classes)} in the first trial"


class LinkStack(LinkHook):
    """Keeps the links whose forward is running, outermost first."""

    name = "chainer_profile.LinkStack"

    def __init__(self) -> None:
        self.links: list[Any] = []

    def forward_preprocess(self, args: Any) -> None:
        """Note that a link begins."""
        self.links.append(args.link)

    def forward_postprocess(self, args: Any) -> None:
        """Note that it ends."""
        self.links.pop()


class StructureHook(FunctionHook):
    """Notes everything about every call; slow, so it runs in the structure pass only."""

    name = "chainer_profile.Structure"

    def __init__(self, model: Any, links: LinkStack) -> None:
        self.layers: list[Layer] = []
        self.classes: list[type] = []
        self.enters: list[int] = []
        self.leaves: dict[int, int] = {}
        self.running: list[int] = []
        self._outputs: dict[int, tuple[tuple[Shape, ...], str]] = {}
        self._events = 0
        self._model = model
        self._links = links
        self._paths: dict[int, str] = {}
        for path, link in model.namedlinks():
            self._paths.setdefault(id(link), path)  # a shared link goes by its first path

    def path(self) -> str:
        """Path of the innermost running link that belongs to the network."""
        for link in reversed(self._links.links):
            path = self._paths.get(id(link))
            if path is not None:
                return path
        return "/"

    def _owner(self, in_data: tuple[Any, ...]) -> str:
        """Path of the link that a call belongs to.

        That is the innermost running link, or one below it whose parameters the call takes: link
        hooks do not fire for ``link.forward(x)`` or for functions that are given ``link.W``.
        """
        running = self.path()
        below = running.rstrip("/") + "/"
        arrays = {id(array) for array in in_data}
        for name, param in self._model.namedparams(include_uninit=False):
            path = str(name).rpartition("/")[0]
            if path.startswith(below) and id(param.array) in arrays:
                return path
        return running

    def forward_preprocess(self, function: Any, in_data: tuple[Any, ...]) -> None:
        """Note a call, and have its outputs noted."""
        index = len(self.layers)
        self.layers.append(
            Layer(
                index=index,
                path=self._owner(in_data),
                function=str(function._impl_name),
                input_shapes=_shapes(in_data),
                parent=self.running[-1] if self.running else None,
            )
        )
        self.classes.append(type(function))
        self.enters.append(self._events)
        self.running.append(index)
        self._events += 1

        # The outputs are not yet on the function when forward_postprocess fires.
        forward = function.forward

        def noting_forward(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
            outputs: tuple[Any, ...] = forward(inputs)
            self._outputs[index] = _shapes(outputs), _dtype(outputs)
            return outputs

        function.forward = noting_forward

    def forward_postprocess(self, function: Any, in_data: tuple[Any, ...]) -> None:
        """Note the end of a call."""
        del function.forward
        index = self.running.pop()
        self.leaves[index] = self._events
        self._events += 1
        shapes, dtype = self._outputs.pop(index)
        self.layers[index] = replace(self.layers[index], output_shapes=shapes, dtype=dtype)

    def structure(self) -> Structure:
        """What was learned."""
        return Structure(
            layers=tuple(self.layers),
            classes=self.classes,
            enters=np.array(self.enters, np.intp),
            leaves=np.array([self.leaves[i] for i in range(len(self.layers))], np.intp),
        )

    def where(self) -> str:
        """Where the pass stands now, in words: for the message of an exception."""
        if self.running:
            layer = self.layers[self.running[-1]]
            return f"in layer {layer.label} at {layer.path}"
        if self._links.links:
            return f"in {type(self._links.links[-1]).__name__} at {self.path()}"
        if self.layers:
            return f"after layer {self.layers[-1].label} at {self.layers[-1].path}"
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


def learn_structure(model: Any, step: Step) -> Structure:
    """Run one trial and note every call: its function, link path, shapes and nesting.

    Args:
        model: The network, a :class:`chainer.Link`.
        step: Runs the network once.

    Raises:
        StructureError: The network raised an exception; says in which layer.
    """
    links = LinkStack()
    hook = StructureHook(model, links)
    with links, hook:
        try:
            step()
        except Exception as error:
            raise StructureError(hook.where(), error) from error
    return hook.structure()


@contextmanager
def inference(train_mode: bool = False) -> Iterator[None]:
    """Chainer's configuration of a forward trial: no graph, and test mode unless asked for."""
    with chainer.using_config("train", train_mode), chainer.no_backprop_mode():
        yield


def _shapes(arrays: tuple[Any, ...]) -> tuple[Shape, ...]:
    return tuple(tuple(int(n) for n in array.shape) for array in arrays if array is not None)


def _dtype(arrays: tuple[Any, ...]) -> str:
    return next((str(array.dtype) for array in arrays if array is not None), "")
