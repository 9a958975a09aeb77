"""A run of several engines: the terminal, the report and engines.csv."""

from __future__ import annotations

import csv
import io
import re

import pytest

from chainer_profile.engines.results import EnginesRun
from chainer_profile.report.content.engines import overview, report, to_file
from chainer_profile.report.writers import markdown, terminal
from tests.engines.fake_engines import MISSING, WRONG, make_run, recordings, result


def shown(run: EnginesRun, width: int = 160) -> list[str]:
    return terminal.written(overview(run, recordings()), width).splitlines()


def test_the_terminal_shows_every_engine() -> None:
    lines = shown(make_run(WRONG, MISSING))
    head, fast, hasty = (
        next(re.split("  +", line) for line in lines if line.startswith(f"{name}  "))
        for name in ("engine", "fast", "hasty")
    )
    assert head == [
        *("engine", "mean ms", "median ms", "vs chainer", "95 %", "vs fast", "p95 ms"),
        *("iterations/s", "difference", "precision", "version"),
    ]
    assert fast == [
        *("fast", "0.0998", "0.1000", "10.00x", "10.00x to 10.00x", "0.1030"),
        *("10,017", "1.0e-06", "fp32", "1.0"),
    ]
    assert hasty.count("wrong outputs") == 2
    assert "openvino: not installed: pip install openvino" in lines
    assert any(line.startswith("Take fast") for line in lines)


@pytest.mark.parametrize("width", [50, 72, 100])
def test_a_narrow_terminal_shows_fewer_columns_and_always_chainer(width: int) -> None:
    lines = shown(make_run(WRONG, result("third", 77)), width)
    at = next(i for i, line in enumerate(lines) if line.startswith("engine "))
    assert max(map(len, lines[at : at + 6])) <= max(width, 60)
    assert "vs chainer" in lines[at]
    assert "vs fast" not in lines[at]
    assert "10.00x" in lines[at + 3]
    assert "vs fast" in " ".join(lines[at + 6 :]).partition("Not shown at this width: ")[2]


def test_a_run_without_trials_has_no_table() -> None:
    nothing = EnginesRun(engines=(MISSING,), settings=make_run().settings)
    assert not any(line.startswith("engine ") for line in shown(nothing))
    for text in ("\n".join(shown(nothing)), markdown.write(report(nothing, {}))):
        assert "openvino: not installed: pip install openvino" in text


def test_the_report_says_it_all() -> None:
    text = markdown.write(report(make_run(WRONG, MISSING), recordings()))
    for part in (
        "# chain under 3 engines",
        "**fast is 10.00x as fast as chainer: 1.000 ms a trial, and 100.0 us, 95 % interval",
        "> **Note:** hasty: wrong outputs: they differ by up to 5.0e-01",
        "| engine | Average Time [ms] | Median [ms] | vs chainer | 95 % interval |",
        "![Bar plot of the time of a trial under every engine](engines.png)",
        "## Outputs",
        "- fast: 6 layers became 3 nodes, and 1 of them nothing: 1.000 ms -> 95.00 us",
        "| 0-2 | /res2/0/conv1 | Convolution2D + 2 fused | 0.5500 | 0.0600 | 9.17x faster |",
        "Only in chainer: 1 layer, 20.00 us: 5_ReLU at /res2/1.",
        "[fast/report.md](fast/report.md)",
        "- Take fast: it is 10.00x as fast as chainer",
        "python profile.py engines --model chain",
        "| Processor | A processor |",
    ):
        assert part in text, part


def test_the_csv_has_all_digits_and_the_matrix() -> None:
    run = make_run(WRONG, MISSING)
    found = {row["engine"]: row for row in csv.DictReader(io.StringIO(to_file(run, recordings())))}
    assert list(found) == ["chainer", "fast", "hasty", "openvino"]
    fast, hasty = found["fast"], found["hasty"]
    statistics = run.engines[1].statistics
    assert statistics is not None
    assert float(fast["mean_ms"]) == statistics.mean_s * 1e3
    assert float(fast["iterations_per_s"]) == 1 / statistics.mean_s
    assert (fast["speedup_vs_chainer"], fast["speedup_vs_fast"]) == ("10.0", "")
    told = [fast[name] for name in ("outputs", "layers", "nodes", "gone")]
    assert told == ["right", "6", "3", "1"]
    assert float(fast["nodes_ms"]) + float(fast["between_ms"]) == pytest.approx(0.1)
    assert found["chainer"]["gone"] == "0"
    assert (hasty["outputs"], hasty["speedup_vs_chainer"], hasty["nodes"]) == ("wrong", "", "")
    assert found["openvino"]["install"] == "pip install openvino"
    assert found["openvino"]["mean_ms"] == ""
