"""Tables as plain text."""

from __future__ import annotations

from chainer_profile.renderers.aligned import aligned_table
from chainer_profile.renderers.columns import Column

COLUMNS = [
    Column("name", str, folds=4),
    Column("length", lambda row: str(len(row))),
    Column("first", lambda row: row[:1], folds=1, drop=2),
    Column("last", lambda row: row[-1:], folds=1, drop=1),
]


def test_texts_to_the_left_and_numbers_to_the_right() -> None:
    assert aligned_table(COLUMNS, ["abc", "defghi"]) == [
        "name    length  first  last",
        "------  ------  -----  ----",
        "abc          3  a      c",
        "defghi       6  d      i",
    ]


def test_columns_are_left_out_in_order_and_others_never() -> None:
    heads = [aligned_table(COLUMNS, ["abcd"], width)[0] for width in (27, 25, 18, 5)]
    assert [head.split() for head in heads] == [
        ["name", "length", "first", "last"],
        ["name", "length", "first", "last"],
        ["name", "length"],
        ["name", "length"],
    ]


def test_no_rows() -> None:
    assert len(aligned_table(COLUMNS, [])) == 2
