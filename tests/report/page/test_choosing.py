"""The page of ranks: a bar for each, and the layers of each to choose from."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from benchmarks.ranks import training
from chainer_profile.ranks.merging import merge
from chainer_profile.report.page import render_ranks
from tests.report.documents import NAMES, merged_ranks
from tests.report.page.reading import Read
from tests.report.page.test_boxes import boxes_of


def data(page: str) -> dict[str, object]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])  # type: ignore[no-any-return]


def test_the_data_are_the_layers_of_every_rank() -> None:
    ranks = merge(training(3, 30, 5, planted_ms={(2, 1): 10.0}))
    found = data(render_ranks(ranks))
    medians = np.median(ranks.self_ns, axis=1) * 1e-6
    assert found["here"] == np.round(medians, 4).tolist()
    assert found["hot"] == [[2, 1]]
    assert found["ranks"] == ["rank 0", "rank 1", "rank 2"]
    others = np.array(found["others"], float)
    communication = [row.index for row in ranks.layers if row.phase == "communication"]
    assert np.isnan(others[:, communication]).all()
    assert others[:, ranks.computing] == pytest.approx(ranks.judged.elsewhere_s * 1e3, abs=1e-4)


def test_a_bar_is_the_iteration_of_its_rank() -> None:
    ranks = merge(training(3, 30, 5, planted_ms={(2, 1): 10.0}))
    whole = np.median(ranks.iteration_ns, axis=1)
    for at in range(3):
        name, *boxes = [box for box in boxes_of(render_ranks(ranks)) if box.row == at]
        assert (name.said, name.width) == (f"rank {at}", 10)
        assert [box.said.split(":")[0] for box in boxes[:4]] == [
            f"rank {at}, {name}" for name in ("forward", "backward", "waiting", "moving")
        ]
        length = sum(box.width for box in boxes)
        assert length == pytest.approx(90 * whole[at] / whole.max(), abs=1)


def test_of_many_ranks_the_ends_have_bars() -> None:
    ranks = merge(training(40, 11, 4, planted_ms={(33, 0): 50.0}))
    page = render_ranks(ranks)
    boxes = boxes_of(page)
    assert len({box.row for box in boxes}) == 16
    assert boxes[1].said.startswith("rank 33, forward")
    assert "The 8 ranks of 40 that compute longest" in page


def test_names_are_text() -> None:
    page = render_ranks(merged_ranks(NAMES))
    assert "<script>alert" not in page
    kinds = [tag for tag, _ in Read(page).tags]
    assert kinds.count("option") == 4
