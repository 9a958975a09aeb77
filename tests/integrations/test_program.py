"""Trials of a program, and the account of its time: exact, by a fake clock."""

import functools
import gc
import io
import sys
import weakref
from contextlib import contextmanager

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest
from chainer import training
from chainer.training import extensions

from chainer_profile.integrations import watched
from chainer_profile.integrations.program import Program
from chainer_profile.measure.accounts import Accounts
from chainer_profile.measure.live import LiveTrials
from chainer_profile.record.budget import (
    CALLS,
    EVALUATION,
    EXTENSIONS,
    ITERATIONS,
    LOADING,
    NETWORK,
    OTHER,
    PROFILER,
    REST,
    SNAPSHOTS,
    Spent,
)
from chainer_profile.record.budget import Extension as Described
from chainer_profile.record.journal import Journal
from tests.command import raising
from tests.nets import net

X, T = np.ones((4, 3), np.float32), np.zeros(4, np.int32)
concat = chainer.dataset.concat_examples
MS = 1_000_000


class Net(chainer.Chain):
    """A linear layer that takes 100 ns, or ``takes_ns``."""

    def __init__(self, clock, takes_ns=100):
        super().__init__()
        self.clock, self.takes_ns = clock, takes_ns
        with self.init_scope():
            self.fc = L.Linear(3, 3)

    def forward(self, x):
        self.clock.advance(self.takes_ns)
        return self.fc(x)


class Optimizer(chainer.optimizers.SGD):
    """Its update takes 1,000 ns."""

    def __init__(self, clock):
        super().__init__()
        self.clock = clock

    def update(self, lossfun=None, *args, **kwargs):
        super().update(lossfun, *args, **kwargs)
        self.clock.advance(1000)


class Data(chainer.iterators.SerialIterator):
    """A batch takes 10 ns; the end of the data 7."""

    def __init__(self, clock, **more):
        super().__init__(list(zip(X, T, strict=True)), 2, **more)
        self.clock = clock

    def __next__(self):
        self.clock.advance(7)
        batch = super().__next__()
        self.clock.advance(3)
        return batch

    next = __next__


class Watching:
    """A program that is watched by a clock that stands still."""

    def __init__(self, clock, layers=False):
        self.clock, self.began_ns, self.problems = clock, clock.time_ns, []
        self.accounts = Accounts(clock.now_ns, clock.time_ns)
        self.program = Program(
            self.accounts,
            lambda name: Journal(),
            warn=lambda name, problem: self.problems.append(f"{name}: {problem}"),
            layers=layers,
        )

    @contextmanager
    def within(self):
        with self.program:
            yield
        assert sum(part.ns for part in self.accounts.spent()) == self.clock.time_ns - self.began_ns

    @property
    def spent(self):
        """Times and counts by account, the profiler's left out."""
        spent = [part for part in self.accounts.spent() if part.part != PROFILER]
        return {(part.part, part.name): (part.ns, part.count) for part in spent}


@pytest.fixture
def watching(clock):
    return Watching(clock)


@pytest.fixture
def measuring(clock, monkeypatch):
    """The same, and measured by layer, which takes no time here."""
    monkeypatch.setattr(watched, "clock_of", lambda device: clock)
    # Where another test has loaded it, the first iteration is not timed.
    monkeypatch.delitem(sys.modules, "chainermn", raising=False)
    return Watching(clock, layers=True)


def set_up(clock, takes_ns=100):
    model = Net(clock, takes_ns)
    optimizer = Optimizer(clock)
    optimizer.setup(model)
    return model, optimizer


def learn(model, optimizer, cleared=None):
    """Forward, backward and update of one iteration."""
    loss = F.sum(model(X))
    (cleared or model).cleargrads()
    loss.backward()
    optimizer.update()


#: Programs, the time of each by account, and its trials with their number.
PROGRAMS = {}


def spends(watched, rest=0, **accounts):
    spent = {(PARTS[name], ""): time_and_count for name, time_and_count in accounts.items()}
    spent[REST, ""] = (rest, 0)
    return lambda program: PROGRAMS.setdefault(program.__name__, (program, watched, spent))


PARTS = {"iterations": ITERATIONS, "evaluation": EVALUATION}


@spends({"train": 2}, iterations=(2 * (10 + 20 + 100 + 1000), 2), rest=2 * 5 + 7)
def a_loop_of_its_own(clock, model, optimizer):
    """The end of the data begins no iteration."""
    for batch in Data(clock, repeat=False):
        clock.advance(20)  # between the batch and the network: of the iteration
        concat(batch)
        learn(model, optimizer)
        clock.advance(5)  # between iterations: the script's own


@spends({"train": 3}, iterations=(3 * 1100, 3), rest=15)
def an_update_with_its_loss_function(clock, model, optimizer):
    for _ in range(3):
        clock.advance(5)  # choosing a batch by hand
        optimizer.update(lambda: F.sum(model(X)))


@spends(
    {"train": 3, "test": 3},
    iterations=(2 * (10 + 1100) + 1100, 3),
    evaluation=(10 + 3 * 100, 3),
)
def an_evaluation_at_the_end_of_an_epoch(clock, model, optimizer):
    data = Data(clock)
    for _ in range(2):
        next(data)
        learn(model, optimizer)
    next(data)  # for the first call in test mode, or of the next epoch: the data is evaluation
    with chainer.using_config("train", False), chainer.no_backprop_mode():
        for _ in range(3):
            model(X)
    learn(model, optimizer)


@spends({"train": 5}, iterations=(4 * (300 + 30 + 2000) + 3 * 40, 5), rest=4 * 3 + 40)
def two_optimizers_in_an_iteration(clock, model, optimizer):
    """The very first update ends a trial; from then on another update is expected."""
    other, second = set_up(clock, 200)
    for _ in range(4):
        clock.advance(3)
        F.sum(other(model(X))).backward()
        clock.advance(30)
        optimizer.update()
        clock.advance(40)
        second.update()


@spends({"train": 2, "train-2": 2, "train-3": 2}, iterations=(6 * 1100, 6))
def other_trainings_behind_the_first(clock, model, optimizer):
    for number in range(3):
        learn(model, optimizer)
        learn(model, optimizer)
        gone = weakref.ref(model)
        model, optimizer = set_up(clock)
        gc.collect()
        assert not number or gone() is None  # who calls this one holds the first


@spends({"train": 3}, iterations=(3 * 1150, 3))
def a_network_that_no_optimizer_has(clock, model, optimizer):
    features = Net(clock, 50)
    for _ in range(3):
        learn(lambda x: features(model(x)), optimizer, cleared=model)


@pytest.mark.parametrize("name", PROGRAMS)
def test_time_of_a_program_by_account(name, watching, clock):
    program, trials, spent = PROGRAMS[name]
    with watching.within():
        program(clock, *set_up(clock))
    assert watching.spent == spent
    assert {watched.name: watched.count for watched in watching.program.watched} == trials


def test_trials_belong_to_the_part_that_calls_the_network(watching, clock):
    accounts, program = watching.accounts, watching.program
    with watching.within(), chainer.using_config("train", False):
        model = Net(clock)
        for _ in range(2):
            for part, name in ((EXTENSIONS, "Bleu"), (EVALUATION, "validation"), (EXTENSIONS, "b")):
                with accounts.within(part, name):
                    model(X)
            model(X)
    kinds = {"test": (EXTENSIONS, "Bleu"), "test-2": (EVALUATION, "validation")}
    kinds |= {"test-3": (EXTENSIONS, "b"), "test-4": (CALLS, "")}
    assert {trials.name: trials.spent for trials in program.watched} == kinds
    assert {trials.name: trials.own_ns for trials in program.watched} == dict.fromkeys(kinds, 200)


def test_the_time_of_networks_that_are_not_measured(measuring, clock):
    with measuring.within(), chainer.using_config("train", False):
        with measuring.accounts.within(EXTENSIONS, "Bleu"):
            for number in range(10):
                model = type(f"Net{number}", (Net,), {})(clock)
                for _ in range(3):
                    model(X)
        program = measuring.program
        assert program.unmeasured() == (Spent(EXTENSIONS, "Bleu", 2 * 300, 2 * 3),)
    assert program.unmeasured() == (Spent(EXTENSIONS, "Bleu", 2 * 300, 2 * 3),)
    assert len(program.recordings()) == 8


def test_the_kind_of_code_that_runs(watching, clock):
    runs, program = [], watching.program

    def note():
        runs.append(program.what_runs())

    class Loads(Data):
        def __next__(self):
            note()
            return super().__next__()

    def noting():
        return net(lambda self, x: (note(), self.fc(x))[1], fc=L.Linear(3, 3))

    model, optimizer = set_up(clock)
    with watching.within():
        note()
        next(Loads(clock))
        with chainer.no_backprop_mode():
            for _ in range(2):  # the second call has a trial
                noting()(X)
        optimizer.update(lambda: (note(), F.sum(model(X)))[1])
        note()
    assert runs == [OTHER, LOADING, NETWORK, NETWORK, NETWORK, OTHER]


class Extension(training.Extension):
    """Takes 17 ns at the start, 19 in each call, 23 at the end; saves for 4 of the 19."""

    def __init__(self, clock):
        self.clock = clock

    def initialize(self, trainer):
        self.clock.advance(17)

    def __call__(self, trainer):
        self.clock.advance(19)

    def finalize(self):
        self.clock.advance(23)


def test_a_trainer(watching, clock, tmp_path):
    model, optimizer = Net(clock), Optimizer(clock)
    optimizer.setup(L.Classifier(model))
    updater = training.updaters.StandardUpdater(Data(clock), optimizer)
    trainer = training.Trainer(updater, (6, "iteration"), out=str(tmp_path))
    trainer.extend(Extension(clock), trigger=(2, "iteration"))
    trainer.extend(Extension(clock), name="other", trigger=(3, "iteration"))

    @training.make_extension()
    def noted(trainer):
        clock.advance(31)

    evaluator = extensions.Evaluator(Data(clock, repeat=False), optimizer.target)
    for extension in (noted, evaluator, extensions.snapshot(filename="it")):
        trainer.extend(extension, trigger=(6, "iteration"))
    kinds = (Extension, Net, Optimizer, Data, type(updater), chainer.serializers, chainer.datasets)
    before = [dict(vars(kind)) for kind in kinds]
    with watching.within():
        trainer.run()
    spent = watching.spent
    assert spent[ITERATIONS, ""] == (6 * (10 + 1100), 6)
    assert spent[EXTENSIONS, "Extension"] == (17 + 3 * 19 + 23, 3)
    assert spent[EXTENSIONS, "other"] == (17 + 2 * 19 + 23, 2)
    assert spent[EXTENSIONS, "noted"] == (31, 1)
    assert spent[EVALUATION, "validation"] == (2 * (10 + 100) + 7, 1)
    assert spent[SNAPSHOTS, "snapshot"] == (0, 1)
    assert spent[REST, ""] == (0, 0)
    counts = [(kind.name, kind.count) for kind in watching.program.watched]
    assert counts == [("train", 6), ("test", 2)]
    # Everything is left as it was.
    assert [dict(vars(kind)) for kind in kinds] == before
    assert "update" not in vars(updater)


def test_how_often_the_extensions_of_a_trainer_work(watching, clock, tmp_path):
    def compressing(**asked):
        return functools.partial(chainer.serializers.save_npz, **asked)

    optimizer = Optimizer(clock)
    optimizer.setup(L.Classifier(Net(clock)))
    updater = training.updaters.StandardUpdater(Data(clock), optimizer)
    trainer = training.Trainer(updater, (12, "iteration"), out=str(tmp_path))
    of_writer = extensions.snapshot_writers.SimpleWriter(compressing(compression=False))
    for extension in (
        extensions.LogReport(trigger=(2, "epoch")),
        extensions.ProgressBar(update_interval=5, out=io.StringIO()),
        extensions.Evaluator(Data(clock, repeat=False), optimizer.target),
        extensions.snapshot(filename="a"),
        extensions.snapshot(filename="b", writer=of_writer),
        extensions.snapshot(savefun=compressing(compression=True), filename="c"),
    ):
        trainer.extend(extension)
    trainer.extend(lambda trainer: None, name="now and then", trigger=lambda trainer: False)
    with watching.within():
        trainer.run()
    assert watching.program.extensions == tuple(
        Described(*each)
        for each in (
            ("LogReport", "extensions.LogReport", 2, "epoch", 3, "trigger"),
            ("ProgressBar", "extensions.ProgressBar", 1, "iteration", 12),
            ("validation", "extensions.Evaluator", 1, "epoch", 6),
            ("snapshot", "extensions.snapshot", 1, "epoch", 6, "", True),
            ("snapshot_1", "extensions.snapshot", 1, "epoch", 6, "", False),
            ("snapshot_2", "extensions.snapshot", 1, "epoch", 6, "", True),
            ("now and then", "now and then", 0, "", 0),
        )
    )


def test_iterations_have_their_numbers_where_others_turn_out_to_be_none(clock, measuring):
    with measuring.within():
        model, optimizer = set_up(clock)
        data = Data(clock)
        for _ in range(6):
            next(data)
            learn(model, optimizer)
            next(data)
            with chainer.using_config("train", False), chainer.no_backprop_mode():
                model(X)
    assert measuring.program.watched[0].recording.iteration.tolist() == [*range(1, 7)]


@pytest.mark.parametrize("where", ["begin", "finish"])
def test_a_failure_in_measuring_ends_only_the_measuring(where, clock, monkeypatch):
    monkeypatch.setattr(LiveTrials, where, raising(IndexError("no such row")))
    watching = Watching(clock, layers=True)
    with watching.within():
        model, optimizer = set_up(clock)
        for _ in range(4):
            learn(model, optimizer)
    assert watching.problems == ["train: measuring stopped: IndexError: no such row"]
    assert watching.spent[ITERATIONS, ""] == (4 * 1100, 4)


@pytest.mark.parametrize(
    ("takes_ns", "taped"),
    [(40 * MS, [1, *range(4, 31)]), (100 * MS, [*range(1, 21), *range(23, 31)])],
)
def test_memory_is_counted_in_long_trials_where_others_take_ten_times_as_long(
    takes_ns, taped, clock, measuring
):
    """Of a program with three long iterations, the two without rows would be most of the time."""
    with measuring.within(), chainer.using_config("train", False):
        model = Net(clock, takes_ns)
        for _ in range(30):
            model(X)
    (calls,) = measuring.program.watched
    assert calls.recording.iteration.tolist() == taped
    assert calls.recording.memory is not None


def test_every_iteration_of_a_trainer_with_two_optimizers_is_measured(clock, measuring):
    """Its updater says where an iteration ends: the first two of three were in no row."""

    class Updater(training.updaters.StandardUpdater):
        def update_core(self):
            for optimizer in self.get_all_optimizers().values():
                learn(optimizer.target, optimizer)

    optimizers = {}
    for name in ("main", "dis"):
        optimizers[name] = Optimizer(clock)
        optimizers[name].setup(Net(clock, 200 * MS))
    trainer = training.Trainer(Updater(Data(clock), optimizers), (3, "iteration"))
    with measuring.within():
        trainer.run()
    assert measuring.program.watched[0].recording.iteration.tolist() == [1, 2, 3]
