"""The memory pass of any network: every byte counts once, where it was allocated."""

import gc
from collections import Counter

import chainer
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.measure.taped_step import learned
from tests.ledger.drawn import EXAMPLES, SUMS, build, by_call, programs, slow_chainer, step_of
from tests.measure.test_memory import by_phase, measure_memory


class OfLedger:
    """Counts a ledger's nanoseconds as if they were bytes."""

    def __init__(self, clock):
        self.clock = clock

    def counting(self):
        return chainer.using_config("debug", False)

    def read(self):
        return self.clock.time_ns, self.clock.time_ns


@pytest.fixture(scope="module", autouse=True)
def no_collection():
    """Collecting garbage takes longest in a process of many tests, and changes no sum."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gc, "collect", lambda: 0)
        yield


ALIKE = programs(branches=False)
PHASES = st.sampled_from(["forward", "forward-backward", "train"])


@EXAMPLES
@given(program=ALIKE, phase=PHASES, lazy=st.booleans())
def test_every_byte_is_found_where_it_was_allocated(program, phase, lazy):
    """A ledger's nanoseconds are counted as if they were bytes: nothing is ever freed."""
    model, ledger = build(program)
    step = step_of(phase, model, ledger)
    with step.configured(), slow_chainer(ledger), chainer.using_config("lazy_grad_sum", lazy):
        learned(step)
        taped = learned(step)
        use = measure_memory(step, taped, OfLedger(ledger))
    spent = +ledger.trial.spent
    total = spent.total()
    _, result = by_call(taped.layers, use.retained_nbytes)
    assert +result == Counter({of: n for of, n in spent.items() if of[1]})
    assert use.high_water_nbytes == total
    nested = [0] * len(taped.layers)
    for layer in taped.layers:
        if layer.parent is not None:
            nested[layer.parent] += use.retained_nbytes[layer.index]
    for layer, peak, retained in zip(
        taped.layers, use.peak_nbytes, use.retained_nbytes, strict=True
    ):
        inclusive = retained + nested[layer.index]
        if layer.phase == "forward":
            assert peak == inclusive
        # Gradients may be added up within a backward, in a row of their own.
        assert inclusive <= peak * layer.calls
        assert peak <= inclusive + spent[SUMS]
    grown = {part.phase: part.retained_nbytes for part in use.phases}
    if phase == "forward":
        assert grown == {"forward": total}
    else:
        forward = sum(n for of, n in spent.items() if of[2] == "forward")
        assert use.kept_for_backward_nbytes == forward
        update = sum(n for of, n in spent.items() if of[2] == "update")
        expected = {"forward": forward, "backward": total - forward - update}
        assert grown == expected | ({"update": update} if phase == "train" else {})
        assert by_phase(use)["forward"].high_nbytes == forward
