"""ResNets for ImageNet: calls, sizes, link paths, values, work."""

import numpy as np
import pytest

import chainer_profile  # noqa: F401  (lets Chainer import on current NumPy)

# isort: split
import chainer
from chainer.initializers import HeNormal

from chainer_profile.measure.learner import learn_structure
from chainer_profile.measure.steps import ForwardStep
from models import REGISTRY
from models.parts import FastHeNormal
from models.resnet import BasicBlock, BottleneckBlock, ResNet
from tests.models.test_models import (
    AR,
    CB,
    CBR,
    TAIL,
    agrees,
    calls,
    convolve,
    draw,
    images,
    infer,
    normalise,
)

STEM = [*CBR, "MaxPoolingND"]  # Chainer does its 2D pooling by this one
BASIC = CBR + CB + AR
BASIC_PROJECTING = CBR + CB + CB + AR
BOTTLENECK = CBR + CBR + CB + AR
BOTTLENECK_PROJECTING = CBR + CBR + CB + CB + AR


def layers(model, x):
    step = ForwardStep(model, (x,))
    with step.configured():
        return learn_structure(step).layers


def zeros(*shape):
    return np.zeros(shape, np.float32)


def test_resnet18_makes_these_calls():
    expected = STEM + 2 * BASIC + 3 * (BASIC_PROJECTING + BASIC) + TAIL
    assert calls(REGISTRY["resnet18"].build()) == expected


def test_only_the_wide_bottlenecks_project_in_the_first_stage():
    narrow, wide = ResNet(18, variant="bottleneck", classes=2), ResNet(18, variant="large")
    later = 3 * (BOTTLENECK_PROJECTING + BOTTLENECK) + TAIL
    assert calls(narrow) == STEM + 2 * BOTTLENECK + later
    assert calls(wide) == STEM + BOTTLENECK_PROJECTING + BOTTLENECK + later


def test_link_paths():
    paths = {path for path, _ in ResNet(50, variant="bottleneck", classes=2).namedlinks()}
    assert {"/conv1", "/bn1", "/res2/0/conv1", "/res5/2/conv3", "/res5/2/bn3", "/fc"} < paths
    projections = {path for path in paths if "downsample" in path}
    assert projections == {
        f"/res{n}/0/downsample_{kind}" for n in (3, 4, 5) for kind in ("conv", "bn")
    }


def test_sides_are_rounded_as_pytorch_rounds_them():
    found = layers(ResNet(18, variant="bottleneck", classes=3), zeros(2, 3, 334, 500))
    sides = []
    for layer in found:
        side = layer.output_shapes[0][2:]
        if side and side not in sides:
            sides.append(side)
    # Halves rounded up; only with cover_all would the pooling give 85 x 126.
    assert sides == [(167, 250), (84, 125), (42, 63), (21, 32), (11, 16), (1, 1)]
    assert found[-1].output_shapes == ((2, 3),)


def test_the_bottleneck_has_its_stride_on_the_3x3_convolution():
    found = layers(ResNet(18, variant="large", classes=3), zeros(1, 3, 64, 64))
    shape_at = {layer.path: layer.output_shapes[0] for layer in found}
    assert shape_at["/res3/0/conv1"] == (1, 128, 16, 16)
    assert shape_at["/res3/0/conv2"] == (1, 128, 8, 8)
    assert shape_at["/res3/0/conv3"] == shape_at["/res3/0/downsample_conv"] == (1, 512, 8, 8)


@pytest.mark.parametrize(("widths", "stride"), [((2, 2), 1), ((2, 3), 1), ((2, 2), 2), ((2, 4), 2)])
def test_a_basic_block_computes_what_plain_numpy_does(widths, stride):
    generator = np.random.default_rng(1)
    block = BasicBlock(*widths, stride)
    draw(block, generator)
    x = generator.standard_normal((2, widths[0], 5, 6), dtype=np.float32)

    h = np.maximum(normalise(convolve(x, block.conv1.W.array, stride, 1), block.bn1), 0)
    h = normalise(convolve(h, block.conv2.W.array, 1, 1), block.bn2)
    compare(block, x, h, stride)


@pytest.mark.parametrize(("widths", "stride"), [((8, 8), 1), ((2, 8), 1), ((8, 8), 2), ((4, 8), 2)])
def test_a_bottleneck_block_computes_what_plain_numpy_does(widths, stride):
    generator = np.random.default_rng(2)
    block = BottleneckBlock(*widths, stride)
    draw(block, generator)
    x = generator.standard_normal((2, widths[0], 5, 6), dtype=np.float32)

    assert block.conv2.W.shape == (2, 2, 3, 3)
    h = np.maximum(normalise(convolve(x, block.conv1.W.array, 1, 0), block.bn1), 0)
    h = np.maximum(normalise(convolve(h, block.conv2.W.array, stride, 1), block.bn2), 0)
    h = normalise(convolve(h, block.conv3.W.array, 1, 0), block.bn3)
    compare(block, x, h, stride)


def compare(block, x, h, stride):
    """Adds the shortcut of ``x`` to the result ``h`` of NumPy, and compares the block's."""
    if stride != 1 or x.shape[1] != h.shape[1]:
        x_side = convolve(x, block.downsample_conv.W.array, stride, 0)
        h = h + normalise(x_side, block.downsample_bn)
    else:
        h = h + x
    agrees(block, x, h)


def test_stem_and_head_compute_what_plain_numpy_does():
    generator = np.random.default_rng(3)
    model = ResNet(18, variant="bottleneck", classes=5)
    draw(model, generator)
    x = images(2, side=41)

    h = np.maximum(normalise(convolve(x, model.conv1.W.array, 2, 3), model.bn1), 0)
    assert h.shape == (2, 64, 21, 21)
    padded = np.pad(h, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    h = np.empty((2, 64, 11, 11), np.float32)
    for i, j in np.ndindex(11, 11):
        h[:, :, i, j] = padded[:, :, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3].max(axis=(2, 3))
    for stage in (model.res2, model.res3, model.res4, model.res5):
        h = infer(stage, chainer.as_variable(h)).array
    assert h.shape == (2, 512, 2, 2)
    expected = h.mean(axis=(2, 3)) @ model.fc.W.array.T + model.fc.b.array
    # The last product cancels out in places: what is left there is as exact as its terms are large.
    np.testing.assert_allclose(
        infer(model, x).array, expected, rtol=0, atol=3e-6 * float(abs(expected).max())
    )


@pytest.mark.parametrize("depth", [20, 0, 51])
def test_other_depths_are_refused(depth):
    with pytest.raises(ValueError, match=f"one of 18, 34, 50, 101, 152, not {depth}"):
        ResNet(depth)


def test_other_variants_are_refused():
    with pytest.raises(ValueError, match="standard, plain, bottleneck, large, not 'wide'"):
        ResNet(18, variant="wide")


@pytest.mark.parametrize("fan_option", ["fan_in", "fan_out"])
def test_the_fast_distribution_is_that_of_chainer(fan_option):
    fast, slow = np.empty((200, 50, 3, 3), np.float32), np.empty((200, 50, 3, 3), np.float32)
    FastHeNormal(0.5, fan_option)(fast)
    HeNormal(0.5, fan_option=fan_option)(slow)
    assert fast.std() == pytest.approx(float(slow.std()), rel=0.02)
    assert fast.mean() == pytest.approx(0, abs=0.05 * float(fast.std()))
    assert np.mean(np.abs(fast) < fast.std()) == pytest.approx(0.683, abs=0.01)


def test_an_unknown_fan_option_is_refused():
    with pytest.raises(ValueError, match="fan_in or fan_out, not 'fan_avg'"):
        FastHeNormal(fan_option="fan_avg")
