from __future__ import annotations

import io

import pandas as pd
import pytest
from hypothesis import given, settings

from chainer_profile.analyse.summaries import summarise
from chainer_profile.record.recording import Recording
from chainer_profile.report.columns import LINK_COLUMNS
from chainer_profile.report.tables import meanings
from tests.analyse.test_grouping import recordings
from tests.report.reading import links_csv as render

COLUMNS = list(meanings(LINK_COLUMNS))


@settings(max_examples=20)
@given(recordings())
def test_times_add_up_to_the_layers(recording: Recording) -> None:
    summary = summarise(recording)
    table = pd.read_csv(io.StringIO(render(summary)))
    layers_ms = pytest.approx(summary.totals.layers_s * 1e3, rel=1e-12)
    assert table["exclusive_ms"].sum() == layers_ms
    assert table["inclusive_ms"][table["depth"] == 0].sum() == layers_ms
    by_phase = [name for name in COLUMNS if name.endswith("_exclusive_ms")]
    assert table[by_phase].sum().sum() == layers_ms
    assert table["hot_layers"][table["depth"] == 0].sum() == len(summary.hotspots.indices)
    assert len(table) == len(summary.links)
