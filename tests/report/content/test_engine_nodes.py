"""What became of Chainer's layers in an engine's nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chainer_profile.report.content.engine_nodes import (
    OWN_STEPS,
    fusion,
    fusion_lines,
    main_functions,
    node_rows,
)
from tests.engines.fake_engines import MISSING, make_run, recordings


def test_layers_before_and_nodes_after_add_up() -> None:
    found = recordings()
    rows = list(node_rows(make_run(), found["fast"], found["chainer"]))
    assert [row.before_s for row in rows] == pytest.approx([550e-6, 0, 430e-6, 20e-6])
    assert [row.after_s for row in rows] == pytest.approx([60e-6, 5e-6, 30e-6, 0])
    assert rows[0].layers == (
        "0_Convolution2DFunction /res2/0/conv1 + 1_FixedBatchNormalization /res2/0/bn1 + "
        "2_ReLU /res2/0"
    )
    assert [row.node for row in rows] == ["Fused n0", "Fused n1", "Fused n2", "no node"]
    whole = fusion(make_run(), found["fast"], found["chainer"])
    assert whole.before_s is not None
    assert sum(row.before_s or 0 for row in rows) == pytest.approx(whole.before_s)
    assert sum(row.after_s for row in rows) == pytest.approx(whole.after_s)


def test_a_layer_of_several_nodes_counts_once() -> None:
    found = recordings()
    first, *others = found["fast"].layers
    twice = replace(found["fast"], layers=(first, *(replace(o, covers=(0, 3)) for o in others)))
    before = [row.before_s for row in node_rows(make_run(), twice, found["chainer"])]
    assert before == pytest.approx([550e-6, 350e-6, 0, 100e-6])


def test_without_chainers_recording_the_layers_are_numbers() -> None:
    rows = list(node_rows(make_run(), recordings()["fast"], None))
    assert [row.layers for row in rows] == ["0, 1, 2", "", "3, 4", "5"]
    assert rows[0].before_s is None


def test_what_became_of_the_layers_in_one_line() -> None:
    assert fusion_lines(make_run(MISSING), recordings()) == [
        "fast: 6 layers became 3 nodes, and 1 of them nothing: 1.000 ms -> 95.00 us, and 5.000 us "
        "between the nodes"
    ]


def test_the_main_function_stands_for_a_node() -> None:
    found = recordings()
    names = main_functions(found["fast"], found["chainer"])
    assert names == ["Convolution2DFunction", OWN_STEPS, "Convolution2DFunction"]
    assert main_functions(found["fast"], None) == names
    assert main_functions(found["chainer"], found["chainer"])[1] == "FixedBatchNormalization"
