"""Every formula run on numbers that count: it is the function, and its count is right.

A formula that states a count computes nothing, so numbers cannot see it. Of those, products are
held by arrays of ones, and the others are compared with counts that were worked out by hand. Nor do
numbers see bytes: these are in test_cost_update, test_cost and test_cost_networks.
"""

from __future__ import annotations

import re
from typing import Any

import chainer
import numpy as np
import pytest

from chainer_profile.basics.words import BACKWARD, FORWARD
from chainer_profile.costs import registry
from chainer_profile.costs.counting import Array
from chainer_profile.costs.work import Call, Work, forward_work
from tests.costs.test_called import BY_FUNCTIONS
from tests.costs.test_cost_cases import CASES, case
from tests.costs.test_cost_harness import (
    NotOnNumbersError,
    NumberCall,
    Ran,
    positive,
    real,
    run,
    values,
)

FORWARD, BACKWARD = FORWARD, BACKWARD

#: Cases of a sum of products of two arrays' elements, and perhaps a bias.
PRODUCTS = (
    "linear",
    "linear_no_bias",
    "matmul",
    "matmul_transposed",
    "matmul_stack",
    "batch_matmul",
    "batch_matmul_vector",
    "tensordot",
    "einsum",
    "sparse_matmul",
    "convolution_1d",
    "convolution_dilated",
    "convolution_grouped",
    "convolution_depthwise",
    "deconvolution_grouped",
    "deconvolution_3d",
    "local_convolution",
)

#: Other formulas that state a count, by case and phase: operations, and multiply-adds among them.
BY_HAND: dict[tuple[str, str], int | tuple[int, int]] = {
    # 2 x 3 x 4 elements: two comparisons and a difference each.
    ("crelu", "backward"): 3 * 24,
    ("crelu", "forward"): 3 * 24,
    # The product of the others, of 4 rows of 3 elements or of one of 24.
    ("prod", "backward"): 2 * 23 + 2 * 24,
    ("prod_axis", "backward"): 2 * 16 + 2 * 24,
    ("cumsum", "forward"): 23,
    ("cumsum", "backward"): 23,
    ("cumsum_axis", "forward"): 6 * 3,
    ("cumsum_axis", "backward"): 6 * 3,
    ("cumprodsum", "forward"): 2 * 16,
    ("cumprodsum", "backward"): 3 * 16,
    ("cumprod", "forward"): 8 * 2,
    ("cumprod", "backward"): 8 * 3 * 2,
    # Gradients added to zeros.
    ("get_item", "backward"): 2 * 4,
    ("get_items", "backward"): 2 * 4 * 4,
    ("get_mask", "backward"): 12,
    ("scatter_add", "forward"): 4,
    ("as_strided", "backward"): 6,
    # 6 copies of each of 24 elements, and 2, are added up.
    ("tile", "backward"): 24 * 5,
    ("repeat", "backward"): 24,
    # 5 n log2(n) for 2 rows of 8.
    ("fft", "forward"): 2 * 5 * 8 * 3,
    ("fft", "backward"): 2 * 5 * 8 * 3,
    # 2 matrices of 2 x 3, 20 places: 6 multiply-adds each.
    ("spatial_transformer_grid", "forward"): (2 * 2 * 6 * 20, 2 * 6 * 20),
    ("spatial_transformer_grid", "backward"): (2 * 2 * 6 * 20, 2 * 6 * 20),
    # 2 x 15 places, 3 channels.
    ("spatial_transformer_sampler", "forward"): 30 * 22 + 90 * 7,
    ("spatial_transformer_sampler", "backward"): 30 * (18 + 8) + 90 * (12 + 18),
    # 60 elements, groups of 2 channels.
    ("fixed_decorrelated_batch_normalization", "forward"): (60 + 2 * 120, 120),
    ("fixed_decorrelated_batch_normalization", "backward"): (240 + 4 + 120 + 240, 2 * 120),
    # 2 examples, 3 inputs, 4 outputs: drawn, compared, products; W scaled; bias.
    ("dropconnect", "forward"): (24 + 24 + 48 + 12 + 8, 24),
    ("dropconnect", "backward"): ((12 + 48) + (24 + 12 + 12) + 4, 24),
    ("dropconnect_one_mask", "forward"): (12 + 12 + 48 + 12, 24),
    ("dropconnect_one_mask", "backward"): ((12 + 48) + (24 + 12 + 12), 24),
    ("einsum_trace", "backward"): 0,
    # 4 multiply-adds a gradient, 5 operations for each of 15 places.
    ("resize_images", "backward"): 90 * 8 + 15 * 5,
    # 2 regions, 3 channels, 6 bins; 4 points each, with 4 neighbours.
    ("roi_max_align", "forward"): 36 * (4 * 8 + 3),
    ("roi_max_align", "backward"): 36 * 8,
    ("roi_average_align", "forward"): 36 * (4 * 8 + 1),
    ("roi_average_align", "backward"): 36 * (4 * 8 + 1),
    # 4 labels, 12 elements; the gradient of a mean is divided first.
    ("hinge", "backward"): 4 + 1 + 2 * 12,
    ("hinge_l2", "backward"): 4 + 2 * 12,
    # 4 examples: means (2 an element), the product, its division, half the squared sum.
    ("cross_covariance", "forward"): (2 * 12 + 2 * 8 + 2 * 24 + 6 + 2 * 6 + 1, 24),
    ("cross_covariance", "backward"): (1 + 2 * 20 + 48 + 6 + (48 + 12) + (48 + 8), 3 * 24),
    ("decov", "forward"): (2 * 12 + 2 * 36 + 9 + 2 * 9 + 1, 36),
    ("decov", "backward"): (1 + 2 * 36 + 2 * 12, 36),
    ("decov_no", "forward"): (2 * 12 + 2 * 36 + 9, 36),
    ("decov_no", "backward"): (9 + 9 + 2 * 36, 36),
    # 5 steps, 2 sequences of 3 symbols, paths of 5: see the formula.
    ("ctc_mean", "forward"): 30 * 6 - 2 * 10 + 28 * 50 + (4 + 5 + 5 + 4 + 2 + 1) * 2 + 2,
    ("ctc_no", "forward"): 30 * 6 - 2 * 10 + 28 * 50 + (4 + 5 + 5 + 4 + 2 + 1) * 2,
    ("ctc_mean", "backward"): (4 + 5 + 5 + 4 + 2) * 2 + 3 * 50 + 1 + 2 * 30,
    ("ctc_no", "backward"): (4 + 5 + 5 + 4 + 2) * 2 + 3 * 50 + 2 * 30,
    # 6 states.
    ("slstm", "backward"): 6 * (24 + 5 + 28 + 2),
    ("tree_lstm", "backward"): 6 * (1 + 5 + 12 + 2 * 5),
    # Matrices of 3 rows; see LAPACK's working note 41 for inversion.
    ("inv", "forward"): 2 * 27,
    ("inv", "backward"): (4 * 27 + 9, 2 * 27),
    ("batch_inv", "forward"): 2 * 2 * 27,
    ("batch_inv", "backward"): (2 * (4 * 27 + 9), 2 * 2 * 27),
    # 2 rows: a division, 2 multiply-adds each; 1 row: a division, a multiply-add; the diagonal.
    ("batch_det", "forward"): 2 * (2 * (1 + 4) + (1 + 2) + 2),
    ("batch_det", "backward"): 2 * (2 * 27 + 2 * 9),
    # Column 1: a root, 2 divisions; column 2: 2 sums of a product; column 3: one of 2.
    ("cholesky", "forward"): 3 + 2 * 3 + 5,
    ("cholesky", "backward"): (2 * 27 + 6 * 27 + 3 * 9, 3 * 27),
    # 4 labels: 2 comparisons each for the largest, 5; 3 classes: 8.
    ("classification_summary", "forward"): 8 + 20 + 24,
    # 72 elements, 3 channels and 3 x 2 places each, zeros of the padding as well; the bias.
    ("convolution", "forward"): (2 * 72 * 18 + 72, 72 * 18),
    ("convolution", "backward"): (2 * 2 * 72 * 18 + 72 - 4, 2 * 72 * 18),
    # 3 channels of 4 x 4 x 4; 2 channels of 2 x 2 x 2 each.
    ("convolution_3d", "forward"): (2 * 192 * 16, 192 * 16),
    ("convolution_3d", "backward"): (2 * 2 * 192 * 16, 2 * 192 * 16),
    # 36 elements of x go to 4 channels, 3 x 3 places each; 120 elements of y have a bias.
    ("deconvolution", "forward"): (2 * 36 * 36 + 120, 36 * 36),
    ("deconvolution", "backward"): (2 * 2 * 36 * 36 + 120 - 4, 2 * 36 * 36),
    # 2 examples, 3 x 4 pairs, 5 outputs; linear terms of 3 and of 4, each product added; a bias.
    ("bilinear_no_bias", "forward"): (24 + 2 * 120, 120),
    ("bilinear_no_bias", "backward"): (24 + 2 * (120 + 2 * 24 + 120), 120 + 2 * 24 + 120),
    ("bilinear", "forward"): (24 + 2 * (120 + 30 + 40) + 3 * 10, 120 + 30 + 40),
    ("bilinear", "backward"): (
        24 + 2 * (288 + 2 * (30 + 40)) + (6 + 8) + (10 - 5),
        288 + 2 * (30 + 40),
    ),
    # 5 products of 2 x 3 with 3 x 4; the second's gradients are added up.
    ("matmul_broadcast", "forward"): (2 * 120, 120),
    ("matmul_broadcast", "backward"): (2 * 240 + 4 * 12, 240),
    # Gradients beside a vector are multiplications alone.
    ("matmul_vector", "forward"): (2 * 6, 6),
    ("matmul_vector", "backward"): (6 + 2 * 6, 6),
    ("vector_matmul", "forward"): (2 * 12, 12),
    ("vector_matmul", "backward"): (2 * 12 + 12, 12),
    ("vector_vector", "forward"): (2 * 3, 3),
    ("vector_vector", "backward"): 3 + 3,
    ("einsum_ellipsis", "forward"): (2 * 30, 30),
    ("einsum_ellipsis", "backward"): (30 + 2 * 30, 30),
    ("einsum_outer", "forward"): 12,
    ("einsum_outer", "backward"): (2 * 2 * 12, 2 * 12),
    # 12 places: two multiplications and an addition; the matrix's gradient has no sum.
    ("einsum_three", "forward"): 12 * 3,
    ("einsum_three", "backward"): 12 * 3 + 12 * 2 + 12 * 3,
    ("einsum_trace", "forward"): 2,
    # Rows' gradients, or windows', added to zeros.
    ("embed_id", "backward"): 24,
    ("im2col", "backward"): 144,
    # 36 windows of 3 x 3, 6 of 4 x 6, 72 of 2 x 2: a place an operation, backward a division more.
    ("average_pooling", "forward"): 36 * 9,
    ("average_pooling", "backward"): 36 * (9 + 1),
    ("average_pooling_global", "forward"): 6 * 24,
    ("average_pooling_global", "backward"): 6 * (24 + 1),
    ("average_pooling_nd", "forward"): 72 * 4,
    ("average_pooling_nd", "backward"): 72 * (4 + 1),
    ("max_pooling", "forward"): 72 * 8,
    ("max_pooling", "backward"): 72,
    ("max_pooling_floor", "forward"): 12 * 8,
    ("max_pooling_floor", "backward"): 12,
    # 144 elements go to 2 x 2 or 3 x 3 places.
    ("unpooling", "backward"): 144 * 3,
    ("unpooling_nd", "forward"): 144 * 4,
    ("unpooling_nd", "backward"): 144 * 3,
    ("unpooling_overlap", "forward"): 144 * 9,
    ("unpooling_overlap", "backward"): 144 * 8,
    # 1 or 2 regions of 3 channels, 24 places in 6 bins.
    ("roi_pooling", "forward"): 3 * (24 - 6),
    ("roi_pooling", "backward"): 3 * 6,
    ("roi_max_pooling", "forward"): 6 * (24 - 6),
    ("roi_max_pooling", "backward"): 6 * 6,
    ("roi_average_pooling", "forward"): 6 * 24,
    ("roi_average_pooling", "backward"): 6 * (24 + 6),
    ("resize_images", "forward"): 90 * 8 + 15 * 5,
    # 24 elements, 2 channels: as without running averages, which are 2 of 3 operations.
    ("batch_normalization_running", "forward"): 24 * 7 + 2 * 3 + 2 * 2 * 3,
    # 24 elements; of 6 channels 5 pairs and 4 pairs are neighbours, both ways, at 4 places.
    ("local_response_normalization", "forward"): 24 * 5 + 2 * 9 * 4,
    ("local_response_normalization", "backward"): 24 * 6 + 2 * 9 * 4,
    # 4 labels, 12 elements, or twice that: the largest, difference, exponential, sum, logarithm
    # (its maximum added), difference, exponential; the losses' sum and scale, or signs.
    ("softmax_cross_entropy", "forward"): 8 + 24 + 8 + 8 + 24 + 3 + 1,
    ("softmax_cross_entropy_weight", "forward"): 8 + 24 + 8 + 8 + 24 + 12 + 3 + 1,
    ("softmax_cross_entropy_no", "forward"): 16 + 48 + 16 + 16 + 48 + 8,
    ("softmax_cross_entropy", "backward"): 4 + 12 + 1,
    ("softmax_cross_entropy_weight", "backward"): 4 + 2 * 12 + 1,
    ("softmax_cross_entropy_no", "backward"): 8 + 24,
    # 4 labels, 12 elements: sign, 1 + x, maximum; sum and mean, or squares.
    ("hinge", "forward"): 4 + 2 * 12 + 11 + 1,
    ("hinge_l2", "forward"): 4 + 3 * 12,
    # 12 samples of 3: products; log1p(e^x), a label's sign, sums.
    ("negative_sampling", "forward"): (2 * 36 + 12 + 4 + 8 + 3, 36),
    ("negative_sampling", "backward"): (3 * 2 * 36 + 4 * 12 + 2 * 4, 3 * 36),
    # 4 states that go on: 3 gates of 4, 2 tanh, 4 products and sums.
    ("lstm", "forward"): 4 * (3 * 4 + 2 + 4),
    ("lstm", "backward"): 4 * (3 * 4 + 2 + 5 + 16 + 1),
    # 6 states: 5 gates, 3 tanh, 8 products and sums, one of them of the gates; 4 gates, 2 tanh, 6.
    ("slstm", "forward"): 6 * (5 * 4 + 3 + 9),
    ("tree_lstm", "forward"): 6 * (4 * 4 + 2 + 6),
}

#: What a case of a phase is held by.
STATED = set(BY_HAND) | {(name, phase) for name in PRODUCTS for phase in (FORWARD, BACKWARD)}
PHASES = [
    (name, phase) for name in CASES for phase in (FORWARD, BACKWARD) if (name, phase) not in STATED
]


def work_of(ran: Ran, phase: str) -> Work:
    return ran.forward() if phase == FORWARD else ran.backward()


def compare_on_numbers(ran: Ran, phase: str, only_count: bool = False) -> None:
    """Fail unless a formula gives Chainer's results, by as many operations as it counts."""
    function = registry.inner(ran.function)
    entry = registry.find(function, phase)
    assert entry is not None
    work = work_of(ran, phase)
    call = NumberCall(ran, ran.needed if phase == BACKWARD else ())
    try:
        results = entry.formula(call)  # type: ignore[arg-type]
    except (NotOnNumbersError, AttributeError, TypeError):
        # Copies and views.
        assert work.flops == work.macs == 0
        return
    assert call.tally.operations == work.flops
    assert work.macs == 0
    assert call.tally.repeated == []
    results = results if isinstance(results, tuple) else (results,)
    expected = ran.outputs if phase == FORWARD else ran.grads
    for result, array in zip(results, expected, strict=True):
        assert (result is None) == (array is None)
        if array is not None and not only_count:
            got = np.broadcast_to(values(result), array.shape)
            np.testing.assert_allclose(got, array, rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(("name", "phase"), PHASES)
def test_a_formula_computes_the_function_and_counts_what_it_computes(name: str, phase: str) -> None:
    ran = case(name)
    if phase == BACKWARD and registry.find(registry.inner(ran.function), phase) is None:
        assert name in BY_FUNCTIONS or not any(grad is not None for grad in ran.grads)
        return
    if phase == BACKWARD and not any(grad is not None for grad in ran.grads):
        assert not ran.grads
        return
    compare_on_numbers(ran, phase, only_count=name in ("argmax", "argmin", "accuracy"))


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(lambda c: c.gy[0] * c.x[0] * (1 - c.x[0]), id="another value"),
        pytest.param(lambda c: c.gy[0] * c.y[0], id="a term left out"),
        pytest.param(lambda c: c.gy[0] * c.y[0] * (1 - c.y[0]) + c.each(2, c.y[0]), id="stated"),
        pytest.param(lambda c: (c.gy[0] * c.y[0] * (1 - c.y[0]), None), id="a result too many"),
        pytest.param(
            lambda c: c.gy[0] * c.y[0] * (1 - c.y[0]) + 0 * (c.y[0] * c.gy[0]), id="a step twice"
        ),
    ],
)
def test_numbers_show_that_a_formula_is_wrong(wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = case("sigmoid")
    compare_on_numbers(ran, BACKWARD)
    entry = registry.Entry("activation", "", wrong)
    monkeypatch.setattr(registry, "find", lambda function, phase: entry)
    with pytest.raises((AssertionError, ValueError)):
        compare_on_numbers(ran, BACKWARD)


SHAPES = ((), (1,), (5,), (2, 3), (2, 1), (0, 3), (2, 3, 4), (1, 1, 1), (2, 3, 2, 2))
#: Functions of one array, or of arrays of one shape.
OF_ONE_SHAPE = [
    name
    for name, (_, arrays) in CASES.items()
    if all(getattr(a, "shape", None) == arrays[0].shape and a.dtype.kind == "f" for a in arrays)
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OF_ONE_SHAPE)
def test_a_formula_knows_every_shape_that_its_function_takes(name: str) -> None:
    call, arrays = CASES[name]
    for shape in SHAPES:
        try:
            ran = run(call, *(np.asarray(positive(*shape)) for _ in arrays))
        except Exception:  # Chainer does not take this shape
            continue
        assert ran.forward().flops >= 0
        if any(ran.needed) and registry.find(registry.inner(ran.function), BACKWARD):
            assert ran.backward().flops >= 0


#: Normalisations of arrays so large that what is done once a channel, group or example rounds away.
LARGE: dict[str, tuple[tuple[int, ...], int]] = {
    "batch_normalization": ((60, 5, 70), 5),
    "fixed_batch_normalization": ((60, 5, 70), 5),
    "batch_renormalization": ((60, 2, 200), 2),
    "group_normalization": ((60, 4, 70), 4),
    "layer_normalization": ((60, 700), 700),
}


@pytest.mark.parametrize("phase", [FORWARD, BACKWARD])
@pytest.mark.parametrize("name", LARGE)
def test_what_a_normalisation_says_is_what_it_counts(name: str, phase: str) -> None:
    shape, channels = LARGE[name]
    call, arrays = CASES[name]
    ran = run(call, real(*shape), *(positive(channels) for _ in arrays[1:]))
    entry = registry.find(registry.inner(ran.function), phase)
    assert entry is not None
    said = entry.meaning.partition(" operations an element")[0]
    an_element = sum(int(number) for number in re.findall(r"\b[0-9]+\b", said))
    assert round(work_of(ran, phase).flops / ran.inputs[0].size) == an_element > 0


@pytest.mark.parametrize(
    ("name", "operation"),
    [("add_constant", "__add__"), ("mul", "__mul__"), ("neg", "__neg__"), ("sum", "sum")],
)
def test_numbers_show_that_counting_is_wrong(
    name: str, operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = case(name)
    compare_on_numbers(ran, FORWARD)
    monkeypatch.setattr(Array, operation, lambda self, *_, **__: self.call.each(2, self))
    with pytest.raises(AssertionError):
        compare_on_numbers(ran, FORWARD)


def ones(array: Any) -> Any:
    return np.ones_like(array) if array.dtype.kind == "f" else array


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_ones_add_up_to_the_multiply_adds(name: str) -> None:
    call, arrays = CASES[name]
    ran = run(call, *map(ones, arrays), gradients=False)
    (y,) = ran.ys
    bias = y.size if len(ran.inputs) == 3 else 0
    macs = int(y.array.sum()) - bias
    assert (ran.forward().macs, ran.forward().flops) == (macs, 2 * macs + bias)

    xs = [node.get_variable() for node in ran.function.inputs]
    grads = chainer.grad([y], xs, [chainer.Variable(ones(y.array))])
    macs = sum(int(grad.array.sum()) for grad in grads[:2])
    added = bias - grads[2].size if bias else 0
    assert (ran.backward().macs, ran.backward().flops) == (macs, 2 * macs + added)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", CASES)
def test_one_gradient_alone_is_no_more_than_all(name: str) -> None:
    ran = case(name)
    function = registry.inner(ran.function)
    entry = registry.find(function, BACKWARD)
    if entry is None or sum(ran.needed) < 2:
        return
    whole, written, flops = ran.backward(), 0, 0
    for i, grad in enumerate(ran.grads):
        if grad is None:
            continue
        needed = tuple(j == i for j in range(len(ran.grads)))
        result = entry.formula(Call(function, *ran.specs, needed))
        assert result[i] is not None
        work = ran.backward(needed)
        assert work.flops <= whole.flops
        assert work.nbytes_read <= whole.nbytes_read
        assert work.nbytes_written in (0, ran.inputs[i].nbytes)
        written += work.nbytes_written
        flops += work.flops
    # Gradients that share an array (of a sum) are written once.
    assert written >= whole.nbytes_written
    assert flops >= whole.flops


@pytest.mark.parametrize(("name", "phase"), BY_HAND)
def test_counts_worked_out_by_hand(name: str, phase: str) -> None:
    work, stated = work_of(case(name), phase), BY_HAND[name, phase]
    assert (work.flops, work.macs) == (stated if isinstance(stated, tuple) else (stated, 0))


def test_gradients_of_a_sampler_one_by_one() -> None:
    ran = case("spatial_transformer_sampler")
    assert ran.backward((True, False)).flops == 30 * 18 + 90 * 12
    assert ran.backward((False, True)).flops == 30 * (18 + 8) + 90 * 18


def test_every_formula_has_a_case() -> None:
    covered = {type(registry.inner(case(name).function)).__name__ for name in CASES}
    named = {key.rpartition(".")[2] for key in registry.chainer_names()}
    without_case = {
        # Only on a GPU with cuDNN; n-step networks have tests of their own.
        *(name for name in named if name.startswith("NStep")),
        "CudnnRNNWeightConcat",
        "RsqrtGPU",
        # Of double backpropagation.
        "Assign",
        "Convolution2DGradW",
        "ConvolutionNDGradW",
        "EmbedIDGrad",
        "LinearGradData",
        "LinearGradWeight",
        "MaxPoolingNDWithIndexes",
        "_SetItemZero",
    }
    assert named - covered == without_case
    assert forward_work(object(), (), ()) is None
