"""Wrappers of Chainer's methods and functions, which report each call to the observers.

:mod:`.patches` puts them in the place of the originals. A call within an operation of the same kind
is not reported.
"""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable
from threading import get_ident
from typing import Any

from chainer import FunctionNode
from chainer.dataset import Converter

from chainer_profile.measure.links import Caller, LinkTracker
from chainer_profile.measure.observers import (
    BACKPROP,
    COMMUNICATION,
    CONVERT,
    LOSS,
    NETWORK,
    OBSERVED,
    UPDATE,
    report,
)

#: Chainer's method, even if the program replaces it later.
ORIGINAL_APPLY = FunctionNode.apply


def wrap_method(operation: str, cls: type, method: Any) -> Any:
    """Wrap a method, which ``cls`` defines, so that its calls are reported as an operation."""
    if operation == NETWORK:
        return _wrap_link_call(cls, method)
    return wrap_update(method) if operation == UPDATE else _wrap(operation, method)


def _wrap(operation: str, method: Any) -> Any:
    """Wrap a method or function; observers get its first argument as the owner."""

    @functools.wraps(method)
    def observed(owner: Any, /, *args: Any, **kwargs: Any) -> Any:
        if operation in OBSERVED.open.kinds:
            return method(owner, *args, **kwargs)
        return report(operation, owner, args, functools.partial(method, owner, *args, **kwargs))

    return observed


def wrap_backprop(backprop: Any) -> Any:
    """Wrap a backpropagation, which is also reported within the backward of a function."""

    @functools.wraps(backprop)
    def observed(outputs: Any, *args: Any, **kwargs: Any) -> Any:
        call = functools.partial(backprop, outputs, *args, **kwargs)
        return report(BACKPROP, outputs, args, call)

    return observed


def _wrap_link_call(definer: type, method: Any) -> Any:
    """Wrap ``__call__`` of links: report outermost calls, and track which link calls functions."""

    @functools.wraps(method)
    def observed(link: Any, /, *args: Any, **kwargs: Any) -> Any:
        tracker = OBSERVED.only_tracker
        if tracker is None or tracker.current.is_outside or tracker.thread != get_ident():
            return _call_link(definer, observed, method, link, args, kwargs)
        # Nearly all calls come here, so what enter() does for a known link is written out.
        caller, callee = tracker.current, tracker.callers.get(id(link))
        if callee is None or callee is caller:
            tracker.enter(link, definer)
        else:
            tracker.log.append(callee)
            tracker.current = callee
        try:
            return method(link, *args, **kwargs)
        finally:
            tracker.current = caller

    return observed


def _call_link(definer: type, observed: Any, method: Any, link: Any, args: Any, kwargs: Any) -> Any:
    """Call a link where the fast path of :func:`_wrap_link_call` does not apply.

    The link is outermost, another thread calls it, or the number of trackers is not 1.
    """
    if NETWORK not in OBSERVED.open.kinds and OBSERVED.observers:
        call = functools.partial(observed, link, *args, **kwargs)
        return report(NETWORK, link, (args, kwargs), call)
    return _call_entered(
        lambda tracker: tracker.enter(link, definer), method, link, *args, **kwargs
    )


def _call_entered(
    enter: Callable[[LinkTracker], Caller], call: Any, /, *args: Any, **kwargs: Any
) -> Any:
    """Call a function while another caller is current, which ``enter`` sets in each tracker."""
    thread = get_ident()
    trackers = [observer.tracker for observer in OBSERVED.call_observers]
    trackers = [tracker for tracker in trackers if tracker.thread == thread]
    callers = [enter(tracker) for tracker in trackers]
    try:
        return call(*args, **kwargs)
    finally:
        for tracker, caller in zip(trackers, callers, strict=True):
            tracker.current = caller


def wrap_update(update: Any) -> Any:
    """Wrap ``update`` of an optimizer; its loss function is an operation, too."""
    observed_update = _wrap(UPDATE, update)
    # A method of the program's own gets the loss function unchanged, and passes it to Chainer's.
    is_chainers = str(getattr(update, "__module__", "")).startswith(("chainer.", "chainermn."))
    if not is_chainers:
        return observed_update

    @functools.wraps(update)
    def observed(optimizer: Any, /, lossfun: Any = None, *args: Any, **kwargs: Any) -> Any:
        if lossfun is not None:
            lossfun = functools.partial(call_loss, lossfun)
        return observed_update(optimizer, lossfun, *args, **kwargs)

    return observed


def call_loss(lossfun: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Call a loss function as the operation :data:`LOSS`."""
    if LOSS in OBSERVED.open.kinds:
        return lossfun(*args, **kwargs)
    return report(LOSS, lossfun, args, functools.partial(lossfun, *args, **kwargs))


def call_update(optimizer: Any, lossfun: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Call ``update`` of an optimizer, and report it even if this method is not patched."""
    lossfun = functools.partial(call_loss, lossfun)
    call = functools.partial(optimizer.update, lossfun, *args, **kwargs)
    return call() if UPDATE in OBSERVED.open.kinds else report(UPDATE, optimizer, args, call)


def wrap_converter(call_converter: Any) -> Any:
    """Wrap the function by which updaters call a converter, which may be a plain function."""

    @functools.wraps(call_converter)
    def observed(converter: Any, batch: Any, device: Any) -> Any:
        call = functools.partial(call_converter, converter, batch, device)
        # The methods of Converters are patched themselves.
        if isinstance(converter, Converter) or CONVERT in OBSERVED.open.kinds:
            return call()
        return report(CONVERT, converter, (batch, device), call)

    return observed


def wrap_communication(name: str, method: Any) -> Any:
    """Wrap a method of a communicator; observers get its name and the network as arguments."""

    @functools.wraps(method)
    def observed(communicator: Any, /, model: Any, *args: Any, **kwargs: Any) -> Any:
        call = functools.partial(method, communicator, model, *args, **kwargs)
        if COMMUNICATION in OBSERVED.open.kinds:
            return call()
        return report(COMMUNICATION, communicator, (name, model), call)

    return observed


def wrap_apply(apply: Any) -> Any:
    """Wrap ``FunctionNode.apply``: call observers learn of a function that raises."""

    @functools.wraps(apply)
    def observed_apply(function: Any, inputs: Any) -> Any:
        try:
            return apply(function, inputs)
        except BaseException:
            thread = get_ident()
            for observer in OBSERVED.call_observers:
                if observer.thread == thread:
                    observer.function_raised(function)
            raise

    return observed_apply


def wrap_sum(reduce: Any) -> Any:
    """Wrap the function that adds up gradients: track sums of several gradients."""

    @functools.wraps(reduce)
    def observed(grad_list: Any) -> Any:
        if len(grad_list) < 2:
            return reduce(grad_list)
        return _call_entered(LinkTracker.enter_sum, reduce, grad_list)

    return observed


def left_spans(error: BaseException) -> int:
    """Count the operations and functions that an exception has left so far, by its traceback."""
    wrappers = (report.__code__.co_filename, "report"), (__file__, "observed_apply")
    codes = (frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__))
    return sum((code.co_filename, code.co_name) in wrappers for code in codes)
