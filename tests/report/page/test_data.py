import base64
import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile import summarise
from chainer_profile.record.recording import Layer
from chainer_profile.report.columns import LAYER_COLUMNS
from chainer_profile.report.page import data
from tests.conftest import make_recording, make_training
from tests.report import working
from tests.report.devicing import launching
from tests.report.page.reading import cells, column, ranks


@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_json_cannot_end_a_script(value):
    text = data.to_json(value)
    assert json.loads(text) == value
    assert not set(text) & set("<>&")


def test_json_has_no_nan():
    with pytest.raises(ValueError, match="Out of range"):
        data.to_json([float("nan")])


@given(st.lists(st.one_of(st.none(), st.floats(-1e9, 1e9)), min_size=1))
def test_ranks_sort_as_the_values_do(values):
    found = data.ranks(pd.Series(values, dtype=float))
    known = [(rank, value) for rank, value in zip(found, values, strict=True) if value is not None]
    assert all(
        rank == data.UNKNOWN for rank, value in zip(found, values, strict=True) if value is None
    )
    ordered = [value for _, value in sorted(known, key=lambda pair: pair[0])]
    assert ordered == sorted(ordered)
    assert {rank for rank, _ in known} == set(range(len({value for _, value in known})))


def test_cells_are_those_of_the_other_tables():
    summary = working.training()
    table = data.layer_table(summary)
    rows = list(summary.layers.itertuples())
    assert table["count"] == len(rows)
    assert table["hot"] == summary.hotspots.indices
    for found in table["columns"]:
        cell = LAYER_COLUMNS[found["key"]].cell
        assert cells(found) == [cell(row) for row in rows]
        assert found["meaning"]
        assert found["stays"] == (found["key"] in ("index", "path"))
    mean = ranks(column(table, "mean"))
    assert (
        np.argsort(mean, kind="stable").tolist()
        == summary.layers["mean_s"].argsort(kind="stable").tolist()
    )
    # The last layer has no formula.
    assert ranks(column(table, "flops"))[-1] == data.UNKNOWN


def test_columns_that_say_nothing_are_not_there():
    def keys(summary):
        return {found["key"] for found in data.layer_table(summary)["columns"]}

    forward = keys(summarise(make_recording()))
    assert not forward & {"phase", "host", "gap", "busy", "flops", "verdict", "peak"}
    assert keys(working.training()) >= {"phase", "flops", "verdict", "peak"}
    assert keys(launching()) >= {"host", "gap", "busy"}
    assert "interval" not in keys(summarise(make_recording(n_trials=1)))


def test_tree_of_links():
    summary = summarise(make_training())
    table = data.link_table(summary)
    names = table["columns"][0]["cells"]
    assert names[:6] == ["/", "conv", "res", "0", "conv", "bn"]
    assert table["depth"][:6] == [0, 1, 1, 2, 3, 3]
    assert table["path"][5] == "/res/0/bn"
    assert names[-2:] == ["framework", "profiled trial"]
    assert all(len(found["cells"]) == table["count"] for found in table["columns"])
    assert table["share"][0] == pytest.approx(float(summary.links.loc["/", "share"]), abs=1e-4)


def test_no_tree_of_one_link():
    recording = make_recording(1, layers=(Layer(0, "/", "ReLU"),))
    assert data.link_table(summarise(recording)) is None


def test_samples_of_trials_and_layers():
    summary = working.training()
    found = data.samples(summary)
    assert found["names"] == ["clean trial", "profiled trial", "framework"]
    count = found["wholes"] + len(summary.layers)
    for name in ("unit", "ends", "block", "bins", "blocks"):
        assert len(found[name]) == count
    assert all(len(cells(sentences)) == count for sentences in found["text"])
    # Every trial is in the histogram of every row.
    counts = np.frombuffer(base64.b64decode(found["counts"]), "<u4")
    assert len(counts) == sum(found["bins"])
    assert counts[found["bins"][0] :].sum() == 40 * (count - 1)
    levels = np.frombuffer(base64.b64decode(found["levels"]), np.uint8)
    assert len(levels) == 3 * sum(found["blocks"])
    alone = data.samples(summarise(make_recording(trial_ns=None, start_ns=None, n_clean=0)))
    assert (alone["names"], alone["wholes"]) == ([], 0)
