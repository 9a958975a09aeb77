"""Colours, style and titles of pictures, and how they become files or part of a page."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property, lru_cache
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from chainer_profile.analyse.summary import Summary
from chainer_profile.basics.units import NOT_KNOWN, format_duration, format_interval, plural
from chainer_profile.report.text import (
    model_name,
    profiled_text,
    settings_text,
    shorten,
    trial_text,
)

# A red and a blue-grey that differ in lightness too: for colour-blind readers and grey print.
HOT_COLOUR = "#cc3311"
OTHER_COLOUR = "#a3b1c2"
#: Beside the red of slower layers, for colour-blind readers too.
FASTER_COLOUR = "#0072b2"
SAME_COLOUR = "#5f6f82"
INK, GRID, BAND = "#222222", "#dddddd", "#f1f1f1"
# Those of the page by day: for series, for the time between them, and for bars of one kind.
SERIES_COLOURS = (
    *("#228877", "#d98c1f", "#8b5fa8", "#8a9a3b"),
    *("#c0698e", "#8c6d4f", "#66a9d8"),
)
BETWEEN_COLOUR, ACCENT = "#d3dae2", "#1f5f9f"
#: Colours of the figures, and their names in the page's style sheet.
THEME = {
    INK: "ink",
    "#ffffff": "surface",
    GRID: "grid",
    BAND: "band",
    HOT_COLOUR: "hot",
    OTHER_COLOUR: "other",
    SAME_COLOUR: "same",
    FASTER_COLOUR: "faster",
    BETWEEN_COLOUR: "band-strong",
    ACCENT: "accent",
    **{colour: f"series-{at}" for at, colour in enumerate(SERIES_COLOURS)},
}
DPI = 150
#: The name of a figure's title in its SVG.
TITLE = "title"
#: Size of a usual text in points.
TEXT = 9.0
#: How a text stands above a point of a picture.
ABOVE: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "va": "bottom"}

STYLE: dict[str, Any] = {
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.6,
    # A pale grid below all, and no frame.
    "axes.axisbelow": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    # No other layout than that of the figure itself.
    "figure.autolayout": False,
    "figure.constrained_layout.use": False,
    "font.family": ["sans-serif"],
    # Matplotlib brings the first one; the others are for browsers that show the SVG.
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial", "Helvetica"],
    "font.size": TEXT,
    "legend.frameon": False,
    "path.simplify": True,
    "savefig.bbox": None,
    "savefig.transparent": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "chainer-profile",
    "text.color": INK,
    # At 150 dots an inch letters keep their own shapes, and are drawn in half the time.
    "text.hinting": "none",
    "text.usetex": False,
    "xtick.color": INK,
    "ytick.color": INK,
}


class Picture:
    """A figure, drawn once for its files and for a page."""

    def __init__(self, draw: Callable[[], Figure]) -> None:
        self._draw = draw

    @cached_property
    def figure(self) -> Figure:
        """Matplotlib's figure, with everything in its place."""
        figure = self._draw()
        settle(figure)
        return figure

    def png(self) -> bytes:
        """A file of 150 dots an inch."""
        return save(self.figure, "png")

    def svg(self) -> bytes:
        """A file whose text is text, and can be searched; there is nothing that it leads to."""
        return re.sub(rb"</?a\b[^>]*>\s*", b"", self._svg)

    @cached_property
    def _svg(self) -> bytes:
        return save(self.figure, "svg")

    def in_page(self, name: str, alt: str) -> str:
        """The SVG as it stands in a page, which has its title and names what it leads to."""
        root = ElementTree.fromstring(self._svg)
        # Clips, markers and hatches; no other name is of use.
        used = {element.get("id", "") for element in root.iter()}
        used &= set(re.findall(r"(?:url\(|href=\")#([\w-]+)", self._svg.decode()))
        top = 0.0

        def own_name(match: re.Match[str]) -> str:
            return f"#{name}-{match[1]}" if match[1] in used else match[0]

        for element in root.iter():
            element.tag = element.tag.rpartition("}")[2]
            attributes = {key.rpartition("}")[2]: value for key, value in element.attrib.items()}
            element.attrib.clear()
            if (own := attributes.pop("id", "")) in used:
                element.set("id", f"{name}-{own}")
            for key, value in attributes.items():
                value = re.sub(r"#([\w-]+)", own_name, value)
                element.set(key, _in_page(value))
            if own == TITLE:
                places = " ".join(line.get("transform", "") for line in element.iter())
                top = max(map(float, re.findall(r"translate\(\S+ (\S+)\)", places))) + TEXT / 2
                element.clear()
        for place in root.iter("a"):
            place.attrib.pop("target", None)  # from Matplotlib 3.11 on
            place.set("tabindex", "-1")
        if (metadata := root.find("metadata")) is not None:
            root.remove(metadata)
        _, _, width, height = map(float, root.attrib["viewBox"].split())
        del root.attrib["width"], root.attrib["height"], root.attrib["version"]
        root.set("viewBox", f"0 {top:.0f} {width:.0f} {height - top:.0f}")
        # Words are about as large as the page's; a wide picture has large ones.
        root.set("style", f"min-width:{min(width, 860):.0f}px;max-width:{1.6 * width:.0f}px")
        leads = root.find(".//a") is not None
        root.attrib |= {"role": "group" if leads else "img", "aria-label": alt}
        return re.sub(r">\s+<", "><", ElementTree.tostring(root, "unicode", method="html"))


def save(figure: Figure, format: str) -> bytes:
    """A figure as a file's bytes; the same figure gives the same bytes."""
    file = io.BytesIO()
    # At this level zlib makes smaller files of such pictures, and sooner.
    more: dict[str, Any] = {"pil_kwargs": {"compress_level": 3}} if format == "png" else {}
    dated = ("Software",) if format == "png" else ("Date", "Creator")
    with drawing():
        figure.savefig(file, format=format, dpi=DPI, metadata=dict.fromkeys(dated), **more)
    return file.getvalue()


@contextmanager
def drawing() -> Iterator[None]:
    """The style, whatever that of the program is; a name that the font lacks is drawn as boxes."""
    with mpl.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        yield


def settle(figure: Figure) -> None:
    """Put everything in its place, once and for all that is drawn of the figure."""
    with drawing():
        if (engine := figure.get_layout_engine()) is not None:
            engine.execute(figure)
        figure.set_layout_engine(None)


@lru_cache(maxsize=512)
def _in_page(value: str) -> str:
    """An attribute of a figure as it is in a page: short, and in the page's own colours."""
    value = re.sub(r"font-family: [^;]+;?|stroke-miterlimit: \d+;?", "", value)
    value = re.sub(r"font: ([\d.]+px) [^;]+", r"font-size: \1", value)
    colours = "|".join(THEME)
    value = re.sub(rf"({colours})\b", lambda match: f"var(--{THEME[match[0]]})", value)
    value = re.sub(r"\d+\.\d{2,}", lambda match: f"{float(match[0]):.1f}", value)
    return " ".join(value.split())


def blank(width: float, height: float) -> Figure:
    """A figure of so many inches, with nothing in it."""
    figure = Figure(figsize=(width, height), dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def legend_above(ax: Axes, size: float, pad: float, columns: int = 0) -> None:
    """The legend above the axes, so many font sizes away."""
    handles, _ = ax.get_legend_handles_labels()
    ax.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        ncols=columns or len(handles),
        fontsize=size,
        borderaxespad=pad,
        handlelength=1.4,
        columnspacing=1.4,
    )


def legend_below(
    figure: Figure, entries: Iterable[tuple[str, Artist]], columns: int, title: str = ""
) -> None:
    """The legend below the axes: names, and how each is drawn."""
    # Matplotlib leaves out labels that begin with an underscore.
    named = [(f" {name}" if name[:1] == "_" else name, handle) for name, handle in entries]
    if not named:
        return
    labels, handles = zip(*named, strict=True)
    legend = figure.legend(
        handles,
        labels,
        title=title,
        loc="outside lower left",
        alignment="left",
        fontsize=TEXT - 0.5,
        title_fontsize=TEXT - 0.5,
        ncols=columns,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)


def entitle(figure: Figure, words: str, size: float = TEXT) -> None:
    """Give the figure a title, which a page leaves out."""
    title = figure.suptitle(words, x=0.01, ha="left", fontsize=size, parse_math=False)
    title.set_gid(TITLE)


def title(summary: Summary, most: int) -> str:
    """The network, its settings and its trials, in lines of so many characters at most."""
    recording = summary.recording
    settings, trial = recording.settings, summary.totals.trial
    trials = profiled_text(recording)
    if trial is not None:
        noun = "iteration" if recording.of_program else "unprofiled trial"
        of_others = recording.of_program or summary.totals.clean
        median = f"median of {plural(trial.count, noun)}" if of_others else "their median"
        interval = format_interval(trial.ci_low_s, trial.ci_high_s)
        interval = "no interval" if interval == NOT_KNOWN else f"95 % {interval}"
        trials += f"; {median} {format_duration(trial.median_s)} ({interval})"
    name = model_name(settings)
    if summary.several_phases:
        did = trial_text(recording)
        # The names of the phases are in the picture, so those in brackets may go.
        whole = len(name) + 2 + len(did) <= most
        name += f": {did if whole else did.partition(' (')[0]}"
    lines = (name, settings_text(settings), trials)
    return "\n".join(shorten(line, most) for line in lines)
