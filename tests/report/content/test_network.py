"""What is said of a network: its rows, totals and notes; the choice of columns; the CSV."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from chainer_profile.basics.errors import UsageError
from chainer_profile.record.network import ModelSummary
from chainer_profile.report.content.network import (
    COLUMNS,
    DEFAULTS,
    LAYERS,
    LINKS,
    choose_columns,
    overview,
    to_file,
)
from chainer_profile.report.writers import terminal
from tests.report.documents import network_of, network_row

VIEWS = (LAYERS, LINKS)


@pytest.fixture
def known() -> ModelSummary:
    owned = {"parameters": 1_234_567, "trainable": 1_234_000, "persistent": 5, "macs": 6}
    owned["nbytes_output"] = 1_500_000
    return network_of(network_row("/fc", "Linear", 12, **owned), network_row("/", "ReLU", 2))


@pytest.fixture
def lacking() -> ModelSummary:
    rows = (("/fc", "Linear", 12), ("/", "Odd", None), ("/", "ReLU", 2))
    return network_of(*(network_row(*row) for row in rows))


def shown(summary: ModelSummary, width: int | None = None, **options: Any) -> list[str]:
    return terminal.written(overview(summary, **options), width).splitlines()


def read_csv(summary: ModelSummary, **options: Any) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(to_file(summary, **options))))


def test_columns_add_up_to_the_totals(known: ModelSummary) -> None:
    for view in (LAYERS, LINKS):
        rows = read_csv(known, view=view)
        assert sum(int(row["flops"]) for row in rows) == known.flops == 14
        assert sum(int(row["parameters"]) for row in rows) == known.parameters


def test_csv_is_the_table_alone_with_exact_numbers(lacking: ModelSummary) -> None:
    text = to_file(lacking, columns=["index", "function", "flops", "output_shapes"])
    assert text == "index,function,flops,output_shapes\n0,Linear,12,1x2\n1,Odd,,1x2\n2,ReLU,2,1x2\n"
    rows = read_csv(lacking, view=LINKS, columns=["path", "flops", "without_formula"])
    assert [tuple(row.values()) for row in rows] == [("/", "2", "1"), ("/fc", "12", "0")]
    odd = network_of(network_row("/a\nb", "=F\x1b", 1))
    assert read_csv(odd)[0]["function"] == "'=F\\x1b"


def test_a_narrow_terminal_does_without_some_columns(known: ModelSummary) -> None:
    wide = shown(known)
    full = max(map(len, wide[3:7]))
    assert shown(known, full)[3:7] == wide[3:7]
    head = shown(known, 50)[3].split()
    assert head == ["path", "function", "output_shapes", "parameters", "macs"]
    # Columns that were asked for stay.
    assert shown(known, 50, columns=["path", "nbytes_written"])[3].split()[1] == "nbytes_written"


def test_a_limit_says_what_is_not_shown(lacking: ModelSummary) -> None:
    lines = shown(lacking, limit=1)
    assert "2 rows not shown." in lines
    assert not any("not shown" in line for line in shown(lacking, limit=3))


@pytest.mark.parametrize("view", VIEWS)
def test_choosing_columns(view: str) -> None:
    assert choose_columns(view, None) == DEFAULTS[view]
    every = list(COLUMNS[view])
    assert choose_columns(view, every[::-1]) == tuple(every[::-1])
    assert choose_columns(view, [every[1], every[0], every[1]]) == (every[1], every[0])
    for wrong in (["macs\n", "foo"], [""], []):
        with pytest.raises(UsageError, match="unknown column") as error:
            choose_columns(view, wrong)
        assert str(error.value).endswith(f"known are {', '.join(every)}")
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("view", VIEWS)
def test_every_column_can_be_shown_and_has_a_meaning(known: ModelSummary, view: str) -> None:
    columns = COLUMNS[view]
    heads = [line.split() for line in shown(known, view=view, columns=list(columns))]
    assert list(columns) in heads
    assert list(read_csv(known, view=view, columns=list(columns))[0]) == list(columns)
    assert set(DEFAULTS[view]) <= set(columns)
