"""Loading weights from every kind of file."""

import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

import chainer_profile  # noqa: F401  (lets Chainer import on current NumPy)

# isort: split
import chainer
import chainer.functions as F
import chainer.links as L
from chainer import serializers, training

from chainer_profile.basics.errors import ProfileError
from chainer_profile.networks.weights import load_weights


def message(error):
    """The text of an error, which must be one line."""
    text = str(error.value)
    assert text
    assert "\n" not in text
    return text


class Net(chainer.Chain):
    """A network with parameters, persistent values, and sizes as wanted."""

    def __init__(self, units=4, lazy=False, seed=0):
        super().__init__()
        np.random.seed(seed)  # noqa: NPY002  (the generator that Chainer's initializers use)
        with self.init_scope():
            self.l1 = L.Linear(None if lazy else 3, units)
            self.bn = L.BatchNormalization(axis=0) if lazy else L.BatchNormalization(units)
            self.l2 = L.Linear(None if lazy else units, 2)

    def forward(self, x):
        return self.l2(F.relu(self.bn(self.l1(x))))


def everything(model):
    """All that save_npz would write."""
    target = serializers.DictionarySerializer()
    target.save(model)
    return {key: np.copy(value) for key, value in target.target.items()}


def assert_same(a, b):
    assert a.keys() == b.keys()
    for key in a:
        np.testing.assert_array_equal(a[key], b[key], err_msg=key)


@pytest.fixture
def trained():
    model = Net(seed=1)
    with chainer.using_config("train", True):
        model(np.arange(12, dtype=np.float32).reshape(4, 3))
    model.bn.N = 5
    return model


def infer(model, x):
    with chainer.using_config("train", False), chainer.no_backprop_mode():
        return model(x).array


def train(path, predictor, classify):
    """Trains for one epoch, and writes a Trainer's own snapshot."""
    data = [(np.full(3, i, dtype=np.float32), np.int32(i % 2)) for i in range(4)]
    target = L.Classifier(predictor) if classify else predictor
    optimizer = chainer.optimizers.Adam().setup(target)
    updater = training.updaters.StandardUpdater(
        chainer.iterators.SerialIterator(data, 2),
        optimizer,
        loss_func=lambda x, t: F.softmax_cross_entropy(predictor(x), t),
    )
    path = Path(path)
    trainer = training.Trainer(updater, (1, "epoch"), out=path.parent)
    trainer.extend(training.extensions.LogReport(filename=None))
    trainer.extend(training.extensions.snapshot(filename=path.name), trigger=(1, "epoch"))
    trainer.run()


def write_plain(path, model):
    serializers.save_npz(path, model)
    return ""


def write_classifier(path, model):
    serializers.save_npz(path, L.Classifier(model))
    return "predictor/"


def write_snapshot(path, model):
    train(path, model, classify=False)
    return "updater/model:main/"


def write_classifier_snapshot(path, model):
    train(path, model, classify=True)
    return "updater/model:main/predictor/"


@pytest.mark.parametrize(
    "write", [write_plain, write_classifier, write_snapshot, write_classifier_snapshot]
)
@pytest.mark.parametrize("lazy", [False, True])
def test_weights_come_back_from_every_kind_of_file(tmp_path, trained, write, lazy):
    path = str(tmp_path / "weights.npz")
    part = write(path, trained)
    model = Net(lazy=lazy, seed=2)
    assert load_weights(model, path) == part
    assert_same(everything(model), everything(trained))
    assert model.bn.N == 5
    x = np.ones((2, 3), dtype=np.float32)
    np.testing.assert_array_equal(infer(model, x), infer(trained, x))


@pytest.mark.parametrize(
    ("write", "part"), [(write_classifier, ""), (write_classifier_snapshot, "updater/model:main/")]
)
def test_a_classifier_takes_a_classifier_s_file(tmp_path, trained, write, part):
    path = str(tmp_path / "weights.npz")
    write(path, trained)
    model = L.Classifier(Net(seed=2))
    assert load_weights(model, path) == part
    assert_same(everything(model.predictor), everything(trained))


def test_a_network_may_have_a_child_called_updater(tmp_path):
    path = str(tmp_path / "weights.npz")
    saved = chainer.Chain(updater=L.Linear(2, 2))
    serializers.save_npz(path, saved)
    model = chainer.Chain(updater=L.Linear(2, 2))
    load_weights(model, path)
    assert_same(everything(model), everything(saved))


def test_weights_of_another_precision_are_converted(tmp_path, trained):
    path = str(tmp_path / "weights.npz")
    np.savez(
        path, **{k: v.astype("d") if k == "l1/W" else v for k, v in everything(trained).items()}
    )
    model = Net()
    load_weights(model, path)
    assert model.l1.W.array.dtype == np.float32
    np.testing.assert_array_equal(model.l1.W.array, trained.l1.W.array)


def refused(model, path):
    """The message with which a file is refused; the model must not have changed."""
    before = everything(model)
    with pytest.raises(ProfileError) as error:
        load_weights(model, path)
    assert error.value.exit_code == 1
    assert_same(everything(model), before)
    text = message(error)
    assert str(path) in text
    return text


def without(arrays, name):
    return {key: value for key, value in arrays.items() if key != name}


def renamed(arrays, prefix):
    return {f"{prefix}{key}": value for key, value in arrays.items()}


#: What a file holds of the arrays of a network, and what is wrong with that for another one.
MISFITS = {
    "another kind": (
        lambda a: {**a, "l1/W": np.zeros((4, 3), complex)},
        "l1/W is complex128 in the file, float32 in the network",
    ),
    "both shapes": (
        lambda a: {**a, "l1/W": np.zeros((4, 5))},
        "does not fit this network: l1/W is (4, 5) in the file, (4, 3) in the network",
    ),
    "missing": (lambda a: without(a, "l1/b"), "does not fit this network: it has no l1/b"),
    "unexpected": (lambda a: {**a, "l3/W": a["l2/W"]}, "network: the network has no l3/W"),
    "no main model": (
        lambda a: renamed(a, "updater/model:gen/"),
        "holds model:gen, but no model:main",
    ),
    "an optimizer alone": (
        lambda a: {"updater/iteration": np.array(3)},
        "holds the state of a training, but no network",
    ),
    "an object": (
        lambda a: {**a, "l1/W": np.array({"a": 1}, dtype=object)},
        "l1/W is a Python object, not an array",
    ),
}


@pytest.mark.parametrize("name", MISFITS)
def test_arrays_that_do_not_fit(tmp_path, trained, name):
    change, said = MISFITS[name]
    path = tmp_path / "weights.npz"
    np.savez(path, **change(everything(trained)))
    assert said in refused(Net(), path)


def test_many_misfits_are_counted_and_their_part_is_named(tmp_path, trained):
    path = tmp_path / "snapshot"
    write_classifier_snapshot(str(path), trained)
    text = refused(Net(units=6), path)
    assert "(updater/model:main/predictor) does not fit this network: " in text
    assert "bn/avg_mean is (4,) in the file, (6,) in the network" in text
    assert text.count("in the file") == 3
    # four arrays of bn, l1's W and b, l2's W; l2's b is as long in both
    assert text.endswith("and 4 more")


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("size", [None, 3])
def test_a_file_saved_before_the_first_call_holds_no_values(tmp_path, size, protocol, monkeypatch):
    dump = pickle.dump
    monkeypatch.setattr(pickle, "dump", lambda *a, **_: dump(*a, protocol=protocol))
    path = tmp_path / "weights.npz"
    serializers.save_npz(str(path), L.Linear(None, 4))
    text = refused(L.Linear(size, 4), path)
    assert text.endswith("it holds no values for W (saved before the first call?)")


def test_a_persistent_value_may_be_none_on_both_sides(tmp_path):
    def link():
        link = L.Linear(1, 1)
        link.add_persistent("state", None)
        return link

    path = tmp_path / "weights.npz"
    saved, model = link(), link()
    serializers.save_npz(str(path), saved)
    load_weights(model, path)
    assert model.state is None
    np.testing.assert_array_equal(model.W.array, saved.W.array)


def test_files_that_are_no_npz_files(tmp_path):
    assert "there is no weights file" in refused(Net(), tmp_path / "none.npz")
    assert "is a folder" in refused(Net(), tmp_path)
    path = tmp_path / "some.npz"
    for content in (b"hello", b"", b"\x93NUMPY\x01\x00"):
        path.write_bytes(content)
        assert "is not an npz file" in refused(Net(), path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", b"")
    assert "is a zip file without arrays" in refused(Net(), path)


@pytest.mark.parametrize("kept", [0.3, 0.9, 0.999])
def test_a_truncated_file(tmp_path, trained, kept):
    path = tmp_path / "weights.npz"
    serializers.save_npz(str(path), trained)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * kept)])
    assert "is cut short or damaged" in refused(Net(), path)


def test_a_damaged_file(tmp_path, trained):
    path = tmp_path / "weights.npz"
    serializers.save_npz(str(path), trained, compression=False)
    content = bytearray(path.read_bytes())
    at = bytes(content).index(trained.l2.W.array.tobytes())
    content[at] ^= 0xFF
    path.write_bytes(content)
    assert "is cut short or damaged: l2/W cannot be read" in refused(Net(), path)


class Evil:
    """Writes a file when it is unpickled the ordinary way."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_a_pickled_program_in_a_weights_file_is_not_run(tmp_path, trained):
    trap, path = tmp_path / "ran", tmp_path / "weights.npz"
    evil = np.empty((), dtype=object)
    evil[()] = Evil(trap)
    np.savez(path, **{**everything(trained), "l1/W": evil})
    text = refused(Net(), path)
    assert "l1/W is a Python object, not an array" in text
    assert not trap.exists()
    # The trap works: reading the same file the ordinary way springs it.
    np.load(path, allow_pickle=True)["l1/W"]
    assert trap.exists()
