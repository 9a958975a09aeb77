"""Every formula run on numbers that count: it is the function, and its count is right."""

from __future__ import annotations

import numpy as np
import pytest

from chainer_profile.costs import registry
from chainer_profile.costs.work import Call, forward_work
from tests.costs import test_cost_layers, test_cost_loops, test_cost_losses
from tests.costs.test_cost_cases import CASES, case
from tests.costs.test_cost_harness import NotOnNumbersError, NumberCall, Ran, values

_LOOPS = (test_cost_layers, test_cost_loops, test_cost_losses)
LOOPS = {
    registry.FORWARD: {name for module in _LOOPS for name in module.FORWARD},
    registry.BACKWARD: {name for module in _LOOPS for name in module.BACKWARD},
}

#: Formulas that state a count and do not compute, by case and phase: these are what remains to be
#: compared with numbers that were worked out by hand.
BY_HAND = {
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
    ("spatial_transformer_grid", "forward"): 2 * 2 * 6 * 20,
    ("spatial_transformer_grid", "backward"): 2 * 2 * 6 * 20,
    # 2 x 15 places, 3 channels.
    ("spatial_transformer_sampler", "forward"): 30 * 22 + 90 * 7,
    ("spatial_transformer_sampler", "backward"): 30 * (18 + 8) + 90 * (12 + 18),
    # 60 elements, groups of 2 channels.
    ("fixed_decorrelated_batch_normalization", "forward"): 60 + 60 * 2 * 2,
    ("fixed_decorrelated_batch_normalization", "backward"): 240 + 4 + 120 + 240,
    # 2 examples, 3 inputs, 4 outputs: drawn, compared, products; W scaled; bias.
    ("dropconnect", "forward"): 24 + 24 + 48 + 12 + 8,
    ("dropconnect", "backward"): (12 + 48) + (24 + 12 + 12) + 4,
    ("dropconnect_one_mask", "forward"): 12 + 12 + 48 + 12,
    ("dropconnect_one_mask", "backward"): (12 + 48) + (24 + 12 + 12),
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
    ("cross_covariance", "forward"): 2 * 12 + 2 * 8 + 2 * 24 + 6 + 2 * 6 + 1,
    ("cross_covariance", "backward"): 1 + 2 * 20 + 48 + 6 + (48 + 12) + (48 + 8),
    ("decov", "forward"): 2 * 12 + 2 * 36 + 9 + 2 * 9 + 1,
    ("decov", "backward"): 1 + 2 * 36 + 2 * 12,
    ("decov_no", "forward"): 2 * 12 + 2 * 36 + 9,
    ("decov_no", "backward"): 9 + 9 + 2 * 36,
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
    ("inv", "backward"): 4 * 27 + 9,
    ("batch_inv", "forward"): 2 * 2 * 27,
    ("batch_inv", "backward"): 2 * (4 * 27 + 9),
    # 2 rows: a division, 2 multiply-adds each; 1 row: a division, a multiply-add; the diagonal.
    ("batch_det", "forward"): 2 * (2 * (1 + 4) + (1 + 2) + 2),
    ("batch_det", "backward"): 2 * (2 * 27 + 2 * 9),
    # Column 1: a root, 2 divisions; column 2: 2 sums of a product; column 3: one of 2.
    ("cholesky", "forward"): 3 + 2 * 3 + 5,
    ("cholesky", "backward"): 2 * 27 + 6 * 27 + 3 * 9,
    # 4 labels: 2 comparisons each for the largest, 5; 3 classes: 8.
    ("classification_summary", "forward"): 8 + 20 + 24,
}

PHASES = [
    (name, phase)
    for name in CASES
    for phase in (registry.FORWARD, registry.BACKWARD)
    if (name, phase) not in BY_HAND and name not in LOOPS[phase]
]


def results_on_numbers(ran: Ran, phase: str) -> tuple[NumberCall, object]:
    function = registry.inner(ran.function)
    entry = registry.find(function, phase)
    assert entry is not None
    call = NumberCall(ran, ran.needed if phase == registry.BACKWARD else ())
    return call, entry.formula(call)  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(("name", "phase"), PHASES)
def test_a_formula_computes_the_function_and_counts_what_it_computes(name: str, phase: str) -> None:
    ran = case(name)
    if phase == registry.BACKWARD and not any(grad is not None for grad in ran.grads):
        assert not ran.grads or registry.find(registry.inner(ran.function), phase) is None
        return
    expected = ran.outputs if phase == registry.FORWARD else ran.grads
    work = ran.forward() if phase == registry.FORWARD else ran.backward()
    try:
        call, results = results_on_numbers(ran, phase)
    except (NotOnNumbersError, AttributeError, TypeError):
        # Copies and views.
        assert work.flops == work.macs == 0
        return
    assert call.tally.operations == work.flops
    results = results if isinstance(results, tuple) else (results,)
    for result, array in zip(results, expected, strict=True):
        assert (result is None) == (array is None)
        if array is not None and name not in ("argmax", "argmin", "accuracy"):
            got = np.broadcast_to(values(result), array.shape)
            np.testing.assert_allclose(got, array, rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", CASES)
def test_one_gradient_alone_is_no_more_than_all(name: str) -> None:
    ran = case(name)
    function = registry.inner(ran.function)
    entry = registry.find(function, registry.BACKWARD)
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
    ran = case(name)
    work = ran.forward() if phase == registry.FORWARD else ran.backward()
    assert work.flops == BY_HAND[name, phase]
    assert name not in LOOPS[phase]


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
