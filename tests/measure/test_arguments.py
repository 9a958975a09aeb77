"""Networks, functions and arguments that profile() and other entry points accept."""

import math
import time
from collections import namedtuple

import chainer
import chainer.functions as F
import chainer.links as L
import pytest

import chainer_profile
from chainer_profile import LayerProfile, UsageError, profile, profiling
from chainer_profile.measure.arguments import Arguments
from tests.nets import Chain, image
from tests.refusing import refusal

pytestmark = pytest.mark.usefixtures("one_thread")

A, B = image(5, 3), image(2, 3)


class AnyArguments(chainer.Chain):
    """Passes its arguments to ``note``, and concatenates their arrays."""

    def __init__(self, note=lambda *arguments: None):
        super().__init__(a=L.Linear(3, 2))
        self.note = note

    def forward(self, *args, **kwargs):
        self.note(args, kwargs)
        return self.a(F.concat(Arguments(args, kwargs).arrays, axis=0))


#: Input; shape of the first array, batch size and description in the settings.
FORMS = {
    "array": (A, ((5, 3), 5, "")),
    "tuple": ((A, B), ((5, 3), 5, "the first of 2 arrays")),
    "list of one": ([B], ((2, 3), 1, "")),
    "dict": ({"x": B, "t": A}, ((2, 3), 2, "the first of 2 arrays")),
    "states and a list": ((None, None, [B, A, B]), ((2, 3), 3, "the first of 3 arrays")),
}


@pytest.mark.parametrize("phase", ["forward", "train"])
@pytest.mark.parametrize("form", FORMS)
def test_inputs_of_each_form_reach_the_network_and_are_described(form, phase):
    x, described = FORMS[form]
    passed = ((), x) if isinstance(x, dict) else (x if isinstance(x, tuple) else (x,), {})

    def note(*arguments):
        assert arguments == passed  # only identical arrays compare equal here

    recording = profile(AnyArguments(note), x, trials=3, warmups=0, phase=phase)
    settings = recording.settings
    assert (settings.input_shape, settings.batchsize, settings.input) == described
    summary = chainer_profile.summary(AnyArguments(), x)
    assert summary.table["function"].tolist() == ["Concat", "LinearFunction"]
    assert summary.input_nbytes == sum(array.nbytes for array in Arguments.from_input(x).arrays)


Pair = namedtuple("Pair", "x t")


def test_named_tuples_and_other_sequences_keep_their_classes_when_arrays_are_converted():
    given = Arguments.from_input((Pair(A, [B]), {"x": Pair(A, None)}))
    converted = given.with_floats("float16")
    for before, after in ((given.args[0], converted.args[0]), (A, converted.args[1]["x"])):
        assert type(after) is Pair
        assert after.x.dtype == "float16"
        assert before is not after
    assert [array.dtype for array in converted.args[0].t] == ["float16"]
    assert profile(AnyArguments(), Pair(A, B), trials=1, warmups=0).n_trials == 1


def test_arrays_whose_type_was_chosen_keep_it():
    chosen = A.astype("float64")
    converted = Arguments((A, [chosen]), {"t": B}, typed=(chosen,)).with_floats("float16")
    dtypes = [str(array.dtype) for array in converted.arrays]
    assert dtypes == ["float16", "float64", "float16"]


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
def test_function_is_profiled_as_a_network_without_links(function, name):
    name += " (a function, no links)"
    recording = profile(function, A, trials=3, warmups=0)
    assert [(a.path, a.function) for a in recording.layers] == [("/", "ReLU"), ("/", "MulConstant")]
    assert recording.settings.model == chainer_profile.summary(function, (5, 3)).name == name


# -- wrong arguments


def each(name, values, message):
    return [({name: value}, f"{name} {message.format(value)}") for value in values]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        *each("trials", (0, -3, 2.5, "many", None), "is {!r}: give a whole number, 1 or more"),
        *each("trials", (True, math.nan), "is {!r}: give a whole number, 1 or more"),
        *each("warmups", (-1, False), "is {!r}: give a whole number, 0 or more"),
        *each("clean_trials", (-1, True, 0.5), "is {!r}: give a whole number, 0 or more"),
        *each("threads", (0, -1, 1.5, True, "2"), "is {!r}: give a whole number, 1 or more"),
        *each("max_seconds", (0, -1.0, "1", True), "is {!r}: give a number of seconds above 0"),
        *each("max_seconds", (math.nan, math.inf), "is {!r}: give a number of seconds above 0"),
        *each("until_ci", (0, 1, -0.1, True), "is {!r}: give a fraction, such as 0.01 for 1 %"),
        *each("until_ci", (math.nan, "1"), "is {!r}: give a fraction, such as 0.01 for 1 %"),
        *each("train_mode", (1, None, "yes"), "is {!r}: give True or False"),
        *each("memory", (0, None), "is {!r}: give True or False"),
        *each("counters", (1, "all"), "is {!r}: give True or False"),
        *each("why", (1, None), "is {!r}: give True or False"),
        *each("progress", (True, "bar"), "is {!r}: give a function"),
        ({"phase": A}, "unknown phase array"),
        ({"phase": ["train"]}, "unknown phase ['train']: choose forward, "),
        ({"loss": "no"}, "unknown loss 'no': choose "),
        ({"loss": 3, "phase": "train"}, "unknown loss 3: choose "),
        ({"optimizer": 3}, "the optimizer is not set up for this network: 3 is not an optimizer; "),
        ({"optimizer": chainer.optimizers.SGD}, "the optimizer is not set up for this network: "),
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
def test_invalid_arguments_raise_usage_error_before_the_network_runs(changes, message, clock):
    model = Chain(clock)
    refused = refusal(profile, error=UsageError, **({"model": model, "x": A} | changes))
    assert refused.startswith(message)
    assert model.calls == 0


@pytest.mark.parametrize("make", [profiling, LayerProfile])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"title": 42}, "title is 42: give a string"),
        ({"title": None}, "title is None: give a string"),
        ({"memory": "no"}, "memory is 'no': give True or False"),
        ({"clock": time.perf_counter}, "clock is <built-in function perf_counter>: give a "),
    ],
)
def test_constructors_refuse_invalid_arguments(make, changes, message):
    assert refusal(make, error=UsageError, **changes).startswith(message)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"out": 3}, "out is 3: give the name of a folder"),
        ({"command": ["train.py"]}, "command is ['train.py']: give a string"),
        ({"machine": 1}, "machine is 1: give True or False"),
        ({"report": None}, "report is None: give True or False"),
    ],
)
def test_extension_refuses_invalid_arguments(changes, message):
    assert refusal(LayerProfile, error=UsageError, **changes) == message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": 3}, "name is 3: give a string"),
        ({"dtype": None}, "unknown data type None: give, say, float32 or int32"),
        ({"dtype": 3}, "unknown data type 3: give, say, float32 or int32"),
        ({"shape": (True, 3)}, "not a shape: (True, 3); give integers"),
        ({"shape": "1x3"}, "not a shape: '1x3'; give integers"),
        ({"shape": None}, "not a shape: None; give integers"),
    ],
)
def test_summary_refuses_invalid_arguments(changes, message, clock):
    arguments = {"model": L.Linear(3, 2), "shape": (1, 3)} | changes
    refused = refusal(chainer_profile.summary, error=UsageError, **arguments)
    assert refused.startswith(message)
