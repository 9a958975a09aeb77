"""Exact figures against Chainer's own NumPy code, whose operations are counted while it runs."""

from __future__ import annotations

import chainer
import pytest

from chainer_profile.costs.work import Work
from tests.costs.calls import run
from tests.costs.cases import CASES, case
from tests.costs.counting import Counting, counting

#: Phases in which Chainer's code on a CPU does something else than what is counted; test_exact.py
#: has the figures that matter by hand.
ELSE = {
    # It multiplies by masks, or only works on some elements; both is choosing.
    "backward": "relu leaky_relu clipped_relu hard_sigmoid arcsin arccos arctan "
    "softmax_cross_entropy softmax_cross_entropy_no softmax_cross_entropy_weight "
    "softmax_cross_entropy_soft softmax_cross_entropy_kl "
    # It does a step twice, or more than needed: additions of windows to their places, too.
    "layer_normalization mean_squared_error slstm convolution convolution_dilated "
    "convolution_grouped convolution_depthwise convolution_1d convolution_3d local_convolution "
    # It is compiled, or SciPy's.
    "average_pooling average_pooling_global max_pooling max_pooling_floor digamma",
    "forward": "elu leaky_relu prelu hard_sigmoid softmax_cross_entropy softmax_cross_entropy_no "
    "softmax_cross_entropy_weight tree_lstm deconvolution deconvolution_grouped deconvolution_3d "
    "batch_normalization batch_normalization_running batch_normalization_axis "
    # It is compiled, SciPy's, or a random number.
    "dropout zoneout gaussian logsumexp mean mean_absolute_error argmax argmin accuracy polygamma "
    "average_pooling average_pooling_global average_pooling_nd max_pooling max_pooling_floor",
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::RuntimeWarning")
@pytest.mark.parametrize("name", CASES)
def test_exact_figures_are_what_chainer_does(name: str) -> None:
    call, arrays = CASES[name]
    known = case(name)
    Counting.flops = 0
    ran = run(call, *(counting(a) if a.dtype.kind == "f" else a for a in arrays), gradients=False)
    compare(name, "forward", known.work("forward"))
    if (work := known.work("backward")) is not None and not work.about:
        nodes = zip(ran.function.inputs, ran.needed, strict=True)
        xs = [node.get_variable() for node, need in nodes if need]
        Counting.flops = 0
        chainer.grad(list(ran.ys), xs, [chainer.Variable(counting(gy)) for gy in ran.gys])
        compare(name, "backward", work)


def compare(name: str, phase: str, work: Work | None) -> None:
    assert work is not None
    if not work.about:
        assert (work.flops != Counting.flops) == (name in ELSE[phase].split())
