"""The networks of ``models``: calls, link paths, parameters, values."""

import chainer
import numpy as np
import pytest
from chainer.function_hooks import TimerHook
from chainer.initializers import HeNormal

from models import REGISTRY, ModelEntry
from models.parts import FastHeNormal
from models.resnet import ResNet
from models.resnet34_relu_bn import ResNet34ReluBN
from models.resnet_cifar import ResNetCIFAR
from models.se_resnet9_fixup import SEFixupBlock, SEResNet9Fixup
from tests.engines.exporting import network_of
from tests.refusing import refusal

SCALARS = ("bias1a", "bias1b", "bias2a", "scale", "bias2b")

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


def calls_of(hook):
    """Names of the functions that ran under a TimerHook."""
    return [name for name, _ in hook.call_history]


def infer(model, x):
    with chainer.using_config("train", False), chainer.no_backprop_mode():
        return model(x)


def images(batchsize=1, side=32, channels=3):
    shape = batchsize, channels, side, side
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


NARROW = {"variant": "bottleneck", "classes": 2}


def test_training_mode_uses_batch_statistics():
    hook = TimerHook()
    with chainer.using_config("train", True), hook:
        REGISTRY["resnet20"].build()(images(2))
    assert calls_of(hook)[:3] == ["Convolution2DFunction", "BatchNormalization", "ReLU"]
    assert len(hook.call_history) == 66


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
    hook = TimerHook()
    with hook:
        y = infer(model, np.random.default_rng(0).random(shape_in, dtype=np.float32))
    assert calls_of(hook).count("Convolution2DFunction") == n_convolutions
    assert len(hook.call_history) == n_calls
    assert y.shape == shape_out
    assert y.dtype == np.float32
    assert np.isfinite(y.array).all()


def test_the_registry_holds_these_networks_the_default_first_and_takes_other_arguments():
    assert list(REGISTRY) == list(SIZES)
    with pytest.raises(TypeError):
        REGISTRY["mine"] = REGISTRY["resnet20"]
    model = REGISTRY["resnet20"].build(classes=100, depth=8)
    assert infer(model, images()).shape == (1, 100)
    assert len(model.res2) == 1
    # One without classes does not hand them over.
    entry = ModelEntry("n", "d", (3, 8, 8), None, (), (), "collections:OrderedDict", {"a": 1})
    assert entry.build(b=2) == {"a": 1, "b": 2}
    for name in ("resnet18-bottleneck", "resnet34-relu-bn"):  # PyTorch's
        links = REGISTRY[name].build().links()
        assert {link.eps for link in links if hasattr(link, "eps")} == {1e-5}


def layers(model, x):
    return network_of(model, x).layers


def test_links_are_called_in_the_order_of_their_names_stages_included():
    called = []

    class Paths(chainer.LinkHook):
        def forward_preprocess(self, args):
            called.append(path_of[id(args.link)])

    model = REGISTRY["resnet20"].build()
    path_of = {id(link): path for path, link in model.namedlinks()}
    with Paths():
        infer(model, images())
    block, projection = ["", "/conv1", "/bn1", "/conv2", "/bn2"], ["/conv3", "/bn3"]
    expected = ["/", "/conv1", "/bn1"]
    for stage in ("/res2", "/res3", "/res4"):
        expected.append(stage)
        for n in range(3):
            parts = block + projection if n == 0 and stage != "/res2" else block
            expected += [f"{stage}/{n}{part}" for part in parts]
    assert called == [*expected, "/fc"]


def test_sides_of_resnets_are_rounded_as_pytorch_rounds_them():
    found = layers(ResNet(18, **NARROW), np.zeros((2, 3, 334, 500), np.float32))
    sides = dict.fromkeys(side for layer in found if (side := layer.output_shapes[0][2:]))
    # Halves rounded up; only with cover_all would the pooling give 85 x 126.
    assert list(sides) == [(167, 250), (84, 125), (42, 63), (21, 32), (11, 16), (1, 1)]
    assert found[-1].output_shapes == ((2, 2),)


def test_what_se_says_and_takes():
    text = " ".join(SEFixupBlock.__doc__.split())
    plain, strided = (layers(SEFixupBlock(16, 16, n), images(channels=16)) for n in (1, 2))
    assert f"{len(plain)} calls, {len(strided)} in a strided block" in text
    model = SEResNet9Fixup()
    assert infer(model, images(2, side=68)[..., :32]).shape == (2, 512, 3, 1)
    called = [layer.path for layer in layers(model, images(2, side=64))]
    assert called[:2] == ["/", "/conv1"]
    assert "/res2/downsample_conv" not in called


#: What each cannot be given, and the end of what is said of it.
REFUSED = [
    *((ResNetCIFAR, n, f"for a CIFAR ResNet, not {n}") for n in (-4, 2, 7, 18, 21)),
    *((ResNet, n, f"one of 18, 34, 50, 101, 152, not {n}") for n in (20, 0, 51)),
    (
        lambda name: ResNet(18, variant=name),
        "wide",
        "standard, plain, bottleneck, large, not 'wide'",
    ),
    (lambda name: FastHeNormal(fan_option=name), "fan_avg", "fan_in or fan_out, not 'fan_avg'"),
]
ONLY, SIDES = "only, not ", "or of other sides that are multiples of 4, not "
#: The same of sizes of images.
TOO_LARGE = [
    # This one would fit the linear layer.
    (ResNet34ReluBN, {}, (3, 224, 200), f"inputs of 3 x 224 x 224 {ONLY}"),
    (ResNet34ReluBN, {}, (1, 224, 224), f"inputs of 3 x 224 x 224 {ONLY}"),
    (SEResNet9Fixup, {"channels": 3}, (1, 64, 64), f"inputs of 3 x 64 x 64, {SIDES}"),
    (SEResNet9Fixup, {"channels": 1}, (3, 64, 64), f"inputs of 1 x 64 x 64, {SIDES}"),
    (SEResNet9Fixup, {"channels": 3}, (3, 64, 63), f"inputs of 3 x 64 x 64, {SIDES}"),
]


def test_what_a_network_cannot_be_given_is_refused_in_one_line():
    for make, given, words in REFUSED:
        assert words in refusal(make, given, error=ValueError)
    for make, arguments, shape, words in TOO_LARGE:
        given = " x ".join(map(str, shape))
        x = np.zeros((1, *shape), np.float32)
        said = refusal(infer, make(**arguments), x, error=ValueError)
        assert said.endswith(f"takes {words}{given}")


def test_the_fast_distribution_is_that_of_chainer():
    for fan_option in ("fan_in", "fan_out"):
        fast, slow = (np.empty((200, 50, 3, 3), np.float32) for _ in range(2))
        FastHeNormal(0.5, fan_option)(fast)
        HeNormal(0.5, fan_option=fan_option)(slow)
        assert fast.std() == pytest.approx(float(slow.std()), rel=0.02)
        assert fast.mean() == pytest.approx(0, abs=0.05 * float(fast.std()))
        assert np.mean(np.abs(fast) < fast.std()) == pytest.approx(0.683, abs=0.01)


def weights(name, seed):
    np.random.seed(seed)  # noqa: NPY002  (the generator that Chainer's initializers use)
    return {path: p.array for path, p in REGISTRY[name].build().namedparams()}


def test_the_same_seed_gives_the_same_weights():
    for name in ("resnet20", "resnet18-bottleneck", "se-resnet9-fixup-depth"):
        first, again, other = weights(name, 3), weights(name, 3), weights(name, 4)
        assert first.keys() == again.keys()
        assert all(np.array_equal(first[path], again[path]) for path in first), name
        assert not np.array_equal(first["/conv1/W"], other["/conv1/W"]), name
    w = weights("resnet20", 0)["/res4/0/conv1/W"]  # of He's distribution by what goes in
    assert np.std(w) == pytest.approx(np.sqrt(2 / (32 * 9)), rel=0.03)
