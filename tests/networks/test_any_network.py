"""Networks of old programs are profiled by one command each."""

import re
from pathlib import Path

import chainer
import numpy as np

from chainer_profile.__main__ import main as run_main
from chainer_profile.basics.errors import UsageError
from chainer_profile.networks.loading import check_arguments
from chainer_profile.record.recording import Recording
from tests import ROOT
from tests.refusing import refusal

NETS = Path(__file__).with_name("old_networks.py")
FEW = ("--trials", "2", "--clean-trials", "1", "-w", "0", "--skip", "machine,memory")

#: Command of each network, from docs/running.md.
ARGUMENTS = dict(re.findall(r"`\$NETS:(\w+) (.*?)`", (ROOT / "docs" / "running.md").read_text()))
#: A function of each network, and its number of calls.
CALLS = {
    "MLP": ("LinearFunction", 3),
    "classifier": ("SoftmaxCrossEntropy", 1),
    "LSTMOnIds": ("EmbedIDFunction", 6),
    "Tagger": ("TransposeSequence", 2),
    "Siamese": ("Contrastive", 1),
    "Seq2seq": ("EmbedIDFunction", 2),
    "ResNet50": ("Convolution2DFunction", 53),
}


def run(out, arguments):
    """Profile a network with these arguments; return the exit status."""
    name, *rest = arguments.split()
    return run_main(["--model", f"{NETS}:{name}", *rest, *FEW, "-o", str(out), "--format", "none"])


def recorded(out, arguments):
    assert run(out, arguments + " -q") == 0
    return Recording.load(out / "recording.npz")


def test_each_old_network_is_profiled_by_one_command(tmp_path, subtests):
    assert ARGUMENTS.keys() == CALLS.keys()
    for name, arguments in ARGUMENTS.items():
        with subtests.test(name):
            recording = recorded(tmp_path / name, f"{name} {arguments}")
            function, count = CALLS[name]
            assert [layer.function for layer in recording.layers].count(function) == count
            assert recording.settings.batchsize == int(arguments.partition("-b ")[2] or "1")
            # Layers have links, and times add up.
            assert any(layer.path != "/" for layer in recording.layers)
            assert (recording.trial_ns >= recording.self_ns.sum(axis=1)).all()


def test_network_that_returns_its_loss_is_trained(tmp_path):
    recording = recorded(tmp_path, f"classifier {ARGUMENTS['classifier']} --phase train")
    assert recording.settings.loss == "output"
    assert {"forward", "backward", "update"} <= {layer.phase for layer in recording.layers}


def test_inputs_are_loaded_from_array_files(tmp_path):
    x, t = np.ones((3, 784), np.float32), np.zeros(3, np.int32)
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "both.npz", x, t)
    np.savez(tmp_path / "named.npz", x=x)
    for file, arguments, description in (
        ("x.npy", "MLP --model-args 5", "array x.npy"),
        ("both.npz", "classifier", "arrays of both.npz, 2 arguments"),
        ("named.npz", "MLP --model-args 5", "arrays of named.npz"),
    ):
        settings = recorded(tmp_path / file[:-4], f"{arguments} --input {tmp_path / file}").settings
        assert (settings.input, settings.input_shape) == (description, (3, 784))
        assert settings.batchsize == 3


#: Unsuitable arguments, and messages about them.
UNSUITABLE = [
    ("MLP --model-args 1,2,3 --input-shape 784", "too many positional arguments"),
    ("MLP --model-args open('x') --input-shape 784", "open('x')\": give literals"),
    ("ResNet50 --input-shape 3x64x64", "--input-shape SHAPE --input-shape one:int32:1000"),
    (
        "MLP --model-args 5 --input-shape 784 --input-shape one:int32:5",
        "too many positional arguments",
    ),
    ("MLP --model-args 5 --input-shape 784:int8:1000", "int8 is -128 to 127, not 0 to 999"),
    ("MLP --model-args 5 --input-shape 9..5", "a sequence has 1 step or more"),
    ("MLP --model-args 5 --input-shape 784:floaty", "floaty is not a data type: choose float16, "),
    ("MLP --model-args n_units=5,n_units=6 --input-shape 784", "n_units=6': give literals"),
    ("Tagger --model-args 5,5 --input-shape xs=5 --input-shape xs=6", "xs= is given twice"),
    ("MLP --model-args 5 --input nothing.npz", "there is no file nothing.npz"),
    ("MLP --model-args 5 --input x.npy --input-shape 784", "has its own shapes"),
]


def test_unsuitable_arguments_are_refused_in_one_line(tmp_path, capsys, subtests):
    for arguments, expected in UNSUITABLE:
        with subtests.test(arguments):
            assert run(tmp_path, arguments) == (1 if "nothing.npz" in arguments else 2)
            error = capsys.readouterr().err
            assert error.count("\n") == 1
            assert expected in error
    empty = type("Net", (chainer.Chain,), {"forward": lambda self: None})()
    message = refusal(check_arguments, empty, (np.zeros(3),), {}, error=UsageError)
    assert message == "Net takes no argument, but its forward must take the input"
    # Classifier accepts any arguments, and fails later.
    assert run(tmp_path, "classifier --input-shape 784") != 0
