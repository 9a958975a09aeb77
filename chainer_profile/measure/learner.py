"""The structure pass: one trial in which every window is noted with all that is known of it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from types import FrameType
from typing import Any, NamedTuple
from weakref import ref

import chainer
import numpy as np

from chainer_profile.basics.errors import ProfileError, one_line
from chainer_profile.basics.units import format_shape
from chainer_profile.costs.call import Work, specs_of
from chainer_profile.costs.work import backward_work, forward_work
from chainer_profile.measure.calls import BACKWARD, LINK, Entry, Log
from chainer_profile.measure.clock import NowNs
from chainer_profile.measure.events import TimedTrial
from chainer_profile.measure.facts import (
    ACCUMULATION,
    facts_of_gradients,
    facts_of_inputs,
    facts_of_mark,
    facts_of_outputs,
    nbytes_of,
    sums_gradients,
    work_by,
)
from chainer_profile.measure.hooks import (
    DECIDED,
    TOLD,
    WalkHook,
    kind_of,
    marks_of,
)
from chainer_profile.measure.links import LinkStack, is_running
from chainer_profile.measure.owners import Owners
from chainer_profile.measure.structure import Kept, Structure
from chainer_profile.measure.windows import FORWARD, Mark, Step, Trial
from chainer_profile.record.recording import Layer, Shape

#: Where a function keeps, for a structure pass, the index of its row and the shapes of its
#: forward: no reference to the function is held. Several passes may run at once.
_ROW = "_chainer_profile_row_{}"
_PASSES = count()
_OUTSIDE = -1
#: The kind and the number of a window; see :class:`_Running`.
_Owner = tuple[str, int]
_WHOLE = ("whole", "sum")
_WORK = ("flops", "macs", "nbytes_read", "nbytes_written")


@dataclass
class _Row:
    """A layer while it is learned."""

    path: str
    function: str
    phase: str
    fields: dict[str, Any]
    calls: int = 1
    # Bytes of the outputs that are no views of its inputs, where it is within no other one.
    made_nbytes: int = 0
    # Of each call, in their order.
    work: list[Work | None] = field(default_factory=list)


class _Running(NamedTuple):
    """A window that is running."""

    # ``phase``, ``forward``, or one in which functions count for its row: ``sum`` of gradients, and
    # ``whole``.
    kind: str
    number: int  # of the phase, or of the row
    frame: FrameType | None = None  # of what runs it, where an exception may end it without a word
    entered: Entry | None = None


class Learner:
    """Notes everything about every window, in a structure pass: it is slow."""

    def __init__(
        self,
        roots: Sequence[tuple[str, Any]],
        links: LinkStack,
        now_ns: NowNs = lambda: 0,
    ) -> None:
        #: How long the trial took without the learning, once it has ended.
        self.trial: TimedTrial | None = None
        self._now_ns = now_ns
        # Of every clock read the items of the log, whose the time behind it is, and the parameter
        # that is the last input of what begins.
        self._noted: list[tuple[tuple[Any, ...], _Owner, tuple[Kept, ref[Any]] | None]] = []
        self._rows: list[_Row] = []
        self._phases: list[str] = []
        self._running: list[_Running] = [_Running("phase", _OUTSIDE)]
        self._raising: set[type] = set()
        # The last exception that left a window, and where it came from.
        self._error: tuple[BaseException | None, str] = None, ""
        # Rows of several windows: of backwards by the call's row, and of marks.
        self._shared: dict[int | Mark, int] = {}
        self._row_of = _ROW.format(next(_PASSES))
        self._links = links
        links.noted = self.called
        self._known = Owners(roots)
        self._marks = marks_of(roots)
        # Of every call of a link whether a log knows of it by itself, and the last of each link.
        self._traces: list[tuple[Any, list[bool]]] = []
        self._calls: dict[int, list[bool]] = {}

    # -- where a call belongs

    def path(self) -> str:
        """Path of the innermost running link that belongs to the network; or ``loss``."""
        found = self._known.innermost(self._links.links)
        if found is not None:
            return found
        in_lossfun = any(one.entered == FORWARD for one in self._running)
        return "loss" if in_lossfun else "/"

    # -- windows

    def begin(
        self, function: Any, arrays: tuple[Any, ...], backward: bool, frame: FrameType
    ) -> None:
        """Note a call, or a backward; see :class:`.hooks.WalkHook`."""
        self.end_dead()
        if backward:
            self._begin_backward(function, arrays, frame)
        else:
            self._begin_forward(function, arrays, frame)

    def end(
        self,
        function: Any,
        in_data: tuple[Any, ...],
        outputs: tuple[Any, ...] | None,
        frame: FrameType,
    ) -> None:
        """Note its end."""
        self.end_dead()
        window = self._running[-1]
        self._end()
        if outputs is not None and window.kind in ("forward", "sum"):
            self._note_outputs(window.number, function, in_data, outputs)

    def _begin_forward(self, function: Any, in_data: tuple[Any, ...], frame: FrameType) -> None:
        what = kind_of(function)
        kind, number = self._running[-1][:2]
        if sums_gradients(frame):
            path = self._rows[number].path if kind in _WHOLE else "/"
            row = self._new_row("backward", path, ACCUMULATION, facts_of_inputs(in_data, None))
            kind = "sum"
        elif kind in _WHOLE:
            kind, row = "whole", number
        else:
            path, phase = self._known.of_call(self.path(), in_data), self._phase(kind, number)
            weights = self._known.weights(in_data) if phase == FORWARD.phase else None
            facts = facts_of_inputs(in_data, weights)
            facts["parent"] = number if kind == "forward" else None
            row = self._new_row(phase, path, str(function._impl_name), facts)
            kind = "forward"
        setattr(function, self._row_of, (row, None))
        nbytes = getattr(in_data[0], "nbytes", 0) if in_data else 0
        last = in_data[-1] if in_data else None
        self._begin(_Running(kind, row, frame, what), nbytes, last)

    def _note_outputs(
        self, row: int, function: Any, in_data: tuple[Any, ...], outputs: tuple[Any, ...]
    ) -> None:
        found = self._rows[row]
        is_forward = found.phase == FORWARD.phase
        facts = facts_of_outputs(in_data, outputs, is_forward)
        specs = facts.pop("specs")
        found.fields |= facts
        if is_forward and found.fields["parent"] is None:
            found.made_nbytes = sum(
                nbytes_of([array])
                for array in outputs
                if array is not None and not _is_view(array, in_data)
            )
        setattr(function, self._row_of, (row, specs))
        self._add_work(row, function, lambda: forward_work(function, *specs))

    def _add_work(self, row: int, function: Any, formula: Callable[[], Work | None]) -> None:
        self._rows[row].work.append(work_by(str(function._impl_name), formula))

    def _phase(self, kind: str, number: int) -> str:
        """Phase of a call in this window; outside of all phases it is the forward pass."""
        if kind == "forward":
            return self._rows[number].phase
        return FORWARD.phase if number == _OUTSIDE else self._phases[number]

    def _begin_backward(self, function: Any, arrays: tuple[Any, ...], frame: FrameType) -> None:
        """It goes to the link of the call."""
        out_grad = arrays[len(arrays) - len(function.outputs) :]
        # A function of a graph that was there before has no row.
        forward, specs = getattr(function, self._row_of, (None, None))
        row = None if forward is None else self._shared.get(forward)
        if row is not None:
            self._rows[row].calls += 1
        else:
            known = None if forward is None else self._rows[forward]
            facts = facts_of_gradients(function, out_grad)
            facts["forward"] = forward if known and known.phase != "backward" else None
            path = known.path if known else "/"
            name = known.function if known else str(function._impl_name)
            row = self._new_row("backward", path, name, facts)
            if forward is not None:
                self._shared[forward] = row
        # Of a graph that was there before its nodes know the inputs.
        inputs, outputs = specs or (specs_of(function.inputs), specs_of(out_grad))
        asked = tuple(bool(node.requires_grad) for node in function.inputs)
        self._add_work(row, function, lambda: backward_work(function, inputs, outputs, asked))
        self._begin(_Running("whole", row, frame, kind_of(function)), BACKWARD)

    def enter(self, mark: Mark) -> None:
        """Note that a window of another kind begins."""
        self.end_dead()
        if not mark.function:
            if mark.phase not in self._phases:
                self._phases.append(mark.phase)
            self._begin(_Running("phase", self._phases.index(mark.phase), None, mark))
            return
        row = self._shared.get(mark)
        if row is not None:
            self._rows[row].calls += 1
        else:
            params = self._known.parameters(mark.path) if mark.phase == "update" else ()
            facts = facts_of_mark(mark, params)
            row = self._shared[mark] = self._new_row(mark.phase, mark.path, mark.function, facts)
        if mark.work is not None:
            # Of what is there now, such as gradients.
            self._rows[row].work.append(work_by(mark.function, mark.work))
        self._begin(_Running("whole", row, None, mark))

    def leave(self) -> None:
        """Note that it ends."""
        error = sys.exc_info()[1]
        if error is not None and error is not self._error[0]:
            self._error = error, self._place(error)
        self.end_dead()
        self._end()

    def called(self, link: Any) -> None:
        """Note the call of a link, where the log knows of it by nothing else."""
        known = self._marks.get(id(link))
        if known is not None:
            self.end_dead()
            self._calls[id(link)] = call = [False]
            self._traces.append((link, call))
            self._begin(self._running[-1]._replace(frame=None, entered=known[1]))
            self._end()

    def _new_row(self, phase: str, path: str, function: str, facts: dict[str, Any]) -> int:
        self._rows.append(_Row(path, function, phase, facts))
        return len(self._rows) - 1

    def _begin(self, window: _Running, nbytes: int | str = 0, last: Any = None) -> None:
        self._running.append(window)
        known = self._known.kept(last)
        parameter = None if known is None else ((ref(known[0]), known[1], known[2]), ref(last))
        if known is not None:
            self._trace(known[2])
        what = window.entered
        if isinstance(what, Mark):
            what = replace(what, work=None)  # which may hold the network
        self._noted.append(((what, nbytes, id(last), self._now_ns()), window[:2], parameter))

    def _end(self) -> None:
        now_ns = self._now_ns()
        self._running.pop()
        self._noted.append(((now_ns,), self._running[-1][:2], None))

    def end_dead(self) -> None:
        """End the windows that an exception has left."""
        while (frame := self._running[-1].frame) is not None and not is_running(frame):
            what = self._running[-1].entered
            assert isinstance(what, type)
            self._raising.add(what)
            self._end()

    def _trace(self, path: str) -> None:
        """A function takes an array that the link at a path keeps: so its call is known."""
        for link in self._links.links:
            above = self._known.by_link.get(id(link), "")
            if id(link) in self._calls and (path + "/").startswith(above.rstrip("/") + "/"):
                self._calls[id(link)][0] = True

    def _decide(self) -> set[str]:
        """Decide which links need no marks from now on; the paths of those marked here for that."""
        new = [link for link in self._known.alive() if link not in DECIDED]
        of_link: dict[int, list[bool]] = {}
        for link, (known,) in self._traces:
            of_link.setdefault(id(link), []).append(known)
        for link in new:
            DECIDED.add(link)
            if all(of_link.get(id(link), [False])):
                TOLD.add(link)
        # Another pass at the same time may have decided before.
        return {mark.path for link, mark in self._marks.values() if link in TOLD}

    def _forget_marks(self, paths: set[str]) -> None:
        """Take the marks of these links out of what was noted."""
        noted, self._noted = iter(self._noted), []
        for one in noted:
            what = one[0][0]
            if isinstance(what, Mark) and what.phase == LINK and what.path in paths:
                next(noted)  # its end
            else:
                self._noted.append(one)

    # -- what came out

    @property
    def log(self) -> Log:
        """The log of the trial, as a recorder writes it."""
        return [item for items, _, _ in self._noted for item in items]

    def structure(self) -> Structure:
        """What was learned."""
        self.end_dead()
        told = self._decide()
        if told:
            self._forget_marks(told)
        n_layers = len(self._rows)
        owners = [
            number if kind != "phase" or number == _OUTSIDE else n_layers + number
            for _, (kind, number), _ in self._noted
        ]
        return Structure(
            layers=tuple(
                Layer(
                    index,
                    row.path,
                    row.function,
                    row.phase,
                    calls=row.calls,
                    **(row.fields | _sum_of(row.work)),
                )
                for index, row in enumerate(self._rows)
            ),
            phases=tuple(self._phases),
            links=self._known.links(self._link_calls(), 1),
            owners=np.array(owners, np.intp),
            windows=tuple(items[:2] for items, _, _ in self._noted if len(items) > 1),
            parameters=tuple(kept for items, _, kept in self._noted if len(items) > 1),
            of_network=(
                *((ref(param), "array", path) for path, param in self._known.with_paths),
                *((ref(link), name, path) for path, link, name in self._known.persistents),
            ),
            raising=frozenset(self._raising),
            log=self.log,
            made_nbytes=tuple(row.made_nbytes for row in self._rows),
        )

    def _link_calls(self) -> dict[str, int]:
        paths = self._known.by_link
        return {paths[key]: n for key, n in self._links.calls.items() if key in paths}

    def where(self, error: BaseException) -> str:
        """Where an exception of the pass came from, in words."""
        return self._error[1] if error is self._error[0] else self._place(error)

    def _place(self, error: BaseException) -> str:
        kind, number = self._running[-1][:2]
        failed, links = self._links.failed
        if error is not failed:
            links = self._links.links
        if kind != "phase":
            row = self._rows[number]
            of = "" if row.phase == "forward" else f"the {row.phase} of "
            return f"in {of}layer {number}_{row.function} at {row.path}"
        if links:
            return f"in {type(links[-1]).__name__} at {self._known.innermost(links) or '/'}"
        if self._rows:
            last = len(self._rows) - 1
            row = self._rows[last]
            return f"after layer {last}_{row.function} at {row.path}"
        return "before its first layer"


def _is_view(array: Any, inputs: tuple[Any, ...]) -> bool:
    """Whether an array lies in the memory of one of these."""
    may_share: Any = getattr(
        chainer.backend.get_array_module(array), "may_share_memory", np.may_share_memory
    )
    return any(given is not None and may_share(array, given) for given in inputs)


def _sum_of(works: list[Work | None]) -> dict[str, Any]:
    """The work of all calls of a row; without a formula of each it is not known."""
    known = [work for work in works if work is not None]
    if not works or len(known) < len(works):
        return dict.fromkeys(_WORK)
    sums = {name: sum(getattr(work, name) for work in known) for name in _WORK}
    return {**sums, "work_is_about": any(work.about for work in known)}


class StructureError(Exception):
    """The network raised an exception: where, in words, and which one."""

    def __init__(self, where: str, cause: Exception) -> None:
        super().__init__(f"{where}: {cause}")
        self.where = where
        self.cause = cause

    def with_input(self, shape: Shape) -> ProfileError:
        """The error that tells the user which input the network failed with."""
        return ProfileError(
            f"the network fails with an input of {format_shape(shape)}, {self.where}: "
            f"{one_line(self.cause)}"
        )


class Paused:
    """A clock that stands still within ``with``."""

    def __init__(self, now_ns: NowNs) -> None:
        # Its time while it stands still, and how much it is behind the clock.
        self.at_ns = self.spent_ns = 0
        self._now_ns = now_ns

    def __enter__(self) -> None:
        self.at_ns = self._now_ns() - self.spent_ns

    def __exit__(self, *_: object) -> None:
        self.spent_ns = self._now_ns() - self.at_ns

    def around(self, call: Callable[..., None]) -> Callable[..., None]:
        """A call in which the clock stands still."""

        def paused_call(*args: Any) -> None:
            with self:
                call(*args)

        return paused_call


@contextmanager
def learning(
    step: Trial,
    now_ns: NowNs = lambda: 0,
    running: Any = None,
) -> Iterator[Learner]:
    """Within this a step runs once, and every window is noted: function, path, shapes, nesting."""
    links, clock = LinkStack(), Paused(now_ns)
    learner = Learner(step.roots, links, now_ns=lambda: clock.at_ns)
    links.noted = clock.around(learner.called)
    hook = WalkHook(clock.around(learner.begin), clock.around(learner.end))
    windows = step.timed(clock.around(learner.enter), clock.around(learner.leave))
    with links, hook, windows:
        if running is not None:
            links.begin(running)
        clock.spent_ns, start_ns = 0, now_ns()
        yield learner
        wall_ns = now_ns() - clock.spent_ns - start_ns
        learner.trial = TimedTrial(start_ns, wall_ns, len(learner.log), 0, None)


def learn_structure(step: Step, look: Callable[[Any], object] | None = None) -> Structure:
    """Run one trial and note every window; see :func:`learning`."""
    with learning(step) as learned:
        try:
            given = step()
        except Exception as error:
            raise StructureError(learned.where(error), error) from error
    if look:
        look(given)
    return learned.structure()
