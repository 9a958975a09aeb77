"""The memory pass of any network: all bytes are found, and each once."""

import gc
import tracemalloc
from collections import Counter

import chainer
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.measure.memory import HostCounter, memory_use
from chainer_profile.measure.taped_step import learned
from tests.ledger.drawn import EXAMPLES, SUMS, build, by_call, programs, slow_chainer, step_of
from tests.measure.test_memory import Script, by_phase, measure_memory, trace_memory


class OfLedger:
    """Counts a ledger's nanoseconds as if they were bytes."""

    def __init__(self, clock):
        self.clock = clock

    def counting(self):
        return chainer.using_config("debug", False)

    def read(self):
        return self.clock.time_ns, self.clock.time_ns


def reads(trace):
    """What was read, and the most since the read before."""
    return trace.values[: trace.count].T.tolist()


def peaks(trace, owned):
    """Peak of every row, by looking at each of its windows from its begin to its end."""
    values, highest = reads(trace)
    found, codes = [0] * len(owned.layers), trace.codes.tolist()
    owners = owned.owners.tolist()
    for begin in range(1, len(values) - 1):
        depth, end = 1, begin
        while codes[begin] >= 0 and depth:
            end += 1
            depth += 1 if codes[end] >= 0 else -1
        row = owners[begin]
        # Within a window of its own a row has no other.
        if end > begin and row < len(found) and owners[begin - 1] != row:
            high = max(highest[begin + 1 : end + 1]) - values[begin]
            found[row] = max(found[row], high)
    return tuple(found)


def phases(trace, owned):
    """What every phase allocates, one moment at a time, and the same outside of all; and what is
    retained outside of all rows.
    """
    values, highest = reads(trace)
    n_rows = len(owned.layers)
    names = [layer.phase for layer in owned.layers] + list(owned.phases)
    highs, grown, framework = {}, {}, 0
    for moment, owner in enumerate(owned.owners.tolist()[:-1]):
        name = names[owner] if owner >= 0 else "outside"
        if not owned.phases:
            name = "forward"
        grew = values[moment + 1] - values[moment]
        framework += 0 if 0 <= owner < n_rows else grew
        high = highest[moment + 1] - values[0]
        highs[name] = max(highs.get(name, high), high)
        grown[name] = grown.get(name, 0) + grew
    return highs, grown, framework


@pytest.fixture(scope="module", autouse=True)
def no_collection():
    """Collecting garbage takes longest in a process of many tests, and changes no sum."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gc, "collect", lambda: 0)
        yield


ALIKE = programs(branches=False)
PHASES = st.sampled_from(["forward", "forward-backward", "train"])


@EXAMPLES
@given(program=ALIKE, phase=PHASES, seed=st.integers(0, 2**32 - 1))
def test_all_that_is_retained_is_what_the_trial_grew_by(program, phase, seed):
    model, ledger = build(program)
    step = step_of(phase, model, ledger)
    with step.configured():
        learned(step)
        taped = learned(step)
        n = len(taped.order.codes)
        rng = np.random.default_rng(seed)
        values = rng.integers(-(2**40), 2**40, n).tolist()
        script = Script(values, rng.integers(0, 2**42, n).tolist())
        for counter in (script, HostCounter()):
            trace = trace_memory(step, taped, counter)
            owned = taped.tape.rows.owned(trace.codes)
            use = memory_use(trace, owned, parameter_nbytes=0, input_nbytes=0)
            values, highest = reads(trace)
            grown = values[-1] - values[0]
            assert use.high_water_nbytes == max(highest[1:]) - values[0]
            assert use.peak_nbytes == peaks(trace, owned)
            highs, retained, framework = phases(trace, owned)
            assert sum(use.retained_nbytes) + framework == grown
            assert max(highs.values()) == use.high_water_nbytes
            assert sum(retained.values()) == grown
            assert list(dict.fromkeys(layer.phase for layer in taped.layers)) == [
                part.phase for part in use.phases
            ]
            for part in use.phases:
                assert part.high_nbytes == highs.pop(part.phase)
                assert part.retained_nbytes == retained.pop(part.phase)
            assert set(highs) == (set() if phase == "forward" else {"outside"})
        assert script.at == n
        assert not tracemalloc.is_tracing()


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
    _, found = by_call(taped.layers, use.retained_nbytes)
    assert +found == Counter({of: n for of, n in spent.items() if of[1]})
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
        known = {"forward": forward, "backward": total - forward - update}
        assert grown == known | ({"update": update} if phase == "train" else {})
        assert by_phase(use)["forward"].high_nbytes == forward
