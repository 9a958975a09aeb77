"""The memory pass counts every byte once, in the row that allocates it."""

import gc
from collections import Counter

import chainer
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from chainer_profile.basics.errors import ProfileError
from chainer_profile.measure.memory import measure_memory
from chainer_profile.measure.readings import ReadingSession
from chainer_profile.measure.step_session import learned
from tests.ledger.ledger import SUMS, rows_and_times_by_owner
from tests.ledger.random_programs import EXAMPLES, build, programs
from tests.ledger.slow import slow_chainer, step_of


class LedgerCounter:
    """Counts the nanoseconds of a ledger as bytes that are never freed."""

    def __init__(self, clock):
        self.clock = clock

    def counting(self):
        return chainer.using_config("debug", False)

    def read(self):
        return self.clock.time_ns, self.clock.time_ns


PHASES = st.sampled_from(["forward", "forward-backward", "train"])


@EXAMPLES
@given(program=programs(branches=False), phase=PHASES, lazy=st.booleans())
def test_each_byte_counts_in_the_row_that_allocates_it(program, phase, lazy):
    model, ledger = build(program)
    step = step_of(phase, model, ledger)
    with (
        step.configured(),
        slow_chainer(ledger),
        chainer.using_config("lazy_grad_sum", lazy),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(gc, "collect", lambda: 0)  # a slow call that changes no sum
        learned(step)
        session = learned(step)
        try:
            use = measure_memory(
                step, ReadingSession(session), len(session.layers), LedgerCounter(ledger)
            )
        except ProfileError as error:
            # With lazy sums, Chainer adds up gradients of leaves in the random order of a set.
            assume(not (lazy and "made different calls" in str(error)))
            raise
    spent = +ledger.trial.spent
    _, result = rows_and_times_by_owner(session.layers, use.retained_nbytes)
    assert +result == Counter({owner: n for owner, n in spent.items() if owner[1]})
    assert use.high_water_nbytes == spent.total()
    nested = Counter()
    for layer in session.layers:
        nested[layer.parent] += use.retained_nbytes[layer.index]
    for layer, peak, retained in zip(
        session.layers, use.peak_nbytes, use.retained_nbytes, strict=True
    ):
        inclusive = retained + nested[layer.index]
        if layer.phase == "forward":
            assert peak == inclusive
        # Gradient sums within a backward have their own row.
        assert inclusive <= peak * layer.calls
        assert peak <= inclusive + spent[SUMS]
    by_phase = Counter()
    for (_, _, phase_of_owner, *_), n in spent.items():
        by_phase[phase_of_owner] += n
    assert {part.phase: part.retained_nbytes for part in use.phases} == by_phase
    if phase != "forward":
        assert use.kept_for_backward_nbytes == by_phase["forward"]
        assert use.phases[0].high_nbytes == by_phase["forward"]
