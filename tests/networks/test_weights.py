"""Weights are loaded from each kind of file."""

import os
import zipfile

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest
from chainer import serializers, training

from chainer_profile.networks import weights
from chainer_profile.networks.weights import load_weights
from tests.command import raising
from tests.nets import net
from tests.refusing import arrays_of, assert_same, refusal


def make(units=4, lazy=False, seed=0):
    """Make a network with parameters and persistent values."""
    np.random.seed(seed)  # noqa: NPY002  (the generator that Chainer's initializers use)
    return net(
        lambda net, x: net.l2(F.relu(net.bn(net.l1(x)))),
        l1=L.Linear(None if lazy else 3, units),
        bn=L.BatchNormalization(axis=0) if lazy else L.BatchNormalization(units),
        l2=L.Linear(None if lazy else units, 2),
    )


@pytest.fixture
def trained():
    model = make(seed=1)
    with chainer.using_config("train", True):
        model(np.arange(12, dtype=np.float32).reshape(4, 3))
    model.bn.N = 5
    return model


@pytest.fixture
def path(tmp_path):
    return tmp_path / "weights.npz"


def refused(model, path):
    """Return the message about a file, and check that the network did not change."""
    before = arrays_of(model)
    text = refusal(load_weights, model, path)
    assert_same(arrays_of(model), before)
    assert str(path) in text
    return text


def snapshot(path, target):
    """Write a snapshot of a Trainer after an update."""
    data = [(np.full(3, i, dtype=np.float32), np.int32(i % 2)) for i in range(2)]
    updater = training.updaters.StandardUpdater(
        chainer.iterators.SerialIterator(data, 2),
        chainer.optimizers.Adam().setup(target),
        loss_func=lambda x, t: F.sum(getattr(target, "predictor", target)(x)),
    )
    trainer = training.Trainer(updater, (1, "epoch"), out=path.parent)
    trainer.extend(training.extensions.snapshot(filename=path.name), trigger=(1, "epoch"))
    trainer.run()


#: Functions that write a network to a file, by its prefix in the file.
WRITERS = {
    "": lambda path, model: serializers.save_npz(path, model),
    "predictor/": lambda path, model: serializers.save_npz(path, L.Classifier(model)),
    "updater/model:main/": lambda path, model: snapshot(path, model),
    "updater/model:main/predictor/": lambda path, model: snapshot(path, L.Classifier(model)),
}


@pytest.mark.parametrize("prefix", WRITERS)
def test_weights_are_loaded_from_each_kind_of_file(path, trained, prefix):
    WRITERS[prefix](path, trained)
    for lazy in (False, True):
        model = make(lazy=lazy, seed=2)
        assert load_weights(model, str(path)) == prefix
        assert_same(arrays_of(model), arrays_of(trained))
        assert model.bn.N == 5
    if prefix.endswith("predictor/"):  # a classifier's weights fit another classifier
        model = L.Classifier(make(seed=2))
        assert load_weights(model, path) == prefix.removesuffix("predictor/")


def test_arrays_of_other_precision_are_converted_and_others_refused(path, trained):
    arrays, model = arrays_of(trained), make()
    np.savez(path, **arrays | {"l1/W": trained.l1.W.array.astype("d")})
    load_weights(model, path)
    assert model.l1.W.array.dtype == np.float32
    np.testing.assert_array_equal(model.l1.W.array, trained.l1.W.array)
    for content, message in (
        (arrays | {"l1/W": np.zeros((4, 3), complex)}, "l1/W is complex128 in the file, but flo"),
        ({f"updater/model:gen/{key}": a for key, a in arrays.items()}, "but no model:main"),
        ({"updater/iteration": np.array(3)}, "contains the state of a training, but no network"),
    ):
        np.savez(path, **content)
        assert message in refused(make(), path)
    WRITERS["updater/model:main/predictor/"](path, trained)
    text = refused(make(units=6), path)
    assert "(updater/model:main/predictor) does not fit this network: " in text
    assert "bn/avg_mean is (4,) in the file, but (6,) in the network" in text
    assert text.count("in the file") == 3
    # seven arrays differ: four of bn, W and b of l1, W of l2
    assert text.endswith("and 4 more")


def test_other_and_damaged_files_are_refused(path, trained):
    path.write_bytes(b"\x93NUMPY\x01\x00")
    assert "is not an npz file" in refused(make(), path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", b"")
    assert "is a zip file without arrays" in refused(make(), path)
    serializers.save_npz(path, trained, compression=False)
    content = path.read_bytes()
    at = content.index(trained.l2.W.array.tobytes())
    flipped = content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :]
    for damaged in (*(content[: int(len(content) * share)] for share in (0.3, 0.999)), flipped):
        path.write_bytes(damaged)
        assert "is cut short or damaged" in refused(make(), path)


class Evil:
    """Makes a folder when it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_pickled_code_in_a_weights_file_is_not_run(path, trained):
    trap, evil = path.parent / "ran", np.empty((), dtype=object)
    evil[()] = Evil(trap)
    np.savez(path, **arrays_of(trained) | {"l1/W": evil})
    assert "l1/W is a Python object, not an array" in refused(make(), path)
    # A version of the format whose header we do not parse.
    with zipfile.ZipFile(path, "w") as archive, archive.open("l1/W.npy", "w") as file:
        np.lib.format.write_array(file, evil, version=(3, 0))
    assert "l1/W cannot be read" in refused(make(), path)
    assert not trap.exists()


def test_weights_must_be_in_a_regular_file(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    message = refused(make(), tmp_path / "fifo")
    assert message == f"cannot read {tmp_path / 'fifo'}: not a regular file"


def test_arrays_that_do_not_fit_into_memory_are_refused(path, trained, monkeypatch):
    serializers.save_npz(path, trained)
    monkeypatch.setattr(weights.npy, "read_array", raising(MemoryError()))
    assert "does not fit into memory" in refused(make(), path)
