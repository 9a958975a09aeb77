"""The state of networks, optimizers and functions: copied before trials and restored after them."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from types import CellType, FunctionType
from typing import Any

import chainer
import numpy as np
from chainer.variable import VariableNode

from chainer_profile.basics.errors import ProfileError, one_line
from chainer_profile.basics.free_memory import free_nbytes
from chainer_profile.basics.replacements import Replacements
from chainer_profile.basics.units import format_nbytes
from chainer_profile.measure.contents import (
    GENERATORS,
    Restore,
    attribute_restorer,
    copy_array,
    copy_class,
    copy_generator,
    copy_items,
    copy_slot,
)
from chainer_profile.measure.interrupts import delayed_interrupts
from chainer_profile.measure.reachable import (
    attributes_of,
    is_defined_by_program,
    is_examined,
    names_of,
    parts_of_callable,
    slots_of,
)

#: The items of longer containers are restored, but not what these items contain: they are data.
LONG_CONTAINER = 10_000
#: Copies below this size are made without asking how much memory is free.
_LARGE_NBYTES = 1 << 26
_MISSING: Any = object()
_CONTENT = "content"
_IMMUTABLE = frozenset({type(None), bool, int, float, complex, str, bytes, range, type})


@contextmanager
def preserved_state(*objects: Any) -> Iterator[None]:
    """Restore these objects, and everything that they refer to, at the end of the block.

    Objects that are reached keep their identity: an object has the same attributes and slots as
    before, a container the same items, an array of NumPy or CuPy the same bytes, a random
    generator the same state. So do the random generators of NumPy and Python. Functions are
    followed to their closures, defaults and the global variables that they name, methods to their
    object, variables to the graph that they belong to, and objects to their classes, except for
    classes of libraries. A parameter without an array is an exception: it keeps the first array
    that it gets, with its initial values.

    Methods of classes, library modules, threads, locks, files, iterators, generators, data sets,
    trainers, weak references and CuPy's random generators are not examined, nor are the contents of
    the items of containers longer than :data:`LONG_CONTAINER`. Arrays are copied to the device that
    they are on, or to the host if the device's memory is full. Read-only arrays are not copied.

    Restoring happens after exceptions and Ctrl-C, too. It gives a warning if some of it fails.

    Raises:
        ProfileError: The copies do not fit into memory; nothing has been run.
    """
    state = _State()
    try:
        state.save(*objects)
        with Replacements() as replacements:
            replacements.wrap(chainer.Parameter, "initialize", state.keeping_first_arrays)
            yield
    finally:
        with delayed_interrupts():
            failures = state.restore()
        if failures:
            with warnings.catch_warnings():  # also where warnings are errors
                warnings.simplefilter("always")
                warnings.warn(f"not all state is restored: {failures[0]}", stacklevel=4)


class _State:
    """Copies of what objects contain, and how to write them back."""

    def __init__(self) -> None:
        # Keys are identities of objects; the references here keep these objects alive.
        self._seen: dict[int, Any] = {}
        self._restore: dict[tuple[int, str], Restore] = {}
        self._attributes: dict[int, dict[str, Any]] = {}
        self._arrays: dict[int, Any] = {}
        # Arrays that were noted since the last arrays were copied.
        self._new_arrays: list[Any] = []
        self._uninitialized: dict[int, Any] = {}
        # Not for longer: caches keep classes alive.
        self._is_examined: Callable[[Any], bool] = cache(is_examined)
        self._slots_of: Callable[[Any], tuple[Any, ...]] = cache(slots_of)
        self._array_types = tuple(chainer.get_array_types())
        for name, module in (("random", random), ("numpy.random", np.random)):
            self._restore[0, name] = copy_generator(module)

    def save(self, *objects: Any) -> None:
        """Copy the contents of objects and of everything that they refer to."""
        # No recursion: graphs and linked lists may be deeper than Python's stack.
        waiting = list(objects)
        while waiting:
            value = waiting.pop()
            if type(value) not in _IMMUTABLE and id(value) not in self._seen:
                self._seen[id(value)] = value
                waiting += self._save(value)
                waiting += self._save_classes(type(value))
        self._copy_arrays()

    def restore(self) -> list[str]:
        """Write everything back, and drop the copies; returns a description of each failure."""
        failures = []
        for key, restore in self._restore.items():
            try:
                restore()
            except Exception as error:
                owner = type(self._seen[key[0]]).__name__ if key[0] in self._seen else "names"
                failures.append(f"{key[1]} of {owner}: {one_line(error)}")
        for copies in (self._restore, self._seen, self._attributes, self._arrays):
            copies.clear()
        self._new_arrays.clear()
        self._uninitialized.clear()
        return failures

    # -- what objects contain: each method returns the objects that are referred to

    def _save(self, value: Any) -> list[Any]:
        """Copy what one object contains."""
        kind = type(value)
        if issubclass(kind, self._array_types):
            return self._save_array(value)
        if issubclass(kind, GENERATORS):
            self._restore[id(value), "state"] = copy_generator(value)
        elif kind is CellType:
            return self._save_cell(value)
        elif not self._is_examined(kind):
            return []
        if issubclass(kind, VariableNode):
            return self._save_node(value)
        if issubclass(kind, chainer.FunctionNode):
            return self._save_function_node(value)
        if issubclass(kind, chainer.Parameter) and value._data[0] is None:
            self._uninitialized[id(value)] = value
        parts = [*parts_of_callable(value), *self._save_items(value), *self._save_attributes(value)]
        if kind is FunctionType:
            for namespace, names in names_of(value):
                parts += self._save_names(namespace, names)
        return parts

    def _save_items(self, value: Any) -> Sequence[Any]:
        """Copy the references to a container's items. The items of long ones are not returned."""
        for kind in (tuple, frozenset):
            if issubclass(type(value), kind):
                return list(kind.__iter__(value))
        copied = copy_items(value)
        if copied is None:
            return ()
        items, self._restore[id(value), "items"] = copied
        return items if len(value) <= LONG_CONTAINER else ()

    def _save_attributes(self, value: Any) -> list[Any]:
        """Copy the references in an object's attributes and slots."""
        parts: list[Any] = []
        attributes = attributes_of(value)
        if attributes is not None:
            saved = self._attributes[id(value)] = dict(attributes)
            self._restore[id(value), "attributes"] = attribute_restorer(attributes, saved)
            parts += saved.values()
        for slot in self._slots_of(type(value)):
            name = f"{slot.__objclass__.__name__}.{slot.__name__}"
            inner, self._restore[id(value), name] = copy_slot(value, slot)
            parts += inner
        return parts

    def _save_classes(self, kind: type) -> list[Any]:
        """Copy the references in the attributes of an object's classes, except for libraries'."""
        parts: list[Any] = []
        for cls in kind.__mro__:
            if id(cls) not in self._seen and is_defined_by_program(cls):
                self._seen[id(cls)] = cls
                self._restore[id(cls), "attributes"] = copy_class(cls)
                parts += (part for part in vars(cls).values() if type(part) is not FunctionType)
        return parts

    def _save_cell(self, cell: CellType) -> list[Any]:
        """Copy the reference in a cell of a closure."""
        try:
            before = cell.cell_contents
        except ValueError:  # nothing has been assigned yet
            return []

        def restore() -> None:
            cell.cell_contents = before

        self._restore[id(cell), "value"] = restore
        return [before]

    def _save_names(self, namespace: dict[str, Any], names: frozenset[str]) -> list[Any]:
        """Copy the references of names in a namespace, and remember which names are undefined."""
        for name in names:
            before = namespace.get(name, _MISSING)

            def restore(name: str = name, before: Any = before) -> None:
                if before is _MISSING:
                    namespace.pop(name, None)
                elif namespace.get(name) is not before:
                    namespace[name] = before

            self._restore.setdefault((id(namespace), name), restore)
        return [namespace[name] for name in names if name in namespace]

    def _save_node(self, node: VariableNode) -> list[Any]:
        """Copy the references of a variable in a graph, but do not examine its array."""
        self._save_attributes(node)
        return [node._creator_node, node.get_variable_or_none()]

    def _save_function_node(self, function: Any) -> list[Any]:
        """Copy the references of a function in a graph: ``unchain_backward`` may remove some."""
        self._save_attributes(function)
        outputs = (output() for output in function.outputs or ())
        return [*(function.inputs or ()), *outputs]

    # -- arrays

    def _save_array(self, array: Any) -> list[Any]:
        """Note an array. :meth:`_copy_arrays` copies it, unless it is a view of another one."""
        parts: list[Any] = []
        if isinstance(array, np.ndarray):
            parts.append(attributes_of(array))
            if not array.flags.writeable:  # but its base may be
                return [*parts, array.base]
            if array.dtype == object and array.size <= LONG_CONTAINER:
                parts += array.ravel().tolist()
        self._arrays[id(array)] = array
        self._new_arrays.append(array)
        return parts

    def _copy_arrays(self) -> None:
        """Copy the new arrays that are no views of others."""
        new, self._new_arrays = self._new_arrays, []
        arrays = [array for array in new if not self._is_view(array)]
        on_host = sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))
        free = free_nbytes() if on_host > _LARGE_NBYTES else None
        if free is not None and on_host > free:
            raise _too_large(on_host, f"{format_nbytes(free)} are free")
        for array in arrays:
            try:
                self._restore[id(array), _CONTENT] = copy_array(array)
            except Exception as error:
                raise _too_large(int(array.nbytes), one_line(error)) from error

    def _is_view(self, array: Any) -> bool:
        """Whether an array is a view of another noted array."""
        base = getattr(array, "base", None)
        while isinstance(base, self._array_types):
            if id(base) in self._arrays:
                return True
            base = base.base
        return False

    # -- parameters without an array

    def keeping_first_arrays(self, initialize: Callable[..., None]) -> Callable[..., None]:
        """Wrap ``Parameter.initialize``: the first array of a parameter is saved and restored."""

        def keeping(param: Any, *args: Any, **kwargs: Any) -> None:
            owners = [param, param._node]
            before = [dict(attributes_of(owner) or {}) for owner in owners]
            initialize(param, *args, **kwargs)
            if self._uninitialized.pop(id(param), None) is None or param._data[0] is None:
                return
            for owner, was in zip(owners, before, strict=True):
                new = {
                    name: value
                    for name, value in (attributes_of(owner) or {}).items()
                    if was.get(name, _MISSING) is not value
                }
                self._attributes.get(id(owner), {}).update(new)
                self.save(*new.values())
            self._seen.pop(id(param._data), None)
            self.save(param._data)

        return keeping


def _too_large(nbytes: int, why: str) -> ProfileError:
    return ProfileError(
        f"a copy of arrays ({format_nbytes(nbytes)}), from which the state before the profile is "
        f"restored, does not fit into memory: {why}"
    )
