"""Finding a network and building it."""

import sys
from types import ModuleType

import numpy as np
import pytest

import chainer_profile  # noqa: F401  (lets Chainer import on current NumPy)

# isort: split
import chainer

from chainer_profile.basics.errors import ProfileError, UsageError
from chainer_profile.networks.loading import build_model, find_model
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


def test_a_number_of_classes_takes_the_place_of_the_networks_own():
    source = find_model("resnet20", REGISTRY, classes=7)
    assert source.classes == 7
    assert source.build().fc.W.shape == (7, 64)
    assert find_model("resnet20", REGISTRY).classes == 10


@pytest.mark.parametrize("name", ["se-resnet9-fixup", "nets:Net"])
def test_classes_where_there_are_none_to_choose(name):
    with pytest.raises(UsageError, match="classes"):
        find_model(name, REGISTRY, classes=7)


# --- find_model: the user's own code


def test_what_a_file_has(net):
    source = find_model(f"{net}:MLP", REGISTRY)
    assert source.name == "my_nets-MLP"
    assert source.description == f"MLP of {net}"
    assert (source.input_shape, source.mean, source.std) == (None, None, None)
    assert source.build().l1.W.shape == (4, 3)
    assert find_model(f"{net}:small", REGISTRY).build().l1.W.shape == (2, 3)
    link = find_model(f"{net}:ready", REGISTRY)
    assert link.build().l1.W.shape == (5, 3)
    assert link.build() is link.build()


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
        ("{net}:sized", "takes (n_units, n_out), and missing a required argument"),
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
        ("x = 1\0\n", "null bytes"),
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


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nothing", "nothing of {net} gives None, not a chainer.Link"),
        ("broken", "broken of {net} failed: ValueError: first line second line ({net}, line 30)"),
    ],
)
def test_a_function_that_gives_no_link(net, name, expected):
    source = find_model(f"{net}:{name}", REGISTRY)
    with pytest.raises(ProfileError) as error:
        source.build()
    assert expected.format(net=net) in message(error)


# --- build_model


def values(model):
    return {name: parameter.array for name, parameter in model.namedparams()}


def test_the_same_seed_gives_the_same_weights(net):
    source = find_model(f"{net}:MLP", REGISTRY)
    first, again, other = (values(build_model(source, seed)) for seed in (1, 1, 2))
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert any(not np.array_equal(first[name], other[name]) for name in first)


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_a_seed_out_of_range(seed):
    with pytest.raises(UsageError, match=f"from 0 to 4294967295, not {seed}"):
        build_model(find_model("resnet20", REGISTRY), seed)
