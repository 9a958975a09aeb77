"""Finding a network, building it, loading its weights."""

import os
import pickle
import sys
import zipfile
from io import BytesIO
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import chainer_profile  # noqa: F401  (lets Chainer import on current NumPy)

# isort: split
import chainer
import chainer.functions as F  # noqa: N812
import chainer.links as L  # noqa: N812
from chainer import serializers, training

from chainer_profile.errors import ProfileError, UsageError
from chainer_profile.loading import (
    ModelSource,
    build_model,
    find_model,
    load_plain_pickle,
    load_weights,
)
from models import REGISTRY

NET = """\
import chainer
import chainer.functions as F
import chainer.links as L


class MLP(chainer.Chain):
    def __init__(self, n_units=4):
        super().__init__()
        with self.init_scope():
            self.l1 = L.Linear(3, n_units)
            self.l2 = L.Linear(n_units, 2)

    def forward(self, x):
        return self.l2(F.relu(self.l1(x)))


def small():
    return MLP(2)


def sized(n_units, n_out, scale=1):
    return MLP(n_units)


def nothing():
    pass


def broken():
    raise ValueError("first line\\nsecond line")


ready = MLP(5)
number = 7
"""


@pytest.fixture
def net(tmp_path):
    path = tmp_path / "my_nets.py"
    path.write_text(NET)
    return path


@pytest.fixture(autouse=True)
def same_imports(tmp_path):
    """Sees that the import path stays as it was; forgets the modules that a test wrote."""
    path = list(sys.path)
    yield
    assert sys.path == path
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


def message(error):
    """The text of an error, which must be one line."""
    text = str(error.value)
    assert text
    assert "\n" not in text
    return text


# --- find_model: names of the registry


def test_a_registered_name_is_found_with_what_the_registry_says():
    source = find_model("resnet20-he", REGISTRY)
    entry = REGISTRY["resnet20-he"]
    assert source.name == "resnet20-he"
    assert source.description == entry.description
    assert (source.input_shape, source.mean, source.std) == ((3, 32, 32), entry.mean, entry.std)
    assert source.build().count_params() == 272_474


@pytest.mark.parametrize("name", ["resnet20he", "ResNet20-HE", "resnt20-he"])
def test_an_unknown_name_gets_the_nearest_ones(name):
    with pytest.raises(UsageError) as error:
        find_model(name, REGISTRY)
    text = message(error)
    assert repr(name) in text
    assert "did you mean resnet20-he" in text
    assert "path/to/file.py:Callable" in text


@pytest.mark.parametrize("name", ["vgg", ""])
def test_a_name_like_no_other_gets_all_of_them(name):
    with pytest.raises(UsageError, match=", ".join(REGISTRY)):
        find_model(name, REGISTRY)


# --- find_model: the user's own code


def test_a_class_of_a_file(net):
    source = find_model(f"{net}:MLP", REGISTRY)
    assert source.name == "my_nets-MLP"
    assert source.description == f"MLP of {net}"
    assert (source.input_shape, source.mean, source.std) == (None, None, None)
    assert source.build().l1.W.shape == (4, 3)


def test_a_function_of_a_file(net):
    assert find_model(f"{net}:small", REGISTRY).build().l1.W.shape == (2, 3)


def test_a_link_of_a_file_is_taken_as_it_is(net):
    source = find_model(f"{net}:ready", REGISTRY)
    assert source.build().l1.W.shape == (5, 3)
    assert source.build() is source.build()


def test_an_installed_module():
    source = find_model("models.resnet_cifar:ResNetCIFAR", REGISTRY)
    assert source.name == "models.resnet_cifar-ResNetCIFAR"
    assert source.build().count_params() == 272_474


def test_a_module_of_the_current_folder(net, monkeypatch):
    monkeypatch.chdir(net.parent)
    assert find_model("my_nets:MLP", REGISTRY).build().l2.W.shape == (2, 4)


def test_a_relative_path_and_odd_letters_in_a_name(net, monkeypatch):
    net.rename(net.parent / "my nets!.py")
    monkeypatch.chdir(net.parent)
    source = find_model("my nets!.py:MLP", REGISTRY)
    assert source.name == "my_nets_-MLP"
    assert isinstance(source.build(), chainer.Chain)


def test_a_file_finds_its_neighbours_when_it_is_loaded_and_when_it_is_built(tmp_path):
    (tmp_path / "sizes_next_door.py").write_text("UNITS = 6\n")
    (tmp_path / "later_next_door.py").write_text("UNITS = 7\n")
    (tmp_path / "net.py").write_text(
        "import chainer.links as L, sizes_next_door\n"
        "def first():\n    return L.Linear(1, sizes_next_door.UNITS)\n"
        "def second():\n    import later_next_door\n    return L.Linear(1, later_next_door.UNITS)\n"
    )
    assert find_model(f"{tmp_path}/net.py:first", REGISTRY).build().W.shape == (6, 1)
    assert find_model(f"{tmp_path}/net.py:second", REGISTRY).build().W.shape == (7, 1)
    assert str(tmp_path) not in sys.path


def test_a_neighbour_goes_before_an_imported_module_but_does_not_replace_it(tmp_path):
    import models

    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "tiny.py").write_text("import chainer.links as L\nclass Tiny(L.Linear): pass\n")
    (tmp_path / "net.py").write_text(
        "from models.tiny import Tiny\ndef net():\n    return Tiny(1, 9)\n"
    )
    assert find_model(f"{tmp_path}/net.py:net", REGISTRY).build().W.shape == (9, 1)
    assert sys.modules["models"] is models
    assert "models.tiny" not in sys.modules
    assert find_model("resnet20", REGISTRY).build().count_params() == 272_474


def test_parts_of_a_neighbour_do_not_join_an_imported_package(tmp_path, monkeypatch):
    imported = ModuleType("next_door")
    monkeypatch.setitem(sys.modules, "next_door", imported)
    (tmp_path / "next_door").mkdir()
    (tmp_path / "next_door" / "__init__.py").write_text("")
    (tmp_path / "next_door" / "part.py").write_text("")
    (tmp_path / "net.py").write_text("import chainer, next_door.part\nnet = chainer.Chain\n")
    find_model(f"{tmp_path}/net.py:net", REGISTRY)
    assert sys.modules["next_door"] is imported
    assert "next_door.part" not in sys.modules


def test_a_neighbour_never_stands_in_for_the_standard_library_or_numpy(tmp_path):
    for name in ("numpy", "json", "chainer"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('not this one')\n")
    (tmp_path / "net.py").write_text("import json, numpy, chainer\nnet = chainer.Chain\n")
    assert isinstance(find_model(f"{tmp_path}/net.py:net", REGISTRY).build(), chainer.Chain)


def test_a_neighbour_named_as_an_installed_module_is_forgotten(tmp_path):
    (tmp_path / "matplotlib").mkdir()
    (tmp_path / "matplotlib" / "__init__.py").write_text("HERE = 1\n")
    (tmp_path / "net.py").write_text(
        "import chainer, matplotlib\nassert matplotlib.HERE\nnet = chainer.Chain\n"
    )
    before = sys.modules.get("matplotlib")
    find_model(f"{tmp_path}/net.py:net", REGISTRY)
    assert sys.modules.get("matplotlib") is before


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("{net}", "say which network of the file, as {net}:Callable"),
        ("{net}:MLPP", "did you mean MLP?"),
        ("{net}:Transformer", "it has the networks MLP, ready"),
        ("{net}:number", "number of {net} is an int"),
        ("{net}:chainer", "chainer of {net} is a module"),
        ("{net}:sized", "needs arguments (n_units, n_out): write a function"),
        ("{net}:two words", "your own network is package.module:Callable"),
        (":MLP", "your own network is package.module:Callable"),
        ("a-b:MLP", "your own network is package.module:Callable"),
        ("{net.parent}/none.py:MLP", "there is no file {net.parent}/none.py"),
        ("no_such_package.nets:MLP", "there is no module 'no_such_package'"),
        ("chainer.no_such_module:MLP", "there is no module 'chainer.no_such_module'"),
        ("chainer.datasets:Cat", "and no other network"),
    ],
)
def test_words_that_name_no_network(net, name, expected):
    with pytest.raises(UsageError) as error:
        find_model(name.format(net=net), REGISTRY)
    assert expected.format(net=net) in message(error)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import chainer\nclass Net(:\n    pass\n", "SyntaxError: invalid syntax ({path}, line 2)"),
        ("\n\nraise RuntimeError('a\\nb')\n", "RuntimeError: a b ({path}, line 3)"),
        ("import not_installed_at_all\n", "No module named 'not_installed_at_all' ({path}, line 1"),
        ("import sys\nsys.exit(3)\n", "SystemExit: 3 ({path}, line 2)"),
        ("assert False\n", "AssertionError ({path}, line 1)"),
    ],
)
@pytest.mark.parametrize("as_file", [True, False])
def test_code_that_does_not_import(tmp_path, monkeypatch, code, expected, as_file):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "bad_net.py"
    path.write_text(code)
    name = f"{path}:Net" if as_file else "bad_net:Net"
    with pytest.raises(ProfileError) as error:
        find_model(name, REGISTRY)
    assert error.value.exit_code == 1
    assert expected.format(path=path) in message(error)
    assert not [name for name in sys.modules if "bad_net" in name]


def test_a_null_byte_in_a_file(tmp_path):
    (tmp_path / "zero.py").write_bytes(b"x = 1\0\n")
    with pytest.raises(ProfileError, match="null bytes"):
        find_model(f"{tmp_path}/zero.py:Net", REGISTRY)


def test_a_function_that_gives_no_link(net):
    source = find_model(f"{net}:nothing", REGISTRY)
    with pytest.raises(ProfileError) as error:
        source.build()
    assert f"nothing of {net} gives None, not a chainer.Link" in message(error)


def test_a_function_that_fails(net):
    source = find_model(f"{net}:broken", REGISTRY)
    with pytest.raises(ProfileError) as error:
        source.build()
    text = message(error)
    assert f"building broken of {net} failed: ValueError: first line second line" in text
    assert f"({net}, line 30)" in text


# --- build_model


def values(model):
    return {name: parameter.array for name, parameter in model.namedparams()}


@pytest.mark.parametrize("own", [False, True])
def test_the_same_seed_gives_the_same_weights(net, own):
    source = find_model(f"{net}:MLP" if own else "resnet20", REGISTRY)
    first, again, other = (values(build_model(source, seed)) for seed in (1, 1, 2))
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert any(not np.array_equal(first[name], other[name]) for name in first)


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_a_seed_out_of_range(seed):
    with pytest.raises(UsageError, match=f"from 0 to 4294967295, not {seed}"):
        build_model(find_model("resnet20", REGISTRY), seed)


# --- load_weights


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


def test_weights_of_another_width_are_named_with_both_shapes(tmp_path, trained):
    path = tmp_path / "weights.npz"
    serializers.save_npz(str(path), trained)
    text = refused(Net(units=6), path)
    assert "does not fit this network" in text
    assert "bn/avg_mean is (4,) in the file, (6,) in the network" in text
    assert text.count("in the file") == 3
    # four arrays of bn, l1's W and b, l2's W; l2's b is as long in both
    assert text.endswith("and 4 more")


def test_both_shapes_of_a_matrix_are_named(tmp_path):
    path = tmp_path / "weights.npz"
    serializers.save_npz(str(path), L.Linear(3, 4, nobias=True))
    text = refused(L.Linear(5, 4, nobias=True), path)
    assert text.endswith(
        "does not fit this network: W is (4, 3) in the file, (4, 5) in the network"
    )


def test_missing_and_unexpected_weights_are_named(tmp_path, trained):
    path = tmp_path / "weights.npz"
    arrays = everything(trained)
    del arrays["l1/b"]
    arrays["l3/W"] = arrays["l2/W"]
    np.savez(path, **arrays)
    text = refused(Net(), path)
    assert "it has no l1/b" in text
    assert "the network has no l3/W" in text
    assert "more" not in text


def test_weights_of_another_kind_are_refused(tmp_path, trained):
    path = tmp_path / "weights.npz"
    np.savez(path, **{**everything(trained), "l1/W": np.zeros((4, 3), complex)})
    assert "l1/W is complex128 in the file, float32 in the network" in refused(Net(), path)


def test_a_part_that_does_not_fit_is_named(tmp_path, trained):
    path = tmp_path / "snapshot"
    write_classifier_snapshot(str(path), trained)
    assert "(updater/model:main/predictor) does not fit" in refused(Net(units=6), path)


@pytest.mark.parametrize("size", [None, 3])
def test_a_file_saved_before_the_first_call_holds_no_values(tmp_path, size):
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


def test_a_snapshot_without_a_main_model(tmp_path, trained):
    path = tmp_path / "weights.npz"
    np.savez(path, **{f"updater/model:gen/{k}": v for k, v in everything(trained).items()})
    assert "holds model:gen, but no model:main" in refused(Net(), path)


def test_the_state_of_an_optimizer_alone(tmp_path):
    path = tmp_path / "weights.npz"
    np.savez(path, **{"updater/iteration": np.array(3)})
    assert "holds the state of a training, but no network" in refused(Net(), path)


def test_files_that_are_no_npz_files(tmp_path):
    assert "there is no weights file" in refused(Net(), tmp_path / "none.npz")
    assert "is a folder" in refused(Net(), tmp_path)
    (tmp_path / "text.npz").write_text("hello")
    assert "is not an npz file" in refused(Net(), tmp_path / "text.npz")
    (tmp_path / "empty.npz").write_bytes(b"")
    assert "is not an npz file" in refused(Net(), tmp_path / "empty.npz")
    np.save(tmp_path / "array.npy", np.zeros(3))
    assert "is not an npz file" in refused(Net(), tmp_path / "array.npy")
    with zipfile.ZipFile(tmp_path / "net.pt", "w") as archive:
        archive.writestr("archive/data.pkl", b"")
    assert "is a zip file without arrays" in refused(Net(), tmp_path / "net.pt")


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
    assert f"l1/W is a Python object (it asks for {os.mkdir.__module__}.mkdir)" in text
    assert not trap.exists()
    # The trap works: reading the same file the ordinary way springs it.
    np.load(path, allow_pickle=True)["l1/W"]
    assert trap.exists()


def test_a_plain_object_where_an_array_should_be(tmp_path, trained):
    path = tmp_path / "weights.npz"
    np.savez(path, **{**everything(trained), "l1/W": np.array({"a": 1}, dtype=object)})
    assert "l1/W is a Python object in the file, not an array" in refused(Net(), path)


# --- load_plain_pickle


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_values_come_back(protocol):
    value = {
        "a": [1, 2.5, None, True],
        b"b": ("x", ()),
        "c": np.arange(6, dtype=">i2").reshape(2, 3),
    }
    back = load_plain_pickle(BytesIO(pickle.dumps(value, protocol)))
    assert back.keys() == value.keys()
    assert back["a"] == value["a"]
    assert back[b"b"] == value[b"b"]
    assert back["c"].dtype.newbyteorder("=") == np.int16  # NumPy may swap while it reads
    np.testing.assert_array_equal(back["c"], value["c"])


@pytest.mark.parametrize("value", [print, Path("x"), os.system, np.random.RandomState, complex])
def test_anything_else_is_refused(value):
    with pytest.raises(pickle.UnpicklingError, match="it asks for"):
        load_plain_pickle(BytesIO(pickle.dumps(value)))


def test_a_damaged_pickle():
    content = pickle.dumps({"a": np.arange(100)})
    for end in (0, 1, 10, len(content) // 2, len(content) - 1):
        with pytest.raises(pickle.UnpicklingError):
            load_plain_pickle(BytesIO(content[:end]))


def test_a_pickle_cannot_leave_anything_behind():
    # Hands {"x": 1} as the state of the function that stands for numpy's _reconstruct.
    name = b"cnumpy.core.multiarray\n_reconstruct\n"
    changed = load_plain_pickle(BytesIO(name + b"}Vx\nI1\nsb."))
    assert changed.x == 1
    assert not hasattr(load_plain_pickle(BytesIO(name + b".")), "x")


def forged(dtype, shape, data):
    """A pickle of an array whose parts do not go together."""

    class Forged:
        def __reduce__(self):
            reconstruct = np.empty(0).__reduce__()[0]
            return reconstruct, (np.ndarray, (0,), b"b"), (1, shape, dtype, False, data)

    return BytesIO(pickle.dumps(Forged()))


def test_a_forged_array_is_refused():
    np.testing.assert_array_equal(load_plain_pickle(forged(np.dtype("u1"), (2,), b"ab")), [97, 98])
    for dtype, shape, data in [
        (np.dtype("u1"), (3,), b"ab"),
        (np.dtype("u1"), (-1, -2), b"ab"),
        (np.dtype("f8"), (2**61,), b""),
        (np.dtype("O"), (1,), b"12345678"),
        (np.dtype("O"), (2,), [1]),
        (np.dtype("u1"), (2,), [1, 2]),
        (np.dtype([("a", "O")]), (1,), b"12345678"),
        (np.dtype("V8"), (1,), b"12345678"),
    ]:
        with pytest.raises(pickle.UnpicklingError):
            load_plain_pickle(forged(dtype, shape, data))


def test_the_fields_of_a_source_can_be_made_by_hand():
    source = ModelSource("n", "d", None, None, None, lambda: chainer.Chain())
    assert isinstance(build_model(source, 0), chainer.Chain)
