"""Values of options are parsed or rejected, and random inputs match their specification."""

import math

from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.basics.errors import UsageError
from chainer_profile.basics.parsing import InputSpec, parse_input
from chainer_profile.networks.inputs import make_arguments
from tests.refusing import refusal

#: Specifications of inputs, by their text.
SPECS = {
    "3x32x32": InputSpec((3, 32, 32)),
    "784:float32": InputSpec((784,), dtype="float32"),
    "5..20x128:float64": InputSpec((128,), (5, 20), "float64"),
    "one:uint8:7": InputSpec((), None, "uint8", (0, 6)),
    "one:int32:1000": InputSpec((), None, "int32", (0, 999)),
    "t=one:int64:1..10": InputSpec((), None, "int64", (1, 10), "t"),
    "20:int32:-5..5": InputSpec((20,), None, "int32", (-5, 5)),
    "5..20x128": InputSpec((128,), (5, 20)),
    "5..20:int32:30": InputSpec((), (5, 20), "int32", (0, 29)),
    "xs=2..2x3x4": InputSpec((3, 4), (2, 2), name="xs"),
}


def test_inputs_are_parsed_or_rejected():
    assert {text: parse_input(text) for text in SPECS} == SPECS
    for text in (
        "3:int32:0:1",
        "",
        "3x",
        "0..3",
        "1x=3",
        "3:complex64",
        "3x4:floaty",
        "3x4:float",
        "3x4:float128",
        "3x4:int128",
        "3x4:float32:5",
        "3:int32:x",
        "3:int8:5..1",
    ):
        assert "not a" in refusal(parse_input, text, error=UsageError)


@given(
    st.lists(
        st.builds(
            InputSpec,
            st.lists(st.integers(1, 4), max_size=3).map(tuple),
            st.none() | st.tuples(st.integers(1, 3), st.integers(3, 6)),
            st.sampled_from(["", "int32", "uint8", "float16", "float64"]),
            st.tuples(st.integers(0, 5), st.integers(5, 100)),
        ),
        min_size=1,
        max_size=3,
    ),
    st.integers(1, 4),
    st.integers(0, 3),
)
def test_random_arguments_have_the_shapes_and_types_of_their_specs(specs, batchsize, seed):
    arguments = make_arguments(specs, batchsize, seed)
    for spec, value in zip(specs, arguments.args, strict=True):
        for array in [value] if spec.lengths is None else value:
            assert array.dtype == (spec.dtype or "float32")
            is_integer = "int" in spec.dtype
            minimum, maximum = spec.values if is_integer else (-math.inf, math.inf)
            assert minimum <= array.min() <= array.max() <= maximum
        if spec.lengths is None:
            assert value.shape == (batchsize, *spec.shape)
        else:
            lengths = [len(array) for array in value]
            assert lengths == sorted(lengths, reverse=True)
            assert len(lengths) == batchsize
            assert spec.lengths[0] <= lengths[-1] <= lengths[0] <= spec.lengths[1]
            assert {array.shape[1:] for array in value} == {spec.shape}
    assert str(make_arguments(specs, batchsize, seed).args) == str(arguments.args)
