from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any, NamedTuple

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest
from chainer import serializers

from chainer_profile.engines.folded import optimize
from chainer_profile.engines.protocol import EngineError
from tests.engines.varied import Deciding, Residual, given, images, output, relative, vary


@pytest.fixture
def model() -> Any:
    return vary(Residual())


X = images(2, 3, 6, 6)


def test_it_is_of_the_network_s_class_with_its_links_and_parameters(model: Any) -> None:
    folded = optimize(model)
    assert isinstance(folded, Residual)
    assert type(folded).__name__ == "FoldedResidual"
    assert [path for path, _ in folded.namedlinks()] == [path for path, _ in model.namedlinks()]
    for (path, ours), (_, theirs) in zip(folded.namedparams(), model.namedparams(), strict=True):
        np.testing.assert_array_equal(ours.array, theirs.array, err_msg=path)
        assert ours.array is not theirs.array


def test_it_gives_what_the_network_gives(model: Any) -> None:
    folded = optimize(model)
    for x in (X, images(2, 3, 6, 6, seed=9), images(5, 3, 9, 7)):
        expected, got = output(model, x), output(folded, x)
        assert isinstance(got, chainer.Variable)
        assert relative(expected.array, got.array) < 1e-6


def test_no_chainer_function_runs_once_it_is_planned(model: Any) -> None:
    folded = optimize(model)
    output(folded, X)
    with chainer.function_hooks.TimerHook() as hook:
        output(folded, X)
    assert hook.call_history == []


def test_the_network_itself_is_left_as_it_was(model: Any) -> None:
    before = output(model, X).array
    output(optimize(model), X)
    assert type(model) is Residual
    np.testing.assert_array_equal(output(model, X).array, before)


def test_in_train_mode_it_is_the_network_s_own(model: Any) -> None:
    folded = optimize(model)
    output(folded, X)
    with chainer.using_config("train", True):
        first, second = model(X), folded(X)
    np.testing.assert_array_equal(first.array, second.array)
    second.grad = np.ones_like(second.array)
    second.backward()
    assert folded.conv1.W.grad is not None
    # The running averages have moved: they are folded anew.
    assert relative(output(model, X).array, output(folded, X).array) < 1e-6


def test_a_gradient_of_the_input_is_the_network_s_own(model: Any) -> None:
    folded = optimize(model)
    x = chainer.Variable(X)
    with chainer.using_config("train", False):
        y = folded(x)
        F.sum(y).backward()
    assert x.grad is not None


@pytest.mark.parametrize("into", ["folded", "plain"])
def test_serializers_read_each_other_s_files(model: Any, into: str, tmp_path: Path) -> None:
    source: Any = optimize(model) if into == "plain" else model
    target: Any = optimize(Residual()) if into == "folded" else Residual()
    output(target, X)  # planned with other weights
    serializers.save_npz(tmp_path / "weights.npz", source)
    serializers.load_npz(tmp_path / "weights.npz", target)
    assert relative(output(model, X).array, output(target, X).array) < 1e-6


def test_parameters_that_are_replaced_are_folded_anew(model: Any) -> None:
    folded = optimize(model)
    output(folded, X)
    for net in (model, folded):
        net.fc.b.array = net.fc.b.array + 1
    assert relative(output(model, X).array, output(folded, X).array) < 1e-6


def test_parameters_that_are_changed_in_place_are_folded_anew_when_told(model: Any) -> None:
    folded = optimize(model)
    before = output(folded, X).array
    folded.conv1.W.array *= 2
    folded.refold()
    assert relative(before, output(folded, X).array) > 1e-3
    model.conv1.W.array *= 2
    assert relative(output(model, X).array, output(folded, X).array) < 1e-6


@pytest.mark.parametrize("how", ["deepcopy", "pickle", "copy", "optimize"])
def test_copies_are_on_their_own(model: Any, how: str) -> None:
    folded = optimize(model)
    expected = output(folded, X).array
    ways = {
        "deepcopy": copy.deepcopy,
        "pickle": lambda net: pickle.loads(pickle.dumps(net)),
        "copy": lambda net: net.copy("copy"),
        "optimize": optimize,
    }
    copied = ways[how](folded)
    copied.fc.b.array[...] += 1
    copied.refold()
    assert relative(expected, output(copied, X).array) > 1e-3
    np.testing.assert_array_equal(output(folded, X).array, expected)
    assert type(copied) is type(folded)


class Pair(NamedTuple):
    first: Any
    second: Any


class Forms(chainer.Chain):
    def __init__(self, form: Any) -> None:
        super().__init__()
        self.form = form

    def forward(self, x: Any) -> Any:
        return self.form(F.relu(x), F.sigmoid(x))


@pytest.mark.parametrize(
    "form",
    [
        lambda a, b: (a, b),
        lambda a, b: [a, (b,)],
        lambda a, b: {"a": a, "b": [b]},
        Pair,
        lambda a, b: (a, b.array),
    ],
)
def test_outputs_have_the_network_s_form(form: Any) -> None:
    model = Forms(form)
    expected, got = output(model, X), output(optimize(model), X)

    def assert_alike(a: Any, b: Any) -> None:
        assert type(a) is type(b)
        if isinstance(a, dict):
            assert a.keys() == b.keys()
            a, b = a.values(), b.values()
        if isinstance(a, chainer.Variable):
            a, b = a.array, b.array
        if isinstance(a, np.ndarray):
            np.testing.assert_array_equal(a, b)
        else:
            for x, y in zip(a, b, strict=True):
                assert_alike(x, y)

    assert_alike(expected, got)


def test_calls_that_depend_on_the_data() -> None:
    with pytest.raises(EngineError, match="calls depend on its data: call 1 was"):
        output(optimize(Deciding()), np.array([[1, 2, 3, -4]], np.float32))


def test_a_linear_layer_that_learns_its_size_at_the_first_call() -> None:
    model = chainer.Sequential(L.Linear(None, 3), F.relu)
    folded = optimize(model)
    got = output(folded, X)
    assert relative(F.relu(folded[0](X)).array, got.array) < 1e-6


def test_few_plans_are_kept(model: Any) -> None:
    folded = optimize(model)
    for batch in range(1, 12):
        output(folded, images(batch, 3, 6, 6))
    assert len(folded._folded_plans) == 8


def test_every_kind_of_block_at_once() -> None:
    model, x = given("se-resnet9-fixup", batch=2)
    assert relative(output(model, x).array, output(optimize(model), x).array) < 1e-5
