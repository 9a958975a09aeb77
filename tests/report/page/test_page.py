"""The pages of all results: one template, one script, one style."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import pytest

from chainer_profile import summarise
from chainer_profile.comparison.compare import Comparison, Side, compare
from chainer_profile.engines.results import EnginesRun
from chainer_profile.record.recording import Layer
from chainer_profile.report.columns import LAYER_COLUMNS
from chainer_profile.report.content.answer import answer
from chainer_profile.report.content.comparison import verdict
from chainer_profile.report.content.engines import verdict as engines_verdict
from chainer_profile.report.content.profile import Beside
from chainer_profile.report.document import Figure, Fold, Heading, plain, text
from chainer_profile.report.page import (
    own_file,
    page,
    render,
    render_comparison,
    render_engines,
    render_ranks,
    render_sweep,
)
from chainer_profile.report.pictures import layers
from chainer_profile.report.pictures.figures import THEME, Picture
from chainer_profile.report.text import printable
from tests.comparing import run, scaled
from tests.conftest import make_recording, make_training
from tests.engines.fake_engines import MISSING, make_run
from tests.report import working
from tests.report.devicing import launching
from tests.report.documents import (
    NAMES,
    cases,
    compared,
    engines_run,
    merged_ranks,
    named,
    profiles,
    program,
)
from tests.report.page.reading import Read


def results(names: Sequence[str] = ()) -> dict[str, Callable[[], str]]:
    """What writes the page of each kind of result, with these names for everything."""
    every = "".join(names)

    def of(kind: str) -> Callable[[], str]:
        return lambda: render(profiles(names)[kind]())

    def to(name: str) -> Comparison:
        comparison = compared(names)
        return replace(comparison, after=replace(comparison.after, name=name))

    def trained() -> str:
        summary = summarise(named(make_training(data=True), names))
        return render(summary, Beside(budget=program(names)))

    return {
        **{kind: of(kind) for kind in ("forward", "train", "gpu", "engine")},
        "program": trained,
        "comparison": lambda: render_comparison([compared(names)]),
        "comparisons": lambda: render_comparison([compared(names), to("C")]),
        "engines": lambda: render_engines(*engines_run(names)),
        "ranks": lambda: render_ranks(merged_ranks(names)),
        "sweep": lambda: render_sweep(every or "r3", cases(names), 4, every or "python"),
    }


@cache
def read(name: str, *, hostile: bool = False) -> Read:
    return Read(results(NAMES if hostile else ())[name]())


@pytest.fixture(params=results())
def found(request: pytest.FixtureRequest) -> Read:
    return read(request.param)


def test_the_only_script_is_the_one_that_the_policy_allows(found: Read) -> None:
    (script,) = found.scripts
    value = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{value}';" in found.policy
    assert "default-src 'none'" in found.policy
    assert "connect-src 'none'" in found.policy
    assert "unsafe-eval" not in found.policy
    assert script == own_file("page.js")


def test_nothing_is_fetched_and_what_is_led_to_is_there(found: Read) -> None:
    for tag, attributes in found.tags:
        assert tag not in ("img", "iframe", "object", "embed", "base", "image")
        assert "src" not in attributes
        assert not any(name.startswith("on") for name in attributes)
        address = attributes.get("href")
        assert address is None or address == "data:," or address[1:] in found.ids


def test_every_name_is_there_once_and_tables_are_whole(found: Read) -> None:
    ids = [a["id"] for _, a in found.tags if "id" in a]
    assert len(ids) == len(set(ids))
    for _, attributes in found.tags:
        assert attributes.get("aria-labelledby", "theme") in ids
    for address in re.findall(r"url\(#([^)]+)\)", found.html):
        assert address in ids


def test_pictures_have_the_pages_colours(found: Read) -> None:
    drawn = "".join(re.findall(r"<figure>.*?</figure>", found.html, re.DOTALL))
    for colour in THEME:
        assert colour not in drawn
    # Where boxes and rows of a tree stand, each says itself.
    defined = {*colours(0), "--kind", "--row", "--rows", "--depth"}
    assert set(re.findall(r"var\((--[\w-]+)\)", found.html)) <= defined


@pytest.mark.parametrize("name", results())
def test_is_the_same_each_time(name: str) -> None:
    assert results()[name]() == read(name).html


@pytest.mark.parametrize("name", results())
def test_hostile_names_are_data(name: str) -> None:
    usual, hostile = read(name), read(name, hostile=True)
    hostile.html.encode()
    # No element is there that the page does not have by itself.
    assert {tag for tag, _ in hostile.tags} <= {tag for tag, _ in usual.tags} | {
        "bdi",
        "details",
        "summary",
    }
    assert len(hostile.scripts) == 1
    words = "".join(hostile.words)
    for part in NAMES[:2]:
        assert printable(part) in words


def test_the_answer_comes_first_then_the_picture_the_hot_layers_and_warnings() -> None:
    html = read("forward").html.partition("<main>")[2]
    order = ["A forward pass takes", "<figure>", 'aria-label="The hottest layers"', "<details"]
    places = [html.index(part) for part in order]
    assert places == sorted(places)
    assert 'class="warning"' in html
    assert places[-1] < html.index("<h2")


def test_says_what_the_report_says() -> None:
    summary, found = working.training(), Read(render(working.training()))
    said = (plain(block.words) for block in answer(summary) if not block.note)
    for sentence in said:
        assert " ".join(sentence.split()) in found.text
    for finding in summary.findings:
        assert finding.text in found.text
        assert finding.to_do in found.text
    assert "python profile.py --phase train" in found.text
    assert found.pictures == [
        "Bar plot of the median self time of every layer",
        "Roofline plot of the layers",
        "Memory that every layer allocates",
    ]


def test_all_layers_are_there_with_all_that_is_known() -> None:
    summary, found = working.training(), Read(render(working.training()))
    rows = list(summary.layers.itertuples())
    for key in ("index", "path", "function", "phase", "median", "verdict", "peak", "flops"):
        column = LAYER_COLUMNS[key]
        assert found.column(column.title or column.name) == [column.cell(row) for row in rows]
    assert len(found.column("trials")) == len(rows)
    head = Read(render(summarise(make_recording()))).rows
    assert not any("phase" in row or "host [ms]" in row for row in head)
    assert any("host [ms]" in row for row in Read(render(launching())).rows)


def test_many_layers_are_there_and_the_first_are_shown() -> None:
    html = render(summarise(make_recording(600, 20)))
    before, _, after = html.partition("<tbody hidden>")
    assert 'id="layer-99"' in before
    assert 'id="layer-100"' not in before
    assert 'id="layer-599"' in after.partition("</tbody>")[0]


@pytest.mark.parametrize(
    ("make", "there", "missing"),
    [
        (lambda: make_recording(), "tree-of-links", {"work-and-limits", "memory", "on-the-gpu"}),
        (lambda: make_recording(n_clean=0), "all-layers", {"memory"}),
        (lambda: make_recording(trial_ns=None, start_ns=None), "all-layers", {"memory"}),
        (lambda: make_recording(1, 1, 0), "all-layers", {"memory"}),
        (lambda: make_training(data=True, links=()), "by-function", {"memory"}),
        (lambda: make_recording(1, layers=(Layer(0, "/", "F"),)), "method", {"tree-of-links"}),
    ],
)
def test_parts_without_content_are_not_there(make, there, missing) -> None:
    found = Read(render(summarise(make())))
    assert there in found.ids
    assert not missing & found.ids


def test_all_times_are_zero() -> None:
    recording = make_recording(3, 10)
    recording.self_ns[:] = 0
    assert Read(render(summarise(recording))).column("mean [ms]") == ["0.0000"] * 3


def test_a_programs_time_comes_before_its_trial() -> None:
    found = read("program")
    first = next(a for _, a in found.tags if a.get("role") == "img")
    assert str(first["aria-label"]).startswith("Where the time of the program went")
    assert found.html.index("Where the time of the program went") < found.html.index("A trial</h2>")
    assert "train.py (" in found.html.partition("</title>")[0]


def test_a_comparison_begins_with_its_verdict() -> None:
    one = compare(Side("before", (run(0),)), Side("after", (scaled(run(1), {3: 1.5}),)))
    found = Read(render_comparison([one]))
    assert found.text.partition("Print")[2].count(verdict(one)) == 1
    assert found.pictures == ["Times of the layers in both runs"]


def test_of_several_comparisons_each_has_a_section() -> None:
    def of(name: str):
        return compare(Side("before", (run(0),)), Side(name, (scaled(run(1), {3: 1.5}),)))

    found = Read(render_comparison([of("One run"), of("print"), of("é")]))
    # None of them takes a name that the page has by itself, and none is empty.
    sections = [attributes["id"] for tag, attributes in found.tags if tag == "section"]
    assert sections == ["one-run", "print-", "section"]
    assert len(found.pictures) == 3


def test_the_page_of_engines_says_what_the_report_says() -> None:
    found, (race, _) = read("engines"), engines_run()
    assert engines_verdict(race) in found.text
    assert "engines.csv" not in found.text
    none = EnginesRun(engines=(MISSING,), settings=make_run().settings)
    assert Read(render_engines(none, {})).pictures == []


def test_the_layers_of_every_rank_are_there() -> None:
    ranks = merged_ranks()
    found = read("ranks")
    head, *rows = found.rows[-1 - len(ranks.layers) :]
    assert head[:4] == ["path", "function", "phase", "median [ms]"]
    assert len(head) == 7 + len(ranks.ranks)
    times = [float(cell) for cell in rows[3][7:]]
    assert max(times) == float(rows[3][5])
    assert rows[3][6].startswith("rank ")


def test_names_of_sections_differ() -> None:
    headings = ["a", "a", "A title", "a-title", "Theme", "Answer", "…"]
    parts = [part for name in headings for part in (Heading(2, name), text("words"))]
    found = Read(page([Heading(1, "T"), text("first"), *parts], "Kind"))
    names = [a["id"] for tag, a in found.tags if tag == "section"]
    assert names == ["answer", "a", "a-", "a-title-", "a-title--", "theme-", "answer-", "section"]


def test_figures_without_a_picture_are_not_there_and_what_folds_is() -> None:
    figures = [Figure("one", "Seen", "Words"), Figure("two", "Not seen", "Gone")]
    drawn = {"one": Picture(lambda: layers.figure(working.working()))}
    found = Read(page([*figures, Fold(("line",), figures[:1])], "Kind", drawn))
    assert found.pictures == ["Seen", "Seen"]
    assert "Gone" not in found.text


def test_a_picture_of_a_page_has_no_title_and_says_what_it_leads_to() -> None:
    picture = Picture(lambda: layers.figure(working.working()))
    html = picture.in_page("one", "What it is", {"layer-0": "words of <0>"})
    assert b"clean trial" in picture.svg()
    assert "clean trial" not in html
    assert html.count("<a ") == 6
    # Neither is the room of the title there.
    box = re.compile(r'viewBox="0 (\d+) [\d.]+ ([\d.]+)')
    (cut, left), (_, whole) = (box.findall(one)[0] for one in (html, picture.svg().decode()))
    assert int(cut) > 25
    assert int(cut) + int(left) == pytest.approx(float(whole), abs=1)
    assert "<title>words of &lt;0&gt;</title>" in html
    # A file leads nowhere.
    assert b"<a " not in picture.svg()


def colours(theme: int) -> dict[str, tuple[float, float, float]]:
    """The colours of a theme in the style sheet, as red, green and blue from 0 to 1."""
    found = re.findall(r"(--[\w-]+): light-dark\(#(\w+), #(\w+)\);", own_file("page.css"))
    return {
        name: tuple(int(both[theme][i : i + 2], 16) / 255 for i in (0, 2, 4))  # type: ignore[misc]
        for name, *both in found
    }


def contrast(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    """The ratio of luminances by WCAG 2."""

    def luminance(colour: tuple[float, ...]) -> float:
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1])
def test_text_can_be_read(theme: int) -> None:
    found = colours(theme)
    for ink in ("--ink", "--muted", "--accent", "--hot"):
        for ground in ("--bg", "--surface", "--band"):
            assert contrast(found[ink], found[ground]) >= 4.5, (ink, ground)
    for ground in ("--notice", "--band-strong"):
        assert contrast(found["--ink"], found[ground]) >= 4.5
