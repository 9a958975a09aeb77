"""What is said of a sweep, and its table with all digits."""

from __future__ import annotations

import csv
import io
import math

from chainer_profile.basics.units import format_exact
from chainer_profile.record.digest import Run
from chainer_profile.report.content import sweep
from chainer_profile.report.tables import meanings, to_csv
from chainer_profile.report.writers import markdown, terminal
from tests import ROOT
from tests.sweeping import make_run

RESULTS = [
    make_run("resnet18", 18.719, input_shape=(3, 1024, 2048)),
    make_run("resnet50", 61.397, input_shape=(3, 1024, 2048), blocks="bottleneck"),
]
LACKING = {"fps": math.nan, "timed": 0, "parameters": None, "memory_nbytes": None}
FAILED = make_run("resnet34", math.nan, error="out of memory | =1", **LACKING)


def rows(results: list[Run]) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(to_csv(sweep.COLUMNS, results))))


def shown(results: list[Run], width: int | None = None) -> str:
    return terminal.written(sweep.overview(results), width)


def test_csv_has_all_digits() -> None:
    first = rows(RESULTS)[0]
    assert list(first) == list(meanings(sweep.COLUMNS))
    assert (first["network"], first["input"], first["blocks"]) == ("resnet18", "1024x2048", "basic")
    assert float(first["mean_ms"]) == RESULTS[0].digest.mean_s * 1e3
    assert first["fps"] == format_exact(RESULTS[0].digest.fps)
    assert (first["parameters"], first["memory_nbytes"]) == ("11689512", "1048576")
    assert (first["machine"], first["error"]) == ("here", "")


def test_a_failed_case_has_empty_numbers() -> None:
    (row,) = rows([FAILED])
    empty = ("mean_ms", "std_ms", "fps", "trials", "trials_kind", "parameters", "memory_nbytes")
    assert [row[name] for name in empty] == [""] * len(empty)
    assert row["error"] == "out of memory | =1"


def test_the_terminal() -> None:
    lines = [" ".join(line.split()) for line in shown(RESULTS).splitlines()]
    assert lines[0] == (
        "network input batch device blocks median ms std ms FPS params memory threads machine"
    )
    assert lines[2] == (
        "resnet18 1024x2048 1 cpu basic 18.7190 1.8719 53.42 11,689,512 1.0 MiB 1 here"
    )
    assert "Times are of clean trials" in lines[-1]


def test_a_narrow_terminal_leaves_out_columns_but_no_times() -> None:
    for width in (60, 80):
        lines = shown(RESULTS, width).splitlines()
        assert max(map(len, lines)) <= width
        assert "median ms  std ms    FPS" in lines[0]


def test_phase_and_dtype_where_they_differ_from_the_usual() -> None:
    head = shown([make_run(phase="train"), *RESULTS]).splitlines()[0]
    assert " phase " in head
    assert "dtype" not in head
    assert "dtype" in shown([make_run(dtype="mixed16")])


def test_several_machines_are_marked() -> None:
    text = shown([*RESULTS, make_run("resnet34", machine="other", processor="Another")], 60)
    assert "other*" in text
    assert "here*" not in text
    assert "ran on several machines: here (A processor), other (Another)" in " ".join(text.split())
    assert "* marks those" in text
    assert "machines" not in shown(RESULTS)


def test_profiled_trials_are_named() -> None:
    said = "Of profiled trials, as there were no clean ones: resnet18-b1."
    assert said in shown([make_run(clean=False)])


def test_failed_cases_stand_below() -> None:
    text = shown([*RESULTS, FAILED])
    assert text.endswith("Failed: resnet34-b1: out of memory | =1")
    assert len([line for line in text.splitlines() if line.startswith("resnet")]) == 2
    assert shown([FAILED]) == text.splitlines()[-1]


def test_the_report() -> None:
    def report(results: list[Run], planned: int, *plots: str) -> str:
        return markdown.write(sweep.report("r3", results, planned, "python profile.py", plots))

    text = report([*RESULTS, FAILED], 4, "a-b.png")
    assert text.startswith("# r3\n\n2 of 4 cases.\n\n| network | input | batch |")
    assert "| resnet50 | 1024x2048 | 1 | cpu | bottleneck | 61.3970 | 6.1397 | 16.29 |" in text
    assert "- Failed: resnet34-b1: out of memory \\| =1" in text
    assert "![A b](a-b.png)" in text
    assert text.endswith("Made by:\n\n```\npython profile.py\n```\n")
    assert report(RESULTS, 2).startswith("# r3\n\n2 cases.")
    assert "\n1 case.\n" in report(RESULTS[:1], 1)


def test_the_columns_are_documented() -> None:
    text = (ROOT / "docs" / "sweep.md").read_text()
    rows = [f"| `{name}` | {meaning} |" for name, meaning in meanings(sweep.COLUMNS).items()]
    assert "\n".join(rows) in text
