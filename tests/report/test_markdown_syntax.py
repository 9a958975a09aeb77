from __future__ import annotations

import pytest

from chainer_profile.report.columns import Column
from chainer_profile.report.markdown_syntax import address, code, columns_table, link, table
from tests.report.reading import read


def test_a_table_of_columns() -> None:
    columns = [
        Column("name", lambda row: row[0], folds=8),
        Column("ms", lambda row: row[1], "time [ms]"),
    ]
    text = columns_table(columns, [("a|b", "1"), ("*c*", "")], bold=[False, True])
    report = read(text)
    assert report.tables == [[["name", "time [ms]"], ["a|b", "1"], ["*c*", ""]]]
    assert report.bold_rows == [("name", "*c*")]
    assert text.splitlines()[1] == "| --- | ---: |"


def test_an_empty_cell_is_not_bold() -> None:
    assert table(("a", "b"), [("", "x")], bold=[True]).splitlines()[-1] == "|  | **x** |"


@pytest.mark.parametrize("path", ["links.csv", "a b/(1).csv", "[x].csv", "a*b.csv"])
def test_a_link_shows_the_name_and_leads_to_it(path: str) -> None:
    report = read(link(path))
    assert report.text == [path]
    assert report.links == [address(path)]
    assert " " not in address(path)


@pytest.mark.parametrize("lines", ["a", "```", "x ```` y", ""])
def test_code_is_shown_as_it_is(lines: str) -> None:
    assert read(code(lines)).code == [f"{lines}\n"]
