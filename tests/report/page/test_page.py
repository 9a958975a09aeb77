import base64
import hashlib
import re
import subprocess
import sys

import pytest

from chainer_profile import summarise
from chainer_profile.comparison.compare import compare
from chainer_profile.record.recording import Layer, LinkCalls, Settings
from chainer_profile.report.content.next_steps import next_steps
from chainer_profile.report.page import render
from chainer_profile.report.page.engines import EngineRow, Engines
from chainer_profile.report.page.html import blocks, digest, inline, own_file, script_text
from chainer_profile.report.pictures.figures import HOT_COLOUR, OTHER_COLOUR
from chainer_profile.report.text import printable
from tests.comparing import run, scaled
from tests.conftest import make_recording, make_training
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


@pytest.fixture(scope="module")
def page():
    return Read(render(working.training()))


def test_scripts_are_those_that_the_policy_allows(page):
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


def test_nothing_is_fetched(page):
    for tag, attributes in page.tags:
        assert tag not in ("img", "iframe", "object", "embed", "base")
        assert "src" not in attributes
        assert not any(name.startswith("on") for name in attributes)
        address = attributes.get("href")
        assert address is None or address.startswith(("#", "data:,"))
        if address and address.startswith("#"):
            assert address[1:] in page.ids


def test_every_chart_has_its_place(page):
    places = [a["data-chart"] for _, a in page.tags if "data-chart" in a]
    assert sorted(places) == sorted(page.charts)
    assert {"layers", "function", "phase", "histogram", "course", "roofline", "memory"} <= set(
        places
    )


def test_says_what_the_report_says(page):
    summary = working.training()
    for sentence in next_steps(summary):
        assert " ".join(sentence.split()) in page.text
    for finding in summary.findings:
        assert finding.text in page.text
    assert "python profile.py --phase train" in page.text
    assert "Clean trial, mean" in page.text


def test_is_the_same_each_time(page):
    assert render(working.training()) == page.html


@pytest.mark.parametrize(
    ("summary", "there", "missing"),
    [
        (lambda: summarise(make_recording()), "links", {"work", "memory", "device"}),
        (launching, "device", {"work", "memory"}),
        (working.working, "memory", {"device", "engines", "comparisons"}),
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
    assert "onnxruntime 1.20.1 fp32" in read.text


def named_engines(name):
    return Engines((EngineRow(name, name, name, 1e-3, 1e-3, 1e-3, name, name, name),), (name,))


@pytest.fixture(scope="module")
def usual_tags():
    page = Read(render(summarise(make_recording(2)), engines=named_engines("plain")))
    return {tag for tag, _ in page.tags} | {"em", "code", "strong"}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_data(name, usual_tags):
    layers = (Layer(0, f"/{name}", name), Layer(1, f"/{name}/x", name, phase="forward"))
    links = (LinkCalls("/", name, 1, 1), LinkCalls(f"/{name}", name, 1, 2))
    settings = Settings(model=name, input=name, command=name, optimizer=name, weights=name)
    recording = make_recording(2, layers=layers, links=links, settings=settings)
    read = Read(render(summarise(recording), engines=named_engines(name)))
    assert printable(name) in "".join(read.words)
    read.html.encode()
    assert cells(column(read.data["layers"], "function")) == [printable(name)] * 2
    # No element is there that the page does not have by itself.
    assert {tag for tag, _ in read.tags} <= usual_tags
    assert len(read.scripts) == len(read.charts) + 3


def test_engines_and_comparisons():
    before = run(0)
    comparison = compare(before, scaled(run(1), {3: 1.5}))
    row = EngineRow("ort", "1.2", "bf16", 2e-3, 1.9e-3, 2.5e-3, "3.00x", "1e-3 at most")
    read = Read(
        render(summarise(before), engines=Engines((row,), ("A note.",)), comparisons=[comparison])
    )
    for part in ("ort 1.2", "bf16", "2.000 ms", "3.00x", "1e-3 at most", "A note.", "1.5"):
        assert part in read.text
    assert {"engines", "comparison0"} <= set(read.charts)
    same = Read(render(summarise(before), comparisons=[compare(before, before)]))
    assert "comparison0" not in same.charts


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
    assert contrast(found["--ink"], found["--notice"]) >= 4.5
    assert found.keys() <= colours("light").keys()


def test_colours_are_those_of_the_plots():
    found = colours("light")
    for name, colour in (("--hot", HOT_COLOUR), ("--other", OTHER_COLOUR)):
        assert (
            contrast(found[name], tuple(int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))) == 1
        )


def test_markdown_is_shown_without_links_and_pictures():
    parts = [
        "## Heading",
        "Text `code` <b>.",
        "![picture](a.png)",
        "See [all](layers.csv).",
        "*One*",
    ]
    assert str(blocks(parts)) == "<p>Text <code>code</code> &lt;b&gt;.</p>\n"
    assert str(inline("a & b")) == "a &amp; b"


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
