"""SE-ResNet9 with Fixup: calls, sizes, initial weights, values."""

import numpy as np
import pytest

import chainer_profile  # noqa: F401  (lets Chainer import on current NumPy)

# isort: split
import chainer

from chainer_profile.measure.learner import learn_structure
from chainer_profile.measure.steps import ForwardStep
from models.se_resnet9_fixup import SEFixupBlock, SEResNet9Fixup
from tests.models.test_models import agrees, calls, convolve, infer

C, P, L = "Convolution2DFunction", "AveragePooling2D", "LinearFunction"
CONVOLUTIONS = ["Add", C, "Add", "ReLU", "Add", C, "Mul", "Add"]
EXCITATION = [P, "Reshape", L, "ReLU", L, "Sigmoid", "Reshape", "Mul"]
BLOCK = [*CONVOLUTIONS, *EXCITATION, "Add", "ReLU"]
STRIDED = [*CONVOLUTIONS, *EXCITATION, P, C, "Add", "ReLU"]
SCALARS = ("bias1a", "bias1b", "bias2a", "scale", "bias2b")


@pytest.fixture(scope="module")
def model():
    return SEResNet9Fixup()


def images(channels=3, height=64, width=64):
    generator = np.random.default_rng(0)
    return generator.standard_normal((2, channels, height, width), dtype=np.float32)


def test_it_makes_these_calls(model):
    names = calls(model, images())
    assert names == ["Space2Depth", C, "ReLU", *BLOCK, *STRIDED, *STRIDED, *STRIDED]
    assert names.count(C) == 12
    assert names.count(L) == 8


def test_the_docstring_of_a_block_says_how_many_calls_it_makes():
    text = " ".join(SEFixupBlock.__doc__.split())
    assert f"{len(BLOCK)} calls, {len(STRIDED)} in a strided block" in text


def test_there_is_no_bias_in_a_convolution_and_no_normalization(model):
    links = list(model.links())
    assert all(link.b is None for link in links if type(link).__name__ == "Convolution2D")
    assert not any("Normalization" in type(link).__name__ for link in links)


def test_sides_and_link_paths(model):
    step = ForwardStep(model, (images(),))
    with step.configured():
        layers = learn_structure(step).layers
    shape_at = {}
    for layer in layers:
        shape_at.setdefault(layer.path, []).append(layer.output_shapes[0])
    assert shape_at["/"][0] == (2, 48, 16, 16)
    assert shape_at["/conv1"] == [(2, 64, 16, 16)]
    last = [shape_at[f"/res{n}"][-1] for n in (2, 3, 4, 5)]
    assert last == [(2, 64, 16, 16), (2, 128, 8, 8), (2, 256, 4, 4), (2, 512, 2, 2)]
    assert shape_at["/res5/se/fc1"] == [(2, 32)]
    assert shape_at["/res5/se/fc2"] == [(2, 512)]
    assert shape_at["/res3/downsample_conv"] == [(2, 128, 8, 8)]
    assert "/res2/downsample_conv" not in shape_at


def test_weights_start_as_fixup_says(model):
    for n, width in zip((2, 3, 4, 5), (64, 128, 256, 512), strict=True):
        block = model[f"res{n}"]
        deviation = np.sqrt(2 / (width * 9)) * 4**-0.5
        assert block.conv1.W.array.std() == pytest.approx(deviation, rel=0.03)
        assert not block.conv2.W.array.any()
        assert {name: block[name].array.tolist() for name in SCALARS} == {
            "bias1a": [0],
            "bias1b": [0],
            "bias2a": [0],
            "scale": [1],
            "bias2b": [0],
        }


@pytest.mark.parametrize("side", [5, 6])
@pytest.mark.parametrize(("widths", "stride"), [((16, 16), 1), ((16, 32), 2)])
def test_a_block_computes_what_plain_numpy_does(widths, stride, side):
    generator = np.random.default_rng(1)
    block = SEFixupBlock(*widths, stride)
    for name, parameter in block.namedparams():
        size = parameter.shape
        scale = 1 if parameter.ndim == 1 else (2 / np.prod(size[1:])) ** 0.5
        parameter.array[...] = generator.normal(0, scale, size)
        assert name.count("/") == 1 or parameter.ndim > 1 or name.startswith("/se/")
    x = generator.standard_normal((2, widths[0], side, side), dtype=np.float32)
    bias1a, bias1b, bias2a, scale, bias2b = (block[name].array[0] for name in SCALARS)

    h = np.maximum(convolve(x + bias1a, block.conv1.W.array, stride, 1) + bias1b, 0)
    h = convolve(h + bias2a, block.conv2.W.array, 1, 1) * scale + bias2b
    z = h.mean(axis=(2, 3)) @ block.se.fc1.W.array.T + block.se.fc1.b.array
    z = np.maximum(z, 0) @ block.se.fc2.W.array.T + block.se.fc2.b.array
    h = h / (1 + np.exp(-z))[:, :, None, None]
    if stride == 2:
        # An average with the pad counted is a convolution with ninths, channel by channel.
        average = np.eye(widths[0])[:, :, None, None] * np.full((3, 3), 1 / 9)
        pooled = convolve(x + bias1a, average, 2, 1)
        h = h + convolve(pooled, block.downsample_conv.W.array, 1, 0)
    else:
        h = h + x
    agrees(block, x, h, atol=1e-4)


def test_the_stem_turns_four_by_four_pixels_into_channels_in_the_documented_order(model):
    x = images(height=8, width=12)
    packed = np.empty((2, 48, 2, 3), np.float32)
    for row, column, c in np.ndindex(4, 4, 3):
        packed[:, (4 * row + column) * 3 + c] = x[:, c, row::4, column::4]
    h = chainer.as_variable(np.maximum(convolve(packed, model.conv1.W.array, 1, 0), 0))
    h = chainer.as_variable(h.array.astype(np.float32))
    for block in (model.res2, model.res3, model.res4, model.res5):
        h = infer(block, h)
    np.testing.assert_allclose(infer(model, x).array, h.array, rtol=1e-3, atol=1e-5)
    assert h.array.any()


def test_gradients_reach_the_scalars():
    network = SEResNet9Fixup(channels=1)
    for block in (network.res2, network.res3):
        block.conv2.W.array[...] = 0.01
    loss = chainer.functions.sum(network(images(1, 16, 16)))
    network.cleargrads()
    loss.backward()
    for name in SCALARS:
        assert network.res3[name].grad.shape == (1,)
        assert network.res3[name].grad[0] != 0


@pytest.mark.parametrize(
    ("channels", "changes", "given"),
    [
        (3, {"channels": 1}, "1 x 64 x 64"),
        (1, {"channels": 3}, "3 x 64 x 64"),
        (3, {"height": 66}, "3 x 66 x 64"),
        (3, {"width": 63}, "3 x 64 x 63"),
    ],
)
def test_an_input_that_does_not_fit_is_refused_in_one_line(channels, changes, given):
    wanted = f"takes inputs of {channels} x 64 x 64, or of other sides that are multiples of 4"
    with pytest.raises(ValueError, match=f"{wanted}, not {given}$"):
        infer(SEResNet9Fixup(channels=channels), images(**{"channels": channels, **changes}))


def test_other_multiples_of_4_work(model):
    assert infer(model, images(height=68, width=32)).shape == (2, 512, 3, 1)
