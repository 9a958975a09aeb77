"""The layers added up: by function, link, block or shape, by phase, and as the tree of links."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from chainer_profile.basics.describe import NS
from chainer_profile.basics.paths import depth_first, links_to
from chainer_profile.basics.units import format_shapes
from chainer_profile.basics.words import GROUPS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chainer_profile.record.recording import Layer, Recording

#: Name of the framework time that belongs to no phase, or of which no phase is known.
OUTSIDE = "outside"


def group(layers: pd.DataFrame, recording: Recording, by: str) -> pd.DataFrame:
    """The layers added up by something, slowest group first.

    Args:
        layers: ``Summary.layers``.
        recording: The recording that they come from.
        by: One of :data:`~.words.GROUPS`: ``function`` (its name), ``link`` (its
            path), ``block`` (see :func:`block_of`) or ``shape`` (function and input shapes; a
            backward goes with the call that it goes back through).

    Returns:
        One row a group, indexed by its name. Columns: ``calls`` in a trial (of the forward pass
        where the group has any), ``total_s`` per trial, ``mean_s`` per call, ``share`` of the
        layers' time, ``hot`` (number of hot layers), and ``<phase>_s`` for every phase.
    """
    if by not in GROUPS:
        raise ValueError(f"layers are grouped by {', '.join(GROUPS)}, not by {by!r}")
    names = pd.Series(group_names(recording.layers, by), index=layers.index, dtype=object)
    table = layers.groupby(names, sort=False).agg(
        calls=("calls", "sum"),
        total_s=("mean_s", "sum"),
        share=("share", "sum"),
        hot=("hot", "sum"),
    )
    forward = layers[layers["phase"] == "forward"]
    table["calls"] = (
        forward.groupby(names, sort=False)["calls"]
        .sum()
        .reindex(table.index)
        .fillna(table["calls"])
        .astype(int)
    )
    table.insert(2, "mean_s", table["total_s"] / table["calls"])
    for phase in layers["phase"].unique():
        rows = layers[layers["phase"] == phase]
        times = rows.groupby(names, sort=False)["mean_s"].sum()
        table[f"{phase}_s"] = times.reindex(table.index).fillna(0.0)
    table.index.name = by
    return table.sort_values("total_s", ascending=False, kind="stable")


def group_names(layers: Sequence[Layer], by: str) -> list[str]:
    """The group of every layer."""
    if by == "function":
        return [layer.function for layer in layers]
    if by == "link":
        return [layer.path for layer in layers]
    if by == "block":
        paths = [layer.path for layer in layers]
        above = common_link(paths)
        holders = {link for path in paths for link in links_to(path)[:-1]}
        return [block_of(path, above, holds_links=path in holders) for path in paths]
    sources = [layer if layer.forward is None else layers[layer.forward] for layer in layers]
    return [
        f"{source.function} {format_shapes(source.input_shapes)}".rstrip() for source in sources
    ]


def common_link(paths: Sequence[str]) -> str:
    """The innermost link that all calls of a network are made in, such as ``/predictor``.

    The network's own calls, at ``/``, do not count, nor do paths without a slash.
    """
    inner = {path for path in paths if path.startswith("/") and path != "/"}
    if not inner:
        return "/"
    chains = [links_to(path) for path in inner]
    shared: list[str] = [links[0] for links in zip(*chains, strict=False) if len(set(links)) == 1]
    # A network of one link is not above itself.
    return shared[-2] if len(inner) == 1 else shared[-1]


def block_of(path: str, above: str = "/", *, holds_links: bool = False) -> str:
    """The block of a network that a link path belongs to.

    That is the path up to its first number (``/res2/0`` for ``/res2/0/conv1``), or without any
    the first two of three or more names (``/res2/a`` for ``/res2/a/conv1``), or the first name.

    Args:
        path: The path; one without a slash (``loss``) is its own block.
        above: What all paths begin with; it does not count as a name.
        holds_links: Whether there are links below it. A block's own calls (``/res2/a``) belong
            to it like those of its links.
    """
    below = above.rstrip("/") + "/"
    if not path.startswith(below) or path == "/":
        return path
    names = path[len(below) :].split("/")
    numbers = [place for place, name in enumerate(names) if name.isdecimal()]
    count = numbers[0] + 1 if numbers else 2 if len(names) + holds_links > 2 else 1
    return below + "/".join(names[:count])


def by_phase(layers: pd.DataFrame, recording: Recording) -> pd.DataFrame:
    """The phases of a trial, in the order of their first rows; they add up to the trial.

    Returns:
        One row a phase, indexed by its name. Columns: ``layers`` (their number), ``layers_s``,
        ``framework_s`` (time between its rows; NaN where trials were not timed), ``total_s``
        and ``share`` of the profiled trial (of the layers' time where trials were not timed).
        Framework time outside of all phases has a row ``outside``; so has that of a trial of
        several phases where it is not known by phase.
    """
    table = layers.groupby("phase", sort=False).agg(
        layers=("mean_s", "size"), layers_s=("mean_s", "sum")
    )
    without_rows = [phase for phase in recording.phases if phase not in table.index]
    table = table.reindex([*table.index, *without_rows], fill_value=0)
    if recording.trial_ns is None:
        table["framework_s"] = np.nan
        table["total_s"] = table["layers_s"]
    else:
        spent: dict[str, int] = {}
        if recording.framework_ns is not None:
            sums = recording.framework_ns.sum(axis=0).tolist()
            spent = dict(zip(recording.phases, sums, strict=True))
        # Whole nanoseconds: a difference of means would leave a rest where there is none.
        between = int(recording.trial_ns.sum()) - int(recording.self_ns.sum())
        if not spent and len(table) == 1:
            spent[str(table.index[0])] = between
        else:
            spent[OUTSIDE] = between - sum(spent.values())
            table = table.reindex([*table.index, OUTSIDE], fill_value=0)
        trials = recording.n_trials
        table["framework_s"] = [spent.get(phase, 0) / trials * NS for phase in table.index]
        table["total_s"] = table["layers_s"] + table["framework_s"]
    table.index.name = "phase"
    whole = table["total_s"].sum()
    table["share"] = table["total_s"] / whole if whole else 0.0
    return table


def link_tree(layers: pd.DataFrame, recording: Recording) -> pd.DataFrame:
    """The tree of links, every link before those below it, in the order of their first call.

    A link's exclusive time is that of the functions that it calls itself, its inclusive time that
    of the links below it as well. Both are sums of layers' self times, so the exclusive times of
    all links add up to the layers' time, and so do the inclusive times at depth 0: of the network
    (``/``) and of what is outside of it (``loss``, ``cleargrads``, ``optimizer``, ``data``).

    Returns:
        One row a link, indexed by its path. Columns: ``name`` (last part of the path), ``kind``
        (its class, where it is known), ``depth``, ``calls`` in a trial (<NA> where not known),
        ``parameters`` (with those of the links below; <NA> likewise), ``inclusive_s``,
        ``exclusive_s``, ``share`` (of the layers' time, inclusive), ``hot`` (hot layers,
        inclusive), and ``<phase>_inclusive_s``, ``<phase>_exclusive_s`` for every phase.
    """
    phases = list(layers["phase"].unique())
    known = {link.path: link for link in recording.links}
    called = [link for path in [*layers["path"], *known] for link in links_to(path)]
    paths = depth_first(called)
    columns = ["exclusive_s", *(f"{phase}_exclusive_s" for phase in phases)]
    exclusive = pd.DataFrame(0.0, index=pd.Index(paths, name="path"), columns=columns)
    exclusive["exclusive_s"] = layers.groupby("path")["mean_s"].sum().reindex(paths).fillna(0.0)
    for phase in phases:
        times = layers[layers["phase"] == phase].groupby("path")["mean_s"].sum()
        exclusive[f"{phase}_exclusive_s"] = times.reindex(paths).fillna(0.0)
    exclusive["hot"] = layers.groupby("path")["hot"].sum().reindex(paths).fillna(0).astype(int)
    exclusive["parameters"] = [known[p].parameters if p in known else 0 for p in paths]
    sums = exclusive.to_numpy(np.float64, copy=True)
    row = {path: index for index, path in enumerate(paths)}
    for path in reversed(paths):  # links below come first
        for parent in links_to(path)[-2:-1]:
            sums[row[parent]] += sums[row[path]]
    inclusive = pd.DataFrame(sums, index=exclusive.index, columns=exclusive.columns)
    table = pd.DataFrame(index=exclusive.index)
    table["name"] = [path.rpartition("/")[2] or "/" for path in paths]
    table["kind"] = [known[path].kind if path in known else "" for path in paths]
    table["depth"] = [len(links_to(path)) - 1 for path in paths]
    calls = [known[path].calls if path in known else None for path in paths]
    table["calls"] = pd.array(calls, dtype="Int64")
    parameters = inclusive["parameters"].astype(int).astype("Int64")
    table["parameters"] = parameters.where([path in known for path in paths])
    table["inclusive_s"] = inclusive["exclusive_s"]
    table["exclusive_s"] = exclusive["exclusive_s"]
    total = float(layers["mean_s"].sum())
    table["share"] = table["inclusive_s"] / total if total else 0.0
    table["hot"] = inclusive["hot"].astype(int)
    for phase in phases:
        table[f"{phase}_inclusive_s"] = inclusive[f"{phase}_exclusive_s"]
        table[f"{phase}_exclusive_s"] = exclusive[f"{phase}_exclusive_s"]
    return table
