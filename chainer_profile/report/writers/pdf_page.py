"""A PDF on A4 pages: its fonts, and how text, tables and figures are laid out on them."""

from __future__ import annotations

import io
import logging
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
from fpdf import FPDF
from fpdf.enums import TableBordersLayout, TableBorderStyle, TableCellStyle, XPos, YPos
from fpdf.fonts import FontFace, TTFFont

from chainer_profile.report.pictures.figures import shorten
from chainer_profile.report.writers.pdf_text import Piece

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from chainer_profile.report.writers.pdf_text import Cells, Passage

# Matplotlib brings these fonts; the last one has the letters that the first lacks.
BODY, HEAD, CODE, OTHER = "stix", "head", "mono", "other"
_FONTS = (
    (BODY, "", "STIXGeneral.ttf"),
    (BODY, "B", "STIXGeneralBol.ttf"),
    (BODY, "I", "STIXGeneralItalic.ttf"),
    (BODY, "BI", "STIXGeneralBolIta.ttf"),
    (HEAD, "B", "DejaVuSans-Bold.ttf"),
    (CODE, "", "DejaVuSansMono.ttf"),
    (CODE, "B", "DejaVuSansMono-Bold.ttf"),
    (OTHER, "", "DejaVuSans.ttf"),
    (OTHER, "B", "DejaVuSans-Bold.ttf"),
    (OTHER, "I", "DejaVuSans-Oblique.ttf"),
    (OTHER, "BI", "DejaVuSans-BoldOblique.ttf"),
)
_MARGIN, _TOP, _BOTTOM = 22.0, 22.0, 22.0
_TEXT, _SMALL, _CODE = 10.5, 9.0, 8.5
#: Sizes of the words of tables in points, the largest that fits is taken.
_TABLE = (9.0, 8.5, 8.0, 7.5)
#: Line height as a multiple of the font size, and millimetres in a point.
_LEADING, _MM = 1.3, 25.4 / 72
_INK, _GREY, _TINT, _SHADE = "#1c1c1c", "#5c6670", "#fbe9e5", "#f3f5f7"
_RULE, _HAIR = 0.30, 0.10
#: Between two columns of a table, on either side; the least width of a column of names.
_PAD, _LEAST = 1.1, 17.0
#: Width up to which what stands in a column of numbers is not folded.
_SHAPES = 30.0
#: A cell has so many characters at most; `layers.csv` has all.
_MOST = 240
#: A table that is no higher than this is not cut by the end of a page.
_WHOLE = 90.0
_HEADINGS = {1: 20.0, 2: 14.0, 3: 11.0}


@dataclass(frozen=True)
class Picture:
    """A drawing as SVG, its letters as outlines, with its size in any unit."""

    svg: bytes
    width: float
    height: float


class _Rules(TableBordersLayout):
    """A rule above and below a table and below its head, hairlines between its rows."""

    def cell_style_getter(
        self,
        row_idx: int,
        col_idx: int,
        col_pos: int,
        num_heading_rows: int,
        num_rows: int,
        num_col_idx: int,
        num_col_pos: int,
    ) -> TableCellStyle:
        """Which lines a cell has."""
        strong, hair = TableBorderStyle(_RULE, 28), TableBorderStyle(_HAIR, 200)
        # A row's tint lies over the line below the row before: the line is its own.
        first = row_idx in (0, num_heading_rows)
        return TableCellStyle(
            top=strong if first else hair, bottom=strong if row_idx == num_rows - 1 else False
        )


class Pages(FPDF):
    """The pages of a report. Lengths are in millimetres, font sizes in points."""

    def __init__(self, running: str) -> None:
        """Begin the first page.

        Args:
            running: What stands at the foot of every page, beside its number.
        """
        super().__init__(format="A4", unit="mm")
        # Warnings on what pictures hold that a PDF needs not.
        logging.getLogger("fpdf.svg").setLevel(logging.ERROR)
        self.str_alias_nb_pages = ""
        self._running = running
        self._columns: dict[Cells, list[tuple[float, float]]] = {}
        folder = Path(mpl.get_data_path(), "fonts", "ttf")
        for family, style, name in _FONTS:
            self.add_font(family, style, folder / name)
        self.set_fallback_fonts([OTHER], exact_match=False)
        font = self.fonts[OTHER]
        assert isinstance(font, TTFFont)
        self._known = set(font.cmap)
        self.set_lang("en")
        self.set_margins(_MARGIN, _TOP)
        # Words begin where rules and figures do.
        self.c_margin = 0
        self.set_auto_page_break(True, _BOTTOM)
        self.set_text_color(_INK)
        self.set_draw_color(_INK)
        self.add_page()

    def footer(self) -> None:
        """A line with the report's title and the page's number."""
        self.set_y(-14)
        self._style(Piece(""), _SMALL)
        self.set_text_color(_GREY)
        number = str(self.page_no())
        before = self.text_shaping
        self._prepare([self._running])
        room = self.epw - 15
        name = self.shown(self._running)
        while name and self.get_string_width(name) > room:
            name = name[:-2] + "…"
        self.cell(self.epw - 15, 5, name)
        self.cell(15, 5, number, align="R")
        self.text_shaping = before
        self.set_text_color(_INK)

    def shown(self, text: str) -> str:
        """A text in letters that the fonts have: of any other its number."""
        return "".join(
            c if ord(c) in self._known else c.encode("unicode_escape").decode("ascii") for c in text
        )

    def _prepare(self, texts: Iterable[str]) -> bool:
        """Before texts are written: whether any of them has letters from right to left.

        Then letters are joined and ordered as their script wants it, which takes longer.
        """
        turned = any(unicodedata.bidirectional(c) in ("R", "AL") for text in texts for c in text)
        self.set_text_shaping(turned)
        return turned

    def room(self) -> float:
        """Height that is left on the page."""
        return float(self.page_break_trigger - self.get_y())

    def fresh(self) -> bool:
        """Whether nothing has been written on the page."""
        return bool(self.get_y() <= self.t_margin + 0.01)

    def need(self, height: float) -> None:
        """A new page, unless so much is left on this one."""
        if self.room() < height and not self.fresh():
            self.add_page(same=True)

    def turn(self, landscape: bool) -> None:
        """Go on on a page that stands or lies, a new one where this one does not."""
        if landscape != (self.cur_orientation.value == "L"):
            self.add_page(orientation="landscape" if landscape else "portrait")

    def gap(self, height: float) -> None:
        """Leave some room, but not on top of a page."""
        if not self.fresh():
            self.ln(height)

    def _style(self, piece: Piece, size: float) -> None:
        emphasis = ("B" if piece.bold else "") + ("I" if piece.italic else "")
        if piece.code:
            self.set_font(CODE, emphasis.replace("I", ""), size * 0.85)
        else:
            self.set_font(BODY, emphasis, size)

    # --- text

    def put_title(self, name: str, by_whom: Iterable[tuple[str, str]]) -> None:
        """The title of the report, and by whom it is."""
        self._prepare([name])
        self.set_font(HEAD, "B", _HEADINGS[1])
        height = _HEADINGS[1] * _MM * 1.25
        self.multi_cell(0, height, self.shown(name), align="L", new_x=XPos.LMARGIN, new_y=YPos.NEXT)
        self.ln(2)
        for label, value in by_whom:
            said = (Piece(f"{label}: ", bold=True), Piece(value))
            self._flow(said, _TEXT + 0.5)
        self.ln(1.5)
        self.set_line_width(_RULE)
        self.line(self.l_margin, self.get_y(), self.l_margin + self.epw, self.get_y())
        self.ln(3)

    def put_heading(self, level: int, name: str) -> None:
        """A heading that the reader's outline of the file has too."""
        size = _HEADINGS[level]
        self.gap(6.0 if level == 2 else 3.5)
        self._prepare([name])
        self.start_section(self.shown(name), level - 2, strict=False)
        self.set_font(HEAD, "B", size)
        self.multi_cell(
            0, size * _MM * 1.3, self.shown(name), align="L", new_x=XPos.LMARGIN, new_y=YPos.NEXT
        )
        self.ln(1.5)

    def put_passage(self, passage: Passage) -> None:
        """A paragraph, a point or a note."""
        if passage.kind == "note":
            self.set_fill_color(_SHADE)
            words = self.shown("".join(piece.text for piece in passage.pieces))
            self._prepare([words])
            self._style(Piece(""), _TEXT)
            self.multi_cell(
                0,
                _TEXT * _MM * _LEADING,
                words,
                align="L",
                fill=True,
                padding=2,
                new_x=XPos.LMARGIN,
                new_y=YPos.NEXT,
            )
        else:
            self._flow(passage.pieces, _TEXT, point=passage.kind == "point")
        self.ln(1.2 if passage.kind == "point" else 2.2)

    def _flow(self, pieces: Iterable[Piece], size: float, point: bool = False) -> None:
        """Pieces of text one behind the other, folded at the margins."""
        self._style(Piece(""), size)
        pieces = list(pieces)
        if self._prepare(piece.text for piece in pieces):
            # Order goes beyond a piece, so that they are written as one.
            words = self.shown("".join(piece.text for piece in pieces))
            self.multi_cell(
                0,
                size * _MM * _LEADING,
                f"• {words}" if point else words,
                align="L",
                new_x=XPos.LMARGIN,
                new_y=YPos.NEXT,
            )
            return
        with (
            self.text_columns(text_align="L", line_height=_LEADING) as columns,
            columns.paragraph(
                indent=5 if point else 0,
                bullet_string="•" if point else "",
                bullet_r_margin=2 if point else None,
            ) as paragraph,
        ):
            for piece in pieces:
                self._style(piece, size)
                paragraph.write(self.shown(piece.text))

    def put_code(self, lines: str) -> None:
        """Lines as they are, on a shade."""
        self._prepare([lines])
        self.set_font(CODE, "", _CODE)
        self.set_fill_color(_SHADE)
        self.multi_cell(
            0,
            _CODE * _MM * 1.4,
            self.shown(lines),
            align="L",
            fill=True,
            padding=2,
            new_x=XPos.LMARGIN,
            new_y=YPos.NEXT,
        )
        self.ln(3)

    def put_caption(self, label: str, pieces: Iterable[Piece]) -> None:
        """The caption of a table or a figure."""
        self._flow((Piece(f"{label} ", bold=True), *pieces), _SMALL)

    def caption_height(self, pieces: Iterable[Piece]) -> float:
        """About the height of a caption."""
        return self._folded(pieces, _SMALL, more=20.0)

    def text_height(self, pieces: Iterable[Piece]) -> float:
        """About the height of a paragraph."""
        return self._folded(pieces, _TEXT) + 2.2

    def _folded(self, pieces: Iterable[Piece], size: float, more: float = 0.0) -> float:
        self._style(Piece(""), size)
        width = self.get_string_width(self.shown("".join(p.text for p in pieces))) + more
        return float((1 + width // (0.95 * self.epw)) * size * _MM * _LEADING)

    # --- figures

    def figure_height(self, picture: Picture) -> float:
        """The height of a picture that is as wide as the text."""
        return min(self.epw * picture.height / picture.width, 0.8 * self.eph)

    def put_figure(self, picture: Picture, told: str) -> None:
        """A picture as wide as the text, or as high as fits.

        Args:
            picture: The picture.
            told: What it shows, for those who do not see it.
        """
        height = self.figure_height(picture)
        width = height * picture.width / picture.height
        at = self.l_margin + (self.epw - width) / 2
        self.image(io.BytesIO(picture.svg), x=at, w=width, h=height, alt_text=told)
        self.ln(1)

    # --- tables

    def _widths(self, cells: Cells, size: float, room: float) -> list[float] | None:
        """The widths of the columns in this size of letters, or None where they are too wide."""
        # The sum of widths may not be more, not by the last digit either.
        room -= 0.01
        found = [
            (size * natural + 2 * _PAD + 0.3, size * least + 2 * _PAD + 0.3)
            for natural, least in self._measured(cells)
        ]
        widths = [natural for natural, _ in found]
        over = sum(widths) - room
        # Shapes fold between two of them, names within: they come last.
        for numbers in (True, False):
            spare = [
                natural - least if number == numbers else 0.0
                for (natural, least), number in zip(found, cells.numbers, strict=True)
            ]
            taken = min(max(over, 0.0), sum(spare))
            if taken:
                parts = [taken * part / sum(spare) for part in spare]
                widths = [width - part for width, part in zip(widths, parts, strict=True)]
                over -= taken
        return widths if over <= 1e-9 else None

    def _measured(self, cells: Cells) -> list[tuple[float, float]]:
        """Of every column its width and the least that it can have, in letters of one point."""
        if cells not in self._columns:
            self._columns[cells] = [
                self._column([row[at] for row in cells.rows], cells.head[at : at + 1], number)
                for at, number in enumerate(cells.numbers)
            ]
        return self._columns[cells]

    def _column(
        self, column: Sequence[Piece], head: Sequence[Piece], number: bool
    ) -> tuple[float, float]:
        name = max((self._head_width(piece.text.split()) for piece in head), default=0.0)
        widest = max([name, *map(self._width, column)])
        least = max(_LEAST / _TABLE[0], name)
        if number:
            # Numbers stay whole; shapes of many arrays fold between them.
            words = [Piece(word) for piece in column for word in set(piece.text.split())]
            least = max([name, *map(self._width, words)])
            if widest <= _SHAPES / _TABLE[0]:
                least = widest
        return widest, min(widest, least)

    def _head_width(self, words: list[str]) -> float:
        """The width of a heading that is folded once, where it folds best."""
        folds = [(words[:at], words[at:]) for at in range(1, len(words) + 1)]
        lines = [[Piece(" ".join(part), bold=True) for part in fold] for fold in folds]
        return min((max(map(self._width, parts)) for parts in lines), default=0.0)

    def _width(self, piece: Piece) -> float:
        self._style(piece, 100.0)
        return float(self.get_string_width(self.shown(shorten(piece.text, _MOST)))) / 100

    def put_table(self, cells: Cells) -> None:
        """A table, on lying pages where it is too wide for standing ones.

        Rows in bold have a tint; its head is repeated on every page.
        """
        size, widths = self._sized(cells)
        self._prepare(piece.text for row in cells.rows for piece in row)
        faces: dict[tuple[bool, bool], FontFace] = {}
        self._style(Piece(""), size)
        self.fill_color = self.DEFAULT_FILL_COLOR
        aligns = tuple("RIGHT" if number else "LEFT" for number in cells.numbers)
        line = size * _MM * 1.25
        with self.table(
            align="LEFT",
            borders_layout=_Rules(),
            col_widths=widths,
            width=sum(widths),
            first_row_as_headings=bool(cells.head),
            headings_style=FontFace(BODY, "B"),
            line_height=line,
            padding=(0.45, _PAD, 0.45, _PAD),
            text_align=aligns,
            v_align="TOP",
        ) as table:
            for row in ([cells.head] if cells.head else []) + list(cells.rows):
                marked = bool(cells.head) and row is not cells.head and any(p.bold for p in row)
                drawn = table.row()
                for piece in row:
                    key = (marked, piece.code)
                    if key not in faces:
                        faces[key] = FontFace(
                            CODE if piece.code else BODY,
                            "B" if marked else None,
                            size * 0.85 if piece.code else size,
                            fill_color=_TINT if marked else None,
                        )
                    text = self.shown(shorten(piece.text, _MOST))
                    drawn.cell(text, style=None if row is cells.head else faces[key])
        self.ln(3.5)

    def _sized(self, cells: Cells) -> tuple[float, list[float]]:
        """The largest letters with which a table is as wide as the page, and its columns."""
        measured = self._measured(cells)
        around = len(measured) * (2 * _PAD + 0.3)
        for size in _TABLE:
            # Smaller letters are better than names that are folded.
            fits = size * sum(natural for natural, _ in measured) + around <= self.epw
            widths = self._widths(cells, size, self.epw)
            if widths is not None and (fits or size == _TABLE[-1]):
                return size, widths
        # Wider than any page: what is in the columns is folded within its letters.
        share = (self.epw - 0.01) / max(1, len(cells.numbers))
        return _TABLE[-1], [share] * len(cells.numbers)

    def lies(self, cells: Cells) -> bool:
        """Whether a table needs a page that lies."""
        room = min(self.w, self.h) - 2 * _MARGIN
        return all(self._widths(cells, size, room) is None for size in _TABLE)

    def table_height(self, cells: Cells) -> float:
        """About the height of a table, or of its first rows where it may be cut."""
        row = _TABLE[0] * _MM * 1.25 + 0.9
        whole = (len(cells.rows) + 2) * row
        return whole if whole <= _WHOLE else 6 * row
