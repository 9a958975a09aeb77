"""The runs of the history -> their table, and the same with all digits."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from chainer_profile.basics.units import format_count
from chainer_profile.report.tables import Table, columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chainer_profile.record.digest import Run
    from chainer_profile.report.document import Block

_PROFILED = "*"


def _commit(commit: str) -> str:
    name, _, changed = commit.partition("-")
    return f"{name[:7]}+" if name and changed else name[:7]


#: The columns, of a :class:`.Run`.
COLUMNS = columns(
    """
when digest.started | | text? 16 | When the run began (UTC)
model digest.settings.model | | text? 12 | Name of the network
device digest.settings.device | | text 6 | cpu, gpu:0 and so on
batch digest.settings.batchsize | | count | Inputs per trial
phase digest.settings.phase | !3 | text 7 | What a trial is: forward, forward-backward or train
dtype digest.settings.dtype | | text | Data type of parameters and input
input_shape digest.settings.input_shape | | shape | Shape of the input, batch included
commit digest.commit | !2 | text? 12 | Commit of the repository that the run was started in
latency digest.median_s | latency ms | ms | Median of the trials
trials_kind kind | | text | clean (unprofiled), or profiled if there were no unprofiled ones
fps digest.fps | FPS !4 | number | Inputs a second, batch over mean
hot_layer digest.hot_layer | hot layer !1 | text 12 | Label of the slowest layer
hot_path digest.hot_path | | text | Its path
hot_share digest.hot_share | | percent | Its part of the layers' time
trials digest.trials | | count | Number of profiled trials
ended digest.ended | | text | complete, or why the run ended early
processor digest.processor | | text | Processor, or GPU
folder name | | text 12 | Folder of the run below the reports: its name
command digest.settings.command | | text | The command line
""",
    kind=lambda run: "clean" if run.digest.clean else "profiled",
)
_READ = [
    replace(COLUMNS["when"], value=lambda run: run.digest.started[:16].replace("T", " ")),
    *(COLUMNS[key] for key in ("model", "device", "batch", "phase")),
    replace(COLUMNS["commit"], value=lambda run: _commit(run.digest.commit)),
    replace(COLUMNS["latency"], mark=lambda run, shown: shown + _PROFILED * (not run.digest.clean)),
    *(COLUMNS[key] for key in ("fps", "hot_layer", "folder")),
]


def overview(runs: Sequence[Run], hidden: int = 0) -> list[Block]:
    """The table of the runs; so many more are not shown."""
    legend = []
    if any(not run.digest.clean for run in runs):
        legend.append(("", f"{_PROFILED} of profiled trials: there were no unprofiled ones."))
    if hidden:
        legend.append(("", f"{format_count(hidden)} more are not shown (--limit 0 shows all)."))
    return [Table(_READ, runs, "The runs", legend=legend)]
