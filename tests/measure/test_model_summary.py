"""Summaries of networks: rows, totals and memory, also of unusual networks."""

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pandas as pd
import pytest

import chainer_profile
from chainer_profile import UsageError
from chainer_profile.report.content.network import COLUMNS
from chainer_profile.report.views import model_text
from tests.nets import net
from tests.refusing import arrays_of, assert_same, refusal


class Odd(chainer.FunctionNode):
    """A function without a cost formula, with outputs of two data types."""

    def forward(self, inputs):
        return np.ascontiguousarray(inputs[0] * 2), inputs[0].astype(np.int8)


def mixed_net():
    """Make a network with layers called twice, a view and a function without a formula."""

    def forward(self, x):
        for _ in range(2):
            x = self.bn(self.conv(x))
        x, _ = Odd().apply((x,))
        return self.fc(F.reshape(x, (len(x), -1)))

    conv = L.Convolution2D(2, 2, 3, pad=1, nobias=True)
    return net(forward, conv=conv, bn=L.BatchNormalization(2), fc=L.Linear(None, 3))


def summary_of(forward, shape=(1, 2), dtype="float32", **links):
    """Summary of a chain with this forward and these links."""
    return chainer_profile.summary(net(forward, **links), shape, dtype)


@pytest.fixture(scope="module")
def mixed():
    return chainer_profile.summary(mixed_net(), (4, 2, 5, 5))


def test_each_layer_has_a_row(mixed):
    table = mixed.table
    assert [table.index.name, *table] == list(COLUMNS["layers"])
    links = mixed.by_link(1)
    assert [links.index.name, *links] == list(COLUMNS["links"])
    assert list(zip(table["path"], table["function"], table["output_shapes"], strict=True)) == [
        ("/conv", "Convolution2DFunction", ((4, 2, 5, 5),)),
        ("/bn", "FixedBatchNormalization", ((4, 2, 5, 5),)),
        ("/conv", "Convolution2DFunction", ((4, 2, 5, 5),)),
        ("/bn", "FixedBatchNormalization", ((4, 2, 5, 5),)),
        ("/", "Odd", ((4, 2, 5, 5), (4, 2, 5, 5))),
        ("/", "Reshape", ((4, 50),)),
        ("/fc", "LinearFunction", ((4, 3),)),
    ]
    # Parameters count at the first call of a link; the pass itself initializes fc.
    assert table["parameters"].tolist() == [36, 4, 0, 0, 0, 0, 153]
    assert table["persistent"].tolist() == [0, 4, 0, 0, 0, 0, 0]
    # Padding counts as well.
    macs = 4 * 2 * 5 * 5 * 2 * 9
    assert table["macs"].tolist() == [macs, 0, macs, 0, pd.NA, 0, 4 * 3 * 50]
    assert table["nbytes_output"].tolist() == [800, 800, 800, 800, 1000, 0, 48]


def test_work_but_not_parameters_grows_with_the_batch(mixed):
    for times, summary in (
        (1, mixed),
        (2, chainer_profile.summary(mixed_net(), (8, 2, 5, 5), name="mine")),
    ):
        assert (summary.parameters, summary.trainable, summary.persistent) == (193, 193, 4)
        assert (summary.parameter_nbytes, summary.persistent_nbytes) == (193 * 4, 4 * 4)
        assert summary.without_formula == {"Odd": 1}
        assert summary.macs == times * (2 * 3600 + 600)
        assert summary.input_nbytes == times * 4 * 2 * 5 * 5 * 4
        assert summary.forward_nbytes == times * (4 * 800 + 800 + 200 + 48)
        assert summary.name == ("Net", "mine")[times - 1]
    assert str(mixed) == model_text(mixed)


def test_by_link_is_the_sum_of_layers(mixed):
    def inner(self, x):
        return F.relu(self.fc(x))

    def outer(self, x):
        return F.relu(self.b(self.a(F.relu(x))))

    nested = summary_of(outer, **{name: net(inner, fc=L.Linear(2, 2)) for name in "ab"})
    for summary in (mixed, nested):
        for depth in (0, 1, 2, 99):
            links = summary.by_link(depth)
            for column in ("parameters", "persistent", "macs", "flops", "nbytes_read"):
                total = getattr(summary, column)
                assert int(links[column].sum()) == int(summary.table[column].sum()) == total
            assert links["layers"].sum() == len(summary.table)
            assert links["without_formula"].sum() == sum(summary.without_formula.values())
    # The sum of a link omits functions without a formula: here the view is left.
    links = mixed.by_link(1)
    assert (links.loc["/", "flops"], links.loc["/", "without_formula"]) == (0, 1)
    assert summary_of(lambda self, x: Odd().apply((x,))[0]).by_link(0)["flops"].isna().tolist() == [
        True
    ]
    # A link comes before its children, and has only its own calls.
    layers = {"/": 2, "/a": 1, "/a/fc": 1, "/b": 1, "/b/fc": 1}
    assert list(nested.by_link(2)["layers"].items()) == list(layers.items())
    assert nested.by_link(1)["layers"].to_dict() == {"/": 2, "/a": 2, "/b": 2}


def test_frozen_parameters_are_not_trainable_and_shared_parameters_count_once():
    model = net(lambda self, x: self.b(self.a(x)), a=L.Linear(2, 3), b=L.Linear(3, 2))
    chainer.optimizers.SGD().setup(model)
    model.a.disable_update()
    summary = chainer_profile.summary(model, (1, 2))
    assert (summary.parameters, summary.trainable) == (17, 8)
    assert summary.table["trainable"].tolist() == [0, 8]
    shared, tied = L.Linear(2, 2), L.Linear(2, 2, nobias=True)
    tied.W = shared.W
    model = net(lambda self, x: self.c(self.b(self.a(x))), a=shared, b=shared, c=tied)
    summary = chainer_profile.summary(model, (1, 2))
    assert (summary.parameters, summary.parameter_nbytes) == (6, 24)
    assert summary.table["parameters"].tolist() == [6, 0, 0]


def test_summary_changes_no_array_and_leaves_no_hook():
    model = mixed_net()
    model(np.zeros((1, 2, 5, 5), np.float32))
    before = arrays_of(model)
    chainer_profile.summary(model, (4, 2, 5, 5))
    assert_same(arrays_of(model), before)
    assert not chainer.get_function_hooks()


@pytest.mark.parametrize(
    ("shape", "dtype", "message"),
    [
        *((shape, "float32", "not a shape: ") for shape in (5, "3x4", (1, -2), (1, 2.0), None)),
        ([(1, 2), 3], "float32", "not a shape: "),
        ((1, 2), "floaty", "unknown data type 'floaty'"),
        ((1, 2), "complex64", "an input cannot be complex64"),
        ((1, 2), ["float32", "int32"], "2 data types given for 1 input"),
    ],
)
def test_summary_refuses_wrong_shapes_and_types(shape, dtype, message):
    assert refusal(summary_of, F.relu, shape, dtype, error=UsageError).startswith(message)


def test_summary_reports_inputs_that_do_not_fit():
    def forward(self, x):
        return self.a(x)

    for shape, message in (
        ((10**9, 10**9), "does not fit into memory"),
        ((1, 3), "fails with an input of 1x3, in Linear at /a"),
    ):
        assert message in refusal(summary_of, forward, shape, a=L.Linear(2, 2))
