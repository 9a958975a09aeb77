"""The pages of all results: one template, one script, one style."""

import base64
import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import pytest

from chainer_profile import summarise
from chainer_profile.comparison.compare import Comparison
from chainer_profile.report.content import comparison, engines, ranks, sweep
from chainer_profile.report.content.profile import Beside, ReportTitle
from chainer_profile.report.document import Heading, text
from chainer_profile.report.page import page, render
from chainer_profile.report.pictures import comparison as bars
from chainer_profile.report.pictures import engines as races
from chainer_profile.report.pictures import layers
from chainer_profile.report.pictures import sweep as plots
from chainer_profile.report.pictures.figures import THEME, Picture
from chainer_profile.report.text import printable
from tests.conftest import make_recording
from tests.report import working
from tests.report.documents import (
    NAMES,
    cases,
    compared,
    engines_run,
    merged_ranks,
    profiles,
    program_time,
)
from tests.report.seen import Page

KINDS = ("forward", "train", "gpu", "engine")


def of_comparisons(comparisons: Sequence[Comparison]) -> str:
    drawn = bars.pictures(comparisons)
    blocks = comparison.report(comparisons, list(drawn), everything=True)
    return page(blocks, "Comparison", drawn)


def results(names: Sequence[str] = ()) -> dict[str, Callable[[], str]]:
    """What writes the page of each kind of result, with these names for everything."""
    every, kinds = "".join(names), profiles(names)

    def both() -> list[Comparison]:
        first = compared(names)
        return [first, replace(first, after=replace(first.after, name="C"))]

    def raced() -> str:
        run, recordings = engines_run(names)
        drawn = {engines.PLOT: Picture(lambda: races.figure(run, recordings))}
        return page(engines.report(run, recordings), "Engines", drawn)

    def swept() -> str:
        drawn = plots.pictures(cases(names))
        name, command = every or "r3", every or "python"
        return page(sweep.report(name, cases(names), 4, command, list(drawn)), "Sweep", drawn)

    return {
        **{kind: lambda kind=kind: render(kinds[kind]()) for kind in KINDS},  # type: ignore[misc]
        "program": lambda: render(kinds["train"](), Beside(program=program_time(names))),
        "comparison": lambda: of_comparisons(both()[:1]),
        "comparisons": lambda: of_comparisons(both()),
        "engines": raced,
        "ranks": lambda: page(ranks.page(merged_ranks(names)), "Ranks"),
        "sweep": swept,
    }


@cache
def read(name: str, *, hostile: bool = False) -> Page:
    return Page(results(NAMES if hostile else ())[name]())


@pytest.mark.parametrize("name", results())
def test_a_page_runs_and_fetches_nothing_else_and_is_whole(name: str) -> None:
    shown = read(name)
    (script,) = shown.scripts
    value = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = (a["content"] or "" for _, a in shown.tags if "http-equiv" in a)
    for part in (f"script-src 'sha256-{value}';", "default-src 'none'", "connect-src 'none'"):
        assert part in policy
    assert "unsafe-eval" not in policy
    ids = [a["id"] for _, a in shown.tags if "id" in a]
    assert len(ids) == len(set(ids))
    for tag, attributes in shown.tags:
        assert tag not in ("img", "iframe", "object", "embed", "base", "image")
        assert not any(name == "src" or name.startswith("on") for name in attributes)
        address = attributes.get("href")
        assert address is None or address == "data:," or address[1:] in ids
        assert attributes.get("aria-labelledby", "theme") in ids
    assert {*re.findall(r"url\(#([^)]+)\)", shown.html)} <= {*ids}
    # Pictures have the page's colours.
    drawn = "".join(re.findall(r"<figure>.*?</figure>", shown.html, re.DOTALL))
    assert not any(colour in drawn for colour in THEME)
    # It is the same each time.
    assert results()[name]() == shown.html


@pytest.mark.parametrize("name", results())
def test_hostile_names_are_data(name: str) -> None:
    usual, hostile = read(name), read(name, hostile=True)
    hostile.html.encode()
    # No element is there that the page does not have by itself.
    more = {"bdi", "details", "summary"}
    assert {tag for tag, _ in hostile.tags} <= {tag for tag, _ in usual.tags} | more
    assert len(hostile.scripts) == 1
    words = "".join(hostile.words)
    for part in NAMES[:2]:
        assert printable(part) in words


def test_the_answer_comes_first_and_of_many_layers_the_first_are_shown() -> None:
    html = read("forward").html.partition("<main>")[2]
    order = ["A forward pass takes", "<figure>", 'aria-label="The hottest layers"', "<details"]
    places = [html.index(part) for part in order]
    assert places == sorted(places)
    assert 'class="warning"' in html
    assert places[-1] < html.index("<h2")
    html = render(summarise(make_recording(600, 20)))
    before, _, after = html.partition("<tbody hidden>")
    assert 'id="layer-99"' in before
    assert 'id="layer-100"' not in before
    assert 'id="layer-599"' in after.partition("</tbody>")[0]


def test_a_page_has_the_title_that_is_given_and_says_who_made_it() -> None:
    summary = working.working()
    html = render(summary, title=ReportTitle(" Mine <1>\n", "Ada", " "))
    head = html[html.index("<header>") : html.index("</header>")]
    assert "<h1>Mine &lt;1&gt;</h1>" in head
    assert "<title>Mine &lt;1&gt; - Layer-wise profile of chain</title>" in html
    assert '<p class="muted">Author: Ada</p>' in head
    assert "Course" not in head
    # Without a title it is the network's name.
    assert "<h1>chain</h1>" in render(summary, title=ReportTitle()) == render(summary)


def test_names_of_sections_differ() -> None:
    # None takes a name that the page has by itself, and none is empty.
    headings = ["a", "a", "A title", "a-title", "Theme", "print", "…"]
    parts = [part for name in headings for part in (Heading(2, name), text("words"))]
    html = page([Heading(1, "T"), text("first"), *parts], "Kind")
    names = [attributes["id"] for tag, attributes in Page(html).tags if tag == "section"]
    assert names == ["answer", "a", "a-", "a-title-", "a-title--", "theme-", "print-", "section"]


def test_a_picture_of_a_page_has_no_title_and_says_what_it_leads_to() -> None:
    picture = Picture(lambda: layers.figure(working.working()))
    html = picture.in_page("one", "What it is")
    assert b"unprofiled trial" in picture.svg()
    assert "unprofiled trial" not in html
    assert html.count("<a ") == 6
    assert 'href="#layer-0"' in html
    # A file leads nowhere.
    assert b"<a " not in picture.svg()
