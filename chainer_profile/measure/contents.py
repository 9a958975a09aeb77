"""How the content of containers, arrays and random generators is copied and written back."""

from __future__ import annotations

import operator
import random
from array import array as PlainArray
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

import chainer
import numpy as np

#: Writes a copy back.
Restore = Callable[[], object]
#: Random generators whose state can be read and set.
GENERATORS = (np.random.RandomState, np.random.Generator, np.random.BitGenerator, random.Random)


def _same(now: Any, before: Any) -> bool:
    """Whether two copies of a container have the same objects, or numbers, in the same order."""
    if not isinstance(before, list):  # the numbers of a bytearray or an array.array
        return bool(now == before)
    return len(now) == len(before) and all(map(operator.is_, now, before))


def _keys_and_values(value: dict[Any, Any]) -> list[Any]:
    """List each key of a dict, followed by its value."""
    kind = OrderedDict if isinstance(value, OrderedDict) else dict
    return [part for pair in kind.items(value) for part in pair]


def _write_dict(value: dict[Any, Any], parts: list[Any]) -> None:
    """Write keys and values back; a dict with the same keys in the same order is not emptied."""
    kind = OrderedDict if isinstance(value, OrderedDict) else dict
    pairs = list(zip(parts[::2], parts[1::2], strict=True))
    before = {key for key, _ in pairs}
    for key in [key for key in kind.keys(value) if key not in before]:
        kind.__delitem__(value, key)
    if not _same(list(kind.keys(value)), parts[::2]):
        kind.clear(value)
    for key, part in pairs:
        kind.__setitem__(value, key, part)


def _write_set(value: set[Any], items: list[Any]) -> None:
    set.clear(value)
    set.update(value, items)


def _write_deque(value: deque[Any], items: list[Any]) -> None:
    deque.clear(value)
    deque.extend(value, items)


def _copy_sequence(value: Any) -> Any:
    return value[:]


def _write_sequence(value: Any, items: Any) -> None:
    value[:] = items


#: For each kind of container, how its items are copied and how they are written back.
_CONTAINERS: tuple[tuple[type, Callable[[Any], Any], Callable[[Any, Any], None]], ...] = (
    (dict, _keys_and_values, _write_dict),
    (
        list,
        lambda value: list.__getitem__(value, slice(None)),
        lambda value, items: list.__setitem__(value, slice(None), items),
    ),
    (set, lambda value: list(set.__iter__(value)), _write_set),
    (deque, lambda value: list(deque.__iter__(value)), _write_deque),
    (bytearray, _copy_sequence, _write_sequence),
    (PlainArray, _copy_sequence, _write_sequence),
)


def copy_items(value: Any) -> tuple[list[Any], Restore] | None:
    """Copy the items of a container (keys and values of a dict); None for other objects.

    Returns the objects among the items, and a function that writes all items back.
    """
    for kind, copy, write in _CONTAINERS:
        if issubclass(type(value), kind):  # not isinstance, which a proxy may deceive
            return _copied(value, copy, write)
    return None


def _copied(
    value: Any, copy: Callable[[Any], Any], write: Callable[[Any, Any], None]
) -> tuple[list[Any], Restore]:
    """Copy items by ``copy``; ``write`` writes them back if they have changed."""
    items = copy(value)

    def restore() -> None:
        if not _same(copy(value), items):
            write(value, items)

    return (items if isinstance(items, list) else []), restore


def attribute_restorer(attributes: dict[str, Any], saved: dict[str, Any]) -> Restore:
    """Return a function that writes attributes back from ``saved``, a copy of them."""

    def restore() -> None:
        items = _keys_and_values(saved)
        if not _same(_keys_and_values(attributes), items):
            _write_dict(attributes, items)

    return restore


def copy_class(cls: type) -> Restore:
    """Copy the references that are attributes of a class."""
    saved = dict(vars(cls))

    def restore() -> None:
        for name in [name for name in vars(cls) if name not in saved]:
            type.__delattr__(cls, name)
        for name, value in saved.items():
            if vars(cls).get(name) is not value:
                type.__setattr__(cls, name, value)

    return restore


def copy_slot(value: Any, slot: Any) -> tuple[list[Any], Restore]:
    """Copy the reference in a slot of an object.

    Returns a list of the referenced object, empty for an empty slot, and a function that writes the
    reference back.
    """
    before = _slot_contents(value, slot)

    def restore() -> None:
        if before:
            slot.__set__(value, before[0])
        elif _slot_contents(value, slot):
            slot.__delete__(value)

    return before, restore


def _slot_contents(value: Any, slot: Any) -> list[Any]:
    """List the object in a slot; empty if the slot is empty."""
    try:
        return [slot.__get__(value)]
    except AttributeError:
        return []


def copy_generator(generator: Any) -> Restore:
    """Copy the state of a random generator, or of a module's global generator."""
    if generator is np.random or isinstance(generator, np.random.RandomState):
        numbers = generator.get_state(legacy=False)
        return lambda: generator.set_state(numbers)
    if generator is random or isinstance(generator, random.Random):
        try:
            version = generator.getstate()
        except NotImplementedError:  # SystemRandom has no state
            return lambda: None
        return lambda: generator.setstate(version)
    owner = getattr(generator, "bit_generator", generator)
    state = owner.state
    return lambda: setattr(owner, "state", state)


def copy_array(array: Any) -> Restore:
    """Copy an array to its own device, or to the host where the device's memory is full."""
    if isinstance(array, np.ndarray):
        plain = array.view(np.ndarray)  # subclasses have assignments of their own
        saved = plain.copy("K")

        def restore() -> None:
            if not array.flags.writeable:
                array.flags.writeable = True
            if array.shape != saved.shape:
                array.resize(saved.shape, refcheck=False)
            array.view(np.ndarray)[...] = saved

        return restore
    with chainer.using_device(chainer.backend.get_device_from_array(array)):
        try:
            saved = array.copy()
        except Exception:  # CuPy's own exception types cannot be named without CuPy
            on_host, write = array.get(), array.set
            return lambda: write(on_host)
    return lambda: operator.setitem(array, ..., saved)
