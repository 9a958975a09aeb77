"""What a trial is in a program, and to what its time belongs: exact, by a clock of its own."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest
from chainer import training
from chainer.training import extensions

from chainer_profile.integrations import watched
from chainer_profile.integrations.program import Program
from chainer_profile.integrations.watched import Watched
from chainer_profile.measure.accounts import Accounts
from chainer_profile.measure.live import LiveTrials
from chainer_profile.record.budget import (
    CALLS,
    DATA,
    EVALUATION,
    EXTENSIONS,
    ITERATIONS,
    PROFILER,
    REST,
    SNAPSHOTS,
)
from chainer_profile.record.journal import Journal
from tests import needs
from tests.conftest import FakeClock

X, T = np.ones((4, 3), np.float32), np.zeros(4, np.int32)
MS = 1_000_000


class Net(chainer.Chain):
    """A linear layer that takes 100 ns, or what is passed."""

    def __init__(self, clock: FakeClock, takes_ns: int = 100) -> None:
        super().__init__()
        self.clock, self.takes_ns = clock, takes_ns
        with self.init_scope():
            self.fc = L.Linear(3, 3)

    def forward(self, x: Any) -> Any:
        self.clock.advance(self.takes_ns)
        return self.fc(x)


class Backward(chainer.FunctionNode):
    """Gives what it gets; its backward takes 6 ns."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock

    def forward(self, inputs: Any) -> Any:
        return inputs

    def backward(self, indexes: Any, grads: Any) -> Any:
        self.clock.advance(6)
        return grads


class Optimizer(chainer.optimizers.SGD):
    """Its update takes 1,000 ns."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self.clock = clock

    def update(self, lossfun: Any = None, *args: Any, **kwargs: Any) -> None:
        super().update(lossfun, *args, **kwargs)
        self.clock.advance(1000)


class Data(chainer.iterators.SerialIterator):
    """A batch takes 10 ns; the end of the data 7."""

    def __init__(self, clock: FakeClock, **more: Any) -> None:
        super().__init__(list(zip(X, T, strict=True)), 2, **more)
        self.clock = clock

    def __next__(self) -> Any:
        self.clock.advance(7)
        batch = super().__next__()
        self.clock.advance(3)
        return batch

    next = __next__


class Watching:
    """A program that is watched by a clock that stands still; nothing is measured by layer."""

    def __init__(self, clock: FakeClock, layers: bool = False) -> None:
        self.clock = clock
        self.accounts = Accounts(clock.now_ns, clock.time_ns)
        self.problems: list[str] = []
        self.program = Program(
            self.accounts,
            lambda name: Journal(),
            warn=lambda name, problem: self.problems.append(f"{name}: {problem}"),
            layers=layers,
        )
        self.began_ns = clock.time_ns

    @contextmanager
    def within(self) -> Iterator[None]:
        with self.program:
            yield
        assert sum(one.ns for one in self.accounts.spent()) == self.clock.time_ns - self.began_ns

    @property
    def spent(self) -> dict[tuple[str, str], tuple[int, int]]:
        """Times and counts by account, the profiler's left out."""
        spent = [one for one in self.accounts.spent() if one.part != PROFILER]
        return {(one.part, one.name): (one.ns, one.count) for one in spent}


@pytest.fixture
def watching(clock: FakeClock) -> Watching:
    return Watching(clock)


def set_up(clock: FakeClock, takes_ns: int = 100) -> tuple[Net, Optimizer]:
    model = Net(clock, takes_ns)
    optimizer = Optimizer(clock)
    optimizer.setup(model)
    return model, optimizer


def learn(model: Any, *updated: Any) -> None:
    """Forward, backward and updates of one iteration."""
    loss = F.sum(model(X))
    model.cleargrads()
    loss.backward()
    for optimizer in updated:
        optimizer.update()


def test_a_loop_of_its_own(watching: Watching, clock: FakeClock) -> None:
    with watching.within():
        model, optimizer = set_up(clock)
        for batch in Data(clock, repeat=False):
            clock.advance(20)  # between the batch and the network: of the iteration
            chainer.dataset.concat_examples(batch)
            learn(model, optimizer)
            clock.advance(5)  # between iterations: the script's own
    assert watching.spent == {
        (ITERATIONS, ""): (2 * (10 + 20 + 100 + 1000), 2),
        # The end of the data began no iteration.
        (REST, ""): (2 * 5 + 7, 0),
    }
    assert [one.name for one in watching.program.watched] == ["train"]


def test_an_update_with_its_loss_function(watching: Watching, clock: FakeClock) -> None:
    with watching.within():
        model, optimizer = set_up(clock)
        for _ in range(3):
            clock.advance(5)  # choosing a batch by hand
            optimizer.update(lambda: F.sum(model(X)))
    assert watching.spent == {(ITERATIONS, ""): (3 * 1100, 3), (REST, ""): (15, 0)}


def test_an_evaluation_at_the_end_of_an_epoch(watching: Watching, clock: FakeClock) -> None:
    with watching.within():
        model, optimizer = set_up(clock)
        data = Data(clock)
        for _ in range(2):
            next(data)
            learn(model, optimizer)
        next(data)  # for the first call in test mode, or of the next epoch: the data is evaluation
        with chainer.using_config("train", False), chainer.no_backprop_mode():
            for _ in range(3):
                model(X)
        learn(model, optimizer)
    assert watching.spent == {
        (ITERATIONS, ""): (2 * (10 + 1100) + 1100, 3),
        (EVALUATION, ""): (10 + 3 * 100, 3),
        (REST, ""): (0, 0),
    }
    assert [one.name for one in watching.program.watched] == ["train", "test"]


def test_two_optimizers_in_an_iteration(watching: Watching, clock: FakeClock) -> None:
    with watching.within():
        one, first = set_up(clock)
        other, second = set_up(clock, 200)
        for _ in range(4):
            clock.advance(3)
            loss = F.sum(other(one(X)))
            loss.backward()
            clock.advance(30)
            first.update()
            clock.advance(40)
            second.update()
    # The very first update ended a trial; then it was known that another one follows.
    assert watching.spent == {
        (ITERATIONS, ""): (4 * (300 + 30 + 2000) + 3 * 40, 5),
        (REST, ""): (4 * 3 + 40, 0),
    }


def test_two_updates_by_losses_of_their_own(watching: Watching, clock: FakeClock) -> None:
    with watching.within():
        one, first = set_up(clock)
        other, second = set_up(clock, 200)
        for _ in range(4):
            learn(one, first)
            clock.advance(3)
            learn(other, second)
            clock.advance(3)
    # Each has its own forward: two trials of different kinds in each iteration.
    assert watching.spent == {
        (ITERATIONS, ""): (4 * (1100 + 1200), 8),
        (REST, ""): (4 * 6, 0),
    }


def test_another_training_behind_the_first(watching: Watching, clock: FakeClock) -> None:
    with watching.within():
        for _ in range(3):
            model, optimizer = set_up(clock)
            learn(model, optimizer)
            learn(model, optimizer)
    assert [one.name for one in watching.program.watched] == ["train", "train-2", "train-3"]
    assert [one.count for one in watching.program.watched] == [2, 2, 2]
    assert watching.spent[ITERATIONS, ""] == (6 * 1100, 6)


def test_networks_may_go_while_the_program_runs(watching: Watching, clock: FakeClock) -> None:
    with watching.within():
        model, optimizer = set_up(clock)
        learn(model, optimizer)
        gone = weakref.ref(model)
        model, optimizer = set_up(clock)
        learn(model, optimizer)
        gc.collect()
        assert gone() is None


def test_an_exception_in_an_update(watching: Watching, clock: FakeClock) -> None:
    def fails() -> Any:
        clock.advance(9)
        raise ValueError("bad")

    with watching.within():
        model, optimizer = set_up(clock)
        learn(model, optimizer)
        with pytest.raises(ValueError, match="bad"):
            optimizer.update(fails)
        learn(model, optimizer)
    assert watching.spent == {(ITERATIONS, ""): (2 * 1100, 2), (REST, ""): (9, 0)}


def test_an_iteration_that_never_ends(watching: Watching, clock: FakeClock) -> None:
    with watching.within():
        model, optimizer = set_up(clock)
        learn(model, optimizer)
        F.sum(model(X)).backward()
    assert watching.spent == {(ITERATIONS, ""): (1100, 1), (REST, ""): (100, 0)}


def test_calls_without_an_optimizer(watching: Watching, clock: FakeClock) -> None:
    with watching.within():
        model = Net(clock)
        for batch in Data(clock, repeat=False):
            x, _ = chainer.dataset.concat_examples(batch)
            model(x)
        F.sum(Backward(clock).apply((model(X),))[0]).backward()
    assert watching.spent == {
        # The end of the data was asked for, too.
        (DATA, "Data"): (2 * 10 + 7, 3),
        (DATA, "_ArbitraryCallableConverter"): (0, 2),
        (CALLS, ""): (3 * 100 + 6, 3),
        (REST, ""): (0, 0),
    }


@pytest.mark.parametrize("layers", [False, True])
def test_networks_that_no_optimizer_has(clock: FakeClock, layers: bool) -> None:
    watching = Watching(clock, layers)
    with watching.within():
        model, optimizer = set_up(clock)
        features = Net(clock, 50)
        for _ in range(3):
            loss = F.sum(features(model(X)))
            model.cleargrads()
            loss.backward()
            optimizer.update()
    if not layers:
        assert watching.spent[ITERATIONS, ""] == (3 * 1150, 3)
        return
    recording = watching.program.watched[0].recording
    assert recording is not None
    for phase in ("forward", "backward"):
        paths = {layer.path for layer in recording.layers if layer.phase == phase}
        assert {"/fc", "/Net/fc"} <= paths


def test_an_optimizer_of_chainermn_made_by_hand(watching: Watching, clock: FakeClock) -> None:
    multi = needs.module("chainermn.optimizers")
    model = Net(clock)

    class Alone:
        rank, size = 0, 1

        def bcast_data(self, model: Any) -> None:
            clock.advance(11)

        def multi_node_mean_grad(self, model: Any, zero_fill: bool = False) -> None:
            clock.advance(13)

    with watching.within():
        optimizer = multi._MultiNodeOptimizer(Optimizer(clock), Alone(), False)
        optimizer.setup(model)
        for _ in range(3):
            learn(model, optimizer)
    # In the first iteration parameters are sent, and nothing is updated.
    assert watching.spent == {(ITERATIONS, ""): (100 + 11 + 2 * (1100 + 13), 3), (REST, ""): (0, 0)}


class Extension(training.Extension):
    """Takes 17 ns at the start, 19 in each call, 23 at the end; saves for 4 of the 19."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock

    def initialize(self, trainer: Any) -> None:
        self.clock.advance(17)

    def __call__(self, trainer: Any) -> None:
        self.clock.advance(19)

    def finalize(self) -> None:
        self.clock.advance(23)


def make_trainer(clock: FakeClock, iterations: int, out: str = "result") -> Any:
    model = L.Classifier(Net(clock))
    optimizer = Optimizer(clock)
    optimizer.setup(model)
    updater = training.updaters.StandardUpdater(Data(clock), optimizer)
    return training.Trainer(updater, (iterations, "iteration"), out=out)


def test_a_trainer(watching: Watching, clock: FakeClock, tmp_path: Any) -> None:
    with watching.within():
        trainer = make_trainer(clock, 6, str(tmp_path))
        trainer.extend(Extension(clock), trigger=(2, "iteration"))
        trainer.extend(Extension(clock), name="other", trigger=(3, "iteration"))

        @training.make_extension(trigger=(6, "iteration"))
        def told(trainer: Any) -> None:
            clock.advance(31)

        trainer.extend(told)
        test = Data(clock, repeat=False)
        model = trainer.updater.get_optimizer("main").target
        trainer.extend(extensions.Evaluator(test, model), trigger=(6, "iteration"))
        trainer.extend(extensions.snapshot(filename="it"), trigger=(6, "iteration"))
        trainer.run()
    spent = watching.spent
    assert spent[ITERATIONS, ""] == (6 * (10 + 1100), 6)
    assert spent[EXTENSIONS, "Extension"] == (17 + 3 * 19 + 23, 3)
    assert spent[EXTENSIONS, "other"] == (17 + 2 * 19 + 23, 2)
    assert spent[EXTENSIONS, "told"] == (31, 1)
    assert spent[EVALUATION, "validation"] == (2 * (10 + 100) + 7, 1)
    assert spent[SNAPSHOTS, "snapshot"] == (0, 1)
    assert spent[REST, ""] == (0, 0)
    assert [(one.name, one.count) for one in watching.program.watched] == [
        ("train", 6),
        ("test", 2),
    ]


def test_all_is_left_as_it_was_found(watching: Watching, clock: FakeClock, tmp_path: Any) -> None:
    trainer = make_trainer(clock, 2, str(tmp_path))
    trainer.extend(Extension(clock))
    kinds = (Extension, Net, Optimizer, Data, training.updaters.StandardUpdater)
    before = [dict(vars(one)) for one in (*kinds, chainer.serializers, chainer.datasets)]
    with watching.within():
        trainer.run()
    assert [dict(vars(one)) for one in (*kinds, chainer.serializers, chainer.datasets)] == before
    assert "update" not in vars(trainer.updater)


def in_ending(self: Any) -> Any:
    @contextmanager
    def trial() -> Iterator[None]:
        yield
        raise IndexError("no such row")

    return trial()


def in_beginning(self: Any) -> Any:
    @contextmanager
    def trial() -> Iterator[None]:
        raise IndexError("no such row")
        yield

    return trial()


@pytest.mark.parametrize("fails", [in_beginning, in_ending])
def test_what_fails_in_measuring_ends_that_alone(
    fails: Callable[[Any], Any], clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LiveTrials, "trial", fails)
    watching = Watching(clock, layers=True)
    with watching.within():
        model, optimizer = set_up(clock)
        for _ in range(4):
            learn(model, optimizer)
    assert watching.problems == ["train: measured no further: IndexError: no such row"]
    assert watching.spent[ITERATIONS, ""] == (4 * 1100, 4)


def test_many_calls_in_test_mode(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched, "clock_of", lambda device: clock)
    watching = Watching(clock, layers=True)
    with watching.within():
        model = Net(clock)
        with chainer.using_config("train", False):
            for number in range(3000):
                clock.advance(2)
                model(X)
                if number == 1000:  # a call that raises is none
                    with pytest.raises(chainer.utils.type_check.InvalidType):
                        model(X[:, :2])
    assert watching.spent[CALLS, ""] == (3001 * 100, 3000)
    assert watching.spent[REST, ""] == (3000 * 2, 0)
    (calls,) = watching.program.watched
    recording = calls.recording
    assert recording is not None
    # The second and third one are those of the memory pass.
    assert recording.n_trials + len(recording.clean_ns) + 2 == calls.count == 3000
    assert set(recording.clean_ns.tolist()) == {100}
    # Late ones are profiled, too; that costs nothing here.
    assert recording.iteration is not None
    assert 350 < recording.n_trials < 1600
    assert recording.iteration[-1] > 2500


def test_an_iteration_that_waits_for_its_optimizers(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched, "clock_of", lambda device: clock)
    monkeypatch.setitem(sys.modules, "chainermn", ModuleType("chainermn"))
    watching = Watching(clock, layers=True)
    with watching.within():
        model, optimizer = set_up(clock)
        for _ in range(5):
            learn(model, optimizer)
    (training,) = watching.program.watched
    assert training.recording is not None
    assert training.recording.n_trials >= 1


def test_iterations_without_a_function(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched, "clock_of", lambda device: clock)
    watching = Watching(clock, layers=True)

    class Nothing(chainer.Link):
        def forward(self, x: Any) -> Any:
            return x

    class Idle(chainer.optimizers.SGD):
        def update(self, *args: Any, **kwargs: Any) -> None:
            clock.advance(1)

    with watching.within():
        model = Nothing()
        optimizer = Idle().setup(model)
        for _ in range(9):
            model(X)
            optimizer.update()
    assert watching.problems == []


@pytest.mark.parametrize(
    ("trial_ms", "ahead"),
    [
        (30, 2),  # 6 ms are paid for by 120 ms, of which 60 have passed
        (20, 3),
        (1, 60),
        (0.1, 100),  # it is asked again from time to time
        (0, 1),  # no trial has passed that was not profiled
    ],
)
def test_trials_are_profiled_again_once_their_time_has_paid(trial_ms: float, ahead: int) -> None:
    watched = Watched("trials", None, Accounts(lambda: 0, 0), print, lambda: None)
    watched.count, watched.own_ns = 2, 60 * MS
    watched._profiling_ns, watched._usual_ns = 6 * MS, int(trial_ms * MS)
    assert not watched._chooses()
    assert watched.ahead == ahead
    watched.ahead, watched.own_ns = 0, 120 * MS
    assert watched._chooses()
