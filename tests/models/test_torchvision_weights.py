"""Weights of torchvision's ResNets: names, values, files that do not fit."""

import zipfile
from functools import partial

import numpy as np
import pytest
from chainer import serializers

from models.resnet import BLOCKS, ResNet
from models.resnet_cifar import ResNetCIFAR
from models.torchvision_weights import is_torchvision_npz, load_torchvision_npz
from tests.refusing import arrays_of, weights_refused

NARROW = {"width": 64, "is_bottleneck": True, "classes": 2}

# One of each kind: link path and attribute here, name there.
PAIRS = {
    "conv1/W": "conv1.weight",
    "bn1/gamma": "bn1.weight",
    "bn1/beta": "bn1.bias",
    "bn1/avg_mean": "bn1.running_mean",
    "bn1/avg_var": "bn1.running_var",
    "res2/0/conv1/W": "layer1.0.conv1.weight",
    "res2/1/conv2/W": "layer1.1.conv2.weight",
    "res3/0/downsample_conv/W": "layer2.0.downsample.0.weight",
    "res3/0/downsample_bn/gamma": "layer2.0.downsample.1.weight",
    "res4/0/downsample_bn/beta": "layer3.0.downsample.1.bias",
    "res5/0/downsample_bn/avg_var": "layer4.0.downsample.1.running_var",
    "res5/1/bn2/avg_mean": "layer4.1.bn2.running_mean",
    "fc/W": "fc.weight",
    "fc/b": "fc.bias",
}


def make_state(depth, width=64, is_bottleneck=False, classes=1000, seed=0):
    """What state_dict() of a torchvision ResNet gives, with random values, in its order."""
    generator = np.random.default_rng(seed)
    state = {}

    def draw(name, *shape):
        state[name] = generator.random(shape, dtype=np.float32)

    def draw_bn(name, channels):
        for attribute in ("weight", "bias", "running_mean", "running_var"):
            draw(f"{name}.{attribute}", channels)
        state[f"{name}.num_batches_tracked"] = np.array(817, np.int64)

    draw("conv1.weight", 64, 3, 7, 7)
    draw_bn("bn1", 64)
    before = 64
    for stage, blocks in enumerate(BLOCKS[depth]):
        out = width * 2**stage
        for block in range(blocks):
            name = f"layer{stage + 1}.{block}"
            if is_bottleneck:
                inner = out // 4
                shapes = [(inner, before, 1), (inner, inner, 3), (out, inner, 1)]
            else:
                shapes = [(out, before, 3), (out, out, 3)]
            for n, (to, since, side) in enumerate(shapes, 1):
                draw(f"{name}.conv{n}.weight", to, since, side, side)
                draw_bn(f"{name}.bn{n}", to)
            if block == 0 and (stage > 0 or before != out):
                draw(f"{name}.downsample.0.weight", out, before, 1, 1)
                draw_bn(f"{name}.downsample.1", out)
            before = out
    draw("fc.weight", classes, before)
    draw("fc.bias", classes)
    return state


def narrow():
    return ResNet(18, variant="bottleneck", classes=2)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "w.npz"


refusal = partial(weights_refused, load_torchvision_npz)


@pytest.mark.parametrize(
    ("depth", "form", "n_names"),
    [
        (18, {"classes": 1000}, 122),
        (50, {"width": 256, "is_bottleneck": True, "classes": 3}, 320),
    ],
)
def test_a_file_of_torchvision_is_loaded_whole(path, depth, form, n_names):
    state = make_state(depth, **form)
    assert len(state) == n_names  # as many as torchvision's own
    np.savez(path, **state)
    model = ResNet(depth, classes=form["classes"])
    load_torchvision_npz(model, path)

    loaded = arrays_of(model)
    for here, there in PAIRS.items():
        np.testing.assert_array_equal(loaded[here], state[there], err_msg=here)
    # And the rest: every array of the file is in the network, once.
    values = [array.tobytes() for name, array in state.items() if "num_batches" not in name]
    found = [array.tobytes() for path, array in loaded.items() if not path.endswith("/N")]
    assert sorted(values) == sorted(found)
    assert loaded["bn1/N"] == 0
    assert loaded["bn1/gamma"].dtype == np.float32


def test_a_module_prefix_missing_counters_and_other_floats_are_accepted(path):
    state = make_state(18, **NARROW)
    for dtype in (np.float16, np.float32, np.float64):
        arrays = {
            f"module.{name}": array.astype(dtype)
            for name, array in state.items()
            if "num_batches" not in name
        }
        np.savez(path, **arrays)
        model = narrow()
        load_torchvision_npz(model, path)
        assert model.fc.W.dtype == np.float32
        for link, name in ((model.fc, "fc"), (model.res3[0].conv2, "layer2.0.conv2")):
            expected = arrays[f"module.{name}.weight"].astype("f")
            np.testing.assert_array_equal(link.W.array, expected)


def test_what_does_not_fit_is_named(path):
    """By torchvision's names; the rest of refusing is that of any file of weights."""
    state = make_state(18, **NARROW)
    changed = {"fc.weight": np.zeros(3), "a": np.zeros(1), "b": np.zeros(1)}
    np.savez(path, **{k: v for k, v in (state | changed).items() if k != "fc.bias"})
    said = "it has no fc.bias; the network has no a; the network has no b, and 1 more"
    assert refusal(narrow(), path) == f"{path} does not fit this network: {said}"
    np.savez(path, **make_state(34, **NARROW))
    text = refusal(narrow(), path)
    assert "the network has no layer1.2.bn1.bias; " in text
    # 8 more blocks of 15 arrays, of which 3 are named.
    assert text.endswith(", and 117 more")
    known = "fit resnet18, resnet34, resnet50, resnet101 and resnet152, not ResNetCIFAR"
    assert refusal(ResNetCIFAR(8), path).endswith(known)
    serializers.save_npz(path, narrow())
    assert refusal(narrow(), path) == f"{path} does not hold the weights of a torchvision ResNet"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("resnet18/data.pkl", b"")
    text = f"{path} is a file of torch.save: save its state_dict() as npz"
    assert refusal(narrow(), path) == text
    # Pickled objects are not run.
    np.savez(path, **state | {"fc.bias": np.array([print, print], dtype=object)})
    assert refusal(narrow(), path) == f"{path}: fc.bias is a Python object, not an array"


def test_the_names_tell_a_torchvision_file():
    for name in (
        "conv1.weight layer1.0.conv1.weight",
        "layer4.2.downsample.1.running_var.npy",
        "module.layer3.22.bn3.num_batches_tracked",
    ):
        assert is_torchvision_npz(name.split()), name
    for name in (
        "",
        "conv1/W res2/0/conv1/W layer1/0/conv1/W",
        "predictor/layer1.0.conv1.weight/W",
        "layer5.0.conv1.weight layer1.conv1.weight fc.weight",
    ):
        assert not is_torchvision_npz(name.split()), name
    state = make_state(18, **NARROW)
    assert is_torchvision_npz(iter([*reversed(state)]))
    assert not is_torchvision_npz(arrays_of(narrow()))
