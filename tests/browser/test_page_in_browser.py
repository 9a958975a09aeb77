"""``report.html`` in a real browser: it loads by itself, and everything on it works."""

from __future__ import annotations

import numpy as np
import pytest

from chainer_profile import summarise
from chainer_profile.comparison.compare import compare
from chainer_profile.record.recording import Layer, Settings
from chainer_profile.report.page import render
from chainer_profile.report.page.engines import EngineRow, Engines
from chainer_profile.report.text import printable
from tests.comparing import run, scaled
from tests.conftest import make_recording
from tests.report import working
from tests.report.devicing import launching

pytestmark = pytest.mark.browser

HOSTILE = (
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(2)>",
    "\"'=cmd|calc `${1+1}` {{ 7*7 }} {% raw %}",
    "\u202eright-to-left\u2067",
    "back\\slash\nnew line \x1b[31m\x00",
    "$$x^2$$",
    "\\(y\\) and \\[z\\]",
    "@mean{safe} @path $index",
)


@pytest.fixture(scope="module")
def training():
    return working.training()


@pytest.fixture(scope="module")
def html(training):
    return render(training)


def test_sort_filter_and_choice(open_page, html, training):
    page = open_page(html)
    layers = training.layers
    assert page.column("#") == [str(i) for i in range(len(layers))]
    # The first click on a number sorts the largest first; equal ones keep the order of the calls.
    slowest = layers.sort_values("mean_s", ascending=False, kind="stable").index.tolist()
    assert page.sort("mean [ms]") == "descending"
    assert page.column("#") == [str(i) for i in slowest]
    assert page.sort("mean [ms]") == "ascending"
    fastest = layers.sort_values("mean_s", kind="stable").index.tolist()
    assert page.column("#") == [str(i) for i in fastest]
    assert page.sort("path") == "ascending"
    assert page.column("path") == sorted(layers["path"])
    assert page.locator('#layer-table th:not([aria-sort="none"])').count() == 1
    # What is not known comes last both ways: the last layer has no operations.
    for _ in range(2):
        page.sort("MFLOP")
        assert page.column("MFLOP")[-1] == "-"
    page.sort("#")
    page.fill("#filter", "CONV backward")
    expected = layers[(layers["phase"] == "backward") & layers["path"].str.contains("conv")]
    expected = expected.index.union(
        layers[(layers["phase"] == "backward") & layers["function"].str.contains("Conv")].index
    )
    assert page.column("#") == [str(i) for i in expected]
    assert page.inner_text("#shown") == f"{len(expected)} of {len(layers)} rows"
    page.fill("#filter", "nothing has this name")
    assert page.column("#") == []
    page.fill("#filter", "")
    page.check("#only-hot")
    assert page.column("#") == [str(i) for i in training.hotspots.indices]
    page.uncheck("#only-hot")
    # A layer's number chooses its trials.
    page.locator("#layer-table tbody .pick").nth(14).click()
    assert page.locator("#choice option:checked").inner_text().startswith("14_Conv")
    assert "40 trials: median 600.0 us" in page.inner_text("#verdict")
    assert page.locator("#layer-table tr.chosen").get_attribute("data-row") == "14"
    counts = page.evaluate(f"Array.from({page.model('histogram', 'histogram')}.count)")
    assert sum(counts) == 40
    course = page.evaluate(f"{page.model('course', 'course')}.median")
    np.testing.assert_allclose(course[:2], [612, 588], rtol=1e-4)
    page.click("#next")
    assert page.locator("#choice option:checked").inner_text().startswith("15_Add")


def test_hover_and_click_on_bars(open_page, html, training):
    page = open_page(html)
    at = int(training.layers["mean_s"].idxmax())
    place = page.point_at(at)
    text = page.tooltip()
    row = training.layers.loc[at]
    for part in (row["function"], row["path"], row["phase"], "0.6000", "20.0 %"):
        assert part in text
    page.mouse.click(*place)
    page.wait_for_function(
        f"document.getElementById('choice').selectedOptions[0].text.startsWith('{at}_')"
    )


def test_views_fold_and_theme(open_page, html):
    page = open_page(html)
    for view in ("block", "function", "phase"):
        page.click(f'[data-view="{view}"]')
        page.wait_for_selector(f'[data-chart="{view}"] .bk-Figure')
        assert page.locator(f'[data-panel="{view}"]').is_visible()
        assert not page.locator('[data-panel="layers"]').is_visible()
    page.click('[data-view="layers"]')
    names = "#link-table tbody td:first-child"
    whole = page.locator(names).count()
    res = page.get_by_role("button", name="Links below /res", exact=True)
    assert res.get_attribute("aria-expanded") == "true"
    res.click()
    assert page.locator(names).count() < whole
    assert res.get_attribute("aria-expanded") == "false"
    page.click("#fold")
    # The network, and what is beside it.
    assert page.locator(names).count() == 6
    page.click("#unfold")
    assert page.locator(names).count() > whole
    light = page.background()
    colour = "Bokeh.documents[0].roots()[0].left[0].major_label_text_color"
    ink = page.evaluate(colour)
    page.click("#theme")
    assert page.get_attribute("#theme", "aria-pressed") == "true"
    assert page.background() != light
    assert page.evaluate(colour) != ink
    page.click("#theme")
    assert (page.background(), page.evaluate(colour)) == (light, ink)


def test_theme_of_the_system_and_narrow(open_page, html):
    page = open_page(html, width=400, scheme="dark")
    assert page.get_attribute("html", "data-theme") == "dark"
    # Tables scroll within themselves.
    assert page.evaluate("document.documentElement.scrollWidth") == 400
    pages = page.page.pdf(format="A4")
    assert pages.startswith(b"%PDF")
    assert page.locator(".on-paper").count() == 0
    assert page.get_attribute("html", "data-theme") == "dark"


def test_hostile_names_are_text(open_page):
    names = HOSTILE
    layers = tuple(
        Layer(i, f"/{name}", name, input_shapes=((1, 2),), dtype="float32")
        for i, name in enumerate(names)
    )
    recording = make_recording(
        len(names),
        layers=layers,
        settings=Settings(model=HOSTILE[0], input=HOSTILE[1], command=HOSTILE[2]),
    )
    page = open_page(render(summarise(recording)))
    assert page.inner_text("h1") == HOSTILE[0]
    assert page.column("function") == [printable(name) for name in HOSTILE]
    assert page.locator("main img, main script").count() == 0
    for view in ("function", "layers"):
        page.click(f'[data-view="{view}"]')
        page.wait_for_selector(f'[data-chart="{view}"] .bk-Figure')
    at = int(summarise(recording).layers["mean_s"].idxmax())
    page.point_at(at)
    assert printable(HOSTILE[at]) in page.tooltip()


def test_one_layer_and_one_trial(open_page):
    page = open_page(render(summarise(make_recording(1, 1, 0, trial_ns=None, start_ns=None))))
    assert page.column("#") == ["0"]
    assert page.locator("#work, #memory, #device, #engines, #comparisons").count() == 0
    assert "One trial: " in page.inner_text("#verdict")


def test_five_thousand_layers(open_page):
    recording = make_recording(5000, 20)
    page = open_page(render(summarise(recording)))
    assert page.inner_text("#shown") == "5,000 rows"
    # Only the rows that can be seen are there.
    assert page.locator("#layer-table tbody tr").count() < 200
    assert page.get_attribute("#layer-table table", "aria-rowcount") == "5001"
    page.evaluate("document.getElementById('layer-table').scrollTop = 1e9")
    page.wait_for_selector('#layer-table tr[data-row="4999"]')
    page.sort("mean [ms]")
    slowest = int(recording.self_ns.sum(axis=0).argmax())
    assert page.column("#")[0] == str(slowest)
    page.fill("#filter", "/res500/")
    page.sort("#")
    assert page.column("#") == [str(i) for i in range(498 * 9, 499 * 9)]


def test_engines_and_comparison(open_page):
    before = run(0)
    comparison = compare(before, scaled(run(1), {3: 1.5, 7: 0.6}))
    engines = Engines(
        (
            EngineRow("chainer", "7.8.1", "fp32", 6e-3, 5.9e-3, 7e-3, "1.00x"),
            EngineRow(
                "onnxruntime <1.2>",
                "1.20.1",
                "fp32",
                2e-3,
                1.9e-3,
                2.5e-3,
                "3.00x (2.95 to 3.05)",
                "1.2e-6 at most",
                by_function=(("Convolution2DFunction", 1.5e-3), ("ReLU", 2e-4)),
            ),
        ),
        ("Two rounds of 100 trials each.",),
    )
    page = open_page(render(summarise(before), engines=engines, comparisons=[comparison]))
    assert "onnxruntime <1.2> 1.20.1" in page.inner_text("#engines")
    for chart in ("engines", "comparison0"):
        page.wait_for_selector(f'[data-chart="{chart}"] .bk-Figure')
    assert "1.51x slower" in page.inner_text("#comparisons")


def test_gpu(open_page):
    page = open_page(render(launching()))
    assert "Wall time of a profiled trial" in page.inner_text("#device")
    assert "host [ms]" in [head.replace("\n", " ") for head in page.texts("#layer-table th")]
