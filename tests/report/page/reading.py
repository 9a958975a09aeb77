"""What is in a page, read as a browser does: what the page's tests share."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

_VOID = {"meta", "link", "input", "br", "hr", "img"}


@dataclass
class Read(HTMLParser):
    """The elements of a page: their names, scripts, ids, tables and text."""

    html: str
    tags: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.feed(self.html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")
        elif tag == "tr":
            self.rows.append([])
        elif tag in ("th", "td"):
            self.rows[-1].append("")
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data
        elif "style" not in self.open:
            self.words.append(data)
            if {"td", "th"} & set(self.open):
                self.rows[-1][-1] += data

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())

    @property
    def ids(self) -> set[str | None]:
        return {attributes.get("id") for _, attributes in self.tags}

    @property
    def pictures(self) -> list[str | None]:
        """What the drawn pictures are, in their order."""
        return [a["aria-label"] for tag, a in self.tags if tag == "svg" and "aria-label" in a]

    @property
    def policy(self) -> str:
        (found,) = [
            a["content"] for t, a in self.tags if a.get("http-equiv") == "Content-Security-Policy"
        ]
        return str(found)

    def column(self, heading: str) -> list[str]:
        """The cells of a column of the table of all layers."""
        head, *rows = self.rows[next(at for at, row in enumerate(self.rows) if "trials" in row) :]
        at = head.index(heading)
        return [row[at] for row in rows if len(row) == len(head)]
