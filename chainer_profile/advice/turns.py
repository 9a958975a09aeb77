"""Cures switched on and off by turns in a running program: which iteration has which.

Iterations come in blocks, and blocks in rounds: in a round each variant of the program (as it is,
or with some changes) has one block, in an order that is drawn. So what disturbs the machine, or
drifts, meets all of them alike, and they are compared within rounds (:mod:`.rounds`).

    stage 1   the numbers of BLAS threads, as all else depends on them
    stage 2   every other cure, beside the best number of threads
    stage 3   all that helped together, against the program as it is
    stage 4   what cannot quite be undone (memory kept), beside that
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any

import numpy as np

from chainer_profile.advice.changes import AS_IT_IS, Cures, Guard, Wrap, candidate_within
from chainer_profile.advice.results import Tried, settled
from chainer_profile.advice.rounds import Block, compared, weigh
from chainer_profile.analyse.findings import Change
from chainer_profile.basics.errors import one_line

#: A block is at least so long; in a long program it is this part of the time since the first one.
BLOCK_NS, BLOCK_PART = 50_000_000, 0.01
#: Where iterations are shorter, the first one behind a switch is not counted: caches are others',
#: and BLAS's threads spin for a while before they sleep.
SHORT_NS = 25_000_000
#: Iterations before the first block: they make parameters, and show where the time goes by layer.
WARM_UP = 5
#: Rounds of a stage; the last one goes on to the end of the program.
LEAST_ROUNDS, MOST_ROUNDS = 6, 12
#: Where the end of the program is known, stages end at these parts of it, if they have so many.
STAGE_ENDS, FEWEST_ROUNDS = (0.25, 0.55, 0.8), 3

#: Switches a change on for as long as it is entered.
Switch = Callable[[Change, Guard], AbstractContextManager[Any]]


@dataclass
class Turns:
    """Tells which changes each iteration has, switches them, and compares them.

    An iteration is between :meth:`begin` and :meth:`end`, or :meth:`abandon`.
    """

    cures: Cures
    switch: Switch
    #: Which part of the program has passed, where that is known.
    progress: Callable[[], float | None] = lambda: None
    #: What was called so far, by any measures that add up.
    work: Callable[[], Sequence[float]] = tuple
    draw: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def __post_init__(self) -> None:
        self.blocks: list[Block] = []
        self._stage = self._round = self._count = self._tried_ns = 0
        # The stage in which each change was first tried against another, and why some are out.
        self._pairs: dict[tuple[Change, Change], int] = {}
        self._errors: dict[Change, str] = {}
        # Changes that contain one of the last stage, and the same without that.
        self._wholes: dict[Change, Change] = {}
        self._changes = self._plan()
        self._block: Block | None = None
        # The change that is switched on, None between iterations that are tried.
        self._on: Change | None = None
        self._within = ExitStack()
        self._is_new = self._is_warming = self._has_failed = self._is_closed = False
        # The time of the last iteration, and each change's mean in its last block.
        self._last_ns = 0
        self._means_ns: dict[Change, float] = {}
        self._losses: list[Any] = []
        self._work_before: Sequence[float] = ()

    # -- the program tells of its iterations

    def begin(self) -> bool:
        """Begin an iteration; returns whether it has a change or is compared with one that has."""
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
        return not (self._is_warming or self._block is None) or self._on not in (None, AS_IT_IS)

    @property
    def is_changed(self) -> bool:
        """Whether a change is switched on."""
        return self._on not in (None, AS_IT_IS)

    def note_loss(self, loss: Any) -> None:
        """Note the array from which the iteration goes backward; a single number is a loss."""
        if getattr(loss, "size", 0) == 1:
            self._losses.append(loss)

    def end(self, ns: int) -> None:
        """End the iteration, which took so long."""
        self._count += 1
        self._last_ns = ns
        if self._has_failed:
            self._take_out()
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
        if block.ns >= max(BLOCK_NS, BLOCK_PART * self._tried_ns):
            self._block = None

    def abandon(self) -> None:
        """End an iteration that does not count, or has no time."""
        if self._has_failed:
            self._take_out()

    def pause(self) -> None:
        """Switch off what is on: anything but an iteration has the program as it is."""
        self._on = None
        with suppress(Exception):
            self._within.close()

    def close(self) -> None:
        """Try no more iterations."""
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
            self._take_out()
            return
        is_short = self._means_ns.get(change, self._last_ns) < SHORT_NS
        self._is_warming = self._is_new and (is_short or change.keep_memory)
        self._is_new = False

    def _guard(self, wrap: Wrap) -> Wrap:
        """Have a replaced method never raise by itself: Chainer's own takes over."""

        def guarded(stock: Any) -> Any:
            instead = wrap(stock)

            @wraps(stock)
            def method(*args: Any, **kwargs: Any) -> Any:
                if self._has_failed:
                    return stock(*args, **kwargs)
                try:
                    return instead(*args, **kwargs)
                except Exception as error:
                    failure = error
                # If Chainer's own raises as well, the exception is the program's.
                result = stock(*args, **kwargs)
                self._fail(failure)
                return result

            return method

        return guarded

    def _fail(self, error: Exception) -> None:
        self._has_failed = True
        if self._on is not None:
            self._errors.setdefault(self._on, one_line(error))

    def _take_out(self) -> None:
        """Drop the change that is on, as it raised: its block does not count."""
        self.pause()
        if self._block is not None:
            self.blocks.remove(self._block)
        self._block, self._has_failed, self._is_warming = None, False, False

    # -- the plan

    def _plan(self) -> Iterator[Change]:
        """The change of every block."""
        variants: list[Change] = []
        for variants in self._stages():
            rounds = 0
            while not self._is_decided(variants, rounds):
                yield from self._new_round(variants)
                rounds += 1
        while len(self._running(variants)) > 1:
            yield from self._new_round(variants)

    def _running(self, variants: Sequence[Change]) -> list[Change]:
        return [change for change in variants if change not in self._errors]

    def _new_round(self, variants: Sequence[Change]) -> Iterator[Change]:
        self._round += 1
        order = self._running(variants)
        for at in self.draw.permutation(len(order)):
            if order[at] not in self._errors:
                yield order[at]

    def _is_decided(self, variants: Sequence[Change], rounds: int) -> bool:
        """Whether a stage has all that it needs."""
        weigh(self.blocks)
        if rounds >= MOST_ROUNDS or len(self._running(variants)) < 2:
            return True
        passed = self.progress()
        if passed is not None and rounds >= FEWEST_ROUNDS:
            ends = STAGE_ENDS[self._stage - 1] if self._stage <= len(STAGE_ENDS) else 1.0
            if passed >= ends:
                return True
        own = (self._result(*pair) for pair in self._pairs if set(pair) <= set(variants))
        return rounds >= LEAST_ROUNDS and all(settled(each.wall, each.pairs) for each in own)

    def _stages(self) -> Iterator[list[Change]]:
        """The variants of each stage, by what came of those before."""
        cures = self.cures
        yield from self._stage_of(AS_IT_IS, cures.threads)
        base = self._best_beside(AS_IT_IS, cures.threads)
        yield from self._stage_of(base, cures.others)
        chosen = self._best_beside(base, [change for change in cures.others if change.kernels])
        for change in cures.others:
            if not change.kernels and self._helps(base.with_(change), base):
                chosen = chosen.with_(change)
        if chosen != AS_IT_IS:
            yield from self._stage_of(AS_IT_IS, [chosen])
        for change in cures.last:
            whole = chosen.with_(change)
            if chosen == AS_IT_IS:
                yield from self._stage_of(AS_IT_IS, [whole])
            else:
                self._pairs.setdefault((whole, chosen), self._stage)
                self._wholes[whole] = chosen
                yield from self._stage_of(AS_IT_IS, [whole], chosen)

    def _stage_of(
        self, base: Change, changes: Iterable[Change], *beside: Change
    ) -> Iterator[list[Change]]:
        """The stage of these changes beside others, if there are any."""
        variants = [base.with_(change) for change in changes]
        self._stage += bool(variants)
        for variant in variants:
            self._pairs.setdefault((variant, base), self._stage)
        if variants:
            yield [base, *variants, *beside]

    def _best_beside(self, base: Change, changes: Iterable[Change]) -> Change:
        """The best of the changes that help beside what there is, with that."""
        results = (self._result(base.with_(change), base) for change in changes)
        factors = {
            result.candidate.change: result.wall.factor
            for result in results
            if result.wall and result.helps
        }
        return max(factors, key=lambda change: factors[change], default=base)

    def _helps(self, change: Change, against: Change) -> bool:
        return self._result(change, against).helps

    # -- what came of it

    def _result(self, change: Change, against: Change) -> Tried:
        """In the rounds after those by which it was chosen, where these are enough."""
        candidate = candidate_within(change, against)
        result = compared(self.blocks, candidate, self._pairs[change, against])
        if result is None or result.pairs < LEAST_ROUNDS:
            result = compared(self.blocks, candidate) or Tried(candidate)
        return replace(result, error=self._errors.get(change, ""))

    def tried(self) -> list[Tried]:
        """What was tried so far, in its order; nothing as a whole whose last part does not help."""
        weigh(self.blocks)
        return [
            self._result(change, against)
            for change, against in self._pairs
            if self._wholes.get(change, against) == against
            or self._helps(change, self._wholes[change])
        ]

    def not_begun(self) -> list[Change]:
        """What no stage came to."""
        planned = [*self.cures.threads, *self.cures.others, *self.cures.last]
        begun = [change for change, _ in self._pairs]
        return [change for change in planned if all(b.with_(change) != b for b in begun)]
