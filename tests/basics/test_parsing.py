"""How values of options are read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.basics.errors import UsageError
from chainer_profile.basics.parsing import InputSpec, parse_device, parse_input, parse_range
from chainer_profile.cli.parsers import parser_of
from chainer_profile.networks.inputs import make_arguments


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("3x32x32", InputSpec((3, 32, 32))),
        ("3,32,32", InputSpec((3, 32, 32))),
        ("784:float32", InputSpec((784,))),
        ("one:int32:1000", InputSpec((), None, "int32", (0, 999))),
        ("t=one:int64:1..10", InputSpec((), None, "int64", (1, 10), "t")),
        ("20:int32:-5..5", InputSpec((20,), None, "int32", (-5, 5))),
        ("20:int32:0:10", None),
        ("5..20x128", InputSpec((128,), (5, 20))),
        ("5..20:int32:30", InputSpec((), (5, 20), "int32", (0, 29))),
        ("xs=2..2x3x4", InputSpec((3, 4), (2, 2), name="xs")),
        ("", None),
        ("3x", None),
        ("0..3", None),
        ("1x=3", None),
        ("3:complex64", None),
        ("3:int32:x", None),
    ],
)
def test_specs(text, found):
    if found is None:
        with pytest.raises(UsageError, match="not a"):
            parse_input(text)
    else:
        assert parse_input(text) == found


def test_ranges():
    assert parse_range("10") == parse_range("0..9") == (0, 9)


@given(
    st.lists(
        st.builds(
            InputSpec,
            st.lists(st.integers(1, 4), max_size=3).map(tuple),
            st.none() | st.tuples(st.integers(1, 3), st.integers(3, 6)),
            st.sampled_from(["", "int32", "uint8"]),
            st.tuples(st.integers(0, 5), st.integers(5, 100)),
            st.just(""),
        ),
        min_size=1,
        max_size=3,
    ),
    st.integers(1, 4),
    st.integers(0, 3),
)
def test_arguments_are_what_was_asked_for(specs, batchsize, seed):
    made = make_arguments(specs, batchsize, seed)
    assert len(made.args) == len(specs)
    for spec, value in zip(specs, made.args, strict=True):
        arrays = [value] if spec.lengths is None else value
        for array in arrays:
            assert array.dtype == (spec.dtype or "float32")
            if spec.dtype:
                assert spec.values[0] <= array.min()
                assert array.max() <= spec.values[1]
        if spec.lengths is None:
            assert value.shape == (batchsize, *spec.shape)
        else:
            lengths = [len(array) for array in arrays]
            assert len(lengths) == batchsize
            assert lengths == sorted(lengths, reverse=True)
            assert spec.lengths[0] <= min(lengths)
            assert max(lengths) <= spec.lengths[1]
            assert {array.shape[1:] for array in arrays} == {spec.shape}
    again = make_arguments(specs, batchsize, seed)
    assert str(again.args) == str(made.args)


# -- devices


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *((name, -1) for name in ("@numpy", "numpy", "cpu", "-1")),
        *((name, 0) for name in ("@cupy:0", "cupy:0", "gpu:0", "cuda:0", "0")),
        ("@cupy:13", 13),
    ],
)
def test_devices(text, number):
    assert parse_device(text) == number


@pytest.mark.parametrize(
    "text", ["", "@cupy", "-2", "@intel64", "native", "cpu:0", "0x1", "1" * 50]
)
def test_no_devices(text):
    with pytest.raises(UsageError, match="is no device that can be profiled") as caught:
        parse_device(text)
    assert len(str(caught.value)) < 160


@pytest.mark.parametrize("word", ["profile", "machine"])
def test_a_device_is_a_gpus_number(word):
    assert parser_of(word).parse_args([]).gpu == -1
    assert parser_of(word).parse_args(["-g", "1"]).gpu == 1
    assert parser_of(word).parse_args(["--device", "@cupy:2"]).gpu == 2
    assert parser_of(word).parse_args(["-d", "@numpy"]).gpu == -1
    # The last one counts, as with any option.
    assert parser_of(word).parse_args(["-g", "1", "-d", "@cupy:3"]).gpu == 3
