"""The work of ``profile()`` grows linearly with the number of layers.

Work is the number of executed bytecode instructions, which does not depend on the machine.
"""

import sys

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest

from chainer_profile import profile
from tests.nets import net

pytestmark = pytest.mark.usefixtures("one_thread")

X = np.ones((1, 2), np.float32)
N_LAYERS = 4
#: Limit for the growth from 2 N to 4 N layers, divided by the growth from N to 2 N layers. This
#: ratio is 2 if work grows linearly, and 4 if it grows quadratically.
MAX_GROWTH_RATIO = 2.03


def count_instructions(call):
    """Return the number of bytecode instructions that a call executes."""
    executed = 0

    def trace(frame, event, _):
        nonlocal executed
        if event == "opcode":
            executed += 1
        elif event == "call":
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return executed


def chain(n_layers):
    return chainer.Sequential(*(L.Linear(2, 2) for _ in range(n_layers)))


def lazy_chain(n_layers):
    """Return a chain of layers that create their parameters in the first call."""
    return chainer.Sequential(*(L.Linear(None, 2) for _ in range(n_layers)))


def links_outside_network(n_layers):
    """Return a network that calls links which are not its children."""
    links = [L.Linear(2, 2) for _ in range(n_layers)]

    def forward(self, x):
        for link in links:
            x = link(x)
        return self.last(x)

    return net(forward, last=L.Linear(2, 2))


def functions_without_links(n_layers):
    """Return a network that calls functions with the parameters of its children."""

    def forward(self, x):
        for child in self.children():
            x = F.linear(x, child.W, child.b)
        return x

    return net(forward, **{f"fc{n}": L.Linear(2, 2) for n in range(n_layers)})


CASES = [
    ("forward", chain),
    ("train", chain),
    *(
        pytest.param("train", make, marks=pytest.mark.slow)
        for make in (lazy_chain, links_outside_network, functions_without_links)
    ),
]


@pytest.mark.parametrize(("phase", "make"), CASES)
def test_work_grows_linearly_with_the_number_of_layers(phase, make):
    def work(n_layers):
        model = make(n_layers)
        return count_instructions(
            lambda: profile(
                model, X, trials=1, warmups=0, clean_trials=0, phase=phase, counters=False
            )
        )

    work(N_LAYERS)  # fills caches, and imports modules
    small, middle, large = (work(factor * N_LAYERS) for factor in (1, 2, 4))
    assert (large - middle) / (middle - small) < MAX_GROWTH_RATIO
