"""Pages in a real browser: they load without other files, and all their controls work."""

import pytest

from chainer_profile import summarise
from chainer_profile.report.page import render
from chainer_profile.report.text import printable
from chainer_profile.report.unit import safe
from tests import needs
from tests.browser.conftest import TABLE
from tests.conftest import make_recording
from tests.report import working
from tests.report.documents import NAMES, named
from tests.report.page.test_page import read, results

pytestmark = pytest.mark.browser

#: More hostile names are in tests/report/page.
HOSTILE = (*NAMES[:3], "<img src=x onerror=alert(2)>", "\u202eback\\slash\n\x1b[31m\x00", "$$x^2$$")
SEARCH = "#the-layers [type=search]"


@pytest.fixture
def page(open_page):
    """Open the page of a training."""
    return open_page(render(working.training()))


def test_tables_can_be_sorted_filtered_and_saved(page):
    layers = working.training().layers
    # The first click on a number sorts the largest first; equal values keep the order of the calls.
    for sorted_ in ("descending", "ascending"):
        expected = layers.sort_values("mean_s", ascending=sorted_ == "ascending", kind="stable")
        assert page.sort("mean [ms]") == sorted_
        assert page.column("#") == [str(i) for i in expected.index]
    assert page.sort("path") == "ascending"
    assert page.column("path") == sorted(layers["path"])
    # Bytes are sorted as numbers; unknown values come last in both orders.
    page.sort("peak")
    assert page.column("#") == [str(i) for i in reversed(range(len(layers)))]
    for _ in range(2):
        page.sort("MFLOP")
        assert page.column("MFLOP")[-1] == "-"
    page.fill(SEARCH, "CONV backward")
    name, (head, *rows) = page.saved("#the-layers .save")
    assert name == "all-layers.csv"
    assert [row[head.index("#")] for row in rows] == page.column("#")
    of_phase = layers[layers["phase"] == "backward"]
    convolutions = of_phase["path"].str.contains("conv") | of_phase["function"].str.contains("Conv")
    assert set(page.column("#")) == {str(i) for i in of_phase.index[convolutions]}
    shown = page.locator("#the-layers [aria-live]").inner_text().strip()
    assert shown == f"{convolutions.sum()} of {len(layers)} rows"
    page.fill(SEARCH, "")
    page.check("#the-layers [type=checkbox]")
    page.sort("#")
    assert page.column("#") == [str(i) for i in working.training().hotspots.indices]


def test_bar_has_a_tooltip_and_links_to_its_row(page):
    layers = working.training().layers
    at = int(layers["mean_s"].idxmax())
    bar, tip = page.locator(f'#answer figure a[href="#layer-{at}"]'), page.locator("#tip")
    assert not tip.is_visible()
    bar.hover()
    assert tip.inner_text() == bar.get_attribute("aria-label")
    for part in (*layers.loc[at, ["function", "path"]], "0.6000", "16.2"):
        assert part in tip.inner_text()
    bar.click()
    page.locator(f"tr.chosen#layer-{at}").wait_for()
    assert 0 < page.locator("tr.chosen").bounding_box()["y"] < 900
    # The keyboard works too; all bars of a picture are one tab stop.
    page.locator("#answer figure a").first.focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft"):
        page.keyboard.press(key)
        assert tip.is_visible()
    page.keyboard.press("Enter")
    page.locator("tr.chosen#layer-1").wait_for()
    assert page.locator('#answer figure a[tabindex="0"]').count() == 1


def test_rows_of_links_can_be_folded(page):
    rows = page.locator("#by-link tbody tr:visible")
    whole = rows.count()
    res = page.get_by_role("button", name="Links below /res", exact=True)
    for expanded in ("false", "true"):
        res.click()
        assert res.get_attribute("aria-expanded") == expanded
        assert (rows.count() == whole) == (expanded == "true")
    page.get_by_role("button", name="Fold all", exact=True).click()
    # The network, and rows on the same level.
    assert rows.count() == 6
    # A link to a folded row unfolds it.
    page.evaluate("location.hash = document.querySelector('.tree tr:nth-child(5)').id")
    page.locator(".tree tr:nth-child(5)").first.wait_for()
    assert rows.count() > 6


def test_themes_follow_the_system_and_the_choice(open_page):
    page = open_page(render(working.training()), width=390, scheme="dark")
    dark = page.background()
    for shown_dark in (False, True):
        page.click("#theme")
        assert page.get_attribute("#theme", "aria-pressed") == str(shown_dark).lower()
        assert (page.background() == dark) == shown_dark
    page.emulate_media(media="print")
    assert page.background() == "rgb(255, 255, 255)"


def test_hostile_names_are_text_and_only_the_pages_own_script_runs(open_page):
    page = open_page(render(summarise(named(make_recording(len(HOSTILE)), HOSTILE))))
    assert page.inner_text("h1") == printable("".join(HOSTILE))
    assert page.column("function") == [printable(name) for name in HOSTILE]
    _, (head, *rows) = page.saved("#the-layers .save")
    assert [row[head.index("function")] for row in rows] == [safe(name) for name in HOSTILE]
    page.locator('#answer figure a[href="#layer-0"]').hover()
    assert printable(HOSTILE[0]) in page.inner_text("#tip")
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


@pytest.mark.slow
def test_page_of_six_hundred_layers_works(open_page):
    recording = make_recording(600, 20)
    # A link to a hidden row shows it.
    page = open_page(render(summarise(recording)), at="#layer-500")
    assert page.locator("tr.chosen").get_attribute("id") == "layer-500"
    page.sort("mean [ms]")
    assert page.column("#")[0] == str(int(recording.self_ns.sum(axis=0).argmax()))
    assert page.locator(f"{TABLE} tbody tr").count() == 600


@pytest.mark.parametrize("name", results())
def test_pages_fit_any_width_begin_with_the_answer_and_are_accessible(open_page, name):
    axe = needs.module("axe_playwright_python.sync_playwright").Axe()
    # The page's policy would block the checker.
    page = open_page(read(name).html, width=390, bypass_csp=True)
    # No style rule depends on width and theme together. Contrast takes most of the time. Colours
    # depend on the theme, and the narrowest page has the smallest text, which needs the most
    # contrast.
    for width, scheme in ((390, "light"), (768, ""), (1180, ""), (1400, "dark")):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme or "light")
        page.wait_for_selector(f'html[data-theme="{scheme or "light"}"]')
        # Tables and pictures scroll by themselves, and so does the navigation if it is one line.
        assert page.evaluate("document.documentElement.scrollWidth") == width
        nav = "[...document.querySelectorAll('nav a')].map((a) => a.getBoundingClientRect().right)"
        assert width == 390 or max(page.evaluate(nav), default=0) <= width
        if name not in ("comparisons", "program", "sweep"):
            place = page.locator("main strong").first.bounding_box()
            assert place["y"] + place["height"] < 500
        rules = {} if scheme else {"color-contrast": {"enabled": False}}
        checked = axe.run(page.page, options={"resultTypes": ["violations"], "rules": rules})
        assert checked.violations_count == 0, (width, scheme, checked.generate_report())
