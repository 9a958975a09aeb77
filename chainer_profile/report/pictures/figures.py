"""What the pictures have in common: colours, style, title, and how they become a file's bytes."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import matplotlib as mpl

from chainer_profile.basics.units import NOT_KNOWN, format_duration, format_interval, plural
from chainer_profile.report.rows import phases_of
from chainer_profile.report.text import model_name, profiled_text, settings_text, trial_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from chainer_profile.analyse.summary import Summary

# A red and a blue-grey that differ in lightness too: for colour-blind readers and grey print.
HOT_COLOUR = "#cc3311"
OTHER_COLOUR = "#a3b1c2"
INK = "#222222"
# Those of the page by day, for series, what is between them, and bars of one kind.
SERIES_COLOURS = (
    *("#228877", "#d98c1f", "#8b5fa8", "#8a9a3b"),
    *("#c0698e", "#8c6d4f", "#66a9d8"),
)
BETWEEN_COLOUR, ACCENT = "#d3dae2", "#1f5f9f"
DPI = 150
#: Size of a usual text in points.
TEXT = 9.0

STYLE: dict[str, Any] = {
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.6,
    "font.family": ["sans-serif"],
    # Matplotlib brings the first one; the others are for browsers that show the SVG.
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial", "Helvetica"],
    "font.size": TEXT,
    "path.simplify": True,
    "savefig.bbox": None,
    "savefig.transparent": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "chainer-profile",
    "text.color": INK,
    "text.usetex": False,
    "xtick.color": INK,
    "ytick.color": INK,
}


def save(draw: Callable[[], Figure], format: Literal["png", "svg"]) -> bytes:
    """A figure as a file's bytes; the same figure gives the same bytes.

    Args:
        draw: Makes the figure.
        format: ``png`` (150 dots an inch) or ``svg`` (its text is text, and can be searched).
    """
    metadata = {"Software": None} if format == "png" else {"Date": None, "Creator": None}
    file = io.BytesIO()
    with mpl.rc_context(STYLE), warnings.catch_warnings():
        # A name in a script that the font lacks is drawn as boxes.
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        draw().savefig(file, format=format, dpi=DPI, metadata=metadata)
    return file.getvalue()


def outlines(draw: Callable[[], Figure]) -> bytes:
    """A figure as SVG whose letters are outlines: it needs no font."""
    file = io.BytesIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    style: Any = STYLE | {"svg.fonttype": "path"}
    with mpl.rc_context(style), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        draw().savefig(file, format="svg", metadata=nothing)
    return file.getvalue()


def shorten(text: str, most: int) -> str:
    """A text of so many characters at most."""
    return text if len(text) <= most else text[: most - 1] + "…"


def ending(text: str, most: int) -> str:
    """The end of a text, of so many characters at most: that of a path tells layers apart."""
    return text if len(text) <= most else "…" + text[1 - most :]


def title(summary: Summary, most: int) -> str:
    """What was run, in lines of so many characters at most."""
    recording = summary.recording
    settings, trial = recording.settings, summary.totals.trial
    trials = profiled_text(recording)
    if trial is not None:
        which = "iteration" if summary.totals.every else "clean trial"
        clean = f"median of {plural(trial.count, which)}"
        interval = format_interval(trial.ci_low_s, trial.ci_high_s)
        trials += f"; {clean if summary.totals.every or summary.totals.clean else 'their median'} "
        trials += format_duration(trial.median_s)
        trials += " (no interval)" if interval == NOT_KNOWN else f" (95 % {interval})"
    name = model_name(settings)
    if len(phases_of(summary)) > 1:
        did = trial_text(recording)
        # The names of the phases are in the picture; what is in brackets may go.
        whole = len(name) + 2 + len(did) <= most
        name += f": {did if whole else did.partition(' (')[0]}"
    lines = (name, settings_text(settings), trials)
    return "\n".join(shorten(line, most) for line in lines)
