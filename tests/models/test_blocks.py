"""Values of the networks' blocks, stems and heads, against plain NumPy."""

from functools import partial

import chainer
import chainer.functions as F
import numpy as np
import pytest

from chainer_profile.engines.equality import with_other_parameters
from models import resnet, resnet_cifar
from models.resnet import ResNet
from models.resnet34_relu_bn import ReluBNBlock, ResNet34ReluBN
from models.resnet_cifar import ResNetCIFAR
from models.se_resnet9_fixup import SEFixupBlock, SEResNet9Fixup
from tests.models.test_models import SCALARS, images, infer


def convolve(x, link, stride, pad):
    """Plain convolution (cross-correlation), one output element at a time."""
    w = link if isinstance(link, np.ndarray) else link.W.array
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    k = w.shape[2]
    height = (x.shape[2] - k) // stride + 1
    width = (x.shape[3] - k) // stride + 1
    y = np.empty((len(x), len(w), height, width))
    for i, j in np.ndindex(height, width):
        window = x[:, :, i * stride : i * stride + k, j * stride : j * stride + k]
        y[:, :, i, j] = np.einsum("nchw,ochw->no", window, w)
    return y if getattr(link, "b", None) is None else y + link.b.array[:, None, None]


def relu(x):
    return np.maximum(x, 0)


def normalise(x, bn):
    def column(a):
        return a[:, None, None]

    scaled = (x - column(bn.avg_mean)) / np.sqrt(column(bn.avg_var) + bn.eps)
    return column(bn.gamma.array) * scaled + column(bn.beta.array)


def follow(block, x, names, stride):
    """What these layers give, one after the other; those with a stroke take the stride."""
    for name in names.split():
        layer = None if name == "relu" else block[name.removesuffix("/")]
        if layer is None:
            x = relu(x)
        elif "conv" in name:
            x = convolve(x, layer, stride if name.endswith("/") else 1, layer.W.shape[2] // 2)
        else:
            x = normalise(x, layer)
    return x


def residual(path, shortcut, identity=True):
    """What a block of these layers gives before the last activation."""

    def reference(block, x, stride):
        h = follow(block, x, path, stride)
        if stride != 1 or h.shape[1] != x.shape[1]:
            return h + follow(block, x, shortcut, stride)
        return h + x if identity else h

    return reference


def se_fixup(block, x, stride):
    bias1a, bias1b, bias2a, scale, bias2b = (block[name].array[0] for name in SCALARS)
    h = relu(convolve(x + bias1a, block.conv1, stride, 1) + bias1b)
    h = convolve(h + bias2a, block.conv2, 1, 1) * scale + bias2b
    z = h.mean(axis=(2, 3)) @ block.se.fc1.W.array.T + block.se.fc1.b.array
    z = relu(z) @ block.se.fc2.W.array.T + block.se.fc2.b.array
    h = h / (1 + np.exp(-z))[:, :, None, None]
    if stride == 1:
        return h + x
    # An average with the pad counted is a convolution with ninths, channel by channel.
    average = np.eye(x.shape[1])[:, :, None, None] * np.full((3, 3), 1 / 9)
    return h + convolve(convolve(x + bias1a, average, 2, 1), block.downsample_conv, 1, 0)


BASIC, PROJECTED = "conv1/ bn1 relu conv2 bn2", "downsample_conv/ downsample_bn"
BOTTLENECK = "conv1 bn1 relu conv2/ bn2 relu conv3 bn3"
PLAIN, OF_ANY = [(8, 8, 1), (4, 8, 2)], [(8, 8, 1), (4, 8, 2), (4, 8, 1), (8, 8, 2)]
CIFAR, RELU_FIRST = resnet_cifar.BasicBlock, "conv1/ relu bn1 conv2 relu bn2"
#: What gives a block of two widths and a stride, what it gives, and those of each case.
BLOCKS = [
    (
        partial(CIFAR, identity_shortcut=False),
        residual(BASIC, "conv3/ bn3", False),
        PLAIN,
    ),
    (partial(CIFAR, identity_shortcut=True), residual(BASIC, "conv3/ bn3"), PLAIN),
    (resnet.BasicBlock, residual(BASIC, PROJECTED), OF_ANY),
    (resnet.BottleneckBlock, residual(BOTTLENECK, PROJECTED), OF_ANY),
    (ReluBNBlock, residual(RELU_FIRST, "downsample_conv/ relu"), PLAIN),
    (SEFixupBlock, se_fixup, [(16, 16, 1), (16, 32, 2)]),
]


def test_blocks_compute_what_plain_numpy_does(subtests):
    for make, reference, cases in BLOCKS:
        for *widths, stride in cases:
            for side in (5, 6):
                with subtests.test(widths=widths, stride=stride, side=side):
                    block = with_other_parameters(make(*widths, stride))
                    x = images(2, channels=widths[0], side=side)[:, :, :5]
                    expected = relu(reference(block, x, stride))
                    assert (expected > 0).any()
                    y = infer(block, chainer.as_variable(x)).array
                    atol = 1e-4 if reference is se_fixup else 1e-5
                    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=atol)


def stages(model, h):
    for name in ("res2", "res3", "res4", "res5"):
        if hasattr(model, name):
            h = infer(model[name], chainer.as_variable(h)).array
    return h


def test_stages_of_cifar_halve_the_side_rounded_up_and_the_head_averages_the_whole_map():
    model, x = ResNetCIFAR(8), images(2, side=33)
    h, shapes = infer(model.conv1, x), []
    for stage in (model.res2, model.res3, model.res4):
        h = infer(stage, h)
        shapes.append(h.shape)
    assert shapes == [(2, 16, 33, 33), (2, 32, 17, 17), (2, 64, 9, 9)]
    h = stages(model, relu(infer(model.bn1, infer(model.conv1, x)).array))
    expected = h.mean(axis=(2, 3)) @ model.fc.W.array.T + model.fc.b.array
    np.testing.assert_allclose(infer(model, x).array, expected, rtol=1e-4, atol=1e-5)


def test_stem_and_head_of_resnets():
    model = with_other_parameters(ResNet(18, variant="bottleneck", classes=5))
    x = images(2, side=41)
    h = relu(normalise(convolve(x, model.conv1, 2, 3), model.bn1))
    assert h.shape == (2, 64, 21, 21)
    padded = np.pad(h, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    h = np.empty((2, 64, 11, 11), np.float32)
    for i, j in np.ndindex(11, 11):
        h[:, :, i, j] = padded[:, :, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3].max(axis=(2, 3))
    h = stages(model, h)
    assert h.shape == (2, 512, 2, 2)
    expected = h.mean(axis=(2, 3)) @ model.fc.W.array.T + model.fc.b.array
    # The last product cancels out in places: what is left there is as exact as its terms are large.
    atol = 3e-6 * float(abs(expected).max())
    np.testing.assert_allclose(infer(model, x).array, expected, rtol=0, atol=atol)


def test_the_head_of_relu_bn_averages_two_by_two():
    model, x = ResNet34ReluBN(classes=7), images(side=224)
    h = infer(model.bn1, F.relu(infer(model.conv1, x)))
    h = F.max_pooling_2d(h, 3, 2, 1, cover_all=False).array
    assert h.shape == (1, 64, 56, 56)
    h = stages(model, h)
    assert h.shape == (1, 512, 7, 7)
    pooled = h[:, :, :6, :6].reshape(1, 512, 3, 2, 3, 2).mean(axis=(3, 5))
    expected = pooled.reshape(1, 4608) @ model.fc.W.array.T + model.fc.b.array
    atol = 1e-4 * np.abs(expected).max()
    np.testing.assert_allclose(infer(model, x).array, expected, rtol=1e-3, atol=atol)


def test_the_stem_of_se_turns_four_by_four_pixels_into_channels_in_the_documented_order():
    model, x = SEResNet9Fixup(), images(2, side=12)[:, :, :8]
    packed = np.empty((2, 48, 2, 3), np.float32)
    for row, column, c in np.ndindex(4, 4, 3):
        packed[:, (4 * row + column) * 3 + c] = x[:, c, row::4, column::4]
    h = stages(model, relu(convolve(packed, model.conv1, 1, 0)).astype(np.float32))
    np.testing.assert_allclose(infer(model, x).array, h, rtol=1e-3, atol=1e-5)
    assert h.any()


def test_weights_start_as_fixup_says_and_gradients_reach_the_scalars():
    model = SEResNet9Fixup()
    for n, width in zip((2, 3, 4, 5), (64, 128, 256, 512), strict=True):
        block = model[f"res{n}"]
        deviation = np.sqrt(2 / (width * 9)) * 4**-0.5
        assert block.conv1.W.array.std() == pytest.approx(deviation, rel=0.03)
        assert not block.conv2.W.array.any()
        assert [block[name].array.tolist() for name in SCALARS] == [[0], [0], [0], [1], [0]]
        block.conv2.W.array[...] = 0.01
    model.cleargrads()
    F.sum(model(images(side=16))).backward()
    assert all(model.res3[name].grad[0] != 0 for name in SCALARS)
