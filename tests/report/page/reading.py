"""What is in a page, read as a browser does: what the page's tests share."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

import numpy as np

_VOID = {"meta", "link", "input", "br", "hr", "img"}


@dataclass
class Script:
    attributes: dict[str, str | None]
    text: str = ""


@dataclass
class Read(HTMLParser):
    """The elements of a page: their names, scripts, ids and text."""

    html: str
    tags: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    scripts: list[Script] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.feed(self.html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append(Script(dict(attrs)))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts[-1].text += data
        elif not self.open or self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())

    @property
    def ids(self) -> set[str | None]:
        return {attributes.get("id") for _, attributes in self.tags}

    @property
    def data(self) -> dict[str, Any]:
        (found,) = [s for s in self.scripts if s.attributes.get("id") == "data"]
        return json.loads(found.text)

    @property
    def charts(self) -> dict[str, Any]:
        return {
            str(s.attributes["data-of"]): json.loads(s.text)
            for s in self.scripts
            if "data-of" in s.attributes
        }

    @property
    def policy(self) -> str:
        (found,) = [
            a["content"] for t, a in self.tags if a.get("http-equiv") == "Content-Security-Policy"
        ]
        return str(found)


def cells(column: dict[str, Any]) -> list[str]:
    """The texts of a column."""
    if "cells" in column:
        return list(column["cells"])
    at = np.frombuffer(base64.b64decode(column["at"]), "<u2")
    return [column["words"][i] for i in at]


def column(table: dict[str, Any], key: str) -> dict[str, Any]:
    (found,) = [c for c in table["columns"] if c["key"] == key]
    return found


def ranks(found: dict[str, Any]) -> np.ndarray:
    return np.frombuffer(base64.b64decode(found["rank"]), "<u4")


def sources(chart: dict[str, Any]) -> list[dict[str, list[Any]]]:
    """The data of every source of a chart."""
    found = []

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            if value.get("name") == "ColumnDataSource":
                found.append(dict(value["attributes"]["data"]["entries"]))
            for part in value.values():
                walk(part)
        elif isinstance(value, list):
            for part in value:
                walk(part)

    walk(chart)
    return found
