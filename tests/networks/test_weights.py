"""Loading weights from every kind of file."""

import os
import pickle
import zipfile
from pathlib import Path

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest
from chainer import serializers, training

from chainer_profile.networks.weights import load_weights
from tests.nets import net
from tests.refusing import arrays_of, assert_same, refusal


def make(units=4, lazy=False, seed=0):
    """A network with parameters, persistent values, and sizes as wanted."""
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
    """The line with which a file is refused; the network must not have changed."""
    before = arrays_of(model)
    text = refusal(load_weights, model, path)
    assert_same(arrays_of(model), before)
    assert str(path) in text
    return text


def snapshot(path, predictor, target):
    """Trains for one epoch, and writes a Trainer's own snapshot."""
    data = [(np.full(3, i, dtype=np.float32), np.int32(i % 2)) for i in range(4)]
    updater = training.updaters.StandardUpdater(
        chainer.iterators.SerialIterator(data, 2),
        chainer.optimizers.Adam().setup(target),
        loss_func=lambda x, t: F.softmax_cross_entropy(predictor(x), t),
    )
    trainer = training.Trainer(updater, (1, "epoch"), out=Path(path).parent)
    trainer.extend(training.extensions.LogReport(filename=None))
    trainer.extend(training.extensions.snapshot(filename=path.name), trigger=(1, "epoch"))
    trainer.run()


#: What writes a file of a network, and where the network is in it.
WRITERS = {
    "": lambda path, model: serializers.save_npz(path, model),
    "predictor/": lambda path, model: serializers.save_npz(path, L.Classifier(model)),
    "updater/model:main/": lambda path, model: snapshot(path, model, model),
    "updater/model:main/predictor/": lambda path, model: snapshot(path, model, L.Classifier(model)),
}


@pytest.mark.parametrize("part", WRITERS)
def test_weights_come_back_from_every_kind_of_file(path, trained, part):
    WRITERS[part](path, trained)
    for lazy in (False, True):
        model = make(lazy=lazy, seed=2)
        assert load_weights(model, str(path)) == part
        assert_same(arrays_of(model), arrays_of(trained))
        assert model.bn.N == 5
        with chainer.using_config("train", False):
            mine, theirs = (one(np.ones((2, 3), "f")).array for one in (model, trained))
        np.testing.assert_array_equal(mine, theirs)
    if part.endswith("predictor/"):  # of a classifier, for another
        model = L.Classifier(make(seed=2))
        assert load_weights(model, path) == part.removesuffix("predictor/")


def test_weights_of_another_precision_are_converted(path, trained):
    np.savez(path, **{**arrays_of(trained), "l1/W": trained.l1.W.array.astype("d")})
    model = make()
    load_weights(model, path)
    assert model.l1.W.array.dtype == np.float32
    np.testing.assert_array_equal(model.l1.W.array, trained.l1.W.array)


#: What a file holds of the arrays of a network, and what is wrong with that for another one.
MISFITS = {
    "l1/W is complex128 in the file, but float32 in the network": (
        lambda a: {**a, "l1/W": np.zeros((4, 3), complex)}
    ),
    "snapshot with model:gen, but no model:main": (
        lambda a: {f"updater/model:gen/{key}": value for key, value in a.items()}
    ),
    "contains the state of a training, but no network": (
        lambda a: {"updater/iteration": np.array(3)}
    ),
}


def test_arrays_that_do_not_fit(path, trained):
    for said, change in MISFITS.items():
        np.savez(path, **change(arrays_of(trained)))
        assert said in refused(make(), path)
    WRITERS["updater/model:main/predictor/"](path, trained)
    text = refused(make(units=6), path)
    assert "(updater/model:main/predictor) does not fit this network: " in text
    assert "bn/avg_mean is (4,) in the file, but (6,) in the network" in text
    assert text.count("in the file") == 3
    # four arrays of bn, l1's W and b, l2's W; l2's b is as long in both
    assert text.endswith("and 4 more")


def test_a_file_saved_before_the_first_call_holds_no_values(path, monkeypatch):
    dump = pickle.dump
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        with monkeypatch.context() as patch:
            patch.setattr(pickle, "dump", lambda *a, of=protocol, **_: dump(*a, protocol=of))
            serializers.save_npz(path, L.Linear(None, 4))
        for size in (None, 3):
            text = refused(L.Linear(size, 4), path)
            assert text.endswith("it has no values for W (was it saved before the first call?)")


def test_files_that_are_no_npz_files_or_damaged(path, trained):
    for content in (b"", b"\x93NUMPY\x01\x00"):
        path.write_bytes(content)
        assert "is not an npz file" in refused(make(), path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", b"")
    assert "is a zip file without arrays" in refused(make(), path)
    serializers.save_npz(path, trained, compression=False)
    content = path.read_bytes()
    for kept in (0.3, 0.9, 0.999):
        path.write_bytes(content[: int(len(content) * kept)])
        assert "is cut short or damaged" in refused(make(), path)
    at = content.index(trained.l2.W.array.tobytes())
    path.write_bytes(content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :])
    assert "is cut short or damaged: l2/W cannot be read" in refused(make(), path)


class Evil:
    """Makes a folder when it is unpickled the ordinary way."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_a_pickled_program_in_a_weights_file_is_not_run(path, trained):
    trap, evil = path.parent / "ran", np.empty((), dtype=object)
    evil[()] = Evil(trap)
    arrays = arrays_of(trained) | {"l1/W": evil}
    del arrays["bn/beta"]
    np.savez(path, **arrays)
    assert "l1/W is a Python object, not an array" in refused(make(), path)
    # Of a version of the format whose header is not looked at.
    with zipfile.ZipFile(path, "a") as archive, archive.open("bn/beta.npy", "w") as file:
        np.lib.format.write_array(file, evil, version=(3, 0))
    assert "bn/beta cannot be read" in refused(make(), path)
    assert not trap.exists()
    # The trap works: reading the same file the ordinary way springs it.
    np.load(path, allow_pickle=True)["l1/W"]
    assert trap.exists()
