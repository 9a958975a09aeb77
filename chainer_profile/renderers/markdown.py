"""Summary -> ``report.md``: the report of an experiment, with everything computed from the run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from chainer_profile.renderers.csv import COLUMNS
from chainer_profile.renderers.next_steps import next_steps
from chainer_profile.renderers.text import (
    Row,
    environment_rows,
    gaps,
    input_text,
    interruption,
    mode_text,
    model_name,
    of_layers,
    printable,
    totals_rows,
    trials_text,
    versions,
    weights_text,
)
from chainer_profile.statistics import NS
from chainer_profile.units import (
    NOT_KNOWN,
    format_bare_percent,
    format_count,
    format_duration,
    format_ms,
    format_percent,
    format_shapes,
    plural,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pandas as pd

    from chainer_profile.summary import Summary

#: With more layers than this the report shows the hot and the slowest ones only.
MAX_ROWS = 200
SLOWEST = 50
MAX_GROUPS = 20


def render(summary: Summary, *, plot: str = "layers.png", table: str = "layers.csv") -> str:
    """The report as Markdown (GitHub's tables).

    Args:
        summary: The summary of a run.
        plot: Address of the bar plot, as seen from the report.
        table: Address of the table of all layers, as seen from the report.
    """
    parts = (
        _top(summary),
        _experiment(summary),
        _environment(summary),
        _method(summary),
        _result(summary, plot, table),
        _hotspots(summary),
        _next_steps(summary),
        _appendix(summary, table),
    )
    return "\n\n".join(block for part in parts for block in part) + "\n"


def _top(summary: Summary) -> Iterator[str]:
    recording = summary.recording
    yield f"# Layer-wise profile of {_text(model_name(recording.settings))}"
    for sentence in (*interruption(recording), *gaps(recording)):
        yield f"> **Note:** {_text(sentence)}"


def _experiment(summary: Summary) -> Iterator[str]:
    recording = summary.recording
    settings = recording.settings
    yield "## 1 Experiment"
    yield _properties(
        (
            ("Network", f"{model_name(settings)}, {weights_text(settings)}"),
            ("Function calls", format_count(len(recording.layers))),
            ("Input", input_text(settings)),
            ("Batch", plural(settings.batchsize, "image")),
            ("Device", settings.device),
            ("Mode", mode_text(settings)),
            ("Trials", trials_text(recording)),
        ),
    )
    yield (
        "Measured was how long each function call of the network takes, and how long a whole "
        "trial takes."
        if recording.trial_ns is not None
        else "Measured was how long each function call of the network takes."
    )
    yield _mode_sentence(summary)


def _mode_sentence(summary: Summary) -> str:
    if summary.recording.settings.train_mode:
        return (
            "The network ran on purpose in train mode (`chainer.config.train` was on): batch "
            "normalisation computes the statistics of the batch and dropout drops. Inference is "
            "test mode, so these are not the times of inference."
        )
    fixed = "FixedBatchNormalization" in summary.functions.index
    return (
        "The network ran as in inference: in test mode (`chainer.config.train` was off) and "
        "without backprop"
        + (
            ", so batch normalisation used its stored averages (`FixedBatchNormalization`)."
            if fixed
            else "."
        )
    )


def _environment(summary: Summary) -> Iterator[str]:
    yield "## 2 Environment"
    rows = environment_rows(summary.recording.environment)
    yield _properties(rows) if rows else "Nothing was recorded about the machine."


def _method(summary: Summary) -> Iterator[str]:
    recording, totals = summary.recording, summary.totals
    yield "## 3 Method"
    yield from _command(summary)
    points = []
    warmups = len(recording.warmup_ns) or recording.settings.warmups
    if warmups:
        points.append(f"{plural(warmups, 'warm-up trial')} came first and count nowhere.")
    if recording.trial_ns is not None and totals.clean is not None:
        points.append(
            f"{plural(totals.clean.count, 'clean trial')} ran without any hook, in blocks that "
            f"alternate with the {plural(recording.n_trials, 'profiled trial')}: the latency to "
            "quote is that of the clean ones, the layers' times come from the profiled ones."
        )
    else:
        points.append(
            f"The layers' times come from {plural(recording.n_trials, 'profiled trial')}."
        )
    points.append(
        "The time of a layer is its self time: a call made within another one counts for the "
        "inner one only."
    )
    if totals.framework is not None:
        points.append(
            "Framework time is the profiled trial less the sum of its layers: what passes "
            "between the functions, such as type checks and making variables."
        )
    if recording.n_trials > 1:
        points.append(
            "The 95 % interval of a mean comes from batch means: successive trials are cut into "
            "batches of equal length, and the spread of the batches' means gives the interval. "
            "Trials that depend on one another do not make it too narrow."
        )
    points.append("A layer's share is its mean over the sum of all layers' means.")
    conditions = recording.conditions
    if conditions.clock_resolution_ns is not None:
        step = format_duration(conditions.clock_resolution_ns * NS)
        points.append(f"The smallest step of the clock that was seen is {step}.")
    if conditions.window_ns is not None:
        window = format_duration(conditions.window_ns * NS)
        points.append(
            f"A function that does nothing shows {window}: every layer's time holds so much of "
            "the recorder itself."
        )
    yield _bullets(points)


def _command(summary: Summary) -> Iterator[str]:
    command = printable(summary.recording.settings.command)
    if command:
        yield _code(command)
    else:
        yield "The run was not started by a command line."


def _result(summary: Summary, plot: str, table: str) -> Iterator[str]:
    yield "## 4 Result"
    yield _properties(row for row in totals_rows(summary.totals) if row[1] != NOT_KNOWN)
    yield from _adds_up(summary)
    yield "### By function"
    yield _table(
        ("function", "calls", "total [ms]", "mean [ms]", "share [%]", "hot layers"),
        [
            (
                _text(row.Index),
                format_count(row.calls),
                format_ms(row.total_s),
                format_ms(row.mean_s),
                format_bare_percent(row.share),
                format_count(row.hot),
            )
            for row in summary.functions.itertuples()
        ],
        numbers=5,
    )
    yield "### By layer"
    yield f"![Bar plot of the mean self time of every layer]({_address(plot)})"
    yield (
        "*One bar for each layer in the order of the calls: mean self time, with whiskers from "
        "the 5th to the 95th percentile. Hot layers are red here, and bold in the table.*"
    )
    yield from _layer_table(summary, table)


def _adds_up(summary: Summary) -> Iterator[str]:
    totals = summary.totals
    if totals.profiled is None or totals.framework is None:
        return
    layers, framework, trial = (
        f"{format_ms(seconds)} ms"
        for seconds in (totals.layers_s, totals.framework.mean_s, totals.profiled.mean_s)
    )
    yield f"It adds up: layers {layers} + framework {framework} = profiled trial {trial}."


def _layer_table(summary: Summary, table: str) -> Iterator[str]:
    layers = summary.layers
    shown = layers
    if len(layers) > MAX_ROWS:
        # Whatever the rule, the hot layers are the slowest ones.
        count = min(MAX_ROWS, max(SLOWEST, int(layers["hot"].sum())))
        slowest = layers.sort_values("mean_s", ascending=False, kind="stable")
        chosen = slowest.head(count).index.sort_values()
        shown = layers.loc[chosen]
        rest = layers.drop(chosen)
        yield (
            f"{format_count(len(shown))} of {plural(len(layers), 'layer')} are shown, the slowest "
            f"ones; the others hold {format_percent(rest['share'].sum())} of the "
            f"layers' time. All are in [{_text(table)}]({_address(table)})."
        )
    with_interval = summary.recording.n_trials > 1
    if not with_interval:
        yield "One trial gives no interval of the mean."
    yield _table(
        (
            "#",
            "path",
            "function",
            "output",
            "mean [ms]",
            *(("95 % interval [ms]",) if with_interval else ()),
            "median [ms]",
            "95th percentile [ms]",
            "share [%]",
        ),
        [
            (
                str(row.Index),
                _text(row.path),
                _text(row.function),
                format_shapes(row.output_shapes),
                format_ms(row.mean_s),
                *((_interval(row.ci_low_s, row.ci_high_s),) if with_interval else ()),
                format_ms(row.median_s),
                format_ms(row.p95_s),
                format_bare_percent(row.share),
            )
            for row in shown.itertuples()
        ],
        numbers=4 + with_interval,
        bold=shown["hot"].tolist(),
    )


def _interval(low: float, high: float) -> str:
    return f"{format_ms(low)} to {format_ms(high)}"


def _hotspots(summary: Summary) -> Iterator[str]:
    layers, hot = summary.layers, summary.layers[summary.layers["hot"]]
    yield "## 5 Hotspots"
    yield f"The rule: hot are {_text(summary.hotspots.rule)}."
    if hot.empty:
        slowest = layers.loc[layers["mean_s"].idxmax()]
        yield (
            f"No layer is hot. The slowest is {_text(slowest['label'])} with "
            f"{format_duration(slowest['mean_s'])}."
        )
        return
    sentence = (
        f"{of_layers(len(hot), len(layers))} {'is' if len(hot) == 1 else 'are'} hot and "
        f"{'holds' if len(hot) == 1 else 'hold'} {format_percent(hot['share'].sum())} of the "
        "layers' time"
    )
    profiled = summary.totals.profiled
    if profiled is not None and profiled.mean_s:
        part = hot["mean_s"].sum() / profiled.mean_s
        sentence += f", {format_percent(part)} of the profiled trial"
    yield sentence + "."
    yield _grouped("function", hot, hot["function"])
    if len(hot) > 1:
        yield _grouped("part of the network", hot, hot["path"].map(_part))
    rest = layers[~layers["hot"]]
    if len(rest):
        most = format_percent(rest["share"].max())
        yield (
            f"The other layer holds {most}."
            if len(rest) == 1
            else f"None of the other {plural(len(rest), 'layer')} holds more than {most}."
        )


def _part(path: str) -> str:
    """The first part of a link path: ``/res3`` for ``/res3/0/conv1``."""
    return "/" + path.lstrip("/").split("/")[0]


def _grouped(name: str, hot: pd.DataFrame, by: pd.Series[Any]) -> str:
    """The hot layers by something: how many, and their share; the largest groups only."""
    groups = hot.groupby(by, sort=False)["share"].agg(["size", "sum"])
    groups = groups.sort_values("sum", ascending=False, kind="stable")
    rows = [
        (_text(group), format_count(int(size)), format_bare_percent(float(share)))
        for group, size, share in groups.head(MAX_GROUPS).itertuples()
    ]
    others = groups.iloc[MAX_GROUPS:]
    if len(others):
        size, share = int(others["size"].sum()), float(others["sum"].sum())
        rows.append((f"{len(others)} others", format_count(size), format_bare_percent(share)))
    return _table((name, "hot layers", "share of the layers' time [%]"), rows, numbers=2)


def _next_steps(summary: Summary) -> Iterator[str]:
    yield "## 6 What to do next"
    yield _bullets(map(_text, next_steps(summary)))
    if summary.findings:
        yield "What the checks of this run found:"
        yield _bullets(
            f"**{_text(finding.severity)}**: {_text(finding.text)} {_text(finding.advice)}"
            for finding in summary.findings
        )


def _appendix(summary: Summary, table: str) -> Iterator[str]:
    yield "## 7 Appendix"
    yield (
        f"All layers with all digits are in [{_text(table)}]({_address(table)}). "
        "Its columns (times are self times in milliseconds over the profiled trials):"
    )
    rows = [(f"`{name}`", _text(meaning)) for name, meaning in COLUMNS.items()]
    yield _table(("column", "meaning"), rows)
    yield from _command(summary)
    software = versions(summary.recording.environment)
    if software:
        yield f"Versions: {_text(', '.join(software))}."


def _table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numbers: int = 0,
    bold: Sequence[bool] = (),
) -> str:
    """A table whose last columns are numbers, with some rows in bold. Cells are Markdown."""
    texts = len(head) - numbers
    lines = [tuple(head), ("---",) * texts + ("---:",) * numbers]
    for at, row in enumerate(rows):
        cells = tuple(row)
        if at < len(bold) and bold[at]:
            cells = tuple(f"**{cell}**" if cell else cell for cell in cells)
        lines.append(cells)
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _properties(rows: Iterable[Row]) -> str:
    """A table of names and values without a head."""
    return _table(("", ""), [(_text(name), _text(value)) for name, value in rows])


def _bullets(points: Iterable[str]) -> str:
    return "\n".join(f"- {point}" for point in points)


def _code(text: str) -> str:
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"


def _address(path: str) -> str:
    return quote(path, safe="/:.-_~")


def _text(text: object) -> str:
    """A name or a sentence as Markdown that is shown just as it is, on one line."""
    shown = printable(str(text)).strip()
    shown = shown.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    shown = re.sub(r"([\\`*\[\]|~$#])", r"\\\1", shown)
    # Between letters an underscore means nothing to Markdown.
    shown = re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\_", shown)
    # What would begin a list.
    return re.sub(r"^(\d*)([-+.)])(?=\s|$)", r"\1\\\2", shown)
