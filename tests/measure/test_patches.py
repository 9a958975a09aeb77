"""Patches of Chainer's classes report operations, and are removed completely."""

import os
from collections import Counter
from threading import Thread, get_ident

import chainer
import chainer.functions as F
import numpy as np
import pytest

from chainer_profile import LayerTimerHook, profiling
from chainer_profile.measure import patches
from chainer_profile.measure.links import Links
from chainer_profile.measure.patches import observing
from chainer_profile.measure.recorder import Reader, Recorder
from tests.nets import MLP

X, T = np.ones((2, 3), np.float32), np.zeros(2, np.int32)


class Observer:
    """Records operations of its own thread, and counts operations in other threads."""

    def __init__(self):
        self.thread = get_ident()
        self.begun, self.ended, self.failures = [], [], []
        self.elsewhere = Counter()

    def begin_operation(self, operation, owner, args):
        self.begun.append((operation, owner))
        return lambda error, result: self.ended.append((operation, error))

    def begin_elsewhere(self, operation):
        self.elsewhere[operation] += 1

    def fail(self, error):
        self.failures.append(error)

    @property
    def operations(self):
        return [operation for operation, _ in self.begun]


class Old(MLP):
    def __call__(self, x):  # the style before Chainer 5
        return self.fc1(x)


def model_and_optimizer(kind=MLP):
    model = kind()
    return model, chainer.optimizers.MomentumSGD().setup(model)


def train(model, optimizer):
    loss = F.sum(model(X))
    model.cleargrads()
    loss.backward()
    optimizer.update()


# -- operations that observers receive


@pytest.mark.parametrize("kind", [MLP, Old])
def test_observer_receives_the_outermost_operations_of_a_loop(kind):
    model, optimizer, observer = kind(), chainer.optimizers.SGD(), Observer()
    iterator = chainer.iterators.SerialIterator([(X[0], T[0])] * 2, 2)
    with observing(observer):
        optimizer.setup(model)
        x, t = chainer.dataset.concat_examples(next(iterator))
        loss = F.softmax_cross_entropy(model(x), t)
        model.cleargrads()
        loss.backward()
        optimizer.update()
        optimizer.update(lambda: F.sum(model(X)))
    rules = ["rule"] * len(list(model.params()))
    assert [each for each in observer.operations if each != "hook"] == [
        *("setup", "load", "convert", "network", "cleargrads", "backward", "backprop"),
        *("update", *rules),
        *("update", "loss", "network", "cleargrads", "backward", "backprop", *rules),
    ]
    owners = dict(observer.begun)
    assert (owners["network"], owners["setup"], owners["load"]) == (model, optimizer, iterator)
    assert sorted(op for op, _ in observer.ended) == sorted(observer.operations)
    assert {error for _, error in observer.ended} == {None}


def test_next_and_iteration_are_one_load_each():
    observer = Observer()
    iterator = chainer.iterators.SerialIterator([X, X], 1, repeat=False)
    with observing(observer):
        iterator.next()
        next(iterator)
        with pytest.raises(StopIteration):
            next(iterator)
    assert observer.operations == ["load"] * 3
    assert [type(error) for _, error in observer.ended] == [type(None)] * 2 + [StopIteration]


def test_super_call_is_no_second_call():
    class Twice(Old):
        def __call__(self, x, again=True):
            y = super().__call__(x)
            return self(y, again=False) if again else y

    model = Twice()
    model.fc1 = chainer.links.Linear(3, 3)
    recorder = Recorder(Links([("", model)]), Reader(int, int), lambda problem: None)
    recorder.start()
    try:
        model(X)
    finally:
        recorder.stop()
    # The model calls itself once, and the layer in each call.
    assert [caller.path for caller in recorder.tracker.log] == ["/", "/fc1"] * 2


def test_classes_defined_later_are_observed():
    observer = Observer()
    with observing(observer):

        class Later(Old):
            def __call__(self, x):
                return x

        class LaterOptimizer(chainer.optimizers.SGD):
            def update(self, lossfun=None, *args, **kwargs):
                super().update(lossfun, *args, **kwargs)

        class LaterIterator(chainer.dataset.Iterator):
            def __next__(self):
                return X

        model = Later()
        model(X)
        LaterOptimizer().setup(MLP()).update()
        next(LaterIterator())
    assert [each for each in observer.operations if each not in ("rule", "hook")] == [
        *("network", "setup", "update", "load")
    ]
    assert Later.__call__.__name__ == "__call__"
    assert not hasattr(Later.__call__, "__wrapped__")
    model(X)
    assert observer.operations.count("network") == 1


def test_subclasses_receive_keywords_of_their_definition():
    class Base(chainer.Optimizer):
        def __init_subclass__(cls, size=0, **keywords):
            super().__init_subclass__(**keywords)
            cls.size = size

    with observing(Observer()):

        class Sized(Base, size=3):
            pass

    assert Sized.size == 3


def test_wrappers_accept_arguments_of_any_name():
    names = ("link", "owner", "self_", "optimizer", "operation", "method", "args", "definer")

    class Named(chainer.Link):
        def __call__(this, **keywords):  # noqa: N805
            return keywords

    class NamedOptimizer(chainer.optimizers.SGD):
        def update(this, lossfun=None, **keywords):  # noqa: N805
            return keywords

    keywords = dict.fromkeys([*names, "self"], 1)
    with observing(Observer()):
        assert Named()(**keywords) == keywords
        assert NamedOptimizer().setup(MLP()).update(**keywords) == keywords
        # Arguments of a loss function may have any names, too.
        optimizer, seen = chainer.optimizers.SGD().setup(MLP()), {}
        optimizer.update(
            lambda **keywords: seen.update(keywords) or F.sum(MLP()(X)), owner=1, link=2
        )
        assert seen == {"owner": 1, "link": 2}


def in_thread(work):
    thread = Thread(target=work)
    thread.start()
    thread.join()


def test_operations_in_other_threads_are_counted():
    model, optimizer = model_and_optimizer()
    observer = Observer()
    with observing(observer):
        in_thread(lambda: [optimizer.update(lambda: F.sum(model(X))) for _ in range(3)])
        assert not observer.begun
        counts = [observer.elsewhere[name] for name in ("network", "backward", "update")]
        assert counts == [3, 3, 3]
        # An operation in another thread is not nested in one of this thread.
        model.does = lambda y, number: in_thread(lambda: MLP()(X)) or y
        model(X)
    assert observer.operations == ["network"]
    assert observer.elsewhere["network"] == 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork")
def test_forked_child_is_not_observed():
    model, observer = MLP(), Observer()
    hook = LayerTimerHook()
    with observing(observer), hook:
        child = os.fork()
        if not child:  # pragma: no cover
            try:
                model(X)
                n_observed = len(observer.begun) + len(chainer.get_function_hooks())
                os._exit(n_observed)
            finally:
                os._exit(99)
        assert os.waitpid(child, 0)[1] == 0
        model(X)
    assert observer.operations == ["network"]
    assert hook.recording().n_trials == 1


def test_failing_observer_is_removed_without_effect_on_others():
    class Fails(Observer):
        def begin_operation(self, operation, owner, args):
            super().begin_operation(operation, owner, args)
            if operation == self.at:
                raise OSError("none")
            return self.end

        def end(self, error, result):
            if self.at == "end":
                raise OSError("none")

    model, optimizer = model_and_optimizer()
    for at, n_received in (("network", 1), ("backward", 3), ("end", 1)):
        failing, other = Fails(), Observer()
        failing.at = at
        with observing(other), observing(failing):
            train(model, optimizer)
            train(model, optimizer)
        assert [str(error) for error in failing.failures] == ["none"]
        assert len(failing.begun) == n_received
        assert other.operations.count("update") == 2
        assert len(other.ended) == len(other.begun)


def classes():
    """Attributes of all classes that may be patched, by class."""
    bases = {base for _, base, _ in patches._METHODS} | {chainer.FunctionNode}
    kinds = set().union(*map(patches.subclasses, bases))
    return {kind: dict(vars(kind)) for kind in kinds}


def test_all_patches_are_removed():
    before = classes()
    modules = [chainer._backprop, chainer._backprop_utils, chainer.function_node]
    functions = [dict(vars(module)) for module in modules]
    with observing(Observer()), observing(Observer()):
        changed = {kind for kind, names in before.items() if dict(vars(kind)) != names}
        assert {chainer.Link, chainer.Variable, chainer.Optimizer} <= changed
    assert classes() == before
    assert [dict(vars(module)) for module in modules] == functions


# -- patches made by the program


class _CountingPatch:
    """A patch made by the program, which counts its calls."""

    def __init__(self):
        self.calls = 0

    def around(self, function):
        def patched(*args, **kwargs):
            self.calls += 1
            return function(*args, **kwargs)

        return patched


def _link_class(model, optimizer):
    return chainer.Link, "__call__", lambda: model(X), "network", 3


def _update_class(model, optimizer):
    return type(optimizer).__mro__[1], "update", optimizer.update, "update", 1


def _update_instance(model, optimizer):
    return optimizer, "update", optimizer.update, "update", 1


def _cleargrads_instance(model, optimizer):
    return model, "cleargrads", lambda: model.cleargrads(), "cleargrads", 1


@pytest.mark.parametrize(
    "target", [_link_class, _update_class, _update_instance, _cleargrads_instance]
)
@pytest.mark.parametrize("when", ["before", "within", "after"])
def test_patch_made_by_the_program_is_called_and_stays(target, when, monkeypatch):
    model, optimizer = model_and_optimizer()
    train(model, optimizer)
    owner, name, _, operation, times = target(model, optimizer)

    def call():
        target(model, optimizer)[2]()

    before, patch_counter = classes(), _CountingPatch()

    def patch():
        monkeypatch.setattr(owner, name, patch_counter.around(getattr(owner, name)))
        return getattr(owner, name)

    first, second = Observer(), Observer()
    if when == "before":
        patched = patch()
    with observing(first):
        if when == "within":
            patched = patch()
        call()
    if when == "after":
        patched = patch()
    assert patch_counter.calls == (0 if when == "after" else times)
    assert getattr(owner, name) is patched or getattr(owner, name).__func__ is patched
    call()
    assert patch_counter.calls == (times if when == "after" else 2 * times)
    with observing(second):
        call()
    # A patch on an instance calls the method that it replaced. If that method was not observed, we
    # cannot observe the call without setting an attribute of the instance.
    bypasses = not isinstance(owner, type)
    assert first.operations.count(operation) == (0 if bypasses and when == "before" else 1)
    seen = 0 if bypasses and when != "within" else 1
    assert second.operations.count(operation) == seen
    assert getattr(owner, name) is patched or getattr(owner, name).__func__ is patched
    monkeypatch.undo()
    with observing(Observer()):  # removes a patch of ours that the program has restored
        pass
    assert classes() == before
    call()
    assert second.operations.count(operation) == seen


@pytest.mark.parametrize("ends", [True, False])
def test_calls_are_observed_after_the_program_restored_the_original(ends):
    """A program may restore a saved method while it is observed, or afterwards."""
    model, optimizer = model_and_optimizer()
    train(model, optimizer)
    before, original = classes(), chainer.Link.__call__
    with observing(Observer()):
        if ends:
            chainer.Link.__call__ = lambda *args, ours=chainer.Link.__call__: ours(*args)
        else:
            chainer.Link.__call__ = original
    chainer.Link.__call__ = original
    observer = Observer()
    with observing(observer):
        model(X)
    assert observer.operations.count(patches.NETWORK) == 1
    assert classes() == before


def test_link_called_through_a_patch_of_the_program_has_its_path(monkeypatch):
    model, block = MLP(), profiling()
    with block:
        model(X)
    original = chainer.Link.__call__
    monkeypatch.setattr(chainer.Link, "__call__", lambda *args: original(*args))
    with block:
        model(X)
    recording = block.recording()
    assert recording.calls.tolist() == [[1, 1, 1]] * 2
    assert {link.path: link.calls for link in recording.links} == dict.fromkeys(
        ("/model", "/model/fc1", "/model/fc2"), 1
    )


def test_observers_can_be_added_and_removed_in_any_order():
    model, (first, second) = MLP(), (Observer(), Observer())
    before = classes()
    patches.add_observer(first)
    model(X)
    patches.add_observer(second)
    model(X)
    patches.remove_observer(first)
    model(X)
    patches.remove_observer(second)
    patches.remove_observer(second)  # removing twice has no effect
    assert (len(first.begun), len(second.begun)) == (2, 2)
    assert classes() == before
