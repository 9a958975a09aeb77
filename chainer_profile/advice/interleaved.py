"""Compares changes in a running program by interleaved blocks of iterations.

A variant is the unchanged program, or the program with some changes. A block is a number of
successive iterations of one variant. A round has one block of each variant, in random order, so
disturbances and drifts of the machine affect all variants equally. Variants are compared within
rounds (:mod:`.rounds`).

    stage 1   numbers of BLAS threads, because all other gains depend on them
    stage 2   each other change, with the best number of threads
    stage 3   all helpful changes together, compared with the unchanged program
    stage 4   stage 3 with changes that cannot be undone completely (memory kept)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any

import numpy as np

from chainer_profile.advice.changes import (
    UNCHANGED,
    Guard,
    PlannedChanges,
    Wrap,
    candidate_for_program,
)
from chainer_profile.advice.results import ChangeResult, settled
from chainer_profile.advice.rounds import Block, compare_in_rounds, set_weights
from chainer_profile.analyse.findings import Change
from chainer_profile.basics.errors import one_line

#: Smallest length of a block: a time, and a fraction of the time of all blocks so far.
BLOCK_NS, BLOCK_PART = 50_000_000, 0.01
#: The time on a busy machine. There, a thread that has slept gets a core first, so that in short
#: blocks several threads look faster than they are.
BUSY_BLOCK_NS = 500_000_000
#: If iterations are shorter than this, the first one after a switch does not count: it finds other
#: data in the caches, and BLAS threads spin for a while before they sleep.
SHORT_NS = 25_000_000
#: Iterations before the first block. They initialise parameters and give times by layer.
WARM_UP = 5
#: Smallest and largest number of rounds of a stage; the last stage runs until the program ends.
MIN_ROUNDS, MAX_ROUNDS = 6, 12
#: If the end of the program is known, stages end at these fractions of it, but not before this
#: number of rounds.
STAGE_ENDS, MIN_ROUNDS_AT_STAGE_END = (0.25, 0.55, 0.8), 3

#: Returns a context in which a change is on.
Switch = Callable[[Change, Guard], AbstractContextManager[Any]]


@dataclass
class InterleavedExperiment:
    """Chooses the variant of each iteration, switches to it, and compares the variants.

    Call :meth:`begin` before each iteration, and :meth:`end` or :meth:`abandon` after it.
    """

    planned: PlannedChanges
    switch: Switch
    #: Returns the fraction of the program that has passed; None if it is unknown.
    progress: Callable[[], float | None] = lambda: None
    #: Returns totals that grow with the work done, such as the number of function calls.
    work: Callable[[], Sequence[float]] = tuple
    #: Returns whether other programs keep a core busy; called once a stage.
    is_busy: Callable[[], bool] = lambda: False
    draw: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def __post_init__(self) -> None:
        self.blocks: list[Block] = []
        self._stage = self._round = self._count = self._tried_ns = 0
        self._block_ns = BLOCK_NS
        # For each compared pair of variants, the stage that compared it first.
        self._pairs: dict[tuple[Change, Change], int] = {}
        self._errors: dict[Change, str] = {}
        # For each variant of stage 4, the same variant without the change of that stage.
        self._wholes: dict[Change, Change] = {}
        self._changes = self._plan()
        self._block: Block | None = None
        # The variant that is on; None outside the iterations of blocks.
        self._on: Change | None = None
        self._within = ExitStack()
        self._is_new = self._is_warming = self._has_failed = self._is_closed = False
        # The time of the last iteration, and the mean of each variant in its last block.
        self._last_ns = 0
        self._means_ns: dict[Change, float] = {}
        self._losses: list[Any] = []
        self._work_before: Sequence[float] = ()

    # -- iterations

    def begin(self) -> bool:
        """Begin an iteration. Return whether it belongs to a block or has a change."""
        self._losses.clear()
        if self._is_closed or self._count < WARM_UP:
            return False
        if self._block is None:
            change = next(self._changes, None)
            if change is None:
                self.close()
                return False
            self._block = Block(self._round, self._stage, change)
            self.blocks.append(self._block)
            self._is_new = True
        if self._on != self._block.change:
            self._switch_to(self._block.change)
        self._work_before = self.work()
        return not (self._is_warming or self._block is None) or self._on not in (None, UNCHANGED)

    @property
    def is_changed(self) -> bool:
        """Whether a change is switched on."""
        return self._on not in (None, UNCHANGED)

    def note_loss(self, loss: Any) -> None:
        """Note the array on which the iteration calls backward; a single number is a loss."""
        if getattr(loss, "size", 0) == 1:
            self._losses.append(loss)

    def end(self, ns: int) -> None:
        """End an iteration that took ``ns`` nanoseconds."""
        self._count += 1
        self._last_ns = ns
        if self._has_failed:
            self._drop_change()
        elif self._is_warming:
            self._is_warming = False
        elif self._block is not None:
            self._add(self._block, ns)

    def _add(self, block: Block, ns: int) -> None:
        self._tried_ns += ns
        block.count += 1
        block.ns += ns
        if self._losses:
            block.loss += sum(map(float, self._losses))
            block.losses += 1
        work = np.subtract(self.work(), self._work_before)
        block.work = block.work + work if len(block.work) else work
        self._means_ns[block.change] = block.ns / block.count
        if block.ns >= max(self._block_ns, BLOCK_PART * self._tried_ns):
            self._block = None

    def abandon(self) -> None:
        """End an iteration that was interrupted or not timed."""
        if self._has_failed:
            self._drop_change()

    def pause(self) -> None:
        """Switch to the unchanged program, as for everything outside iterations."""
        self._on = None
        with suppress(Exception):
            self._within.close()

    def close(self) -> None:
        """End the experiment; all later iterations run unchanged."""
        self.pause()
        self._is_closed = True

    # -- switching

    def _switch_to(self, change: Change) -> None:
        self.pause()
        self._on = change
        try:
            self._within.enter_context(self.switch(change, self._guard))
        except Exception as error:
            self._fail(error)
            self._drop_change()
            return
        is_short = self._means_ns.get(change, self._last_ns) < SHORT_NS
        self._is_warming = self._is_new and (is_short or change.keep_memory)
        self._is_new = False

    def _guard(self, wrap: Wrap) -> Wrap:
        """Call Chainer's method if its replacement raises."""

        def guarded(stock: Any) -> Any:
            replacement = wrap(stock)

            @wraps(stock)
            def method(*args: Any, **kwargs: Any) -> Any:
                if self._has_failed:
                    return stock(*args, **kwargs)
                try:
                    return replacement(*args, **kwargs)
                except Exception as error:
                    failure = error
                # If Chainer's method raises, too, the exception belongs to the program.
                result = stock(*args, **kwargs)
                self._fail(failure)
                return result

            return method

        return guarded

    def _fail(self, error: Exception) -> None:
        self._has_failed = True
        if self._on is not None:
            self._errors.setdefault(self._on, one_line(error))

    def _drop_change(self) -> None:
        """Switch off a change that raised, and discard its block."""
        self.pause()
        if self._block is not None:
            self.blocks.remove(self._block)
        self._block, self._has_failed, self._is_warming = None, False, False

    # -- the plan

    def _plan(self) -> Iterator[Change]:
        """Yield the variant of each block."""
        variants: list[Change] = []
        for variants in self._stages():
            self._block_ns = BUSY_BLOCK_NS if self.is_busy() else BLOCK_NS
            rounds = 0
            while not self._is_decided(variants, rounds):
                yield from self._order_round(variants)
                rounds += 1
        while len(self._running(variants)) > 1:
            yield from self._order_round(variants)

    def _running(self, variants: Sequence[Change]) -> list[Change]:
        return [change for change in variants if change not in self._errors]

    def _order_round(self, variants: Sequence[Change]) -> Iterator[Change]:
        """Yield the variants of a new round in random order."""
        self._round += 1
        order = self._running(variants)
        for at in self.draw.permutation(len(order)):
            if order[at] not in self._errors:
                yield order[at]

    def _is_decided(self, variants: Sequence[Change], rounds: int) -> bool:
        """Whether a stage can end after this number of rounds."""
        set_weights(self.blocks)
        if rounds >= MAX_ROUNDS or len(self._running(variants)) < 2:
            return True
        passed = self.progress()
        if passed is not None and rounds >= MIN_ROUNDS_AT_STAGE_END:
            ends = STAGE_ENDS[self._stage - 1] if self._stage <= len(STAGE_ENDS) else 1.0
            if passed >= ends:
                return True
        done = (self._result(*pair) for pair in self._pairs if set(pair) <= set(variants))
        return rounds >= MIN_ROUNDS and all(settled(each.wall, each.pairs) for each in done)

    def _stages(self) -> Iterator[list[Change]]:
        """Yield the variants of each stage, chosen by the results of the stages before it."""
        planned = self.planned
        yield from self._stage_of(UNCHANGED, planned.threads)
        base = self._best_with(UNCHANGED, planned.threads)
        yield from self._stage_of(base, planned.others)
        chosen = self._best_with(base, [change for change in planned.others if change.kernels])
        for change in planned.others:
            if not change.kernels and self._helps(base.with_(change), base):
                chosen = chosen.with_(change)
        if chosen != UNCHANGED:
            yield from self._stage_of(UNCHANGED, [chosen])
        for change in planned.last:
            whole = chosen.with_(change)
            if chosen == UNCHANGED:
                yield from self._stage_of(UNCHANGED, [whole])
            else:
                self._pairs.setdefault((whole, chosen), self._stage)
                self._wholes[whole] = chosen
                yield from self._stage_of(UNCHANGED, [whole], chosen)

    def _stage_of(
        self, base: Change, changes: Iterable[Change], *others: Change
    ) -> Iterator[list[Change]]:
        """Yield the variants of a stage: the base alone and with each change, and others."""
        variants = [base.with_(change) for change in changes]
        self._stage += bool(variants)
        for variant in variants:
            self._pairs.setdefault((variant, base), self._stage)
        if variants:
            yield [base, *variants, *others]

    def _best_with(self, base: Change, changes: Iterable[Change]) -> Change:
        """The base with the change that helps most; the base alone if none helps."""
        results = (self._result(base.with_(change), base) for change in changes)
        factors = {
            result.candidate.change: result.wall.factor
            for result in results
            if result.wall and result.helps
        }
        return max(factors, key=lambda change: factors[change], default=base)

    def _helps(self, change: Change, against: Change) -> bool:
        return self._result(change, against).helps

    # -- results

    def _result(self, change: Change, against: Change) -> ChangeResult:
        """Compare two variants in the rounds after the stage that first compared them.

        Uses all rounds if there are too few of these.
        """
        candidate = candidate_for_program(change, against)
        result = compare_in_rounds(self.blocks, candidate, self._pairs[change, against])
        if result is None or result.pairs < MIN_ROUNDS:
            result = compare_in_rounds(self.blocks, candidate) or ChangeResult(candidate)
        return replace(result, error=self._errors.get(change, ""))

    def tried(self) -> list[ChangeResult]:
        """All results so far, in order, without combinations that did not help."""
        set_weights(self.blocks)
        return [
            self._result(change, against)
            for change, against in self._pairs
            if self._wholes.get(change, against) == against
            or self._helps(change, self._wholes[change])
        ]

    def not_begun(self) -> list[Change]:
        """The planned changes that no stage has reached."""
        planned = [*self.planned.threads, *self.planned.others, *self.planned.last]
        begun = [change for change, _ in self._pairs]
        return [change for change in planned if all(b.with_(change) != b for b in begun)]
