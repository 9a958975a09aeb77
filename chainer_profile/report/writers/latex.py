r"""Summary -> ``tables.tex``: the tables of a run for a paper or a thesis, with booktabs.

The file is both: ``\input`` into a document that loads booktabs it is its tables and nothing
else, and compiled alone it is a document of its own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from chainer_profile.basics.units import NOT_KNOWN, format_count, plural
from chainer_profile.report import layer_columns
from chainer_profile.report.columns import group_columns, kind_columns, phase_columns
from chainer_profile.report.content.coursework import ReportTitle, heading_text
from chainer_profile.report.content.gpu_text import gpu_rows, on_gpu, option_rows
from chainer_profile.report.content.layer_section import MAX_ROWS, SLOWEST
from chainer_profile.report.latex_syntax import comment, label, tabular, text
from chainer_profile.report.rows import group_rows, phase_rows, phases_of, shortened
from chainer_profile.report.text import (
    environment_rows,
    input_text,
    mode_text,
    model_name,
    printable,
    totals_rows,
    trial_text,
    trials_text,
    weights_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from chainer_profile.analyse.summary import Summary
    from chainer_profile.report.columns import Column
    from chainer_profile.report.text import Row

#: Layers of the short table; functions of the table by function.
TOP, MAX_FUNCTIONS = 10, 20
#: Characters from which on a column of names folds, and the part of the line that it then has.
_FOLDS, _PART = 28, "0.26"
#: The columns of a hot layer that are bold: with all of them the table would be too wide.
_BOLD = ("#", "path", "median ms")
#: The file is compiled alone where no document has begun: LaTeX's kernel lets this be \relax
#: when one begins.
_HEAD = r"""\makeatletter
\ifx\@nodocument\relax
  \let\chainerprofilealone\undefined
  \makeatother
\else
  \makeatother
  \documentclass[a4paper]{article}
  \usepackage[margin=22mm]{geometry}
  \usepackage{booktabs,longtable}
  \newcommand{\chainerprofilealone}{}
  \begin{document}
\fi"""
_FOOT = r"\ifdefined\chainerprofilealone\expandafter\enddocument\fi"


def render(summary: Summary, *, title: ReportTitle | None = None) -> str:
    r"""The tables as LaTeX: what was run and where, times, functions, phases, layers.

    Labels are ``tab:resnet20-b1-experiment``, ``-environment``, ``-times``, ``-kinds``,
    ``-phases``, ``-functions``, ``-slowest`` and ``-layers``, the last one being a ``longtable``.

    Args:
        summary: The summary of a run.
        title: Its title and author stand in a comment, and above the tables where the file is a
            document of its own.
    """
    title = title or ReportTitle()
    tables = "\n\n".join(_tables(summary))
    alone = [r"\section*{" + text(heading_text(summary, title)) + "}"]
    by_whom = [f"{name}: {text(value)}" for name, value in title.rows()]
    if by_whom:
        alone.append(r"\noindent " + r"\\".join(by_whom))
    return "\n".join(
        (
            comment(f"{heading_text(summary, title)}: tables made by chainer-profile."),
            comment(r"\input this file into a document with \usepackage{booktabs,longtable},"),
            comment("or compile it alone."),
            _HEAD,
            r"\ifdefined\chainerprofilealone",
            *alone,
            r"\fi",
            "",
            tables,
            "",
            _FOOT,
            "",
        )
    )


def _tables(summary: Summary) -> Iterator[str]:
    recording = summary.recording
    settings = recording.settings
    name = model_name(settings)
    prefix = f"tab:{_prefix(summary)}"
    of = f"of {text(name)}"
    experiment = [
        ("Network", f"{name}, {weights_text(settings)}"),
        ("Trial", trial_text(recording)),
        ("Layers", format_count(len(summary.layers))),
        ("Input", input_text(settings)),
        ("Batch", plural(settings.batchsize, "image")),
        ("Device", settings.device),
        ("Mode", mode_text(settings)),
        *option_rows(settings),
        ("Trials", trials_text(recording)),
    ]
    if settings.command:
        experiment.append(("Command", printable(settings.command)))
    yield _described(experiment, f"The experiment: profile {of}.", f"{prefix}-experiment")
    environment = environment_rows(recording.environment) + gpu_rows(recording)
    if environment:
        caption = f"Machine and software of the profile {of}."
        yield _described(environment, caption, f"{prefix}-environment")
    totals = totals_rows(summary.totals, on_device=recording.on_device)
    yield _described(
        [row for row in totals if row[1] != NOT_KNOWN], f"A trial {of}.", f"{prefix}-times"
    )
    if summary.kinds:
        caption = f"The kinds of trials {of}; all other tables are of the first."
        yield _listed(kind_columns(), summary.kinds, caption=caption, name=f"{prefix}-kinds")
    phases = phases_of(summary)
    if len(phases) > 1:
        yield _listed(
            phase_columns(),
            phase_rows(summary),
            caption=f"Time by phase {of}.",
            name=f"{prefix}-phases",
        )
    narrow = {*phases, "bwd/fwd", "hot"}
    yield _listed(
        [
            replace(column, title="") if column.name in narrow else column
            for column in group_columns("function", phases)
        ],
        shortened(group_rows(summary, "function"), MAX_FUNCTIONS),
        caption=f"Self time by function {of}{text(on_gpu(summary))}, in ms a trial.",
        name=f"{prefix}-functions",
    )
    yield from _by_layer(summary, of, prefix)


def _prefix(summary: Summary) -> str:
    """What tells the labels of one run from those of others: ``resnet20-b32-train``."""
    settings = summary.recording.settings
    phase = "" if settings.phase == "forward" else f"-{settings.phase}"
    kind = f"-kind{summary.recording.kind}" if summary.recording.kind > 1 else ""
    return label(f"{model_name(settings)}-b{settings.batchsize}{phase}{kind}")


def _by_layer(summary: Summary, of: str, prefix: str) -> Iterator[str]:
    """The slowest layers, and all of them, or the slowest of very many."""
    layers, several = summary.layers, len(phases_of(summary)) > 1
    slowest = layers.sort_values("median_s", ascending=False, kind="stable")
    # As many as fit between the margins of the article class.
    keys = [*layer_columns.WHICH, "median", "ci", "share"]
    some = layers["ci_low_s"].notna().any()
    if not some:
        keys.remove("ci")
    columns = [
        replace(column, title="± [ms]") if column.name == "+/- ms" else column
        for column in layer_columns.columns(keys, several_phases=several)
    ]
    count = format_count(len(layers))
    if len(layers) > TOP:
        yield _listed(
            columns,
            list(slowest.head(TOP).itertuples()),
            caption=f"The {TOP} slowest of {count} layers {of}{text(on_gpu(summary))}.",
            name=f"{prefix}-slowest",
        )
    shown, which = layers, f"All {plural(len(layers), 'layer')}"
    if len(layers) > MAX_ROWS:
        shown = layers.loc[slowest.head(SLOWEST).index.sort_values()]
        which = f"The {SLOWEST} slowest of {count} layers"
    rows = list(shown.itertuples())
    yield r"\ifdefined\chainerprofilealone\clearpage\fi"
    yield _listed(
        columns,
        rows,
        caption=f"{which} {of}{text(on_gpu(summary))}; hot layers are bold, "
        + (
            f"and {text('±')} is half of the 95~\\% interval of the median."
            if some
            else "and the trials are too few for intervals."
        ),
        name=f"{prefix}-layers",
        bold=shown["hot"].tolist(),
        long=True,
    )


def _described(rows: Iterable[Row], caption: str, name: str) -> str:
    """A table of names and values without a head."""
    cells = [(text(key), r"\raggedright " + text(value)) for key, value in rows]
    return tabular((), cells, r"lp{0.55\linewidth}", caption=caption, name=name)


def _listed(
    columns: Sequence[Column],
    rows: Sequence[object],
    *,
    caption: str,
    name: str,
    bold: Sequence[bool] = (),
    long: bool = False,
) -> str:
    """A table of columns; those that do not fold are numbers."""
    cells = [[column.cell(row) for column in columns] for row in rows]
    kinds, prefixes = [], []
    for at, column in enumerate(columns):
        wide = max((len(row[at]) for row in cells), default=0) > _FOLDS
        kinds.append(f"p{{{_PART}\\linewidth}}" if wide else "l" if column.folds else "r")
        prefixes.append(r"\raggedright " if wide else "")
    lines, names = [], [column.name for column in columns]
    for at, row in enumerate(cells):
        marked = at < len(bold) and bold[at]
        shown = [
            rf"\textbf{{{text(cell)}}}" if marked and cell and name in _BOLD else text(cell)
            for cell, name in zip(row, names, strict=True)
        ]
        lines.append([prefix + cell for prefix, cell in zip(prefixes, shown, strict=True)])
    head = [text(column.title or column.name) for column in columns]
    return tabular(head, lines, "".join(kinds), caption=caption, name=name, long=long)
