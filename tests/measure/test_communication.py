"""The phase of communication: a row for each collective of ChainerMN's optimizers."""

import copy

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest
from chainermn import create_multi_node_optimizer

from chainer_profile.basics.replacements import Replacements
from chainer_profile.costs.work import ArraySpec
from chainer_profile.measure.taped_step import TapedStep
from chainer_profile.measure.windows import Mark, time_optimizer
from tests.measure.ranked import MS, Made, Packed, WithNccl
from tests.nets import net

X = np.ones((2, 3), np.float32)


def network():
    """Two layers; two more are not used, of which one has no array yet."""
    links = {"a": L.Linear(3, 4, nobias=True), "b": L.Linear(4, 2)}
    links |= {"aa": L.Linear(2, 2, nobias=True), "lazy": L.Linear(None, 2, nobias=True)}
    return net(lambda self, x: F.sum(self.b(self.a(x))), **links)


class Step:
    """An update by ChainerMN's optimizer, as what a trial runs."""

    inputs = ()

    def __init__(self, communicator, **options):
        self.communicator, self.model = communicator, network()
        inner = chainer.optimizers.SGD()
        self.optimizer = create_multi_node_optimizer(inner, communicator, **options)
        self.optimizer.setup(self.model)
        self.roots = [("", self.model)]
        self.prefix = ""

    def __call__(self):
        self.optimizer.update(self.model, X)

    def timed(self, enter, leave):
        replacements = Replacements()
        time_optimizer(replacements, self.optimizer, enter, leave, self.prefix)
        return replacements

    def windows(self):
        """What an update enters within its communication."""
        entered = []
        with self.timed(entered.append, lambda: entered.append("leave")):
            self()
        begin = entered.index(Mark("communication"))
        inside = entered[begin + 1 :]
        return [mark for mark in inside if mark != "leave" and mark.phase == "communication"]


def spec(*shape, dtype="float32"):
    return ArraySpec(shape, dtype)


def rows(function, *, unused):
    moved = {"/a/W": spec(4, 3), "/aa/W": spec(2, 2), "/b/W": spec(2, 4), "/b/b": spec(2)}
    if not unused:
        del moved["/aa/W"]
    return [Mark("communication", path, function, buffer) for path, buffer in moved.items()]


@pytest.mark.parametrize("zero_fill", [False, True])
def test_a_row_for_each_parameter(clock, zero_fill):
    step = Step(Made(clock), zero_fill=zero_fill)
    assert step.windows() == rows("Bcast", unused=True)
    # A parameter without a gradient is not moved.
    assert step.windows() == rows("Allreduce", unused=zero_fill)


class Cast(Made):
    """Each is cast, and is that of its parameter."""

    def multi_node_mean_grad(self, model, zero_fill=False):
        for param in (model.a.W, model.b.W):
            self.mpi_comm.Allreduce("in place", param.array.astype("d"))


class Odd(Made):
    """What has no buffer is a row all the same."""

    def multi_node_mean_grad(self, model, zero_fill=False):
        self.mpi_comm.Allreduce("one argument", received=None)


def test_buffers_of_other_kinds(clock):
    for kind, moved in (
        (Cast, {"/a/W": spec(4, 3, dtype="float64"), "/b/W": spec(2, 4, dtype="float64")}),
        (Packed, {"/": spec(12 + 8 + 2 + 4)}),  # a bucket is one row
        (WithNccl, {"/": spec(5, dtype="float16")}),  # which tells a number and a type
        (Odd, {"/": None}),
    ):
        step = Step(kind(clock))
        step()
        found = step.windows()
        assert {mark.path: mark.moved for mark in found} == moved
        assert {mark.function for mark in found} == {"Allreduce"}


def test_optimizers_that_share_a_communicator(clock):
    communicator = Made(clock)
    first, second = Step(communicator), Step(communicator)
    first()
    second()
    second.prefix = "/second"
    entered = []
    with first.timed(entered.append, lambda: None), second.timed(entered.append, lambda: None):
        second()
    marks = [mark for mark in entered if mark.phase == "communication"]
    assert marks[0] == Mark("communication")
    assert [mark.path for mark in marks[1:]] == [
        *("/second/a/W", "/second/aa/W", "/second/b/W", "/second/b/b")
    ]


class Buffering:
    """Twice: its gradients are those of a copy of the network, and go beside an iteration."""

    def __init__(self, inner, communicator):
        vars(self).update(actual_optimizer=inner, communicator=communicator)
        vars(self)["communicated_target"] = copy.deepcopy(inner.target)

    def update(self, lossfun, *args):
        model = vars(self)["communicated_target"]
        self.communicator._multi_node_mean_grad_async(model, True, None)

    def __getattr__(self, name):
        return getattr(self.actual_optimizer, name)


def test_one_that_buffers_twice(clock):
    step = Step(WithNccl(clock))
    step.optimizer = Buffering(step.optimizer.actual_optimizer, step.communicator)
    assert [mark.function for mark in step.windows()] == ["Allreduce"]


@pytest.mark.parametrize("kind", [Made, Packed, WithNccl])
@pytest.mark.parametrize("fails", [False, True])
def test_all_is_left_as_it_was_found(kind, fails, clock):
    step = Step(kind(clock))
    step()
    step()
    objects = step.communicator, step.optimizer, step.optimizer.actual_optimizer, step.model
    # Methods and communicators, which others took the place of; an update changes all else.
    names = ("update", "call_hook", "cleargrads", "bcast_data", "multi_node_mean_grad")
    channels = dict(vars(step.communicator))
    if fails:
        channel = channels.get("nccl_comm", channels["mpi_comm"])
        channel.allReduce = channel.Allreduce = lambda *_: 1 / 0
        with step.timed(lambda mark: None, lambda: None), pytest.raises(ZeroDivisionError):
            step()
    else:
        step.windows()
    assert not any(name in vars(one) for one in objects for name in names)
    assert vars(step.communicator) == channels


def timed(communicator, clock):
    """A trial of a step that was made before, and its rows."""
    step = Step(communicator)
    step()
    taped = TapedStep(step, clock.now_ns)
    taped.learn()
    communicator.mpi_comm.calls.clear()
    with taped.recording():
        taped.tape.start()
        step()
        trial = taped.tape.end()
    assert trial.order is taped.order
    return trial, taped


def test_times_of_an_update_add_up_and_stamps_are_those_of_the_clock(clock):
    trial, taped = timed(Made(clock), clock)
    moves = [layer for layer in taped.layers if layer.phase == "communication"]
    assert [(layer.path, layer.input_shapes, layer.input_nbytes) for layer in moves] == [
        *(("/a/W", ((4, 3),), 48), ("/aa/W", ((2, 2),), 16)),
        *(("/b/W", ((2, 4),), 32), ("/b/b", ((2,),), 8)),
    ]
    own = [int(trial.rows_ns[layer.index]) for layer in moves]
    assert own == [1 * MS, 3 * MS, 5 * MS, 7 * MS]
    framework = dict(zip(taped.phases, trial.phases_ns.tolist(), strict=True))
    assert framework["communication"] == 4 * 7
    assert trial.rows_ns.sum() + trial.phases_ns.sum() == trial.wall_ns == 16 * MS + 28
    arrived = (trial.arrived_ns - trial.start_ns).tolist()
    assert arrived == [7, MS + 14, 4 * MS + 21, 9 * MS + 28]
    assert (trial.left_ns - trial.arrived_ns).tolist() == own


class Twice(Made):
    def multi_node_mean_grad(self, model, zero_fill=False):
        for _ in range(2):
            self.mpi_comm.Allreduce("in place", np.zeros(99, np.float32))
            self.mpi_comm.clock.advance(5)


def test_several_calls_of_one_row_are_from_the_first_to_the_last(clock):
    trial, taped = timed(Twice(clock), clock)
    [row] = [layer for layer in taped.layers if layer.phase == "communication"]
    assert (row.calls, row.path, row.input_nbytes) == (2, "/", 396)
    assert trial.arrived_ns.tolist() == [trial.start_ns]
    assert trial.left_ns.tolist() == [trial.start_ns + 4 * MS + 5]
    assert trial.rows_ns[row.index] == 4 * MS
