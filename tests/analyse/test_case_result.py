"""Results of cases in a sweep."""

import numpy as np
import pytest

from chainer_profile.analyse.case_result import block_kind, result_of
from chainer_profile.record.recording import LinkCalls
from tests.sweeping import LINKS, make_case, recording_of


def test_result_of_a_sweep_case():
    settings = make_case(batchsize=2).settings
    result = result_of("case", recording_of(settings))
    assert (result.settings, result.memory_nbytes, result.parameters) == (settings, 2048, 300)
    assert (result.timed, result.clean, result.blocks) == (3, True, "basic")
    assert (result.mean_s, result.std_s, result.fps) == pytest.approx((4e-3, 2e-3, 500))
    none = np.zeros(0, np.int64)  # without unprofiled trials the profiled ones count
    result = result_of("case", recording_of(settings, clean_ns=none, clean_start_ns=none))
    assert (result.timed, result.clean, result.mean_s) == (4, False, pytest.approx(1.001e-3))


def test_kinds_of_residual_blocks():
    def links(*lines):
        return tuple(LinkCalls(*line.split(), 1, 1) for line in lines)

    bottleneck = links("/res/1 BottleneckBlock", "/res/1/conv Convolution2D")
    layer = links("/res/2 Linear")  # a numbered link without children
    inner = links("/res/1/0 Block", "/res/1/0/conv Linear")  # a block within a block
    assert block_kind((*LINKS, *bottleneck, *inner, *layer)) == "basic+bottleneck"
    assert block_kind(LINKS[:3]) == ""
    assert block_kind(links("/0 Block", "/0/conv Linear")) == "block"
