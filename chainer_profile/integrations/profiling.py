"""Profiles any code: each block, or each call of a function, is a trial."""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import chainer

from chainer_profile.basics.checks import flag, text
from chainer_profile.basics.errors import ProfileError, UsageError
from chainer_profile.measure.clock import Clock, check_clock
from chainer_profile.measure.devices import clock_of, device_of
from chainer_profile.measure.entries import Entries
from chainer_profile.measure.live import LiveTrials
from chainer_profile.measure.loop import LoopTrial, networks, optimizers, prefix_of
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

    Each block, or call, is a trial; trials may differ. A row is a function of a link. Every trial
    is profiled but for the second and the third, which show what each row allocates. Links are
    named after the variables that hold their networks: variables of the block, or of the function
    and its arguments, and attributes of an object such as ``self``. Blocks that raise are not
    counted.

    Args:
        title: Name of the network for the reports. Default: the name of its class.
        memory: Make the memory pass.
        clock: The clock that measures. Default: one that fits the device.

    Raises:
        UsageError: An argument is invalid.
    """

    def __init__(self, title: str = "", memory: bool = True, clock: Clock | None = None) -> None:
        self._title, self._with_memory = text("title", title), flag("memory", memory)
        self._clock: Clock | None = check_clock(clock)
        self._live: LiveTrials | None = None
        self._entries: Entries
        self._open: ExitStack | None = None

    def __enter__(self) -> Profiling:
        frame = sys._getframe(1)
        self._begin({**frame.f_globals, **frame.f_locals})
        return self

    def __exit__(self, *raised: Any) -> None:
        opened, self._open = self._open, None
        assert opened is not None
        opened.__exit__(*raised)

    def __call__(self, function: Function) -> Function:
        """A function each call of which is a trial."""
        if not inspect.isfunction(function):
            raise UsageError(
                "profiling() decorates a function; around other code, use it in a with statement"
            )
        signature = inspect.signature(function)

        @functools.wraps(function)
        def profiled(*args: Any, **kwargs: Any) -> Any:
            if self._open is not None:  # it calls itself
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
        if self._open is not None:
            raise UsageError("this profiling is already open; each block is a separate trial")
        if self._live is None:
            names = _with_attributes(names)
            roots = networks(names)
            timed = [
                (prefix_of(optimizer, roots), optimizer) for optimizer in optimizers(names, ())
            ]
            trial = LoopTrial(roots, timed, self._title)
            device = device_of(roots[0][1]) if roots else chainer.get_device("@numpy")
            clock = self._clock or clock_of(device)
            self._entries = Entries(trial.around)
            self._live = LiveTrials(
                *(trial, clock, self._entries),
                warn=_warn,
                memory=self._with_memory,
                stays=False,
            )
        with ExitStack() as stack:
            stack.enter_context(self._entries)
            stack.enter_context(self._live.trial())
            self._open = stack.pop_all()

    def recording(self) -> Recording:
        """The trials so far.

        Raises:
            ProfileError: No trial has completed, or none called a Chainer function.
        """
        live = self._live
        if live is not None and self._open is None:
            live.pause()
            recording = live.recording()
            if recording is not None:
                return recording
            if live.iteration:
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


def _warn(problem: str) -> None:
    warnings.warn(f"profiling: {problem}", stacklevel=2)


def _with_attributes(names: Mapping[str, Any]) -> dict[str, Any]:
    """Variables, and networks and optimizers that objects among them have as attributes."""
    every = dict(names)
    for name, value in names.items():
        if isinstance(value, (chainer.Link, chainer.Optimizer, ModuleType, type)):
            continue
        for attribute, inner in getattr(value, "__dict__", {}).items():
            if isinstance(inner, (chainer.Link, chainer.Optimizer)):
                every[f"{name}.{attribute}"] = inner
    return every
