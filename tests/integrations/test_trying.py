"""Changes alternate between iterations of a program, and are removed afterwards."""

import _tracemalloc
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest
from chainer import training
from chainer.functions.connection.convolution_2d import Convolution2DFunction
from chainer.training.triggers import IntervalTrigger

from chainer_profile.advice import changes, interleaved
from chainer_profile.advice.changes import UNCHANGED, PlannedChanges, blas_threads
from chainer_profile.analyse.changes import Untried
from chainer_profile.analyse.findings import Change
from chainer_profile.basics.words import TYPED
from chainer_profile.integrations import trying
from chainer_profile.integrations.extensions import fraction_done
from chainer_profile.integrations.program import Program
from chainer_profile.kernels import numpy_kernels
from chainer_profile.kernels.accelerate import accelerate
from chainer_profile.measure.accounts import Accounts
from chainer_profile.record.journal import Journal
from tests import nets
from tests.command import raising

FAST, KEEP_MEMORY = Change(config=("type_check",)), Change(keep_memory=True)
NUMPY, TORCH = Change(kernels="numpy"), Change(kernels="torch")
MS = 1_000_000


def watch(clock, memory=False):
    accounts = Accounts(clock.now_ns, clock.time_ns)
    return Program(accounts, lambda name: Journal(), tries=True, memory=memory)


@pytest.fixture
def net(clock, monkeypatch):
    """A linear layer that takes 20 ms, and 10 ms with the fake change FAST."""

    def forward(self, x):
        self.seen.append((chainer.config.train, self.is_fast))
        if _tracemalloc.is_tracing():  # the memory pass
            self.counted.append(self.is_fast)
        clock.advance(self.duration_ns // (1 + self.is_fast))
        return self.fc(x)

    model = nets.net(forward, fc=L.Linear(3, 3))
    model.is_fast, model.seen, model.counted, model.duration_ns = False, [], [], 20 * MS

    @contextmanager
    def applied(change, guard):
        model.is_fast = change == FAST
        yield
        model.is_fast = False

    available = PlannedChanges(others=[FAST], untried=[Untried("b", "lacks")])
    monkeypatch.setattr(trying, "plan_changes", lambda on_gpu: available)
    monkeypatch.setattr(trying, "applied", applied)
    return model


def run_loop(model, iterations=200, hook=None):
    optimizer = chainer.optimizers.SGD(0).setup(model)
    if hook:
        optimizer.add_hook(hook)
    x = np.ones((4, 3), np.float32)
    data = chainer.iterators.SerialIterator(x, 1)
    for number in range(iterations):
        model.cleargrads()
        F.sum(model(x)).backward()
        optimizer.update()
        if number % 40 == 39:
            next(data)  # looks like the begin of an iteration, but belongs to the evaluation
            with chainer.using_config("train", False), chainer.no_backprop_mode():
                model(x)


LOOP_LINE = run_loop.__code__.co_firstlineno + 6


def run_trainer(model):
    data = [(np.ones(3, np.float32), np.int32(0))] * 40
    optimizer = chainer.optimizers.SGD(0).setup(L.Classifier(model))
    iterator = chainer.iterators.SerialIterator(data, 4)
    updater = training.updaters.StandardUpdater(iterator, optimizer)
    training.Trainer(updater, (20, "epoch"), "result").run()


@pytest.mark.parametrize("train", [run_loop, run_trainer])
def test_changes_alternate_between_iterations_only(clock, net, train, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    apply = chainer.FunctionNode.apply
    with watch(clock) as program:
        train(net)
    assert not net.is_fast
    tried, recording = program.live.trying, program.recordings()["train"]
    advice = tried.advice(["train.py"])
    (fast,) = advice.tried
    assert fast.gain.factor == pytest.approx(2.0)
    assert (fast.helps, fast.loss.differs) == (True, False)
    assert (fast.before_s, fast.after_s) == pytest.approx((0.02, 0.01))
    assert advice.untried == (Untried("b", "lacks"),)
    assert advice.environment == recording.environment
    in_training = [is_fast for is_training, is_fast in net.seen if is_training]
    assert 50 < sum(in_training) < 150
    trials_s = 200 * 0.02 - sum(in_training) * 0.01
    assert (advice.trials, advice.trials_s) == (200, pytest.approx(trials_s))
    assert not any(is_fast for is_training, is_fast in net.seen if not is_training)
    # Calls were counted in every iteration, and the counter is removed.
    works = {tuple(block.work / block.count) for block in tried.interleaved.blocks if block.count}
    ((calls, elements),) = works
    assert calls > 2
    assert elements > 20
    assert chainer.FunctionNode.apply is apply
    # The layers are of iterations without a change.
    linear = next(layer.index for layer in recording.layers if layer.function == "LinearFunction")
    assert len(recording.self_ns) > 5
    assert (recording.calls[:, linear] == 1).all()
    assert (recording.trial_ns == 20 * MS).all()
    # The other iterations have rows, too.
    changed = program.recordings()["tried"]
    assert recording.n_trials + changed.n_trials == 200
    assert changed.n_trials == sum(in_training)
    assert (changed.trial_ns == 10 * MS).all()
    assert [layer.path for layer in changed.layers] == [layer.path for layer in recording.layers]
    numbers = np.sort(np.concatenate([recording.iteration, changed.iteration]))
    assert numbers.tolist() == list(range(1, 201))
    assert Path(__file__).name in tried.location
    if train is run_loop:
        assert tried.location.endswith(f":{LOOP_LINE}")


def test_calls_in_test_mode_between_tried_iterations_are_measured(clock, net):
    with watch(clock) as program:
        run_loop(net)
    assert program.recordings()["test"].n_trials == 5


@pytest.mark.parametrize("trains", [False, True])
def test_changes_are_tried_in_calls_until_a_training_begins(clock, net, trains):
    with watch(clock) as program:
        with chainer.using_config("train", False), chainer.no_backprop_mode():
            for _ in range(200):
                net(np.ones((4, 3), np.float32))
        if trains:
            run_loop(net)
    assert not net.is_fast
    (tried,) = program.live.trying.interleaved.tried()
    assert tried.wall.factor == pytest.approx(2.0)
    assert program.live.trying.kind.name == ("train" if trains else "test")


def test_changes_are_tried_in_a_network_that_calls_functions(clock, net):
    """Each step of this program first calls a network that runs no function."""
    without_functions = nets.net(lambda self, x: x)
    x = np.ones((4, 3), np.float32)
    with watch(clock) as program, chainer.using_config("train", False):
        for _ in range(300):
            without_functions(x)
            net(x)
    (tried,) = program.live.trying.interleaved.tried()
    assert tried.wall.factor == pytest.approx(2.0)


def test_memory_is_counted_without_changes(clock, net):
    with watch(clock, memory=True) as program:
        run_loop(net)
    assert program.recordings()["train"].memory is not None
    assert net.counted
    assert not any(net.counted)


def test_exception_in_an_iteration_removes_the_change(clock, net):
    def fail_if_fast(optimizer):
        if net.is_fast and len(net.seen) > 30:
            raise KeyError("the program's own")

    fail_if_fast.name = "fails"
    with watch(clock) as program, pytest.raises(KeyError, match="own"):
        run_loop(net, hook=fail_if_fast)
    assert not net.is_fast
    assert program.live.trying.interleaved.tried()[0].error == ""


# -- the real changes


def losses_of_a_program():
    """Run a program that draws random numbers in every iteration; return its losses."""
    generator = np.random.RandomState(3)
    np.random.seed(4)  # noqa: NPY002  (Chainer's)
    conv, norm = L.Convolution2D(3, 4, 3), L.BatchNormalization(4)
    model = L.Classifier(chainer.Sequential(conv, norm, F.dropout, F.relu, L.Linear(4)))
    optimizer = chainer.optimizers.MomentumSGD(0.01).setup(model)
    losses = []
    for _ in range(30):
        x = generator.rand(8, 3, 12, 12).astype(np.float32)
        loss = model(x, generator.randint(0, 4, 8).astype(np.int32))
        model.cleargrads()
        loss.backward()
        optimizer.update()
        losses.append(float(loss.array))
    return losses


@pytest.mark.parametrize("fails", [False, True])
def test_changes_preserve_losses_and_are_removed(fails, clock, monkeypatch):
    monkeypatch.setattr(interleaved, "BLOCK_NS", 0)  # the change varies in every iteration
    monkeypatch.setattr(changes, "missing_requirements", lambda: {"torch": "not installed"})
    clock.read_ns = 50 * MS
    methods, threads = dict(vars(Convolution2DFunction)), blas_threads()
    expected = losses_of_a_program()
    if fails:
        monkeypatch.setattr(numpy_kernels, "convolution", raising(MemoryError("no room")))
    with watch(clock) as program:
        losses = losses_of_a_program()
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    advice = program.live.trying.advice(["t.py"])
    errors = {tried.candidate.change.kernels: tried.error for tried in advice.tried if tried.error}
    assert errors == ({"numpy": "MemoryError: no room"} if fails else {})
    kernels = {block.change.kernels for block in program.live.trying.interleaved.blocks}
    assert fails or kernels == {"", "numpy"}
    assert dict(vars(Convolution2DFunction)) == methods
    assert (blas_threads(), chainer.config.type_check) == (threads, True)


def test_changes_available_on_a_machine(monkeypatch):
    monkeypatch.setattr(changes, "missing_requirements", lambda: {"torch": "not installed"})
    monkeypatch.setattr(changes, "blas_threads", lambda: 4)
    monkeypatch.setattr(changes, "usable_cores", lambda: 4)
    available = changes.plan_changes(on_gpu=False)
    assert [change.threads for change in available.threads] == [1, 2]
    assert available.others[:2] == [NUMPY, FAST]
    assert KEEP_MEMORY in available.last
    assert available.untried == [Untried("PyTorch's kernels", "not installed")]
    available = changes.plan_changes(on_gpu=True)
    assert (available.threads, available.last) == ([], [])
    assert FAST in available.others
    assert Change(config=("autotune",)) in available.others
    assert NUMPY not in available.others
    with accelerate(), chainer.using_config("type_check", False):
        available = changes.plan_changes(on_gpu=False)
    assert not {NUMPY, FAST, KEEP_MEMORY} & {*available.others, *available.last}
    assert {untried.why for untried in available.untried} == {
        "not installed",
        "the program has it already",
    }


FASTER = "with chainer_profile.accelerate"
#: Change, environment variables, line of code, and name.
LINES = [
    (FAST, "CHAINER_TYPE_CHECK=0", "", "type checks off"),
    (Change(config=("autotune",)), "", "chainer.config.autotune = True", "cuDNN's autotuning"),
    (NUMPY, "", f"{FASTER}(keep_memory=False):", "faster NumPy kernels"),
    (NUMPY.with_(KEEP_MEMORY), "", f"{FASTER}():", "faster NumPy kernels + memory kept"),
    (
        Change(threads=2).with_(TORCH),
        "OPENBLAS_NUM_THREADS=2",
        f'{FASTER}("torch", threads=2, keep_memory=False):',
        "2 BLAS threads + PyTorch's kernels",
    ),
    (UNCHANGED, "", "", ""),
]


@pytest.mark.parametrize(("change", "variables", "code", "name"), LINES)
def test_lines_to_write_for_a_change(change, variables, code, name, clock, net, monkeypatch):
    with watch(clock) as program:
        run_loop(net, iterations=6)
    for is_needed, starts in ((False, "python"), (True, f"{TYPED} run --compat-only")):
        monkeypatch.setattr(trying, "is_needed", lambda needed=is_needed: needed)
        lines = dict(program.live.trying.lines(change, ["train.py", "a b"]))
        command = f"{variables} {starts} train.py 'a b'" if variables else ""
        assert lines.get("before the command", "") == command
    assert lines.get(program.live.trying.location, "") == code
    assert changes.combined_name(change) == name


def test_name_and_variables_of_keeping_memory():
    assert changes.environment_variables(KEEP_MEMORY).startswith("MALLOC_MMAP_MAX_=0 ")
    assert changes.candidate_for_program(NUMPY.with_(KEEP_MEMORY), NUMPY).name == "+ memory kept"


def test_fraction_done_of_a_training():
    """The fraction counts from the begin of this run, which may resume a snapshot."""
    updater = SimpleNamespace(iteration=4, epoch_detail=2.5)
    for end, fraction in (((6, "iteration"), 0.5), ((3, "epoch"), 0.75)):
        trainer = SimpleNamespace(updater=updater, stop_trigger=IntervalTrigger(*end))
        assert fraction_done(trainer, {"iteration": 2, "epoch": 1}) == fraction
    trainer.stop_trigger = lambda trainer: False  # the end is unknown
    assert fraction_done(trainer, {"iteration": 2, "epoch": 1}) is None
