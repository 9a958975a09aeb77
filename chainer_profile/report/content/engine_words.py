"""Words for the recording of another engine than Chainer: its nodes, and what passes between."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chainer_profile.basics.units import NOT_KNOWN
from chainer_profile.report.tables import Column, columns, listed
from chainer_profile.report.text import printable

if TYPE_CHECKING:
    from chainer_profile.analyse.summary import Summary
    from chainer_profile.record.recording import Settings


def engine_text(settings: Settings) -> str:
    """The engine with its version, and its precision: ``onnxruntime 1.31.1 in fp32``."""
    precision = f" in {printable(settings.precision)}" if settings.precision else ""
    return f"{printable(settings.engine)}{precision}"


def between(summary: Summary) -> str:
    """What time of a trial that no row has is called."""
    return "runtime overhead" if summary.recording.settings.engine else "framework"


def node_columns(summary: Summary) -> list[Column]:
    """Columns of a table of nodes; its rows are those of ``Summary.layers``."""
    layers = summary.recording.layers
    return listed(
        columns(
            """
index Index | # | plain
node | | text 40
covers | Chainer's layers | text 40
number | | count
median | median ms | ms
""",
            node=lambda row: layers[row.Index].node,
            covers=lambda row: _indices(layers[row.Index].covers),
            number=lambda row: len(layers[row.Index].covers),
        )
    )


def _indices(covers: tuple[int, ...]) -> str:
    """Indices with runs of them shortened: ``3 to 5, 9``."""
    runs: list[list[int]] = []
    for index in covers:
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    texts = (str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)
    return ", ".join(texts) or NOT_KNOWN
