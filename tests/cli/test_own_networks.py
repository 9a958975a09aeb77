"""A user's own networks, in every command that accepts a network."""

import csv
from pathlib import Path

import chainer
import numpy as np
import pytest

from chainer_profile.cli.parsers import parser_of
from chainer_profile.engines.catalogue import ENGINES
from chainer_profile.measure import environment
from chainer_profile.report import page
from chainer_profile.runs import engines as run_folder
from tests import ROOT
from tests.command import Net, QuietMachine, main

needs_onnxruntime = pytest.mark.skipif(
    bool(ENGINES["onnxruntime"].why_unavailable()), reason="needs onnxruntime"
)
IDS = ("--model", "nets.py:LSTMOnIds", "--model-args", "50,8", "--input-shape", "6:int32:50")
MLP = ("--model", "nets.py:MLP", "--model-args", "20, n_out=3", "--input-shape", "784")
TWO = ("--model", "nets.py:Two", "--input-shape", "3", "--input-shape", "one:int32:5")
NETS = """

class Two(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.fc, self.embed = L.Linear(3, 2), L.EmbedID(5, 2)

    def forward(self, x, t):
        return F.relu(self.fc(x)) + self.embed(t)
"""


@pytest.fixture(autouse=True)
def nets(folder, monkeypatch):
    source = (ROOT / "tests/networks/old_networks.py").read_text()
    Path("nets.py").write_text(source + NETS)
    monkeypatch.setattr(page, "page", lambda *_: "page")
    monkeypatch.setattr(environment, "CpuWatch", QuietMachine)
    monkeypatch.setattr(run_folder, "write_engine_reports", lambda *_: [])


def engines_of(place):
    return {row["engine"]: row for row in csv.DictReader((place / "engines.csv").open())}


@pytest.mark.parametrize("network", [IDS, MLP, TWO], ids=lambda words: words[1])
def test_every_command_accepts_the_arguments_of_a_network(network, done, capsys):
    assert "n_vocab" not in done("summary", *network, "-b", "2")
    done(*network, "-b", "2", "-q", "--out", "run")
    assert main("engines", *network, "-b", "2", "--engines", "chainer-fast", "-o", "both") == 0
    assert engines_of(Path("both"))["chainer-fast"]["outputs"] == "right"
    capsys.readouterr()
    # The cases of a sweep are commands that profile.py accepts.
    assert main("sweep", *network, "--batchsize", "1,2", "--dry-run") == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]
    assert len(lines) == 2
    for word in ("advise", "profile", "export"):
        file = ["net.onnx"] if word == "export" else []
        args = parser_of(word).parse_args([*file, *network])
        assert args.model_args == (network[3] if "--model-args" in network else "")
        assert len(args.input_shape) == network.count("--input-shape")


def test_training_accepts_the_arguments_of_a_network(done):
    code = "def make(n, n_out): return MLP(n, n_out)\n"
    Path("mine.py").write_text(Path("nets.py").read_text() + code)
    network = ("--model", "mine.py:make", "--model-args", "5, n_out=10")
    done("train", *network, "-d", "synthetic:20", "-b", "10", "-e", "1", "-q", "--out", "out")
    assert Path("out/model.npz").is_file()


@needs_onnxruntime
def test_networks_with_integer_inputs_or_several_inputs_are_exported(done, fails):
    assert "wrote two.onnx" in done("export", "two.onnx", *TWO)
    assert "wrote mlp.onnx" in done("export", "mlp.onnx", *MLP)
    np.save("x.npy", np.ones((2, 784), np.float32))
    from_file = (*MLP[:4], "--input", "x.npy")
    assert "wrote batch.onnx" in done("export", "batch.onnx", *from_file)
    sequences = ("--model", "nets.py:Tagger", "--model-args", "7,8", "--input-shape", "2..9x7")
    text = "engines take arrays by position: give --input-shape without a name, and no sequences"
    assert fails("export", "tagger.onnx", *sequences, code=2) == text
    text = fails("export", "half.onnx", *TWO[:4], code=2)
    assert text.startswith("Two takes (x, t): missing a required argument: 't'; give an --input-sh")


@needs_onnxruntime
def test_exported_file_runs_with_its_own_weights(done, fails):
    model = Net()
    model.fc.W.array[...] = 7
    chainer.serializers.save_npz("model.npz", model)
    weights = ("--weights", "model.npz")
    done("export", "model.onnx", *weights)
    words = ("engines", "--engines", "onnxruntime", "--load-engine", "model.onnx", "-q")
    assert main(*words, *weights, "--out", "right") == 0
    message = fails(*words, "--out", "other")
    assert message == (
        "no engine but chainer ran: onnxruntime: the weights in model.onnx are not the network's "
        "(the first to differ is /fc/W): give --weights, or --seed, as for export"
    )
    assert engines_of(Path("other"))["onnxruntime"]["outputs"] == ""


# -- names that NumPy removed

OLD = """
import chainer
import chainer.links as L
import numpy as np

SCALE = np.float(0.5)

class Net(chainer.Chain):
    def __init__(self, n=3, n_out=2):
        super().__init__()
        self.scale = np.float(0.5)
        with self.init_scope():
            self.l = L.Linear(None, n_out)

    def forward(self, x):
        return self.l(x) * self.scale * np.int(1)
"""
NOTE = (
    "names that NumPy removed were restored. Write float for np.float (old.py:6, gone since "
    "NumPy 1.24)"
)


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("summary",),
        ("engines", "--engines", "chainer"),
        ("export", "net.onnx"),
        ("sweep", "--dry-run"),
        ("train", "-d", "synthetic:20", "-b", "10", "-e", "1"),
    ],
    ids=lambda words: " ".join(words[:1]) or "profile",
)
def test_networks_can_use_names_that_numpy_removed(words, capsys):
    if words[:1] == ("export",) and ENGINES["onnxruntime"].why_unavailable():
        pytest.skip("needs onnxruntime")
    Path("old.py").write_text(OLD)
    network = ("--model", "old.py:Net", "--model-args", "n_out=10")
    shape = () if words[:1] == ("train",) else ("--input-shape", "4")
    assert main(*words, *network, *shape) == 0
    assert not hasattr(np, "float")
    err = capsys.readouterr().err
    assert err.rsplit(".py: ", 1)[0].endswith(("profile", "train")) or NOTE in err
    assert NOTE in err
    if words[:1] not in (("summary",), ("sweep",)):
        out = ("--force",) if words[:1] == ("export",) else ("--out", "again")
        assert main(*words, *network, *shape, "-q", *out) == 0
        assert capsys.readouterr().err == ""
