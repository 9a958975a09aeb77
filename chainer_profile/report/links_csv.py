"""Summary -> ``links.csv``: one row a link, with all digits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from chainer_profile.basics.units import format_exact_count, format_exact_ms, format_exact_percent
from chainer_profile.basics.words import BACKWARD, DATA, FORWARD, UPDATE
from chainer_profile.report.csv_file import safe, table_text

if TYPE_CHECKING:
    from chainer_profile.analyse.summary import Summary

#: Phases that have columns, in every file: so files of different runs can be compared.
_PHASES = (DATA, FORWARD, BACKWARD, UPDATE)

#: The columns and what they mean. Times are means over the profiled trials.
COLUMNS = {
    "path": "Path of the link; / is the network, and a path without a slash is no link, but what "
    "is outside of it: loss, cleargrads, optimizer, data",
    "kind": "Its class; empty where it is not known",
    "depth": "Levels below the network",
    "calls": "Calls of the link in a trial; 0 where its functions or parameters are used without "
    "calling it",
    "parameters": "Number of its parameters, with those of the links below; what several links "
    "share counts for the first alone",
    "inclusive_ms": "Time of the functions of the link and of all links below",
    "exclusive_ms": "Time of the functions that the link calls itself",
    **{
        f"{phase}_{kind}_ms": f"The {kind} time in the {phase} phase; empty where a trial has none"
        for phase in _PHASES
        for kind in ("inclusive", "exclusive")
    },
    "share_percent": "Inclusive part of the sum of all layers' means",
    "hot_layers": "Number of hot layers of the link and of all links below",
}


def render(summary: Summary) -> str:
    """The tree of links as CSV, every link before those below it; see :data:`COLUMNS`.

    The inclusive times at depth 0 add up to the layers' time, and so do all exclusive times.
    Numbers and names are written as in ``layers.csv``; what is not known is an empty cell.
    """
    table = summary.links
    rows = []
    for path, link in zip(table.index, table.to_dict("records"), strict=True):
        times = {
            name: format_exact_ms(link.get(name.replace("_ms", "_s"), float("nan")))
            for name in COLUMNS
            if name.endswith("_ms")
        }
        rows.append(
            {
                "path": safe(path),
                "kind": safe(link["kind"]),
                "depth": str(link["depth"]),
                "calls": _count(link["calls"]),
                "parameters": _count(link["parameters"]),
                **times,
                "share_percent": format_exact_percent(link["share"]),
                "hot_layers": str(link["hot"]),
            }
        )
    return table_text(COLUMNS, rows)


def _count(value: float) -> str:
    return "" if pd.isna(value) else format_exact_count(value)
