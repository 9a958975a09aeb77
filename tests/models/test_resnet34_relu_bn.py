"""The ResNet-34 of the engine comparison: calls, sizes, values, the one input size."""

import numpy as np
import pytest

import chainer_profile  # noqa: F401  (lets Chainer import on current NumPy)

# isort: split
import chainer.functions as F

from chainer_profile.measure.learner import StructureError, learn_structure
from chainer_profile.measure.steps import ForwardStep
from models.resnet34_relu_bn import ReluBNBlock, ResNet34ReluBN
from tests.models.test_models import agrees, calls, convolve, draw, infer, normalise

CRB = ["Convolution2DFunction", "ReLU", "FixedBatchNormalization"]


@pytest.fixture(scope="module")
def model():
    return ResNet34ReluBN(classes=7)


def images(batchsize=1, channels=3, height=224, width=224):
    generator = np.random.default_rng(0)
    return generator.standard_normal((batchsize, channels, height, width), dtype=np.float32)


def test_it_makes_these_calls(model):
    block = CRB + CRB + ["Add", "ReLU"]
    strided = CRB + CRB + CRB[:2] + ["Add", "ReLU"]
    expected = [*CRB, "MaxPoolingND"] + 3 * block
    for others in (3, 5, 2):
        expected += strided + others * block
    expected += ["AveragePooling2D", "Reshape", "LinearFunction"]
    names = calls(model, images())
    assert names == expected
    assert names.count("Convolution2DFunction") == 36
    assert names.count("FixedBatchNormalization") == 33


def test_every_convolution_has_a_bias(model):
    convolutions = [link for link in model.links() if type(link).__name__ == "Convolution2D"]
    assert len(convolutions) == 36
    assert all(link.b is not None for link in convolutions)
    shortcuts = [path for path, _ in model.namedlinks() if "downsample" in path]
    assert shortcuts == [f"/res{n}/0/downsample_conv" for n in (3, 4, 5)]
    assert model.res3[0].downsample_conv.W.shape == (128, 64, 3, 3)


@pytest.mark.parametrize("stride", [1, 2])
def test_a_block_computes_what_plain_numpy_does(stride):
    generator = np.random.default_rng(1)
    block = ReluBNBlock(2, 2 * stride, stride)
    draw(block, generator)
    x = generator.standard_normal((2, 2, 5, 6), dtype=np.float32)

    h = np.maximum(biased(x, block.conv1, stride), 0)
    h = normalise(h, block.bn1)
    h = np.maximum(biased(h, block.conv2, 1), 0)
    h = normalise(h, block.bn2)
    shortcut = np.maximum(biased(x, block.downsample_conv, 2), 0) if stride == 2 else x
    agrees(block, x, h + shortcut)


def biased(x, link, stride):
    return convolve(x, link.W.array, stride, 1) + link.b.array[:, None, None]


def test_the_head_averages_two_by_two(model):
    x = images()
    h = infer(model.bn1, F.relu(infer(model.conv1, x)))
    h = F.max_pooling_2d(h, 3, 2, 1, cover_all=False)
    assert h.shape == (1, 64, 56, 56)
    for stage in (model.res2, model.res3, model.res4, model.res5):
        h = infer(stage, h)
    assert h.shape == (1, 512, 7, 7)
    pooled = h.array[:, :, :6, :6].reshape(1, 512, 3, 2, 3, 2).mean(axis=(3, 5))
    expected = pooled.reshape(1, 4608) @ model.fc.W.array.T + model.fc.b.array
    np.testing.assert_allclose(
        infer(model, x).array, expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max()
    )


@pytest.mark.parametrize(
    ("changes", "given"),
    [
        ({"height": 32, "width": 32}, "3 x 32 x 32"),
        ({"width": 200}, "3 x 224 x 200"),  # this one would fit the linear layer
        ({"channels": 1}, "1 x 224 x 224"),
    ],
)
def test_another_input_size_is_refused_in_one_line(model, changes, given):
    with pytest.raises(ValueError, match=f"takes inputs of 3 x 224 x 224 only, not {given}$"):
        infer(model, images(**changes))


def test_the_profiler_passes_that_line_on(model):
    step = ForwardStep(model, (images(height=64),))
    with (
        step.configured(),
        pytest.raises(StructureError, match=r"224 only, not 3 x 64 x 224$") as error,
    ):
        learn_structure(step)
    assert "\n" not in str(error.value)
