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


class AnyArguments(chainer.Chain):
    """Keeps its arguments, and concatenates their arrays."""

    def __init__(self):
        super().__init__(a=L.Linear(3, 2))

    def forward(self, *args, **kwargs):
        self.taken = args, kwargs
        return self.a(F.concat(Arguments(args, kwargs).arrays, axis=0))


#: An input; the first array's shape, the batch size and the description in the settings.
FORMS = {
    "array": (A, ((5, 3), 5, "")),
    "tuple": ((A, B), ((5, 3), 5, "the first of 2 arrays")),
    "list of one": ([B], ((2, 3), 1, "")),
    "dict": ({"x": B, "t": A}, ((2, 3), 2, "the first of 2 arrays")),
    "states and a list": ((None, None, [B, A, B]), ((2, 3), 3, "the first of 3 arrays")),
}


@pytest.mark.parametrize("phase", ["forward", "train"])
@pytest.mark.parametrize("form", FORMS)
def test_inputs_of_every_form_reach_the_network_and_are_described(form, phase):
    x, described = FORMS[form]
    passed = ((), x) if isinstance(x, dict) else (x if isinstance(x, tuple) else (x,), {})
    model = AnyArguments()
    recording = profile(model, x, trials=3, warmups=0, phase=phase)
    assert model.taken == passed  # true only of identical arrays: == of others is an array
    settings = recording.settings
    assert (settings.input_shape, settings.batchsize, settings.input) == described
    summary = chainer_profile.summary(AnyArguments(), x)
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
def test_a_function_is_profiled_as_a_network_without_links(function, name):
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
def test_invalid_arguments_raise_usage_error_before_the_network_runs(changes, words, clock):
    model = Chain(clock)
    said = refusal(profile, error=UsageError, **({"model": model, "x": A} | changes))
    assert said.startswith(words)
    assert model.calls == 0
