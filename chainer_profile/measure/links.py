"""Which links are running."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import get_ident
from typing import Any

import chainer

from chainer_profile.basics.replacements import Replacements
from chainer_profile.measure.hooks import classes_of, defines_call


class LinkStack:
    """Keeps the links that are called in this thread, outermost first.

    Chainer's link hooks are told of no call that raises, and of none of a class with a ``__call__``
    of its own: so the methods of all classes are replaced meanwhile.
    """

    def __init__(self, noted: Callable[[Any], None] = lambda link: None) -> None:
        self.noted = noted  # called with every link that is called
        self.links: list[Any] = []
        self._replacements = Replacements()

    def __enter__(self) -> LinkStack:
        for kind in classes_of(chainer.Link):
            if "__call__" in vars(kind):
                wrap = partial(self._noting, get_ident(), kind)
                self._replacements.wrap(kind, "__call__", wrap)
        return self

    def __exit__(self, *_: object) -> None:
        self._replacements.undo()

    def _noting(self, thread: int, kind: type, method: Any) -> Any:
        def noting_call(link: Any, *args: Any, **kwargs: Any) -> Any:
            # It may be called by a subclass's.
            if get_ident() != thread or defines_call(type(link)) is not kind:
                return method(link, *args, **kwargs)
            self.noted(link)
            self.links.append(link)
            try:
                return method(link, *args, **kwargs)
            finally:
                self.links.pop()

        return noting_call
