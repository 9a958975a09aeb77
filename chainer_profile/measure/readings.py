"""Trials in which other figures than the time are read wherever a window begins or ends."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from struct import Struct
from typing import Any

import numpy as np
from chainer import FunctionHook
from numpy.typing import NDArray

from chainer_profile.basics.errors import ProfileError, one_line
from chainer_profile.measure.calls import BACKWARD, Entry
from chainer_profile.measure.hooks import hook_of, kind_of, watching
from chainer_profile.measure.rows import OUTSIDE
from chainer_profile.measure.structure import Structure
from chainer_profile.measure.tape import Tape
from chainer_profile.measure.taped_step import TapedStep
from chainer_profile.measure.windows import Trial

#: Reads that are kept beyond twice those of the iteration before.
_MORE_READS = 20_000


class Readings:
    """A recorder's clock and its log. A trial begins and ends with a reading of its own."""

    def __init__(self, read: Callable[[], Sequence[int]], width: int, most: int) -> None:
        # All is made and written before: a log that grows, or a page that is touched for the first
        # time, would count for a row.
        row = Struct(f"{width}q")
        self._buffer = bytearray(b"\1" * row.size * most)
        self._read, self._pack, self._nbytes = read, row.pack_into, row.size
        self.values = np.frombuffer(self._buffer, np.int64).reshape(most, width)
        self.entered: list[Any] = [None] * most
        # Of what is entered the bytes of its first input, -1 of a backward, and its last input.
        self._sizes, self._lasts = (array("q", bytes(8 * most)) for _ in range(2))
        # Of a tape what is entered or left; its times are not noted.
        self.codes = array("q", bytes(8 * most))
        self.n_codes = self.count = self.depth = 0
        self.failure = ""  # of what is read, which is not read again

    def now_ns(self) -> int:
        """Read; gives 0, for a log of times. Raises nothing into the program."""
        if not self.failure and self.count < len(self.entered):
            try:
                self._pack(self._buffer, self.count * self._nbytes, *self._read())
            except Exception as error:
                self.failure = one_line(error)
        self.count += 1
        return 0

    # What a tape has.

    def code(self, code: int) -> None:
        if self.n_codes < len(self.codes):
            self.codes[self.n_codes] = code
        self.n_codes += 1

    def stamp(self, now_ns: int) -> None:
        pass

    def _note(self, what: Any, size: int = 0, last: int = 0) -> None:
        if self.count <= len(self.entered):
            at = self.count - 1
            self.entered[at], self._sizes[at], self._lasts[at] = what, size, last
        self.depth += 1

    # What is told of windows by call, where nothing that a clock's log notes is alive.

    @property
    def hook(self) -> FunctionHook:
        def forward_preprocess(hook: Any, function: Any, in_data: Any) -> None:
            self.now_ns()
            size = getattr(in_data[0], "nbytes", 0) if in_data else 0
            self._note(kind_of(function), size, id(in_data[-1]) if in_data else 0)

        def forward_postprocess(hook: Any, function: Any, in_data: Any) -> None:
            self.leave()

        def backward_preprocess(hook: Any, function: Any, in_data: Any, out_grad: Any) -> None:
            self.now_ns()
            self._note(kind_of(function), -1)

        def backward_postprocess(hook: Any, function: Any, in_data: Any, out_grad: Any) -> None:
            self.leave()

        return hook_of(
            forward_preprocess, forward_postprocess, backward_preprocess, backward_postprocess
        )

    def enter(self, what: Entry) -> None:
        self.now_ns()
        self._note(what)

    def leave(self) -> None:
        self.now_ns()
        self.depth -= 1

    def position(self) -> int:
        return self.depth

    def running(self, position: int) -> int:
        return self.depth - position

    def items(self) -> Iterator[Any]:
        """The same as a log of times; the first and the last read are no window's."""
        for at in range(1, self.count - 1):
            what, size = self.entered[at], self._sizes[at]
            if what is not None:
                yield from (what, BACKWARD if size < 0 else size, self._lasts[at])
            yield 0

    def of_tape(self) -> NDArray[np.int64]:
        """What a tape noted, from now on as what was entered; without the first and last read."""
        codes = np.frombuffer(self.codes, np.int64)[1 : self.count - 1]
        self.entered[1 : self.count - 1] = [one if one >= 0 else None for one in codes.tolist()]
        return codes

    def __len__(self) -> int:
        return self.count

    @property
    def is_full(self) -> bool:
        return self.count > len(self.entered)

    def clear(self) -> None:
        self.n_codes = self.count = self.depth = 0
        self.entered[:] = [None] * len(self.entered)


class ByCall:
    """Trials that make the calls of a structure."""

    def __init__(self, step: Trial, structure: Structure) -> None:
        self.entries: AbstractContextManager[Any] = nullcontext()
        self.most_reads = len(structure.owners) + 2
        self._step, self._structure = step, structure

    @contextmanager
    def recording(self, log: Readings) -> Iterator[None]:
        """Within this a trial runs, whose windows the log is told of."""
        with watching(self._step, log, self._structure.raising):
            log.now_ns()
            yield
            log.now_ns()

    def structure(self, log: Readings) -> Structure:
        """The structure, where the trial's windows are its windows."""
        if log.is_full or self._structure.stamps(list(log.items())) is None:
            raise ProfileError("its trial made different calls from the earlier ones")
        return self._structure


class ByLinks:
    """Trials by link, whatever they call; :attr:`entries` are to be entered before."""

    def __init__(self, tape: Tape, entries: Any = None) -> None:
        self.entries: AbstractContextManager[Any] = entries or nullcontext()
        self.most_reads = 2 * tape.most_events + _MORE_READS
        self._tape = tape

    @contextmanager
    def recording(self, log: Readings) -> Iterator[None]:
        with self._tape.recording(log):
            log.now_ns()
            log.code(OUTSIDE)
            yield
            self._tape.close()
            log.now_ns()
            log.code(~OUTSIDE)

    def structure(self, log: Readings) -> Structure:
        if log.is_full:
            raise ProfileError("its trial made many more calls than the earlier ones")
        return self._tape.rows.structure(log.of_tape())


Read = ByCall | ByLinks


def trials_of(step: Trial, rows: Structure | TapedStep) -> Read:
    """The trials of a step that were timed, for a pass that reads something else in them."""
    if isinstance(rows, Structure):
        return ByCall(step, rows)
    return ByLinks(rows.tape, rows.entries)
