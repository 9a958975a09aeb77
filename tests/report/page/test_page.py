"""Pages of all results share one template, one script and one style sheet."""

import base64
import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import pytest

from chainer_profile import summarise
from chainer_profile.report.content import comparison, engines, ranks, sweep
from chainer_profile.report.content.profile import ReportTitle
from chainer_profile.report.content.related import RelatedResults
from chainer_profile.report.document import Heading, text
from chainer_profile.report.page import page, render
from chainer_profile.report.pictures import comparison as bars
from chainer_profile.report.pictures import engines as races
from chainer_profile.report.pictures import layers
from chainer_profile.report.pictures import sweep as plots
from chainer_profile.report.pictures.figures import THEME, Picture
from chainer_profile.report.text import printable
from tests.conftest import make_recording
from tests.report import documents as examples
from tests.report import working
from tests.report.documents import NAMES
from tests.report.seen import Page


def results(names: Sequence[str] = ()) -> dict[str, Callable[[], str]]:
    """A function for the page of each kind of result. With ``names``, only pages of recordings."""

    def compared(*more: str) -> str:
        first = examples.compared(names)
        both = [first, *(replace(first, after=replace(first.after, name=name)) for name in more)]
        drawn = bars.pictures(both)
        blocks = comparison.report(both, list(drawn), everything=True)
        return page(blocks, "Comparison", drawn)

    def raced() -> str:
        run, recordings = examples.engines_run()
        drawn = {engines.PLOT: Picture(lambda: races.figure(run, recordings))}

        return page(engines.report(run, recordings), "Engines", drawn)

    def swept() -> str:
        drawn = plots.pictures(examples.cases())
        blocks = sweep.report("r3", examples.cases(), 4, "python", list(drawn))
        return page(blocks, "Sweep", drawn)

    kinds = examples.profiles(names)
    pages = {
        **{kind: lambda make=make: render(make()) for kind, make in kinds.items()},  # type: ignore[misc]
        "program": lambda: render(
            kinds["train"](), RelatedResults(program=examples.program_time(names))
        ),
        "comparison": compared,
        "ranks": lambda: page(ranks.page(examples.merged_ranks(names)), "Ranks"),
    }
    others = {"comparisons": lambda: compared("C"), "engines": raced, "sweep": swept}
    return pages if names else pages | others


@cache
def read(name: str, *, hostile: bool = False) -> Page:
    return Page(results(NAMES if hostile else ())[name]())


@pytest.mark.parametrize("name", results())
def test_page_is_complete_and_runs_and_loads_only_its_own_code(name: str) -> None:
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
    # Pictures use the page's colours.
    drawn = "".join(re.findall(r"<figure>.*?</figure>", shown.html, re.DOTALL))
    assert not any(colour in drawn for colour in THEME)
    # Rendering is reproducible.
    assert results()[name]() == shown.html


@pytest.mark.parametrize("name", results(NAMES))
def test_hostile_names_add_no_elements(name: str) -> None:
    usual, hostile = read(name), read(name, hostile=True)
    hostile.html.encode()
    # The page has no elements except its own.
    more = {"bdi", "details", "summary"}
    assert {tag for tag, _ in hostile.tags} <= {tag for tag, _ in usual.tags} | more
    assert len(hostile.scripts) == 1
    words = "".join(hostile.words)
    assert all(printable(part) in words for part in NAMES[:2])


def test_answer_comes_first_and_only_the_first_of_many_layers_are_shown() -> None:
    html = read("forward").html.partition("<main>")[2]
    order = ["A forward pass takes", "<figure>", 'aria-label="The hottest layers"', "<details"]
    places = [html.index(part) for part in (*order, "<h2")]
    assert places == sorted(places)
    before, _, after = render(summarise(make_recording(600, 20))).partition("<tbody hidden>")
    for at, is_first in ((99, True), (100, False), (599, False)):
        assert (f'id="layer-{at}"' in before) == is_first == (f'id="layer-{at}"' not in after)


def test_page_shows_given_title_and_author() -> None:
    summary = working.working()
    html = render(summary, title=ReportTitle(" Mine <1>\n", "Ada", " "))
    head = html[html.index("<header>") : html.index("</header>")]
    assert "<h1>Mine &lt;1&gt;</h1>" in head
    assert "<title>Mine &lt;1&gt; - Layer-wise profile of chain</title>" in html
    assert '<p class="muted">Author: Ada</p>' in head
    assert "Course" not in head
    # The default title is the network's name.
    assert "<h1>chain</h1>" in render(summary, title=ReportTitle()) == render(summary)


def test_section_ids_are_unique() -> None:
    # No section has an ID that the page itself uses, and no ID is empty.
    headings = ["a", "a", "A title", "a-title", "Theme", "print", "…"]
    parts = [part for name in headings for part in (Heading(2, name), text("words"))]
    html = page([Heading(1, "T"), text("first"), *parts], "Kind")
    names = [attributes["id"] for tag, attributes in Page(html).tags if tag == "section"]
    assert names == ["answer", "a", "a-", "a-title-", "a-title--", "theme-", "print-", "section"]


def test_picture_in_a_page_has_no_title_and_links_to_the_rows() -> None:
    html = render(working.working())
    (figure, *_) = re.findall(r"<figure>.*?</figure>", html, re.DOTALL)
    file = Picture(lambda: layers.figure(working.working())).svg()
    assert b"unprofiled trial" in file
    assert "unprofiled trial" not in figure
    assert figure.count('href="#layer-') == 6
    # A picture file has no links to rows.
    assert b"<a " not in file
