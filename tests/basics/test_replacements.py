"""Replacements of attributes are undone completely."""

import itertools
import linecache
import sys
from functools import partial

import chainer
import chainer.links as L
import pytest

from chainer_profile.basics import replacements as module
from chainer_profile.basics.replacements import Replacements


class Thing:
    def method(self):
        return "its own"


@pytest.mark.parametrize("before", [{}, {"method": None}, {"method": lambda: "mine"}])
def test_attributes_are_restored(before):
    thing, replacements = Thing(), Replacements()
    vars(thing).update(before)
    for _ in range(2):
        with replacements:
            for name in ("another", "a third"):
                replacements.put(thing, "method", lambda name=name: name)
                assert thing.method() == name
        assert vars(thing) == before


def test_wrappers_are_undone_in_any_order():
    for order in itertools.permutations(range(3)):
        thing, several = Thing(), [Replacements() for _ in range(3)]
        for number, replacements in enumerate(several):
            replacements.wrap(
                thing, "method", lambda inner, n=number: lambda: f"{n} around {inner()}"
            )
        left = [2, 1, 0]
        for number in order:
            assert thing.method() == "".join(f"{n} around " for n in left) + "its own"
            several[number].undo()
            left.remove(number)
        assert vars(thing) == {}


class Proxy:
    """A proxy that sets attributes of another object, like ChainerMN's optimizers."""

    def __init__(self, actual):
        vars(self)["actual"] = actual

    def __getattr__(self, name):
        return getattr(self.actual, name)

    def __setattr__(self, name, value):
        setattr(self.actual, name, value)


def call_interrupted(function, line_number):
    """Call a function with an interrupt at its ``line_number``-th line in the module under test.

    Returns whether it was interrupted.
    """
    n_lines = 0

    def trace(frame, event, _):
        nonlocal n_lines
        if frame.f_code.co_filename != module.__file__:
            return None
        line = linecache.getline(module.__file__, frame.f_lineno)
        # CPython handles no signal between the end of a block and the release of its lock.
        if event == "line" and not line.lstrip().startswith("with "):
            n_lines += 1
            if n_lines == line_number:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


@pytest.mark.parametrize("name", ["wrap", "undo"])
def test_interrupt_at_any_line_leaves_nothing_replaced(name):
    for line_number in itertools.count(1):
        thing, first, second = Thing(), Replacements(), Replacements()
        first.put(thing, "method", lambda: "first")
        wrap = partial(second.wrap, thing, "method", lambda inner: lambda: "second")
        if name == "wrap":
            was_interrupted = call_interrupted(wrap, line_number)
        else:
            wrap()
            was_interrupted = call_interrupted(first.undo, line_number)
        second.undo()
        first.undo()
        assert vars(thing) == {}, line_number
        assert not Replacements._all
        if not was_interrupted:
            break


def test_attributes_are_set_without_setattr_of_the_object():
    thing, model = Thing(), chainer.Sequential(L.Linear(2, 2))
    proxy, before = Proxy(thing), set(vars(model))
    with Replacements() as replacements:
        replacements.put(proxy, "method", lambda: "another")
        replacements.put(model, "cleargrads", lambda: None)
        assert (proxy.method(), thing.method()) == ("another", "its own")
    assert (vars(thing), list(vars(proxy))) == ({}, ["actual"])
    assert set(vars(model)) == before
