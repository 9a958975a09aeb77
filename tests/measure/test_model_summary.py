"""A network's summary: rows, totals, memory, and networks out of the ordinary."""

from __future__ import annotations

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pandas as pd
import pytest

import chainer_profile
from chainer_profile import ProfileError, UsageError, profile
from chainer_profile.record.recording import digest_of
from chainer_profile.report.content.network import COLUMNS
from chainer_profile.report.views import model_text
from models.registry import REGISTRY
from tests.nets import net

ADDED_UP = (
    "parameters",
    "trainable",
    "persistent",
    "macs",
    "flops",
    "nbytes_read",
    "nbytes_written",
)


class Odd(chainer.FunctionNode):
    """A function that no formula knows, with outputs of two types."""

    def forward(self, inputs):
        return np.ascontiguousarray(inputs[0] * 2), inputs[0].astype(np.int8)


class Mixed(chainer.Chain):
    """Convolution and batch normalisation called twice, a view, a function without formula."""

    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.conv = L.Convolution2D(2, 2, 3, pad=1, nobias=True)
            self.bn = L.BatchNormalization(2)
            self.fc = L.Linear(None, 3)

    def forward(self, x):
        for _ in range(2):
            x = self.bn(self.conv(x))
        x, _ = Odd().apply((x,))
        return self.fc(F.reshape(x, (len(x), -1)))


class Nested(chainer.FunctionNode):
    """Calls another function and hands its output on."""

    def forward(self, inputs):
        return (F.relu(inputs[0]).array,)


def of(forward, shape=(1, 2), dtype="float32", **links):
    """Summary of a chain of these links with this forward."""
    return chainer_profile.summary(net(forward, **links), shape, dtype)


@pytest.fixture(scope="module")
def mixed():
    return chainer_profile.summary(Mixed(), (4, 2, 5, 5))


def test_a_row_is_a_layer(mixed):
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
    # Once for each link, at its first call; fc got its shape in the pass itself.
    assert table["parameters"].tolist() == [36, 4, 0, 0, 0, 0, 153]
    assert table["persistent"].tolist() == [0, 4, 0, 0, 0, 0, 0]
    # Zeros of the padding are multiplied, too.
    macs = 4 * 2 * 5 * 5 * 2 * 9
    assert table["macs"].tolist() == [macs, 0, macs, 0, pd.NA, 0, 4 * 3 * 50]
    assert table["nbytes_output"].tolist() == [800, 800, 800, 800, 1000, 0, 48]


def test_totals_of_known_figures(mixed):
    assert (mixed.parameters, mixed.trainable, mixed.persistent) == (193, 193, 4)
    assert mixed.macs == 2 * 3600 + 600
    assert mixed.without_formula == {"Odd": 1}
    assert mixed.input_nbytes == 4 * 2 * 5 * 5 * 4
    assert mixed.parameter_nbytes == 193 * 4
    assert mixed.persistent_nbytes == 4 * 4
    assert mixed.forward_nbytes == 4 * 800 + 800 + 200 + 48


@pytest.mark.parametrize("name", ["mixed", "resnet20-he"])
def test_by_link_is_by_layer_added_up(name, mixed):
    found = mixed
    if name != "mixed":
        entry = REGISTRY[name]
        found = chainer_profile.summary(entry.build(), (1, *entry.input_shape))
    for depth in (0, 1, 2, 99):
        links = found.by_link(depth)
        for column in ADDED_UP:
            total = getattr(found, column)
            assert int(links[column].sum()) == int(found.table[column].sum()) == total
        assert links["layers"].sum() == len(found.table)
        assert links["without_formula"].sum() == sum(found.without_formula.values())
        assert all(path.count("/") <= depth for path in links.index if path != "/")


def test_links_come_before_those_below_them_and_keep_their_own_calls():
    def inner(self, x):
        return F.relu(self.fc(x))

    def outer(self, x):
        return F.relu(self.b(self.a(F.relu(x))))

    parts = {name: net(inner, fc=L.Linear(2, 2)) for name in "ab"}
    links = of(outer, **parts).by_link(2)
    assert links["layers"].to_dict() == {"/": 2, "/a": 1, "/a/fc": 1, "/b": 1, "/b/fc": 1}
    assert list(links.index) == ["/", "/a", "/a/fc", "/b", "/b/fc"]
    assert of(outer, **parts).by_link(1)["layers"].to_dict() == {"/": 2, "/a": 2, "/b": 2}
    assert links.loc["/a/fc", "kind"] == "Linear"


def test_a_link_without_a_formula_holds_what_is_known(mixed):
    links = mixed.by_link(1)
    assert links.loc["/", "flops"] == 0  # of the view; Odd is missing
    assert links.loc["/", "without_formula"] == 1
    assert of(lambda self, x: Odd().apply((x,))[0]).by_link(0)["flops"].isna().tolist() == [True]


@pytest.mark.parametrize(
    ("name", "parameters", "giga_macs"),
    [
        ("resnet18", 11_689_512, 1.814),
        ("resnet50", 25_557_032, 4.089),
    ],
)
def test_published_figures(name, parameters, giga_macs):
    model = REGISTRY[name].build()
    found = chainer_profile.summary(model, (1, 3, 224, 224))
    assert found.parameters == parameters == model.count_params()
    assert round(found.macs / 1e9, 3) == giga_macs
    assert found.without_formula == {}
    assert found.parameter_nbytes == 4 * parameters


def test_work_grows_with_the_batch_and_parameters_do_not(mixed):
    twice = chainer_profile.summary(Mixed(), (8, 2, 5, 5))
    assert (twice.macs, twice.parameters) == (2 * mixed.macs, mixed.parameters)
    assert twice.forward_nbytes == 2 * mixed.forward_nbytes


def test_text_and_name(mixed):
    assert str(mixed) == model_text(mixed) == repr(mixed)
    assert "Convolution2DFunction" in str(mixed)
    assert mixed.name == "Mixed"
    assert chainer_profile.summary(Mixed(), (1, 2, 5, 5), name="mine").name == "mine"


# -- parameters


def test_frozen_parameters_are_not_trainable():
    model = net(lambda self, x: self.b(self.a(x)), a=L.Linear(2, 3), b=L.Linear(3, 2))
    chainer.optimizers.SGD().setup(model)
    model.a.disable_update()
    found = chainer_profile.summary(model, (1, 2))
    assert (found.parameters, found.trainable) == (17, 8)
    assert found.table["trainable"].tolist() == [0, 8]


def test_what_is_shared_counts_once():
    shared = L.Linear(2, 2)
    tied = L.Linear(2, 2, nobias=True)
    tied.W = shared.W
    model = net(lambda self, x: self.c(self.b(self.a(x))), a=shared, b=shared, c=tied)
    found = chainer_profile.summary(model, (1, 2))
    assert (found.parameters, found.parameter_nbytes) == (6, 24)
    assert found.table["parameters"].tolist() == [6, 0, 0]
    # As a run counts them.
    recording = profile(model, np.ones((1, 2), np.float32), trials=2, warmups=0, memory=False)
    links = chainer_profile.summarise(recording).links
    assert digest_of(recording).parameters == links.loc["/", "parameters"] == 6
    assert links.loc[["/a", "/c"], "parameters"].tolist() == [6, 0]


def test_links_that_are_not_called_come_last():
    found = of(lambda self, x: self.a(x), a=L.Linear(2, 2), aux=L.BatchNormalization(2))
    assert found.table["path"].tolist() == ["/a", "/aux"]
    assert found.table["function"].tolist() == ["LinearFunction", ""]
    assert found.table["parameters"].tolist() == [6, 4]
    assert found.table["persistent"].tolist() == [0, 4]
    assert found.by_link(1)["layers"].tolist() == [1, 0]
    assert found.by_link(0)["output_shapes"].tolist() == [((1, 2),)]
    assert found.without_formula == {}


def test_parameters_that_have_no_shape_yet_are_none():
    found = of(lambda self, x: self.a(x), a=L.Linear(2, 2), aux=L.Linear(None, 3))
    assert found.parameters == 6 + 3  # the bias of aux


def test_a_network_that_takes_gradients_in_its_forward():
    def forward(self, x):
        x = chainer.Variable(x)
        # Its gradients are added up, and what its backward calls is no layer.
        y = F.sum(self.a(F.relu(x) + x * x))
        return F.sum(chainer.grad([y], [x])[0] ** 2)

    found = of(forward, (1, 2), a=L.Linear(2, 2))
    table = found.table
    outputs = dict(zip(table["function"], table["nbytes_output"], strict=True))
    assert outputs["gradient_accumulation"] == outputs["ReLU"] == 0  # the last ReLU is a backward
    assert table["nbytes_output"].tolist()[:5] == [8, 8, 8, 8, 4]
    assert (table["function"].iloc[-2], outputs["PowVarConst"], outputs["Sum"]) == (
        "PowVarConst",
        8,
        4,
    )
    assert table["nbytes_output"].sum() == found.forward_nbytes == 4 * 8 + 4 + 8 + 4


# -- memory


def test_what_is_made_within_a_function_takes_no_memory_of_its_own():
    found = of(lambda self, x: F.relu(Nested().apply((x,))[0]), (5, 2))
    assert found.table["function"].tolist() == ["Nested", "ReLU", "ReLU"]
    assert found.table["nbytes_output"].tolist() == [40, 0, 40]


def test_an_array_that_is_copied_is_no_view():
    # A reshape of a transposed array copies it.
    found = of(lambda self, x: F.reshape(F.transpose(x), (-1,)), (3, 2))
    assert found.table["nbytes_output"].tolist() == [0, 24]


def test_the_pass_leaves_no_trace():
    model = Mixed()
    model(np.zeros((1, 2, 5, 5), np.float32))
    before = [array.copy() for array in (*(p.array for p in model.params()), model.bn.avg_mean)]
    chainer_profile.summary(model, (4, 2, 5, 5))
    after = [*(p.array for p in model.params()), model.bn.avg_mean]
    assert all(np.array_equal(*pair) for pair in zip(before, after, strict=True))
    assert chainer.get_function_hooks() == {}
    assert chainer.config.train


# -- out of the ordinary


def test_a_network_that_calls_nothing():
    found = of(lambda self, x: x)
    assert (len(found.table), found.parameters, found.flops, found.input_nbytes) == (0, 0, 0, 8)
    assert [found.table.index.name, *found.table] == list(COLUMNS["layers"])
    assert len(found.by_link(1)) == 0
    assert "no function" in str(found)


def test_arrays_without_elements():
    found = of(lambda self, x: F.relu(self.a(x)), (0, 2), a=L.Linear(2, 2))
    assert (found.macs, found.flops, found.forward_nbytes, found.parameters) == (0, 0, 0, 6)
    assert found.table["output_shapes"].tolist() == [((0, 2),), ((0, 2),)]


def test_indices_are_zeros():
    seen = []

    def forward(self, x):
        seen.append(x)
        return self.e(x)

    found = of(forward, (2, 5), "int32", e=L.EmbedID(10, 4))
    assert seen[0].dtype == np.int32
    assert not seen[0].any()
    assert (found.parameters, found.input_nbytes, found.input_dtypes) == (40, 40, ("int32",))
    assert found.table["output_shapes"].tolist() == [((2, 5, 4),)]


def test_several_inputs():
    found = of(lambda self, x, i: self.e(i) + x, [(5, 4), (5,)], ("float32", "int32"),
               e=L.EmbedID(3, 4))  # fmt: skip
    assert found.input_shapes == ((5, 4), (5,))
    assert found.input_nbytes == 80 + 20


def test_a_failing_network_is_one_line():
    with pytest.raises(
        ProfileError, match=r"fails with an input of 1x3, in .*Linear at /a"
    ) as error:
        of(lambda self, x: self.a(x), (1, 3), a=L.Linear(2, 2))
    assert "\n" not in str(error.value)


def test_wrong_arguments():
    for shape in (5, "3x4", (1, -2), (1, 2.0), [(1, 2), 3], None):
        with pytest.raises(UsageError, match="not a shape: "):
            of(lambda self, x: x, shape)
    with pytest.raises(UsageError, match=r"is a chainer\.Link or a function, not a int"):
        chainer_profile.summary(3, (1, 2))
    with pytest.raises(UsageError, match="unknown data type 'floaty'"):
        of(lambda self, x: x, (1, 2), "floaty")
    with pytest.raises(UsageError, match="takes no complex64"):
        of(lambda self, x: x, (1, 2), "complex64")
    with pytest.raises(UsageError, match="2 data types are given, for 1 input"):
        of(lambda self, x: x, (1, 2), ["float32", "int32"])
    with pytest.raises(ProfileError, match="does not fit into memory"):
        of(lambda self, x: x, (10**9, 10**9))
