"""Makes the pictures of docs/ from the samples: ``python -m benchmarks.pictures``."""

from __future__ import annotations

import io
import shutil
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from benchmarks import samples

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
_WIDTH, _HEIGHT, _SCALE = 1180, 900, 1.5


def save_screenshot(page: Page, name: str) -> None:
    """Save a screenshot with 128 colours."""
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    PICTURES.mkdir(parents=True, exist_ok=True)
    picture.quantize(128).save(PICTURES / name, optimize=True)


def page_of(sample: str, folder: str, name: str = "report.html") -> str:
    """Make a sample's page in a folder; return its address."""
    target = Path(folder, sample)
    target.mkdir()
    samples.make(sample, target, (name,))
    return (target / name).as_uri()


def show(page: Page, section: str) -> None:
    """Scroll to a section."""
    page.evaluate("(id) => document.getElementById(id).scrollIntoView()", section)


def main() -> None:
    """Open the pages of samples, and save screenshots."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        path = shutil.which("chromium") or shutil.which("google-chrome")
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page(
            viewport={"width": _WIDTH, "height": _HEIGHT}, device_scale_factor=_SCALE
        )
        page.goto(page_of("resnet20-cpu-b32-train", folder))
        save_screenshot(page, "page.png")
        show(page, "by-link")
        save_screenshot(page, "layers.png")
        page.goto(page_of("resnet20-cpu-b1", folder))
        page.locator("#theme").click()
        show(page, "the-layers")
        save_screenshot(page, "trials.png")
        page.goto(page_of("engines-resnet20-cpu-b1", folder, "engines.html"))
        save_screenshot(page, "engines.png")
        browser.close()


if __name__ == "__main__":
    main()
