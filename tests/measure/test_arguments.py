"""Networks and functions that can be profiled, and their arguments."""

import math

import chainer
import chainer.functions as F
import chainer.links as L
import pytest

import chainer_profile
from chainer_profile import UsageError, profile
from chainer_profile.measure.arguments import Arguments
from tests.nets import Chain, image
from tests.refusing import refusal

pytestmark = pytest.mark.usefixtures("one_thread")

A, B = image(5, 3), image(2, 3)


class Taking(chainer.Chain):
    """Takes anything, and concatenates the arrays in it."""

    def __init__(self):
        super().__init__(a=L.Linear(3, 2))

    def forward(self, *args, **kwargs):
        self.taken = args, kwargs
        return self.a(F.concat(Arguments(args, kwargs).arrays, axis=0))


#: The argument x; the first array's shape, the batch, and the description of the input.
FORMS = {
    "array": (A, ((5, 3), 5, "")),
    "tuple": ((A, B), ((5, 3), 5, "the first of 2 arrays")),
    "list of one": ([B], ((2, 3), 1, "")),
    "dict": ({"x": B, "t": A}, ((2, 3), 2, "the first of 2 arrays")),
    "states and a list": ((None, None, [B, A, B]), ((2, 3), 3, "the first of 3 arrays")),
}


@pytest.mark.parametrize("phase", ["forward", "train"])
@pytest.mark.parametrize("form", FORMS)
def test_an_input_in_every_form(form, phase):
    x, described = FORMS[form]
    taken = ((), x) if isinstance(x, dict) else (x if isinstance(x, tuple) else (x,), {})
    model = Taking()
    recording = profile(model, x, trials=3, warmups=0, phase=phase)
    assert model.taken == taken  # the same arrays: others have no single truth
    made = recording.settings
    assert (made.input_shape, made.batchsize, made.input) == described
    summary = chainer_profile.summary(Taking(), x)
    assert summary.table["function"].tolist() == ["Concat", "LinearFunction"]
    assert summary.input_nbytes == sum(array.nbytes for array in Arguments.of(x).arrays)


# -- functions


def double(x):
    return F.relu(x) * 2


class Doubling:
    def __call__(self, x):
        return double(x)


@pytest.mark.parametrize(
    ("function", "name"),
    [(double, "double"), (lambda x: double(x), "<lambda>"), (Doubling(), "Doubling")],
)
def test_a_function_has_no_links_and_says_so(function, name):
    name += " (a function, no links)"
    recording = profile(function, A, trials=3, warmups=0)
    assert [(a.path, a.function) for a in recording.layers] == [("/", "ReLU"), ("/", "MulConstant")]
    assert recording.settings.model == chainer_profile.summary(function, (5, 3)).name == name


# -- wrong arguments


def each(name, values, said):
    return [({name: value}, f"{name} {said.format(value)}") for value in values]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        *each("trials", (0, -3, 2.5, "many", None), "is {!r}: give a whole number, 1 or more"),
        *each("warmups", (-1,), "is -1: give a whole number, 0 or more"),
        *each("clean_trials", (-1,), "is -1: give a whole number, 0 or more"),
        *each("max_seconds", (0, -1.0, math.nan, "1"), "is {!r}: give a number of seconds above 0"),
        *each("until_ci", (0, 1, -0.1, math.nan), "is {!r}: give a fraction, such as 0.01 for 1 %"),
        ({"until_ci": A}, "until_ci is array"),
        ({"phase": "sideways"}, "unknown phase 'sideways'"),
        ({"phase": None}, "unknown phase None"),
        ({"phase": "train", "loss": None}, "unknown loss None"),
        ({"phase": "train", "optimizer": 3}, "the optimizer is not set up for this network"),
        ({"x": None}, "x is None: give an array or Variable, a tuple of arguments, a list of"),
        ({"x": 3}, "x is a int without an array: "),
        *each("x", ([], [1, 2]), "is a list without an array: "),
        ({"x": ()}, "x is a tuple without an array: "),
        ({"x": {1: A}}, "x has an argument whose name is not a string: "),
        ({"model": None}, "a network is a chainer.Link or a function, not NoneType"),
        ({"model": L.Linear}, "Linear is a class: give an instance of it"),
        ({"model": double, "phase": "train"}, "a function has no parameters to update: "),
    ],
)
def test_nonsense_is_refused_in_one_line(changes, words, clock):
    model = Chain(clock)
    said = refusal(profile, error=UsageError, **({"model": model, "x": A} | changes))
    assert said.startswith(words)
    assert model.calls == 0
