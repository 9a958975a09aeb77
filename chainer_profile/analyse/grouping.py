"""Layers added up by function, link, block, shape or phase, and as the tree of links."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from chainer_profile.basics.describe import NS
from chainer_profile.basics.paths import depth_first, links_to
from chainer_profile.basics.units import format_shapes
from chainer_profile.basics.words import GROUPS
from chainer_profile.record.recording import Layer, Recording

#: Name of the framework time outside of all phases, or with an unknown phase.
OUTSIDE = "outside"


def majority_label(parts: pd.Series[float], whole: float) -> Any:
    """The label of the part that is more than half of the whole; None if no part is."""
    return parts.idxmax() if len(parts) and parts.max() > whole / 2 else None


def time_of_shares(recording: Recording, layers_s: float) -> float:
    """Seconds that shares are fractions of: the mean profiled trial, or else ``layers_s``."""
    trial_ns = recording.trial_ns
    return layers_s if trial_ns is None or not trial_ns.any() else float(trial_ns.mean()) * NS


def framework_by_phase(recording: Recording) -> dict[str, NDArray[np.int64]]:
    """Framework time in ns, (trials,), of each phase and of :data:`OUTSIDE`.

    If the recording has no framework time by phase, all of it belongs to the only phase, or to
    :data:`OUTSIDE` if there are several. The result is empty if trials were not timed.
    """
    if recording.trial_ns is None:
        return {}
    between_ns = recording.trial_ns - recording.self_ns.sum(axis=1)
    by_phase: dict[str, NDArray[np.int64]] = {}
    if recording.framework_ns is not None:
        by_phase = dict(zip(recording.phases, recording.framework_ns.T, strict=True))
    phases = {*recording.phases, *(layer.phase for layer in recording.layers)}
    if not by_phase and len(phases) == 1:
        return {phases.pop(): between_ns}
    return {**by_phase, OUTSIDE: between_ns - sum(by_phase.values())}


def group(layers: pd.DataFrame, recording: Recording, by: str) -> pd.DataFrame:
    """The layers added up by one of :data:`~.words.GROUPS`, slowest group first.

    Returns:
        One row a group, indexed by its name. Columns: ``calls`` in a trial (only forward calls if
        the group has any), ``total_s`` per trial, ``mean_s`` per call, ``share`` of
        :func:`time_of_shares`, ``hot`` (number of hot layers), ``<phase>_s`` for every phase, and
        ``inclusive_s``, the total time including nested calls of other groups.

    Raises:
        ValueError: Layers cannot be grouped by this.
    """
    if by not in GROUPS:
        raise ValueError(f"layers are grouped by {', '.join(GROUPS)}, not by {by!r}")
    names = group_names(recording.layers, by)
    rows, add = _sums_by_name(names)
    mean_s, phases = layers["mean_s"].to_numpy(), layers["phase"].to_numpy()
    calls, hot = layers["calls"].to_numpy(), layers["hot"].to_numpy()
    forward = phases == "forward"
    total_s, whole_s = add(mean_s), time_of_shares(recording, float(mean_s.sum()))
    counted = np.where(add(forward) > 0, add(calls * forward), add(calls))
    if not recording.by_link:
        counted = counted.astype(int)
    table = {
        "calls": counted,
        "total_s": total_s,
        "mean_s": total_s / counted,
        "inclusive_s": list(_inclusive_s(recording.layers, names, mean_s).values()),
        "share": total_s / whole_s if whole_s else np.zeros(len(rows)),
        "hot": add(hot).astype(int),
        **{f"{phase}_s": add(mean_s * (phases == phase)) for phase in dict.fromkeys(phases)},
    }
    slowest_first = np.argsort(-total_s, kind="stable")
    index = pd.Index(np.array(rows, object)[slowest_first], dtype=object, name=by)
    table = {name: np.asarray(values)[slowest_first] for name, values in table.items()}
    return pd.DataFrame(table, index)


def _inclusive_s(
    layers: Sequence[Layer], names: Sequence[str], self_s: NDArray[np.float64]
) -> dict[str, float]:
    """Seconds of each group including nested calls; ``names`` are the layers' groups."""
    times_s = dict.fromkeys(names, 0.0)
    # For each layer, its group and the groups of all calls around it.
    groups: list[set[str]] = []
    for index, (layer, name) in enumerate(zip(layers, names, strict=True)):
        parent = parent_of(layer, index)
        groups.append({name} if parent is None else {name} | groups[parent])
        for group_name in groups[index]:
            times_s[group_name] += float(self_s[index])
    return times_s


def parent_of(layer: Layer, index: int) -> int | None:
    """Index of the layer that called the one at ``index``; None if no earlier layer did."""
    parent = layer.parent
    return parent if parent is not None and 0 <= parent < index else None


def _sums_by_name(
    names: Sequence[str], rows: Sequence[str] = ()
) -> tuple[list[str], Callable[[NDArray[Any]], NDArray[Any]]]:
    """Distinct names, ``rows`` first, and a function that sums values of layers for each name.

    ``names`` has one name for each layer.
    """
    row_of = {name: row for row, name in enumerate(dict.fromkeys([*rows, *names]))}
    layer_rows = np.array([row_of[name] for name in names], np.intp)
    return list(row_of), lambda values: np.bincount(layer_rows, values.astype(float), len(row_of))


def group_names(layers: Sequence[Layer], by: str) -> list[str]:
    """The name of each layer's group; ``by`` is one of :data:`~.words.GROUPS`."""
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

    The block is the path up to its first number (``/res2/0`` for ``/res2/0/conv1``). Without a
    number it is the first two of three or more names (``/res2/a`` for ``/res2/a/conv1``), or else
    the first name. A path outside ``above`` is its own block.

    Args:
        path: The path of a link.
        above: The path that all blocks are below, from :func:`common_link`. Its names do not count.
        holds_links: Whether the link contains links. It then belongs to the block of these links.
    """
    below = above.rstrip("/") + "/"
    if not path.startswith(below) or path == "/":
        return path
    names = path[len(below) :].split("/")
    numbers = [index for index, name in enumerate(names) if name.isdecimal()]
    count = numbers[0] + 1 if numbers else 2 if len(names) + holds_links > 2 else 1
    return below + "/".join(names[:count])


def phase_table(layers: pd.DataFrame, recording: Recording) -> pd.DataFrame:
    """The phases of a trial, in the order of their first rows; they add up to the trial.

    Returns:
        One row a phase, indexed by its name. Columns: ``layers`` (their number), ``layers_s``,
        ``framework_s`` (time between its rows; NaN where trials were not timed), ``total_s``
        and ``share`` of the profiled trial (of the layers' time where trials were not timed).
        Framework time outside of all phases has a row ``outside``; see
        :func:`framework_by_phase`.
    """
    of_layers = [layer.phase for layer in recording.layers]
    # Sums of whole nanoseconds are exact, so the phases add up to the trial.
    framework = framework_by_phase(recording).items()
    spent_ns = {phase: float(times_ns.sum()) for phase, times_ns in framework}
    rows, add = _sums_by_name(of_layers, [*of_layers, *recording.phases, *spent_ns])
    missing_ns = 0.0 if spent_ns else math.nan
    framework_ns = np.array([spent_ns.get(row, missing_ns) for row in rows])
    framework_s = framework_ns / recording.n_trials * NS
    layers_s = add(layers["mean_s"].to_numpy())
    total_s = layers_s + framework_s if spent_ns else layers_s
    whole_s = float(total_s.sum())
    table = {
        "layers": add(np.ones(len(layers))).astype(int),
        "layers_s": layers_s,
        "framework_s": framework_s,
        "total_s": total_s,
        "share": total_s / whole_s if whole_s else np.zeros(len(rows)),
    }
    return pd.DataFrame(table, pd.Index(rows, name="phase"))


def link_tree(layers: pd.DataFrame, recording: Recording) -> pd.DataFrame:
    """The tree of links, every link before those below it, in the order of their first call.

    The exclusive time of a link is the self time of all functions that it calls itself. Its
    inclusive time also contains the links below it. The exclusive times of all links add up to
    the layers' time. So do the inclusive times at depth 0: the network (``/``) and all paths
    outside of it (``loss``, ``cleargrads``, ``optimizer``, ``data``).

    Returns:
        One row a link, indexed by its path. Columns: ``name`` (last part of the path), ``kind``
        (its class, where it is known), ``depth``, ``calls`` in a trial (<NA> where not known),
        ``parameters`` (including the links below; <NA> if not known), ``inclusive_s``,
        ``exclusive_s``, ``share`` (of :func:`time_of_shares`, inclusive), ``hot`` (hot layers,
        inclusive), and ``<phase>_inclusive_s``, ``<phase>_exclusive_s`` for every phase.
    """
    of_links = {link.path: (link.kind, link.calls, link.parameters) for link in recording.links}
    called = [link for path in [*layers["path"], *of_links] for link in links_to(path)]
    paths, add = _sums_by_name(layers["path"].tolist(), depth_first(called))
    links = pd.DataFrame.from_dict(of_links, "index", columns=["kind", "calls", "parameters"])
    links = links.reindex(paths)
    mean_s, phase_of = layers["mean_s"].to_numpy(), layers["phase"].to_numpy()
    phases = list(dict.fromkeys(phase_of))
    exclusive = np.array(
        [
            add(mean_s),
            add(layers["hot"].to_numpy()),
            links["parameters"].astype(float).fillna(0),
            *(add(mean_s * (phase_of == phase)) for phase in phases),
        ]
    )
    inclusive = exclusive.copy()
    row = {path: index for index, path in enumerate(paths)}
    for path in reversed(paths):  # inner links come before the links that contain them
        for parent in links_to(path)[-2:-1]:
            inclusive[:, row[parent]] += inclusive[:, row[path]]
    whole_s = time_of_shares(recording, float(mean_s.sum()))
    parameters = pd.Series(inclusive[2].astype(int), paths, "Int64")
    table = {
        "name": [path.rpartition("/")[2] or "/" for path in paths],
        "kind": [of_links[path][0] if path in of_links else "" for path in paths],
        "depth": [len(links_to(path)) - 1 for path in paths],
        "calls": links["calls"].astype("Float64" if recording.by_link else "Int64").array,
        "parameters": parameters.where(links["parameters"].notna()).array,
        "inclusive_s": inclusive[0],
        "exclusive_s": exclusive[0],
        "share": inclusive[0] / whole_s if whole_s else np.zeros(len(paths)),
        "hot": inclusive[1].astype(int),
    }
    for i, phase in enumerate(phases, 3):
        table[f"{phase}_inclusive_s"] = inclusive[i]
        table[f"{phase}_exclusive_s"] = exclusive[i]
    return pd.DataFrame(table, pd.Index(paths, name="path"))
