"""Sentences, rows, tables and files about any run add up."""

import csv
import io
import json
import math
import re
from decimal import Decimal
from itertools import takewhile

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chainer_profile.analyse.largest_parts import MIN_SHARE
from chainer_profile.analyse.program import ProgramTime
from chainer_profile.analyse.shares import whole_time
from chainer_profile.analyse.summaries import summarise
from chainer_profile.record.budget import (
    ITERATIONS,
    LOADING,
    OTHER,
    PARTS,
    PROFILER,
    Budget,
    Sampled,
    Spent,
)
from chainer_profile.record.recording import COMPLETE, Layer, Recording
from chainer_profile.report.content.answer import largest_shares
from chainer_profile.report.content.budget import BudgetRow, budget_rows, sentence
from chainer_profile.report.content.first_screen import first_screen
from chainer_profile.report.content.profile import sections
from chainer_profile.report.content.result_section import device
from chainer_profile.report.document import FULL, PAGE, REPORT, blocks_in_form
from chainer_profile.report.rows import shares, tree_rows
from chainer_profile.report.tables import Table
from chainer_profile.report.writers import json_report
from chainer_profile.report.writers.csv_files import layers_csv, links_csv
from tests.analyse.test_grouping import recordings
from tests.report.working import make_device_recording

S = 10**9


def near(value: object) -> object:
    return pytest.approx(value, rel=1e-12, abs=1e-15)


@given(recordings(), st.integers(0, 4))
def test_tree_adds_up_to_the_trial(recording: Recording, depth: int) -> None:
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
    # Each link comes after the link above it, in order.
    seen: set[str] = set()
    assert (links["depth"] <= depth).all()
    for path in links.index:
        assert path == "/" or (path.rpartition("/")[0] or "/") in seen
        seen.add(path)
    # Every hot layer is below a mark.
    hot = summary.layers["path"][summary.layers["hot"]]
    marked = [*links.index[links["marked"]], *beside.index[beside["marked"]]]
    for path in hot:
        assert any(path == m or path.startswith(m.rstrip("/") + "/") for m in marked)


@given(recordings())
def test_every_table_of_shares_adds_up_to_the_trial(recording: Recording) -> None:
    """Check terminal, Markdown, page and files; the framework is a row of each table."""
    summary = summarise(recording)
    if summary.recording.settings.inclusive:
        return
    whole = near(1.0 if whole_time(summary).seconds else 0.0)
    forms = [list(blocks_in_form(form, sections(summary))) for form in (FULL, REPORT, PAGE)]
    forms += [first_screen(summary), first_screen(summary, tables=("layers", "groups"))]
    count = 0
    for block in (block for blocks in forms for block in blocks):
        if not isinstance(block, Table) or block.caption in _OTHER_TABLES:
            continue
        shares = [column for column in block.columns if column.key == "share"]
        for column in shares:
            *parts, last = [column.value_of(row) for row in block.rows]
            assert last == whole, block.caption
            assert math.fsum(parts) == whole, block.caption
            count += 1
    assert count >= 8
    for text, at_depth in ((layers_csv(summary), ""), (links_csv(summary), "0")):
        rows = list(csv.DictReader(io.StringIO(text)))
        percent = [
            float(row["share_percent"] or 0) for row in rows if row.get("depth", "") == at_depth
        ]
        assert math.fsum(percent) == pytest.approx(100 if whole == 1 else 0, abs=0.01)
    report = json.loads(json_report.render(summary))
    shares = report["layers"].get("share_percent", [0.0])
    framework = report["totals"].get("framework_share", 0.0)
    assert math.fsum(shares) / 100 + framework == pytest.approx(
        1.0 if whole == 1 else 0.0, abs=1e-3
    )


#: Tables with only some of the rows, with sums of other tables, or with another total.
_OTHER_TABLES = (
    *("The slowest layers", "The tree of links", "Inclusive and exclusive time of the links"),
    *("Inside the functions: the parts of their time", "Inside the hot layers"),
)


def below(rows: list[BudgetRow]) -> list[tuple[BudgetRow, list[BudgetRow]]]:
    """Return every row that has rows below it, with the rows of the next level."""
    pairs = []
    for index, row in enumerate(rows):
        under = takewhile(lambda other, row=row: other.level > row.level >= 0, rows[index + 1 :])
        if inner := [other for other in under if other.level == row.level + 1]:
            pairs.append((row, inner))
    return pairs


_SPENT = st.lists(
    st.builds(Spent, st.sampled_from(PARTS), st.sampled_from("abcdefgh"), st.integers(0, 10**12)),
    unique_by=lambda spent: (spent.part, spent.name),
)


_LAYERS = st.lists(st.integers(10**3, 10**11), min_size=1, max_size=6, unique=True).map(
    lambda times: dict(zip(("/a", "/b", "/c/0", "/c/1", "/", "/d"), times, strict=False))
)


#: The share that a level may leave out, and the rounding of a difference of two times in seconds.
_LEFT_OUT = MIN_SHARE * (1 + 1e-9)


@example([Spent(PARTS[1], "a", 1)], {"/a": 1999}, 20)  # leaves out as much as it may
@given(_SPENT, _LAYERS, st.sampled_from([20, 12]))
def test_parts_of_a_program_add_up(
    spent: list[Spent], layers: dict[str, int], max_rows: int
) -> None:
    rest = [each for each in spent if each.part != ITERATIONS]
    in_trials_ns = sum(layers.values())
    whole_ns = in_trials_ns + sum(each.ns for each in rest)
    budget = Budget(
        *("a.py", "", "", COMPLETE, whole_ns),
        (*rest, Spent(ITERATIONS, "", in_trials_ns, 1)),
        sampled=(
            *(Sampled("data", "a", OTHER, f"a.py:{n} f", n, n) for n in (1, 2)),
            Sampled("data", "a", LOADING, "", 3, 1),
        ),
    )
    recording = Recording(
        tuple(Layer(index, path, "F", "forward", (), (), "") for index, path in enumerate(layers)),
        np.array([list(layers.values())]),
        trial_ns=np.array([in_trials_ns]),
    )
    program = ProgramTime(budget, {(ITERATIONS, ""): [recording]})
    rows = list(budget_rows(program, max_rows))
    *parts, whole, profiler = [row for row in rows if row.level <= 0]
    assert (whole.level, profiler.name) == (-1, "profiling (added)")
    assert len(rows[:-2]) <= max_rows
    own_ns = whole_ns - sum(each.ns for each in rest if each.part == PROFILER)
    assert whole.seconds == pytest.approx(own_ns / S)
    assert whole.seconds + profiler.seconds == pytest.approx(whole_ns / S)
    for row, inner in [(whole, parts), *below(rows)]:
        assert sum(each.seconds for each in inner) == pytest.approx(row.seconds, rel=_LEFT_OUT)
        named = [each.seconds for each in inner if each.name != "other"]
        assert named == sorted(named, reverse=True)
        assert len({each.name for each in inner}) == len(inner)
    sentence(budget)


# -- sentences


@given(recordings())
def test_shown_parts_of_a_trial_and_the_rest_add_up(recording: Recording) -> None:
    summary = summarise(recording)
    whole = [share for _, share in shares(summary)]
    assert whole == sorted(whole, reverse=True)
    assert not whole or sum(whole) == pytest.approx(1)
    message = largest_shares(summary)
    parts = [float(share) for share in re.findall(r"([\d.]+) %", message)]
    assert (message == "") == (not whole or whole[0] < 0.03)
    if "all else" in message:
        assert sum(parts) == pytest.approx(100, abs=0.06 * len(parts))
        assert parts[-1] >= 3
    elif message:
        assert round(sum(parts) + 0.05 * len(parts), 1) >= 97
        assert sum(parts) <= 100 + 0.06 * len(parts)
    assert len(parts) <= 4


def figures(text: str, unit: str = "ms") -> list[Decimal]:
    return [Decimal(number) for number in re.findall(rf"([\d.]+) {unit}", text)]


ON_GPU = "in the layers", "between the layers", "after the last layer"


@given(st.integers(0, 2**32 - 1), st.integers(1, 7))
def test_shown_parts_on_a_gpu_add_up_for_any_times(seed: int, n_trials: int) -> None:
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
    (busy,) = figures(rows["... the host launches"])
    (waits,) = figures(rows["... the host waits for the GPU"])
    assert busy + waits == wall
    (span,) = figures(rows["Time of a trial on the GPU"])
    parts = [figures(rows[f"... {where}"])[0] for where in ON_GPU]
    assert sum(parts) == span
