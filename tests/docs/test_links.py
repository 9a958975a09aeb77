"""Relative links in the texts for readers lead to a file that is there, and to a heading in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from markdown_it import MarkdownIt

from tests import ROOT

PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md"]
for folder in ("docs", "reports/samples", "reports/references"):
    PAGES += sorted((ROOT / folder).rglob("*.md"))


def links(text: str) -> Iterator[str]:
    """The addresses of a text's links and pictures."""
    for block in MarkdownIt().enable("table").parse(text):
        for token in block.children or []:
            address = token.attrs.get("href") or token.attrs.get("src")
            if address:
                yield unquote(str(address))


def anchors(text: str) -> set[str]:
    """What GitHub calls the headings."""
    titles = re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def broken(page: Path) -> list[str]:
    """The relative links that lead nowhere."""
    found = []
    for address in links(page.read_text()):
        parts = urlsplit(address)
        if parts.scheme or parts.netloc:
            continue
        target = page.parent / parts.path if parts.path else page
        if not target.exists() or (
            parts.fragment
            and target.suffix == ".md"
            and parts.fragment not in anchors(target.read_text())
        ):
            found.append(address)
    return found


def test_relative_links() -> None:
    found = {str(page.relative_to(ROOT)): broken(page) for page in PAGES}
    assert {page: links for page, links in found.items() if links} == {}


def test_the_index_has_every_page_once() -> None:
    docs = ROOT / "docs"
    listed = re.findall(r"^- \[(.+)\]\(\1\): ", (docs / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted({page.name for page in docs.glob("*.md")} - {"README.md"})


@pytest.mark.parametrize("page", ["architecture.md", "recipes.md"])
def test_modules_that_a_page_names_are_there(page: str) -> None:
    named = set(re.findall(r"`([\w/]+\.py)`", (ROOT / "docs" / page).read_text()))
    assert len(named) > 8
    rooms = [ROOT / room for room in ("chainer_profile", "models", "tests", "benchmarks")]
    there = {path.as_posix() for room in rooms for path in room.rglob("*.py")}
    examples = re.compile(r"(my_\w+|tiny|tsv)\.py$")
    gone = {name for name in named if not any(path.endswith(f"/{name}") for path in there)}
    assert {name for name in gone if not examples.search(name)} == set()


def test_a_broken_link_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A `b-c`, d\n\n[x](#a-b-c-d) [x](#e) ![y](y.png) [z](<no z.md>) [w](https://example.org)\n\n"
        "| a |\n| - |\n| [p](page.md) [n](none.md) |\n\n`[code](none)`\n"
    )
    assert broken(page) == ["#e", "y.png", "no z.md", "none.md"]
    assert len(PAGES) > 40
