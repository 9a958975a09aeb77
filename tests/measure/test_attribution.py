"""Rows of nested calls, such as a backward that recomputes blocks of the network."""

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest

from chainer_profile import profiling, summarise
from chainer_profile.measure import runner
from chainer_profile.measure.steps import make_step
from chainer_profile.record.recording import Settings
from tests.nets import Outer, Wait, net

X = np.ones((2, 3), np.float32)
FORGET_LINKS = {"/": 17, "/b1": 9, "/b2": 8}


def block(clock, forward_ns, backward_ns):
    def forward(self, x):
        return Wait(clock, forward_ns, backward_ns).apply((self.l(x),))[0]

    return net(forward, l=L.Linear(3, 3))


def checkpointed(clock):
    """Make a network of two blocks that backward recomputes.

    Forward and backward take 4 and 1 ns in b1, 1 and 6 ns in b2.
    """
    blocks = {"b1": block(clock, 4, 1), "b2": block(clock, 1, 6)}
    return net(lambda self, x: F.sum(F.forget(self.b2, F.forget(self.b1, x))), **blocks)


def run(model, clock, by_link=False):
    step = make_step("train", model, (chainer.Variable(X),), loss="output")
    plan = Settings(trials=3, clean_trials=1, warmups=1, phase="train")
    passes = {"memory": False, "by_link": by_link, "choose_threads": False}
    return runner.run(step, plan, clock=clock, **passes)


def rows_with_time(recording):
    """Path, phase and time of the rows that take time, in row order."""
    times = zip(recording.layers, recording.self_ns[-1].tolist(), strict=True)
    return [(row.path, row.phase, ns) for row, ns in times if ns]


def inclusive_ns(recording):
    seconds = summarise(recording).links["inclusive_s"]
    return {path: round(value * 1e9) for path, value in seconds.items()}


def test_recomputed_blocks_have_rows_by_call(clock):
    recording = run(checkpointed(clock), clock)
    assert not recording.by_link
    assert rows_with_time(recording) == [
        ("/b1", "forward", 4),
        ("/b2", "forward", 1),
        ("/b2", "backward", 1),  # recomputed
        ("/b2", "backward", 6),
        ("/b1", "backward", 4),  # recomputed
        ("/b1", "backward", 1),
    ]
    assert recording.trial_ns.tolist() == [17] * 3
    assert recording.framework_ns.sum() == 0
    assert inclusive_ns(recording).items() >= FORGET_LINKS.items()
    # In the forward pass the blocks are called within F.forget.
    names = [row.function for row in recording.layers]
    parents = [None if row.parent is None else names[row.parent] for row in recording.layers]
    forward = [row.phase == "forward" for row in recording.layers].index(False)
    assert parents[:forward] == [None, "Forget", "Forget"] * 2 + [None]
    assert set(parents[forward:]) == {None}


def test_recomputed_blocks_have_rows_by_link(clock):
    recording = run(checkpointed(clock), clock, by_link=True)
    assert rows_with_time(recording) == [
        ("/b1", "forward", 4),
        ("/b2", "forward", 1),
        ("/b2", "backward", 1 + 6),
        ("/b1", "backward", 4 + 1),
    ]
    calls = {(row.path, row.function, row.phase): row.calls for row in recording.layers}
    assert calls["/b1", "Wait", "backward"] == calls["/b2/l", "LinearFunction", "backward"] == 2
    assert recording.trial_ns.tolist() == [17] * 3
    assert inclusive_ns(recording).items() >= FORGET_LINKS.items()
    assert {link.path: link.calls for link in recording.links if link.path.count("/") == 1} == {
        "/": 1,
        "/b1": 2,
        "/b2": 2,
    }


def test_custom_loop_has_the_same_rows(clock):
    model, rows = checkpointed(clock), profiling(clock=clock)
    for _ in range(2):
        with rows:
            model(chainer.Variable(X)).backward()
    recording = rows.recording()
    times = {(path, phase): ns for path, phase, ns in rows_with_time(recording)}
    assert times == {
        ("/model/b1", "forward"): 4,
        ("/model/b2", "forward"): 1,
        ("/model/b2", "backward"): 7,
        ("/model/b1", "backward"): 5,
    }
    assert recording.self_ns.sum(axis=1).tolist() == recording.trial_ns.tolist() == [17] * 2


def test_nested_checkpoints_count_each_recomputation(clock):
    """The inner block runs in the forward pass, and twice in the backward."""
    inner, outer = block(clock, 4, 1), block(clock, 100, 1000)
    model = net(
        lambda self, x: F.sum(F.forget(lambda x: self.outer(F.forget(self.inner, x)), x)),
        inner=inner,
        outer=outer,
    )
    recording = run(model, clock, by_link=True)
    assert {(path, phase): ns for path, phase, ns in rows_with_time(recording)} == {
        ("/inner", "forward"): 4,
        ("/outer", "forward"): 100,
        ("/outer", "backward"): 100 + 1000,
        ("/inner", "backward"): 4 + 4 + 1,
    }
    assert recording.trial_ns.tolist() == [1213] * 3


@pytest.mark.parametrize("by_link", [False, True])
def test_functions_called_in_a_backward_count_in_its_time(clock, by_link):
    """They are no calls of the network unless backward goes through them."""

    class Calls(Wait):
        def backward(self, indexes, grads):
            return Outer(clock, 5).apply(grads)

    model = net(lambda self, x: F.sum(Calls(clock, 3).apply((self.l(x),))[0]), l=L.Linear(3, 3))
    recording = run(model, clock, by_link)
    assert rows_with_time(recording) == [("/", "forward", 3), ("/", "backward", 5 + 30 + 5)]
    assert [row.parent for row in recording.layers] == [None] * len(recording.layers)


def test_nested_call_has_a_row_with_its_parent(clock):
    model = net(lambda self, x: Outer(clock, 10).apply((x,))[0])
    recording = run(net(lambda self, x: F.sum(self.inner(x)), inner=model, l=L.Linear(1, 1)), clock)
    assert rows_with_time(recording) == [("/inner", "forward", 20), ("/inner", "forward", 30)]
    assert [row.parent for row in recording.layers][:2] == [None, 0]
