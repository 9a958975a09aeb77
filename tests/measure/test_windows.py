"""Windows: methods in others' place, what they tell, and that all comes back."""

import itertools

import chainer
import chainer.links as L
import numpy as np
import pytest

from chainer_profile.basics.replacements import Replacements
from chainer_profile.measure.windows import BACKWARD, FORWARD, UPDATE, hook_name, timed, timed_loss
from tests.nets import image


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


def raising(replacements, thing):
    replacements.put(thing, "method", lambda: "another")
    raise KeyError


class TestReplacements:
    def test_what_was_there_comes_back(self):
        for before in ({}, {"method": None}, {"method": lambda: "mine"}):
            thing, replacements = Thing(), Replacements()
            vars(thing).update(before)
            replacements.undo()
            for _ in range(2):
                with replacements:
                    for name in ("another", "a third"):
                        replacements.put(thing, "method", lambda name=name: name)
                        assert thing.method() == name
                assert vars(thing) == before
            with pytest.raises(KeyError), replacements:
                raising(replacements, thing)
            assert vars(thing) == before

    def test_several_are_undone_in_any_order(self):
        for order in itertools.permutations(range(3)):
            thing, several = Thing(), [Replacements() for _ in range(3)]
            for number, one in enumerate(several):
                one.wrap(thing, "method", lambda inner, n=number: lambda: f"{n} around {inner()}")
            left = [2, 1, 0]
            for number in order:
                assert thing.method() == "".join(f"{n} around " for n in left) + "its own"
                several[number].undo()
                left.remove(number)
            assert thing.method() == "its own"
            assert vars(thing) == {}

    def test_objects_that_set_attributes_in_ways_of_their_own(self):
        """As ChainerMN's optimizers do, which set another's, and links."""

        class Stands:
            def __init__(self, actual):
                vars(self)["actual"] = actual

            def __getattr__(self, name):
                return getattr(self.actual, name)

            def __setattr__(self, name, value):
                setattr(self.actual, name, value)

        thing, model = Thing(), chainer.Sequential(L.Linear(2, 2))
        stands, before = Stands(thing), set(vars(model))
        with Replacements() as replacements:
            replacements.put(stands, "method", lambda: "another")
            replacements.put(model, "cleargrads", lambda: None)
            assert (stands.method(), thing.method()) == ("another", "its own")
        assert (vars(thing), list(vars(stands))) == ({}, ["actual"])
        assert set(vars(model)) == before


def test_a_window_has_arguments_results_and_ends_with_an_exception_too(events):
    call = timed(lambda a, *, b: (a, 1 / b), UPDATE, events.enter, events.leave)
    assert call(1, b=2) == (1, 0.5)
    with pytest.raises(ZeroDivisionError):  # which the program may catch
        call(1, b=0)
    assert events == [UPDATE, "leave"] * 2


def test_the_loss_and_its_backward_are_phases(events):
    x = chainer.Parameter(np.array(3.0, np.float32))
    lossfun = timed_loss(lambda a, b: a * b * a, events.enter, events.leave)
    loss = lossfun(x, b=2)
    assert events == [FORWARD, "leave"]
    loss.backward(True, enable_double_backprop=True, loss_scale=4)
    assert events == [FORWARD, "leave", BACKWARD, "leave"]
    assert x.grad == 4 * 2 * 2 * 3
    assert x.grad_var.creator is not None
    assert loss.grad is not None
    # A loss that is the same every time, or no variable.
    lossfun = timed_loss(lambda: x, events.enter, events.leave)
    for _ in range(3):
        events.clear()
        lossfun().backward()
        assert events == [FORWARD, "leave", BACKWARD, "leave"]
    assert timed_loss(lambda: 3.0, events.enter, events.leave)() == 3.0
    assert events[4:] == [FORWARD, "leave"]


def test_names_of_hooks():
    class Named:
        name = "by its name"

    hooks = Named(), Thing(), image, chainer.optimizer_hooks.WeightDecay(1)
    assert [hook_name(hook) for hook in hooks] == ["by its name", "Thing", "image", "WeightDecay"]
