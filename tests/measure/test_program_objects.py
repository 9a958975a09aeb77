"""Profiling sets no attribute of networks, optimizers and trainers, so they can be copied."""

import copy
import pickle
from contextlib import contextmanager
from itertools import count

import chainer
import chainer.functions as F
import numpy as np
import pytest
from chainer import training

from chainer_profile import LayerProfile, LayerTimerHook, profile, profiling
from tests.measure.test_patches import T, X, model_and_optimizer, train
from tests.nets import MLP


@contextmanager
def trainer_of(model, optimizer):
    iterator = chainer.iterators.SerialIterator([(X[0], T[0])] * 8, 2)
    updater = training.updaters.StandardUpdater(iterator, optimizer)
    yield training.Trainer(updater, (3, "iteration"), out="result")


def attributes(model, optimizer, *others):
    """Names of all attributes of the program's objects, with the values of functions."""
    objects = [*model.links(), *model.params(), optimizer, optimizer._hookable, *others]
    objects += [param.update_rule for param in model.params()]
    objects += [param.update_rule.hyperparam for param in model.params()]
    return [
        {
            name: value if callable(value) and name != "does" else None
            for name, value in vars(each).items()
        }
        for each in objects
    ]


def test_no_attribute_of_user_objects_is_set(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = chainer.links.Classifier(MLP())
    optimizer = chainer.optimizers.MomentumSGD().setup(model)
    hook = chainer.optimizer_hooks.WeightDecay(0.1)
    optimizer.add_hook(hook)
    model(X, T)
    snapshots = []

    def look():
        snapshots.append(attributes(model, optimizer, hook))

    look()  # after a call a Classifier has its loss as an attribute
    model.predictor.does = lambda y, number: look() or y
    hook_call = type(hook).__call__
    monkeypatch.setattr(type(hook), "__call__", lambda *args: look() or hook_call(*args))

    def run():
        loss = model(X, T)
        model.cleargrads()
        loss.backward()
        optimizer.update()
        look()

    snapshots.clear()
    run()
    expected, before = snapshots[-1], len(snapshots)
    with profiling(memory=False):
        run()
    with LayerTimerHook():
        run()
    profile(model, (X, T), phase="train", optimizer=optimizer, loss="output", trials=2, warmups=1)
    with trainer_of(model, optimizer) as trainer:
        updater = trainer.updater
        iterator, converter = updater.get_iterator("main"), updater.converter
        objects = [trainer, updater, iterator, converter]
        trainer.extend(LayerProfile(machine=False))
        names = [dict(vars(each)) for each in objects]
        changed = []

        def compare(trainer):
            now = [dict(vars(each)) for each in objects]
            for old, new in zip(names, now, strict=True):
                changed.extend(
                    name
                    for name, value in new.items()
                    if callable(value) and value is not old[name]
                )
                changed.extend(new.keys() - old.keys())

        # Compare during an iteration and after it.
        model.predictor.does = lambda y, number: look() or compare(trainer) or y
        trainer.extend(compare, trigger=(1, "iteration"))
        names = [dict(vars(each)) for each in objects]
        trainer.run()
    assert set(changed) <= {"_start_at", "_final_elapsed_time", "observation", "reporter"}
    assert len(snapshots) > before + 10
    for objects in snapshots:
        for now, usual in zip(objects, expected, strict=True):
            assert now.keys() <= usual.keys() | {"use_auto_new_epoch"}  # set by the updater
            functions = {name: value for name, value in now.items() if value is not None}
            assert functions == {name: usual[name] for name in functions}


def copies(model, optimizer):
    """Copy a network with its optimizer in two ways."""
    yield copy.deepcopy((model, optimizer))
    yield pickle.loads(pickle.dumps((model, optimizer)))


def assert_independent(model, optimizer):
    """Check that training a copy changes the copy and not the original."""
    before = {path: param.array.copy() for path, param in model.namedparams()}
    grads = {path: copy.copy(param.grad) for path, param in model.namedparams()}
    for other, its_optimizer in copies(model, optimizer):
        assert its_optimizer.target is other
        other.does = None
        other.cleargrads()
        its_optimizer.update(lambda other=other: F.sum(other(X)))
        other.cleargrads()
        assert any((p.array != before[path]).any() for path, p in other.namedparams())
    for path, param in model.namedparams():
        np.testing.assert_array_equal(param.array, before[path])
        if grads[path] is not None:
            np.testing.assert_array_equal(param.grad, grads[path])


def _hook(model, optimizer):
    with LayerTimerHook():
        train(model, optimizer)
        assert_independent(model, optimizer)


def _profiling(model, optimizer):
    block = profiling()
    with block:
        train(model, optimizer)
        assert_independent(model, optimizer)
    assert block.recording().n_trials == 1


def _profile(model, optimizer):
    checks = count()  # a list would be restored by profile()

    def does(y, number):
        if number == 4:
            next(checks)
            model.does = None  # a function that cannot be pickled
            assert_independent(model, optimizer)
        return y

    model.does = does
    model.calls = 0
    profile(model, X, phase="train", loss=F.sum, optimizer=optimizer, trials=4, warmups=1)
    assert next(checks) == 1
    assert model.does is does  # as it was
    model.does = None


def _layer_profile(model, optimizer):
    checked = []
    with trainer_of(model, optimizer) as trainer:
        trainer.updater.loss_func = lambda x, t: F.sum(model(x))

        def check(trainer):
            checked.append(True)
            assert_independent(model, optimizer)

        trainer.extend(check, trigger=(1, "iteration"))
        trainer.extend(LayerProfile(machine=False))
        loss = trainer.updater.loss_func

        def checking_loss(x, t):
            check(trainer)
            return loss(x, t)

        trainer.updater.loss_func = checking_loss
        trainer.run()
    assert len(checked) == 6


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("way", [_hook, _profiling, _profile, _layer_profile])
def test_networks_and_optimizers_can_be_copied_and_pickled_while_profiled(
    way, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    model, optimizer = model_and_optimizer()
    train(model, optimizer)
    way(model, optimizer)
    assert_independent(model, optimizer)
