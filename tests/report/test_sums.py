"""What is shown of any run adds up: sentences, rows, tables, files."""

import math
import re
from dataclasses import replace
from decimal import Decimal
from itertools import product, takewhile

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.analyse.summaries import summarise
from chainer_profile.record.budget import PARTS, PROFILER, Budget, Spent
from chainer_profile.record.recording import COMPLETE, Recording
from chainer_profile.report.columns import shares, tree_rows
from chainer_profile.report.content.answer import where
from chainer_profile.report.content.budget import BudgetRow, budget_rows, sentence
from chainer_profile.report.content.result_section import device
from chainer_profile.report.document import Text, plain
from chainer_profile.report.tables import Table
from tests.analyse.test_grouping import recordings
from tests.conftest import make_training
from tests.report.documents import SPENT, program
from tests.report.working import make_device_recording

S = 10**9


def near(value: object) -> object:
    return pytest.approx(value, rel=1e-12, abs=1e-15)


@given(recordings(), st.integers(0, 4))
def test_the_tree_adds_up_to_the_trial(recording: Recording, depth: int) -> None:
    summary = summarise(recording)
    links, beside = tree_rows(summary, depth)
    profiled = summary.totals.profiled
    parts = beside if profiled is None else beside.iloc[:-1]
    roots = links[links["depth"] == 0]
    assert len(roots) <= 1
    whole = pd.concat([roots, parts])
    total = math.fsum(whole["inclusive_s"])
    assert total == near(summary.totals.layers_s if profiled is None else profiled.mean_s)
    if profiled is not None:
        trial = beside.iloc[-1]
        assert trial["inclusive_s"] == near(profiled.mean_s)
        for phase in summary.phase_names:
            of_phase = whole[f"{phase}_inclusive_s"]
            assert math.fsum(of_phase) == near(trial[f"{phase}_inclusive_s"])
    # No link without the one above it, and each in its place.
    seen: set[str] = set()
    assert (links["depth"] <= depth).all()
    for path in links.index:
        assert path == "/" or (path.rpartition("/")[0] or "/") in seen
        seen.add(path)
    # Every hot layer is under a mark.
    hot = summary.layers["path"][summary.layers["hot"]]
    marked = [*links.index[links["marked"]], *beside.index[beside["marked"]]]
    for path in hot:
        assert any(path == m or path.startswith(m.rstrip("/") + "/") for m in marked)


def below(rows: list[BudgetRow]) -> list[tuple[BudgetRow, list[BudgetRow]]]:
    """Every row that has rows below it, with those of the next level."""
    found = []
    for at, row in enumerate(rows):
        under = takewhile(lambda one, row=row: one.level > row.level >= 0, rows[at + 1 :])
        if inner := [one for one in under if one.level == row.level + 1]:
            found.append((row, inner))
    return found


_SPENT = st.lists(
    st.builds(Spent, st.sampled_from(PARTS), st.sampled_from("abcdefgh"), st.integers(0, 10**12)),
    unique_by=lambda one: (one.part, one.name),
)


@given(spent=_SPENT, least=st.sampled_from([0.0, 0.001, 0.01, 0.2]))
def test_the_parts_of_a_program_add_up(spent: list[Spent], least: float) -> None:
    wall_ns = sum(one.ns for one in spent)
    budget = Budget("a.py", "", "", COMPLETE, wall_ns, tuple(spent))
    rows = list(budget_rows(budget, least=least))
    *parts, whole, profiler = [row for row in rows if row.level <= 0]
    assert (whole.level, profiler.name) == (-1, "profiling (added)")
    own_ns = wall_ns - sum(one.ns for one in spent if one.part == PROFILER)
    assert sum(row.seconds for row in parts) == pytest.approx(whole.seconds)
    assert whole.seconds == pytest.approx(own_ns / S)
    assert whole.seconds + profiler.seconds == pytest.approx(wall_ns / S)
    if own_ns:
        assert sum(row.share for row in parts) == pytest.approx(1)
    assert [row.seconds for row in parts] == sorted((r.seconds for r in parts), reverse=True)
    for row, inner in below(rows):
        assert sum(one.seconds for one in inner) == pytest.approx(row.seconds), row.name
    sentence(budget)


def test_the_parts_of_its_iterations_add_up() -> None:
    spent = replace(program(), wall_ns=sum(one.ns for one in SPENT), spent=SPENT)
    # All of its 600 iterations are on the tape; or some are not.
    for n_trials, least in product((600, 40), (0.0, 0.001, 0.01, 0.1)):
        found = below(list(budget_rows(spent, summarise(make_training(n_trials)), least)))
        assert "iterations" in [row.name for row, _ in found]
        for row, inner in found:
            parts = sum(one.seconds for one in inner)
            assert parts == pytest.approx(row.seconds, abs=1e-6), (least, row.name)
            assert len({one.name for one in inner}) == len(inner)


def test_what_recording_added_is_taken_off_between_functions() -> None:
    """The rows' times are as they were measured; those of calls that cost nothing are told."""
    training = make_training()
    calls = np.ones_like(training.self_ns)
    n_calls = sum(layer.calls for layer in training.layers)
    conditions = replace(training.conditions, window_ns=1_000.0, call_ns=11_000.0)
    recorded = summarise(replace(training, calls=calls, conditions=conditions))
    own_ns = 40 * (3_700_000 - n_calls * 11_000)
    whole_ns = own_ns + 6 * S  # of two more, which are not on the tape
    spent = (Spent("iterations", "", whole_ns, 42),)
    rows = list(budget_rows(Budget("a.py", "", "", COMPLETE, whole_ns, spent), recorded, 0.0))
    for row, inner in below(rows):
        assert sum(one.seconds for one in inner) == pytest.approx(row.seconds), row.name
    first = next(row for row in rows if row.name == "/res/1/conv Convolution")
    assert first.seconds == pytest.approx(40 * 0.6e-3)
    (others,) = (row for row in rows if row.name == "2 others, not timed by row")
    assert (others.seconds, others.times) == (pytest.approx(6.0, abs=1e-2), 2)


# -- sentences


@given(recordings())
def test_the_shown_parts_of_a_trial_add_up_with_all_else(recording: Recording) -> None:
    summary = summarise(recording)
    whole = [share for _, share in shares(summary)]
    assert whole == sorted(whole, reverse=True)
    assert not whole or sum(whole) == pytest.approx(1)
    said = where(summary)
    found = [float(share) for share in re.findall(r"([\d.]+) %", said)]
    assert (said == "") == (not whole or whole[0] < 0.03)
    if "all else" in said:
        assert sum(found) == pytest.approx(100, abs=0.06 * len(found))
        assert found[-1] >= 3
    elif said:
        assert round(sum(found) + 0.05 * len(found), 1) >= 97
        assert sum(found) <= 100 + 0.06 * len(found)
    assert len(found) <= 4


def figures(text: str, unit: str = "ms") -> list[Decimal]:
    return [Decimal(number) for number in re.findall(rf"([\d.]+) {unit}", text)]


@given(st.integers(0, 2**32 - 1), st.integers(1, 7))
def test_the_shown_parts_on_a_gpu_add_up_whatever_the_times(seed: int, n_trials: int) -> None:
    rng = np.random.default_rng(seed)
    own, host, gaps = (rng.integers(0, 10**6, (n_trials, 6)) for _ in range(3))
    more, wait, rest = (rng.integers(0, 10**6, n_trials) for _ in range(3))
    launch = host.sum(axis=1) + more
    times = {"self_ns": own, "host_ns": host, "gap_ns": gaps, "launch_ns": launch}
    times |= {"trial_ns": launch + wait, "span_ns": own.sum(axis=1) + gaps.sum(axis=1) + rest}
    summary = summarise(make_device_recording(n_trials=n_trials, **times))
    blocks = list(device(summary))
    rows = dict(next(block for block in blocks if isinstance(block, Table)).cells())
    assert sum(figures(rows["GPU busy"], "%")) == 100
    assert summary.totals.profiled is not None
    (wall,) = figures(rows["Wall time of a profiled trial"])
    assert float(wall) == pytest.approx(summary.totals.profiled.mean_s * 1e3, abs=6e-5)
    said = [plain(block.words) for block in blocks if isinstance(block, Text)]
    sums = [figures(text) for text in said if " = " in text]
    assert len(sums) == 2
    for *parts, whole in sums:
        assert sum(parts) == whole
