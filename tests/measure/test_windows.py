"""Windows: methods in others' place, what they tell, and that all comes back."""

from __future__ import annotations

import gc
import weakref

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest

from chainer_profile.basics.replacements import Replacements
from chainer_profile.measure.windows import (
    BACKWARD,
    CLEARGRADS,
    FORWARD,
    UPDATE,
    Mark,
    hook_name,
    time_optimizer,
    timed,
    timed_loss,
)
from tests.nets import SlowHook, SlowOptimizer, Trained, image, slow_loss


class Events(list):
    """What was entered and left, in order."""

    def enter(self, mark):
        self.append(mark)

    def leave(self):
        self.append("leave")


@pytest.fixture
def events():
    return Events()


class Thing:
    def method(self):
        return "its own"


class TestReplacements:
    @pytest.mark.parametrize("before", [{}, {"method": None}, {"method": lambda: "mine"}])
    def test_what_was_there_comes_back(self, before):
        thing, replacements = Thing(), Replacements()
        vars(thing).update(before)
        replacements.undo()
        for _ in range(2):
            with replacements:
                replacements.put(thing, "method", lambda: "another")
                assert thing.method() == "another"
                replacements.put(thing, "method", lambda: "a third")
                assert thing.method() == "a third"
            assert vars(thing) == before

    @pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (1, 0, 2), (2, 0, 1)])
    def test_several_are_undone_in_any_order(self, order):
        thing, several = Thing(), [Replacements() for _ in range(3)]
        for number, one in enumerate(several):
            one.wrap(thing, "method", lambda inner, n=number: lambda: f"{n} around {inner()}")
        assert thing.method() == "2 around 1 around 0 around its own"
        left = [2, 1, 0]
        for number in order:
            several[number].undo()
            left.remove(number)
            assert thing.method() == "".join(f"{n} around " for n in left) + "its own"
        assert vars(thing) == {}

    def test_an_object_that_sets_attributes_of_another(self):
        """As ChainerMN's optimizers do."""

        class Stands:
            def __init__(self, actual):
                vars(self)["actual"] = actual

            def __getattr__(self, name):
                return getattr(self.actual, name)

            def __setattr__(self, name, value):
                setattr(self.actual, name, value)

        thing = Thing()
        stands = Stands(thing)
        with Replacements() as replacements:
            replacements.put(stands, "method", lambda: "another")
            assert (stands.method(), thing.method()) == ("another", "its own")
        assert (vars(thing), list(vars(stands))) == ({}, ["actual"])

    def test_after_an_exception(self):
        thing = Thing()

        def fail(replacements):
            replacements.put(thing, "method", lambda: "another")
            replacements.put(object(), "method", None)

        with pytest.raises(TypeError), Replacements() as replacements:
            fail(replacements)
        assert vars(thing) == {}

    def test_links_forget_it_as_other_objects_do(self):
        model = chainer.Sequential(L.Linear(2, 2))
        before = set(vars(model))
        with Replacements() as replacements:
            replacements.put(model, "cleargrads", lambda: None)
        assert set(vars(model)) == before
        model.cleargrads()


def test_a_window_has_arguments_results_and_ends_with_an_exception_too(events):
    call = timed(lambda a, *, b: (a, 1 / b), UPDATE, events.enter, events.leave)
    assert call(1, b=2) == (1, 0.5)
    with pytest.raises(ZeroDivisionError):  # which the program may catch
        call(1, b=0)
    assert events == [UPDATE, "leave"] * 2


class TestTimedLoss:
    def test_the_loss_and_its_backward_are_phases(self, events):
        x = chainer.Parameter(np.array(3.0, np.float32))
        lossfun = timed_loss(lambda a, b: a * b, events.enter, events.leave)
        loss = lossfun(x, b=2)
        assert events == [FORWARD, "leave"]
        loss.backward(loss_scale=4)
        assert events == [FORWARD, "leave", BACKWARD, "leave"]
        assert x.grad == 8

    def test_backward_takes_its_arguments(self, events):
        x = chainer.Parameter(np.array(3.0, np.float32))
        loss = timed_loss(lambda: x * x * x, events.enter, events.leave)()
        loss.backward(True, enable_double_backprop=True)
        assert x.grad_var.creator is not None
        assert loss.grad is not None

    def test_the_loss_is_not_kept(self, events):
        gc.collect()
        gc.disable()
        try:
            x = chainer.Parameter(np.array(3.0, np.float32))
            loss = timed_loss(lambda: F.relu(x), events.enter, events.leave)()
            node, variable = weakref.ref(loss.creator_node), weakref.ref(loss)
            loss.backward()
            del loss
            assert variable() is None
            assert node() is None
        finally:
            gc.enable()

    def test_a_loss_that_is_the_same_every_time_or_no_variable(self, events):
        x = chainer.Parameter(np.array(3.0, np.float32))
        lossfun = timed_loss(lambda: x, events.enter, events.leave)
        for _ in range(3):
            events.clear()
            lossfun().backward()
            assert events == [FORWARD, "leave", BACKWARD, "leave"]
        assert timed_loss(lambda: 3.0, events.enter, events.leave)() == 3.0
        assert events[4:] == [FORWARD, "leave"]


class TestTimeOptimizer:
    def update(self, optimizer, events, *args, prefix=""):
        with Replacements() as replacements:
            time_optimizer(replacements, optimizer, events.enter, events.leave, prefix)
            optimizer.update(*args)
        return [event for event in events if event != "leave"]

    def test_all_parts_in_order(self, clock, events):
        model = Trained(clock)
        optimizer = SlowOptimizer(clock).setup(model)
        optimizer.add_hook(SlowHook(clock, 1, "before"))
        optimizer.add_hook(SlowHook(clock, 1, "after", timing="post"))
        loss = slow_loss(clock)
        marks = self.update(optimizer, events, lambda: loss(model(image())))
        assert marks == [
            UPDATE,
            FORWARD,
            CLEARGRADS,
            BACKWARD,
            Mark("update", "optimizer", "before"),
            Mark("update", "/first", "SlowOptimizer"),
            Mark("update", "/second", "SlowOptimizer"),
            Mark("update", "optimizer", "after"),
        ]
        assert events[:3] == [UPDATE, FORWARD, "leave"]
        assert events.count("leave") == len(marks)
        assert events[-1] == "leave"

    def test_a_prefix_stands_before_the_paths(self, events):
        model = L.Classifier(L.Linear(2, 3))
        with model.init_scope():
            model.scale = chainer.Parameter(np.ones(1, np.float32))
        optimizer = chainer.optimizers.SGD().setup(model)
        model.cleargrads()
        marks = self.update(optimizer, events, prefix="/main")
        assert [mark.path for mark in marks[1:]] == [
            "/main",
            "/main/predictor",
            "/main/predictor",
        ]

    def test_everything_is_as_before(self, clock, events):
        model = Trained(clock)
        optimizer = SlowOptimizer(clock).setup(model)
        optimizer.add_hook(SlowHook(clock, 1))
        model.cleargrads()
        optimizer.update()
        owners = [optimizer, model, *(param.update_rule for param in model.params())]
        before = [set(vars(owner)) for owner in owners]
        self.update(optimizer, events)
        assert [set(vars(owner)) for owner in owners] == before
        events.clear()
        optimizer.update()
        assert not events


def test_names_of_hooks():
    class Named:
        name = "by its name"

    class Plain:
        pass

    hooks = Named(), Plain(), image, chainer.optimizer_hooks.WeightDecay(1)
    assert [hook_name(hook) for hook in hooks] == ["by its name", "Plain", "image", "WeightDecay"]
