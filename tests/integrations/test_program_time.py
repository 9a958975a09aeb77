"""Accounts of a program's time are exact on a fake clock."""

import gc
import weakref

import chainer
import chainer.functions as F
import chainer.links as L
import pytest

from chainer_profile.record.budget import (
    CALLS,
    DATA,
    INTERRUPTED,
    ITERATIONS,
    REST,
    TEST_CALLS,
    WITHOUT_FUNCTIONS,
)
from tests.integrations.watching import Data, Net, Optimizer, X, in_test_mode, learn, set_up
from tests.nets import Wait, net

PROGRAMS = []

ACCOUNTS = {
    "iterations": (ITERATIONS, ""),
    "interrupted": (INTERRUPTED, ""),
    "tests": (TEST_CALLS, ""),
    "calls": (CALLS, ""),
    "plain_calls": (CALLS, WITHOUT_FUNCTIONS),
    "plain_tests": (TEST_CALLS, WITHOUT_FUNCTIONS),
    "data": (DATA, "Data"),
    "converted": (DATA, "concat_examples"),
}


def spends(trials, rest=0, **accounts):
    spent = {ACCOUNTS[name]: time_and_count for name, time_and_count in accounts.items()}
    return lambda program: PROGRAMS.append((program, trials, {**spent, (REST, ""): (rest, 0)}))


@spends(
    {"train": 2, "test": 1},
    iterations=(2 * (10 + 20 + 100 + 1000), 2),
    tests=(100, 1),
    rest=2 * 5 + 7,
)
def a_custom_loop(clock, model, optimizer):
    """The load at the end of the data begins no iteration."""
    for batch in Data(clock, repeat=False):
        clock.advance(20)  # between load and network: in the iteration
        chainer.dataset.concat_examples(batch)
        learn(model, optimizer)
        clock.advance(5)  # between iterations: code of the script
    with in_test_mode():
        model(X)


@spends({"train": 3}, iterations=(3 * 1100, 3), rest=15)
def an_update_with_its_loss_function(clock, model, optimizer):
    for _ in range(3):
        clock.advance(5)  # selecting a batch
        optimizer.update(lambda: F.sum(model(X)))


@spends(
    {"train": 3, "test": 3},
    iterations=(3 * (10 + 1100), 3),
    data=(10, 1),
    tests=(3 * 100, 3),
)
def an_evaluation_at_the_end_of_an_epoch(clock, model, optimizer):
    data, test = Data(clock), Data(clock)
    for number in range(3):
        next(data)
        learn(model, optimizer)
        if number == 1:
            next(test)
            with in_test_mode():
                for _ in range(3):
                    model(X)


@spends({"train": 4}, iterations=(4 * (300 + 30 + 2000 + 40), 4), rest=4 * 3)
def two_optimizers_in_an_iteration(clock, model, optimizer):
    other, second = set_up(clock, 200)
    for _ in range(4):
        clock.advance(3)
        F.sum(other(model(X))).backward()
        clock.advance(30)
        optimizer.update()
        clock.advance(40)
        second.update()


@spends({"train": 3}, iterations=(3 * (2 * 1100 + 1200 + 300), 3), rest=3 * 50)
def a_critic_that_is_updated_twice(clock, critic, critics):
    generator, generators = set_up(clock, 200)
    for _ in range(3):
        clock.advance(50)
        for _ in range(2):
            learn(critic, critics)
            clock.advance(100)
        clock.advance(100)
        learn(generator, generators)


@spends({"train": 3}, iterations=(3 * (10 + 1100 + 50 + 40), 3))
def a_teacher_in_test_mode(clock, model, optimizer):
    teacher, data = Net(clock, 50), Data(clock)
    for _ in range(3):
        next(data)
        loss = F.sum(model(X))
        clock.advance(40)
        with in_test_mode():
            teacher(X)
        model.cleargrads()
        loss.backward()
        optimizer.update()


@spends({"train": 2, "test": 6}, iterations=(2 * 1100, 2), tests=(6 * 100, 6), rest=6 * 30 + 2 * 7)
def acting_between_iterations(clock, model, optimizer):
    for _ in range(2):
        for _ in range(3):
            clock.advance(30)  # the environment
            with in_test_mode():
                model(X)
        clock.advance(7)
        learn(model, optimizer)


class Normaliser(chainer.Link):
    """A link without parameters or functions."""

    def __init__(self, clock):
        super().__init__()
        self.clock = clock

    def forward(self, x):
        self.clock.advance(20)
        return x


@spends(
    {"train": 2, "test": 6},
    iterations=(2 * 1100, 2),
    tests=(6 * 100, 6),
    plain_calls=(6 * 20, 6),
    converted=(0, 6),
)
def acting_after_a_normaliser_in_training_mode(clock, model, optimizer):
    normaliser = Normaliser(clock)
    for _ in range(2):
        for _ in range(3):
            x = normaliser(chainer.dataset.concat_examples([X]))
            with in_test_mode():
                model(x[0])
        learn(model, optimizer)


@spends(
    {"train": 2, "test": 6},
    iterations=(2 * 1100, 2),
    tests=(6 * 100, 6),
    plain_tests=(6 * 20, 6),
)
def acting_after_a_normaliser_in_test_mode(clock, model, optimizer):
    """Calls without functions are counted, but are no trials."""
    normaliser = Normaliser(clock)
    for _ in range(2):
        for _ in range(3):
            with in_test_mode():
                model(normaliser(X))
        learn(model, optimizer)


@spends({"train": 2}, iterations=(2 * 1100, 2), rest=1_000_000)
def plots_after_the_last_iteration(clock, model, optimizer):
    learn(model, optimizer)
    learn(model, optimizer)
    clock.advance(1_000_000)


@spends({"train": 2}, iterations=(2 * 1110, 2), interrupted=(10 + 100, 1), rest=9)
def an_iteration_that_raises(clock, model, optimizer):
    data = Data(clock)
    for number in range(3):
        next(data)
        model.fails = number == 1
        try:
            learn(model, optimizer)
        except ZeroDivisionError:
            clock.advance(9)


@spends({"train": 2, "train-2": 2, "train-3": 2}, iterations=(6 * 1100, 6))
def other_trainings_after_the_first(clock, model, optimizer):
    for number in range(3):
        learn(model, optimizer)
        learn(model, optimizer)
        reference = weakref.ref(model)
        model, optimizer = set_up(clock)
        gc.collect()
        assert (
            not number or reference() is None
        )  # the caller of this function references the first model


@spends({"train": 3}, iterations=(3 * 1100, 3))
def an_optimizer_for_each_iteration(clock, model, optimizer):
    for _ in range(3):
        optimizer = type(optimizer)(clock).setup(model)
        learn(model, optimizer)


@spends({"train": 4}, iterations=(4 * 2200, 4))
def two_optimizers_for_each_iteration(clock, model, optimizer):
    other, other_optimizer = set_up(clock)
    for _ in range(4):
        learn(model, optimizer)
        learn(other, other_optimizer)
        optimizer = type(optimizer)(clock).setup(model)
        other_optimizer = type(optimizer)(clock).setup(other)


@spends({"train": 2, "train-2": 2}, iterations=(4 * 1100, 4))
def an_optimizer_of_another_class(clock, model, optimizer):
    class Finer(type(optimizer)):
        pass

    for cls in (type(optimizer), Finer):
        optimizer = cls(clock).setup(model)
        learn(model, optimizer)
        learn(model, optimizer)


@spends({"train": 3}, iterations=(3 * 1150, 3))
def a_network_without_an_optimizer(clock, model, optimizer):
    features = Net(clock, 50)
    for _ in range(3):
        learn(lambda x: features(model(x)), optimizer, cleared=model)


@spends({"train": 2}, iterations=(2 * 1110, 2), interrupted=(10 + 4 + 100, 1), rest=6)
def an_iteration_that_is_not_ended(clock, model, optimizer):
    data = Data(clock)
    for _ in range(2):
        next(data)
        learn(model, optimizer)
    next(data)
    clock.advance(4)
    model(X)
    clock.advance(6)


@pytest.mark.parametrize(("program", "trials", "spent"), PROGRAMS)
def test_time_of_a_program_by_account(program, trials, spent, watching, clock):
    with watching.within():
        program(clock, *set_up(clock))
    assert watching.spent == spent
    assert {kind.name: kind.count for kind in watching.program.kinds} == trials
    for kind in watching.program.kinds:  # all time is in rows or between them
        assert kind.recording is None or kind.recording.trial_ns.sum() == kind.own_ns


@pytest.mark.parametrize("mode", [True, False])
@pytest.mark.parametrize("by_grad", [True, False])
def test_backwards_belong_to_calls_if_there_is_no_optimizer(mode, by_grad, watching, clock):
    """The program updates its parameters itself, or only needs gradients."""
    model = net(lambda self, x: Wait(clock, 100, 30).apply((self.l(x),))[0], l=L.Linear(3, 3))
    with watching.within(), chainer.using_config("train", mode):
        for _ in range(3):
            loss = F.sum(model(X))
            clock.advance(7)
            model.cleargrads()
            if by_grad:
                chainer.grad([loss], [model.l.W])
            else:
                loss.backward()
            clock.advance(5)
        F.sum(model(X)).backward()
        Optimizer(clock).setup(model)
    spent_ns = 3 * (100 + 7 + 30) + 130
    assert watching.spent == {(CALLS, ""): (spent_ns, 4), (REST, ""): (3 * 5, 0)}
    (kind,) = watching.program.kinds
    assert kind.recording.trial_ns.tolist() == [137, 137, 137, 130]
    rows = zip(kind.recording.layers, kind.recording.self_ns.sum(axis=0).tolist(), strict=True)
    times = {(row.function, row.phase): ns for row, ns in rows if ns}
    assert times == {("Wait", "forward"): 400, ("Wait", "backward"): 120}
