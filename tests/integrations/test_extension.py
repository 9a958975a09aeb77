"""LayerProfile: what it profiles of a training, and that the training does not notice."""

from __future__ import annotations

import gc
import socket
import tracemalloc
import warnings
import weakref

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest
from chainer import training
from chainermn import create_multi_node_optimizer

from chainer_profile import LayerProfile, summarise
from chainer_profile.record.journal import recover
from chainer_profile.record.recording import Rank
from chainer_profile.runs.folder import Path, load_run
from tests import names_in
from tests.command import FILES as RUN_FILES
from tests.command import folder  # noqa: F401  (plots and limits cost nothing)
from tests.conftest import CALIBRATION, FakeClock
from tests.measure.ranked import Made

FILES = set(RUN_FILES)


class Net(chainer.Chain):
    """Two linear layers."""

    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.fc1 = L.Linear(3, 4)
            self.fc2 = L.Linear(4, 2)

    def forward(self, x):
        return self.fc2(F.relu(self.fc1(x)))


class At(Net):
    """Does something with its output in one of its calls."""

    def __init__(self, call, does):
        super().__init__()
        self.calls, self.call, self.does = 0, call, does

    def forward(self, x):
        self.calls += 1
        y = super().forward(x)
        return self.does(y) if self.calls == self.call else y


def fail(y):
    raise ZeroDivisionError("here")


def dataset(count=12):
    rng = np.random.RandomState(0)
    x = rng.rand(count, 3).astype(np.float32)
    return chainer.datasets.TupleDataset(x, (x.sum(axis=1) > 1.5).astype(np.int32))


def trainer_of(
    iterations=20,
    batchsize=4,
    model=None,
    repeat_size=12,
    optimizer=None,
    updater=training.updaters.StandardUpdater,
    **kwargs,
):
    np.random.seed(0)  # noqa: NPY002  (Chainer's initialisers draw from it)
    model = L.Classifier(model or Net())
    optimizer = optimizer or chainer.optimizers.MomentumSGD(0.1)
    optimizer.setup(model)
    optimizer.add_hook(chainer.optimizer_hooks.WeightDecay(1e-4))
    iterator = chainer.iterators.SerialIterator(dataset(repeat_size), batchsize, shuffle=False)
    updater = updater(iterator, optimizer, **kwargs)
    return training.Trainer(updater, (iterations, "iteration"), out="result")


def run_profiled(trainer, **kwargs):
    trainer.extend(LayerProfile(**{"trigger": (5, "iteration")} | kwargs))
    trainer.run()
    return load_run(Path("result/profile"))


def losses_of(trainer):
    losses = []
    trainer.extend(
        lambda t: losses.append(float(t.observation["main/loss"].array)),
        name="losses",
        trigger=(1, "iteration"),
    )
    return losses


def test_the_iteration_after_each_firing_is_profiled():
    # Fires after 5, 10, 15, 20: 6, 11, 16 are profiled; 21 never comes.
    recording = run_profiled(trainer_of(20))
    assert recording.iteration.tolist() == [6, 11, 16]
    assert recording.rank is recording.arrived_ns is None
    # All others but the two of the memory pass.
    assert len(recording.clean_ns) == 20 - 3 - 2
    assert set(names_in("result/profile")) == FILES


def test_rows_of_data_network_loss_and_optimizer():
    recording = run_profiled(trainer_of())
    rows = [(layer.phase, layer.path, layer.function) for layer in recording.layers]
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
    assert recording.settings.model == "Net"
    assert recording.settings.batchsize == 4
    assert recording.settings.optimizer == "MomentumSGD"
    calls = {link.path: link.calls for link in recording.links}
    assert calls == {"/": 1, "/predictor": 1, "/predictor/fc1": 1, "/predictor/fc2": 1}


def test_profiled_iterations_are_reported():
    trainer = trainer_of(20)
    seen = []
    trainer.extend(
        lambda t: seen.append({k: v for k, v in t.observation.items() if k.startswith("profile/")}),
        name="seen",
        trigger=(1, "iteration"),
    )
    recording = run_profiled(trainer, report=True)
    reported = [found for found in seen if found]
    assert len(reported) == recording.n_trials == 3
    for found, own, framework in zip(
        reported, recording.self_ns, recording.framework_ns, strict=True
    ):
        phases = [name for name in found if name.count("/") == 1]
        assert set(phases) == {f"profile/{layer.phase}" for layer in recording.layers}
        whole_ns = own.sum() + framework.sum()
        assert sum(found[name] for name in phases) == pytest.approx(whole_ns / 1e6)
        layers = [name for name in found if name.startswith("profile/layer/")]
        assert len(layers) == 5
        assert sum(found[name] for name in layers) <= own.sum() / 1e6
    # Without being asked for there is nothing.
    trainer = trainer_of(20)
    seen.clear()
    trainer.extend(LayerProfile(trigger=(5, "iteration"), out="other"))
    trainer.extend(lambda t: seen.extend(t.observation), name="seen", trigger=(1, "iteration"))
    trainer.run()
    assert not [name for name in seen if name.startswith("profile/")]


def test_everything_adds_up_to_the_iteration():
    recording = run_profiled(trainer_of())
    rest = recording.trial_ns - recording.self_ns.sum(axis=1) - recording.framework_ns.sum(axis=1)
    assert (rest >= 0).all()
    assert (recording.self_ns > 0).all()
    summary = summarise(recording)
    assert summary.phases["total_s"].sum() == pytest.approx(summary.totals.profiled.mean_s)


class Dropping(Net):
    """Draws from NumPy's generator in each call."""

    def forward(self, x):
        return F.dropout(super().forward(x))


def weights_of(trainer):
    optimizer = trainer.updater.get_optimizer("main")
    state = [rule.state["v"].tobytes() for rule in rules_of(optimizer)]
    return state + [param.array.tobytes() for _, param in sorted(optimizer.target.namedparams())]


def rules_of(optimizer):
    return [param.update_rule for _, param in sorted(optimizer.target.namedparams())]


@pytest.mark.parametrize("memory", [False, True])
@pytest.mark.parametrize("trigger", [5, 1])
def test_a_training_comes_out_the_same_with_and_without(trigger, memory):
    np.random.seed(0)  # noqa: NPY002  (of the weights; dropout's is that of trainer_of)
    plain = trainer_of(model=Dropping())
    expected = losses_of(plain)
    plain.run()
    np.random.seed(0)  # noqa: NPY002
    profiled = trainer_of(model=Dropping())
    losses = losses_of(profiled)
    recording = run_profiled(profiled, trigger=(trigger, "iteration"), memory=memory)
    assert losses == expected
    assert len(losses) == 20
    assert weights_of(profiled) == weights_of(plain)
    assert (recording.memory is not None) is memory


def test_nothing_of_it_is_left_behind():
    trainer = trainer_of()
    optimizer = trainer.updater.get_optimizer("main")
    objects = [trainer.updater, optimizer, optimizer.target, trainer.updater.get_iterator("main")]
    objects += [param.update_rule for param in optimizer.target.params()]

    def methods():
        return [{name for name, value in vars(item).items() if callable(value)} for item in objects]

    before = methods()
    run_profiled(trainer)
    assert methods() == before
    assert not tracemalloc.is_tracing()
    assert gc.isenabled()
    assert not chainer.get_function_hooks()
    assert not chainer._get_link_hooks()


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
        return chainer.dataset.concat_examples(batch, device)

    trainer = trainer_of(optimizer=Optimizer(0.1), converter=converter)
    trainer.updater._iterators["main"] = Iterator(dataset(), 4)
    recording = run_profiled(trainer, clock=clock)
    times = {
        (layer.phase, layer.path): set(recording.self_ns[:, layer.index].tolist())
        for layer in recording.layers
        if layer.function in ("Iterator", "Optimizer") or layer.function == "converter"
    }
    assert times == {
        ("data", "data"): {300},  # the converter; the iterator's row has the same place
        ("update", "/predictor/fc1"): {100},
        ("update", "/predictor/fc2"): {100},
    }
    assert recording.layers[0].function == "Iterator"
    assert recording.self_ns[:, 0].tolist() == [1000] * 3
    assert recording.trial_ns.tolist() == [1500] * 3
    assert recording.clean_ns.tolist() == [1500] * 15
    assert recording.conditions.calibrations == (CALIBRATION,)
    assert recording.clean_cpu_ns is not None


def test_iterations_may_differ():
    class Changing(Net):
        calls = 0

        def forward(self, x):
            self.calls += 1
            h = super().forward(x[: 4 if self.calls % 2 else 2])
            return F.pad(
                F.tanh(h) if self.calls == 11 else h, ((0, 4 - len(h)), (0, 0)), "constant"
            )

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        recording = run_profiled(trainer_of(model=Changing()), trigger=(1, "iteration"))
    # But for the first one, which is before the first firing, and those of the memory pass.
    assert recording.iteration.tolist() == [2, *range(5, 21)]
    assert recording.left_out == 0
    rows = [(layer.phase, layer.path, layer.function) for layer in recording.layers]
    assert len(set(rows)) == len(rows)
    for phase in ("forward", "backward"):
        calls = recording.calls[:, rows.index((phase, "/predictor", "Tanh"))]
        assert calls.tolist() == (recording.iteration == 11).astype(int).tolist()
    # Half of the batches are half as large.
    flops = {layer.path: layer.flops for layer in recording.layers if layer.phase == "forward"}
    alone = run_profiled(trainer_of(), out="alone") and load_run(Path("result/alone"))
    whole = {layer.path: layer.flops for layer in alone.layers if layer.phase == "forward"}
    shorter = int((recording.iteration % 2 == 0).sum())
    assert flops["/predictor/fc1"] == round(whole["/predictor/fc1"] * (17 - shorter / 2) / 17)


def test_an_exception_of_the_training_is_its_own_and_what_was_measured_is_kept():
    trainer = trainer_of(model=At(18, fail))
    trainer.extend(LayerProfile(trigger=(5, "iteration")))
    with pytest.raises(ZeroDivisionError, match="here"):
        trainer.run(show_loop_exception_msg=False)
    assert load_run(Path("result/profile")).n_trials == 3
    assert not chainer.get_function_hooks()


# The first profiled one, the one from which on allocations are counted, and the traced one.
@pytest.mark.parametrize("call", [6, 7, 8])
def test_an_exception_in_an_iteration_under_hooks(call):
    trainer = trainer_of(model=At(call, fail))
    optimizer = trainer.updater.get_optimizer("main")
    trainer.extend(LayerProfile(trigger=(5, "iteration")))
    with pytest.raises(ZeroDivisionError, match="here"):
        trainer.run(show_loop_exception_msg=False)
    assert not chainer.get_function_hooks()
    assert not chainer._get_link_hooks()
    assert not tracemalloc.is_tracing()
    assert gc.isenabled()
    assert "update" not in vars(optimizer)
    if call == 6:
        assert not Path("result/profile").exists()
    else:
        assert load_run(Path("result/profile")).n_trials == 1


def test_a_killed_training_leaves_its_journal():
    trainer = trainer_of()
    seen = []

    def look(trainer):
        if trainer.updater.iteration == 19:
            seen.append(recover(Path("result/profile/recording.journal")).n_trials)

    trainer.extend(look, name="look", trigger=(1, "iteration"))
    run_profiled(trainer)
    assert seen == [3]


def test_a_second_training_in_the_same_folder_takes_another_one():
    run_profiled(trainer_of())
    run_profiled(trainer_of())
    assert set(names_in("result/profile-2")) == FILES


def test_a_folder_that_cannot_be_written_does_not_stop_the_training():
    Path("result").mkdir()
    Path("result/blocked").write_text("a file")
    trainer = trainer_of()
    losses = losses_of(trainer)
    trainer.extend(LayerProfile(trigger=(5, "iteration"), out="blocked/below"))
    with pytest.warns(UserWarning, match="LayerProfile"):
        trainer.run()
    assert len(losses) == 20


def test_no_firing_writes_nothing():
    trainer = trainer_of(3)
    trainer.extend(LayerProfile())
    trainer.run()
    assert not Path("result/profile").exists()


def test_graphs_are_freed_at_once():
    alive = []

    class Keeping(Net):
        def forward(self, x):
            y = super().forward(x)
            alive.append(weakref.ref(y.creator_node))
            return y

    gc.disable()
    try:
        # The last one's graph hangs on the observation, as without a profiler.
        run_profiled(trainer_of(model=Keeping()))
        assert [ref() for ref in alive[:-1]] == [None] * 19
    finally:
        gc.enable()


def test_two_optimizers_have_their_names_in_the_paths():
    def updater(iterator, optimizer):
        other = Net()
        second = chainer.optimizers.Adam()
        second.setup(other)

        class Both(training.updaters.StandardUpdater):
            def update_core(self):
                x = chainer.dataset.concat_examples(self.get_iterator("main").next())[0]
                for name, link in (("main", optimizer.target.predictor), ("other", other)):
                    self.get_optimizer(name).update(lambda link=link: F.sum(link(x)))

        return Both(iterator, {"main": optimizer, "other": second})

    recording = run_profiled(trainer_of(updater=updater))
    paths = {(layer.phase, layer.path) for layer in recording.layers}
    assert {("forward", "/main/predictor/fc1"), ("forward", "/other/fc1")} <= paths
    assert {("update", "/main/predictor/fc1"), ("update", "/other/fc2")} <= paths
    assert ("backward", "/other/fc1") in paths
    assert ("forward", "loss") in paths
    assert recording.settings.optimizer == "MomentumSGD and Adam"


def test_an_updater_that_goes_its_own_way():
    def updater(iterator, optimizer):
        class Own(training.updaters.StandardUpdater):
            def update_core(self):
                x, t = chainer.dataset.concat_examples(self.get_iterator("main").next())
                loss = optimizer.target(x, t)
                optimizer.target.cleargrads()
                loss.backward()
                optimizer.update()

        return Own(iterator, optimizer)

    recording = run_profiled(trainer_of(updater=updater))
    phases = list(dict.fromkeys(layer.phase for layer in recording.layers))
    assert phases == ["data", "forward", "backward", "update"]
    assert recording.phases == ("forward", "backward", "update")


@pytest.mark.parametrize("memory", [False, True])
def test_two_in_one_training(memory):
    trainer = trainer_of()
    for name in ("first", "second"):
        trainer.extend(LayerProfile((5, "iteration"), name, memory=memory, machine=False))
    trainer.run()
    assert "update" not in vars(trainer.updater)
    assert trainer.updater.iteration == 20
    for name in ("first", "second"):
        recording = load_run(Path("result", name))
        assert recording.n_trials == 3
        backward = {a.path for a in recording.layers if a.phase == "backward"}
        assert {"/predictor/fc1", "/predictor", "/predictor/fc2"} <= backward


class MultiNode:
    """As ChainerMN's: it stands for an optimizer, and sets that one's attributes."""

    def __init__(self, actual_optimizer):
        vars(self)["actual_optimizer"] = actual_optimizer

    def update(self, lossfun=None, *args, **kwargs):
        loss = lossfun(*args, **kwargs)
        self.target.cleargrads()
        loss.backward()
        self.actual_optimizer.update(None)

    def setup(self, link):
        self.actual_optimizer.setup(link)
        return self

    def __getattr__(self, name):
        return getattr(self.actual_optimizer, name)

    def __setattr__(self, name, value):
        setattr(self.actual_optimizer, name, value)


def test_an_optimizer_that_stands_for_another():
    optimizer = MultiNode(chainer.optimizers.MomentumSGD(0.1))
    recording = run_profiled(trainer_of(optimizer=optimizer))
    alone = run_profiled(trainer_of(), out="alone")
    alone = load_run(Path("result/alone"))
    rows = [[(a.phase, a.path, a.function) for a in one.layers] for one in (recording, alone)]
    assert rows[0] == rows[1]
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


def test_a_parallel_updaters_copies_have_paths_of_their_own():
    recording = run_profiled(
        trainer_of(
            updater=training.updaters.ParallelUpdater,
            devices={"main": "@numpy", "second": "@numpy"},
        )
    )
    for phase in ("forward", "backward"):
        paths = {a.path for a in recording.layers if a.phase == phase}
        for prefix in ("", "/second"):
            assert {f"{prefix}/predictor/fc1", f"{prefix}/predictor/fc2"} <= paths
    assert {a.path for a in recording.layers if a.function == "SoftmaxCrossEntropy"} == {
        "/",
        "/second",
    }
    assert {link.calls for link in recording.links} == {1}


def test_the_inputs_of_all_batches_of_an_iteration_count():
    class Twice(training.updaters.StandardUpdater):
        def update_core(self):
            for _ in range(2):
                super().update_core()

    assert run_profiled(trainer_of(updater=Twice)).settings.batchsize == 8


def test_an_old_style_converter_stays_one():
    seen = []

    def converter(batch, device):
        seen.append(device)
        return chainer.dataset.concat_examples(batch)

    run_profiled(trainer_of(converter=converter, device=-1))
    assert set(seen) == {-1}
