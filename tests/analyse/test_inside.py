"""Parts of a time: exact shares, names and causes, and that Chainer has what they are told by."""

from __future__ import annotations

import inspect
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chainer.utils import conv, conv_nd
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile import summarise
from chainer_profile.analyse import inside
from chainer_profile.analyse.inside import cause_of, part_of
from chainer_profile.record.inside import Inside, Place, Stack
from chainer_profile.record.recording import Layer, Recording
from tests.refusing import refusal

NUMERIC, TENSORDOT = "numpy/_core/numeric.py", "numpy.tensordot"
COPY = Place("tensordot", NUMERIC, 1, "at = a.transpose(newaxes_a).reshape(newshape_a)")
DOT = Place("tensordot", NUMERIC, 2, "res = dot(at, bt)")
FORWARD = Place("C.forward_cpu", "chainer/functions/connection/convolution_2d.py", 9, "y = f(x)")
APPLY = Place("FunctionNode.apply", "chainer/function_node.py")
MINE = Place("Net.forward", "net.py", own=True)
PLACES = (COPY, DOT, FORWARD, APPLY, MINE)


def recording(*stacks: Stack, **changes: Any) -> Recording:
    """Two layers of 3 and 1 ms, and 2 ms between them."""
    sampled = Inside("py-spy 0.4.3", 1000, 1.0, 100, PLACES, stacks)
    return Recording(
        layers=(Layer(0, "/a", "Convolution2DFunction"), Layer(1, "/b", "Convolution2DFunction")),
        self_ns=np.array([[3_000_000, 1_000_000]] * 6),
        trial_ns=np.array([6_000_000] * 6),
        inside=replace(sampled, **changes),
    )


def parts(*stacks: Stack) -> inside.InsideParts:
    sampled = summarise(recording(*stacks)).inside
    assert sampled is not None
    return sampled


def test_parts_are_shares_of_the_measured_time() -> None:
    seen = parts(
        Stack((2, 0), 0.006, 600, row=0),
        Stack((2, 1), 0.002, 200, row=0),
        Stack((2, 1), 0.002, 200, row=1),
        Stack((3,), 0.001, 150),
        Stack((4,), 0.001, 150),
    )
    first, second = seen.layers
    assert (first.name, first.seconds, first.samples) == ("0_Convolution2DFunction", 0.003, 800)
    assert [(part.name, part.share, part.cause) for part in first.parts] == [
        ("a copy within numpy.tensordot", 0.75, "copying"),
        ("the matrix product", 0.25, "matrix product"),
    ]
    assert first.parts[0].seconds == pytest.approx(0.00225)
    assert first.causes == {"copying": 0.75, "matrix product": 0.25}
    assert second.causes == {"matrix product": 1.0}
    (whole,) = seen.functions
    assert (whole.seconds, whole.samples) == (0.004, 1000)
    assert [part.share for part in whole.parts] == [0.6, 0.4]
    assert seen.framework is not None
    assert seen.framework.seconds == pytest.approx(0.002)
    assert {part.name: part.share for part in seen.framework.parts} == {
        "apply and graph": 0.5,
        "the network's own code": 0.5,
    }


def test_what_was_seen_too_seldom_or_for_no_time_is_not_told() -> None:
    seldom = parts(Stack((2, 0), 0.1, 99, row=0), Stack((2, 0), 0.1, 100, row=1))
    shorter = Stack((2, 0), 0.0, 500, row=0), Stack((2, 0), 0.1, 500, row=1), Stack((3,), 0.0)
    for seen in (seldom, parts(*shorter)):
        assert [part.row for part in seen.layers] == [1]
        assert seen.framework is None
    # A function is told by its layers whose lines were timed.
    (whole,) = parts(Stack((2, 0), 0.003, 0, row=0), Stack((2, 1), 0.001, 500, row=1)).functions
    assert whole.seconds == pytest.approx(0.003)
    assert [(part.name, part.share) for part in whole.parts] == [
        ("a copy within numpy.tensordot", 1)
    ]
    for nowhere in (
        *(Stack((9,), 1.0), Stack((), 1.0), Stack((0,), 1.0, row=2), Stack((0,), -1.0, row=0)),
        Stack((0,), 1.0, function="Sigmoid"),
    ):
        assert "the recording cannot be from a run: " in refusal(parts, nowhere)


def test_samples_that_repeat_one_another_tell_less() -> None:
    stacks = Stack((2, 0), 0.001, 1200, row=0), Stack((2, 1), 0.001, 1200, row=0)
    (alone,) = summarise(recording(*stacks)).inside.layers  # type: ignore[union-attr]
    (busy,) = summarise(recording(*stacks, repeats=4)).inside.layers  # type: ignore[union-attr]
    assert alone.parts[0].high == pytest.approx(0.55, abs=1e-4)
    assert busy.parts[0].high == pytest.approx(0.57, abs=2e-4)
    assert summarise(recording(*stacks, repeats=25)).inside.layers == ()  # type: ignore[union-attr]


@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.floats(1e-6, 1), st.sampled_from([0, 1, None])), min_size=1
    )
)
def test_parts_add_up_to_all(drawn: list[tuple[int, float, int | None]]) -> None:
    seen = parts(*(Stack((place,), seconds, 500, row) for place, seconds, row in drawn))
    for whole in (*seen.functions, *seen.layers, seen.framework):
        if whole is not None:
            assert sum(part.share for part in whole.parts) == pytest.approx(1)
            assert sum(part.seconds for part in whole.parts) == pytest.approx(whole.seconds)


def test_parts_have_names_and_lines_causes() -> None:
    im2col = Place("im2col_cpu", "chainer/utils/conv.py", 87, "col[:, :, j] = img[:, :, a:b:sy]")
    pad = Place("pad", "numpy/lib/_arraypad_impl.py", 852, "roi = _view_roi(padded)")
    minus = Place("_x_hat", "chainer/functions/b.py", 3, "x_mu = x - mean")
    for chain, name, cause in (
        ((FORWARD, im2col), "im2col's copy of windows", "copying"),
        ((FORWARD, im2col, pad), "im2col's copy of windows", "copying"),
        ((FORWARD, replace(COPY, source="nda = a.ndim")), f"{TENSORDOT}'s own Python", "call cost"),
        ((replace(FORWARD, source=""), replace(COPY, source="")), TENSORDOT, ""),
        ((FORWARD, APPLY), "apply and graph", "call cost"),
        ((minus,), "x_mu = x - mean in _x_hat", "elementwise arithmetic"),
        ((replace(minus, source=""),), "_x_hat", ""),
        ((FORWARD, Place("<GC>", "~")), "garbage collection", "garbage collection"),
    ):
        assert part_of(chain)[:2] == (name, cause), name
    for cause, sources in {
        "copying": ("y = y.astype(x.dtype)", "col[:, :, j] = img[:, :, a:b]"),
        "matrix product": ("y = x.dot(W.T)",),
        "allocation": ("y = numpy.empty(shape, x.dtype)",),
        "elementwise arithmetic": ("y += beta", "var = x.var(axis=axis)"),
        "waiting": ("self.event.wait()",),
        "call cost": ("if x.ndim == 4 + 1:",),
        "": ("return y", "f(*args, **kwargs)"),
    }.items():
        assert {cause_of(source) for source in sources} == {cause}


def test_chainer_has_what_kinds_are_told_by() -> None:
    import chainer

    chainer_folder = Path(chainer.__file__).parent
    for begins, functions, kind in inside.KINDS:
        for begin in begins:
            assert begin == "" or [*chainer_folder.glob(f"{begin.rstrip('/')}*")], (kind, begin)
        places = [place for begin in begins for place in chainer_folder.glob(begin or "*")]
        texts = [text for place in places for text in [place, *place.rglob("*.py")]]
        code = "".join(text.read_text() for text in texts if text.suffix == ".py")
        for function in functions:
            assert f"def {function}(" in code, (kind, function)


@pytest.mark.parametrize(("file", "function", "line", "name", "cause"), inside.NAMED)
def test_named_parts_are_there(file: str, function: str, line: str, name: str, cause: str) -> None:
    code: Any = {
        "tensordot": inspect.unwrap(np.tensordot),
        **vars(conv),
        **vars(conv_nd),
    }[function]
    source, _ = inspect.getsourcelines(code)
    assert code.__code__.co_filename.endswith(file)
    assert any(line in text for text in source)
