"""Trials of a program, and accounts of its time, are exact on a fake clock."""

import functools
import gc
import weakref

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest
from chainer import training
from chainer.training import extensions

from chainer_profile.integrations.trial_kinds import TrialKind
from chainer_profile.measure.segments import MAX_UNDECIDED, Segmenter
from chainer_profile.record import budget
from chainer_profile.record.budget import (
    EVALUATION,
    EXTENSIONS,
    ITERATIONS,
    REST,
    SNAPSHOTS,
)
from tests.command import raising
from tests.integrations.watching import (
    MS,
    Data,
    Net,
    Optimizer,
    T,
    Watching,
    X,
    in_test_mode,
    learn,
    set_up,
)


def test_optimizer_set_up_before_the_program_is_found(watching, clock):
    """The first iteration begins with the update. Such an optimizer may be unpickled."""
    model, optimizer = set_up(clock)
    with watching.within():
        for _ in range(4):
            learn(model, optimizer)
    assert watching.spent[ITERATIONS, ""][1] == 4
    assert watching.program.kinds[-1].recording.self_ns.tolist()


@pytest.mark.parametrize("n_calls", [5, MAX_UNDECIDED + 5])
def test_evaluation_in_training_mode_belongs_to_no_iteration(n_calls, watching, clock):
    """Its calls differ from the calls of an iteration only in the missing backward."""
    with watching.within():
        model, optimizer = set_up(clock)
        for _ in range(3):
            for _ in range(2):
                learn(model, optimizer)
            for _ in range(n_calls):
                model(X)
    assert watching.spent[ITERATIONS, ""] == (6 * 1100, 6)
    assert watching.spent[budget.CALLS, ""] == (3 * n_calls * 100, 3 * n_calls)
    assert (budget.INTERRUPTED, "") not in watching.spent


def test_trials_belong_to_the_calling_account_and_eight_kinds_are_measured(watching, clock):
    program = watching.program
    with watching.within(), in_test_mode():
        for number in range(10):
            model = type(f"Net{number}", (Net,), {})(clock)
            for _ in range(3):
                with watching.accounts.within(EXTENSIONS, "Bleu"):
                    model(X)
        model(X)
    kinds = [(kind.name, kind.account, kind.own_ns) for kind in program.kinds]
    assert kinds[0] == ("test", (EXTENSIONS, "Bleu"), 300)
    assert kinds[9:] == [
        ("test-10", (EXTENSIONS, "Bleu"), 300),
        ("test-11", (budget.CALLS, ""), 100),
    ]
    assert len(program.recordings()) == 8
    calls = budget.Spent(budget.CALLS, "", 100, 1)
    assert program.trials.kinds.unmeasured() == (budget.Spent(EXTENSIONS, "Bleu", 600, 6), calls)


def test_time_of_iterations_is_at_most_the_time_of_their_rows(watching, clock):
    """Reading the clock takes 1 ns, which counts in the profiler's account."""
    clock.read_ns = 1
    with watching.within():
        model, optimizer = set_up(clock)
        for _ in range(5):
            learn(model, optimizer)
        clock.read_ns = 0
    rows_ns = watching.program.recordings()["train"].trial_ns.sum()
    iterations_ns = watching.spent[ITERATIONS, ""][0]
    assert 5 * 1100 <= iterations_ns <= rows_ns < min(1.01 * iterations_ns, 5 * 1150)


def test_reading_the_log_takes_a_twentieth_of_the_time(watching, clock, monkeypatch):
    begins = []
    decide_at_once = Segmenter.decide

    def decide(segmenter, is_last=False, is_full=False):
        begins.append(clock.time_ns)
        clock.advance(50 * MS)
        return decide_at_once(segmenter, is_last, is_full)

    monkeypatch.setattr(Segmenter, "decide", decide)
    with watching.within(), in_test_mode():
        model = Net(clock, 10 * MS)
        for _ in range(1000):
            model(X)
    assert watching.program.kinds[0].count == 1000
    waits_ns = np.diff(begins[6:-1]) - 50 * MS  # the first calls are processed earlier
    assert len(waits_ns) == 8
    assert min(waits_ns) == max(waits_ns) == 20 * 50 * MS


def test_import_within_an_iteration_begins_no_new_iteration(watching, clock):
    with watching.within():
        model, optimizer = set_up(clock)
        for _ in range(2):
            model(X)
            with watching.accounts.within(budget.IMPORTS, "lazy"):
                next(Data(clock))
            learn(model, optimizer)
    assert watching.program.kinds[0].count == 2
    assert watching.spent[budget.IMPORTS, "lazy"] == (2 * 10, 2)


def test_copies_of_a_network_share_its_rows(watching, clock):
    model = Net(clock)
    with watching.within(), in_test_mode():
        for _ in range(12):
            model.copy()(X)
    (calls,) = watching.program.kinds
    assert calls.count == 12
    assert {row.path for row in calls.recording.layers} == {"/fc"}


def test_what_runs_reports_the_kind_of_code(watching, clock, monkeypatch):
    runs, advance = [], clock.advance
    what_runs = watching.program.what_runs
    monkeypatch.setattr(clock, "advance", lambda ns: (runs.append(what_runs()), advance(ns)))
    with watching.within():
        model, optimizer = set_up(clock)
        clock.advance(1)
        next(Data(clock))  # advances the clock twice
        with in_test_mode():
            model(X)
            model(X)  # the second call is in a trial
        optimizer.update(lambda: F.sum(model(X)))  # twice
        clock.advance(1)
    other, data, networks = [budget.OTHER], [budget.LOADING] * 2, [budget.NETWORK] * 4
    assert runs == [*other, *data, *networks, *other]


class Extension(training.Extension):
    """An extension that takes 17 ns at the start, 19 per call and 23 at the end."""

    def __init__(self, clock):
        self.clock = clock

    def initialize(self, trainer):
        self.clock.advance(17)

    def __call__(self, trainer):
        self.clock.advance(19)

    def finalize(self):
        self.clock.advance(23)


def test_time_of_a_trainer_by_account(watching, clock, tmp_path):
    optimizer = Optimizer(clock)
    optimizer.setup(L.Classifier(Net(clock)))
    updater = training.updaters.StandardUpdater(Data(clock), optimizer)
    trainer = training.Trainer(updater, (6, "iteration"), out=str(tmp_path))
    evaluator = extensions.Evaluator(Data(clock, repeat=False), optimizer.target)
    trainer.extend(Extension(clock), trigger=(2, "iteration"))
    trainer.extend(Extension(clock), name="other", trigger=(3, "iteration"))

    @training.make_extension()
    def short(trainer):
        clock.advance(31)

    plain = functools.partial(chainer.serializers.save_npz, compression=False)
    snapshot = extensions.snapshot(savefun=plain, filename="it")
    of_model = extensions.snapshot_object(optimizer.target, "model", savefun=plain)
    for extension in (short, evaluator, snapshot, of_model):
        trainer.extend(extension, trigger=(6, "iteration"))
    kinds = (Extension, Net, Optimizer, Data, chainer.serializers, chainer.datasets)
    before = [dict(vars(kind)) for kind in kinds]
    with watching.within():
        trainer.run()
    assert watching.spent == {
        (ITERATIONS, ""): (6 * (10 + 1100), 6),
        (EXTENSIONS, "Extension"): (17 + 3 * 19 + 23, 3),
        (EXTENSIONS, "other"): (17 + 2 * 19 + 23, 2),
        (EXTENSIONS, "short"): (31, 1),
        (EVALUATION, "validation"): (2 * (10 + 100) + 7, 1),
        (SNAPSHOTS, "snapshot"): (0, 1),
        (SNAPSHOTS, "snapshot_1"): (0, 1),
        (REST, ""): (0, 0),
    }
    counts = [(kind.name, kind.count) for kind in watching.program.kinds]
    assert counts == [("train", 6), ("test", 2)]
    # Nothing of the program has changed.
    assert [dict(vars(kind)) for kind in kinds] == before
    *_, validation, snapshot, of_model = watching.program.extensions
    assert (validation.examples, snapshot.examples) == (4, 0)
    assert snapshot == budget.Extension("snapshot", "extensions.snapshot", 6, "iteration", 1)
    assert of_model.kind == "extensions.snapshot_object"
    assert "update" not in vars(updater)


@pytest.mark.parametrize("before", ["a batch", "a call", "the predictor's call"])
def test_trainer_after_a_batch_or_a_call(before, watching, clock, tmp_path):
    """An IndexError in the profiler used to end such programs."""
    optimizer = Optimizer(clock)
    optimizer.setup(L.Classifier(Net(clock)))
    data = Data(clock)
    updater = training.updaters.StandardUpdater(data, optimizer)
    with watching.within():
        if before == "a batch":
            next(data)
        else:
            model = optimizer.target if before == "a call" else optimizer.target.predictor
            model(*(X, T)[: 2 if before == "a call" else 1])
        training.Trainer(updater, (4, "iteration"), out=str(tmp_path)).run()
    assert watching.problems == []
    assert watching.spent[ITERATIONS, ""] == (4 * 1110, 4)
    assert watching.spent[REST, ""] == (0, 0)
    recording = watching.program.recordings()["train"]
    assert recording.trial_ns.tolist() == [1110] * 4
    paths = {layer.path for layer in recording.layers if layer.function == "LinearFunction"}
    assert paths == {"/predictor/fc"}


def test_networks_that_the_program_drops_are_freed(watching, clock):
    with watching.within():
        for _ in range(5):
            model, optimizer = set_up(clock)
            for _ in range(3):
                learn(model, optimizer)
            with in_test_mode():
                model.copy()(X)
            reference = weakref.ref(model)
            del model, optimizer
            gc.collect()
            assert reference() is None
    for recording in watching.program.recordings().values():
        assert [link.parameters for link in recording.links if link.path == "/fc"] == [12]


def test_iterations_are_numbered_without_rejected_ones(watching, clock):
    with watching.within():
        model, optimizer = set_up(clock)
        data = Data(clock)
        for _ in range(6):
            next(data)
            learn(model, optimizer)
            next(data)
            with in_test_mode():
                model(X)
    assert watching.program.kinds[0].recording.iteration.tolist() == [*range(1, 7)]


@pytest.mark.parametrize("where", ["add", "end"])
def test_failure_in_measuring_does_not_end_the_program(where, watching, clock, monkeypatch):
    monkeypatch.setattr(TrialKind, where, raising(IndexError("no such row")))
    with watching.within():
        model, optimizer = set_up(clock)
        for _ in range(4):
            learn(model, optimizer)
    assert watching.problems == ["train: measuring stopped: IndexError: no such row"]
    assert watching.spent[ITERATIONS, ""] == (4 * 1100, 4)


@pytest.mark.parametrize(("memory", "timed"), [(False, [1, 2, 3, 4]), (True, [1, 2])])
def test_memory_is_counted_only_if_requested(memory, timed, clock, watching):
    model = Net(clock, 40 * MS)
    watching = Watching(clock, memory=memory)
    with watching.within(), chainer.using_config("train", False):
        for _ in range(4):
            model(X)
    (calls,) = watching.program.kinds
    assert calls.recording.iteration.tolist() == timed
    assert (calls.recording.memory is not None) is memory


def test_all_iterations_of_a_trainer_with_two_optimizers_are_measured(clock, watching):
    """The updater marks the end of iterations, so the first two count as well."""

    class Updater(training.updaters.StandardUpdater):
        def update_core(self):
            for optimizer in self.get_all_optimizers().values():
                learn(optimizer.target, optimizer)

    optimizers = {name: set_up(clock, 200 * MS)[1] for name in ("main", "dis")}
    trainer = training.Trainer(Updater(Data(clock), optimizers), (3, "iteration"))
    with watching.within():
        trainer.run()
    assert watching.program.kinds[0].recording.iteration.tolist() == [1, 2, 3]
