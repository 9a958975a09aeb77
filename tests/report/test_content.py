"""What is shown, where tests/goldens does not have it: order, choice, bounds, places."""

import csv
import io
import math
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.analyse.program import ProgramTime, program_findings
from chainer_profile.analyse.summaries import summarise
from chainer_profile.analyse.summary import Summary
from chainer_profile.basics.errors import UsageError
from chainer_profile.basics.units import format_duration
from chainer_profile.cli.options import SORT_KEYS
from chainer_profile.record.budget import Spent
from chainer_profile.record.recording import Recording, Settings
from chainer_profile.report.columns import layer_columns
from chainer_profile.report.content import (
    boxes,
    budget,
    comparison,
    engines,
    network,
    pass_section,
    profile,
    sweep,
)
from chainer_profile.report.content.answer import how_long
from chainer_profile.report.content.budget import budget_rows, sentence
from chainer_profile.report.content.layer_section import Shown, spreads
from chainer_profile.report.content.method import has_rate_of_zero
from chainer_profile.report.content.pass_section import memory_on_page
from chainer_profile.report.content.profile import ReportTitle, overview, report
from chainer_profile.report.content.result_section import groups
from chainer_profile.report.document import PAGE, Block, Boxes, Text, plain, shown_in, text
from chainer_profile.report.tables import SPREAD, Spread, Table
from chainer_profile.report.text import option_rows, settings_text
from chainer_profile.report.writers.terminal import count_of_lines
from tests import ROOT, counting
from tests.conftest import make_recording, make_training
from tests.engines.fake_engines import make_run
from tests.report.documents import S, compared, network_of, network_row, program
from tests.report.reading import meanings, report_md
from tests.report.tracing import nested
from tests.report.working import with_work

SAMPLE = ROOT / "reports" / "samples" / "resnet20-cpu-b1" / "recording.npz"


def order(summary: Summary, sort: str) -> list[int]:
    tables = [block for block in overview(summary, sort=sort) if isinstance(block, Table)]
    (table,) = (table for table in tables if table.caption == "The layers")
    *layers, framework = table.rows
    assert framework.function == "framework"
    assert math.fsum(row.share for row in table.rows) == pytest.approx(1)
    return [row.Index for row in layers]


def test_order_of_the_layers() -> None:
    summary = summarise(with_work(make_recording(12)))
    keys = dict.fromkeys(("time", "self", "total"), "median_s")
    keys |= {"name": "function", "memory": "peak_nbytes"}
    keys |= {name: f"{name}_s" for name in ("median", "mean", "p95", "std")}
    for sort in SORT_KEYS:
        how = {"ascending": sort in ("path", "name", "index"), "kind": "stable"}
        expected = summary.layers.sort_values(keys.get(sort, sort), **how)
        assert order(summary, sort) == list(expected.index), sort
        # Where nothing is known of work and memory, the order is that of the calls.
        if sort in ("flops", "memory", "reached"):
            assert order(summarise(make_recording()), sort) == list(range(6)), sort


def test_the_report_of_resnet20_is_short_and_lists_each_layer() -> None:
    summary = summarise(Recording.load(SAMPLE))
    made = report_md(summary, ReportTitle("A title", "Ada", "Systems"))
    assert made.count("\n") <= 250
    *_, appendix = made.partition("\n| layer | path | median [ms] |\n")
    labels = [line.replace("*", "").split(" | ")[0] for line in appendix.split("\n")[1:67]]
    assert labels == [f"| {label}" for label in summary.layers["label"]]


def test_groups_are_told_with_the_calls_within_theirs() -> None:
    """Of calls within calls the self time is the inner one's; the total is of all of them."""
    training = make_training()
    mean_s = (training.self_ns.mean(axis=0) * 1e-9).tolist()
    # The backward of a convolution, 16, makes two calls; one of them makes a third.
    parents = {17: 16, 18: 17, 20: 16}
    layers = [replace(layer, parent=parents.get(at)) for at, layer in enumerate(training.layers)]
    summary = summarise(replace(training, layers=tuple(layers)))
    functions = [layer.function for layer in layers]
    for by in ("self", "total"):
        (table,) = groups(summary, Shown(by, group_by="function"))
        assert isinstance(table, Table)
        *rows, framework = table.rows
        assert framework.Index == "framework"
        assert math.fsum(row.share for row in table.rows) == pytest.approx(1)
        field = "total_s" if by == "self" else "inclusive_s"
        times = [getattr(row, field) for row in rows]
        assert times == sorted(times, reverse=True)
    for row in rows:
        held = {at for at, name in enumerate(functions) if name == row.Index}
        for inner, outer in parents.items():  # outer calls come first
            held |= {inner} & ({inner} if outer in held else set())
        assert row.inclusive_s == pytest.approx(sum(mean_s[at] for at in held))
        assert row.total_s == pytest.approx(row.forward_s + row.backward_s + row.update_s)
        each = next(column for column in table.columns if column.key == "each")
        assert each.of(row) * row.calls == pytest.approx(row.inclusive_s)
    assert any(row.inclusive_s > row.total_s for row in rows)


# -- boxes


def check_boxes(summary: Summary) -> int:
    pictures = [*boxes.parts(summary)]
    pictures += [picture for _, picture in boxes.links(summary)]
    pictures += [block for block in memory_on_page(summary) if isinstance(block, Boxes)]
    for picture in pictures:
        rows = defaultdict(list)
        for box in picture.boxes:
            rows[box.row].append(box)
            assert box.width >= 0
            assert -1e-9 <= box.left <= box.left + box.width <= 1 + 1e-9
        assert sorted(rows) == list(range(len(rows)))
        for row in rows.values():
            for box, following in pairwise(row):
                assert box.left + box.width <= following.left + 1e-9
    for picture in boxes.parts(summary):
        assert sum(box.width for box in picture.boxes) == pytest.approx(1)
    return len(pictures)


@given(nested())
def test_boxes_lie_within_and_beside_each_other(recording: Any) -> None:
    check_boxes(summarise(recording))


def test_boxes_of_layers_that_take_longer_than_the_trial_and_of_many() -> None:
    short = make_recording()
    short = replace(short, trial_ns=short.self_ns.sum(axis=1) // 2)
    nothing = make_recording(self_ns=np.zeros((100, 6), np.int64), trial_ns=None, start_ns=None)
    for recording in (short, make_recording(3000, 3), nothing):
        assert bool(check_boxes(summarise(recording))) == (recording is not nothing)


# -- spreads


def spread(times: Any) -> Spread:
    """That of one layer."""
    own = np.array(times).reshape(-1, 1)
    (drawn,) = spreads(summarise(make_recording(1, len(times), self_ns=own)))
    return drawn


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=200))
def test_a_spread_is_within_its_picture(times: list[int]) -> None:
    drawn = spread(times)
    assert max(drawn.counts) == SPREAD
    assert min(drawn.counts) >= 0
    assert 0 <= min(drawn.course) <= max(drawn.course) <= SPREAD
    assert len(drawn.course) == min(24, len(times))


def test_each_layer_has_a_spread_that_a_long_trial_does_not_press_together() -> None:
    drawn = spread([10**9 if at == 1500 else at for at in range(1000, 2000)])
    assert min(drawn.counts) > SPREAD / 2
    recording = make_recording(4, 50)
    recording.self_ns[25:, 2] *= 2
    rises = [drawn.course[-1] - drawn.course[0] for drawn in spreads(summarise(recording))]
    assert [at for at, rise in enumerate(rises) if rise > SPREAD / 2] == [2]


# -- words


def test_rows_show_first_what_they_are_ordered_by() -> None:
    training = make_training()
    calls, iteration = np.ones_like(training.self_ns), np.arange(training.n_trials) + 1
    ran = summarise(replace(training, calls=calls, iteration=iteration))
    for keys, shown in (
        (("median", "interval", "mean"), ["mean", "median", "interval"]),
        (("median", "share"), ["mean", "share"]),
    ):
        assert [column.key for column in layer_columns(ran, keys)] == shown


def test_the_rate_of_zero_is_that_of_our_own_optimizer() -> None:
    ours = "python profile.py --phase train"
    for phase, optimizer, *others in (
        ("train", "Adam", ours),
        ("forward-backward", "", ours),
        # A training of one's own, whose extension recorded its command.
        ("train", "MomentumSGD", "", "python train.py", "python t.py x profile.py"),
    ):
        for command in others:
            asked = Settings(phase=phase, optimizer=optimizer, command=command)
            assert not has_rate_of_zero(asked), asked
    assert has_rate_of_zero(Settings(phase="train", optimizer="MomentumSGD", command=ours))


def test_options_of_a_run() -> None:
    asked = Settings(dtype="float16", keep_memory=True)
    assert settings_text(asked).endswith("float16, memory kept")
    assert "kept in the process" in dict(option_rows(asked))["Freed memory"]


def test_no_page_faults_take_no_time() -> None:
    run = make_recording()
    for faults, said in ((50, "with 350 page faults of at least"), (0, "with 0 page faults a")):
        counters = counting.counters(run, page_faults=faults)
        (words, *_) = pass_section.counters(summarise(replace(run, counters=counters)))
        assert isinstance(words, Text)
        assert said in plain(words.words)


def page_of(summary: Summary) -> Iterator[Block]:
    return shown_in(PAGE, profile.sections(summary))


def test_a_command_is_given_once() -> None:
    summary = summarise(Recording.load(SAMPLE))
    forms = (profile.brief, profile.overview, page_of, report)
    for shown in (form(summary) for form in forms):
        texts = [plain(words) for block in shown for words in _said(block)]
        every = [text for text in texts if "profile.py advise" in text]
        assert len(every) == 1
        # Both findings stand before it.
        assert "accelerate() replaces" in every[0]
        assert "Inference engines" in every[0]


def _said(block: Any) -> list[Any]:
    return [getattr(block, "words", ()), *getattr(block, "items", ())]


def test_the_largest_gain_of_the_program_comes_first() -> None:
    """A gain of an iteration is one of the program by the part that iterations are of it."""
    summary = summarise(make_training())
    kernels = next(finding for finding in summary.findings if finding.code == "kernels")
    assert kernels.gain is not None
    spent = (
        Spent("iterations", "", 4 * S, 10),
        Spent("evaluation", "validation", 4 * S, 2),
        Spent("profiler", "saving", 2 * S),
    )
    findings = program_findings(replace(program(), wall_ns=10 * S, spent=spent), summary)
    gains = {finding.code: finding.gain for finding in findings}
    assert list(gains)[:2] == ["evaluation", "kernels"]
    assert gains["evaluation"] == pytest.approx(2.0)
    assert gains["kernels"] == pytest.approx(1 / (0.5 + 0.5 / kernels.gain))


# -- comparisons


def test_layers_of_a_comparison_are_sorted() -> None:
    every = {}
    for sort in ("change", "time", "index", "path"):
        changed = comparison.shown_layers(compared(), sort=sort, everything=False)
        assert sorted(changed.index) == [3, 7]
        every[sort] = comparison.shown_layers(compared(), sort=sort, everything=True)
        assert sorted(every[sort].index) == list(range(24))
    assert every["index"].index.tolist() == list(range(24))
    by_change = (every["change"]["after_s"] - every["change"]["before_s"]).abs()
    assert by_change.is_monotonic_decreasing
    assert every["path"]["path"].is_monotonic_increasing


# -- engines


def test_while_others_keep_the_cores_no_interval_is_shown() -> None:
    for other_cpu, shown in ((0.0, True), (1.9, False)):
        heads = [column.heading for column in engines.table_columns(make_run(other_cpu=other_cpu))]
        assert ("95 %" in heads) == shown


# -- networks


def test_columns_of_a_network() -> None:
    rows = network_row("/fc", "Linear", 12, parameters=7), network_row("/", "ReLU", 2)
    net = network_of(*rows, network_row("/a\nb", "=F\x1b", None))
    for view, every in network.COLUMNS.items():
        names = list(every)
        cells = list(csv.DictReader(io.StringIO(network.to_file(net, view=view, columns=names))))
        assert sum(int(row["flops"] or 0) for row in cells) == net.flops == 14
        assert sum(int(row["parameters"]) for row in cells) == net.parameters
        assert network.choose_columns(view, [names[1], *names[:2]]) == (names[1], names[0])
        with pytest.raises(UsageError, match=rf"unknown column.*known are {', '.join(names)}$"):
            network.choose_columns(view, ["macs\n", "foo"])


def test_the_columns_of_a_sweep_are_documented() -> None:
    text = (ROOT / "docs" / "sweep.md").read_text()
    assert {name for name in meanings(sweep.COLUMNS) if f"`{name}`" not in text} == set()


# -- a program


def test_the_headline_of_a_program_is_the_mean_that_adds_up() -> None:
    for longest_ms, said in (
        (4, "A training step takes 3.808 ms: mean of 42 iterations (median 3.700 ms, "),
        (900, "A training step takes 26.21 ms: mean of 42 iterations (median 3.700 ms, "),
    ):
        training = make_training()
        trial_ns = np.full(len(training.self_ns), 3_700_000)
        trial_ns[-1] = longest_ms * 1_000_000
        calls, numbers = np.ones_like(training.self_ns), np.arange(len(trial_ns)) + 1
        of_program = {"calls": calls, "iteration": numbers}
        of_program |= dict.fromkeys(("clean_ns", "clean_start_ns"), np.zeros(0, np.int64))
        recording = replace(training, trial_ns=trial_ns, clean_cpu_ns=None, **of_program)
        summary = summarise(recording)
        # Two iterations are not in rows.
        whole_ns = round(float(trial_ns.mean()) * 42) + 4_200_000
        spent = replace(program(), spent=(Spent("iterations", "", whole_ns, 42),), wall_ns=whole_ns)
        time = ProgramTime(spent, {("iterations", ""): [recording]})
        headline = how_long(summary, time)
        assert headline.startswith(said)
        why = "They take 3.700 ms to 900.0 ms; only the mean adds up to the program."
        assert headline.endswith(why) == (longest_ms == 900)
        # It is the figure of the first sentence and of the table.
        (figure,) = re.findall(r"takes ([\d.]+ ms)", headline)
        assert f"{figure} each" in sentence(spent)
        (row,) = [row for row in budget_rows(time) if row.name == "iterations"]
        assert format_duration(row.seconds / row.times) == figure


def test_a_first_screen_has_as_many_rows_as_fit() -> None:
    time = ProgramTime(program(), {("iterations", ""): [make_training()]})

    def rows(lines: int, width: int = 80) -> int:
        def fits(blocks: list[Block]) -> bool:
            return count_of_lines(blocks, width) <= lines

        blocks = budget.overview(time, None, [text("Written to here")], width=width, fits=fits)
        (table,) = (block for block in blocks if isinstance(block, Table))
        assert count_of_lines(blocks, width) <= lines or len(table.rows) <= 12
        # No name takes two lines.
        assert count_of_lines([table], width) == len(table.rows) + 2
        return len(table.rows)

    assert 16 < rows(100) <= 18
    assert 12 <= rows(19) < rows(100)
    assert rows(10) in (11, 12)
    assert rows(100, 160) == rows(100)


def test_a_long_command_leaves_room_for_rows() -> None:
    long = replace(program(), script="train.py" + " --option value" * 20)
    first, *_ = budget.overview(ProgramTime(long))
    assert isinstance(first, Text)
    said = plain(first.words)
    assert said.startswith("train.py --option value --option value --option…")
    assert count_of_lines([first], 80) == 2
