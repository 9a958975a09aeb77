"""What a trial is in a program, and to what its time belongs: exact, by a clock of its own."""

import functools
import gc
import io
import sys
import weakref
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace

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
from chainer_profile.measure.live import COUNTING, TAPING, LiveTrials
from chainer_profile.record.budget import (
    CALLS,
    DATA,
    EVALUATION,
    EXTENSIONS,
    ITERATIONS,
    LOADING,
    NETWORK,
    OTHER,
    PROFILER,
    REST,
    SAVE_NPZ,
    SAVE_NPZ_PLAIN,
    SNAPSHOTS,
    Spent,
)
from chainer_profile.record.budget import Extension as Described
from chainer_profile.record.journal import Journal, Trial
from tests import needs
from tests.command import raising
from tests.nets import Wait

X, T = np.ones((4, 3), np.float32), np.zeros(4, np.int32)
concat = chainer.dataset.concat_examples
MS = 1_000_000


class Net(chainer.Chain):
    """A linear layer that takes 100 ns, or what is passed."""

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
        assert sum(one.ns for one in self.accounts.spent()) == self.clock.time_ns - self.began_ns

    @property
    def spent(self):
        """Times and counts by account, the profiler's left out."""
        spent = [one for one in self.accounts.spent() if one.part != PROFILER]
        return {(one.part, one.name): (one.ns, one.count) for one in spent}


@pytest.fixture
def watching(clock):
    return Watching(clock)


@pytest.fixture
def measuring(clock, monkeypatch):
    """The same, and measured by layer, which takes no time here."""
    monkeypatch.setattr(watched, "clock_of", lambda device: clock)
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


#: Programs, what each of them spends by account, and the trials that are watched with their number.
PROGRAMS = {}


def spends(watched, rest=0, **accounts):
    spent = {(PARTS[name], ""): found for name, found in accounts.items()}
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
    """The very first update ended a trial; then it was known that another one follows."""
    other, second = set_up(clock, 200)
    for _ in range(4):
        clock.advance(3)
        F.sum(other(model(X))).backward()
        clock.advance(30)
        optimizer.update()
        clock.advance(40)
        second.update()


@spends({"train": 8}, iterations=(4 * (1100 + 1200), 8), rest=4 * 6)
def two_updates_by_losses_of_their_own(clock, model, optimizer):
    """Each has its own forward: two trials of different kinds in each iteration."""
    other, second = set_up(clock, 200)
    for _ in range(4):
        learn(model, optimizer)
        clock.advance(3)
        learn(other, second)
        clock.advance(3)


@spends({"train": 2, "train-2": 2, "train-3": 2}, iterations=(6 * 1100, 6))
def other_trainings_behind_the_first(clock, model, optimizer):
    for number in range(3):
        learn(model, optimizer)
        learn(model, optimizer)
        gone = weakref.ref(model)
        model, optimizer = set_up(clock)
        gc.collect()
        assert not number or gone() is None  # who calls this one holds the first


@spends({"train": 2}, iterations=(2 * 1100, 2), rest=9)
def an_exception_in_an_update(clock, model, optimizer):
    def fails():
        clock.advance(9)
        raise ValueError("bad")

    learn(model, optimizer)
    with pytest.raises(ValueError, match="bad"):
        optimizer.update(fails)
    learn(model, optimizer)


@spends({"train": 1}, iterations=(1100, 1), rest=100)
def an_iteration_that_never_ends(clock, model, optimizer):
    learn(model, optimizer)
    F.sum(model(X)).backward()


@spends({"train": 3}, iterations=(3 * 1150, 3))
def a_network_that_no_optimizer_has(clock, model, optimizer):
    features = Net(clock, 50)
    for _ in range(3):
        learn(lambda x: features(model(x)), optimizer, cleared=model)


@spends({"train": 3}, iterations=(100 + 11 + 2 * (1100 + 13), 3))
def an_optimizer_of_chainermn_made_by_hand(clock, model, optimizer):
    """In the first iteration parameters are sent, and nothing is updated."""
    multi = needs.module("chainermn.optimizers")

    class Alone:
        rank, size = 0, 1

        def bcast_data(self, model):
            clock.advance(11)

        def multi_node_mean_grad(self, model, zero_fill=False):
            clock.advance(13)

    optimizer = multi._MultiNodeOptimizer(Optimizer(clock), Alone(), False)
    optimizer.setup(model)
    for _ in range(3):
        learn(model, optimizer)


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_a_program_spends(name, watching, clock):
    program, trials, spent = PROGRAMS[name]
    with watching.within():
        program(clock, *set_up(clock))
    assert watching.spent == spent
    assert {one.name: one.count for one in watching.program.watched} == trials


def test_calls_without_an_optimizer(watching, clock):
    with watching.within():
        model = Net(clock)
        for batch in Data(clock, repeat=False):
            model(concat(batch)[0])
        y = Wait(clock, 100, 6).apply((model(X),))[0]
        F.sum(y).backward()
    assert watching.spent == {
        # The end of the data was asked for, too.
        (DATA, "Data"): (2 * 10 + 7, 3),
        (DATA, "_ArbitraryCallableConverter"): (0, 2),
        (CALLS, ""): (3 * 100 + 6, 3),
        (REST, ""): (100, 0),
    }


def test_trials_of_one_network_are_of_the_part_that_calls_it(watching, clock):
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
    assert program.accounts_of_trials() == kinds
    assert {one.name: one.own_ns for one in program.watched} == dict.fromkeys(kinds, 200)


def test_the_time_of_networks_that_are_not_measured_is_known(measuring, clock):
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


def test_what_runs(watching, clock):
    model, optimizer = set_up(clock)
    runs, program = [], watching.program

    def note():
        runs.append(program.what_runs())

    class Loads(Data):
        def __next__(self):
            note()
            return super().__next__()

    with watching.within():
        note()
        next(Loads(clock))
        with chainer.no_backprop_mode():
            for _ in range(2):  # the second one is known
                Forward(clock, note)(X)
        optimizer.update(lambda: (note(), F.sum(model(X)))[1])
        note()
    assert runs == [OTHER, LOADING, NETWORK, NETWORK, NETWORK, OTHER]


class Forward(Net):
    def __init__(self, clock, note):
        super().__init__(clock)
        self.note = note

    def forward(self, x):
        self.note()
        return super().forward(x)


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
    def told(trainer):
        clock.advance(31)

    evaluator = extensions.Evaluator(Data(clock, repeat=False), optimizer.target)
    for extension in (told, evaluator, extensions.snapshot(filename="it")):
        trainer.extend(extension, trigger=(6, "iteration"))
    kinds = (Extension, Net, Optimizer, Data, type(updater), chainer.serializers, chainer.datasets)
    before = [dict(vars(one)) for one in kinds]
    with watching.within():
        trainer.run()
    spent = watching.spent
    assert spent[ITERATIONS, ""] == (6 * (10 + 1100), 6)
    assert spent[EXTENSIONS, "Extension"] == (17 + 3 * 19 + 23, 3)
    assert spent[EXTENSIONS, "other"] == (17 + 2 * 19 + 23, 2)
    assert spent[EXTENSIONS, "told"] == (31, 1)
    assert spent[EVALUATION, "validation"] == (2 * (10 + 100) + 7, 1)
    assert spent[SNAPSHOTS, "snapshot"] == (0, 1)
    assert spent[REST, ""] == (0, 0)
    found = [(one.name, one.count) for one in watching.program.watched]
    assert found == [("train", 6), ("test", 2)]
    # All is left as it was found.
    assert [dict(vars(one)) for one in kinds] == before
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


def test_weights_that_a_program_saves_are_told_by_whether_they_are_compressed(watching, clock):
    model = Net(clock)
    with watching.within():
        for asked in ({}, {"compression": True}, {"compression": False}):
            chainer.serializers.save_npz(io.BytesIO(), model, **asked)
        chainer.serializers.save_npz(io.BytesIO(), model, False)
    assert watching.spent[SNAPSHOTS, SAVE_NPZ] == (0, 2)
    assert watching.spent[SNAPSHOTS, SAVE_NPZ_PLAIN] == (0, 2)


@pytest.mark.parametrize("where", ["begin", "finish"])
def test_what_fails_in_measuring_ends_that_alone(where, clock, monkeypatch):
    monkeypatch.setattr(LiveTrials, where, raising(IndexError("no such row")))
    watching = Watching(clock, layers=True)
    with watching.within():
        model, optimizer = set_up(clock)
        for _ in range(4):
            learn(model, optimizer)
    assert watching.problems == ["train: measuring stopped: IndexError: no such row"]
    assert watching.spent[ITERATIONS, ""] == (4 * 1100, 4)


def test_many_calls_in_test_mode(clock, measuring):
    with measuring.within():
        model = Net(clock)
        with chainer.using_config("train", False):
            for number in range(3000):
                clock.advance(2)
                model(X)
                if number == 1000:  # a call that raises is none
                    with pytest.raises(chainer.utils.type_check.InvalidType):
                        model(X[:, :2])
    assert measuring.spent[CALLS, ""] == (3001 * 100, 3000)
    assert measuring.spent[REST, ""] == (3000 * 2, 0)
    (calls,) = measuring.program.watched
    recording = calls.recording
    # The second and third one are those of the memory pass; the one that raised has a number.
    taped = [1, *range(4, 1002), *range(1003, 3002)]
    assert recording.iteration.tolist() == taped
    assert len(taped) + 2 == calls.count == 3000
    assert set(recording.trial_ns.tolist()) == {100}


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


def test_trials_are_written_while_the_program_runs(clock, measuring, monkeypatch):
    written = []
    add = Journal.add

    def note(self, *records):
        written.extend(record.wall_ns for record in records if isinstance(record, Trial))
        add(self, *records)

    monkeypatch.setattr(Journal, "add", note)
    with measuring.within():
        model, _ = set_up(clock, takes_ns=10 * MS)
        with chainer.using_config("train", False):
            for _ in range(300):
                model(X)
        # A kill now would lose no more than a tenth of a second.
        assert 0 <= 300 - len(written) <= 10
    assert written == [10 * MS] * 300


def test_an_iteration_that_waits_for_its_optimizers(clock, measuring, monkeypatch):
    """Also a network that no optimizer has is in the paths."""
    monkeypatch.setitem(sys.modules, "chainermn", ModuleType("chainermn"))
    with measuring.within():
        a_network_that_no_optimizer_has[0](clock, *set_up(clock))
    recording = measuring.program.watched[0].recording
    assert recording.n_trials >= 1
    for phase in ("forward", "backward"):
        paths = {layer.path for layer in recording.layers if layer.phase == phase}
        assert {"/fc", "/Net/fc"} <= paths


def test_iterations_without_a_function(clock, measuring):
    class Nothing(chainer.Link):
        def forward(self, x):
            return x

    class Idle(chainer.optimizers.SGD):
        def update(self, *args, **kwargs):
            clock.advance(1)

    with measuring.within():
        model = Nothing()
        optimizer = Idle().setup(model)
        for _ in range(9):
            model(X)
            optimizer.update()
    assert measuring.problems == []


def test_what_profiling_adds_within_trials_is_counted():
    watched = Watched("trials", None, Accounts(lambda: 0, 0), print, lambda: None)
    live = SimpleNamespace(mode=TAPING, added_ns=30)
    assert watched._without_added(live, 100) == 70
    # Counting memory slows a trial down, once.
    live.mode = COUNTING
    assert watched._without_added(live, 500) == 70
    assert watched._usual_ns == 70
