import base64
import hashlib
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from chainer_profile import summarise
from chainer_profile.comparison.compare import Side, compare
from chainer_profile.record.recording import Layer, LinkCalls, Settings
from chainer_profile.report.content.answer import answer
from chainer_profile.report.content.comparison import verdict
from chainer_profile.report.document import Figure, Heading, plain, text
from chainer_profile.report.page import charts, render, render_comparison, render_engines
from chainer_profile.report.page.html import context, digest, own_file, script_text
from chainer_profile.report.pictures.figures import (
    ACCENT,
    BETWEEN_COLOUR,
    HOT_COLOUR,
    OTHER_COLOUR,
    SERIES_COLOURS,
)
from chainer_profile.report.text import printable
from tests.comparing import run, scaled
from tests.conftest import make_recording, make_training
from tests.engines.fake_engines import WRONG, make_run, recordings, result
from tests.report import working
from tests.report.devicing import launching
from tests.report.page.reading import Read, cells, column

HOSTILE = (
    "</script><script>alert(1)</script>",
    "<!-- <script>",
    "\"><img src=x onerror='alert(2)'>",
    "=cmd|' /C calc'!A0",
    "{{ 7*7 }}{% raw %}${1}`\\",
    "\u202egnp.exe",
    "a\r\nb\x00\x1b[31m",
    "\ud800 alone, $$x$$ and \\(y\\)",
    "[link](javascript:alert(3)) **bold** | cell",
)


def comparison(name):
    after = scaled(run(1), {3: 1.5})
    return compare(Side("before", (run(0),)), Side(name, (after,)))


DOCUMENTS = {
    "run": lambda: render(working.training()),
    "comparison": lambda: render_comparison([comparison("one"), comparison("two")]),
    "engines": lambda: render_engines(make_run(WRONG), recordings()),
}


@pytest.fixture(scope="module", params=DOCUMENTS)
def document(request):
    return Read(DOCUMENTS[request.param]())


@pytest.fixture(scope="module")
def page():
    return Read(render(working.training()))


def test_scripts_are_those_that_the_policy_allows(document):
    page = document
    own, bokeh = page.scripts[-1], page.scripts[-2]
    assert (own.attributes, bokeh.attributes["id"]) == ({}, "bokeh")
    for script in (own, bokeh):
        value = base64.b64encode(hashlib.sha256(script.text.encode()).digest()).decode()
        assert f"'sha256-{value}'" in page.policy
    # All others are data.
    kinds = {script.attributes.get("type") for script in page.scripts[:-1]}
    assert kinds == {"application/json", "text/plain"}
    assert "unsafe-eval" not in page.policy
    for part in ("default-src 'none'", "connect-src 'none'"):
        assert part in page.policy


def test_nothing_is_fetched(document):
    for tag, attributes in document.tags:
        assert tag not in ("img", "iframe", "object", "embed", "base")
        assert "src" not in attributes
        assert not any(name.startswith("on") for name in attributes)
        address = attributes.get("href")
        assert address is None or address.startswith(("#", "data:,"))
        if address and address.startswith("#"):
            assert address[1:] in document.ids


def test_every_chart_has_its_place_and_every_name_is_there_once(document):
    places = [a["data-chart"] for _, a in document.tags if "data-chart" in a]
    assert sorted(places) == sorted(document.charts)
    ids = [a["id"] for _, a in document.tags if "id" in a]
    assert len(ids) == len(set(ids))
    for _, attributes in document.tags:
        assert attributes.get("aria-labelledby", "theme") in ids


def test_charts_of_a_run(page):
    assert page.charts.keys() >= {
        *("layers", "function", "phase", "histogram", "course", "roofline", "memory")
    }


def test_says_what_the_report_says(page):
    summary = working.training()
    for block in answer(summary):
        sentence = plain(block.words)
        assert " ".join(sentence.split()) in page.text
    for finding in summary.findings:
        assert finding.text in page.text
        assert finding.to_do in page.text
    assert "python profile.py --phase train" in page.text
    assert "Clean trial, mean" in page.text


def test_is_the_same_each_time(document, request):
    assert DOCUMENTS[request.node.callspec.params["document"]]() == document.html


def test_phases_to_choose_from(page):
    assert "Phase allforwardbackwardupdate hot layers only" in page.text
    assert "phase" not in Read(render(summarise(make_recording(2)))).ids


@pytest.mark.parametrize(
    ("summary", "there", "missing"),
    [
        (lambda: summarise(make_recording()), "links", {"work", "memory", "device"}),
        (launching, "device", {"work", "memory"}),
        (working.working, "memory", {"device", "kinds"}),
        (lambda: summarise(make_recording(n_clean=0)), "trials", {"memory"}),
        (lambda: summarise(make_recording(trial_ns=None, start_ns=None)), "table", {"memory"}),
        (lambda: summarise(make_recording(1, 1, 0)), "trials", {"memory"}),
        (lambda: summarise(make_training(data=True, links=())), "trials", {"memory"}),
    ],
)
def test_parts_without_content_are_not_there(summary, there, missing):
    read = Read(render(summary()))
    assert there in read.ids
    assert not missing & read.ids


def test_all_times_are_zero():
    recording = make_recording(3, 10)
    recording.self_ns[:] = 0
    read = Read(render(summarise(recording)))
    assert cells(column(read.data["layers"], "mean")) == ["0.0000"] * 3


def test_run_of_another_engine():
    settings = Settings(model="net", engine="onnxruntime 1.20.1", precision="fp32")
    layers = (Layer(0, "/a", "Conv + ReLU", covers=(0, 1), node="Conv a"),)
    read = Read(render(summarise(make_recording(1, layers=layers, settings=settings))))
    assert "onnxruntime 1.20.1 in fp32" in read.text


def named(one, two, three):
    """The pages of a run, of comparisons and of engines, with these names for everything."""
    names = (one, two, three)
    layers = tuple(Layer(i, f"/{name}", name) for i, name in enumerate(names))
    layers += tuple(Layer(i + 3, f"{layer.path}/x", names[i]) for i, layer in enumerate(layers))
    links = [LinkCalls("/", one, 1, 1)] + [LinkCalls(f"/{name}", name, 1, 2) for name in names]
    settings = Settings(model=one, input=two, command=three, optimizer=one, weights=two)
    recording = make_recording(6, layers=layers, links=tuple(links), settings=settings)
    other = replace(recording, self_ns=recording.self_ns * 2)
    compared = [compare(Side(name, (recording,)), Side(three, (other,))) for name in (one, two)]
    engine = result(three, 500, version=one, note=two, worst_layer=three)
    engines = make_run(engine, replace(WRONG, worst_layer=one), settings=settings, n_layers=6)
    made = {"chainer": recording, three: replace(recording, settings=replace(settings, engine="x"))}
    return [
        Read(render(summarise(recording))),
        Read(render_comparison(compared)),
        Read(render_engines(engines, made)),
    ]


@pytest.fixture(scope="module")
def usual_tags():
    return [{tag for tag, _ in read.tags} | {"bdi"} for read in named("plain", "simple", "usual")]


@pytest.mark.parametrize("at", range(0, len(HOSTILE), 3))
def test_hostile_names_are_data(at, usual_tags):
    names = HOSTILE[at : at + 3]
    for read, tags in zip(named(*names), usual_tags, strict=True):
        for name in names:
            assert printable(name) in "".join(read.words)
        read.html.encode()
        # No element is there that the page does not have by itself.
        assert {tag for tag, _ in read.tags} <= tags
        assert len(read.scripts) == len(read.charts) + 2 + ("data" in read.ids)
        if "data" in read.ids:
            shown = [printable(name) for name in names]
            assert cells(column(read.data["layers"], "function")) == shown * 2


def test_a_comparison_begins_with_its_verdict():
    one = comparison("after")
    read = Read(render_comparison([one]))
    assert read.text.partition("To the content")[2].count(verdict(one)) == 1
    assert list(read.charts) == ["comparison0"]
    assert "1.51x slower" in read.text
    same = run(0)
    assert Read(render_comparison([compare(same, same)])).charts == {}


def test_of_several_comparisons_each_has_a_section():
    read = Read(render_comparison([comparison("One run"), comparison("print"), comparison("é")]))
    assert list(read.charts) == ["comparison0", "comparison1", "comparison2"]
    # None of them takes a name that the page has by itself, and none is empty.
    sections = [attributes["id"] for tag, attributes in read.tags if tag == "section"]
    assert sections == ["one-run", "print-", "section"]
    assert [a["href"] for tag, a in read.tags if tag == "a"] == [
        "#one-run",
        *(f"#{s}" for s in sections),
    ]


def test_names_of_sections_differ():
    headings = ["a", "a", "A title", "a-title", "Bokeh", "Verdict", "…"]
    parts = [part for name in headings for part in (Heading(2, name), text("words"))]
    found = context([Heading(1, "T"), text("first"), *parts], "Kind", {})
    names = [name for name, _, _ in found["sections"]]
    assert names == [
        *("verdict", "a", "a-", "a-title-", "a-title--", "bokeh-", "verdict-", "section")
    ]
    assert (found["title"], found["first"]) == ("T", "verdict")


def test_figures_without_a_chart_are_not_there():
    parts = [Heading(2, "Part"), Figure("one", "Seen", "Words"), Figure("two", "Not seen", "")]
    found = context(parts, "Kind", {"one": charts.distribution_charts()[0]})
    ((_, _, content),) = found["sections"]
    assert 'data-chart="one" role="img" aria-label="Seen"' in content
    assert '<p class="caption">Words</p>' in content
    assert "two" not in content


def colours(theme: str) -> dict[str, tuple[float, float, float]]:
    """The colours of a theme in the style sheet, as red, green and blue from 0 to 1."""
    start = ":root {" if theme == "light" else ':root[data-theme="dark"] {'
    block = own_file("page.css").partition(start)[2].partition("}")[0]
    found = re.findall(r"(--[\w-]+): #(\w\w)(\w\w)(\w\w);", block)
    return {name: tuple(int(part, 16) / 255 for part in parts) for name, *parts in found}


def contrast(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    """The ratio of luminances by WCAG 2."""

    def luminance(colour: tuple[float, ...]) -> float:
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_can_be_read(theme):
    found = colours(theme)
    for ink in ("--ink", "--muted", "--accent", "--hot"):
        for ground in ("--bg", "--surface", "--band"):
            assert contrast(found[ink], found[ground]) >= 4.5, (ink, ground)
    for ground in ("--notice", "--band-strong"):
        assert contrast(found["--ink"], found[ground]) >= 4.5
    assert found.keys() <= colours("light").keys()


def test_colours_are_those_of_the_plots():
    found = colours("light")
    series = {f"--series-{at}": colour for at, colour in enumerate(SERIES_COLOURS)}
    others = {"--other": OTHER_COLOUR, "--band-strong": BETWEEN_COLOUR, "--accent": ACCENT}
    for name, colour in ({"--hot": HOT_COLOUR} | others | series).items():
        assert (
            contrast(found[name], tuple(int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))) == 1
        )


def test_a_script_cannot_end_its_element():
    text = script_text("a\r\nb = '</script>' + '<!--'\r")
    assert text == "a\nb = '<\\/script>' + '<\\!--'\n"
    assert digest("") == "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"


def test_needs_neither_chainer_nor_a_gpu():
    code = (
        "import sys; import chainer_profile.report.page.sections, "
        "chainer_profile.report.page; print({'chainer', 'cupy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
