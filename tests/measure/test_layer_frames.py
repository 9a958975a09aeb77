"""Layers as frames of the stack that a sampler sees."""

import traceback

import chainer.functions as F
import chainer.links as L
import pytest
from chainer import FunctionNode, _backprop_utils

import chainer_profile
from chainer_profile.measure import samplers
from chainer_profile.measure.layer_frames import FILE, layer_frames
from tests.nets import image, net


def test_each_call_and_its_backward_have_a_frame_of_their_layer():
    stacks = []

    def look():
        """Record the layers on the stack, outermost first."""
        stacks.append([frame.name for frame in traceback.extract_stack() if frame.filename == FILE])

    class Nested(FunctionNode):
        def forward(self, inputs):
            look()  # a nested call has no frame
            return (inputs[0] * 2,)

    class Looking(FunctionNode):
        def forward(self, inputs):
            return (Nested().apply(inputs)[0].array,)

        def backward(self, indexes, gys):
            look()
            return (gys[0] * 2,)

    inner = net(lambda self, x: Looking().apply((x,))[0])
    model = net(lambda self, x: self.inner(F.relu(self.fc(x))), fc=L.Linear(3, 2), inner=inner)
    before = FunctionNode.apply, _backprop_utils.backprop_step
    with pytest.raises(Exception, match="Invalid operation"), layer_frames(model):
        model(image(4, 5))
    with layer_frames(model):
        for _ in range(2):
            F.sum(model(image(4, 3))).backward()
        loss = F.sum(model(image(4, 3)))
    assert (FunctionNode.apply, _backprop_utils.backprop_step) == before
    forward, backward = ["2_Looking@/inner"], ["2_Looking@/inner backward"]
    assert [*([forward, backward] * 2), forward] == stacks
    layer = chainer_profile.profile(model, image(4, 3), trials=1).layers[2]
    assert [f"{layer.label}@{layer.path}"] == forward
    # There are no frames outside the context.
    stacks.clear()
    loss.backward()
    model(image(4, 3))
    assert stacks == [[], []]


@pytest.mark.skipif(samplers.find_py_spy() is None, reason="py-spy is not installed")
def test_py_spy_sees_layers():
    model, x = L.Convolution2D(3, 8, 3), image(8, 3, 32, 32)

    def run():
        with layer_frames(model):
            for _ in range(500):
                model(x)

    try:
        stacks = samplers._sample_by_py_spy(run, stopped=True)
    except chainer_profile.ProfileError as error:
        if "ermission" in str(error):
            pytest.skip("attaching is not allowed here")
        raise
    assert "0_Convolution2DFunction@/" in {
        frame.function for stack in stacks.samples for frame in stack
    }
