from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.basics.errors import UsageError
from chainer_profile.basics.parsing import choose_names, split_names

KNOWN = ("path", "mean", "peak", "verdict")


def test_names_in_the_order_asked_for_and_once() -> None:
    names = split_names(" peak, path,peak")
    assert choose_names(names, KNOWN, "the table") == ("peak", "path")


@pytest.mark.parametrize(
    ("names", "wrong"),
    [
        (["meen"], "'meen' (did you mean mean?)"),
        (["Mean"], "'Mean' (did you mean mean?)"),
        (["path", "zzzzz"], "'zzzzz'"),
        (["a", "peaks", "c", "d"], "'a', 'peaks' (did you mean peak?), 'c'"),
        ([""], "''"),
        ([], "none given"),
        (["x\ny"], "'x\\ny'"),
        (["x" * 999], f"'{'x' * 40}'"),
    ],
)
def test_an_unknown_name_says_the_nearest_and_all(names: list[str], wrong: str) -> None:
    with pytest.raises(UsageError) as error:
        choose_names(names, KNOWN, "the table")
    known = "path, mean, peak, verdict"
    assert str(error.value) == f"unknown column of the table: {wrong}; known are {known}"


def test_other_spellings_are_taken_but_not_listed() -> None:
    assert choose_names(["mean_ms"], KNOWN, "the table", ["mean_ms"]) == ("mean_ms",)
    with pytest.raises(UsageError) as error:
        choose_names(["x"], KNOWN, "the table", ["mean_ms"])
    assert "mean_ms" not in str(error.value)


@given(st.text() | st.lists(st.sampled_from(KNOWN), min_size=1).map(",".join))
def test_any_text_is_names_or_one_line(text: str) -> None:
    names = split_names(text)
    if set(names) <= set(KNOWN):
        assert set(choose_names(names, KNOWN, "the table")) == set(names)
        return
    with pytest.raises(UsageError) as error:
        choose_names(names, KNOWN, "the table")
    assert str(error.value).isprintable()
    # Three names of 40 characters, each of them an escape of ten.
    assert len(str(error.value)) < 3 * 40 * 10 + 200
