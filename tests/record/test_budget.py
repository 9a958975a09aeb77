"""The file with a program's time budget."""

import json
import math

from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.record.budget import BUDGET, PARTS, Budget, Spent, read_budget, write_json
from tests.refusing import refusal

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_NS = st.integers(0, 2**62)
_SPENT = st.builds(Spent, st.sampled_from(PARTS), _TEXT, _NS, st.integers(0, 10**9))
BUDGETS = st.builds(Budget, *(_TEXT, _TEXT, _TEXT, _TEXT, _NS), st.lists(_SPENT).map(tuple))


@given(budget=BUDGETS)
def test_budget_survives_a_round_trip_through_its_file(budget, tmp_path_factory):
    folder = tmp_path_factory.getbasetemp()
    (folder / BUDGET).write_text(write_json(budget), encoding="utf-8")
    assert read_budget(folder) == budget
    for part in PARTS:
        whole, times = budget.total(part), [spent.ns for spent in budget.accounts(part)]
        assert times == sorted((s.ns for s in budget.spent if s.part == part), reverse=True)
        assert whole.ns == sum(times)
        assert whole.count == sum(spent.count for spent in budget.accounts(part))


SPENT = (Spent("data", "", 5),)
GOOD = json.loads(write_json(Budget("a.py", "2026", "2026", "complete", 5, SPENT)))
NO_FOLDER = ": damaged (ValueError: {0!r} is not the name of a folder in"


def part(**values):
    return {"part": "data", "name": "", "ns": 5, **values}


NO_BUDGET = " is not a chainer-profile budget file"
DAMAGED = [
    (b"", NO_BUDGET),
    (b"\xff\xfe", NO_BUDGET),
    (b"[" * 100_000, NO_BUDGET),
    (json.dumps(GOOD)[:-9].encode(), NO_BUDGET),
    ({"format": "chainer-profile advice"}, NO_BUDGET),
    ({"version": 2}, " has format version 2, but this program reads up to 1: update the program"),
    ({"version": None}, " has format version None, but this program"),
    ({"wall_ns": 1.5}, ": damaged (ValueError: Expected `int`, got `float`"),
    ({"spent": [{"part": "data"}]}, ": damaged (ValueError: Object missing"),
    ({"wall_ns": -1}, ": damaged (ValueError: wall_ns: wall_ns is -1, but must be 0 or more"),
    ({"spent": [part(ns=-5)]}, ": damaged (ValueError: spent: ns is -5, but must be 0 or more"),
    ({"spent": [part(count=2**70)]}, ": damaged (ValueError: spent: count is 1180591620717411303"),
    ({"untimed": {"a": -1}}, ": damaged (ValueError: untimed: a is -1, but must be 0 or more"),
    ({"other_cpu": math.nan}, ": damaged (ValueError: other_cpu: other_cpu is nan, but must be a"),
    *(
        ({"trials": [{"part": "data", "name": "", "folder": name}]}, NO_FOLDER.format(name))
        for name in ("a\0b", "../other", "/etc", "..")
    ),
]


def test_damaged_budget_is_refused_in_one_line(tmp_path):
    path = tmp_path / BUDGET
    for content, message in DAMAGED:
        whole = content if isinstance(content, bytes) else json.dumps(GOOD | content).encode()
        path.write_bytes(whole)
        assert refusal(read_budget, tmp_path).startswith(f"{path}{message}"), content
    # Unknown fields of other versions are ignored.
    for field in ({"later": 1}, {"compression": {"save_npz": 0.4}}):
        path.write_text(json.dumps(GOOD | field))
        assert read_budget(tmp_path).spent == SPENT
    for nowhere in (tmp_path / "nowhere", path):
        assert read_budget(nowhere) is None
    path.unlink()
    path.mkdir()
    assert "cannot be read" in refusal(read_budget, tmp_path)
