"""Summary -> ``layers.csv`` and ``links.csv``."""

from __future__ import annotations

import pandas as pd

from chainer_profile.analyse.summary import Summary
from chainer_profile.report.columns import LAYER_COLUMNS, LINK_COLUMNS, link_frame
from chainer_profile.report.rows import framework_row, framework_time
from chainer_profile.report.tables import rows_of, to_csv


def layers_csv(summary: Summary) -> str:
    """Format a row for each layer and, last, the framework; their shares add up to 100 %."""
    return to_csv(LAYER_COLUMNS, [*rows_of(summary.layers), *framework_row(summary)])


def links_csv(summary: Summary) -> str:
    """Format a row for each link and, last, the framework.

    The shares of the rows at depth 0 add up to 100 %.
    """
    links = link_frame(summary.links)
    framework = framework_time(summary)
    if framework:
        fields = {
            "name": framework.name,
            "kind": "",
            "depth": 0,
            "inclusive_s": framework.seconds,
            "share": framework.share,
        }
        links = pd.concat([links, pd.DataFrame([fields], index=[framework.name])])
    return to_csv(LINK_COLUMNS, links)
