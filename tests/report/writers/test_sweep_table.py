"""The table of a sweep."""

from __future__ import annotations

import csv
import io
import math

from chainer_profile.basics.units import format_exact
from chainer_profile.record.digest import Run
from chainer_profile.report.writers import sweep_table
from tests import ROOT
from tests.sweeping import make_run

RESULTS = [
    make_run("resnet18", 18.719, input_shape=(3, 1024, 2048)),
    make_run("resnet50", 61.397, input_shape=(3, 1024, 2048), blocks="bottleneck"),
]
FAILED = make_run(
    "resnet34",
    math.nan,
    error="out of memory | =1",
    fps=math.nan,
    timed=0,
    parameters=None,
    memory_nbytes=None,
)


def rows(results: list[Run]) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(sweep_table.render_csv(results))))


def test_csv_has_all_digits() -> None:
    first = rows(RESULTS)[0]
    assert list(first) == list(sweep_table.COLUMNS)
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
    lines = sweep_table.render_text(RESULTS, None).splitlines()
    assert " ".join(lines[0].split()) == (
        "network input batch device blocks median ms std ms FPS params memory threads machine"
    )
    assert " ".join(lines[2].split()) == (
        "resnet18 1024x2048 1 cpu basic 18.7190 1.8719 53.42 11,689,512 1.0 MiB 1 here"
    )
    assert "Times are of clean trials" in lines[-1]


def test_a_narrow_terminal_leaves_out_columns_but_no_times() -> None:
    for width in (60, 80):
        table = sweep_table.render_text(RESULTS, width).split("\n\n")[0].splitlines()
        assert max(map(len, table)) <= width
        assert "median ms" in table[0]
        assert "FPS" in table[0]


def test_phase_and_dtype_where_they_differ_from_the_usual() -> None:
    head = sweep_table.render_text([make_run(phase="train"), *RESULTS], None).splitlines()[0]
    assert " phase " in head
    assert "dtype" not in head
    assert "dtype" in sweep_table.render_text([make_run(dtype="mixed16")], None)


def test_several_machines_are_marked() -> None:
    results = [*RESULTS, make_run("resnet34", machine="other", processor="Another")]
    text = sweep_table.render_text(results, 60)
    assert "other*" in text
    assert "here*" not in text
    assert "ran on several machines: here (A processor), other (Another)" in " ".join(text.split())
    assert "* marks those" in text
    assert "machines" not in sweep_table.render_text(RESULTS, None)


def test_profiled_trials_are_named() -> None:
    text = sweep_table.render_text([make_run(clean=False)], None)
    assert "Of profiled trials, as there were no clean ones: resnet18-b1." in text


def test_failed_cases_stand_below() -> None:
    text = sweep_table.render_text([*RESULTS, FAILED], None)
    assert text.endswith("Failed: resnet34-b1: out of memory | =1")
    assert len([line for line in text.splitlines() if line.startswith("resnet")]) == 2
    assert sweep_table.render_text([FAILED], None) == text.splitlines()[-1]


def test_markdown() -> None:
    text = sweep_table.render_markdown(
        "r3", [*RESULTS, FAILED], 4, "python profile.py", ["a-b.png"]
    )
    assert text.startswith("# r3\n\n2 of 4 cases.\n\n| network | input | batch |")
    assert "| resnet50 | 1024x2048 | 1 | cpu | bottleneck | 61.3970 | 6.1397 | 16.29 |" in text
    assert "- Failed: resnet34-b1: out of memory \\| =1" in text
    assert "![A b](a-b.png)" in text
    assert text.endswith("Made by:\n\n```\npython profile.py\n```\n")
    assert sweep_table.render_markdown("r3", RESULTS, 2, "x", []).startswith("# r3\n\n2 cases.")
    assert "\n1 case.\n" in sweep_table.render_markdown("r3", RESULTS[:1], 1, "x", [])


def test_the_columns_are_documented() -> None:
    text = (ROOT / "docs" / "sweep.md").read_text()
    rows = [f"| `{name}` | {meaning} |" for name, meaning in sweep_table.COLUMNS.items()]
    assert "\n".join(rows) in text
