"""Tries changes in a running program, for ``run --try``."""

from __future__ import annotations

import ast
import functools
import linecache
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any

import chainer
from chainer import FunctionNode

from chainer_profile.advice import results
from chainer_profile.advice.changes import (
    BEFORE,
    applied,
    combined_name,
    environment_variables,
    plan_changes,
    statements,
)
from chainer_profile.advice.interleaved import InterleavedExperiment
from chainer_profile.analyse.changes import Untried
from chainer_profile.analyse.findings import Change
from chainer_profile.basics.describe import NS
from chainer_profile.basics.replacements import Replacements
from chainer_profile.basics.words import command_to_start
from chainer_profile.compat import is_needed
from chainer_profile.integrations.origins import LIBRARIES, OURS

if TYPE_CHECKING:
    from chainer_profile.integrations.trial_kinds import TrialKind


#: Beginnings of the names of files that are not the program's. A clone of Chainer has the package
#: and programs.
_NOT_THE_PROGRAMS = (OURS, "<frozen", *LIBRARIES, os.path.dirname(chainer.__file__) + os.sep)
#: Stands for a location that is unknown: the program is itself a library.
_SOMEWHERE = "the training"


class Trying:
    """Tries changes in the trials of a kind, from its construction on.

    The program itself must call the constructor, which looks for the loop on the stack.
    """

    def __init__(
        self, kind: TrialKind, progress: Callable[[], float | None], is_busy: Callable[[], bool]
    ) -> None:
        self.kind = kind
        #: The location of the loop that makes the trials, such as ``train.py:30``.
        self.location = location_of_loop(sys._getframe(1))
        # Calls of functions so far, and elements of their inputs, as measures of work: iterations
        # can differ in length.
        self._calls = self._size = 0
        on_gpu = kind.xp.__name__ != "numpy"
        self.interleaved = InterleavedExperiment(
            plan_changes(on_gpu),
            applied,
            progress,
            work=lambda: (self._calls, self._size),
            is_busy=is_busy,
        )
        self._counting = Replacements()
        self._counting.wrap(FunctionNode, "apply", self._counted)

    def _counted(self, apply: Any) -> Any:
        """Wrap ``FunctionNode.apply`` to count calls and elements of inputs."""

        # This runs at every call of a function, so it must be fast.
        @functools.wraps(apply)
        def counted_apply(function: Any, inputs: Any) -> Any:
            self._calls += 1
            for x in inputs:
                self._size += getattr(x, "size", 0)
            return apply(function, inputs)

        return counted_apply

    def close(self) -> None:
        """End the experiment and restore the patched method."""
        self.interleaved.close()
        self._counting.undo()

    def advice(self, words: Sequence[str]) -> results.Advice | None:
        """The results so far; None without trials. ``words`` are the arguments of the program."""
        described = self.kind.described()
        if described is None:
            return None
        every = self.interleaved.tried()
        tried = results.ranked([change for change in every if change.gain or change.error])
        undone = [change.candidate.name for change in every if not (change.gain or change.error)]
        undone += map(combined_name, self.interleaved.not_begun())
        best = results.best_of(tried)
        return results.Advice(
            tried,
            (
                *(Untried(name, "the program ended before") for name in undone),
                *self.interleaved.planned.untried,
            ),
            *described,
            script=shlex.join(words),
            lines=() if best is None else tuple(self.lines(best.candidate.change, words)),
            trials=self.kind.count,
            trials_s=self.kind.own_ns * NS,
        )

    def lines(self, change: Change, words: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Yield the lines that the user adds to keep a change: the location and text of each."""
        if set_before := environment_variables(change):
            command = command_to_start(shlex.join(words), is_needed())
            yield BEFORE, f"{set_before} {command}"
        for statement in statements(change):
            yield self.location, statement


def location_of_loop(frame: FrameType | None) -> str:
    """File and line of the program's loop around a call, or of the call: ``train.py:30``.

    ``the training`` if no file of the program is known.
    """
    innermost = ""
    while frame is not None:
        path = frame.f_code.co_filename
        if not path.startswith(_NOT_THE_PROGRAMS):
            line = frame.f_lineno
            loop = _loop_around(frame, line)
            name = os.path.relpath(path) if os.path.exists(path) else path
            if loop is not None:
                return f"{name}:{loop}"
            innermost = innermost or f"{name}:{line}"
        frame = frame.f_back
    return innermost or _SOMEWHERE


def _loop_around(frame: FrameType, line: int) -> int | None:
    """The first line of the outermost loop around a line in a frame's function."""
    source = "".join(linecache.getlines(frame.f_code.co_filename, frame.f_globals))
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return None
    begin = frame.f_code.co_firstlineno
    loops = [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, (ast.For, ast.While))
        and begin <= node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    return min(loops, default=None)
