"""Sampled parts of layers: shares, names and causes, and the source code that identifies them."""

from __future__ import annotations

import inspect
from dataclasses import replace
from pathlib import Path
from typing import Any

import chainer
import numpy as np
import pytest
from chainer.utils import conv, conv_nd
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile import summarise
from chainer_profile.analyse import inside
from chainer_profile.analyse.inside import InsideParts, part_of
from chainer_profile.record.inside import Inside, Stack, StackFrame
from chainer_profile.record.recording import Layer, Recording
from tests.refusing import refusal

TENSORDOT = "numpy.tensordot"
NUMERIC = "numpy/_core/numeric.py"
COPY = StackFrame("tensordot", NUMERIC, 1, "at = a.transpose(newaxes_a).reshape(newshape_a)")
DOT = StackFrame("tensordot", NUMERIC, 2, "res = dot(at, bt)")
FORWARD = StackFrame(
    "C.forward_cpu", "chainer/functions/connection/convolution_2d.py", 9, "y = f(x)"
)
APPLY = StackFrame("FunctionNode.apply", "chainer/function_node.py")
USER_CODE = StackFrame("Net.forward", "net.py", own=True)
PLACES = (COPY, DOT, FORWARD, APPLY, USER_CODE)


def parts(*stacks: Stack, repeats: float = 1.0, parent: int | None = None) -> InsideParts:
    """Parts in a trial of two layers, of 3 and 1 ms, and 2 ms of framework time."""
    layers = Layer(0, "/a", "Convolution2DFunction"), Layer(1, "/b", "Convolution2DFunction")
    recording = Recording(
        layers=(layers[0], replace(layers[1], parent=parent)),
        self_ns=np.array([[3_000_000, 1_000_000]] * 6),
        trial_ns=np.array([6_000_000] * 6),
        inside=Inside("py-spy 0.4.3", 1000, 1.0, 100, PLACES, stacks, repeats=repeats),
    )
    sampled = summarise(recording).inside
    assert sampled is not None
    return sampled


def test_sampled_parts_are_shares_of_the_measured_time() -> None:
    sampled = parts(
        Stack((2, 0), 0.006, 600, row=0),
        Stack((2, 1), 0.002, 200, row=0),
        Stack((2, 1), 0.002, 200, row=1),
        Stack((3,), 0.001, 150),
        Stack((4,), 0.001, 150),
    )
    first, second = sampled.layers
    assert (first.name, first.seconds, first.samples) == ("0_Convolution2DFunction", 0.003, 800)
    assert [(part.name, part.share, part.seconds) for part in first.parts] == [
        ("a copy within numpy.tensordot", 0.75, pytest.approx(0.00225)),
        ("the matrix product", 0.25, pytest.approx(0.00075)),
    ]
    assert first.causes == {"copying": 0.75, "matrix product": 0.25}
    assert second.causes == {"matrix product": 1.0}
    (whole,) = sampled.functions
    assert (whole.seconds, whole.samples) == (0.004, 1000)
    assert [part.share for part in whole.parts] == [0.6, 0.4]
    assert sampled.framework is not None
    assert [(part.name, part.share, part.seconds) for part in sampled.framework.parts] == [
        ("apply and graph", 0.5, pytest.approx(0.001)),
        ("the network's own code", 0.5, pytest.approx(0.001)),
    ]
    # Stacks cannot separate the self time of a layer from its nested calls.
    (layer,) = parts(Stack((2, 0), 0.006, 600, row=0), parent=0).layers
    assert layer.seconds == pytest.approx(0.004)


def test_layers_with_few_samples_or_no_time_are_omitted() -> None:
    few_samples = parts(Stack((2, 0), 0.1, 99, row=0), Stack((2, 0), 0.1, 100, row=1))
    no_time = Stack((2, 0), 0.0, 500, row=0), Stack((2, 0), 0.1, 500, row=1), Stack((3,), 0.0)
    for sampled in (few_samples, parts(*no_time)):
        assert [part.row for part in sampled.layers] == [1]
        assert sampled.framework is None
    # Lines timed by earlier versions have no samples, so other layers give the function's parts.
    (whole,) = parts(Stack((2, 0), 0.003, 0, row=0), Stack((2, 1), 0.001, 500, row=1)).functions
    assert (whole.seconds, whole.causes) == (pytest.approx(0.001), {"matrix product": 1})
    for invalid in (
        *(Stack((9,), 1.0), Stack((), 1.0), Stack((0,), 1.0, row=2), Stack((0,), -1.0, row=0)),
        Stack((0,), 1.0, function="Sigmoid"),
    ):
        assert "the recording cannot be from a run: " in refusal(parts, invalid)


def test_repeated_samples_widen_the_interval() -> None:
    stacks = Stack((2, 0), 0.001, 1200, row=0), Stack((2, 1), 0.001, 1200, row=0)
    for repeats, high in ((1, 0.55), (4, 0.57)):
        (layer,) = parts(*stacks, repeats=repeats).layers
        assert layer.parts[0].high == pytest.approx(high, abs=2e-4)
    assert parts(*stacks, repeats=25).layers == ()


@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.floats(1e-6, 1), st.sampled_from([0, 1, None])), min_size=1
    )
)
def test_sampled_parts_add_up_to_the_layer(stacks: list[tuple[int, float, int | None]]) -> None:
    sampled = parts(*(Stack((place,), seconds, 500, row) for place, seconds, row in stacks))
    for whole in (*sampled.functions, *sampled.layers, sampled.framework):
        if whole is not None:
            assert sum(part.share for part in whole.parts) == pytest.approx(1)
            assert sum(part.seconds for part in whole.parts) == pytest.approx(whole.seconds)


def test_names_of_parts_and_causes_of_lines() -> None:
    im2col = StackFrame(
        "im2col_cpu", "chainer/utils/conv.py", 87, "col[:, :, j] = img[:, :, a:b:sy]"
    )
    pad = StackFrame("pad", "numpy/lib/_arraypad_impl.py", 852, "roi = _view_roi(padded)")
    minus = StackFrame("_x_hat", "chainer/functions/b.py", 3, "x_mu = x - mean")
    for chain, name, cause in (
        ((FORWARD, im2col), "im2col's copy of windows", "copying"),
        ((FORWARD, im2col, pad), "im2col's copy of windows", "copying"),
        (
            (FORWARD, replace(COPY, source="nda = a.ndim")),
            f"{TENSORDOT}'s own Python",
            "call overhead",
        ),
        ((replace(FORWARD, source=""), replace(COPY, source="")), TENSORDOT, ""),
        ((FORWARD, APPLY), "apply and graph", "call overhead"),
        ((minus,), "x_mu = x - mean in _x_hat", "elementwise arithmetic"),
        ((replace(minus, source=""),), "_x_hat", ""),
        ((FORWARD, StackFrame("<GC>", "~")), "garbage collection", "garbage collection"),
    ):
        assert part_of(chain)[:2] == (name, cause), name
    for cause, sources in {
        "copying": ("y = y.astype(x.dtype)", "col[:, :, j] = img[:, :, a:b]"),
        "matrix product": ("y = x.dot(W.T)",),
        "allocation": ("y = numpy.empty(shape, x.dtype)",),
        "elementwise arithmetic": ("y += beta", "var = x.var(axis=axis)"),
        "waiting": ("self.event.wait()",),
        "call overhead": ("if x.ndim == 4 + 1:",),
        "": ("return y", "f(*args, **kwargs)"),
    }.items():
        assert {inside.cause_of(source) for source in sources} == {cause}


def test_chainer_has_the_functions_that_identify_kinds() -> None:
    folder = Path(chainer.__file__).parent
    for begins, functions, kind in inside.KINDS:
        for begin in begins:
            assert begin == "" or [*folder.glob(f"{begin.rstrip('/')}*")], (kind, begin)
        if functions:
            code = "".join(p.read_text() for begin in begins for p in folder.rglob(begin or "*.py"))
            assert all(f"def {function}(" in code for function in functions), kind


def test_numpy_and_chainer_have_the_named_lines() -> None:
    code: Any = {"tensordot": inspect.unwrap(np.tensordot), **vars(conv), **vars(conv_nd)}
    for file, function, line, name, _ in inside.NAMED:
        assert code[function].__code__.co_filename.endswith(file), name
        assert line in inspect.getsource(code[function]), name
