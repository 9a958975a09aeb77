"""Colours, style and titles of figures; figures as PNG, SVG and inline SVG."""

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

# The red and the blue-grey also differ in lightness, for colour-blind readers and grey print.
HOT_COLOUR = "#cc3311"
OTHER_COLOUR = "#a3b1c2"
#: Differs from the red of slower layers for colour-blind readers too.
FASTER_COLOUR = "#0072b2"
SAME_COLOUR = "#5f6f82"
INK, GRID, BAND = "#222222", "#dddddd", "#f1f1f1"
# The page's light colours for series, for the time between them, and for bars of one kind.
SERIES_COLOURS = (
    *("#228877", "#d98c1f", "#8b5fa8", "#8a9a3b"),
    *("#c0698e", "#8c6d4f", "#66a9d8"),
)
BETWEEN_COLOUR, ACCENT = "#d3dae2", "#1f5f9f"
#: Name of each colour in the page's style sheet.
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
    **{colour: f"series-{index}" for index, colour in enumerate(SERIES_COLOURS)},
}
DPI = 150
#: Id of the title in a figure's SVG.
TITLE = "title"
#: Default font size in points.
TEXT = 9.0
#: Options of ``Axes.annotate`` for text centred above a point.
ABOVE: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "va": "bottom"}

STYLE: dict[str, Any] = {
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.6,
    # A pale grid below the data, and no frame.
    "axes.axisbelow": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    # Each figure chooses its own layout.
    "figure.autolayout": False,
    "figure.constrained_layout.use": False,
    "font.family": ["sans-serif"],
    # Matplotlib ships the first one; the others are for browsers that show the SVG.
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial", "Helvetica"],
    "font.size": TEXT,
    "legend.frameon": False,
    "path.simplify": True,
    "savefig.bbox": None,
    "savefig.transparent": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "chainer-profile",
    "text.color": INK,
    # Letters look the same at 150 dots per inch, and are drawn in half the time.
    "text.hinting": "none",
    "text.usetex": False,
    "xtick.color": INK,
    "ytick.color": INK,
}


class Picture:
    """A figure that is drawn at its first use, once for PNG, SVG and the page."""

    def __init__(self, draw: Callable[[], Figure]) -> None:
        self._draw = draw

    @cached_property
    def figure(self) -> Figure:
        """Matplotlib's figure with its final layout."""
        figure = self._draw()
        settle(figure)
        return figure

    def png(self) -> bytes:
        """The PNG file, with 150 dots per inch."""
        return save(self.figure, "png")

    def svg(self) -> bytes:
        """The SVG file. Its text can be searched; links into a page are removed."""
        return re.sub(rb"</?a\b[^>]*>\s*", b"", self._svg)

    @cached_property
    def _svg(self) -> bytes:
        return save(self.figure, "svg")

    def in_page(self, name: str, alt: str) -> str:
        """The SVG for a page, without its title. Its ids begin with ``name``."""
        root = ElementTree.fromstring(self._svg)
        # Only ids of clips, markers and hatches are referred to.
        used = {element.get("id", "") for element in root.iter()}
        used &= set(re.findall(r"(?:url\(|href=\")#([\w-]+)", self._svg.decode()))
        top = 0.0

        def prefixed_id(match: re.Match[str]) -> str:
            return f"#{name}-{match[1]}" if match[1] in used else match[0]

        for element in root.iter():
            element.tag = element.tag.rpartition("}")[2]
            attributes = {key.rpartition("}")[2]: value for key, value in element.attrib.items()}
            element.attrib.clear()
            if (element_id := attributes.pop("id", "")) in used:
                element.set("id", f"{name}-{element_id}")
            for key, value in attributes.items():
                value = re.sub(r"#([\w-]+)", prefixed_id, value)
                element.set(key, _page_attribute(value))
            if element_id == TITLE:
                transforms = " ".join(line.get("transform", "") for line in element.iter())
                top = max(map(float, re.findall(r"translate\(\S+ (\S+)\)", transforms))) + TEXT / 2
                element.clear()
        for anchor in root.iter("a"):
            anchor.attrib.pop("target", None)  # from Matplotlib 3.11 on
            anchor.set("tabindex", "-1")
        if (metadata := root.find("metadata")) is not None:
            root.remove(metadata)
        _, _, width, height = map(float, root.attrib["viewBox"].split())
        del root.attrib["width"], root.attrib["height"], root.attrib["version"]
        root.set("viewBox", f"0 {top:.0f} {width:.0f} {height - top:.0f}")
        # Text is about as large as the page's. A wide picture has larger text.
        root.set("style", f"min-width:{min(width, 860):.0f}px;max-width:{1.6 * width:.0f}px")
        has_links = root.find(".//a") is not None
        root.attrib |= {"role": "group" if has_links else "img", "aria-label": alt}
        return re.sub(r">\s+<", "><", ElementTree.tostring(root, "unicode", method="html"))


def save(figure: Figure, format: str) -> bytes:
    """Render a figure as the bytes of a file; the same figure gives the same bytes."""
    file = io.BytesIO()
    # For such pictures this level is faster than the default and makes smaller files.
    more: dict[str, Any] = {"pil_kwargs": {"compress_level": 3}} if format == "png" else {}
    dated = ("Software",) if format == "png" else ("Date", "Creator")
    with drawing():
        figure.savefig(file, format=format, dpi=DPI, metadata=dict.fromkeys(dated), **more)
    return file.getvalue()


@contextmanager
def drawing() -> Iterator[None]:
    """Use our style within the block, and draw characters that the font lacks as boxes."""
    with mpl.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        yield


def settle(figure: Figure) -> None:
    """Compute the layout once, so that PNG and SVG need not compute it again."""
    with drawing():
        if (engine := figure.get_layout_engine()) is not None:
            engine.execute(figure)
        figure.set_layout_engine(None)


@lru_cache(maxsize=512)
def _page_attribute(value: str) -> str:
    """Shorten the value of an SVG attribute, and replace colours by the page's variables."""
    value = re.sub(r"font-family: [^;]+;?|stroke-miterlimit: \d+;?", "", value)
    value = re.sub(r"font: ([\d.]+px) [^;]+", r"font-size: \1", value)
    colours = "|".join(THEME)
    value = re.sub(rf"({colours})\b", lambda match: f"var(--{THEME[match[0]]})", value)
    value = re.sub(r"\d+\.\d{2,}", lambda match: f"{float(match[0]):.1f}", value)
    return " ".join(value.split())


def blank(width: float, height: float) -> Figure:
    """An empty figure; width and height are in inches."""
    figure = Figure(figsize=(width, height), dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def legend_above(ax: Axes, size: float, pad: float, columns: int = 0) -> None:
    """Draw the legend above the axes, ``pad`` font sizes away, by default on one line."""
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
    """Draw a legend of (label, artist) pairs below the axes."""
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


def set_title(figure: Figure, text: str, size: float = TEXT) -> None:
    """Give the figure a title, which :meth:`Picture.in_page` removes."""
    title = figure.suptitle(text, x=0.01, ha="left", fontsize=size, parse_math=False)
    title.set_gid(TITLE)


def title(summary: Summary, width: int) -> str:
    """Three lines of at most ``width`` characters: the network, its settings, its trials."""
    recording = summary.recording
    settings, trial = recording.settings, summary.totals.trial
    trials = profiled_text(recording)
    if trial is not None:
        noun = "iteration" if recording.of_program else "unprofiled trial"
        other_trials = recording.of_program or summary.totals.clean
        median = f"median of {plural(trial.count, noun)}" if other_trials else "their median"
        interval = format_interval(trial.ci_low_s, trial.ci_high_s)
        interval = "no interval" if interval == NOT_KNOWN else f"95 % {interval}"
        trials += f"; {median} {format_duration(trial.median_s)} ({interval})"
    name = model_name(settings)
    if summary.several_phases:
        trial_kind = trial_text(recording)
        # The names of the phases are in the picture, so the brackets with them may go.
        fits = len(name) + 2 + len(trial_kind) <= width
        name += f": {trial_kind if fits else trial_kind.partition(' (')[0]}"
    lines = (name, settings_text(settings), trials)
    return "\n".join(shorten(line, width) for line in lines)
