"""Weights that come from torchvision's ResNets, for :class:`models.resnet.ResNet`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainer_profile.basics.errors import ProfileError
from chainer_profile.networks.weights import WeightFormat, open_npz, read_npy, require_fit

if TYPE_CHECKING:
    import chainer

_MODULE = "module."  # what torch.nn.DataParallel puts before every name
_COUNTER = "num_batches_tracked"
_BLOCK_NAME = re.compile(r"layer[1-4]\.\d+\.(conv\d|bn\d|downsample\.[01])\.\w+")
# The attributes of batch normalization, and of convolutions and linear layers.
_BN = {
    "gamma": "weight",
    "beta": "bias",
    "avg_mean": "running_mean",
    "avg_var": "running_var",
    "N": _COUNTER,
}
_WEIGHTED = {"W": "weight", "b": "bias"}


def is_torchvision_npz(names: Iterable[str]) -> bool:
    """Tells whether the names of a file's arrays are those of a torchvision ResNet.

    That is so if any is a block's, such as ``layer1.0.conv1.weight``. Chainer's own names have
    slashes, so none of them is.
    """
    return any(_BLOCK_NAME.fullmatch(name.removeprefix(_MODULE)) for name in names)


def load_torchvision_npz(model: chainer.Link, path: str | Path) -> None:
    """Loads the weights of a torchvision ResNet into the same network of this project.

    Two lines make such a file, where PyTorch is::

        state = torchvision.models.resnet50(weights="DEFAULT").state_dict()
        numpy.savez("resnet50.npz", **{k: v.cpu().numpy() for k, v in state.items()})

    The names are mapped by rule: ``layer1`` to ``layer4`` are ``res2`` to ``res5``,
    ``downsample.0`` and ``downsample.1`` are ``downsample_conv`` and ``downsample_bn``; a
    batch normalization's ``weight``, ``bias``, ``running_mean`` and ``running_var`` are
    ``gamma``, ``beta``, ``avg_mean`` and ``avg_var``; other layers' ``weight`` and ``bias``
    are ``W`` and ``b``. ``num_batches_tracked`` is left aside, and so is ``module.`` before
    every name (``torch.nn.DataParallel``). Everything is checked before anything is
    written, so the network is as it was when this fails. Pickled objects are refused.

    Args:
        model: A :class:`models.resnet.ResNet`: the networks ``resnet18``, ``resnet34``,
            ``resnet50``, ``resnet101`` and ``resnet152``, with the file's number of
            classes. Its other variants take files of the same form.
        path: The file.

    Raises:
        ProfileError: If the network is no such ResNet, the file cannot be read, or it does
            not hold exactly this network's weights, of the same shapes.
    """
    from chainer import serializers

    from .resnet import ResNet

    if not isinstance(model, ResNet):
        raise ProfileError(
            f"weights of torchvision fit resnet18, resnet34, resnet50, resnet101 and resnet152, "
            f"not {type(model).__name__}"
        )
    path = Path(path)
    stored = _read(path)
    target = serializers.DictionarySerializer()
    target.save(model)
    arrays: dict[str, Any] = target.target
    name_of = {path_of: _torch_name(path_of) for path_of in arrays}
    expected = {
        name: arrays[path_of] for path_of, name in name_of.items() if not name.endswith(_COUNTER)
    }
    require_fit(expected, stored, str(path))
    arrays.update({path_of: stored[name] for path_of, name in name_of.items() if name in expected})
    serializers.NpzDeserializer(arrays).load(model)


def _torch_name(path: str) -> str:
    """Torchvision's name of a parameter or persistent value: ``res2/0/conv1/W`` and so on."""
    *links, attribute = path.split("/")
    words = _BN if re.search(r"bn\d*$", links[-1]) else _WEIGHTED
    name = ".".join([*links, words[attribute]])
    name = name.replace("downsample_conv", "downsample.0").replace("downsample_bn", "downsample.1")
    return re.sub(r"^res(\d)", lambda match: f"layer{int(match[1]) - 1}", name)


def _read(path: Path) -> dict[str, Any]:
    """Reads a file's arrays by their names, without ``module.`` and without the counters."""
    with open_npz(path) as archive:
        names = [name.removesuffix(".npy") for name in archive.namelist()]
        if any(name.endswith("/data.pkl") for name in names):
            raise ProfileError(f"{path} is a file of torch.save: save its state_dict() as npz")
        names = [name for name in names if not name.endswith(_COUNTER)]
        if not is_torchvision_npz(names):
            raise ProfileError(f"{path} does not hold the weights of a torchvision ResNet")
        prefix = _MODULE if all(name.startswith(_MODULE) for name in names) else ""
        return {name[len(prefix) :]: read_npy(archive, name, path) for name in names}


#: Forms of weights that fit networks of the registry, beside those of Chainer.
WEIGHT_FORMATS = (WeightFormat(is_torchvision_npz, load_torchvision_npz),)
