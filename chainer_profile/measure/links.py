"""The links of networks: their paths, parameters and call sites."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any
from weakref import ref

import chainer

from chainer_profile.basics.paths import above, joined, link_of
from chainer_profile.record.recording import LinkCalls

#: Networks, each with the prefix of its links' paths: empty, or such as ``/model``.
Roots = Sequence[tuple[str, Any]]


class Caller(dict[Any, int]):
    """A link, or code outside of all links, that calls functions.

    It maps the function class and input shapes of a call to an event id. Links with the same path
    share a caller.
    """

    __slots__ = ("has_children", "is_outside", "is_sum", "n_shapes", "path", "sum")
    __hash__ = object.__hash__  # type: ignore[assignment]
    __eq__ = object.__eq__

    def __init__(
        self,
        path: str,
        *,
        is_outside: bool = False,
        has_children: bool = False,
        is_sum: bool = False,
    ) -> None:
        super().__init__()
        self.path = path
        #: Whether this is code outside of all links.
        self.is_outside = is_outside
        #: Whether links below this one exist; its calls may use their parameters.
        self.has_children = has_children
        #: Whether its calls add up gradients.
        self.is_sum = is_sum
        #: Adds up gradients where this one runs; None until it is needed.
        self.sum: Caller | None = None
        #: The number of call sites of each function class.
        self.n_shapes: Counter[type] = Counter()


class LinkTracker:
    """Tracks which link calls functions in one thread.

    Attributes:
        current: The link that runs, or the code outside of all links.
        callers: The callers of links by identity.
        log: The caller of each call of a link, in order.
        thread: Identity of the thread.
    """

    __slots__ = ("callers", "current", "links", "log", "pause", "thread")

    def __init__(self, links: Links, pause: Callable[[], AbstractContextManager[None]]) -> None:
        self.thread = 0
        self.log: list[Caller] = []
        self.pause = pause
        self.use(links)

    def use(self, links: Links) -> None:
        """Track calls of these links from now on, outside of all links at first."""
        self.links, self.callers, self.current = links, links.callers, links.outside

    def enter(self, link: Any, definer: type) -> Caller:
        """Log the call of a link, and make the link current. Returns the previous caller.

        ``definer`` is the class that defines the ``__call__`` that runs.
        """
        caller = self.current
        callee = self.callers.get(id(link))
        if callee is None:
            callee = self.add_unknown_link(link)
        # A class's own __call__ may call its base class's, which is not another call.
        if callee is not caller or defining_class(type(link)) is definer:
            self.log.append(callee)
        self.current = callee
        return caller

    def enter_sum(self) -> Caller:
        """Make the current caller's sum of gradients current. Returns the previous caller."""
        caller = self.current
        if caller.sum is None:
            caller.sum = Caller(caller.path, is_sum=True)
        self.current = caller.sum
        return caller

    def add_unknown_link(self, link: Any) -> Caller:
        """Add a link that belongs to no network, with a path below the current caller."""
        with self.pause():
            return self.links.add_unknown_link(link, self.current)


_defining: dict[type, type] = {}


def defining_class(cls: type) -> type:
    """The class that defines the ``__call__`` of a class of links."""
    definer = _defining.get(cls)
    if definer is None:
        definer = next(base for base in cls.__mro__ if "__call__" in vars(base))
        _defining[cls] = definer
    return definer


class Links:
    """Finds the path of a link, and the link that a parameter belongs to, by identity.

    Networks are referenced weakly. A link that belongs to none of them is added at its first call,
    with a path below its caller that ends in the name of its class.
    """

    def __init__(self, roots: Roots) -> None:
        #: The caller of each link, by the link's identity. Links with one path share a caller.
        self.callers: dict[int, Caller] = {}
        #: Arrays of parameters by identity, each with the path of its link and the parameter.
        self.parameters: dict[int, tuple[str, ref[Any]]] = {}
        #: Code outside of all links, and within a loss function.
        self.outside = Caller("/", is_outside=True, has_children=True)
        self.loss = Caller("loss", is_outside=True, has_children=True)
        self._callers_by_path: dict[str, Caller] = {}
        self._links: dict[int, ref[Any]] = {}
        # The networks by prefix and identity: several have one prefix, such as copies.
        self._roots: dict[str, dict[int, ref[Any]]] = {}
        # For the prefixes of unknown links, the prefix without a number, and the number.
        self._unknown_links: dict[str, tuple[str, int]] = {}
        # For each prefix without a number, the least number that may be free.
        self._min_numbers: dict[str, int] = {}
        # All parameters by the paths of their links; and the first path of each, by its identity.
        self._by_path: dict[str, list[ref[Any]]] = {}
        self._by_identity: dict[int, tuple[str, ref[Any]]] = {}
        # Whether all parameters were listed, and all their arrays read, since the program may have
        # replaced any of them.
        self._is_listed = self._is_read = False
        # Whether a listed parameter no longer exists.
        self._has_lost = False
        self.update_roots(roots)

    def update_roots(self, roots: Roots) -> None:
        """Add the networks that are new, such as a copy of a known one."""
        for prefix, root in roots:
            known = self._roots.get(prefix, {}).get(id(root))
            if known is None or known() is not root:
                self._add(prefix, root)

    def add_network(self, prefix: str, network: Any) -> None:
        """Add a network; known networks and links within it get new paths, below its prefix."""
        parts = {id(link) for link in network.links()}
        pairs = [(other, roots.keys() & parts) for other, roots in list(self._roots.items())]
        within = [(other, identity) for other, found in pairs for identity in found]
        for other, identity in within:
            self._remove_root(other, identity)
        for identity in parts:
            self._links.pop(identity, None)
            self.callers.pop(identity, None)
        self._add(prefix, network)
        if within:
            self._list_parameters()

    def expect_changes(self) -> None:
        """Note that the program may have replaced parameters or their arrays."""
        self._is_listed = self._is_read = False

    def update_parameters(self) -> None:
        """Read the current arrays of all parameters."""
        # A parameter that no longer exists may have been replaced by another one.
        if self._has_lost:
            self._list_parameters()
        else:
            self.parameters.clear()
            for path, references in self._by_path.items():
                for reference in references:
                    self._note_array(path, reference)
        self._is_listed, self._is_read = False, True

    def note_parameters(self, caller: Caller, variables: Iterable[Any]) -> None:
        """Read the current arrays of a link's parameters and of the parameters in ``variables``.

        A parameter may get its first array, or another one, during a trial. The first call after
        :meth:`expect_changes` reads the arrays of all parameters.
        """
        if not self._is_read:
            self.update_parameters()
        for reference in self._by_path.get(caller.path, ()):
            self._note_array(caller.path, reference)
        for variable in variables:
            known = self._find(variable) if isinstance(variable, chainer.Parameter) else None
            if known is not None:
                self._note_array(*known)

    def add_unknown_link(self, link: Any, caller: Caller) -> Caller:
        """Add a link that belongs to no network, with a path below ``caller``, which calls it."""
        first = f"{caller.path.rstrip('/')}/{type(link).__name__}"
        number = self._min_numbers.get(first, 1)
        # The path of a link that no longer exists is free for the next link of its class.
        while (prefix := f"{first}-{number}" if number > 1 else first) in self._roots:
            number += 1
        self._min_numbers[first] = number + 1
        self._unknown_links[prefix] = first, number
        self._add(prefix, link)
        return self.callers[id(link)]

    def owner(self, caller: Caller, arrays: Sequence[Any]) -> Caller:
        """Return the link that a function call with these input arrays belongs to.

        This is the caller, or a link below it if the call uses a parameter of that link:
        ``link.forward(x)`` and functions of ``link.W`` do not call the link itself.
        """
        if not caller.has_children:
            return caller
        below = "/" if caller.is_outside else caller.path.rstrip("/") + "/"
        for array in arrays:
            path, reference = self.parameters.get(id(array), ("/", None))
            if reference is not None and path != "/" and path.startswith(below):
                param = reference()
                if param is not None and param.array is array:
                    return self._caller(path)
        return caller

    def path_of_parameter(self, param: Any) -> str:
        """Path of the link that a parameter belongs to; ``/`` if no known network has it."""
        known = self._find(param)
        return "/" if known is None else known[0]

    def prefix_of(self, network: Any) -> str:
        """The prefix of the paths of a network's links; the first prefix for unknown networks."""
        caller = self.callers.get(id(network))
        path = next(iter(self._roots), "") if caller is None else caller.path
        return "" if path == "/" else path

    def arrays_of_link(self, path: str) -> tuple[Any, ...]:
        """Arrays of a link's own parameters."""
        params = (reference() for reference in self._by_path.get(path, ()))
        return tuple(p.array for p in params if p is not None and p.array is not None)

    def link_calls(self, calls: Counter[str], trials: int) -> tuple[LinkCalls, ...]:
        """List the existing links with their calls per trial and their number of parameters.

        A parameter that several links share counts for the first one. A network and its copies are
        listed once.

        Args:
            calls: Calls of links by path, in all trials.
            trials: The number of trials.
        """
        sizes: Counter[str] = Counter()
        seen: set[int] = set()
        # Several networks may have one prefix: count the last one added.
        for prefix, root in dict(self._existing()).items():
            for path, param in root.namedparams(include_uninit=False):
                if id(param) not in seen:
                    seen.add(id(param))
                    sizes[joined(prefix, link_of(path))] += int(param.size)
        kinds: dict[str, str] = {}
        for key, reference in list(self._links.items()):
            if (link := reference()) is not None:
                kinds.setdefault(self.callers[key].path, type(link).__name__)
        return tuple(
            LinkCalls(path, kind, int_if_whole(calls[path] / max(1, trials)), sizes[path])
            for path, kind in kinds.items()
        )

    # -- private

    def _list_parameters(self) -> None:
        """List the parameters of all networks, and read their arrays."""
        self._by_path, self._by_identity = {}, {}
        self.parameters.clear()
        self._has_lost = False
        for prefix, root in self._existing():
            self._list_parameters_of(prefix, root)
        self._is_listed = True

    def _list_parameters_of(self, prefix: str, root: Any) -> None:
        """Add the parameters of a network to the list, and read their arrays."""
        for path, param in root.namedparams():
            link_path = joined(prefix, link_of(path))
            reference = ref(param, partial(self._forget_parameter, id(param)))
            # A link that replaces another one in the network has the same path.
            others = [other for other in self._by_path.get(link_path, ()) if other() is not None]
            self._by_path[link_path] = [*others, reference]
            self._by_identity.setdefault(id(param), (link_path, reference))
            self._note_array(link_path, reference)

    def _find(self, param: Any) -> tuple[str, ref[Any]] | None:
        """The path of a parameter's link, and a reference to the parameter; None if unknown."""
        if id(param) not in self._by_identity and not self._is_listed:
            self._list_parameters()
        return self._by_identity.get(id(param))

    def _note_array(self, path: str, reference: ref[Any]) -> None:
        """Read the array of a parameter; an array of several parameters belongs to the first."""
        param = reference()
        array = None if param is None else param.array
        if array is None:
            return
        known = self.parameters.get(id(array))
        first = None if known is None else known[1]()
        if first is None or first.array is not array:
            self.parameters[id(array)] = path, reference

    def _existing(self) -> list[tuple[str, Any]]:
        """The networks that exist, each with its prefix."""
        named = [(prefix, [*roots.values()]) for prefix, roots in list(self._roots.items())]
        pairs = [(prefix, known()) for prefix, roots in named for known in roots]
        return [(prefix, root) for prefix, root in pairs if root is not None]

    def _add(self, prefix: str, root: Any) -> None:
        """Add the links and parameters of a network; known links keep their paths."""
        forget = partial(self._forget_root, prefix, id(root))
        self._roots.setdefault(prefix, {})[id(root)] = ref(root, forget)
        self._list_parameters_of(prefix, root)
        for path, link in root.namedlinks():
            key = id(link)
            if key in self.callers:  # a shared link keeps its first path
                continue
            full_path = joined(prefix, str(path))
            self._caller(above(full_path) or "/").has_children = True
            self.callers[key] = self._caller(full_path)
            self._links[key] = ref(link, partial(self._forget, key))

    def _caller(self, path: str) -> Caller:
        """Return the caller of a path; make it if it is new."""
        caller = self._callers_by_path.get(path)
        if caller is None:
            caller = self._callers_by_path[path] = Caller(path)
        return caller

    def _forget(self, key: int, link: ref[Any]) -> None:
        if self._links.get(key) is link:
            del self._links[key], self.callers[key]

    def _forget_parameter(self, key: int, param: ref[Any]) -> None:
        self._has_lost = True
        if key in self._by_identity and self._by_identity[key][1] is param:
            del self._by_identity[key]

    def _forget_root(self, prefix: str, identity: int, root: ref[Any]) -> None:
        if self._roots.get(prefix, {}).get(identity) is root:
            self._remove_root(prefix, identity)

    def _remove_root(self, prefix: str, identity: int) -> None:
        roots = self._roots.get(prefix, {})
        roots.pop(identity, None)
        if not roots:
            self._roots.pop(prefix, None)
            if prefix in self._unknown_links:
                first, number = self._unknown_links.pop(prefix)
                self._min_numbers[first] = min(number, self._min_numbers[first])


def int_if_whole(value: float) -> int | float:
    """Convert a number to an int if it is whole."""
    return int(value) if value == int(value) else value
