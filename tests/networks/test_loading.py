"""Networks are found by name and built."""

import importlib
import shutil
import sys

import chainer
import pytest

from chainer_profile.basics.errors import ProfileError, UsageError
from chainer_profile.networks.loading import find_model
from models import REGISTRY
from tests.refusing import refusal

NET = """\
import chainer
import chainer.links as L


class MLP(chainer.ChainList):
    def __init__(self, n_units=4):
        super().__init__(L.Linear(3, n_units), L.Linear(n_units, 2))


def small():
    return MLP(2)


def broken():
    raise ValueError("first line\\nsecond line")


ready = MLP(5)
"""


@pytest.fixture
def net(tmp_path):
    path = tmp_path / "my_nets.py"
    path.write_text(NET)
    return path


@pytest.fixture(autouse=True)
def same_imports(tmp_path):
    """Check that the import path does not change; remove modules that a test wrote."""
    path = list(sys.path)
    yield
    assert sys.path == path
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


def find(name, **more):
    return find_model(str(name), REGISTRY, **more)


def refused(name, error=UsageError, **more):
    """Return the one-line message about a name."""
    return refusal(lambda: find(name, **more).build(), error=error)


def test_networks_are_found_by_registered_name():
    source, entry = find("resnet20-he"), REGISTRY["resnet20-he"]
    assert (source.name, source.description) == ("resnet20-he", entry.description)
    assert (source.input_shape, source.mean, source.std) == ((3, 32, 32), entry.mean, entry.std)
    assert (source.classes, source.build().count_params()) == (10, 272_474)
    source = find("resnet20", classes=7)
    assert (source.classes, source.build().fc.W.shape) == (7, (7, 64))
    assert "did you mean resnet20-he" in refused("ResNet20-HE")
    assert "take a number of classes" in refused("nets:Net", classes=7)


def test_networks_are_found_in_files_and_modules(net, monkeypatch):
    source = find(f"{net}:MLP")
    assert (source.name, source.description) == ("my_nets-MLP", f"MLP of {net}")
    assert source.build()[0].W.shape == (4, 3)
    assert find(f"{net}:small").build()[0].W.shape == (2, 3)
    assert find(f"{net}:ready").build()[0].W.shape == (5, 3)
    # A module in the current folder; unusual characters in a name.
    monkeypatch.chdir(net.parent)
    assert find("my_nets:MLP").build()[1].W.shape == (2, 4)
    net.rename("my nets!.py")
    source = find("my nets!.py:MLP")
    assert source.name == "my_nets_-MLP"
    assert isinstance(source.build(), chainer.ChainList)


UNITS = "UNITS = 7\n"
#: Code of a network's file, and neighbouring modules.
NEIGHBOURS = [
    # A neighbour can be imported when the network is built.
    (
        "def net():\n    import later_next_door\n    return L.Linear(1, later_next_door.UNITS)\n",
        {"later_next_door.py": UNITS},
    ),
    # A neighbour precedes an imported module of the same name, without replacing it.
    ("from models.tiny import UNITS\n", {"models/__init__.py": "", "models/tiny.py": UNITS}),
    # A neighbour never replaces the standard library or NumPy.
    (
        f"import json, numpy, chainer\n{UNITS}",
        dict.fromkeys(("numpy.py", "json.py", "chainer.py"), "raise RuntimeError('not this')\n"),
    ),
]


def test_network_file_imports_neighbouring_modules(tmp_path, subtests):
    import models

    code_of_net = "import chainer.links as L\ndef net():\n    return L.Linear(1, UNITS)\n"
    for number, (code, files) in enumerate(NEIGHBOURS):
        with subtests.test(code):
            folder = tmp_path / str(number)
            for name, text in {**files, "net.py": code_of_net + code}.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text(text)
            assert find(f"{folder}/net.py:net").build().W.shape == (7, 1)
            assert sys.modules["models"] is models
            assert "models.tiny" not in sys.modules
    assert find("resnet20").build().count_params() == 272_474


#: Names of no network, and messages; tests/cli has more.
NO_NETWORKS = {
    "{net}:Transformer": "its networks are MLP, ready",
    "{net}:chainer": "chainer of {net} is a module",
    "chainer.no_such_module:MLP": "module 'chainer.no_such_module' is neither",
}
#: Code that cannot be imported, and messages.
NO_MODULES = {
    "import chainer\nclass Net(:\n    pass\n": "SyntaxError: invalid syntax ({path}, line 2)",
    "import sys\nsys.exit(3)\n": "SystemExit: 3 ({path}, line 2)",
}


def test_unknown_names_and_broken_modules_are_refused(net, monkeypatch):
    for name, expected in NO_NETWORKS.items():
        assert expected.format(net=net) in refused(name.format(net=net))
    message = f"broken of {net} failed: ValueError: first line second line ({net}, line 15)"
    assert message in refused(f"{net}:broken", ProfileError)
    monkeypatch.chdir(net.parent)
    path = net.with_name("bad_net.py")
    for code, expected in NO_MODULES.items():
        path.write_text(code)
        for name in (f"{path}:Net", "bad_net:Net"):
            assert expected.format(path=path) in refused(name, ProfileError)
            assert not [name for name in sys.modules if "bad_net" in name]
            shutil.rmtree(net.parent / "__pycache__", ignore_errors=True)
            importlib.invalidate_caches()
