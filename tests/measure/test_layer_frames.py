"""Layers as frames: the stack that a sampler would see."""

import shutil
import subprocess
import sys
import traceback

import chainer.functions as F
import chainer.links as L
import pytest
from chainer import FunctionNode, _backprop_utils

import chainer_profile
from chainer_profile.measure.layer_frames import FILE, layer_frames
from tests import ROOT
from tests.nets import image, net


def stack():
    """The layers on the stack, outermost first."""
    return [frame.name for frame in traceback.extract_stack() if frame.filename == FILE]


@pytest.fixture
def seen():
    """The stacks that were seen; afterwards all is as it was."""
    before = FunctionNode.apply, _backprop_utils.backprop_step
    yield []
    assert (FunctionNode.apply, _backprop_utils.backprop_step) == before


@pytest.fixture
def model(seen):
    """A network with a function that looks at its stack, and whose backward does."""

    class Looking(FunctionNode):
        def forward(self, inputs):
            seen.append(stack())
            return (inputs[0] * 2,)

        def backward(self, indexes, gys):
            seen.append(stack())
            return (gys[0] * 2,)

    inner = net(lambda self, x: Looking().apply((x,))[0])
    return net(lambda self, x: self.inner(F.relu(self.fc(x))), fc=L.Linear(3, 2), inner=inner)


def test_every_call_runs_below_its_layer(model, seen):
    with pytest.raises(Exception, match="Invalid operation"), layer_frames(model):
        model(image(4, 5))
    with layer_frames(model):
        for _ in range(2):
            F.sum(model(image(4, 3))).backward()
        loss = F.sum(model(image(4, 3)))
    forward, backward = ["2_Looking@/inner"], ["2_Looking@/inner backward"]
    assert [*([forward, backward] * 2), forward] == seen
    layer = chainer_profile.profile(model, image(4, 3), trials=1).layers[2]
    assert [f"{layer.label}@{layer.path}"] == forward
    # Behind it nothing is seen.
    seen.clear()
    loss.backward()
    model(image(4, 3))
    assert seen == [[], []]


PROGRAM = """
import time
import chainer_profile, chainer.links as L, numpy as np
model, x = L.Convolution2D(3, 8, 3), np.zeros((8, 3, 32, 32), "f")
with chainer_profile.layer_frames(model):
    end = time.monotonic() + 1
    while time.monotonic() < end:
        model(x)
"""


@pytest.mark.skipif(shutil.which("py-spy") is None, reason="py-spy is not installed")
def test_py_spy_sees_layers(tmp_path):
    out = tmp_path / "stacks.txt"
    sampler = f"py-spy record --nonblocking -f raw -r 200 -o {out} --"
    command = [*sampler.split(), sys.executable, "-c", PROGRAM]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if "ermission" in ran.stderr:
        pytest.skip("attaching is not allowed here")
    assert "0_Convolution2DFunction@/ (<layers>" in out.read_text(), ran.stderr
