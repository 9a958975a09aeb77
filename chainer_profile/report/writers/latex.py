"""Tables -> LaTeX in ASCII, with booktabs and longtable, whatever a document's encoding is."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

from chainer_profile.report.tables import Table
from chainer_profile.report.text import printable


def _pairs(lines: str) -> dict[str, str]:
    words = lines.split()
    return dict(zip(words[::2], words[1::2], strict=True))


#: Signs with a meaning in LaTeX or in a language of babel, and what shows them: \symbol is in every
#: encoding of fonts. A line may end behind _ and /, or a path would run out of its column. At the
#: begin of a row a bracket or a star would belong to the end of the row before.
_SIGNS = _pairs(r"""
    \ \textbackslash{}   { \{   } \}   $ \$   & \&   # \#   % \%   _ \_\allowbreak{}
    / /\allowbreak{}   ^ \textasciicircum{}   ~ \textasciitilde{}   < \textless{}   > \textgreater{}
    | \textbar{}   " \symbol{34}   ` \symbol{96}   ' \symbol{39}   [ {[}   ] {]}   * {*}
""")
#: Letters and signs beyond ASCII that every LaTeX has.
_BEYOND = _pairs(r"""
    ± $\pm$   · $\cdot$   ÷ $\div$   ° $^\circ$   ² $^2$   ³ $^3$   µ $\mu$   Ω $\Omega$
    → $\rightarrow$   ← $\leftarrow$   ↑ $\uparrow$   ↓ $\downarrow$   ↔ $\leftrightarrow$
    ⇒ $\Rightarrow$   ≤ $\leq$   ≥ $\geq$   ≠ $\neq$   ≈ $\approx$   ∞ $\infty$   ∑ $\sum$
    ∂ $\partial$   ß \ss{}   æ \ae{}   Æ \AE{}   œ \oe{}   Œ \OE{}   ø \o{}   Ø \O{}   å \aa{}
    Å \AA{}   ł \l{}   Ł \L{}   — ---   … \ldots{}   “ ``   ” ''
""") | {
    "\u00a0": "~",
    "\u00d7": r"$\times$",
    "\u0131": r"\i{}",
    "\u2013": "--",
    "\u2018": "`",
    "\u2019": "'",
}
#: Accents as Unicode combines them with letters, and as LaTeX does.
_ACCENTS = dict(
    zip(
        "\u0300\u0301\u0302\u0303\u0304\u0306\u0307\u0308\u030a\u030b\u030c\u0323\u0327",
        "`'^~=u.\"rHvdc",
        strict=True,
    )
)
#: Columns from which on there is less room between them.
_MANY = 7
_GREEK = {
    "GREEK SMALL LETTER": {
        *("ALPHA", "BETA", "GAMMA", "DELTA", "EPSILON", "ZETA", "ETA", "THETA", "IOTA", "KAPPA"),
        *("MU", "NU", "XI", "PI", "RHO", "SIGMA", "TAU", "UPSILON", "PHI", "CHI", "PSI", "OMEGA"),
    },
    "GREEK CAPITAL LETTER": {
        *("GAMMA", "DELTA", "THETA", "XI", "PI", "SIGMA", "UPSILON", "PHI", "PSI", "OMEGA"),
    },
}


#: Characters from which on a column of names folds, and the part of the line that it then has.
_FOLDS, _PART = 28, "0.26"
#: Columns of a marked row that are bold: with all of them the table would be too wide.
_BOLD = 2
#: Rows from which on a table may go over several pages.
_LONG = 40
#: ``\input`` the file is tables alone, compiled alone a document: that is where none has begun, as
#: LaTeX's kernel lets this be ``\relax`` when one begins.
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


def write(
    tables: Iterable[tuple[str, Table]],
    *,
    title: str,
    prefix: str,
    by_whom: Sequence[tuple[str, str]] = (),
) -> str:
    r"""The tables by the names of their labels; the last one may go over several pages."""
    said = (f"{name}: {text(value)}" for name, value in by_whom)
    parts = [_table(table, f"tab:{label(f'{prefix}-{name}')}") for name, table in tables]
    # A long table begins on a page of its own where the file is compiled alone.
    parts.insert(-1, r"\ifdefined\chainerprofilealone\clearpage\fi")
    return "\n".join(
        (
            comment(f"{title}: tables made by chainer-profile."),
            comment(r"\input this file into a document with \usepackage{booktabs,longtable},"),
            comment("or compile it alone."),
            _HEAD,
            r"\ifdefined\chainerprofilealone",
            r"\section*{" + text(title) + "}",
            *([r"\noindent " + r"\\".join(said)] if by_whom else ()),
            r"\fi",
            "",
            "\n\n".join(parts),
            "",
            _FOOT,
            "",
        )
    )


def _table(table: Table, name: str) -> str:
    """A table: texts to the left, numbers to the right; names and values where it has no head."""
    rows = table.cells()
    if not table.head:
        lines = [[text(key), r"\raggedright " + text(value)] for key, value in rows]
        return tabular([], lines, r"lp{0.55\linewidth}", text(table.caption), name)
    wide = [
        max((len(row[at]) for row in rows), default=0) > _FOLDS for at in range(len(table.columns))
    ]
    kinds = (
        f"p{{{_PART}\\linewidth}}" if folds else "r" if column.folds is None else "l"
        for column, folds in zip(table.columns, wide, strict=True)
    )
    lines = []
    for at, row in enumerate(rows):
        bold = _BOLD if table.mark(at) else 0
        shown = (
            rf"\textbf{{{text(cell)}}}" if place < bold and cell else text(cell)
            for place, cell in enumerate(row)
        )
        lines.append([r"\raggedright " * folds + c for folds, c in zip(wide, shown, strict=True)])
    # Of many columns the short headings.
    names = [column.name for column in table.columns]
    head = [text(heading) for heading in (names if len(names) > _MANY else table.head)]
    long = len(rows) > _LONG or any(table.marks)
    return tabular(head, lines, "".join(kinds), text(table.caption), name, long=long)


def text(name: object) -> str:
    """A name or a sentence, shown as it is; letters that no LaTeX has by their numbers."""
    shown = "".join(map(_sign, printable(str(name)).strip()))
    # Two of them would become one sign.
    return re.sub(r"([-,])(?=\1)", r"\1{}", shown)


def _sign(sign: str) -> str:
    if sign in _SIGNS:
        return _SIGNS[sign]
    if sign.isascii():
        return sign
    if sign in _BEYOND:
        return _BEYOND[sign]
    letter, *accents = list(unicodedata.normalize("NFD", sign))
    if letter.isascii() and letter.isalpha() and len(accents) == 1 and accents[0] in _ACCENTS:
        # An accent takes the place of the dot.
        letter = {"i": r"\i", "j": r"\j"}.get(letter, letter) if accents[0] < "\u0323" else letter
        return rf"\{_ACCENTS[accents[0]]}{{{letter}}}"
    kind, _, greek = unicodedata.name(sign, "").rpartition(" ")
    if greek in _GREEK.get(kind, ()):
        return f"$\\{greek.lower() if 'SMALL' in kind else greek.capitalize()}$"
    return "".join(_SIGNS.get(c, c) for c in sign.encode("unicode_escape").decode("ascii"))


def comment(line: str) -> str:
    """A line that LaTeX passes over."""
    shown = printable(line).encode("ascii", "backslashreplace").decode("ascii")
    return f"% {shown}"


def label(name: str) -> str:
    """A name of nothing but letters, digits and hyphens, for a label."""
    return re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-").lower()


def tabular(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    columns: str,
    caption: str,
    name: str,
    *,
    long: bool = False,
) -> str:
    """A table with its caption and label; cells are LaTeX."""
    room = "1.5pt" if len(head) > _MANY else "3.5pt"
    size = rf"\footnotesize\setlength{{\tabcolsep}}{{{room}}}"
    # What ends a row even behind a cell that is set in paragraphs.
    end = r" \tabularnewline"
    lines = [" & ".join(row) + end for row in rows]
    headings = [r"\toprule", *([" & ".join(head) + end, r"\midrule"] if head else [])]
    if long:
        again = rf"\multicolumn{{{len(head)}}}{{l}}{{\emph{{continued}}}}"
        parts = [
            r"\begingroup" + size,
            rf"\begin{{longtable}}{{{columns}}}",
            rf"\caption{{{caption}}}\label{{{name}}}" + end,
            *(*headings, r"\endfirsthead", again + end, *headings, r"\endhead"),
            *(r"\bottomrule", r"\endfoot", *lines),
            r"\end{longtable}",
            r"\endgroup",
        ]
    else:
        parts = [
            r"\begin{table}[htbp]",
            r"\centering" + size,
            rf"\caption{{{caption}}}",
            rf"\label{{{name}}}",
            rf"\begin{{tabular}}{{{columns}}}",
            *(*headings, *lines, r"\bottomrule"),
            r"\end{tabular}",
            r"\end{table}",
        ]
    return "\n".join(parts)
