"""LayerProfile: what it profiles of a training, and that the training does not notice.

That rows and framework are the iteration is in tests/ledger.
"""

from __future__ import annotations

import gc
import itertools
import socket
import tracemalloc
import weakref

import chainer
import chainer.functions as F
import numpy as np
import pytest
from chainer import training
from chainer.links import Classifier
from chainer.training.updaters import ParallelUpdater, StandardUpdater
from chainermn import create_multi_node_optimizer

from chainer_profile import LayerProfile
from chainer_profile.record.journal import recover
from chainer_profile.record.recording import Rank
from chainer_profile.runs.folder import Path, load_run
from tests import names_in
from tests.command import (
    FILES,
    folder,  # noqa: F401  (plots and limits cost nothing)
)
from tests.conftest import CALIBRATION, FakeClock
from tests.measure.ranked import Made
from tests.nets import MLP

NUMBERS = itertools.count()
concat = chainer.dataset.concat_examples


def at(call, does):
    """A network that does something with its output in one of its calls."""
    return MLP(lambda y, number: does(y) if number == call else y)


def fail(*_):
    raise ZeroDivisionError("here")


def dataset(count=12):
    x = np.random.RandomState(0).rand(count, 3).astype(np.float32)
    return chainer.datasets.TupleDataset(x, (x.sum(axis=1) > 1.5).astype(np.int32))


def trainer_of(iterations=20, model=None, optimizer=None, updater=StandardUpdater, **kwargs):
    """A training with batches of 4; its data are the same 12 examples over and over."""
    np.random.seed(0)  # noqa: NPY002  (Chainer's initialisers draw from it)
    model = Classifier(model or MLP())
    optimizer = optimizer or chainer.optimizers.MomentumSGD(0.1)
    optimizer.setup(model)
    optimizer.add_hook(chainer.optimizer_hooks.WeightDecay(1e-4))
    iterator = chainer.iterators.SerialIterator(dataset(), 4, shuffle=False)
    updater = updater(iterator, optimizer, **kwargs)
    return training.Trainer(updater, (iterations, "iteration"), out="result")


def run_profiled(trainer, **kwargs):
    given = {"trigger": (5, "iteration"), "out": f"run{next(NUMBERS)}"} | kwargs
    trainer.extend(LayerProfile(**given))
    trainer.run()
    return load_run(Path("result", given["out"]))


def each_iteration(trainer, does, name="each"):
    trainer.extend(does, name=name, trigger=(1, "iteration"))


def losses_of(trainer):
    losses = []
    each_iteration(trainer, lambda t: losses.append(float(t.observation["main/loss"].array)))
    return losses


def rows_of(recording):
    return [(layer.phase, layer.path, layer.function) for layer in recording.layers]


def test_the_iteration_after_each_firing_has_rows_of_data_network_loss_and_optimizer():
    # Fires after 5, 10, 15, 20: 6, 11, 16 are profiled; 21 never comes.
    recording = run_profiled(trainer_of(20), out="profile")
    assert recording.iteration.tolist() == [6, 11, 16]
    assert recording.rank is recording.arrived_ns is None
    # All others but the two of the memory pass.
    assert len(recording.clean_ns) == 20 - 3 - 2
    assert set(names_in("result/profile")) == set(FILES)
    rows = rows_of(recording)
    assert rows[:7] == [
        ("data", "data", "SerialIterator"),
        ("data", "data", "concat_examples"),
        ("forward", "/predictor/fc1", "LinearFunction"),
        ("forward", "/predictor", "ReLU"),
        ("forward", "/predictor/fc2", "LinearFunction"),
        ("forward", "/", "SoftmaxCrossEntropy"),
        ("forward", "/", "Accuracy"),
    ]
    assert ("backward", "/predictor/fc1", "LinearFunction") in rows
    assert ("update", "optimizer", "WeightDecay") in rows
    assert ("update", "/predictor/fc2", "MomentumSGD") in rows
    made = recording.settings
    assert (made.model, made.batchsize, made.optimizer) == ("MLP", 4, "MomentumSGD")
    calls = {link.path: link.calls for link in recording.links}
    assert calls == {"/": 1, "/predictor": 1, "/predictor/fc1": 1, "/predictor/fc2": 1}


def test_profiled_iterations_are_reported_where_that_is_asked_for():
    for report in (True, False):
        trainer, seen = trainer_of(20), []

        def see(trainer, seen=seen):
            found = trainer.observation.items()
            seen.append({name: ms for name, ms in found if name.startswith("profile/")})

        each_iteration(trainer, see)
        recording = run_profiled(trainer, report=report)
        reported = [found for found in seen if found]
        assert len(reported) == (3 if report else 0)
        for found, own, framework in zip(
            reported, recording.self_ns, recording.framework_ns, strict=False
        ):
            phases = [name for name in found if name.count("/") == 1]
            assert set(phases) == {f"profile/{layer.phase}" for layer in recording.layers}
            whole_ns = own.sum() + framework.sum()
            assert sum(found[name] for name in phases) == pytest.approx(whole_ns / 1e6)
            layers = [name for name in found if name.startswith("profile/layer/")]
            assert len(layers) == 5
            assert sum(found[name] for name in layers) <= own.sum() / 1e6


def weights_of(trainer):
    model = trainer.updater.get_optimizer("main").target
    params = [param for _, param in sorted(model.namedparams())]
    return [[p.array.tobytes(), p.update_rule.state["v"].tobytes()] for p in params]


def methods_of(trainer):
    optimizer = trainer.updater.get_optimizer("main")
    objects = [trainer.updater, optimizer, optimizer.target, trainer.updater.get_iterator("main")]
    objects += [param.update_rule for param in optimizer.target.params()]
    return [{name for name, value in vars(item).items() if callable(value)} for item in objects]


def nothing_runs():
    assert not tracemalloc.is_tracing()
    assert gc.isenabled()
    assert not chainer.get_function_hooks()
    assert not chainer._get_link_hooks()


@pytest.mark.parametrize("memory", [False, True])
@pytest.mark.parametrize("trigger", [5, 1])
def test_a_training_comes_out_the_same_with_and_without_and_nothing_is_left(trigger, memory):
    def training_of():
        np.random.seed(0)  # noqa: NPY002  (of the weights)
        # Draws from NumPy's generator in each call.
        return trainer_of(model=MLP(lambda y, number: F.dropout(y)))

    plain, profiled = training_of(), training_of()
    expected, losses = losses_of(plain), losses_of(profiled)
    before = methods_of(profiled)
    np.random.seed(1)  # noqa: NPY002
    plain.run()
    np.random.seed(1)  # noqa: NPY002
    recording = run_profiled(profiled, trigger=(trigger, "iteration"), memory=memory)
    assert losses == expected
    assert len(losses) == 20
    assert weights_of(profiled) == weights_of(plain)
    assert (recording.memory is not None) is memory
    assert methods_of(profiled) == before
    nothing_runs()


def test_exact_times_on_a_fake_clock():
    clock = FakeClock()

    class Iterator(chainer.iterators.SerialIterator):
        def next(self):
            clock.advance(1000)
            return super().next()

    class Rule(chainer.optimizers.sgd.SGDRule):
        def update_core(self, param):
            clock.advance(50)
            super().update_core(param)

    class Optimizer(chainer.optimizers.SGD):
        def create_update_rule(self):
            return Rule(self.hyperparam)

    def converter(batch, device):
        clock.advance(300)
        return concat(batch, device)

    trainer = trainer_of(optimizer=Optimizer(0.1), converter=converter)
    trainer.updater._iterators["main"] = Iterator(dataset(), 4)
    recording = run_profiled(trainer, clock=clock)
    times = {row: recording.self_ns[:, n].tolist() for n, row in enumerate(rows_of(recording))}
    assert {row: ns for row, ns in times.items() if any(ns)} == {
        ("data", "data", "Iterator"): [1000] * 3,
        ("data", "data", "converter"): [300] * 3,
        ("update", "/predictor/fc1", "Optimizer"): [100] * 3,
        ("update", "/predictor/fc2", "Optimizer"): [100] * 3,
    }
    assert recording.trial_ns.tolist() == [1500] * 3
    assert recording.clean_ns.tolist() == [1500] * 15
    assert recording.conditions.calibrations == (CALIBRATION,)
    assert recording.clean_cpu_ns is not None


# The first profiled one, the one from which on allocations are counted, the traced one, and a
# later one.
@pytest.mark.parametrize(("call", "kept"), [(6, 0), (7, 1), (8, 1), (18, 3)])
def test_an_exception_of_the_training_is_its_own_and_what_was_measured_is_kept(call, kept):
    trainer = trainer_of(model=at(call, fail))
    trainer.extend(LayerProfile(trigger=(5, "iteration")))
    with pytest.raises(ZeroDivisionError, match="here"):
        trainer.run(show_loop_exception_msg=False)
    nothing_runs()
    assert "update" not in vars(trainer.updater.get_optimizer("main"))
    if kept:
        assert load_run(Path("result/profile")).n_trials == kept
    else:
        assert not Path("result/profile").exists()


def test_a_killed_training_leaves_its_journal():
    trainer, seen = trainer_of(), []

    def look(trainer):
        if trainer.updater.iteration == 19:
            seen.append(recover(Path("result/profile/recording.journal")).n_trials)

    each_iteration(trainer, look)
    run_profiled(trainer, out="profile")
    assert seen == [3]


def test_folders():
    trainer = trainer_of(3)
    trainer.extend(LayerProfile())  # which never fires
    trainer.run()
    assert not Path("result/profile").exists()
    for _ in range(2):
        run_profiled(trainer_of(), out="profile")
    assert set(names_in("result/profile-2")) == set(FILES)
    # One that cannot be written does not stop the training.
    Path("result/blocked").write_text("a file")
    trainer = trainer_of()
    losses = losses_of(trainer)
    trainer.extend(LayerProfile(trigger=(5, "iteration"), out="blocked/below"))
    with pytest.warns(UserWarning, match="LayerProfile"):
        trainer.run()
    assert len(losses) == 20


def test_graphs_are_freed_at_once():
    alive = []
    model = MLP(lambda y, number: alive.append(weakref.ref(y.creator_node)) or y)
    gc.disable()
    try:
        # The last one's graph hangs on the observation, as without a profiler.
        run_profiled(trainer_of(model=model))
        assert [ref() for ref in alive[:-1]] == [None] * 19
    finally:
        gc.enable()


# -- updaters and optimizers


def test_two_optimizers_have_their_names_in_the_paths():
    def updater(iterator, optimizer):
        models = {"main": optimizer.target.predictor, "other": MLP()}
        second = chainer.optimizers.Adam().setup(models["other"])

        class Both(StandardUpdater):
            def update_core(self):
                x = concat(self.get_iterator("main").next())[0]
                for name, link in models.items():
                    self.get_optimizer(name).update(lambda link=link: F.sum(link(x)))

        return Both(iterator, {"main": optimizer, "other": second})

    recording = run_profiled(trainer_of(updater=updater))
    paths = {(layer.phase, layer.path) for layer in recording.layers}
    assert {("forward", "/main/predictor/fc1"), ("forward", "/other/fc1")} <= paths
    assert {("update", "/main/predictor/fc1"), ("update", "/other/fc2")} <= paths
    assert {("backward", "/other/fc1"), ("forward", "loss")} <= paths
    assert recording.settings.optimizer == "MomentumSGD and Adam"


class Own(StandardUpdater):
    def update_core(self):
        optimizer = self.get_optimizer("main")
        loss = optimizer.target(*concat(self.get_iterator("main").next()))
        optimizer.target.cleargrads()
        loss.backward()
        optimizer.update()


class Twice(StandardUpdater):
    def update_core(self):
        for _ in range(2):
            super().update_core()


def test_updaters_that_go_their_own_way():
    recording = run_profiled(trainer_of(updater=Own))
    phases = list(dict.fromkeys(layer.phase for layer in recording.layers))
    assert phases == ["data", "forward", "backward", "update"]
    assert recording.phases == ("forward", "backward", "update")
    # The inputs of all batches of an iteration count.
    assert run_profiled(trainer_of(updater=Twice)).settings.batchsize == 8
    # Copies of the network have paths of their own.
    devices = {"main": "@numpy", "second": "@numpy"}
    recording = run_profiled(trainer_of(updater=ParallelUpdater, devices=devices))
    for phase in ("forward", "backward"):
        paths = {layer.path for layer in recording.layers if layer.phase == phase}
        for prefix in ("", "/second"):
            assert {f"{prefix}/predictor/fc1", f"{prefix}/predictor/fc2"} <= paths
    losses = [a.path for a in recording.layers if a.function == "SoftmaxCrossEntropy"]
    assert set(losses) == {"/", "/second"}
    assert {link.calls for link in recording.links} == {1}


class MultiNode:
    """As ChainerMN's: it stands for an optimizer, and sets that one's attributes."""

    def __init__(self, actual_optimizer):
        vars(self)["actual_optimizer"] = actual_optimizer

    def update(self, lossfun=None, *args, **kwargs):
        loss = lossfun(*args, **kwargs)
        self.target.cleargrads()
        loss.backward()
        self.actual_optimizer.update(None)

    def __getattr__(self, name):
        return getattr(self.actual_optimizer, name)

    def __setattr__(self, name, value):
        setattr(self.actual_optimizer, name, value)


def test_an_optimizer_that_stands_for_another():
    optimizer = MultiNode(chainer.optimizers.MomentumSGD(0.1))
    recording, alone = run_profiled(trainer_of(optimizer=optimizer)), run_profiled(trainer_of())
    assert rows_of(recording) == rows_of(alone)
    assert recording.phases == alone.phases
    assert recording.settings.optimizer == "MomentumSGD"
    assert list(vars(optimizer)) == ["actual_optimizer"]
    assert not {"update", "call_hook"} & set(vars(optimizer.actual_optimizer))


def test_a_rank_has_a_folder_of_its_own():
    optimizer = create_multi_node_optimizer(chainer.optimizers.SGD(), Made(FakeClock()))
    trainer = trainer_of(optimizer=optimizer)
    trainer.extend(LayerProfile((5, "iteration")))
    trainer.run()
    recording = load_run(Path("result/profile/rank-1"))
    assert recording.rank == Rank(1, 2, socket.gethostname())
    assert recording.arrived_ns.shape == (3, 4)
    assert recording.limits is None


def test_an_old_style_converter_stays_one():
    seen = []

    def converter(batch, device):
        seen.append(device)
        return concat(batch)

    run_profiled(trainer_of(converter=converter, device=-1))
    assert set(seen) == {-1}
