"""The finding about denormal numbers: arrays, cost and remedy."""

import ast
from dataclasses import replace

import numpy as np
import pytest

from chainer_profile.analyse.summaries import summarise
from chainer_profile.analyse.verdicts import DENORMAL
from chainer_profile.record.recording import Conditions, Denormals, Layer, Recording, Settings

WEIGHT = Denormals("/a/W", "/a", part=0.5, slowdown=69.4)
INPUTS = Denormals("the inputs of /b F", "/b", "F", "forward", 0.25, slowdown=30.0)
STATE = Denormals("the optimizer's v of /a/W", "/a", "", "update", 1.0, slowdown=200.0)
ROWS = (("/a", "Convolution2DFunction", "forward"), ("/b", "F", "forward"), ("/b", "G", "forward"))


def summary(*denormals, times_us=(700, 200, 100)):
    layers = tuple(Layer(index, *row, dtype="float32") for index, row in enumerate(ROWS))
    run = Recording(
        layers,
        np.tile(np.array(times_us) * 1000, (4, 1)),
        conditions=Conditions(denormals=denormals),
        settings=Settings(command="python profile.py", device="cpu"),
    )
    return summarise(run)


def finding(*denormals, **more):
    return next(
        (f for f in summary(*denormals, **more).findings if f.code == "denormal-numbers"), None
    )


def test_denormal_finding_names_arrays_cost_and_remedy():
    found = finding(INPUTS, WEIGHT)
    assert found.text == (
        "The network contains denormal numbers, which this processor computes slowly: in /a/W "
        "(50.0 % of it); the inputs of /b F (25.0 % of it). Layers with them take 90.0 % of the "
        "layers' time. With as many, a product of matrices takes 69.4 times as long as with zeros "
        "in their place."
    )
    assert "weight decay" in found.advice
    ast.parse(found.command)
    # Setting weights to zero does not change inputs.
    found = finding(INPUTS)
    assert "docs/reading.md" in found.advice
    assert not found.command


def test_layers_with_denormal_numbers_have_that_verdict():
    assert list(summary(INPUTS).layers["verdict"] == DENORMAL) == [False, True, False]
    assert list(summary(WEIGHT).layers["verdict"] == DENORMAL) == [True, False, False]
    assert not (summary(STATE).layers["verdict"] == DENORMAL).any()
    # No finding for layers that take little of the trial.
    assert finding(INPUTS, times_us=(900, 50, 50))
    assert not finding(INPUTS, times_us=(900, 49, 51))
    assert not finding(STATE)


@pytest.mark.parametrize("denormals", [(WEIGHT,), (INPUTS,), ()])
def test_no_change_is_advised_with_denormal_numbers(denormals):
    tried = [found.code for found in summary(*denormals).findings if found.changes]
    assert bool(tried) != bool(denormals)


def test_at_most_three_arrays_are_named():
    found = finding(*(replace(WEIGHT, name=f"/a/W{n}") for n in range(5)))
    assert "/a/W2 (50.0 % of it) and 2 more. Layers" in found.text


def test_denormals_survive_a_round_trip_through_a_file(tmp_path):
    run = summary(WEIGHT, INPUTS).recording
    run.save(tmp_path / "a.npz")
    assert Recording.load(tmp_path / "a.npz").conditions.denormals == (WEIGHT, INPUTS)
