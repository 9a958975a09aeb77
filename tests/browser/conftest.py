"""One headless Chromium for all browser tests; without Chromium they are skipped."""

import csv
import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests import needs

WAIT_MS = 20_000
TABLE = "#the-layers table"


@pytest.fixture(scope="session")
def browser():
    playwright = needs.module("playwright.sync_api")
    executable = needs.program("chromium", "chromium-browser", "google-chrome", package="chromium")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@dataclass
class Opened:
    """An open page, with the messages that it logged and the requests that it sent."""

    page: Any
    url: str
    faults: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def __getattr__(self, name):
        return getattr(self.page, name)

    def texts(self, selector):
        return self.page.locator(selector).all_inner_texts()

    def column(self, name):
        """Return the cells of a column of the layers' table, in visible rows."""
        heads = self.texts(f"{TABLE} thead th, {TABLE} thead td")
        at = heads.index(name) + 1
        return self.texts(f"{TABLE} tbody:not([hidden]) tr td:nth-child({at})")

    def sort(self, name):
        """Click a heading; return how its column is sorted now."""
        button = self.page.get_by_role("button", name=name, exact=True)
        head = self.page.locator(f"{TABLE} th", has=button)
        head.get_by_role("button").click()
        return head.get_attribute("aria-sort")

    def saved(self, selector):
        """Click a button that saves a table; return the file's name and rows."""
        with self.page.expect_download() as waiting:
            self.page.click(selector)
        content = Path(waiting.value.path()).read_text(encoding="utf-8")
        return waiting.value.suggested_filename, list(csv.reader(io.StringIO(content)))

    def background(self):
        return self.page.evaluate("getComputedStyle(document.body).backgroundColor")


@pytest.fixture
def open_page(browser, tmp_path):
    """Open a page from a file; at the end, check for faults and other requests."""
    every = []

    def open_it(html, *, width=1280, scheme="light", at="", bypass_csp=False):
        path = tmp_path / f"page{len(every)}.html"
        path.write_text(html, encoding="utf-8")
        size = {"width": width, "height": 900}
        context = browser.new_context(viewport=size, color_scheme=scheme, bypass_csp=bypass_csp)
        context.set_default_timeout(WAIT_MS)
        page = context.new_page()
        opened = Opened(page, path.as_uri())
        faults = opened.faults
        page.on("pageerror", lambda error: faults.append(str(error)))
        bad = ("error", "warning")
        page.on("console", lambda message: message.type in bad and faults.append(message.text))
        page.on("dialog", lambda dialog: (faults.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: opened.requests.append(request.url))
        page.goto(opened.url + at)
        page.wait_for_selector("html[data-ready]", timeout=WAIT_MS)
        every.append(opened)
        return opened

    yield open_it
    for opened in every:
        assert opened.faults == []
        # The page itself generates the files that it saves.
        own = ("data:", "blob:")
        asked = {url.partition("#")[0] for url in opened.requests if not url.startswith(own)}
        assert asked == {opened.url}
        opened.context.close()
