"""Cures in a running program: which are tried, where its loop is, and what is told of them."""

from __future__ import annotations

import ast
import functools
import linecache
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, Any

from chainer import FunctionNode

from chainer_profile.advice import results
from chainer_profile.advice.changes import (
    AS_IT_IS,
    BEFORE,
    CURES,
    WALL,
    Candidate,
    blas_threads,
    code,
    difference,
    is_made,
    labels,
    lacking,
    switched,
    thread_changes,
    variables,
)
from chainer_profile.advice.turns import Pair, Turns
from chainer_profile.analyse.changes import Untried
from chainer_profile.analyse.findings import Change
from chainer_profile.basics.replacements import Replacements
from chainer_profile.integrations.origins import CHAINER, LIBRARIES, OURS
from chainer_profile.measure.devices import device_of
from chainer_profile.record.recording import Recording

if TYPE_CHECKING:
    from chainer_profile.integrations.watched import Watched


@dataclass
class Tried:
    """The cures that are tried in the trials of a kind."""

    kind: str
    turns: Turns
    untried: Sequence[Untried]
    place: str  #: Where the loop is whose trials they are, ``train.py:30``.
    counted: Replacements = field(default_factory=Replacements)

    @classmethod
    def of(cls, watched: Watched) -> Tried:
        """Try cures in these trials from now on; called by the program."""
        assert watched.trial is not None
        assert watched.live is not None
        on_gpu = device_of(watched.trial.roots[0][1]).xp.__name__ != "numpy"
        threads, others, last, untried = cures(on_gpu)
        work = Work()
        turns = watched.turns = Turns(threads, others, last, switched, work=work.so_far)
        tried = cls(watched.name, turns, untried, place_of_loop(sys._getframe(1)))
        tried.counted.wrap(FunctionNode, "apply", work.counted)
        return tried

    def close(self) -> None:
        """Take back what is patched."""
        self.turns.close()
        self.counted.undo()

    def advice(self, script: str, command: str, recording: Recording) -> results.Advice:
        """What came of them; ``command`` is how the program is called without us."""
        pairs = self.turns.pairs()
        tried = results.ranked([_result(pair) for pair in pairs if pair.result or pair.error])
        undone = [_name(pair) for pair in pairs if not (pair.result or pair.error)]
        undone += map(labels, self.turns.not_begun())
        best = results.best_of(tried)
        return results.Advice(
            tried,
            (*(Untried(name, "the program ended before") for name in undone), *self.untried),
            settings=recording.settings,
            environment=recording.environment,
            script=script,
            lines=() if best is None else tuple(self.lines(best.candidate.change, command)),
        )

    def lines(self, change: Change, command: str) -> Iterator[tuple[str, str]]:
        """What to type and to write for a change, and where."""
        if words := variables(change):
            yield BEFORE, f"{words} {command}"
        for statement in code(change):
            yield self.place, statement


class Work:
    """What iterations call, so that long ones can be told from short ones."""

    def __init__(self) -> None:
        self._calls = self._size = 0

    def so_far(self) -> tuple[int, int]:
        """Calls of functions, and the elements of their inputs."""
        return self._calls, self._size

    def counted(self, apply: Any) -> Any:
        # Every function comes here.
        @functools.wraps(apply)
        def counted_apply(function: Any, inputs: Any) -> Any:
            self._calls += 1
            for x in inputs:
                self._size += getattr(x, "size", 0)
            return apply(function, inputs)

        return counted_apply


def cures(on_gpu: bool) -> tuple[list[Change], list[Change], list[Change], list[Untried]]:
    """Numbers of threads, other changes, those that last, and those that cannot be tried here."""
    threads: list[Change] = []
    others: list[Change] = []
    last: list[Change] = []
    untried: list[Untried] = []
    if not on_gpu:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        threads = thread_changes(blas_threads(), cores or 1)
        if not threads:
            untried.append(Untried("BLAS threads", "there is one core"))
    lacks = lacking()
    for cure in CURES:
        if not cure.within or cure.device == ("cpu" if on_gpu else "gpu"):
            continue
        if is_made(cure.change):
            untried.append(Untried(labels(cure.change), "the program has it already"))
        elif why := lacks.get(cure.needs, ""):
            untried.append(Untried(labels(cure.change), why))
        else:
            (last if cure.lasts else others).append(cure.change)
    return threads, others, last, untried


def _name(pair: Pair) -> str:
    """A change by what it has beyond that which it is held against."""
    if pair.against == AS_IT_IS:
        return labels(pair.change)
    return f"+ {labels(difference(pair.change, pair.against))}"


def _result(pair: Pair) -> results.Tried:
    change, against, found = pair.change, pair.against, pair.result
    beside = f"beside {labels(against)}" if against != AS_IT_IS else ""
    keep = "; ".join(filter(None, (variables(change), *code(change))))
    candidate = Candidate(_name(pair), beside, keep, change, against, decides=WALL)
    if found is None:
        return results.Tried(candidate, error=pair.error)
    return results.Tried(
        candidate,
        wall=found.speedup,
        pairs=found.rounds,
        confirmed=True,
        before_s=found.before_s,
        after_s=found.after_s,
        loss=found.loss,
        error=pair.error,
    )


# -- where to write


def place_of_loop(frame: FrameType | None) -> str:
    """Where the loop is in which a program calls, or its innermost line: ``train.py:30``."""
    innermost = ""
    while frame is not None:
        path = frame.f_code.co_filename
        if _is_programs(path):
            line = frame.f_lineno
            loop = _loop_around(frame, line)
            name = os.path.relpath(path) if os.path.exists(path) else path
            if loop is not None:
                return f"{name}:{loop}"
            innermost = innermost or f"{name}:{line}"
        frame = frame.f_back
    return innermost


def _is_programs(path: str) -> bool:
    return not (path.startswith((OURS, "<frozen", *LIBRARIES)) or CHAINER in path)


def _loop_around(frame: FrameType, line: int) -> int | None:
    """The first line of the outermost loop of a frame's function that holds a line."""
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
