"""The networks of ``models``: calls, parameters and outputs."""

import chainer
import chainer.functions as F
import numpy as np
import pytest
from chainer import serializers
from chainer.function_hooks import TimerHook
from chainer.initializers import HeNormal

from models import REGISTRY, ModelEntry
from models.parts import FastHeNormal
from models.resnet import ResNet
from models.resnet34_relu_bn import ResNet34ReluBN
from models.resnet_cifar import ResNetCIFAR
from models.se_resnet9_fixup import SEResNet9Fixup
from tests.refusing import arrays_of, assert_same, refusal

SCALARS = ("bias1a", "bias1b", "bias2a", "scale", "bias2b")

# Numbers of parameters, of convolutions and of all calls; plain and weighted mean of the positive
# outputs with known weights.
SIZES = {
    "resnet20": (272_474, 21, 66, 0.21991, 0.10869),
    "resnet20-he": (272_474, 21, 73, 1.2746, 0.69556),
    "resnet32-he": (466_906, 33, 115, 4.0598, 1.8909),
    "resnet44-he": (661_338, 45, 157, 15.59, 6.6783),
    "resnet56-he": (855_770, 57, 199, 32.586, 17.203),
    "resnet110-he": (1_730_714, 111, 388, 3119.4, 1580.5),
    "resnet18": (11_689_512, 20, 69, 0.55918, 0.28779),
    "resnet34": (21_797_672, 36, 125, 1.5315, 0.7719),
    "resnet50": (25_557_032, 53, 175, 0.95542, 0.47247),
    "resnet101": (44_549_160, 104, 345, 4.8806, 2.4506),
    "resnet152": (60_192_808, 155, 515, 32.847, 16.74),
    "resnet50-plain": (21_797_672, 36, 125, 1.5315, 0.7719),
    "resnet101-plain": (41_869_096, 70, 244, 8.2635, 4.1684),
    "resnet152-plain": (58_399_528, 104, 363, 47.019, 23.776),
    "resnet18-bottleneck": (1_398_952, 28, 93, 0.47164, 0.23681),
    "resnet34-bottleneck": (2_000_744, 52, 173, 1.1204, 0.56532),
    "resnet50-bottleneck": (2_000_744, 52, 173, 1.1204, 0.56532),
    "resnet101-bottleneck": (3_197_544, 103, 343, 5.0821, 2.5224),
    "resnet152-bottleneck": (4_183_912, 154, 513, 29.602, 14.758),
    "resnet18-large": (15_995_176, 29, 95, 0.56359, 0.28186),
    "resnet34-large": (25_557_032, 53, 175, 0.95542, 0.47247),
    "resnet34-relu-bn": (27_276_648, 36, 141, 25.577, 12.798),
    "se-resnet9-fixup": (4_938_256, 12, 81, 0.17885, 0.090763),
    "se-resnet9-fixup-depth": (4_936_208, 12, 81, 0.18981, 0.096833),
}
# Input and output shapes of a batch of 2. ImageNet networks accept small images, too.
CIFAR = (2, 3, 32, 32), (2, 10)
IMAGENET = (2, 3, 40, 40), (2, 1000)
SHAPES = {
    **{name: CIFAR if name.endswith(("20", "-he")) else IMAGENET for name in SIZES},
    "resnet34-relu-bn": ((2, 3, 224, 224), (2, 1000)),
    "se-resnet9-fixup": ((2, 3, 64, 64), (2, 512, 2, 2)),
    "se-resnet9-fixup-depth": ((2, 1, 64, 64), (2, 512, 2, 2)),
}


def infer(model, x):
    with chainer.using_config("train", False), chainer.no_backprop_mode():
        return model(x)


def random_arrays(model):
    """Random values for all arrays of a network, of a magnitude as after training."""
    arrays = {}
    for number, (path, array) in enumerate(sorted(arrays_of(model).items())):
        draw = np.random.RandomState(number)  # the same in all versions of NumPy
        if array.ndim > 1:
            arrays[path] = np.sqrt(1 / array[0].size) * draw.standard_normal(array.shape)
        else:
            usual = path.endswith(("gamma", "avg_var", "scale"))
            arrays[path] = usual + draw.uniform(-0.5, 0.5, array.shape)
        arrays[path] = arrays[path].astype(array.dtype)
    return arrays


@pytest.mark.parametrize("name", SIZES)
def test_registered_network_builds_and_runs(name):
    entry = REGISTRY[name]
    model = entry.build()
    n_params, n_convolutions, n_calls, *values = SIZES[name]
    shape_in, shape_out = SHAPES[name]
    assert entry.name == name
    assert entry.input_shape == ((3, 224, 224) if SHAPES[name] == IMAGENET else shape_in[1:])
    assert entry.classes == (shape_out[1] if len(shape_out) == 2 else None)
    assert len(entry.mean) == len(entry.std) == entry.input_shape[0]
    assert model.count_params() == n_params
    assert f"{n_calls} calls" in entry.description
    assert "\n" not in entry.description
    serializers.NpzDeserializer(random_arrays(model)).load(model)
    x = np.random.RandomState(0).rand(*shape_in).astype("f")
    with TimerHook() as hook:
        y = infer(model, x)
    called = [name for name, _ in hook.call_history]
    assert called.count("Convolution2DFunction") == n_convolutions
    assert len(called) == n_calls
    assert y.shape == shape_out
    assert y.dtype == np.float32
    positive = np.maximum(y.array.ravel(), 0)
    means = positive.mean(), positive @ np.linspace(0, 1, y.size) / y.size
    assert means == pytest.approx(values, rel=1e-3)


def test_registry_lists_the_default_first_and_build_accepts_arguments():
    assert list(REGISTRY) == list(SIZES)
    with pytest.raises(TypeError):
        REGISTRY["mine"] = REGISTRY["resnet20"]
    model = REGISTRY["resnet20"].build(classes=100, depth=8)
    assert infer(model, np.ones((1, 3, 32, 32), "f")).shape == (1, 100)
    assert len(model.res2) == 1
    # Networks without classes do not get that argument.
    entry = ModelEntry("n", "d", (3, 8, 8), None, (), (), "collections:OrderedDict", {"a": 1})
    assert entry.build(b=2) == {"a": 1, "b": 2}
    for name in ("resnet18-bottleneck", "resnet34-relu-bn"):  # as in PyTorch
        links = REGISTRY[name].build().links()
        assert {link.eps for link in links if hasattr(link, "eps")} == {1e-5}


def test_fixup_initialization_and_gradients_of_scalars():
    model = SEResNet9Fixup()
    for n, width in zip((2, 3, 4, 5), (64, 128, 256, 512), strict=True):
        block = model[f"res{n}"]
        deviation = np.sqrt(2 / (width * 9)) * 4**-0.5
        assert block.conv1.W.array.std() == pytest.approx(deviation, rel=0.03)
        assert not block.conv2.W.array.any()
        assert [block[name].array.tolist() for name in SCALARS] == [[0], [0], [0], [1], [0]]
        block.conv2.W.array[...] = 0.01
    model.cleargrads()
    F.sum(model(np.ones((1, 3, 16, 16), "f"))).backward()
    assert all(model.res3[name].grad[0] != 0 for name in SCALARS)


ONLY, SIDES = "only, not ", "or of other sides that are multiples of 4, not "
#: Unsuitable arguments and images, and ends of messages about them.
REFUSED = [
    *((lambda n=n: ResNetCIFAR(n), f"for a CIFAR ResNet, not {n}") for n in (-4, 2, 7, 18, 21)),
    *((lambda n=n: ResNet(n), f"one of 18, 34, 50, 101, 152, not {n}") for n in (20, 0, 51)),
    (lambda: ResNet(18, variant="wide"), "standard, plain, bottleneck, large, not 'wide'"),
    (lambda: FastHeNormal(fan_option="fan_avg"), "fan_in or fan_out, not 'fan_avg'"),
    # This image would fit the linear layer.
    (
        lambda: run_on_zeros(ResNet34ReluBN(), 3, 224, 200),
        f"inputs of 3 x 224 x 224 {ONLY}3 x 224 x 200",
    ),
    (
        lambda: run_on_zeros(ResNet34ReluBN(), 1, 224, 224),
        f"inputs of 3 x 224 x 224 {ONLY}1 x 224 x 224",
    ),
    (lambda: run_on_zeros(fixup(3), 1, 64, 64), f"inputs of 3 x 64 x 64, {SIDES}1 x 64 x 64"),
    (lambda: run_on_zeros(fixup(1), 3, 64, 64), f"inputs of 1 x 64 x 64, {SIDES}3 x 64 x 64"),
    (lambda: run_on_zeros(fixup(3), 3, 64, 63), f"inputs of 3 x 64 x 64, {SIDES}3 x 64 x 63"),
]


def fixup(channels):
    return SEResNet9Fixup(channels=channels)


def run_on_zeros(model, *shape):
    return infer(model, np.zeros((1, *shape), np.float32))


def test_unsuitable_arguments_and_images_are_refused_in_one_line():
    for act, expected in REFUSED:
        assert refusal(act, error=ValueError).endswith(expected)


def test_fast_he_normal_has_the_distribution_of_chainer():
    for fan_option in ("fan_in", "fan_out"):
        fast, slow = (np.empty((200, 50, 3, 3), np.float32) for _ in range(2))
        FastHeNormal(0.5, fan_option)(fast)
        HeNormal(0.5, fan_option=fan_option)(slow)
        assert fast.std() == pytest.approx(float(slow.std()), rel=0.02)
        assert fast.mean() == pytest.approx(0, abs=0.05 * float(fast.std()))
        assert np.mean(np.abs(fast) < fast.std()) == pytest.approx(0.683, abs=0.01)


def weights(name, seed):
    np.random.seed(seed)  # noqa: NPY002  (the generator that Chainer's initializers use)
    return arrays_of(REGISTRY[name].build())


def test_same_seed_gives_same_weights():
    for name in ("resnet20", "resnet18-bottleneck", "se-resnet9-fixup-depth"):
        first = weights(name, 3)
        assert_same(first, weights(name, 3))
        assert not np.array_equal(first["conv1/W"], weights(name, 4)["conv1/W"]), name
    w = weights("resnet20", 0)["res4/0/conv1/W"]  # He's distribution by fan-in
    assert np.std(w) == pytest.approx(np.sqrt(2 / (32 * 9)), rel=0.03)
