"""The memory pass of any network: every byte counts once, where it was allocated."""

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
from tests.ledger.drawn import EXAMPLES, build, programs
from tests.ledger.ledger import SUMS, by_call
from tests.ledger.slow import slow_chainer, step_of


class OfLedger:
    """Counts a ledger's nanoseconds as if they were bytes: nothing is ever freed."""

    def __init__(self, clock):
        self.clock = clock

    def counting(self):
        return chainer.using_config("debug", False)

    def read(self):
        return self.clock.time_ns, self.clock.time_ns


PHASES = st.sampled_from(["forward", "forward-backward", "train"])


@EXAMPLES
@given(program=programs(branches=False), phase=PHASES, lazy=st.booleans())
def test_every_byte_is_found_where_it_was_allocated(program, phase, lazy):
    model, ledger = build(program)
    step = step_of(phase, model, ledger)
    with (
        step.configured(),
        slow_chainer(ledger),
        chainer.using_config("lazy_grad_sum", lazy),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(gc, "collect", lambda: 0)  # it takes longest, and changes no sum
        learned(step)
        session = learned(step)
        try:
            use = measure_memory(
                step, ReadingSession(session), len(session.layers), OfLedger(ledger)
            )
        except ProfileError as error:
            # Lazily, Chainer adds up the gradients of leaves in the order of a set of nodes.
            assume(not (lazy and "made different calls" in str(error)))
            raise
    spent = +ledger.trial.spent
    _, result = by_call(session.layers, use.retained_nbytes)
    assert +result == Counter({of: n for of, n in spent.items() if of[1]})
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
        # Gradients may be added up within a backward, in a row of their own.
        assert inclusive <= peak * layer.calls
        assert peak <= inclusive + spent[SUMS]
    by_phase = Counter()
    for of, n in spent.items():
        by_phase[of[2]] += n
    assert {part.phase: part.retained_nbytes for part in use.phases} == by_phase
    if phase != "forward":
        assert use.kept_for_backward_nbytes == by_phase["forward"]
        assert use.phases[0].high_nbytes == by_phase["forward"]
