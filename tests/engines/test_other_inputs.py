from __future__ import annotations

from typing import Any

import chainer
import chainer.links as L
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from chainer_profile.engines.other_inputs import other_inputs, with_other_parameters
from chainer_profile.engines.race import Contestant, Race
from chainer_profile.engines.runtimes.chainer_engine import ChainerEngine
from tests.conftest import FakeClock
from tests.engines.exporting import images, network_of
from tests.engines.fake_engines import FakeEngine

SHAPES = npst.array_shapes(min_dims=0, max_dims=4, min_side=0)


@given(
    st.one_of(
        npst.arrays(np.float32, SHAPES, elements=st.floats(-100, 100, width=32)),
        npst.arrays(np.int32, SHAPES, elements=st.integers(0, 9)),
        npst.arrays(np.bool_, SHAPES),
    )
)
def test_they_are_of_the_same_shapes_and_within_the_same_limits(array: Any) -> None:
    (other,) = other_inputs((array,))
    assert (other.shape, other.dtype) == (array.shape, array.dtype)
    assert other is not array
    assert other.flags.c_contiguous
    if array.size and not (array.dtype.kind == "f" and array.min() == array.max()):
        assert array.min() <= other.min()
        assert other.max() <= array.max()
    if array.dtype.kind != "f":
        assert set(other.flat) <= set(array.flat)


@pytest.mark.parametrize("seed", range(5))
def test_they_are_no_permutation(seed: int) -> None:
    array = np.random.default_rng(seed).standard_normal((3, 4)).astype(np.float32)
    (other,) = other_inputs((array,))
    assert abs(other.sum() - array.sum()) > 1e-3
    assert not np.array_equal(np.sort(other, None), np.sort(array, None))


@pytest.mark.parametrize("number", [0.0, 2.5])
def test_of_one_number_alone_they_are_others(number: float) -> None:
    (other,) = other_inputs((np.full((3, 4), number, np.float32),))
    assert len(set(other.flat)) == 12


def test_numbers_that_are_none_are_no_matter() -> None:
    (other,) = other_inputs((np.array([np.nan, 1, 2, np.inf], np.float32),))
    assert other.shape == (4,)
    (other,) = other_inputs((np.array([np.nan, np.nan], np.float32),))
    assert np.isnan(other).all()


class Normalised(chainer.Chain):
    """A network whose initial normalisation does nothing."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.bn = L.BatchNormalization(3)

    def forward(self, x: Any) -> Any:
        return self.bn(x)


class Passing(FakeEngine):
    """An engine that leaves out normalisations."""

    def __init__(self) -> None:
        super().__init__(FakeClock(), function=lambda x: x)


def test_what_initial_parameters_hide_is_seen(clock: FakeClock) -> None:
    network = network_of(Normalised(), images(4, 3))
    for make, wrong in ((None, False), (Passing, True)):
        ours = Contestant(name="chainer", engine=ChainerEngine())
        theirs = Contestant(name="x", engine=Passing(), make=make)
        one = Race([ours, theirs], network, trials=2, clock=clock)  # type: ignore[arg-type]
        one.run()
        assert theirs.wrong == wrong
    kept = network.model.bn
    assert (kept.gamma.array == 1).all()
    kept.gamma.array[...], kept.beta.array[...] = [1, 2, 3], [0, 1, 2]
    kept.avg_mean[...], kept.avg_var[...] = [0, 1, 2], [1, 2, 3]
    assert with_other_parameters(network.model) is None
