"""Weights of torchvision's ResNets: names, values, files that do not fit."""

import re
import zipfile
from functools import partial

import numpy as np
import pytest
from chainer import serializers

from models.resnet import ResNet
from models.resnet_cifar import ResNetCIFAR
from models.torchvision_weights import is_torchvision_npz, load_torchvision_npz
from tests.refusing import arrays_of, weights_refused

#: What stands for what, in this order.
NAMES = {
    r"res(\d)": lambda found: f"layer{int(found[1]) - 1}",
    "downsample_conv": "downsample.0",
    "downsample_bn": "downsample.1",
    r"(gamma|W)$": "weight",
    r"(beta|b)$": "bias",
    r"avg_": "running_",
    r"N$": "num_batches_tracked",
    "/": ".",
}


def torch_name(path):
    for ours, theirs in NAMES.items():
        path = re.sub(ours, theirs, path)
    return path


def make_state(model):
    """What state_dict() of the same ResNet of torchvision gives, with random values."""
    generator = np.random.default_rng(0)
    return {
        torch_name(path): np.array(817) if path.endswith("/N") else generator.random(array.shape)
        for path, array in arrays_of(model).items()
    }


def narrow(depth=18):
    return ResNet(depth, variant="bottleneck", classes=2)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "w.npz"


refusal = partial(weights_refused, load_torchvision_npz)


def test_a_file_of_torchvision_is_loaded_whole(path):
    for depth, n_names in ((18, 122), (50, 320)):  # as many as torchvision's own
        model = ResNet(depth, classes=depth)
        state = {name: array.astype("f") for name, array in make_state(model).items()}
        assert len(state) == n_names
        assert {"bn1.running_var", "layer2.0.downsample.0.weight", "fc.bias"} < state.keys()
        assert {"layer4.1.bn2.num_batches_tracked", "layer3.0.downsample.1.bias"} < state.keys()
        np.savez(path, **state)
        load_torchvision_npz(model, path)
        for name, array in arrays_of(model).items():
            expected = 0 if name.endswith("/N") else state[torch_name(name)]
            np.testing.assert_array_equal(array, expected, err_msg=name)
            assert name.endswith("/N") or array.dtype == np.float32


def test_a_module_prefix_missing_counters_and_other_floats_are_accepted(path):
    for dtype in (np.float16, np.float32, np.float64):
        model = narrow()
        arrays = {
            f"module.{name}": array.astype(dtype)
            for name, array in make_state(model).items()
            if "num_batches" not in name
        }
        np.savez(path, **arrays)
        load_torchvision_npz(model, path)
        assert model.fc.W.dtype == np.float32
        for link, name in ((model.fc, "fc"), (model.res3[0].conv2, "layer2.0.conv2")):
            expected = arrays[f"module.{name}.weight"].astype("f")
            np.testing.assert_array_equal(link.W.array, expected)


def test_what_does_not_fit_is_named(path):
    """By torchvision's names; the rest of refusing is that of any file of weights."""
    state = make_state(narrow())
    changed = {"fc.weight": np.zeros(3), "a": np.zeros(1), "b": np.zeros(1)}
    np.savez(path, **{k: v for k, v in (state | changed).items() if k != "fc.bias"})
    said = "it has no fc.bias; the network has no a; the network has no b, and 1 more"
    assert refusal(narrow(), path) == f"{path} does not fit this network: {said}"
    np.savez(path, **make_state(narrow(34)))
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
    names = [*make_state(narrow())]
    for found in (names, [f"module.{name}" for name in names]):
        assert is_torchvision_npz(found)
    others = ["layer1.conv1.weight", "layer5.0.conv1.weight", "layer1.0.conv1.weight/W"]
    for found in ([], arrays_of(narrow()), [*others, "predictor/layer1.0.conv1.weight"]):
        assert not is_torchvision_npz(found)
