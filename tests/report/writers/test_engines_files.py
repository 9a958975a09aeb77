"""The table, the files and the plot of a run of several engines."""

from __future__ import annotations

import csv
import io
import re

import numpy as np
import pytest
from markdown_it import MarkdownIt
from matplotlib.patches import Rectangle
from rich.console import Console

from chainer_profile.engines.results import EnginesRun
from chainer_profile.report.content.engines_text import BETWEEN
from chainer_profile.report.pictures import engines as engines_plot
from chainer_profile.report.pictures.engines import bars
from chainer_profile.report.writers import engines_csv, engines_markdown, engines_table
from tests.engines.fake_engines import MISSING, WRONG, make_run, recordings, result


def printed(run: EnginesRun, width: int = 160) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    engines_table.render(run, recordings(), console)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def test_the_terminal_shows_every_engine() -> None:
    lines = printed(make_run(WRONG, MISSING))
    (head,) = (line for line in lines if line.startswith("engine "))
    assert re.split("  +", head) == [
        *("engine", "version", "precision", "mean ms", "median ms", "p95 ms", "iterations/s"),
        *("vs chainer", "95 %", "vs fast", "difference"),
    ]
    (fast,) = (line for line in lines if line.startswith("fast  "))
    assert re.split("  +", fast) == [
        *("fast", "1.0", "fp32", "0.0998", "0.1000", "0.1030", "10,017"),
        *("10.00x", "10.00x to 10.00x", "1.0e-06"),
    ]
    (hasty,) = (line for line in lines if line.startswith("hasty  "))
    assert hasty.count("wrong outputs") == 2
    assert "openvino: not installed: pip install openvino" in lines
    assert any(line.startswith("Take fast") for line in lines)


@pytest.mark.parametrize("width", [50, 72, 100])
def test_a_narrow_terminal_shows_fewer_columns_and_always_chainer(width: int) -> None:
    lines = printed(make_run(WRONG, result("third", 77)), width)
    at = next(i for i, line in enumerate(lines) if line.startswith("engine "))
    table = lines[at : at + 6]
    assert max(map(len, table)) <= max(width, 60)
    assert "vs chainer" in table[0]
    assert ("vs fast" in table[0]) == (width >= 160)
    assert "10.00x" in table[3]


def test_a_run_without_trials_has_no_table() -> None:
    run = make_run(MISSING)
    nothing = EnginesRun(engines=(MISSING,), settings=run.settings)
    assert not any(line.startswith("engine ") for line in printed(nothing))
    assert "openvino: not installed: pip install openvino" in printed(nothing)
    assert engines_markdown.render(nothing, {})
    assert engines_plot.render(nothing, {}, "svg")


def rows(run: EnginesRun) -> dict[str, dict[str, str]]:
    found = csv.DictReader(io.StringIO(engines_csv.render(run, recordings())))
    return {row["engine"]: row for row in found}


def test_the_csv_has_all_digits_and_the_matrix() -> None:
    found = rows(make_run(WRONG, MISSING))
    assert list(found) == ["chainer", "fast", "hasty", "openvino"]
    fast = found["fast"]
    run = make_run()
    statistics = run.engines[1].statistics
    assert statistics is not None
    assert float(fast["mean_ms"]) == statistics.mean_s * 1e3
    assert float(fast["iterations_per_s"]) == 1 / statistics.mean_s
    assert (fast["speedup_vs_chainer"], fast["speedup_vs_fast"]) == ("10.0", "")
    assert (fast["outputs"], fast["layers"], fast["nodes"], fast["gone"]) == (
        "right",
        "6",
        "3",
        "1",
    )
    assert float(fast["nodes_ms"]) + float(fast["between_ms"]) == pytest.approx(0.1)
    assert found["chainer"]["gone"] == "0"
    hasty = found["hasty"]
    assert (hasty["outputs"], hasty["speedup_vs_chainer"], hasty["nodes"]) == ("wrong", "", "")
    assert found["openvino"]["install"] == "pip install openvino"
    assert found["openvino"]["mean_ms"] == ""


def test_the_report_says_it_all() -> None:
    text = engines_markdown.render(make_run(WRONG, MISSING), recordings())
    for part in (
        "# chain under 3 engines",
        "| engine | version | precision | Average Time [ms] |",
        "![Bar plot of the time of a trial under every engine](engines.png)",
        "## Outputs",
        "**hasty**: wrong outputs: they differ by up to 5.0e-01",
        "- fast: 6 layers became 3 nodes, and 1 of them nothing: 1.000 ms -> 95.00 us",
        "| no node | 5_ReLU /res2/1 | 0.0200 | 0.0000 |",
        "[fast/report.md](fast/report.md)",
        "- Take fast: it is 10.00x as fast as chainer",
        "python profile.py engines --model chain",
        "| Processor | A processor |",
    ):
        assert part in text, part
    html = MarkdownIt("commonmark").enable("table").render(text)
    assert html.count("<table>") == 5
    assert "None" not in text


def test_names_in_the_report_are_shown_as_they_are() -> None:
    odd = result("a|b*c*<i>", 10, error="it\nbroke | <b>")
    text = engines_markdown.render(make_run(odd), {})
    assert "a\\|b\\*c\\*&lt;i&gt;" in text
    assert "<b>" not in text


def test_parts_of_a_bar_add_up_to_it() -> None:
    found = bars(make_run(WRONG), recordings())
    assert [bar.engine.name for bar in found] == ["chainer", "fast", "hasty"]
    chainer, fast, hasty = found
    assert sum(chainer.parts.values()) == pytest.approx(1)
    assert chainer.parts[BETWEEN] == pytest.approx(1 / 6)
    assert chainer.parts["Convolution2DFunction"] == pytest.approx(750 / 1200)
    assert fast.parts["Convolution2DFunction"] == pytest.approx(0.9)
    assert fast.parts[BETWEEN] == pytest.approx(0.05)
    assert hasty.parts == {}
    assert fast.median_s == pytest.approx(100e-6)


def test_small_functions_are_one_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines_plot, "_LEAST", 0.3)
    chainer, _ = bars(make_run(), recordings())
    assert list(chainer.parts) == ["Convolution2DFunction", engines_plot.REST, BETWEEN]
    assert sum(chainer.parts.values()) == pytest.approx(1)


def test_the_figure_has_a_bar_for_every_engine_and_says_its_time() -> None:
    figure = engines_plot.figure(make_run(WRONG), recordings())
    left, right = figure.axes
    lengths: dict[float, float] = {}
    for patch in left.patches:
        assert isinstance(patch, Rectangle)
        at = round(patch.get_y() + patch.get_height() / 2)
        lengths[at] = lengths.get(at, 0.0) + patch.get_width()
    assert lengths == pytest.approx({0: 1.0, 1: 0.1, 2: 0.05})
    assert sum(patch.get_width() for patch in right.patches) == pytest.approx(200)
    said = [text.get_text() for text in left.texts]
    assert said == ["1.000 ms", "100.0 us, 10.00x", "50.00 us, wrong outputs"]
    assert left.patches[-1].get_hatch()
    assert np.isclose(left.get_ylim()[0], 2.6)


def test_plots_are_the_same_when_made_twice() -> None:
    run, found = make_run(WRONG), recordings()
    svg = engines_plot.render(run, found, "svg")
    assert svg == engines_plot.render(run, found, "svg")
    words = set(re.findall(r">([^<>]+)</text>", svg.decode()))
    assert {"chainer fp32", "fast fp32", "Convolution2DFunction", BETWEEN} <= words
    assert engines_plot.render(run, found, "png").startswith(b"\x89PNG")
