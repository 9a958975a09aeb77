"""The networks of ``models``: calls, link paths, parameters, values."""

import numpy as np
import pytest

import chainer_profile  # noqa: F401  (lets Chainer import on current NumPy)

# isort: split
import chainer

from models import REGISTRY, ModelEntry
from models.resnet_cifar import BasicBlock, ResNetCIFAR

CBR = ["Convolution2DFunction", "FixedBatchNormalization", "ReLU"]
CB = CBR[:2]
AR = ["Add", "ReLU"]
TAIL = ["AveragePooling2D", "Reshape", "LinearFunction"]

# Parameters, calls of convolutions, and calls in all of every network.
SIZES = {
    "resnet20": (272_474, 21, 66),
    "resnet20-he": (272_474, 21, 73),
    "resnet32-he": (466_906, 33, 115),
    "resnet44-he": (661_338, 45, 157),
    "resnet56-he": (855_770, 57, 199),
    "resnet110-he": (1_730_714, 111, 388),
    "resnet18": (11_689_512, 20, 69),
    "resnet34": (21_797_672, 36, 125),
    "resnet50": (25_557_032, 53, 175),
    "resnet101": (44_549_160, 104, 345),
    "resnet152": (60_192_808, 155, 515),
    "resnet50-plain": (21_797_672, 36, 125),
    "resnet101-plain": (41_869_096, 70, 244),
    "resnet152-plain": (58_399_528, 104, 363),
    "resnet18-bottleneck": (1_398_952, 28, 93),
    "resnet34-bottleneck": (2_000_744, 52, 173),
    "resnet50-bottleneck": (2_000_744, 52, 173),
    "resnet101-bottleneck": (3_197_544, 103, 343),
    "resnet152-bottleneck": (4_183_912, 154, 513),
    "resnet18-large": (15_995_176, 29, 95),
    "resnet34-large": (25_557_032, 53, 175),
    "resnet34-relu-bn": (27_276_648, 36, 141),
    "se-resnet9-fixup": (4_938_256, 12, 81),
    "se-resnet9-fixup-depth": (4_936_208, 12, 81),
}
# What a batch of 2 goes in as, and comes out as; the ImageNet networks take small images too.
CIFAR = (2, 3, 32, 32), (2, 10)
IMAGENET = (2, 3, 40, 40), (2, 1000)
SHAPES = {
    **{name: CIFAR if name.endswith(("20", "-he")) else IMAGENET for name in SIZES},
    "resnet34-relu-bn": ((2, 3, 224, 224), (2, 1000)),
    "se-resnet9-fixup": ((2, 3, 64, 64), (2, 512, 2, 2)),
    "se-resnet9-fixup-depth": ((2, 1, 64, 64), (2, 512, 2, 2)),
}


class CallNames(chainer.FunctionHook):
    """Writes down the class of every function that runs."""

    name = "CallNames"

    def __init__(self):
        self.names = []

    def forward_preprocess(self, function, in_data):
        self.names.append(type(function).__name__)


class LinkPaths(chainer.LinkHook):
    """Writes down the path of every link that is called."""

    name = "LinkPaths"

    def __init__(self, model):
        self.path_of = {id(link): path for path, link in model.namedlinks()}
        self.paths = []

    def forward_preprocess(self, args):
        self.paths.append(self.path_of[id(args.link)])


def infer(model, x):
    with chainer.using_config("train", False), chainer.no_backprop_mode():
        return model(x)


def images(batchsize=1, side=32, seed=0):
    generator = np.random.default_rng(seed)
    return generator.standard_normal((batchsize, 3, side, side), dtype=np.float32)


def calls(model, x=None):
    hook = CallNames()
    with hook:
        infer(model, images() if x is None else x)
    return hook.names


def test_resnet20_makes_the_66_calls_of_the_reference():
    strided_stage = CBR + CB + CB + AR + 4 * CBR
    expected = 7 * CBR + 2 * strided_stage + TAIL
    assert len(expected) == 66
    assert calls(REGISTRY["resnet20"].build()) == expected


def test_resnet20_he_makes_73_calls():
    block = CBR + CB + AR
    projecting = CBR + CB + CB + AR
    expected = CBR + 3 * block + 2 * (projecting + 2 * block) + TAIL
    assert len(expected) == 73
    assert calls(REGISTRY["resnet20-he"].build()) == expected


def test_training_mode_uses_batch_statistics():
    hook = CallNames()
    with chainer.using_config("train", True), hook:
        REGISTRY["resnet20"].build()(images(2))
    assert hook.names[:3] == ["Convolution2DFunction", "BatchNormalization", "ReLU"]
    assert len(hook.names) == 66


def test_the_registry_holds_these_networks_and_the_default_is_first():
    assert list(REGISTRY) == list(SIZES)
    with pytest.raises(TypeError):
        REGISTRY["mine"] = REGISTRY["resnet20"]


@pytest.mark.parametrize("name", SIZES)
def test_a_registered_network_builds_and_runs(name):
    entry = REGISTRY[name]
    model = entry.build()
    n_params, n_convolutions, n_calls = SIZES[name]
    shape_in, shape_out = SHAPES[name]
    assert entry.name == name
    assert entry.input_shape == ((3, 224, 224) if SHAPES[name] == IMAGENET else shape_in[1:])
    assert entry.classes == (shape_out[1] if len(shape_out) == 2 else None)
    assert len(entry.mean) == len(entry.std) == entry.input_shape[0]
    assert model.count_params() == n_params
    assert f"{n_params:,}" in type(model).__doc__
    assert f"{n_calls} calls" in entry.description
    assert "\n" not in entry.description
    hook = CallNames()
    with hook:
        y = infer(model, np.random.default_rng(0).random(shape_in, dtype=np.float32))
    assert hook.names.count("Convolution2DFunction") == n_convolutions
    assert len(hook.names) == n_calls
    assert y.shape == shape_out
    assert y.dtype == np.float32
    assert np.isfinite(y.array).all()


def test_overrides_take_the_place_of_an_entry_s_arguments():
    model = REGISTRY["resnet20"].build(classes=100, depth=8)
    assert infer(model, images()).shape == (1, 100)
    assert len(model.res2) == 1


def test_an_entry_without_classes_does_not_hand_them_over():
    entry = ModelEntry("n", "d", (3, 8, 8), None, (), (), "collections:OrderedDict", {"a": 1})
    assert entry.build(b=2) == {"a": 1, "b": 2}


def test_link_paths_are_those_of_chainer_s_own_resnets():
    model = REGISTRY["resnet20"].build()
    paths = [path for path, _ in model.namedlinks()]
    assert {"/conv1", "/bn1", "/res2/0/conv1", "/res3/0/conv3", "/res4/0/bn3", "/res4/2/bn2"} < set(
        paths
    )
    assert "/fc" in paths
    assert [path for path in paths if path.endswith("conv3")] == ["/res3/0/conv3", "/res4/0/conv3"]


def test_links_are_called_in_the_order_of_their_names_stages_included():
    model = REGISTRY["resnet20"].build()
    hook = LinkPaths(model)
    with hook:
        infer(model, images())
    block = ["", "/conv1", "/bn1", "/conv2", "/bn2"]
    projection = ["/conv3", "/bn3"]
    expected = ["/", "/conv1", "/bn1"]
    for stage in ("/res2", "/res3", "/res4"):
        expected.append(stage)
        for n in range(3):
            parts = block + projection if n == 0 and stage != "/res2" else block
            expected += [f"{stage}/{n}{part}" for part in parts]
    assert hook.paths == [*expected, "/fc"]


def test_stages_halve_the_side_rounded_up():
    model = ResNetCIFAR(8)
    h = infer(model.conv1, images(side=33))
    shapes = []
    for stage in (model.res2, model.res3, model.res4):
        h = infer(stage, h)
        shapes.append(h.shape)
    assert shapes == [(1, 16, 33, 33), (1, 32, 17, 17), (1, 64, 9, 9)]
    assert infer(model, images(side=33)).shape == (1, 10)


@pytest.mark.parametrize("depth", [-4, 2, 7, 18, 21])
def test_a_depth_that_is_not_6n_plus_2_is_refused(depth):
    with pytest.raises(ValueError, match=f"6n \\+ 2 .*, not {depth}"):
        ResNetCIFAR(depth)


def weights(name, seed):
    np.random.seed(seed)  # noqa: NPY002  (the generator that Chainer's initializers use)
    return {path: p.array for path, p in REGISTRY[name].build().namedparams()}


@pytest.mark.parametrize("name", ["resnet20", "resnet18-bottleneck", "se-resnet9-fixup-depth"])
def test_the_same_seed_gives_the_same_weights(name):
    first, again, other = weights(name, 3), weights(name, 3), weights(name, 4)
    assert first.keys() == again.keys()
    assert all(np.array_equal(first[path], again[path]) for path in first)
    assert not np.array_equal(first["/conv1/W"], other["/conv1/W"])


@pytest.mark.parametrize("name", ["resnet18-bottleneck", "resnet34-relu-bn"])
def test_normalization_has_pytorch_s_eps(name):
    model = REGISTRY[name].build()
    assert {link.eps for link in model.links() if hasattr(link, "eps")} == {1e-5}


def test_convolutions_start_from_he_s_fan_in_distribution():
    w = weights("resnet20", 0)["/res4/0/conv1/W"]
    assert w.shape == (64, 32, 3, 3)
    assert np.std(w) == pytest.approx(np.sqrt(2 / (32 * 9)), rel=0.03)
    assert np.mean(w) == pytest.approx(0, abs=1e-3)


def convolve(x, w, stride, pad):
    """Plain convolution (cross-correlation), one output element at a time."""
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    k = w.shape[2]
    height = (x.shape[2] - k) // stride + 1
    width = (x.shape[3] - k) // stride + 1
    y = np.empty((len(x), len(w), height, width))
    for i, j in np.ndindex(height, width):
        window = x[:, :, i * stride : i * stride + k, j * stride : j * stride + k]
        y[:, :, i, j] = np.einsum("nchw,ochw->no", window, w)
    return y


def normalise(x, bn):
    def column(a):
        return a[:, None, None]

    scaled = (x - column(bn.avg_mean)) / np.sqrt(column(bn.avg_var) + bn.eps)
    return column(bn.gamma.array) * scaled + column(bn.beta.array)


def draw(block, generator):
    """Gives what starts from 0 or 1 values that matter: normalizations and biases."""
    for link in block.links(skipself=True):
        if hasattr(link, "avg_mean"):
            size = link.avg_mean.shape
            link.avg_mean[...] = generator.normal(size=size)
            link.avg_var[...] = generator.uniform(0.5, 2, size)
            link.gamma.array[...] = generator.uniform(0.5, 2, size)
            link.beta.array[...] = generator.normal(size=size)
        elif getattr(link, "b", None) is not None:
            link.b.array[...] = generator.normal(size=link.b.shape)


def agrees(block, x, h, atol=1e-5):
    """A block gives what NumPy has before the last activation."""
    expected = np.maximum(h, 0)
    assert (expected > 0).any()
    y = infer(block, chainer.as_variable(x)).array
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=atol)


@pytest.mark.parametrize(("stride", "identity"), [(1, False), (1, True), (2, False), (2, True)])
def test_a_block_computes_what_plain_numpy_does(stride, identity):
    generator = np.random.default_rng(1)
    block = BasicBlock(2, 2 * stride, stride, identity)
    draw(block, generator)
    x = generator.standard_normal((2, 2, 5, 5), dtype=np.float32)

    h = np.maximum(normalise(convolve(x, block.conv1.W.array, stride, 1), block.bn1), 0)
    h = normalise(convolve(h, block.conv2.W.array, 1, 1), block.bn2)
    if stride == 2:
        h = h + normalise(convolve(x, block.conv3.W.array, 2, 0), block.bn3)
    elif identity:
        h = h + x
    agrees(block, x, h)


def test_the_head_averages_the_whole_map():
    model = ResNetCIFAR(8)
    x = images(2, side=36)
    h = np.maximum(infer(model.bn1, infer(model.conv1, x)).array, 0)
    for stage in (model.res2, model.res3, model.res4):
        h = infer(stage, h).array
    expected = h.mean(axis=(2, 3)) @ model.fc.W.array.T + model.fc.b.array
    np.testing.assert_allclose(infer(model, x).array, expected, rtol=1e-4, atol=1e-5)
