"""How a network's summary is shown."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
from markdown_it import MarkdownIt

from chainer_profile.basics.errors import UsageError
from chainer_profile.record.network import TEXTS, ModelSummary
from chainer_profile.report.writers.model_table import (
    ARRAYS,
    COLUMNS,
    DEFAULTS,
    LAYERS,
    LINKS,
    choose_columns,
    render,
)

_ZEROS = dict.fromkeys(["parameters", "trainable", "persistent"], 0)


def layer(path: str, function: str, flops: int | None, **more: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"path": path, "function": function, "input_shapes": ((1, 3),)}
    row |= {"output_shapes": ((1, 2),), "dtype": "float32", **_ZEROS, "macs": 0, "flops": flops}
    row |= {"nbytes_read": 12, "nbytes_written": 8, "nbytes_output": 8}
    if flops is None:
        row |= dict.fromkeys(["macs", "nbytes_read", "nbytes_written"])
    return row | more


def summary(*layers: dict[str, Any]) -> ModelSummary:
    table = pd.DataFrame(list(layers), columns=list(COLUMNS[LAYERS])[1:])
    table.index.name = "index"
    for name in ("macs", "flops", "nbytes_read", "nbytes_written"):
        table[name] = table[name].astype("Int64")
    arrays = pd.DataFrame(
        [
            ("parameter", "/fc/W", "/fc", (2, 3), "float32", 6, 24),
            ("persistent", "/fc/n", "/fc", (), "int64", 1, 8),
            ("input", "input", "", (1, 3), "float32", 3, 12),
            ("output", "0_Linear", "/fc", (1, 2), "float32", 2, 1_500_000),
        ],
        columns=list(COLUMNS[ARRAYS]),
    )
    return ModelSummary(
        "net", ((1, 3),), ("float32",), table, arrays, {"/": "Net", "/fc": "Linear"}
    )


@pytest.fixture
def known() -> ModelSummary:
    owned = {"parameters": 1_234_567, "trainable": 1_234_000, "persistent": 5, "macs": 6}
    return summary(layer("/fc", "Linear", 12, **owned), layer("/", "ReLU", 2))


@pytest.fixture
def lacking() -> ModelSummary:
    return summary(layer("/fc", "Linear", 12), layer("/", "Odd", None), layer("/", "ReLU", 2))


def lines_of(text: str, start: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(start)]


def read_csv(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_the_table(known: ModelSummary) -> None:
    text = render(known, columns=["index", "path", "function", "output_shapes", "parameters"])
    assert text.splitlines()[:6] == [
        "net: input 1x3 float32; one forward pass in test mode",
        "",
        "index  path  function  output_shapes  parameters",
        "-----  ----  --------  -------------  ----------",
        "    0  /fc   Linear    1x2             1,234,567",
        "    1  /     ReLU      1x2                     0",
    ]


def test_totals_and_memory(known: ModelSummary) -> None:
    text = render(known)
    for line in (
        "parameters                      1,234,567 (1.235 M): 1,234,000 trainable, 567 not",
        "persistent elements             5",
        "multiply-accumulates            6",
        "floating-point operations       14",
        "bytes read                      24",
        "bytes written                   16",
        "memory of the input             0.00 MB (12 bytes)",
        "memory of activations, forward  1.50 MB (1,500,000 bytes)",
        "memory, forward and backward    3.00 MB (3,000,000 bytes)",
        "memory, total                   3.00 MB (3,000,044 bytes)",
    ):
        assert line in text.splitlines()
    assert "twice that, as torchinfo has it" in text
    assert "at least" not in text
    assert "formula, and so missing" not in text


def test_columns_add_up_to_the_totals(known: ModelSummary) -> None:
    for view in (LAYERS, LINKS):
        rows = read_csv(render(known, "csv", view=view))
        assert sum(int(row["flops"]) for row in rows) == known.flops == 14
        assert sum(int(row["parameters"]) for row in rows) == known.parameters
    rows = read_csv(render(known, "csv", view=ARRAYS))
    assert sum(int(row["nbytes"]) for row in rows) == known.total_nbytes - known.forward_nbytes


def test_what_has_no_formula_is_a_dash_and_named(lacking: ModelSummary) -> None:
    text = render(lacking, columns=["function", "flops"])
    assert lines_of(text, "Odd") == ["Odd           -"]
    assert "floating-point operations       at least 14" in text
    assert lines_of(text, "Without") == [
        "Without a formula, and so missing in the totals: Odd (1 call)."
    ]


def test_a_link_that_lacks_some_of_it_says_so(lacking: ModelSummary) -> None:
    text = render(lacking, view=LINKS, columns=["path", "flops"])
    assert lines_of(text, "/") == ["/       >=2", "/fc      12"]
    rows = read_csv(
        render(lacking, "csv", view=LINKS, columns=["path", "flops", "without_formula"])
    )
    assert [tuple(row.values()) for row in rows] == [("/", "2", "1"), ("/fc", "12", "0")]


def test_csv_is_the_table_alone_with_exact_numbers(lacking: ModelSummary) -> None:
    text = render(lacking, "csv", columns=["index", "function", "flops", "output_shapes"])
    assert text == "index,function,flops,output_shapes\n0,Linear,12,1x2\n1,Odd,,1x2\n2,ReLU,2,1x2"


def test_scalars_have_a_shape(known: ModelSummary) -> None:
    for form in ("table", "csv"):
        text = render(known, form, view=ARRAYS, columns=["name", "shape"])
        assert lines_of(text, "/fc/n")[0].split(",")[-1].split()[-1] == "scalar"


@pytest.mark.parametrize("view", [LAYERS, LINKS, ARRAYS])
def test_markdown_is_a_table_of_the_same_cells(lacking: ModelSummary, view: str) -> None:
    html = MarkdownIt("commonmark").enable("table").render(render(lacking, "markdown", view=view))
    assert html.count("<table>") == 2
    head = html.partition("</thead>")[0]
    assert head.count("<th") - head.count("<thead") == len(DEFAULTS[view])
    assert all(name in head for name in DEFAULTS[view])
    assert "Odd (1 call)" in html


def test_parameters_without_a_call() -> None:
    found = summary(layer("/fc", "", 0, parameters=7, output_shapes=()))
    text = render(found, columns=["path", "function", "output_shapes", "parameters"])
    assert lines_of(text, "/fc") == ["/fc   -                                 7"]
    assert "come last, without a function" in text
    assert "calls no function" in text


def test_nothing_at_all() -> None:
    found = summary()
    for view in (LAYERS, LINKS, ARRAYS):
        for form in ("table", "csv", "markdown"):
            assert render(found, form, view=view).startswith(
                {"table": "net: ", "csv": DEFAULTS[view][0], "markdown": "# net"}[form]
            )


def test_names_stay_on_their_line() -> None:
    found = summary(layer("/a\nb", "=F\x1b", 1))
    assert lines_of(render(found, columns=["path"]), "/") == ["/a\\nb"]
    assert read_csv(render(found, "csv"))[0]["function"] == "'=F\\x1b"
    text = render(replace(found, name="a\nb"))
    assert text.startswith("a\\nb: input")


def test_a_narrow_terminal_does_without_some_columns(known: ModelSummary) -> None:
    wide = render(known)
    full = max(map(len, wide.splitlines()[2:6]))
    assert render(known, width=full).splitlines()[2:6] == wide.splitlines()[2:6]
    head = render(known, width=full - 1).splitlines()[2].split()
    assert head == [name for name in DEFAULTS[LAYERS] if name != "nbytes_written"]
    narrowest = render(known, width=50).splitlines()[3].split()  # two lines say what it is
    assert narrowest == ["path", "function", "output_shapes", "parameters", "macs"]
    # Columns that were asked for stay.
    asked = render(known, columns=["path", "nbytes_written"], width=50)
    assert asked.splitlines()[3].split() == ["path", "nbytes_written"]


@pytest.mark.parametrize("view", [LAYERS, LINKS, ARRAYS])
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


@pytest.mark.parametrize("view", [LAYERS, LINKS, ARRAYS])
@pytest.mark.parametrize("form", ["table", "csv", "markdown"])
def test_every_column_can_be_shown(known: ModelSummary, view: str, form: str) -> None:
    text = render(known, form, view=view, columns=list(COLUMNS[view]))
    assert all(name in text for name in COLUMNS[view])


def test_every_column_has_a_meaning_and_a_side() -> None:
    for view, columns in COLUMNS.items():
        assert all(columns.values())
        assert set(DEFAULTS[view]) <= set(columns)
    assert set().union(*COLUMNS.values()) >= TEXTS
