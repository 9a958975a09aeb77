"""Layers as frames of the interpreter's stack, for samplers that know functions alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import cache, partial
from threading import get_ident
from types import FunctionType
from typing import Any

from chainer import FunctionNode, _backprop_utils

from chainer_profile.basics.replacements import Replacements
from chainer_profile.measure import patches
from chainer_profile.measure.links import Links, LinkTracker

#: What a sampler shows as the file of such a frame.
FILE = "<layers>"
#: Where a function keeps its label for its backward.
_LABEL = "_chainer_profile_label"


@contextmanager
def layer_frames(model: Any) -> Iterator[None]:
    """Show the layers of a network to samplers: within this block each layer is a frame.

    py-spy, ``perf`` (``python -X perf``), memray, Scalene and Python 3.15's ``profiling.sampling``
    attribute samples to Python functions. Within this block each call of a Chainer function runs
    in a function named after its layer, such as ``6_Convolution2DFunction@/res2/0/conv2`` (the
    label and path of a profile's row); its backward has the same name followed by ``backward``.
    This adds about 7 us to a call. Calls in other threads are unchanged.

    Args:
        model: The network, a :class:`chainer.Link`.
    """
    with labelled_frames([("", model)]):
        yield


@contextmanager
def labelled_frames(roots: Sequence[tuple[str, Any]] | None) -> Iterator[Callable[[], None]]:
    """The same of several networks; gives what is to be called when a trial begins.

    Without networks no link is looked at, and labels are such as ``6_Convolution2DFunction@``.
    """
    frames = _Frames(roots)
    with ExitStack() as stack:
        if roots is not None:
            stack.enter_context(patches.observing(frames, calls=True))
        # These are above the patches for observers, which are restored after them.
        replacements = stack.enter_context(Replacements())
        replacements.wrap(FunctionNode, "apply", partial(_labelled, frames))
        replacements.wrap(_backprop_utils, "backprop_step", partial(_labelled_backward, frames))
        yield frames.begin


class _Frames:
    """Which layer a call is, and the call below a frame that says so."""

    def __init__(self, roots: Sequence[tuple[str, Any]] | None) -> None:
        self._with_paths = roots is not None
        self._links = Links(roots or ())
        self.tracker = LinkTracker(self._links, nullcontext)
        self.tracker.thread = get_ident()
        self._labels: dict[tuple[int, str, str], str] = {}
        self.thread, self._count, self._within = get_ident(), 0, False

    def begin(self) -> None:
        self._count = 0

    # -- the interface of patches.CallObserver

    def begin_operation(
        self, operation: str, owner: Any, args: tuple[Any, ...]
    ) -> patches.End | None:
        """A call of the whole network begins a trial."""
        if operation == patches.NETWORK:
            self.begin()
        return None

    def begin_elsewhere(self, operation: str) -> None:
        """Other threads have no frames."""

    def fail(self, error: Exception) -> None:
        """Calls have no frames any more."""

    def function_raised(self, function: Any) -> None:
        """Its frame has ended."""

    def label(self, function: Any, inputs: Any) -> str:
        """Label of the layer that begins; whose it is is found out once."""
        number, name = self._count, function._impl_name
        self._count += 1
        if not self._with_paths:
            return f"{number}_{name}@"
        links, caller = self._links, self.tracker.current
        key = number, name, caller.path
        label = self._labels.get(key)
        if label is None:
            links.update_parameters()
            arrays = [getattr(value, "array", value) for value in inputs]
            label = self._labels[key] = f"{number}_{name}@{links.owner(caller, arrays).path}"
        return label

    def run(self, label: Callable[[], str], call: Callable[..., Any], *args: Any) -> Any:
        """Run a call below a frame of a label; what it calls in turn is a part of it."""
        if self._within or get_ident() != self.thread:
            return call(*args)
        self._within = True
        try:
            return frame_named(label())(call, *args)
        finally:
            self._within = False


def _labelled(frames: _Frames, stock: Any) -> Any:
    def apply(self: Any, inputs: Any) -> Any:
        def label() -> str:
            text = frames.label(self, inputs)
            setattr(self, _LABEL, text)
            return text

        return frames.run(label, stock, self, inputs)

    return apply


def _labelled_backward(frames: _Frames, stock: Any) -> Any:
    def backprop_step(func: Any, *args: Any) -> Any:
        label = getattr(func, _LABEL, None)
        if label is None:
            return stock(func, *args)
        return frames.run(lambda: f"{label} backward", stock, func, *args)

    return backprop_step


@cache
def frame_named(label: str) -> Callable[..., Any]:
    """A function of this name that calls what it is given."""
    names = {"co_name": label, "co_filename": FILE}
    if hasattr(_trampoline.__code__, "co_qualname"):  # Python 3.11
        names["co_qualname"] = label
    return FunctionType(_trampoline.__code__.replace(**names), {})  # type: ignore[arg-type]


def _trampoline(call: Callable[..., Any], *args: Any) -> Any:
    return call(*args)
