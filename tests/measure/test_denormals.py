"""The number of denormal numbers is exact, and their cost is a ratio of two times."""

import platform
import subprocess
import sys

import chainer
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.measure.denormals import denormal_part, largest_denormal_part, slowdown
from tests import ROOT

LIMITS = {kind: (np.finfo(kind).tiny, np.finfo(kind).smallest_subnormal) for kind in "fd"}


@pytest.mark.parametrize("kind", "fd")
def test_numbers_below_the_smallest_normal_one_are_denormal(kind):
    tiny, smallest = LIMITS[kind]
    denormal = [smallest, -smallest, np.nextafter(tiny, tiny.dtype.type(0)), -tiny / 2]
    others = [0.0, -0.0, tiny, -tiny, 1.0, np.inf, -np.inf, np.nan]
    for numbers, part in ((denormal, 1.0), (others, 0.0), (denormal + others, 1 / 3)):
        array = np.array(numbers, kind)
        swapped = array.astype(array.dtype.newbyteorder())
        for variant in (array, swapped, array[::-1], array[None].T, array[:, None, None]):
            assert denormal_part(variant) == part


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1))
def test_denormal_part_equals_its_definition(bits):
    array = np.array(bits, np.uint32).view(np.float32)
    with np.errstate(invalid="ignore"):
        is_denormal = (array != 0) & (np.abs(array.astype("d")) < LIMITS["f"][0])
    assert denormal_part(array) == is_denormal.mean()


@pytest.mark.parametrize(
    "array", [None, 1e-40, np.zeros(0, "f"), np.full(3, 1e-7, "e"), np.arange(3), np.array(["a"])]
)
def test_other_values_have_no_denormal_numbers(array):
    assert denormal_part(array) == 0
    assert largest_denormal_part([array, np.full(4, 1e-40, "f")]) == 1


def test_large_arrays_are_sampled():
    array = np.zeros((3, 1 << 19), "f")
    array[1] = 1e-40
    assert denormal_part(array) == pytest.approx(1 / 3, abs=1e-4)


def test_slowdown_compares_the_fastest_products():
    # Begin and end times of three products with denormal numbers and three with zeros.
    times = iter(np.cumsum([0, 900, 5, 600, 5, 700, 5, 100, 5, 20, 5, 30]))
    assert slowdown(0.5, "float32", lambda: int(next(times))) == 600 / 20


REMEDIES = "\n".join(
    line.strip()
    for line in (ROOT / "docs" / "reading.md").read_text().partition("## Denormal")[2].splitlines()
    if line.startswith("      ")
)


def is_flushed_by(code):
    """Whether half of the smallest normal number is zero after running code in a new process."""
    code += "\nimport numpy\nprint(numpy.ones(9, 'f') * 1.1754944e-38 * numpy.float32(0.5))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {float(number) for number in ended.stdout.strip("[ ]\n").split()} == {0.0}


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="for Linux on x86-64"
)
def test_documented_code_flushes_denormal_numbers():
    flushing = REMEDIES.splitlines()[1:]
    assert not is_flushed_by("")
    assert is_flushed_by("\n".join(flushing))


def test_documented_code_sets_tiny_weights_to_zero():
    model = chainer.links.Linear(3, 2)
    model.W.array[:] = [[1e-40, -1e-40, 1], [-1, 0, 1e-38]]
    exec(REMEDIES.splitlines()[0], {"model": model, "np": np})
    assert model.W.array.tolist() == [[0, 0, 1], [-1, 0, 0]]
