"""Decides which of Chainer's classes and functions are patched, and restores them.

The patches report each call to the observers (:mod:`.observers`); :mod:`.wrappers` makes them. Only
classes and modules are patched, never an object of the program, so that the program can pickle and
copy its networks and optimizers as usual. The patches are in place while there is an observer. A
patch that the program makes in the meantime stays.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import chainer
from chainer import FunctionNode, _backprop, _backprop_utils, function_node
from chainer.dataset import Converter, convert
from chainer.dataset import Iterator as ChainerIterator

from chainer_profile.measure import wrappers
from chainer_profile.measure.observers import (
    BACKWARD,
    CLEARGRADS,
    CONVERT,
    HOOK,
    ITERATION,
    LOAD,
    NETWORK,
    OBSERVED,
    RULE,
    RUN,
    SETUP,
    UPDATE,
    Observer,
)

# Operations that are methods: name of the operation, base class, names of the methods.
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
#: ChainerMN's optimizers wrap an optimizer of Chainer, and have another base class.
_MULTI_NODE_OPTIMIZERS = ("_MultiNodeOptimizer", "_DoubleBufferingOptimizer")


class _Patches:
    """The patches that are in place, and the wrappers that were made so far."""

    def __init__(self) -> None:
        # The installed patches: class or module, original value and wrapper. The key is the
        # identity of the class or module and the attribute's name.
        self._installed: dict[tuple[int, str], tuple[Any, Any, Any]] = {}
        # The classes to patch, each with its number of subclasses when they were listed, and with
        # the operations and their methods.
        self._classes: list[tuple[type, int, list[tuple[str, str]]]] = []
        # The wrappers that were made so far, by the same keys: original value and wrapper.
        self._wrappers: dict[tuple[int, str], tuple[Any, Any]] = {}
        self._lock = threading.RLock()

    def add(self, observer: Observer, calls: bool) -> None:
        """Report to an observer; the first one installs the patches."""
        with self._lock:
            if not OBSERVED.observers:
                self._install()
            OBSERVED.add(observer, calls)

    def remove(self, observer: Observer) -> None:
        """Report no longer to an observer; the last one restores what was patched."""
        with self._lock:
            OBSERVED.remove(observer)
            if not OBSERVED.observers:
                self._restore()

    def patch_multi_node_optimizers(self) -> None:
        """Patch ChainerMN's optimizers if the program has imported them."""
        module = sys.modules.get("chainermn.optimizers")
        for name in _MULTI_NODE_OPTIMIZERS:
            kind = getattr(module, name, None)
            if kind is not None:
                self._patch(kind, "update", wrappers.wrap_update)

    def patch_class(self, operation: str, cls: type) -> None:
        """Patch the methods of an operation in a class and its bases, whatever these are."""
        names = next(names for name, _, names in _METHODS if name == operation)
        for base in cls.__mro__:
            self._patch_methods(operation, base, names)

    def patch_communicator(self, cls: type) -> None:
        """Patch the class of a communicator of ChainerMN."""
        for name in _COMMUNICATIONS:
            for base in cls.__mro__:
                if name in vars(base):
                    self._patch(base, name, wrappers.wrap_communication, name)

    def _install(self) -> None:
        """Patch all classes and functions whose calls are reported."""
        if not self._patch_known_classes():
            self._list_classes()
            self._patch_known_classes()
        for base in {base for _, base, _ in _METHODS}:
            self._patch(base, "__init_subclass__", self._init_subclass, base)
        self._patch(convert, "_call_converter", wrappers.wrap_converter)
        self._patch(FunctionNode, "apply", wrappers.wrap_apply)
        self._patch(_backprop_utils, "_reduce", wrappers.wrap_sum)
        for module, name in ((_backprop, "_backprop_to_all"), (function_node, "_backprop")):
            self._patch(module, name, wrappers.wrap_backprop)
        self.patch_multi_node_optimizers()

    def _patch_known_classes(self) -> bool:
        """Patch the listed classes; returns False if the list is empty or lacks a new class."""
        for cls, n_subclasses, methods in self._classes:
            if len(cls.__subclasses__()) != n_subclasses:
                return False
            attributes = cls.__dict__
            for operation, name in methods:
                if name in attributes:
                    self._patch(cls, name, wrappers.wrap_method, operation, cls)
        return bool(self._classes)

    def _list_classes(self) -> None:
        """List Chainer's classes, and the program's below them, whose methods are operations."""
        # The list is kept for later observers: a program may profile each block of its code.
        methods: dict[type, list[tuple[str, str]]] = {}
        for operation, base, names in _METHODS:
            for cls in subclasses(base):
                methods.setdefault(cls, []).extend((operation, name) for name in names)
        self._classes = [(cls, len(cls.__subclasses__()), names) for cls, names in methods.items()]
        self._wrappers.clear()

    def _patch_methods(self, operation: str, cls: type, names: tuple[str, ...]) -> None:
        """Patch the methods of an operation that a class defines itself."""
        for name in names:
            if name in vars(cls):
                self._patch(cls, name, wrappers.wrap_method, operation, cls)

    def _init_subclass(self, base: type, _: Any) -> Any:
        """Make an ``__init_subclass__`` that patches classes that the program defines later."""

        @classmethod  # type: ignore[misc]
        def init_subclass(kind: Any, **keywords: Any) -> None:
            super(base, kind).__init_subclass__(**keywords)  # type: ignore[arg-type]
            for operation, other, names in _METHODS:
                if other is base and OBSERVED.observers:
                    self._patch_methods(operation, kind, names)

        return init_subclass

    def _patch(self, owner: Any, name: str, wrap: Callable[..., Any], *args: Any) -> None:
        """Set an attribute of a class or module to ``wrap(*args, original)``, but only once."""
        key, original = (id(owner), name), vars(owner).get(name, _ABSENT)
        if key in self._installed and self._installed[key][1] is not original:
            return  # the wrapper is in place, or a patch of the program's calls it
        wrapped, wrapper = self._wrappers.get(key, (None, None))
        if wrapped is not original:
            wrapper = wrap(*args, None if original is _ABSENT else original)
            self._wrappers[key] = original, wrapper
        self._installed[key] = owner, original, wrapper
        setattr(owner, name, wrapper)

    def _restore(self) -> None:
        """Put the original values back where no patch of the program's hides ours."""
        for key, (owner, original, wrapper) in list(self._installed.items()):
            if vars(owner).get(key[1]) is not wrapper:
                continue  # the program has patched it, too, and its patch calls the wrapper
            if original is _ABSENT:
                delattr(owner, key[1])
            else:
                setattr(owner, key[1], original)
            del self._installed[key]


_ABSENT = object()
_PATCHES = _Patches()


def subclasses(base: type) -> list[type]:
    """List a class and all its subclasses, direct and indirect."""
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
    """Report operations to an observer.

    With ``calls``, report also what a :class:`.observers.CallObserver` learns.
    """
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
