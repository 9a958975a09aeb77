"""How to find the objects that a program may change while it runs a network."""

from __future__ import annotations

import dis
import functools
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any

#: Instances of classes from these modules, or derived from such a class, are not examined. They are
#: resources, caches of libraries, or data that a network only reads.
_NOT_EXAMINED = frozenset(
    (
        *("_ctypes", "_io", "_queue", "_socket", "_thread", "_weakref", "asyncio", "concurrent"),
        *("ctypes", "enum", "io", "logging", "mmap", "multiprocessing", "queue", "socket"),
        *("sqlite3", "ssl", "subprocess", "tempfile", "threading", "weakref", "chainer.backend"),
        *("chainer.backends", "chainer.dataset", "chainer.datasets", "chainer.iterators"),
        *("chainer.reporter", "chainer.training", "chainermn.communicators", "chainer_profile"),
        *("cupy", "cupyx", "matplotlib", "mpi4py", "numpy", "pandas", "scipy", "tensorflow"),
        "torch",
    )
)
#: The classes, and the global variables of functions, from these packages belong to libraries.
_LIBRARIES = frozenset(
    {"chainer", "chainermn", "chainerx", "chainer_profile", "cupy", "numpy", "scipy"}
    | set(sys.stdlib_module_names)
)
_PLAIN_ATTRIBUTES = (SimpleNamespace, functools.partial, type(functools.cache(lambda: None)))
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class statement made it


def is_examined(kind: type) -> bool:
    """Whether the attributes and items of a class's instances are examined."""
    if issubclass(kind, (type, ModuleType)):
        return False
    return not any(_in(_NOT_EXAMINED, base.__module__) for base in kind.__mro__)


def is_defined_by_program(kind: type) -> bool:
    """Whether the program, rather than a known library, defines a class in Python."""
    is_library = _in(_LIBRARIES, kind.__module__) or _in(_NOT_EXAMINED, kind.__module__)
    return bool(kind.__flags__ & _HEAP_TYPE) and not is_library


def _in(modules: frozenset[str], name: Any) -> bool:
    """Whether a module is one of these, or within one of them."""
    parts = str(name).split(".")
    return parts[0] in modules or ".".join(parts[:2]) in modules


def attributes_of(value: Any) -> dict[str, Any] | None:
    """The ``__dict__`` of an object if Python code has defined its class; else None."""
    kind = type(value)
    if kind.__flags__ & _HEAP_TYPE or kind in _PLAIN_ATTRIBUTES or kind is FunctionType:
        try:
            attributes = object.__getattribute__(value, "__dict__")
        except AttributeError:
            return None
        return attributes if isinstance(attributes, dict) else None
    return None


def slots_of(kind: type) -> tuple[Any, ...]:
    """The descriptors of a class's ``__slots__``, inherited ones included."""
    return tuple(
        member
        for base in kind.__mro__
        if base.__flags__ & _HEAP_TYPE and "__slots__" in vars(base)
        for member in vars(base).values()
        if type(member).__name__ == "member_descriptor"
    )


def names_of(function: FunctionType) -> Iterator[tuple[dict[str, Any], frozenset[str]]]:
    """The global variables that a function names, as namespaces with names in them.

    Attributes of the program's own modules (``helpers.net``) are among them.
    """
    namespace = function.__globals__
    if _in(_LIBRARIES, namespace.get("__name__", "")):
        return
    loaded, stored, attributes = _names_in(function.__code__)
    names = frozenset(name for name in loaded if name in namespace) | stored
    yield namespace, names
    for name in names:
        module = namespace.get(name)
        if type(module) is ModuleType and not _in(_LIBRARIES, module.__name__):
            yield vars(module), attributes & vars(module).keys()


def _names_in(code: CodeType) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """Names in code: global variables that it reads, that it sets or deletes, and attributes."""
    loaded, stored, attributes = set(), set(), set()
    waiting = [code]
    while waiting:
        code = waiting.pop()
        waiting += [part for part in code.co_consts if isinstance(part, CodeType)]
        for instruction in dis.get_instructions(code):
            if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                loaded.add(instruction.argval)
            elif instruction.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
                stored.add(instruction.argval)
            elif instruction.opname in ("LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR"):
                attributes.add(instruction.argval)
    return frozenset(loaded), frozenset(stored), frozenset(attributes)


def parts_of_callable(value: Any) -> list[Any]:
    """The objects that a function, bound method or partial refers to, global variables excluded."""
    if type(value) is FunctionType:
        return [*(value.__closure__ or ()), value.__defaults__, value.__kwdefaults__]
    if type(value) is MethodType:
        return [value.__self__, value.__func__]
    if issubclass(type(value), functools.partial):
        return [value.func, value.args, value.keywords]
    return []
