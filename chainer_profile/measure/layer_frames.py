"""Layers as frames of the interpreter's stack, for samplers that only show functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from threading import get_ident
from types import FunctionType
from typing import Any

from chainer import FunctionNode, _backprop_utils

from chainer_profile.basics.replacements import Replacements
from chainer_profile.measure import observers, patches
from chainer_profile.measure.links import Links, LinkTracker

#: Name of the file that a sampler shows for a layer's frame.
FILE = "<layers>"
#: Attribute of a function node with the label that its backward needs.
_LABEL = "_chainer_profile_label"


@contextmanager
def layer_frames(model: Any) -> Iterator[None]:
    """Show the layers of a network to samplers as frames of the stack.

    py-spy, ``perf`` (``python -X perf``), memray, Scalene and Python 3.15's ``profiling.sampling``
    attribute samples to Python functions. This context runs each call of a Chainer function in a
    function that is named after its layer, such as ``6_Convolution2DFunction@/res2/0/conv2`` (the
    label and path of a profile's row). The name of a backward ends in ``backward``. This adds about
    7 us to a call. Calls in other threads are unchanged.

    Args:
        model: The network, a :class:`chainer.Link`.
    """
    with labelled_frames([("", model)]):
        yield


@contextmanager
def labelled_frames(roots: Sequence[tuple[str, Any]] | None) -> Iterator[Callable[[], None]]:
    """Show the layers of several networks to samplers as :func:`layer_frames` does.

    ``roots`` are pairs of a path's prefix and a network. Without them labels have no paths:
    ``6_Convolution2DFunction@``. Yields a function to call at the start of each trial.
    """
    frames = _Frames(roots)
    observed = patches.observing(frames, calls=True) if roots is not None else nullcontext()
    with observed, Replacements() as replacements:
        replacements.wrap(FunctionNode, "apply", partial(_labelled, frames))
        replacements.wrap(_backprop_utils, "backprop_step", partial(_labelled_backward, frames))
        yield frames.begin


class _Frames:
    """Finds the label of each function call, and runs the call in a frame of that name."""

    def __init__(self, roots: Sequence[tuple[str, Any]] | None) -> None:
        self._with_paths = roots is not None
        self._links = Links(roots or ())
        self.tracker = LinkTracker(self._links, nullcontext)
        self.tracker.thread = get_ident()
        self._labels: dict[tuple[int, str, str], str] = {}
        self.thread = get_ident()
        self._count = 0  # calls of functions in this trial
        self._in_frame = False

    def begin(self) -> None:
        """Start a trial: number its function calls from 0."""
        self._count = 0
        self._links.expect_changes()

    # -- the interface of observers.CallObserver

    def begin_operation(
        self, operation: str, owner: Any, args: tuple[Any, ...]
    ) -> observers.End | None:
        """Begin a trial if a network is called."""
        if operation == observers.NETWORK:
            self.begin()
        return None

    def begin_elsewhere(self, operation: str) -> None:
        """Do nothing: calls in other threads get no frame."""

    def fail(self, error: Exception) -> None:
        """Do nothing: further calls get no frame."""

    def function_raised(self, function: Any) -> None:
        """Do nothing: its frame has ended."""

    def label(self, function: Any, inputs: Any) -> str:
        """Number a function call, and make its label with the path of its link."""
        number, name = self._count, function._impl_name
        self._count += 1
        if not self._with_paths:
            return f"{number}_{name}@"
        links, caller = self._links, self.tracker.current
        key = number, name, caller.path
        label = self._labels.get(key)
        if label is None:  # later trials find it
            links.note_parameters(caller, inputs)
            arrays = [getattr(value, "array", value) for value in inputs]
            label = self._labels[key] = f"{number}_{name}@{links.owner(caller, arrays).path}"
        return label

    def run(self, label: Callable[[], str], call: Callable[..., Any], *args: Any) -> Any:
        """Make a call in a frame with this label; nested calls get no frame."""
        if self._in_frame or get_ident() != self.thread:
            return call(*args)
        self._in_frame = True
        try:
            return frame_named(label())(call, *args)
        finally:
            self._in_frame = False


def _labelled(frames: _Frames, stock: Any) -> Any:
    """Wrap ``FunctionNode.apply`` to run in a layer's frame."""

    def apply(self: Any, inputs: Any) -> Any:
        def label() -> str:
            text = frames.label(self, inputs)
            setattr(self, _LABEL, text)
            return text

        return frames.run(label, stock, self, inputs)

    return apply


def _labelled_backward(frames: _Frames, stock: Any) -> Any:
    """Wrap ``backprop_step`` to run in the frame of the layer's backward."""

    def backprop_step(func: Any, *args: Any) -> Any:
        label = getattr(func, _LABEL, None)
        if label is None:
            return stock(func, *args)
        return frames.run(lambda: f"{label} backward", stock, func, *args)

    return backprop_step


@cache
def frame_named(label: str) -> Callable[..., Any]:
    """Make a function of this name that calls its first argument with the others."""
    names = {"co_name": label, "co_filename": FILE}
    if hasattr(_trampoline.__code__, "co_qualname"):  # Python 3.11
        names["co_qualname"] = label
    return FunctionType(_trampoline.__code__.replace(**names), {})  # type: ignore[arg-type]


def _trampoline(call: Callable[..., Any], *args: Any) -> Any:
    return call(*args)
