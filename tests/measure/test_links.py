"""Paths of links and parameters, also after the program replaces them."""

import copy
import gc
from collections import Counter

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest

from chainer_profile import profiling
from chainer_profile.measure.links import Links
from chainer_profile.record.recording import LinkCalls
from tests.nets import MLP, net

X = np.ones((2, 3), np.float32)


def rows(recording, phase):
    return {
        (layer.path, layer.function): recording.calls[:, layer.index].tolist()
        for layer in recording.layers
        if layer.phase == phase
    }


def test_parameters_of_a_new_link_have_its_path():
    """The number of links stays the same."""
    links = Links([("/first", first := MLP())])
    links.update_parameters()
    assert links.path_of_parameter(first.fc1.W) == "/first/fc1"
    del first
    gc.collect()
    second = MLP()
    links.add_unknown_link(second, links.outside)
    links.update_parameters()
    assert links.path_of_parameter(second.fc2.b) == "/MLP/fc2"
    assert links.parameters[id(second.fc1.W.array)][0] == "/MLP/fc1"
    assert len(links.parameters) == 4
    assert links.path_of_parameter(chainer.Parameter(0.0, (1,))) == "/"


def test_replaced_parameter_belongs_to_its_link():
    model, block = net(lambda self, x: F.linear(x, self.fc.W), fc=L.Linear(3, 3)), profiling()
    for _ in range(3):
        with block:
            model(X)
        model.fc.W = chainer.Parameter(np.ones((3, 3), np.float32))
    assert rows(block.recording(), "forward") == {("/model/fc", "LinearFunction"): [1, 1, 1]}


@pytest.mark.parametrize("keep_old", [False, True])
def test_update_of_a_replaced_parameter_belongs_to_its_link(keep_old):
    model, block, old_parameters = MLP(), profiling(), []
    for _ in range(3):
        optimizer = chainer.optimizers.SGD().setup(model)
        with block:
            optimizer.update(lambda: F.sum(model(X)))
        old_parameters += [model.fc1.W] * keep_old
        model.fc1.W = chainer.Parameter(np.ones((4, 3), np.float32))
    updates = rows(block.recording(), "update")
    assert updates == {(f"/model/{name}", "SGD"): [2, 2, 2] for name in ("fc1", "fc2")}


def test_copied_network_has_the_links_of_the_original():
    links = Links([("", original := MLP())])
    replica = copy.deepcopy(original)
    links.update_roots([("", replica)])
    calls = Counter({"/": 4, "/fc1": 4, "/fc2": 2})
    assert links.link_calls(calls, trials=2) == (
        LinkCalls("/", "MLP", 2, 0),
        LinkCalls("/fc1", "Linear", 2, 16),
        LinkCalls("/fc2", "Linear", 1, 10),
    )
