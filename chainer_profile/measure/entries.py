"""Stands at Chainer's entries: what a program calls that loads data, runs networks, or trains."""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Callable
from threading import get_ident, local
from typing import Any

import chainer
from chainer import FunctionNode, _backprop_utils
from chainer.dataset import Converter

from chainer_profile.basics.replacements import Replacements
from chainer_profile.measure.hooks import classes_of, defines_call

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


#: Has one item more in every child that is forked: asking for the process's number, a system call,
#: would cost more than all else that a call of Chainer goes through here.
_forked: list[None] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _forked.append(None))


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
        self.links: list[Any] = []  # that are running, outermost first
        self.link_calls: list[int] | None = None  # by identity, where it is set
        #: Windows that are open, of whoever notes them, who is told where one is left by an
        #: exception: how many were open when what raised began, and whether that is a backward.
        self.windows: list[int] = []
        self.raised: Callable[[int, bool], None] | None = None
        self._around, self._begin = around, begin
        self._thread, self._forks = get_ident(), len(_forked)
        self._open: set[str] = set()
        self._counts: list[Counter[str]] = []
        self._others = _OtherThread(self._counts)
        self._more: set[type] = set()
        self._replacements = Replacements()

    @property
    def mine(self) -> bool:
        """Whether this is the thread, and the process, that it stands in."""
        return get_ident() == self._thread and len(_forked) == self._forks

    @property
    def elsewhere(self) -> Counter[str]:
        """Calls that other threads made, by entry."""
        return sum((count.copy() for count in self._counts), Counter())

    def __enter__(self) -> Entries:
        self._thread, self._forks = get_ident(), len(_forked)
        for entry, base, names in _ENTRIES:
            for kind in classes_of(base):
                self._stand_at(entry, kind, names)
        self._replacements.wrap(FunctionNode, "apply", self._ending)
        self._replacements.wrap(_backprop_utils, "backprop_step", self._ending_backward)
        # Classes that the program makes later have entries of their own, too.
        for base in dict.fromkeys(base for _, base, _ in _ENTRIES):
            self._replacements.put(base, "__init_subclass__", self._for_new(base))
        return self

    def __exit__(self, *_: object) -> None:
        self._replacements.undo()

    def stand_at(self, entry: str, kind: type) -> None:
        """Stand at an entry of a class that is none of Chainer's own kind; within ``with``."""
        if kind not in self._more:
            self._more.add(kind)
            names = next(names for one, _, names in _ENTRIES if one == entry)
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
        inside, around, others = self._open, self._around, self._others
        thread, forks = self._thread, self._forks

        @functools.wraps(method)
        def through(owner: Any, *args: Any, **kwargs: Any) -> Any:
            mine = get_ident() == thread
            opened = inside if mine else others.open
            if entry in opened or len(_forked) != forks:
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

    def _ending(self, apply: Any) -> Any:
        # Every function comes here.
        @functools.wraps(apply)
        def ending(function: Any, inputs: Any) -> Any:
            depth = len(self.windows)
            try:
                return apply(function, inputs)
            except BaseException:
                self._tell(depth, False)
                raise

        return ending

    def _ending_backward(self, backprop_step: Any) -> Any:
        @functools.wraps(backprop_step)
        def ending(*args: Any, **kwargs: Any) -> Any:
            depth = len(self.windows)
            try:
                return backprop_step(*args, **kwargs)
            except BaseException:
                self._tell(depth, True)
                raise

        return ending

    def _tell(self, depth: int, in_backward: bool) -> None:
        if self.raised is not None and get_ident() == self._thread:
            self.raised(depth, in_backward)

    def _through_call(self, kind: type, method: Any) -> Any:
        outermost = self._through(CALL, method)
        links, begin = self.links, self._begin
        thread, forks = self._thread, self._forks

        # Every call of every link comes here.
        @functools.wraps(method)
        def through(link: Any, *args: Any, **kwargs: Any) -> Any:
            if get_ident() != thread or len(_forked) != forks:
                return outermost(link, *args, **kwargs)
            calls = self.link_calls
            # A class's own __call__ may call that of the class before it.
            if calls is not None and defines_call(type(link)) is kind:
                calls.append(id(link))
            links.append(link)
            try:
                if len(links) > 1:
                    return method(link, *args, **kwargs)
                end = begin(link)
                if end is None:
                    return outermost(link, *args, **kwargs)
                try:
                    given = method(link, *args, **kwargs)
                except BaseException as error:
                    end(error)
                    raise
                end(None)
                return given
            finally:
                links.pop()

        return through
