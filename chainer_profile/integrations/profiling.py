"""Profiles any code: each block, or each call of a function, is a trial."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import chainer

from chainer_profile.basics.checks import flag, text
from chainer_profile.basics.errors import ProfileError, UsageError
from chainer_profile.basics.warning import warner
from chainer_profile.measure.clock import Clock, check_clock
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
        clock: The clock that measures. Default: the clock of the device.

    Raises:
        UsageError: An argument is invalid.
    """

    def __init__(self, title: str = "", memory: bool = False, clock: Clock | None = None) -> None:
        self._with_memory = flag("memory", memory)
        self._clock: Clock | None = check_clock(clock)
        self._iterations: Iterations | None = None
        self._loop = Loop([], title=text("title", title))
        self._is_open = False
        # Values of variables in the blocks so far, by identity.
        self._seen: set[int] = set()

    def __enter__(self) -> Profiling:
        frame = sys._getframe(1)
        self._begin({**frame.f_globals, **frame.f_locals})
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._is_open = False
        assert self._iterations is not None
        self._iterations.finish(error)

    def __call__(self, function: Function) -> Function:
        """Wrap a function, so that each of its calls is a trial."""
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
        """Begin a trial; ``names`` are the variables of its code, by name."""
        if self._is_open:
            raise UsageError("this profiling is already open; each block is a separate trial")
        loop = self._loop
        self._find_networks(names)
        if self._iterations is None:
            device = device_of(loop.roots[0][1]) if loop.roots else chainer.get_device("@numpy")
            clock = self._clock or clock_of(device)
            self._iterations = Iterations(
                loop, clock, warn=warner("profiling: "), memory=self._with_memory
            )
        self._iterations.begin()
        self._is_open = True

    def _find_networks(self, names: Mapping[str, Any]) -> None:
        """Add the networks and optimizers among new variables to the loop."""
        new = {name: value for name, value in names.items() if id(value) not in self._seen}
        # An object may get a network as an attribute later.
        self._seen.update(id(value) for value in new.values() if not _may_hold(value))
        new = _with_attributes(new)
        loop = self._loop
        loop.roots = [*loop.roots, *_new_roots(networks(new), loop.roots)]
        known = {id(optimizer) for optimizer in loop.optimizers}
        loop.optimizers += [each for each in optimizers(new, ()) if id(each) not in known]

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


#: The public name: ``chainer_profile.profiling()``.
profiling = Profiling


def _new_roots(
    roots: Sequence[tuple[str, Any]], known: Sequence[tuple[str, Any]]
) -> list[tuple[str, Any]]:
    """The networks that neither belong to a known network nor have the name of one."""
    if not roots:
        return []
    links = {id(link) for _, root in known for link in root.links()}
    prefixes = {prefix for prefix, _ in known}
    return [
        (prefix, root) for prefix, root in roots if id(root) not in links and prefix not in prefixes
    ]


def _may_hold(value: Any) -> bool:
    """Whether an object's attributes may be networks or optimizers that a block uses."""
    kinds = chainer.Link, chainer.Optimizer, ModuleType, type, FunctionType
    return hasattr(value, "__dict__") and not isinstance(value, kinds)


def _with_attributes(names: Mapping[str, Any]) -> dict[str, Any]:
    """Add the networks and optimizers that are attributes of the variables."""
    every = dict(names)
    targets: dict[str, Any] = {}
    for name, value in names.items():
        if isinstance(value, chainer.Optimizer) and value.target is not None:
            targets[f"{name}.target"] = value.target
        if not _may_hold(value):
            continue
        for attribute, inner in getattr(value, "__dict__", {}).items():
            if isinstance(inner, (chainer.Link, chainer.Optimizer)):
                every[f"{name}.{attribute}"] = inner
    # Targets come last, because a network is named after the first variable that holds it.
    return every | targets
