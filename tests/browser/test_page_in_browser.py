"""The pages in a real browser: they load by themselves, and everything on them works."""

from __future__ import annotations

import numpy as np
import pytest

from chainer_profile import summarise
from chainer_profile.comparison.compare import compare
from chainer_profile.record.recording import Layer, Settings
from chainer_profile.report.csv_file import safe
from chainer_profile.report.page import (
    render,
    render_comparison,
    render_engines,
    render_ranks,
)
from chainer_profile.report.text import printable
from tests.comparing import run, scaled
from tests.conftest import make_recording
from tests.engines.fake_engines import MISSING, WRONG, make_run, recordings, result
from tests.report import working
from tests.report.devicing import launching
from tests.report.documents import merged_ranks

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


def test_charts_of_layers_take_their_words_from_the_table(open_page, html, training):
    page = open_page(html)
    layers = training.layers
    for chart in ("roofline", "memory"):
        page.locator(f'[data-chart="{chart}"]').scroll_into_view_if_needed()
        page.wait_for_selector(f'[data-chart="{chart}"] .bk-Figure')
        data = page.evaluate(f"JSON.parse(JSON.stringify({page.model(chart, 'layers')}))")
        rows = data.get("row", list(range(len(layers))))
        assert data["path"] == layers["path"].iloc[rows].tolist()
        assert data["function"] == layers["function"].iloc[rows].tolist()
    assert data["peak_text"][0] == "1.0 KiB"
    assert data["peak"][0] == pytest.approx(2**-10)


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
    _, (head, *rows) = page.saved("#save")
    assert [row[head.index("function")] for row in rows] == [safe(name) for name in HOSTILE]
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
    assert page.locator("#work, #memory, #device, #kinds").count() == 0
    assert "One trial: " in page.inner_text("#verdict")


def test_six_hundred_layers(open_page):
    recording = make_recording(600, 20)
    page = open_page(render(summarise(recording)))
    assert page.inner_text("#shown") == "600 rows"
    # Only the rows that can be seen are there.
    assert page.locator("#layer-table tbody tr").count() < 200
    assert page.get_attribute("#layer-table table", "aria-rowcount") == "601"
    page.evaluate("document.getElementById('layer-table').scrollTop = 1e9")
    page.wait_for_selector('#layer-table tr[data-row="599"]')
    page.sort("mean [ms]")
    slowest = int(recording.self_ns.sum(axis=0).argmax())
    assert page.column("#")[0] == str(slowest)
    page.fill("#filter", "/res60/")
    page.sort("#")
    assert page.column("#") == [str(i) for i in range(58 * 9, 59 * 9)]


def test_a_layer_has_an_address(open_page, html):
    page = open_page(html, at="#layer-14")
    chosen = page.locator("#choice option:checked")
    assert chosen.inner_text().startswith("14_Conv")
    assert page.evaluate("document.getElementById('trials').getBoundingClientRect().top") < 450
    page.locator(".hottest .pick").first.click()
    page.wait_for_function("location.hash === '#layer-14'")
    page.locator(".hottest .pick").nth(1).click()
    page.wait_for_function("location.hash === '#layer-17'")
    assert chosen.inner_text().startswith("17_Conv")
    page.page.go_back()
    page.wait_for_function("document.getElementById('choice').selectedOptions[0].text[1] === '4'")
    # What is no layer does nothing.
    page.evaluate("location.hash = '#layer-99'")
    assert chosen.inner_text().startswith("14_Conv")


def test_one_phase_of_the_table(open_page, html, training):
    page = open_page(html)
    layers = training.layers
    page.select_option("#phase", "backward")
    backward = layers[layers["phase"] == "backward"]
    assert page.column("#") == [str(i) for i in backward.index]
    assert page.inner_text("#shown") == f"{len(backward)} of {len(layers)} rows"
    page.fill("#filter", "bn")
    assert page.column("path") == ["/res/1/bn", "/res/0/bn"]
    # What is shown is saved, in its order.
    page.fill("#filter", "")
    page.sort("mean [ms]")
    name, (head, *rows) = page.saved("#save")
    assert name == "layers.csv"
    assert [row[0] for row in rows] == page.column("#")
    assert [row[head.index("path")] for row in rows] == page.column("path")
    # A number that is not known is an empty cell.
    page.select_option("#phase", "update")
    _, (head, *rows) = page.saved("#save")
    assert [row[head.index("MFLOP")] for row in rows if row[0] == "24"] == [""]
    # Names stay in sight.
    first = page.locator("#layer-table tbody td.stays").first
    before = first.bounding_box()
    page.evaluate("document.getElementById('layer-table').scrollLeft = 300")
    assert page.evaluate("document.getElementById('layer-table').scrollLeft") > 0
    assert first.bounding_box() == before


def test_every_small_table_can_be_saved(open_page, html):
    page = open_page(html)
    buttons = page.locator("main .save[aria-label]")
    assert buttons.count() == page.locator("main .scroll > table[aria-label]").count() > 3
    name, (head, *rows) = page.saved("#groups .save >> nth=1")
    assert (name, head[0]) == ("self-time-by-function.csv", "function")
    assert rows[0][0] == "Convolution2DFunction"


def test_boxes_and_links_by_phase(open_page, html):
    page = open_page(html)
    for picture in page.locator(".boxes:visible").all():
        assert picture.bounding_box()["width"] > 300
    panel = page.locator('#links [data-panel="p1"]')
    assert not panel.is_visible()
    page.get_by_role("button", name="Backward", exact=True).click()
    assert panel.is_visible()
    assert not page.locator('#links [data-panel="all"]').is_visible()
    # The views of the bars are those of another section.
    assert page.locator('[data-panel="layers"]').is_visible()
    inner = panel.locator("i").first
    assert inner.get_attribute("title").startswith("/: ")
    assert inner.evaluate("(box) => getComputedStyle(box).backgroundColor") != "rgba(0, 0, 0, 0)"


def comparison_page():
    before = run(0)
    after = scaled(run(1), {3: 1.5, 7: 0.6}, whole=1.4)
    return render_comparison([compare(before, after)])


def engines_page():
    return render_engines(make_run(WRONG, MISSING, result("third <1>", 77)), recordings())


@pytest.mark.parametrize(
    ("make", "verdict", "chart"),
    [
        (comparison_page, "The clean trial is 1.39x slower", "comparison0"),
        (engines_page, "third <1> is 12.99x as fast as chainer", "engines.png"),
    ],
)
def test_the_verdict_is_in_the_first_screen(open_page, make, verdict, chart):
    page = open_page(make(), width=390)
    for width in (390, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        found = page.locator("main strong").first
        assert found.inner_text().startswith(verdict)
        place = found.bounding_box()
        assert place["y"] + place["height"] < 500
        page.wait_for_selector(f'[data-chart="{chart}"] .bk-Figure')
        assert page.evaluate("document.documentElement.scrollWidth") == width
    _, (head, *rows) = page.saved("main .save >> nth=0")
    assert len(head) > 3
    assert len(rows) >= 4


def ranks_page():
    return render_ranks(merged_ranks())


def test_the_layers_of_a_rank_are_chosen(open_page):
    ranks = merged_ranks()
    page = open_page(render_ranks(ranks))
    rows = "#rank-table tbody tr"
    head = ["path", "function", "phase", "median [ms]", "least [ms]", "most [ms]", "most on"]
    assert [text.replace("\n", " ") for text in page.texts("#rank-table th")] == head
    assert page.locator(rows).count() == len(ranks.layers)
    slowest = np.median(ranks.self_ns[:, :, 3], axis=1).max() * 1e-6
    assert page.texts(f"{rows}:nth-child(4) td")[5:] == [f"{slowest:.4f}", "rank 0 (a host)"]
    page.select_option("#rank", label="rank 0 (a host)")
    [hot] = page.texts(f"{rows}.hot")
    here, others, longer = map(float, hot.split("\t")[3:])
    one = next(one for one in ranks.judged.stragglers if one.rank == 0)
    assert (here, longer) == pytest.approx((one.here_s * 1e3, here - others), abs=2e-4)
    page.select_option("#rank", label="all ranks")
    assert page.locator("#rank-table table").count() == 1
    assert page.locator(rows).count() == len(ranks.layers)


def test_nothing_but_the_pages_own_script_runs(open_page):
    page = open_page(comparison_page())
    ran = page.evaluate(
        """async () => {
          const script = document.createElement("script");
          script.textContent = "window.ran = 'script'";
          document.body.append(script);
          document.body.insertAdjacentHTML("beforeend", "<p onclick='window.ran = 1'>x</p>");
          document.body.lastChild.click();
          // In its first turn the driver may do what the page may not.
          await new Promise((then) => setTimeout(then));
          try { new Function("window.ran = 'function'")(); } catch { }
          try { await fetch("data:text/plain,1"); window.ran = "fetch"; } catch { }
          return window.ran;
        }"""
    )
    assert ran is None
    assert page.faults
    assert all("Content Security Policy" in fault for fault in page.faults)
    page.faults.clear()


@pytest.mark.parametrize("make", [None, comparison_page, engines_page, ranks_page])
def test_no_violation_of_accessibility(open_page, html, make):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    # The page's policy would keep the checker out.
    page = open_page(make() if make else html, bypass_csp=True)
    # No rule of the style sheet goes by width and theme at once. Contrast takes most of the time:
    # colours go by the theme, and text is smallest, which asks for most, on the narrowest page.
    for width, scheme in ((390, "light"), (768, ""), (1400, ""), (1400, "dark")):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme or "light")
        page.wait_for_selector(f'html[data-theme="{scheme or "light"}"]')
        rules = {} if scheme else {"color-contrast": {"enabled": False}}
        found = axe.run(page.page, options={"resultTypes": ["violations"], "rules": rules})
        assert found.violations_count == 0, (width, scheme, found.generate_report())


def test_gpu(open_page):
    page = open_page(render(launching()))
    assert "Wall time of a profiled trial" in page.inner_text("#device")
    assert "host [ms]" in [head.replace("\n", " ") for head in page.texts("#layer-table th")]
