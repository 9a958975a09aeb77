"""What came of a case of a sweep."""

import numpy as np
import pytest

from chainer_profile.analyse.case_result import block_kind, result_of
from chainer_profile.record.recording import LinkCalls
from models.registry import REGISTRY
from tests.sweeping import LINKS, make_case, recording_of


def test_the_facts_of_a_case():
    case = make_case(batchsize=2)
    result = result_of("case", recording_of(case.settings))
    assert result.settings == case.settings
    assert result.mean_s == pytest.approx(4e-3)
    assert result.std_s == pytest.approx(2e-3)
    assert result.fps == pytest.approx(500)
    assert (result.timed, result.clean, result.parameters) == (3, True, 300)
    assert (result.memory_nbytes, result.blocks) == (2048, "basic")
    none = np.zeros(0, np.int64)  # without unprofiled trials the profiled ones count
    result = result_of(
        "case", recording_of(make_case().settings, clean_ns=none, clean_start_ns=none)
    )
    assert (result.clean, result.timed) == (False, 4)
    assert result.mean_s == pytest.approx(1.001e-3)


def test_the_kind_of_blocks():
    def links(*words):
        return tuple(LinkCalls(*word.split(), 1, 1) for word in words)

    bottleneck = links("/res/1 BottleneckBlock", "/res/1/conv Convolution2D")
    layer = links("/res/2 Linear")  # a numbered link without links of its own
    assert block_kind((*LINKS, *bottleneck, *layer)) == "basic+bottleneck"
    assert block_kind(()) == block_kind(LINKS[:3]) == ""
    assert block_kind(links("/0 Block", "/0/conv Linear")) == "block"
    kinds = {"resnet18": "basic", "resnet50": "bottleneck", "se-resnet9-fixup": "sefixup"}
    for name, kind in kinds.items():
        named = sorted(REGISTRY[name].build().namedlinks())
        assert block_kind([LinkCalls(at, type(link).__name__, 1, 0) for at, link in named]) == kind
