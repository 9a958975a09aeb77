"""Profiles any code: each block, or each call of a function, is a trial."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import chainer

from chainer_profile.basics.errors import ProfileError, UsageError
from chainer_profile.basics.warning import warner
from chainer_profile.measure.clock import Clock
from chainer_profile.measure.devices import clock_of, device_of
from chainer_profile.measure.iterations import Iterations
from chainer_profile.measure.loop import Loop, networks, optimizers
from chainer_profile.record.recording import Recording

if TYPE_CHECKING:
    from chainer_profile.analyse.summary import Summary

Function = TypeVar("Function", bound=Callable[..., Any])


class Profiling:
    """Profiles the Chainer functions that a block of code calls, by layer.

    ::

        profiling = chainer_profile.profiling()
        for x, t in batches:
            with profiling:
                loss = model(x, t)
                model.cleargrads()
                loss.backward()
                optimizer.update()
        print(profiling.summary())

    It also decorates a function, whose ``profiling`` attribute then has the results::

        @chainer_profile.profiling()
        def step(x, t):
            ...

        print(step.profiling.summary())

    Each block, or call, is a trial; trials may differ. A row is a function of a link. Links are
    named after the variables that hold their networks: variables of the block, or of the function
    and its arguments, and attributes of an object such as ``self``. Blocks that raise are not
    counted.

    Args:
        title: Name of the network for the reports. Default: the name of its class.
        memory: Make the memory pass: the second and the third trial are not timed, and show what
            each row allocates.
        clock: The clock that measures. Default: one that fits the device.
    """

    def __init__(self, title: str = "", memory: bool = False, clock: Clock | None = None) -> None:
        self._title, self._with_memory, self._clock = title, memory, clock
        self._iterations: Iterations | None = None
        self._loop = Loop([], title=title)
        self._is_open = False

    def __enter__(self) -> Profiling:
        frame = sys._getframe(1)
        self._begin({**frame.f_globals, **frame.f_locals})
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._is_open = False
        assert self._iterations is not None
        self._iterations.finish(error)

    def __call__(self, function: Function) -> Function:
        """A function each call of which is a trial."""
        if not inspect.isfunction(function):
            raise UsageError(
                "profiling() decorates a function; around other code, use it in a with statement"
            )
        signature = inspect.signature(function)

        @functools.wraps(function)
        def profiled(*args: Any, **kwargs: Any) -> Any:
            if self._is_open:  # it calls itself
                return function(*args, **kwargs)
            nonlocals = inspect.getclosurevars(function).nonlocals
            try:
                arguments = signature.bind(*args, **kwargs).arguments
            except TypeError:
                return function(*args, **kwargs)  # it says what is wrong
            self._begin({**function.__globals__, **nonlocals, **arguments})
            try:
                return function(*args, **kwargs)
            finally:
                self.__exit__(*sys.exc_info())

        profiled.profiling = self  # type: ignore[attr-defined]
        return profiled  # type: ignore[return-value]

    def _begin(self, names: Mapping[str, Any]) -> None:
        """A trial begins, in which these names are known."""
        if self._is_open:
            raise UsageError("this profiling is already open; each block is a separate trial")
        names = _with_attributes(names)
        roots, loop = networks(names), self._loop
        loop.roots = [*loop.roots, *_new_roots(roots, loop.roots)]
        known = [id(optimizer) for optimizer in loop.optimizers]
        new = [optimizer for optimizer in optimizers(names, ()) if id(optimizer) not in known]
        loop.optimizers += new
        if self._iterations is None:
            device = device_of(roots[0][1]) if roots else chainer.get_device("@numpy")
            clock = self._clock or clock_of(device)
            self._iterations = Iterations(
                loop, clock, warn=warner("profiling: "), memory=self._with_memory
            )
        self._iterations.begin()
        self._is_open = True

    def recording(self) -> Recording:
        """The trials so far.

        Raises:
            ProfileError: No trial has completed, or none called a Chainer function.
        """
        iterations = self._iterations
        if iterations is not None and not self._is_open:
            iterations.pause()
            recording = iterations.recording()
            if recording is not None:
                return recording
            if iterations.iteration:
                raise ProfileError(
                    "the block calls no Chainer function, so there is nothing to profile"
                )
        raise ProfileError("no block has completed under this profiling")

    def summary(self) -> Summary:
        """The trials' summary: it prints as a table, and its ``save(folder)`` writes the reports.

        Raises:
            ProfileError: As for :meth:`recording`.
        """
        from chainer_profile.analyse.summaries import summarise

        return summarise(self.recording())


#: As it reads in a program.
profiling = Profiling


def _new_roots(
    roots: Sequence[tuple[str, Any]], known: Sequence[tuple[str, Any]]
) -> list[tuple[str, Any]]:
    """The networks that are not known, under names of their own."""
    links = {id(link) for _, root in known for link in root.links()}
    prefixes = {prefix for prefix, _ in known}
    return [
        (prefix, root) for prefix, root in roots if id(root) not in links and prefix not in prefixes
    ]


def _with_attributes(names: Mapping[str, Any]) -> dict[str, Any]:
    """Variables, and networks and optimizers that objects among them have as attributes."""
    every = dict(names)
    targets: dict[str, Any] = {}
    for name, value in names.items():
        if isinstance(value, chainer.Optimizer) and value.target is not None:
            targets[f"{name}.target"] = value.target
        if isinstance(value, (chainer.Link, chainer.Optimizer, ModuleType, type)):
            continue
        for attribute, inner in getattr(value, "__dict__", {}).items():
            if isinstance(inner, (chainer.Link, chainer.Optimizer)):
                every[f"{name}.{attribute}"] = inner
    # Networks go by their own names first.
    return every | targets
