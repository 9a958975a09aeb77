"""Stands at Chainer's entries: what a program calls that loads data, runs networks, or trains."""

from __future__ import annotations

import functools
import os
from collections import Counter, deque
from collections.abc import Callable
from threading import get_ident, local
from typing import Any
from weakref import WeakSet

import chainer
from chainer import FunctionHook, FunctionNode, _backprop, function_node
from chainer.dataset import Converter

from chainer_profile.basics.replacements import Replacements
from chainer_profile.measure.hooks import classes_of, defines_call
from chainer_profile.measure.owners import Place

#: Gives what the call gives; asked with an entry, whose it is, and the call itself.
Around = Callable[[str, Any, Callable[[], Any]], Any]
#: Begins an outermost call of a network, and gives what ends it with what it raised; None where
#: :data:`Around` is asked.
Begin = Callable[[Any], Callable[[BaseException | None], None] | None]

LOAD = "load"
CONVERT = "convert"
CALL = "call"
BACKWARD = "backward"
SETUP = "setup"
UPDATE = "update"
RUN = "run"

# The class whose methods they are, and the methods; subclasses may have their own.
_ENTRIES: tuple[tuple[str, type, tuple[str, ...]], ...] = (
    (LOAD, chainer.dataset.Iterator, ("next", "__next__")),
    (CONVERT, Converter, ("__call__",)),
    (CALL, chainer.Link, ("__call__",)),
    (BACKWARD, chainer.Variable, ("backward",)),
    (SETUP, chainer.Optimizer, ("setup",)),
    (UPDATE, chainer.Optimizer, ("update",)),
    (RUN, chainer.training.Trainer, ("run",)),
)


class Running:
    """What runs in the thread that is watched, as those who note calls need it fast."""

    __slots__ = ("adopt", "backwards", "link_calls", "place", "places", "thread")

    def __init__(self) -> None:
        self.thread: int | None = None  # None in a forked child
        #: Numbers of the backwards that run.
        self.backwards: list[int] = []
        self.forget()

    def forget(self) -> None:
        """Nobody notes calls."""
        #: Where functions are called: in a link, or outside of all.
        self.place = _NOWHERE
        #: The places of links by identity, and what gives that of another one.
        self.places: dict[int, Place] = {}
        self.adopt: Callable[[Any], Place] = _nowhere
        #: The places of links that were called.
        self.link_calls: list[Place] | deque[Place] = deque(maxlen=0)


_NOWHERE, _IN_A_LINK = Place(outside=True), Place()


def _nowhere(link: Any) -> Place:
    return _IN_A_LINK


class _OtherThread(local):
    """What each other thread keeps for itself: its open entries, and how often it called them."""

    def __init__(self, all_counts: list[Counter[str]]) -> None:
        self.open: set[str] = set()
        self.counts: Counter[str] = Counter()
        all_counts.append(self.counts)


class Entries:
    """Within ``with``, whoever calls Chainer by one of its entries goes through ``around``.

    Of entries of one kind within each other the outermost counts: a network's call, and not those
    of its links. Calls in other threads are counted alone; forked processes go their own way.
    """

    def __init__(self, around: Around, begin: Begin = lambda link: None) -> None:
        self.running = Running()
        #: Are told of a function that raised, and how many backwards ran when one raised began.
        self.raised: Callable[[Any], None] = _ignore
        self.raised_backward: Callable[[int], None] = _ignore
        #: Of the function hook that tells of calls now.
        self.hook_name = ""
        self._around, self._begin = around, begin
        self.opened: set[str] = set()  #: The entries that are open in this thread.
        self._counts: list[Counter[str]] = []
        self._others = _OtherThread(self._counts)
        self._more: set[type] = set()
        self._replacements = Replacements()

    @property
    def mine(self) -> bool:
        """Whether this is the thread, and the process, that it stands in."""
        return get_ident() == self.running.thread

    @property
    def elsewhere(self) -> Counter[str]:
        """Calls that other threads made, by entry."""
        return sum((count.copy() for count in self._counts), Counter())

    def __enter__(self) -> Entries:
        self.running.thread = get_ident()
        _STANDING.add(self)
        for entry, base, names in _ENTRIES:
            for kind in classes_of(base):
                self._stand_at(entry, kind, names)
        self._replacements.wrap(FunctionNode, "apply", self._ending)
        self._replacements.wrap(_backprop, "_backprop_to_all", self._ending_backward)
        self._replacements.wrap(function_node, "_backprop", self._ending_backward)
        # Classes that the program makes later have entries of their own, too.
        for base in dict.fromkeys(base for _, base, _ in _ENTRIES):
            self._replacements.put(base, "__init_subclass__", self._for_new(base))
        return self

    def __exit__(self, *_: object) -> None:
        self._replacements.undo()

    def tell(
        self,
        hook: FunctionHook | None,
        raised: Callable[[Any], None],
        raised_backward: Callable[[int], None],
    ) -> None:
        """Tell a hook, if any, of functions from now on, and the others of what raises."""
        self.raised, self.raised_backward = raised, raised_backward
        if hook is not None:
            self.hook_name = hook.name
            chainer.get_function_hooks()[hook.name] = hook

    def tell_nobody(self) -> None:
        """Tell of nothing any more."""
        self.raised, self.raised_backward = _ignore, _ignore
        if self.hook_name:  # a forked child has none
            chainer.get_function_hooks().pop(self.hook_name, None)
            self.hook_name = ""
        self.running.forget()

    def stand_at(self, entry: str, kind: type) -> None:
        """Stand at an entry of a class that is none of Chainer's own kind; within ``with``."""
        if kind not in self._more:
            self._more.add(kind)
            names = next(names for name, _, names in _ENTRIES if name == entry)
            self._stand_at(entry, kind, names)

    def _for_new(self, base: type) -> Any:
        @classmethod  # type: ignore[misc]
        def init_subclass(kind: Any, **keywords: Any) -> None:
            super(base, kind).__init_subclass__(**keywords)  # type: ignore[arg-type]
            for entry, of, names in _ENTRIES:
                if of is base:
                    self._stand_at(entry, kind, names)

        return init_subclass

    def _stand_at(self, entry: str, kind: type, names: tuple[str, ...]) -> None:
        for name in names:
            if name in vars(kind):
                through = functools.partial(self._through, entry)
                if entry == CALL:
                    through = functools.partial(self._through_call, kind)
                self._replacements.wrap(kind, name, through)

    def _through(self, entry: str, method: Any) -> Any:
        inside, around, others = self.opened, self._around, self._others
        running = self.running

        @functools.wraps(method)
        def through(owner: Any, *args: Any, **kwargs: Any) -> Any:
            mine = get_ident() == running.thread
            opened = inside if mine else others.open
            if entry in opened or running.thread is None:
                return method(owner, *args, **kwargs)
            opened.add(entry)
            try:
                if mine:
                    return around(entry, owner, functools.partial(method, owner, *args, **kwargs))
                others.counts[entry] += 1
                return method(owner, *args, **kwargs)
            finally:
                opened.discard(entry)

        return through

    def _through_call(self, kind: type, method: Any) -> Any:
        running, inside, elsewhere = self.running, self.opened, self._through(CALL, method)

        # Every call of every link comes here.
        @functools.wraps(method)
        def through_link(link: Any, *args: Any, **kwargs: Any) -> Any:
            if get_ident() != running.thread:
                return elsewhere(link, *args, **kwargs)
            around = running.place
            if around.outside and CALL not in inside:
                return self._outermost(through_link, link, *args, **kwargs)
            place = running.places.get(id(link))
            if place is None:
                place = running.adopt(link)
            # A class's own __call__ may call that of the class before it.
            if place is not around or defines_call(type(link)) is kind:
                running.link_calls.append(place)
            running.place = place
            try:
                return method(link, *args, **kwargs)
            finally:
                running.place = around

        return through_link

    def _outermost(self, call: Any, link: Any, *args: Any, **kwargs: Any) -> Any:
        self.opened.add(CALL)
        try:
            end = self._begin(link)
            if end is None:
                within = functools.partial(call, link, *args, **kwargs)
                return self._around(CALL, link, within)
            try:
                given = call(link, *args, **kwargs)
            except BaseException as error:
                end(error)
                raise
            end(None)
            return given
        finally:
            self.opened.discard(CALL)

    def _ending(self, apply: Any) -> Any:
        # Every function comes here.
        @functools.wraps(apply)
        def ending(function: Any, inputs: Any) -> Any:
            try:
                return apply(function, inputs)
            except BaseException:
                if self.mine:
                    self.raised(function)
                raise

        return ending

    def _ending_backward(self, backprop: Any) -> Any:
        running = self.running

        @functools.wraps(backprop)
        def ending(*args: Any, **kwargs: Any) -> Any:
            depth = len(running.backwards)
            try:
                return backprop(*args, **kwargs)
            except BaseException:
                if self.mine:
                    self.raised_backward(depth)
                raise

        return ending


def _ignore(_: Any) -> None:
    pass


#: A child that is forked goes its own way.
_STANDING: WeakSet[Entries] = WeakSet()


def _forked() -> None:
    for entries in _STANDING:
        entries.running.thread = None
        chainer.get_function_hooks().pop(entries.hook_name, None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
