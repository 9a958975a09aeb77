"""Random trainings have the same results with and without ``run`` and ``run --try``."""

import io
import os
import random
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest
from chainer import optimizer_hooks, optimizers, training
from chainer.training import extensions
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chainer_profile.advice import interleaved
from chainer_profile.advice.changes import PlannedChanges, plan_changes
from chainer_profile.integrations import trying
from chainer_profile.integrations.program import Program
from chainer_profile.measure import iteration_writer
from chainer_profile.measure.accounts import Accounts
from chainer_profile.record.journal import Journal
from tests.conftest import FakeClock


class Dense(chainer.Chain):
    """Two linear layers. The first call initializes the first layer."""

    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.fc1, self.fc2 = L.Linear(None, 5), L.Linear(5, 3)

    def forward(self, x):
        return self.fc2(F.dropout(F.relu(self.fc1(x))))


class Convolutional(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.conv, self.norm = L.Convolution2D(1, 2, 3), L.BatchNormalization(2)
            self.fc = L.Linear(None, 3)

    def forward(self, x):
        h = F.max_pooling_2d(F.relu(self.norm(self.conv(x.reshape(-1, 1, 4, 4)))), 2)
        return self.fc(F.dropout(h, 0.3))


class Recurrent(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.lstm, self.fc = L.LSTM(4, 4), L.Linear(4, 3)

    def forward(self, x):
        self.lstm.reset_state()
        for step in F.split_axis(x, 4, axis=1):
            h = self.lstm(step)
        return self.fc(F.zoneout(h, h * 2))


NETWORKS = {"dense": Dense, "convolutional": Convolutional, "recurrent": Recurrent}
OPTIMIZERS = {
    "SGD": optimizers.SGD,
    "MomentumSGD": optimizers.MomentumSGD,
    "Adam": optimizers.Adam,
    "AMSGrad": lambda: optimizers.Adam(amsgrad=True),
    "RMSprop": optimizers.RMSprop,
    "AdaGrad": optimizers.AdaGrad,
}
HOOKS = {
    "decay": lambda: optimizer_hooks.WeightDecay(1e-3),
    "clipping": lambda: optimizer_hooks.GradientClipping(0.5),
    "noise": lambda: optimizer_hooks.GradientNoise(0.1),
    "lasso": lambda: optimizer_hooks.Lasso(1e-4),
}


@dataclass(frozen=True)
class Plan:
    """A random training.

    Attributes:
        form: Kind of loop: a ``trainer``, an ``updater``, ``steps`` with explicit backward, or
            updates with a ``lossfun``.
        evaluates: Number of iterations between evaluations; 0 for never.
        saves: Number of iterations between snapshots; 0 for never.
        draws: Whether the program draws random numbers.
        fails: Whether the program raises and catches an exception once.
    """

    network: str
    optimizer: str
    hooks: tuple[str, ...]
    form: str
    shuffle: bool
    batch_size: int
    iterations: int
    evaluates: int
    saves: int
    draws: bool
    fails: bool
    seed: int


PLANS = st.builds(
    Plan,
    network=st.sampled_from(sorted(NETWORKS)),
    optimizer=st.sampled_from(sorted(OPTIMIZERS)),
    hooks=st.lists(st.sampled_from(sorted(HOOKS)), max_size=2, unique=True).map(tuple),
    form=st.sampled_from(["trainer", "updater", "steps", "lossfun"]),
    shuffle=st.booleans(),
    batch_size=st.integers(2, 5),
    iterations=st.integers(1, 18),
    evaluates=st.integers(0, 4),
    saves=st.integers(0, 6),
    draws=st.booleans(),
    fails=st.booleans(),
    seed=st.integers(0, 1000),
)


class Failing(L.Classifier):
    """A classifier that raises an exception in its third call in training mode."""

    def __init__(self, predictor, fails):
        super().__init__(predictor)
        self.calls, self.fails = 0, fails

    def forward(self, *args):
        self.calls += chainer.config.train
        if self.fails and self.calls == 3 and chainer.config.train:
            raise ZeroDivisionError
        return super().forward(*args)


def as_float(value):
    """An observed value, which may be a Variable."""
    return float(getattr(value, "array", value))


class TrainingOfPlan:
    """The program of a plan."""

    def __init__(self, plan, folder):
        self.plan, self.folder = plan, folder
        random.seed(plan.seed)
        np.random.seed(plan.seed)  # noqa: NPY002  (Chainer's)
        data = np.random.RandomState(plan.seed).randn(12, 16).astype(np.float32)
        labels = (np.arange(12) % 3).astype(np.int32)
        self.data = chainer.datasets.TupleDataset(data, labels)
        fails = plan.fails and plan.form in ("steps", "lossfun")
        self.model = Failing(NETWORKS[plan.network](), fails)
        self.optimizer = OPTIMIZERS[plan.optimizer]().setup(self.model)
        for hook in plan.hooks:
            self.optimizer.add_hook(HOOKS[hook]())
        self.iterator = self._batches(shuffle=plan.shuffle)
        self.losses, self.saved, self.random_numbers = [], [], []

    def _batches(self, **options):
        return chainer.iterators.SerialIterator(self.data, self.plan.batch_size, **options)

    def run(self):
        updater = training.updaters.StandardUpdater(self.iterator, self.optimizer)
        if self.plan.form == "trainer":
            self._train(updater)
            return
        for number in range(1, self.plan.iterations + 1):
            try:
                self._iterate(updater)
            except ZeroDivisionError:
                continue
            if self.plan.draws:
                self.random_numbers += [random.random(), float(np.random.rand())]  # noqa: NPY002
            if self.plan.evaluates and number % self.plan.evaluates == 0:
                self._evaluate()
            if self.plan.saves and number % self.plan.saves == 0:
                file = io.BytesIO()
                chainer.serializers.save_npz(file, self.model)
                self.saved.append(self._arrays(file))

    def _iterate(self, updater):
        if self.plan.form == "updater":
            updater.update()
            return
        batch = chainer.dataset.concat_examples(next(self.iterator))
        if self.plan.form == "lossfun":
            self.optimizer.update(self.model, *batch)
            self.losses.append(self.model.loss.array.tobytes())
            return
        loss = self.model(*batch)
        self.model.cleargrads()
        loss.backward()
        self.optimizer.update()
        self.losses.append(loss.array.tobytes())

    def _evaluate(self):
        with chainer.using_config("train", False), chainer.no_backprop_mode():
            for batch in self._batches(repeat=False, shuffle=False):
                self.losses.append(self.model(*chainer.dataset.concat_examples(batch)).item())

    def _train(self, updater):
        plan = self.plan
        trainer = training.Trainer(updater, (plan.iterations, "iteration"), out=self.folder)
        if plan.evaluates:
            evaluator = extensions.Evaluator(self._batches(repeat=False, shuffle=False), self.model)
            trainer.extend(evaluator, trigger=(plan.evaluates, "iteration"))
        if plan.saves:
            snapshot = extensions.snapshot(filename="{.updater.iteration}.npz")
            trainer.extend(snapshot, trigger=(plan.saves, "iteration"))

        @training.make_extension(trigger=(1, "iteration"))
        def record_losses(trainer):
            self.losses += [as_float(value) for value in trainer.observation.values()]
            if plan.draws:
                self.random_numbers += [random.random(), float(np.random.rand())]  # noqa: NPY002

        trainer.extend(record_losses)
        trainer.run()
        self.saved += [self._arrays(path) for path in sorted(Path(self.folder).glob("*.npz"))]

    @staticmethod
    def _arrays(file):
        """Arrays of a snapshot, without times."""
        if isinstance(file, io.BytesIO):
            file.seek(0)
        with np.load(file, allow_pickle=True) as arrays:
            return {name: arrays[name].tobytes() for name in arrays.files if "elapsed" not in name}

    def results(self):
        """Everything that the training computes or changes."""
        return {
            "losses": self.losses,
            "snapshots": self.saved,
            "random": random.getstate(),
            "NumPy's random": [str(item) for item in np.random.get_state()],  # noqa: NPY002
            "random numbers": self.random_numbers,
            "updates": self.optimizer.t,
            "iterator": (self.iterator.epoch, self.iterator.current_position),
            "configuration": dict(vars(chainer.global_config)),
            "calls": self.model.calls,
            "arrays": dict(self._state()),
        }

    def _state(self):
        """Parameters, gradients, persistent values and the state of the optimizer."""
        for path, link in self.model.namedlinks():
            for name in link._persistent:
                yield f"{path}/{name}", np.asarray(getattr(link, name))
        for path, param in self.model.namedparams():
            yield path, param.array
            yield f"{path} gradient", param.grad
            for name, value in (param.update_rule.state or {}).items():
                yield f"{path} {name}", np.asarray(value)


def results_of(plan):
    """Results of a training that is not profiled."""
    with TemporaryDirectory() as folder:
        program = TrainingOfPlan(plan, folder)
        program.run()
        return program.results()


def watched_results_of(plan, tries):
    """Results of a profiled training, and the tried changes."""
    clock, problems = FakeClock(read_ns=50_000_000), []  # every iteration is a block
    accounts = Accounts(clock.now_ns, clock.time_ns)
    watching = Program(
        accounts,
        lambda name: Journal(),
        warn=lambda *problem: problems.append(problem),
        tries=tries,
    )
    with TemporaryDirectory() as folder:
        program = TrainingOfPlan(plan, folder)
        with watching:
            program.run()
        results = program.results()
    assert problems == []
    assert len(watching.recordings()["train"].trial_ns) <= plan.iterations
    trying = None if watching.live is None else watching.live.trying
    return results, set() if trying is None else {
        block.change for block in trying.interleaved.blocks
    }


def assert_same_bits(results, expected):
    """Compare two trainings bit by bit."""
    bits = [
        {
            **each,
            "arrays": {
                name: None if array is None else (array.dtype, array.shape, array.tobytes())
                for name, array in each["arrays"].items()
            },
        }
        for each in (results, expected)
    ]
    assert bits[0] == bits[1]


@pytest.fixture(autouse=True, scope="module")
def _each_iteration_is_a_block():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interleaved, "BLOCK_NS", 0)
        patch.setattr(interleaved, "BLOCK_PART", 0)
        patch.setattr(iteration_writer, "cost_of_a_call", lambda now_ns: 0.0)
        patch.setattr(iteration_writer, "window_ns", lambda now_ns, device: 0.0)
        yield


def exact_changes(on_gpu):
    """Changes that do not affect rounding: no other kernels, no other numbers of threads."""
    available = plan_changes(on_gpu)
    others = [change for change in available.others if not change.kernels]
    return PlannedChanges(others=others, last=available.last)


#: Long enough to try all changes.
LONG = Plan("dense", "Adam", ("noise",), "steps", True, 4, 90, 0, 0, True, False, 1)


@settings(max_examples=60 if os.environ.get("CI") else 6)
@given(plan=PLANS)
@example(plan=LONG)
def test_random_training_is_bit_identical_under_run_and_exact_changes(plan):
    expected = results_of(plan)
    results, tried = watched_results_of(plan, tries=False)
    assert_same_bits(results, expected)
    assert not tried
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trying, "plan_changes", exact_changes)
        results, tried = watched_results_of(plan, tries=True)
    assert_same_bits(results, expected)
    if plan is LONG:
        assert any(change.config for change in tried)
        assert any(change.keep_memory for change in tried)


@settings(max_examples=max(1, settings.default.max_examples // 8))
@given(plan=PLANS, optimizer=st.sampled_from(["SGD", "MomentumSGD"]))
@example(plan=LONG, optimizer="SGD")
def test_random_training_differs_only_by_rounding_with_other_kernels(plan, optimizer):
    """Other kernels round float32 differently, which optimizers such as Adam amplify."""
    is_long, plan = plan is LONG, replace(plan, optimizer=optimizer)
    expected = results_of(plan)
    results, tried = watched_results_of(plan, tries=True)
    arrays, exact = results["arrays"], expected["arrays"]
    for name in ("arrays", "losses", "snapshots"):
        del results[name], expected[name]
    assert results == expected
    assert arrays.keys() == exact.keys()
    for name, array in exact.items():
        if array is not None and not name.endswith("gradient"):
            np.testing.assert_allclose(arrays[name], array, rtol=1e-3, atol=1e-4)
    assert not is_long or any(change.kernels for change in tried)
