"""Summary -> what the page's own script works on: tables and samples, as small plain JSON."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from chainer_profile.basics.units import NOT_KNOWN
from chainer_profile.report.columns import LAYER_COLUMNS, tree_columns
from chainer_profile.report.page.distributions import Distribution, blocks_of, distribution
from chainer_profile.report.rows import phases_of, tree_rows
from chainer_profile.report.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from chainer_profile.analyse.summary import Summary
    from chainer_profile.report.rows import LinkRow

#: Columns of the page's table of layers, where they say something, and what each is sorted by: a
#: column of ``Summary.layers``; empty for the text itself.
_SORTED_BY = {
    "index": "index",
    "path": "",
    "function": "",
    "phase": "",
    "median": "median_s",
    "share": "share",
    "verdict": "",
    "interval": "median_s",
    "mean": "mean_s",
    "p5": "p5_s",
    "p95": "p95_s",
    "std": "std_s",
    "calls": "calls",
    "output_shapes": "",
    "host": "host_s",
    "gap": "gap_s",
    "busy": "busy_s",
    "flops": "flops",
    "moved": "nbytes_moved",
    "intensity": "intensity",
    "gflops": "flops_per_s",
    "gbytes": "nbytes_per_s",
    "reached": "reached",
    "peak": "peak_nbytes",
    "workspace": "workspace_nbytes",
    "retained": "retained_nbytes",
}
#: Those that stay when the table is moved sideways.
_STAY = ("index", "path")
#: Those that name a layer.
_ALWAYS = ("index", "path", "function", "phase")
#: Those that fit on paper.
_PRINTED = (*_ALWAYS, "median", "interval", "share", "mean", "p95", "verdict")
#: Rank of what is not known: behind all others, in both directions.
UNKNOWN = 2**32 - 1
#: Links deeper than any.
_ALL_LEVELS = 10**9


def to_json(value: object) -> str:
    """JSON that can stand within a script element of a page, whatever its texts are."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def packed(array: NDArray[Any]) -> str:
    """The bytes of an array in base64, lowest byte first; the reader knows its type."""
    little = array.astype(array.dtype.newbyteorder("<"))
    return base64.b64encode(np.ascontiguousarray(little).tobytes()).decode("ascii")


def layer_table(summary: Summary) -> dict[str, Any]:
    """All layers: their columns, each with its cells and the rank of every cell."""
    layers = summary.layers.assign(
        index=summary.layers.index,
        nbytes_moved=summary.layers["nbytes_read"] + summary.layers["nbytes_written"],
    )
    rows = list(summary.layers.itertuples())
    several = len(phases_of(summary)) > 1
    keys = [key for key in _SORTED_BY if several or key != "phase"]
    columns = []
    for key in keys:
        column = LAYER_COLUMNS[key]
        cells = [printable(column.cell(row)) for row in rows]
        if key not in _ALWAYS and all(cell in ("", NOT_KNOWN) for cell in cells):
            continue
        by = _SORTED_BY[key]
        columns.append(
            {
                "key": key,
                "title": "peak memory" if key == "peak" else column.title,
                "meaning": column.meaning,
                "text": column.folds is not None or key in ("output_shapes",),
                "printed": key in _PRINTED,
                "stays": key in _STAY,
                "rank": packed(ranks(layers[by] if by else pd.Series(cells))),
                **_cells(cells),
            }
        )
    return {
        "count": len(rows),
        "columns": columns,
        "hot": [int(i) for i in summary.hotspots.indices],
    }


def _cells(cells: Sequence[str]) -> dict[str, Any]:
    """Texts, each of them once where many are the same."""
    words = list(dict.fromkeys(cells))
    if len(words) * 2 > len(cells) or len(words) > 65_535:
        return {"cells": list(cells)}
    place = {word: at for at, word in enumerate(words)}
    return {"words": words, "at": packed(np.array([place[cell] for cell in cells], np.uint16))}


def ranks(values: pd.Series[Any]) -> NDArray[np.uint32]:
    """The place of every value among the different ones, from 0; :data:`UNKNOWN` where missing."""
    codes, _ = pd.factorize(values, sort=True)
    found: NDArray[np.uint32] = np.where(codes < 0, UNKNOWN, codes).astype(np.uint32)
    return found


def link_table(summary: Summary) -> dict[str, Any] | None:
    """The tree of links in the order of a walk through it; None where there is no tree."""
    links, beside = tree_rows(summary, _ALL_LEVELS)
    if len(links) < 2:
        return None
    rows = [*links, *beside]
    columns = tree_columns(phases_of(summary), rows, indent=False)
    return {
        "count": len(rows),
        "columns": [
            {
                "title": column.title,
                "text": column.folds is not None,
                "cells": [
                    printable(_link_name(row) if column.name == "link" else column.cell(row))
                    for row in rows
                ],
            }
            for column in columns
        ],
        "depth": [row.depth for row in rows],
        "path": [row.path for row in rows],
        "share": [0.0 if row.share is None else round(row.share, 4) for row in rows],
        "hot": [at for at, row in enumerate(rows) if row.hot],
    }


def _link_name(row: LinkRow) -> str:
    return row.name or row.path


def samples(summary: Summary) -> dict[str, Any]:
    """The distributions to choose from: of whole trials, of the framework, and of every layer."""
    recording = summary.recording
    wholes: list[tuple[str, NDArray[np.int64]]] = []
    if len(recording.clean_ns):
        name = "clean trial, of all kinds" if recording.mixed else "clean trial"
        wholes.append((name, recording.clean_ns))
    if recording.trial_ns is not None:
        wholes.append(("profiled trial", recording.trial_ns))
        framework_ns = recording.trial_ns - recording.self_ns.sum(axis=1)
        wholes.append(("framework", framework_ns))
    count = len(wholes) + len(recording.layers)
    most = blocks_of(count)
    found = [distribution(times, most) for _, times in wholes]
    # Column by column: a copy of all samples would double the memory of a long run.
    found += [
        distribution(np.ascontiguousarray(recording.self_ns[:, index]), most)
        for index in range(len(recording.layers))
    ]
    # The layers' names are those in the table of layers.
    return {"names": [name for name, _ in wholes], "wholes": len(wholes), **_together(found)}


def _together(found: Sequence[Distribution]) -> dict[str, Any]:
    """Arrays one behind the other, and how many numbers each of them has."""
    ends = [[float(f"{value:.9g}") for value in (d.low, d.high, d.floor, d.ceiling)] for d in found]
    return {
        "unit": [d.unit for d in found],
        "ends": ends,
        "block": [d.block for d in found],
        "bins": [len(d.counts) for d in found],
        "blocks": [d.levels.shape[1] for d in found],
        "text": [_cells(sentences) for sentences in zip(*(d.text for d in found), strict=True)],
        "counts": packed(np.concatenate([d.counts for d in found])),
        "levels": packed(np.concatenate([d.levels.ravel() for d in found])),
    }
