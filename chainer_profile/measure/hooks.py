"""What notes a trial in a log: clock reads on entering and on leaving, and hardly more.

On a device that works beside the host, an event in its queue goes with every clock read.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial, wraps
from itertools import count
from threading import get_ident
from types import FrameType
from typing import Any, Protocol
from weakref import WeakValueDictionary

from chainer import FunctionHook, Link, LinkHook
from chainer.function import FunctionAdapter

from chainer_profile.basics.paths import joined
from chainer_profile.basics.replacements import Replacements
from chainer_profile.measure.calls import BACKWARD, LINK, Log
from chainer_profile.measure.clock import NowNs
from chainer_profile.measure.windows import Mark, Trial

#: Records an event in the queue of a device.
Record = Callable[[], None]
#: A method of a hook, as a function.
Callback = Callable[..., None]

_NUMBERS = count()


def windows(
    now_ns: NowNs, log: Any, record: Record | None = None, of_no_call: tuple[int, ...] = (0, 0)
) -> tuple[Callable[[Any], None], Callable[[], None]]:
    """What notes that windows are entered and left which are no function's.

    Behind what is entered stand as many items as a log has of a function's inputs.
    """
    # The device's event stands outside of the host's clock reads, so that recording it counts for
    # no layer's host time.
    note, stamp = log.extend, log.append

    def enter(what: Any) -> None:
        if record is not None:
            record()
        note((what, *of_no_call, now_ns()))

    def leave() -> None:
        stamp(now_ns())
        if record is not None:
            record()

    return enter, leave


def kind_of(function: Any) -> type:
    """Class of a function; of an old-style one, which Chainer wraps, its own."""
    return type(function.function) if type(function) is FunctionAdapter else type(function)


def recording_hook(now_ns: NowNs, log: Log, record: Record | None = None) -> FunctionHook:
    """The hook that notes functions. Any number of them may be registered at once."""
    callbacks = host_callbacks(now_ns, log)
    return hook_of(*(callbacks if record is None else _with_events(callbacks, record)))


def hook_of(*callbacks: Callback) -> FunctionHook:
    """A hook that has these methods, by their names."""
    hook: FunctionHook = type("RecordingHook", (FunctionHook,), by_name(callbacks))()
    hook.name = unique_name("Recorder")
    return hook


def unique_name(of: str) -> str:
    """A name that no other hook has: Chainer takes no two of one name."""
    return f"chainer_profile.{of}-{next(_NUMBERS)}"


def by_name(callbacks: Iterable[Callback]) -> dict[str, Callback]:
    return {callback.__name__: callback for callback in callbacks}


def host_callbacks(now_ns: NowNs, log: Log) -> tuple[Callback, ...]:
    """The callbacks of a hook that notes functions in a log."""
    # They run in every window of every trial. Methods of a class that find all they need in closure
    # cells are the fastest callbacks: the interpreter caches their look-up, which it does not for
    # functions kept on the instance. One more call in each would double what they take, so kind_of
    # is written out.
    note, stamp, adapter = log.extend, log.append, FunctionAdapter

    def forward_preprocess(self: Any, function: Any, in_data: Any) -> None:
        kind = type(function)
        if kind is adapter:
            kind = type(function.function)
        try:
            note((kind, in_data[0].nbytes, id(in_data[-1]), now_ns()))
        except (IndexError, AttributeError):  # no input, or one that is not there
            note((kind, 0, 0, now_ns()))

    def forward_postprocess(self: Any, function: Any, in_data: Any) -> None:
        stamp(now_ns())

    def backward_preprocess(self: Any, function: Any, in_data: Any, out_grad: Any) -> None:
        kind = type(function)
        if kind is adapter:
            kind = type(function.function)
        note((kind, BACKWARD, 0, now_ns()))

    def backward_postprocess(self: Any, function: Any, in_data: Any, out_grad: Any) -> None:
        stamp(now_ns())

    return forward_preprocess, forward_postprocess, backward_preprocess, backward_postprocess


def _with_events(callbacks: Iterable[Callback], record: Record) -> Iterator[Callback]:
    """The same with an event of a device outside of each clock read."""

    def entering(callback: Callback) -> Callback:
        @wraps(callback)
        def enter(*args: Any) -> None:
            record()
            callback(*args)

        return enter

    def leaving(callback: Callback) -> Callback:
        @wraps(callback)
        def leave(*args: Any) -> None:
            callback(*args)
            record()

        return leave

    for callback in callbacks:
        yield (entering if callback.__name__.endswith("preprocess") else leaving)(callback)


class WalkHook(FunctionHook):
    """Tells of every function that is called, and of its backward.

    ``begin`` gets the function, its inputs (and in a backward the gradients behind them), whether
    it is a backward, and the frame that runs it; ``end`` the function, its inputs, its outputs,
    which are None in a backward, and the frame.
    """

    def __init__(
        self,
        begin: Callable[[Any, tuple[Any, ...], bool, FrameType], None] = lambda *_: None,
        end: Callable[[Any, tuple[Any, ...], Any, FrameType], None] = lambda *_: None,
    ) -> None:
        self.name = unique_name("Walk")
        self._begin, self._end = begin, end

    def forward_preprocess(self, function: Any, in_data: Any) -> None:
        self._begin(function, in_data, False, sys._getframe(1))

    def forward_postprocess(self, function: Any, in_data: Any) -> None:
        # The function does not have its outputs yet; the method that runs it has.
        frame = sys._getframe(1)
        self._end(function, in_data, frame.f_locals["outputs"], frame)

    def backward_preprocess(self, function: Any, in_data: Any, out_grad: Any) -> None:
        self._begin(function, (*in_data, *out_grad), True, sys._getframe(1))

    def backward_postprocess(self, function: Any, in_data: Any, out_grad: Any) -> None:
        self._end(function, in_data, None, sys._getframe(1))


class CallHook(LinkHook):
    """Tells of the calls of one link, by the frames that run them, and of no exceptions."""

    def __init__(
        self, link: Any, begin: Callable[[FrameType], None], end: Callable[[FrameType], None]
    ) -> None:
        self.name = unique_name("Calls")
        self._link, self._begin, self._end = link, begin, end
        self._thread = get_ident()

    def forward_preprocess(self, args: Any) -> None:
        # A copy has the same hooks, and other threads call the link's, too.
        if args.link is self._link and get_ident() == self._thread:
            self._begin(sys._getframe(1))

    def forward_postprocess(self, args: Any) -> None:
        self._end(sys._getframe(1))


class LinkSet(WeakValueDictionary[int, Any]):
    """Links by identity, which are not kept alive by it: a class of links need have no hash."""

    def add(self, link: Any) -> None:
        self[id(link)] = link

    def __contains__(self, link: object) -> bool:
        return self.get(id(link)) is link


#: Links that a structure pass has decided about; and of these, those whose every call made a
#: function that takes a parameter, or a persistent array, of theirs last: a log knows of them by
#: itself, and noting their calls would take more time than all of a recorder's work.
DECIDED = LinkSet()
TOLD = LinkSet()


class Marks(LinkHook):
    """Notes the calls of links that nothing else in a log tells of for sure."""

    def __init__(self, roots: Sequence[tuple[str, Any]], note: Callable[[Mark], None]) -> None:
        self.name = unique_name("Marks")
        self._note = note
        self._marks = marks_of(roots)
        self._replacements = Replacements()

    def __enter__(self) -> Marks:
        kinds = {defines_call(type(link)) for link, _mark in self._marks.values()}
        for kind in kinds - {Link}:
            self._replacements.wrap(kind, "__call__", partial(self._noting, kind))
        for link, _mark in self._marks.values():
            if defines_call(type(link)) is Link:
                link.add_hook(self)
        return self

    def __exit__(self, *_: object) -> None:
        for link, _mark in self._marks.values():
            if defines_call(type(link)) is Link:
                link.delete_hook(self.name)
        self._replacements.undo()

    def forward_preprocess(self, args: Any) -> None:
        """Note the call; a copy of a link, which has the same hooks, is another link."""
        known = self._marks.get(id(args.link))
        if known is not None:
            self._note(known[1])

    def _noting(self, kind: type, method: Any) -> Any:
        marks, note = self._marks, self._note

        def noting_call(link: Any, *args: Any, **kwargs: Any) -> Any:
            known = marks.get(id(link))
            if known is not None and defines_call(type(link)) is kind:
                note(known[1])
            return method(link, *args, **kwargs)

        return noting_call


#: By class of links; it is asked in every call of a link.
_defining: dict[type, type] = {}


def defines_call(kind: type) -> type:
    """The class that a class of links has its ``__call__`` from: Chainer's, or one of its own."""
    found = _defining.get(kind)
    if found is None:
        found = _defining[kind] = next(one for one in kind.__mro__ if "__call__" in vars(one))
    return found


def classes_of(base: type) -> set[type]:
    """A class and all below it."""
    return {base}.union(*map(classes_of, base.__subclasses__()))


def marks_of(roots: Sequence[tuple[str, Any]]) -> dict[int, tuple[Any, Mark]]:
    """By identity: the links that a log does not tell of by itself, and the mark of their calls."""
    return {
        id(link): (link, Mark(LINK, joined(prefix, path)))
        for prefix, root in reversed(roots)
        for path, link in reversed(list(root.namedlinks(skipself=True)))
        if link not in TOLD
    }


class _Ends(Protocol):
    """What is told of the end of a function that raised."""

    def leave(self) -> None: ...

    def position(self) -> int: ...

    def running(self, position: int) -> int: ...


class _Watch(_Ends, Protocol):
    """What is told of every window of a trial."""

    @property
    def hook(self) -> FunctionHook: ...

    def enter(self, mark: Mark) -> None: ...


@contextmanager
def watching(step: Trial, watch: _Watch, raising: Collection[Any] = ()) -> Iterator[None]:
    """Within this, something is told of every window of a step."""

    def note(mark: Mark) -> None:
        watch.enter(mark)
        watch.leave()

    with ExitStack() as stack:
        end_when_raising(stack.enter_context(Replacements()), raising, watch)
        stack.enter_context(step.timed(watch.enter, watch.leave))
        stack.enter_context(Marks(step.roots, note))
        stack.enter_context(watch.hook)
        yield


def end_when_raising(replacements: Replacements, raising: Collection[Any], watch: _Ends) -> None:
    """Let functions of these classes leave their window when they raise."""
    # Chainer runs old-style functions, which have no such method, by one class for all.
    for kind in {one if hasattr(one, "apply") else FunctionAdapter for one in raising}:
        replacements.wrap(kind, "apply", partial(_ending, watch))


def _ending(watch: _Ends, apply: Any) -> Any:
    thread = get_ident()

    def ending_apply(self: Any, inputs: Any) -> Any:
        begin = watch.position()
        try:
            return apply(self, inputs)
        except BaseException:
            if get_ident() == thread:
                for _ in range(watch.running(begin)):
                    watch.leave()
            raise

    return ending_apply
