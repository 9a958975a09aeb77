"""What a trial of a notebook's cell runs."""

from __future__ import annotations

from typing import Any

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest

from chainer_profile.cli.notebook import Cell, FirstRun
from chainer_profile.measure.loop import networks, optimizers


class Net(chainer.Chain):
    """Two linear layers and a ReLU."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.first = L.Linear(4, 8)
            self.second = L.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        return self.second(F.relu(self.first(x)))


def test_links_of_other_networks_and_ipythons_names_are_no_networks() -> None:
    model, other = Net(), Net()
    found = networks({"_": other, "inner": model.first, "model": model, "again": model, "k": 3})
    assert found == [("/model", model)]
    assert networks({"inner": model.first, "_1": model}) == [("/inner", model.first)]


def test_one_optimizer_for_a_parameter() -> None:
    model = Net()
    first, last = (chainer.optimizers.SGD().setup(model) for _ in range(2))
    variables = {"a": first, "again": first, "b": last, "idle": chainer.optimizers.SGD()}
    assert optimizers(variables, ()) == [last]
    assert optimizers(variables, ("a",)) == [first]
    part = chainer.optimizers.SGD().setup(model.first)
    other = chainer.optimizers.SGD().setup(Net())
    assert optimizers({"a": last, "p": part, "o": other}, ("a",)) == [last, other]


def test_the_first_run_sees_what_the_cell_does() -> None:
    names = {"model": Net(), "x": np.ones((2, 4), np.float32)}
    first = FirstRun(compile("y = model(x)", "cell", "exec"), names)
    assert (first.calls, first.called, first.train_mode) == (3, ["Net"], True)
    assert first.device == chainer.get_device("@numpy")
    assert [given.arrays for given in first.given] == [(names["x"],)]
    assert names["y"].shape == (2, 3)


def test_what_a_cell_prints_and_raises_in_a_trial(capsys: Any) -> None:
    code, names = compile("print('seen'); n += 1; 1 / (n - 2)", "cell", "exec"), {"n": 0}
    FirstRun(code, names)
    assert capsys.readouterr().out == "seen\n"
    cell = Cell(code, names)
    with cell.configured(), pytest.raises(ZeroDivisionError) as error:
        cell()
    assert cell.error is error.value
    assert capsys.readouterr().out == ""


def test_the_parts_of_an_update_are_timed_at_their_links() -> None:
    model = Net()
    names = {"model": model, "opt": chainer.optimizers.SGD().setup(model.first)}
    model.cleargrads()
    cell = Cell(compile("opt.update()", "cell", "exec"), names)
    entered: list[Any] = []
    with cell.timed(entered.append, lambda: None):
        cell()
    assert [(mark.phase, mark.path) for mark in entered] == [
        ("update", ""),
        *[("update", "/model/first")] * 2,
    ]
    assert cell.optimizers == [names["opt"]]
