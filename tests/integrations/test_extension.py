"""LayerProfile has rows for a training, and does not change it.

tests/ledger checks that rows and framework add up to the iteration, and that times are exact.
"""

import _tracemalloc
import gc
from functools import partial

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest
from chainer import training
from chainer.training.updaters import ParallelUpdater, StandardUpdater

from chainer_profile import LayerProfile
from chainer_profile.integrations import trainer as extension
from chainer_profile.measure import iterations, memory
from chainer_profile.measure.memory import HostCounter
from chainer_profile.record.journal import recover
from chainer_profile.runs.folder import Path, load_run
from tests import names_in
from tests.command import (
    FILES,
    folder,  # noqa: F401  (plots and limits cost nothing)
    raising,
)
from tests.nets import MLP, net
from tests.queues import check, device_clock

concat = chainer.dataset.concat_examples


fail = raising(ZeroDivisionError("here"))


def trainer_of(iterations=20, model=None, updater=StandardUpdater, **kwargs):
    """A Trainer with batches of 4 from 12 examples."""
    np.random.seed(0)  # noqa: NPY002  (Chainer's initialisers draw from it)
    optimizer = chainer.optimizers.MomentumSGD(0.1).setup(L.Classifier(model or MLP()))
    optimizer.add_hook(chainer.optimizer_hooks.WeightDecay(1e-4))
    x = np.random.RandomState(0).rand(12, 3).astype(np.float32)
    data = chainer.datasets.TupleDataset(x, (x.sum(axis=1) > 1.5).astype(np.int32))
    iterator = chainer.iterators.SerialIterator(data, 4, shuffle=False)
    updater = updater(iterator, optimizer, **kwargs)
    return training.Trainer(updater, (iterations, "iteration"), out="result")


def run_profiled(trainer, **kwargs):
    trainer.extend(LayerProfile(**kwargs))
    trainer.run()
    return load_run(sorted(Path("result").iterdir())[-1])


def each_iteration(trainer, function, name="each"):
    trainer.extend(function, name=name, trigger=(1, "iteration"))


def test_iterations_have_rows_of_data_network_loss_and_optimizer(monkeypatch):
    monkeypatch.setattr(iterations, "GROUP_NS", 0)  # each iteration is written at its end
    trainer, journal = trainer_of(20), []

    def look(trainer):
        if trainer.updater.iteration == 19:
            journal.append(recover(Path("result/profile/recording.journal")).n_trials)

    each_iteration(trainer, look)
    recording = run_profiled(trainer)
    assert journal == [19]  # trials that a killed training would leave
    assert recording.iteration.tolist() == [*range(1, 21)]
    assert recording.rank is recording.arrived_ns is None
    assert not len(recording.clean_ns)
    assert set(names_in("result/profile")) == set(FILES)
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
    settings = recording.settings
    assert (settings.model, settings.batchsize, settings.optimizer) == ("MLP", 4, "MomentumSGD")
    calls = {link.path: link.calls for link in recording.links}
    assert calls == dict.fromkeys(("/", "/predictor", "/predictor/fc1", "/predictor/fc2"), 1)


@pytest.mark.parametrize("report", [True, False])
def test_iterations_are_reported_only_if_requested(report):
    trainer, reports = trainer_of(20), []
    trainer.updater.iteration = 5  # as after loading a snapshot
    each_iteration(trainer, lambda trainer: reports.append(dict(trainer.observation)))
    recording = run_profiled(trainer, report=report, memory=True)
    reports = [values for values in reports if any(name.startswith("profile/") for name in values)]
    assert len(reports) == (recording.n_trials if report else 0)
    assert recording.iteration.tolist() == [6, *range(9, 21)]
    whole_ns = recording.self_ns.sum(axis=1) + recording.framework_ns.sum(axis=1)
    phases = {f"profile/{layer.phase}" for layer in recording.layers}
    for values, all_ns, self_ns in zip(reports, whole_ns, recording.self_ns, strict=False):
        assert sum(values[name] for name in phases) == pytest.approx(all_ns / 1e6)
        layers = [values[name] for name in values if name.startswith("profile/layer/")]
        assert len(layers) == 5
        assert sum(layers) <= self_ns.sum() / 1e6


def assert_profile_removed():
    assert not _tracemalloc.is_tracing()
    assert gc.isenabled()
    assert not chainer.get_function_hooks()
    assert not chainer._get_link_hooks()


@pytest.mark.parametrize("memory", [False, True])
def test_profile_does_not_change_a_training_and_is_removed(memory):
    def run(**profiled):
        np.random.seed(0)  # noqa: NPY002  (of the weights)
        # Dropout draws from NumPy's generator in each call.
        trainer, losses = trainer_of(model=MLP(lambda y, number: F.dropout(y))), []
        each_iteration(trainer, lambda t: losses.append(float(t.observation["main/loss"].array)))
        model = trainer.updater.get_optimizer("main").target
        np.random.seed(1)  # noqa: NPY002
        recording = run_profiled(trainer, **profiled) if profiled else trainer.run()
        params = [param for _, param in sorted(model.namedparams())]
        weights = [[p.array.tobytes(), p.update_rule.state["v"].tobytes()] for p in params]
        return recording, losses, weights

    recording, *profiled = run(memory=memory)
    assert profiled == list(run()[1:])
    assert len(profiled[0]) == 20
    assert (recording.memory is not None) is memory
    assert_profile_removed()


# Iterations that fail: the first one, the first one with counted allocations, the memory pass and a
# later one; finally another extension during the memory pass.
@pytest.mark.parametrize(("call", "n_trials"), [(1, 0), (2, 1), (3, 1), (8, 5), (None, 1)])
def test_exception_in_a_training_keeps_measured_iterations(call, n_trials):
    trainer = trainer_of(model=MLP(lambda y, number: fail() if number == call else y))
    if call is None:
        each_iteration(trainer, lambda trainer: _tracemalloc.is_tracing() and fail())
    trainer.extend(LayerProfile(memory=True))
    with pytest.raises(ZeroDivisionError, match="here"):
        trainer.run(show_loop_exception_msg=False)
    assert_profile_removed()
    assert "update" not in vars(trainer.updater.get_optimizer("main"))
    if n_trials:
        assert load_run(Path("result/profile")).n_trials == n_trials
    else:
        assert not Path("result/profile").exists()


# -- updaters and optimizers


class TwoModels(StandardUpdater):
    """Two networks, each with an optimizer."""

    def __init__(self, iterator, optimizer):
        self.models = {"main": optimizer.target.predictor, "other": MLP()}
        second = chainer.optimizers.Adam().setup(self.models["other"])
        super().__init__(iterator, {"main": optimizer, "other": second})

    def update_core(self):
        x = concat(self.get_iterator("main").next())[0]
        for name, link in self.models.items():
            self.get_optimizer(name).update(lambda link=link: F.sum(link(x)))


class CustomLoop(StandardUpdater):
    """An iteration of two batches, with explicit forward and backward."""

    def update_core(self):
        optimizer, iterator = self.get_optimizer("main"), self.get_iterator("main")
        batch = iterator.next() + iterator.next()
        converted = chainer.dataset.convert._call_converter(self.converter, batch, self.device)
        loss = optimizer.target(*converted)
        optimizer.target.cleargrads()
        loss.backward()
        optimizer.update()


def test_iterations_of_custom_updaters():
    def paths(recording):
        return {(layer.phase, layer.path) for layer in recording.layers}

    recording = run_profiled(trainer_of(updater=TwoModels))
    assert {("update", "/main/predictor/fc1"), ("update", "/other/fc2")} <= paths(recording)
    assert {("backward", "/other/fc1"), ("forward", "loss")} <= paths(recording)
    assert recording.settings.optimizer == "MomentumSGD and Adam"

    def converter(batch, device):
        assert device == -1  # the converter is of the old style
        return concat(batch)

    recording = run_profiled(trainer_of(updater=CustomLoop, converter=converter, device=-1))
    assert recording.phases == ("forward", "backward", "update")
    # The inputs of all batches of an iteration count.
    assert recording.settings.batchsize == 8
    assert ("data", "converter") in {(layer.path, layer.function) for layer in recording.layers}

    # Copies of the network have their own paths.
    devices = {"main": "@numpy", "second": "@numpy"}
    recording = run_profiled(trainer_of(updater=ParallelUpdater, devices=devices))
    for path in ("/predictor/fc1", "/second/predictor/fc2"):
        assert {("forward", path), ("backward", path)} <= paths(recording)
    assert {link.calls for link in recording.links} == {1}


# -- the memory pass, and devices

KB = 1000


def test_memory_of_layers_in_a_training():
    """A batch of 4 takes 4 MB in each of two activations, and the weights take 12 kB."""
    links = {"fc": L.Linear(3, 250 * KB), "out": L.Linear(250 * KB, 2)}
    recording = run_profiled(
        trainer_of(model=net(lambda self, x: self.out(F.tanh(self.fc(x))), **links)), memory=True
    )
    use, near = recording.memory, partial(pytest.approx, abs=50 * KB)
    rows = {(row.phase, row.function): row.index for row in recording.layers[::-1]}
    activation, weights = 4 * 250 * KB * 4, (3 + 1 + 2) * 250 * KB * 4
    for row in (rows["forward", "LinearFunction"], rows["forward", "Tanh"]):
        # Older versions of NumPy allocate a buffer to add the bias.
        assert use.peak_nbytes[row] == near(activation, abs=10 * KB + 4 * np.getbufsize())
        assert use.retained_nbytes[row] == near(activation)
    # The gradients are from the previous iteration, which counted them.
    assert use.retained_nbytes[rows["backward", "cleargrads"]] == near(-weights)
    # Four examples of three numbers, and labels.
    assert (use.parameter_nbytes, use.input_nbytes) == (weights + 8, 4 * (3 * 4 + 4))
    # Tanh keeps its output; the output of Linear is freed.
    assert use.kept_for_backward_nbytes == near(activation)
    assert [phase.phase for phase in use.phases] == ["data", "forward", "backward", "update"]
    # The iteration retains as much as the previous one: gradients, and the graph of the loss.
    assert sum(phase.retained_nbytes for phase in use.phases) == near(0)
    assert use.high_water_nbytes == max(phase.high_nbytes for phase in use.phases)


@pytest.mark.parametrize(
    ("owner", "name", "message", "n_trials"),
    [
        (HostCounter, "counting", "memory cannot be counted: OSError: none", 19),
        (HostCounter, "read", "memory cannot be counted: OSError: none", 18),
        (memory, "memory_use", "the memory pass failed: OSError: none", 18),
    ],
)
def test_failed_memory_counter_warns_once_and_the_training_continues(
    owner, name, message, n_trials, monkeypatch
):
    monkeypatch.setattr(owner, name, raising(OSError("none")))
    with pytest.warns(UserWarning, match=message) as caught:
        recording = run_profiled(trainer_of(), memory=True)
    assert len(caught) == 1
    assert (recording.memory, recording.n_trials) == (None, n_trials)
    assert_profile_removed()


def test_iterations_on_a_device_have_device_times(monkeypatch):
    clock = device_clock()
    monkeypatch.setattr(extension, "clock_of", lambda device: clock)

    def launch(y, number):
        clock.advance(10)
        clock.device.launch(500)  # between the layers
        return y

    recording = run_profiled(trainer_of(model=MLP(launch)))
    check(recording)
    # Kernels end within their iteration, so no iteration waits for an earlier one.
    times = [recording.trial_ns, recording.launch_ns, recording.span_ns]
    assert [set(ns.tolist()) for ns in times] == [{510}, {10}, {510}]
    assert not recording.self_ns.any()
