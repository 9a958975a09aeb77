"""How large report.html of a deep network is, and how fast it is written, painted and sorted.

    python benchmarks/page.py [--trials 1000] [--repeats 5] [--keep DIR]

The recording is of a training step of ResNet152, with links, work, limits and memory; its times are
drawn at random. Paint and sort are timed in
headless Chromium (Debian's package, driven by playwright).
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

import chainer_profile  # noqa: E402
from chainer_profile.basics.units import format_duration, format_nbytes  # noqa: E402
from chainer_profile.record.recording import MachineLimits, Recording  # noqa: E402
from models import REGISTRY  # noqa: E402

#: Targets: seconds to write, bytes, seconds until all is drawn, seconds to sort.
MAX_WRITE_S, MAX_NBYTES, MAX_DRAWN_S, MAX_SORT_S = 5.0, 2_500_000, 1.5, 0.1

#: From the click on each heading until the new rows are laid out.
SORT_ALL = """
() => [...document.querySelectorAll("#all-layers th button")].map((head) => {
  const before = performance.now();
  head.click();
  document.querySelector("#all-layers table").getBoundingClientRect();
  return (performance.now() - before) / 1e3;
})
"""


#: Milliseconds from the begin until the page's first picture is on the screen.
DRAWN = """
() => new Promise((then) => {
  const seen = new PerformanceObserver((list) => then(list.getEntries().at(-1).startTime));
  seen.observe({ type: "largest-contentful-paint", buffered: true });
}).then((at) => Math.max(at, performance.getEntriesByType("navigation")[0].loadEventEnd))
"""


def make_recording(n_trials: int) -> Recording:
    """A training step on a small image; so many trials, gamma-distributed and slowly drifting."""
    x = np.zeros((1, 3, 64, 64), np.float32)
    measured = chainer_profile.profile(
        REGISTRY["resnet152"].build(), x, phase="train", trials=2, warmups=1
    )
    rng = np.random.default_rng(0)
    means = rng.gamma(1.0, 400_000, len(measured.layers)) + 5_000
    drift = 1 + 0.05 * np.linspace(0, 1, n_trials)[:, None]
    self_ns = (rng.gamma(50.0, means / 50.0, (n_trials, len(means))) * drift).astype(np.int64)
    framework_ns = np.full((n_trials, len(measured.phases)), 2_000_000, np.int64)
    trial_ns = self_ns.sum(axis=1) + framework_ns.sum(axis=1) + 100_000
    starts = np.concatenate([[0], np.cumsum(trial_ns)])
    clean_ns = trial_ns[::10] - 1_000_000
    return replace(
        measured,
        self_ns=self_ns,
        framework_ns=framework_ns,
        trial_ns=trial_ns,
        start_ns=starts[:-1],
        clean_ns=clean_ns,
        clean_start_ns=starts[-1] + np.cumsum(clean_ns),
        clean_cpu_ns=None,
        settings=replace(measured.settings, model="resnet152", trials=n_trials),
        limits=MachineLimits("k", "cpu", "", 2, 1e11, None, 2e10, 8e9, 1 << 28),
    )


def verdict(name: str, value: str, target: str, met: bool) -> bool:
    print(f"{name:<28} {value:>12}   at most {target:<10} {'met' if met else 'MISSED'}")
    return met


def in_chromium(page: Path, repeats: int) -> tuple[list[float], list[list[float]]] | None:
    """Of every repeat: seconds until all is drawn, and to sort by each column."""
    executable = shutil.which("chromium") or shutil.which("google-chrome")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        print("playwright is not installed, so nothing is timed in a browser")
        return None
    if executable is None:
        print("there is no Chromium, so nothing is timed in a browser")
        return None
    drawn: list[float] = []
    sorts: list[list[float]] = []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        for _ in range(repeats):
            opened = browser.new_page(viewport={"width": 1280, "height": 900})
            opened.goto(page.as_uri())
            opened.wait_for_selector("html[data-ready]", timeout=120_000)
            drawn.append(opened.evaluate(DRAWN) / 1e3)
            sorts.append(opened.evaluate(SORT_ALL))
            opened.close()
        browser.close()
    return drawn, sorts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--keep", type=Path, help="folder for the page")
    arguments = parser.parse_args()
    recording = make_recording(arguments.trials)
    summary = chainer_profile.summarise(recording)
    print(f"{len(recording.layers):,} rows x {arguments.trials:,} trials")
    begin = time.perf_counter()
    from chainer_profile.report.page import render

    text = render(summary)
    with tempfile.TemporaryDirectory() as folder:
        path = (arguments.keep or Path(folder)) / "report.html"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        write_s = time.perf_counter() - begin
        nbytes = path.stat().st_size
        met = [
            verdict(
                "written, imports and all", format_duration(write_s), "5 s", write_s <= MAX_WRITE_S
            ),
            verdict("size", format_nbytes(nbytes), "2.5 MB", nbytes <= MAX_NBYTES),
        ]
        found = in_chromium(path, arguments.repeats)
    if found is not None:
        drawn, sorts = found
        drawn_s = statistics.median(drawn)
        by_column = [statistics.median(column) for column in zip(*sorts, strict=True)]
        sort_s = max(by_column)
        met += [
            verdict("drawn, median", format_duration(drawn_s), "1.5 s", drawn_s <= MAX_DRAWN_S),
            verdict(
                "sort, slowest column", format_duration(sort_s), "100 ms", sort_s <= MAX_SORT_S
            ),
        ]
        print(f"{'sort, median column':<28} {format_duration(statistics.median(by_column)):>12}")
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
