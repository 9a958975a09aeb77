"""Layers as frames: what a sampler would see of the stack."""

import shutil
import subprocess
import sys
import threading

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest
from chainer import FunctionNode, _backprop_utils

import chainer_profile
from chainer_profile.measure.layer_frames import FILE, layer_frames
from tests import ROOT
from tests.nets import image, net

SEEN = []


def stack():
    """The layers on the stack, outermost first."""
    frame = sys._getframe(1)
    names = []
    while frame is not None:
        if frame.f_code.co_filename == FILE:
            names.append(frame.f_code.co_name)
        frame = frame.f_back
    return names[::-1]


class Looking(chainer.FunctionNode):
    """A function that looks at its stack, and whose backward calls another."""

    def forward(self, inputs):
        SEEN.append(stack())
        return (inputs[0] * 2,)

    def backward(self, indexes, gys):
        SEEN.append(stack())
        return (gys[0] * 2,)


def looking():
    inner = net(lambda self, x: Looking().apply((x,))[0])
    return net(lambda self, x: self.inner(F.relu(self.fc(x))), fc=L.Linear(3, 2), inner=inner)


@pytest.fixture(autouse=True)
def _forget():
    SEEN.clear()
    before = FunctionNode.apply, _backprop_utils.backprop_step
    yield
    assert (FunctionNode.apply, _backprop_utils.backprop_step) == before


def test_every_call_runs_below_its_layer():
    model = looking()
    with pytest.raises(Exception, match="Invalid operation"), layer_frames(model):
        model(image(4, 5))
    with layer_frames(model):
        for _ in range(2):
            F.sum(model(image(4, 3))).backward()
        loss = F.sum(model(image(4, 3)))
    forward, backward = ["2_Looking@/inner"], ["2_Looking@/inner backward"]
    assert [*([forward, backward] * 2), forward] == SEEN
    layer = chainer_profile.profile(model, image(4, 3), trials=1).layers[2]
    assert [f"{layer.label}@{layer.path}"] == forward
    # Behind it nothing is seen.
    SEEN.clear()
    loss.backward()
    model(image(4, 3))
    assert SEEN == [[], []]


def test_other_threads_are_left_alone():
    model = looking()
    with layer_frames(model):
        thread = threading.Thread(target=lambda: Looking().apply((np.ones(2, np.float32),)))
        thread.start()
        thread.join()
        model(image(4, 3))
    assert SEEN == [[], ["2_Looking@/inner"]]


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
