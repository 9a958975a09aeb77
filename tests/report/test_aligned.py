"""Tables as plain text."""

from __future__ import annotations

from chainer_profile.report.aligned import aligned_table, pairs, wrapped
from chainer_profile.report.columns import Column

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


def test_texts_fold_where_no_column_can_go() -> None:
    columns = [Column("name", str, folds=8), Column("length", lambda row: str(len(row)))]
    lines = aligned_table(columns, ["a-path/that/is/long", "short"], 20)
    assert lines == [
        "name          length",
        "------------  ------",
        "a-path/that/      19\nis/long",
        "short              5",
    ]
    whole = aligned_table(columns, ["a-path/that/is/long", "short"], 27)
    assert all("\n" not in line for line in whole)
    assert max(map(len, whole)) == 27


def test_numbers_are_never_folded() -> None:
    columns = [Column("n", lambda row: str(len(row)) * 20), Column("name", str, folds=8)]
    lines = aligned_table(columns, ["a-path/that/is/long"], 10)
    assert lines[2].splitlines()[0].split() == ["19" * 20, "a-path/t"]


def test_all_of_a_folded_text_is_there() -> None:
    columns = [Column("name", str, folds=8), Column("other", lambda row: row[::-1], folds=8)]
    text = "abcdefghijklmnopqrstuvwxyz"
    for width in range(18, 60):
        lines = aligned_table(columns, [text], width)[2].splitlines()
        assert max(map(len, lines)) <= width
        cells = [line.ljust(width).split("  ", 1) for line in lines]
        assert "".join(line.split()[0] for line in lines if not line.startswith(" ")) == text
        assert cells


def test_a_sentence_is_wrapped_between_words() -> None:
    text = "Written to reports/a-very-long-name-of-a-folder: and more"
    assert wrapped(text, None) == wrapped(text, 200) == text
    lines = wrapped(text, 30, 2).splitlines()
    assert lines == ["Written to", "  reports/a-very-long-name-of-a-folder:", "  and more"]


def test_values_go_on_below_their_beginning() -> None:
    rows = [("a", "one two three"), ("long", "four")]
    assert pairs(rows) == ["a     one two three", "long  four"]
    assert pairs(rows, 14) == ["a     one two\n      three", "long  four"]
    assert pairs([]) == []
