"""Patches of Chainer's classes that report what a program calls.

Only classes and modules are patched, never an object of the program: so the program can pickle and
copy its networks and optimizers as usual. The patches are in place while at
least one observer exists. A patch that the program makes in the meantime stays.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import get_ident
from typing import Any

import chainer
from chainer import FunctionNode, _backprop, _backprop_utils, function_node
from chainer.dataset import Converter, convert
from chainer.dataset import Iterator as ChainerIterator

from chainer_profile.measure.observers import (
    BACKPROP,
    BACKWARD,
    CLEARGRADS,
    COMMUNICATION,
    CONVERT,
    HOOK,
    ITERATION,
    LOAD,
    LOSS,
    NETWORK,
    OBSERVED,
    RULE,
    RUN,
    SETUP,
    SUM,
    UPDATE,
    Observer,
    report,
)

# Operations that are methods: the base class, and the names of the methods.
_METHODS: tuple[tuple[str, type, tuple[str, ...]], ...] = (
    (LOAD, ChainerIterator, ("next", "__next__")),
    (CONVERT, Converter, ("__call__",)),
    (NETWORK, chainer.Link, ("__call__",)),
    (CLEARGRADS, chainer.Link, ("cleargrads",)),
    (BACKWARD, chainer.Variable, ("backward",)),
    (SETUP, chainer.Optimizer, ("setup",)),
    (UPDATE, chainer.Optimizer, ("update",)),
    (HOOK, chainer.Optimizer, ("call_hook",)),
    (RULE, chainer.UpdateRule, ("update",)),
    (ITERATION, chainer.training.Updater, ("update",)),
    (RUN, chainer.training.Trainer, ("run",)),
)
#: Methods of ChainerMN's communicators that move gradients or parameters.
_COMMUNICATIONS = ("multi_node_mean_grad", "_multi_node_mean_grad_async", "bcast_data")
#: ChainerMN's optimizers wrap one of Chainer's and have another base class.
_MULTI_NODE_OPTIMIZERS = ("_MultiNodeOptimizer", "_DoubleBufferingOptimizer")


class _Patches:
    """The patches, and whom they report to."""

    def __init__(self) -> None:
        # The patches in place: owner and name of an attribute to owner, original and our value.
        self._installed: dict[tuple[int, str], tuple[Any, Any, Any]] = {}
        # The classes to patch, with their numbers of subclasses, operations and methods.
        self._classes: list[tuple[type, int, list[tuple[str, str]]]] = []
        # All wrappers made so far, by the same keys: original and our value.
        self._wrappers: dict[tuple[int, str], tuple[Any, Any]] = {}
        self._lock = threading.RLock()

    def add(self, observer: Observer, calls: bool) -> None:
        with self._lock:
            if not OBSERVED.observers:
                self._install()
            OBSERVED.add(observer, calls)

    def remove(self, observer: Observer) -> None:
        with self._lock:
            OBSERVED.remove(observer)
            if not OBSERVED.observers:
                self._restore()

    def patch_multi_node_optimizers(self) -> None:
        """Patch ChainerMN's optimizers, once the program has imported them."""
        module = sys.modules.get("chainermn.optimizers")
        for name in _MULTI_NODE_OPTIMIZERS:
            kind = getattr(module, name, None)
            if kind is not None:
                self._patch(kind, "update", _observed_update)

    def patch_class(self, operation: str, cls: type) -> None:
        """Patch a class that need not have the base class of its operation."""
        names = next(names for name, _, names in _METHODS if name == operation)
        for base in cls.__mro__:
            self._patch_methods(operation, base, names)

    def patch_communicator(self, cls: type) -> None:
        """Patch the class of a communicator of ChainerMN."""
        for name in _COMMUNICATIONS:
            for base in cls.__mro__:
                if name in vars(base):
                    self._patch(base, name, _observed_communication, name)

    def _install(self) -> None:
        if not self._patch_known_classes():
            self._list_classes()
            self._patch_known_classes()
        for base in {base for _, base, _ in _METHODS}:
            self._patch(base, "__init_subclass__", self._init_subclass, base)
        self._patch(convert, "_call_converter", _observed_converter)
        self._patch(FunctionNode, "apply", observed_apply)
        self._patch(_backprop_utils, "_reduce", _observed_sum)
        for module, name in ((_backprop, "_backprop_to_all"), (function_node, "_backprop")):
            self._patch(module, name, _observed_backprop)
        self.patch_multi_node_optimizers()

    def _patch_known_classes(self) -> bool:
        """Patch the classes of the list; False if it no longer has all."""
        for cls, n_subclasses, methods in self._classes:
            if len(cls.__subclasses__()) != n_subclasses:
                return False
            own = cls.__dict__
            for operation, name in methods:
                if name in own:
                    self._patch(cls, name, _wrap_method, operation, cls)
        return bool(self._classes)

    def _list_classes(self) -> None:
        # Blocks of code may be observed one by one: the list is kept between them.
        methods: dict[type, list[tuple[str, str]]] = {}
        for operation, base, names in _METHODS:
            for cls in subclasses(base):
                methods.setdefault(cls, []).extend((operation, name) for name in names)
        self._classes = [(cls, len(cls.__subclasses__()), names) for cls, names in methods.items()]
        self._wrappers.clear()

    def _patch_methods(self, operation: str, cls: type, names: tuple[str, ...]) -> None:
        for name in names:
            if name in vars(cls):
                self._patch(cls, name, _wrap_method, operation, cls)

    def _init_subclass(self, base: type, _: Any) -> Any:
        """Patch classes that the program defines later."""

        @classmethod  # type: ignore[misc]
        def init_subclass(kind: Any, **keywords: Any) -> None:
            super(base, kind).__init_subclass__(**keywords)  # type: ignore[arg-type]
            for operation, other, names in _METHODS:
                if other is base and OBSERVED.observers:
                    self._patch_methods(operation, kind, names)

        return init_subclass

    def _patch(self, owner: Any, name: str, wrap: Callable[..., Any], *args: Any) -> None:
        """Set an attribute of a class or module to ``wrap(*args, before)``."""
        key, before = (id(owner), name), vars(owner).get(name, _ABSENT)
        if key in self._installed and self._installed[key][1] is not before:
            return  # below a patch of the program's
        known, ours = self._wrappers.get(key, (None, None))
        if known is not before:
            ours = wrap(*args, None if before is _ABSENT else before)
            self._wrappers[key] = before, ours
        self._installed[key] = owner, before, ours
        setattr(owner, name, ours)

    def _restore(self) -> None:
        for key, (owner, before, ours) in list(self._installed.items()):
            if vars(owner).get(key[1]) is not ours:
                continue  # the program has patched it, too: ours only passes calls on
            if before is _ABSENT:
                delattr(owner, key[1])
            else:
                setattr(owner, key[1], before)
            del self._installed[key]


#: Chainer's function, whatever the program sets later.
UNPATCHED_APPLY = FunctionNode.apply
_ABSENT = object()
_PATCHES = _Patches()


def subclasses(base: type) -> list[type]:
    """A class and all classes below it."""
    found: list[type] = [base]
    seen = {base}
    for cls in found:
        below: list[type] = cls.__subclasses__()
        for subclass in below:
            if subclass not in seen:
                seen.add(subclass)
                found.append(subclass)
    return found


@contextmanager
def observing(observer: Observer, calls: bool = False) -> Iterator[None]:
    """Report operations to an observer; with ``calls`` also what a :class:`CallObserver` learns."""
    add_observer(observer, calls)
    try:
        yield
    finally:
        remove_observer(observer)


def add_observer(observer: Observer, calls: bool = False) -> None:
    """Begin to report; see :func:`observing`."""
    _PATCHES.add(observer, calls)


def remove_observer(observer: Observer) -> None:
    """Stop reporting to an observer, which need not have been added."""
    _PATCHES.remove(observer)


def patch_multi_node_optimizers() -> None:
    """Observe ChainerMN's optimizers, which the program may import late."""
    _PATCHES.patch_multi_node_optimizers()


def observe_class(operation: str, cls: type) -> None:
    """Observe a class of the program's own that does not have Chainer's base class."""
    _PATCHES.patch_class(operation, cls)


def observe_communicator(communicator: Any) -> None:
    """Observe a communicator of ChainerMN."""
    _PATCHES.patch_communicator(type(communicator))


def open_operations() -> set[str]:
    """The operations that the calling thread has begun and not ended."""
    return OBSERVED.open.kinds


# -- wrappers


def _wrap_method(operation: str, cls: type, method: Any) -> Any:
    if operation == NETWORK:
        return _observed_link(cls, method)
    return _observed_update(method) if operation == UPDATE else _observed(operation, method)


def _observed(operation: str, method: Any) -> Any:
    """A method or function that is reported, with its first argument as the owner."""

    @functools.wraps(method)
    def observed(owner: Any, /, *args: Any, **kwargs: Any) -> Any:
        if operation in OBSERVED.open.kinds:
            return method(owner, *args, **kwargs)
        return report(operation, owner, args, functools.partial(method, owner, *args, **kwargs))

    return observed


def _observed_backprop(backprop: Any) -> Any:
    """Backpropagation; the backward of a function may run another one, which is reported, too."""

    @functools.wraps(backprop)
    def observed(outputs: Any, *args: Any, **kwargs: Any) -> Any:
        call = functools.partial(backprop, outputs, *args, **kwargs)
        return report(BACKPROP, outputs, args, call)

    return observed


def _observed_link(definer: type, method: Any) -> Any:
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
    """Call a link that is outermost, or that several observers learn about."""
    if NETWORK not in OBSERVED.open.kinds and OBSERVED.observers:
        call = functools.partial(observed, link, *args, **kwargs)
        return report(NETWORK, link, (args, kwargs), call)
    thread = get_ident()
    trackers = [observer.tracker for observer in OBSERVED.call_observers]
    trackers = [tracker for tracker in trackers if tracker.thread == thread]
    callers = [tracker.enter(link, definer) for tracker in trackers]
    try:
        return method(link, *args, **kwargs)
    finally:
        for tracker, caller in zip(trackers, callers, strict=True):
            tracker.current = caller


def _observed_update(update: Any) -> Any:
    """``update`` of an optimizer; its loss function is an operation, too."""
    observed_update = _observed(UPDATE, update)
    # A class of the program gets the loss function unchanged, and passes it on.
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
    """Call ``update`` of an optimizer as an operation, even if the program has replaced it."""
    lossfun = functools.partial(call_loss, lossfun)
    call = functools.partial(optimizer.update, lossfun, *args, **kwargs)
    return call() if UPDATE in OBSERVED.open.kinds else report(UPDATE, optimizer, args, call)


def _observed_converter(call_converter: Any) -> Any:
    """The function by which updaters call a converter, which may be a plain function."""

    @functools.wraps(call_converter)
    def observed(converter: Any, batch: Any, device: Any) -> Any:
        call = functools.partial(call_converter, converter, batch, device)
        if isinstance(converter, Converter) or CONVERT in OBSERVED.open.kinds:
            return call()
        return report(CONVERT, converter, (batch, device), call)

    return observed


def _observed_communication(name: str, method: Any) -> Any:
    """A method of a communicator; observers get its name and the network as arguments."""

    @functools.wraps(method)
    def observed(communicator: Any, /, model: Any, *args: Any, **kwargs: Any) -> Any:
        call = functools.partial(method, communicator, model, *args, **kwargs)
        if COMMUNICATION in OBSERVED.open.kinds:
            return call()
        return report(COMMUNICATION, communicator, (name, model), call)

    return observed


def observed_apply(apply: Any) -> Any:
    """``apply`` of a function; call observers learn when it raises."""

    @functools.wraps(apply)
    def call_apply(function: Any, inputs: Any) -> Any:
        try:
            return apply(function, inputs)
        except BaseException:
            thread = get_ident()
            for observer in OBSERVED.call_observers:
                if observer.thread == thread:
                    observer.function_raised(function)
            raise

    return call_apply


def _observed_sum(reduce: Any) -> Any:
    """The function that adds up gradients; most calls get one gradient alone."""

    @functools.wraps(reduce)
    def observed(grad_list: Any) -> Any:
        if len(grad_list) < 2:
            return reduce(grad_list)
        return report(SUM, grad_list, (), functools.partial(reduce, grad_list))

    return observed


def left_spans(error: BaseException) -> int:
    """The number of operations and functions that an exception has left so far."""
    wrappers = (report.__code__.co_filename, "report"), (__file__, "call_apply")
    codes = (frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__))
    return sum((code.co_filename, code.co_name) in wrappers for code in codes)


def _forget_in_child() -> None:
    """A forked child is not observed."""
    for observer in [*OBSERVED.observers]:
        with suppress(Exception):
            chainer.get_function_hooks().pop(getattr(observer, "name", ""), None)
    OBSERVED.observers.clear()
    OBSERVED.call_observers.clear()
    OBSERVED.only_tracker = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
