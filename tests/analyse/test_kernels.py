"""What the kernels pass says, by hand: see KERNELS."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.analyse.kernels import LayerKernel, kernel_use, lay_out_kernels
from chainer_profile.analyse.timeline import FUNCTION, lay_out_device
from chainer_profile.record.recording import Kernel, Kernels, Recording
from tests.conftest import make_recording
from tests.report.devicing import KERNELS, make_device_recording


def test_they_add_up_to_the_time_that_the_gpu_is_busy() -> None:
    use = kernel_use(make_device_recording(kernels=KERNELS))
    assert use is not None
    assert (use.trials, use.dropped, use.known_share) == (2, 3, 19 / 20)
    assert use.time_s == pytest.approx(600e-6)
    assert use.busy_share == pytest.approx(0.95)  # 570 us of 600 us
    assert sum(one.share for one in use.kernels) == pytest.approx(1)
    gemm = LayerKernel(0, "gemm<float, 128>", 4.0, 160e-6, 320 / 1200)
    assert use.kernels[1] == gemm
    assert use.kernels[-1].layer_index is None


def test_what_is_not_known() -> None:
    assert kernel_use(make_recording()) is None
    failed = kernel_use(make_device_recording(kernels=Kernels(problem="no such package")))
    assert failed is not None
    assert (failed.problem, failed.kernels, failed.time_s) == ("no such package", (), 0)
    assert failed.known_share is failed.busy_share is None
    no_held = kernel_use(make_device_recording(kernels=KERNELS, n_held=0))
    assert no_held is not None
    assert no_held.busy_share is None
    instant = Kernels(1, (Kernel("add", None, 1, 0),))
    use = kernel_use(make_device_recording(kernels=instant))
    assert use is not None
    assert (use.known_share, use.busy_share) == (0, None)
    assert np.isnan(use.kernels[0].share)


def laid(recording: Recording) -> list[tuple[int, int, str]]:
    device = lay_out_device(recording, 0)
    assert device is not None
    return [(begin, end, one.name) for begin, end, one in lay_out_kernels(recording, device)]


def test_they_lie_within_their_layer_one_behind_the_other() -> None:
    recording = make_device_recording(kernels=KERNELS)
    device = lay_out_device(recording, 0)
    assert device is not None
    first = next(one.begin_ns for _, one in device.walk((FUNCTION,)))
    assert laid(recording)[:2] == [
        (first, first + 30_000, "memcpy HTOD"),
        (first + 30_000, first + 190_000, "gemm<float, 128>"),
    ]
    # The one without a layer has no place.
    assert len(laid(recording)) == len(KERNELS.kernels) - 1
    assert laid(replace(recording, kernels=None)) == []


def test_what_does_not_fit_is_shortened() -> None:
    long = Kernels(1, (Kernel("a", 0, 1, 3_000_000), Kernel("b", 0, 1, 1_000_000)))
    (begin, middle, _), (behind, end, _) = laid(make_device_recording(kernels=long))
    assert (middle - begin, end - behind, behind) == (750_000, 250_000, middle)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 10**7)), max_size=12))
def test_none_reaches_into_another_layer(found: list[tuple[int, int]]) -> None:
    recording = make_device_recording(n_trials=1)
    # The third is within the second.
    layers = list(recording.layers)
    layers[2] = replace(layers[2], parent=1)
    kernels = Kernels(1, tuple(Kernel(str(row), row, 1, ns) for row, ns in found))
    nested = replace(recording, layers=tuple(layers), kernels=kernels)
    device = lay_out_device(nested, 0)
    assert device is not None
    places = {one.layer: one for _, one in device.walk((FUNCTION,))}
    ends = []
    for begin, end, one in lay_out_kernels(nested, device):
        place = places[one.row]
        assert place.begin_ns <= begin <= end <= place.end_ns
        assert all(end <= inner.begin_ns or inner.end_ns <= begin for inner in place.inner)
        ends += [begin, end]
    assert ends == sorted(ends) or any(place.inner for place in places.values())
    assert len(ends) == 2 * len(found)
