"""What is shown, where tests/goldens does not have it: order, choice, bounds, places."""

import csv
import io
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.analyse.checks import check
from chainer_profile.analyse.findings import takes_options
from chainer_profile.analyse.program import program_findings
from chainer_profile.analyse.summaries import summarise
from chainer_profile.analyse.summary import Summary
from chainer_profile.basics.errors import UsageError
from chainer_profile.basics.units import format_scientific
from chainer_profile.cli.options import SORT_KEYS
from chainer_profile.comparison.compare import compare
from chainer_profile.comparison.significance import UNKNOWN
from chainer_profile.record.budget import Spent
from chainer_profile.record.recording import BlasLibrary, Environment, Layer, LinkCalls, Settings
from chainer_profile.report.columns import layer_columns
from chainer_profile.report.content import boxes, comparison, engines, network, sweep
from chainer_profile.report.content.layer_section import spreads
from chainer_profile.report.content.method import has_rate_of_zero
from chainer_profile.report.content.pass_section import memory_on_page
from chainer_profile.report.content.profile import ReportTitle, heading_text, overview
from chainer_profile.report.document import Boxes
from chainer_profile.report.tables import SPREAD, Spread, Table, to_csv
from tests import ROOT
from tests.comparing import run
from tests.conftest import make_recording, make_training
from tests.counting import counters
from tests.engines.fake_engines import fast, make_run, recordings
from tests.fusing import chainer_run, engine_run
from tests.report.documents import S, compared, network_of, network_row, program
from tests.report.reading import meanings
from tests.report.tracing import nested
from tests.report.working import with_work


def order(summary: Summary, sort: str) -> list[int]:
    tables = [block for block in overview(summary, sort=sort) if isinstance(block, Table)]
    (found,) = (table for table in tables if table.caption == "The layers")
    return [row.Index for row in found.rows]


def test_order_of_the_layers() -> None:
    summary = summarise(with_work(make_recording(12)))
    keys = {"time": "median_s", "name": "function", "memory": "peak_nbytes"}
    keys |= {name: f"{name}_s" for name in ("median", "mean", "p95", "std")}
    for sort in SORT_KEYS:
        how = {"ascending": sort in ("path", "name", "index"), "kind": "stable"}
        expected = summary.layers.sort_values(keys.get(sort, sort), **how)
        assert order(summary, sort) == list(expected.index), sort
        # Where nothing is known of work and memory, the order is that of the calls.
        if sort in ("flops", "memory", "reached"):
            assert order(summarise(make_recording()), sort) == list(range(6)), sort


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
            for one, other in pairwise(row):
                assert one.left + one.width <= other.left + 1e-9
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
    for one in (short, make_recording(3000, 3), nothing):
        assert bool(check_boxes(summarise(one))) == (one is not nothing)
    # Of too many links the widest are there: 350, and in each another that could be seen.
    paths = [f"/{i}" for i in range(350)]
    layers = tuple(Layer(i, f"{path}/x", "ReLU") for i, path in enumerate(paths))
    links = [LinkCalls(path, "N", 1, 0) for one in paths for path in (one, f"{one}/x")]
    recording = make_recording(
        350, 2, layers=layers, links=(LinkCalls("/", "N", 1, 0), *links), trial_ns=None
    )
    recording.self_ns[:] = 1000 + np.arange(350)
    ((_, picture),) = boxes.links(summarise(recording))
    assert len(picture.boxes) <= 502
    names = {box.said.partition(":")[0] for box in picture.boxes}
    assert names >= {"/", "/200", "/200/x", "/349", "/349/x"}
    assert "/0" not in names


# -- spreads


def spread(times: Any) -> Spread:
    """That of one layer."""
    own = np.array(times).reshape(-1, 1)
    (found,) = spreads(summarise(make_recording(1, len(times), self_ns=own)))
    return found


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=200))
def test_a_spread_is_within_its_picture(times: list[int]) -> None:
    found = spread(times)
    assert max(found.counts) == SPREAD
    assert min(found.counts) >= 0
    assert 0 <= min(found.course) <= max(found.course) <= SPREAD
    assert len(found.course) == min(24, len(times))


def test_each_layer_has_a_spread_that_a_long_trial_does_not_press_together() -> None:
    found = spread([10**9 if at == 1500 else at for at in range(1000, 2000)])
    assert min(found.counts) > SPREAD / 2
    assert found.said == "1,000 trials: 1.000 us to 1.000 s"
    assert (spread([5]).counts, spread([5, 5]).course) == ([SPREAD], [0, 0])
    # Every layer has its own.
    recording = make_recording(4, 50)
    recording.self_ns[25:, 2] *= 2
    rises = [one.course[-1] - one.course[0] for one in spreads(summarise(recording))]
    assert [at for at, rise in enumerate(rises) if rise > SPREAD / 2] == [2]


# -- words


def test_the_title_is_the_networks_unless_it_is_given() -> None:
    for model in ("chain", "", "\x1b[31m"):
        summary = summarise(make_recording(settings=Settings(model=model)))
        shown = heading_text(summary, ReportTitle())
        assert shown.startswith("Layer-wise profile of ")
        assert shown.isprintable()
        assert heading_text(summary, ReportTitle(" Mine\n")) == "Mine"
    assert ReportTitle("t", " ", "c\nd").rows() == [("Course", "c\\nd")]


def test_rows_show_first_what_they_are_ordered_by() -> None:
    training = make_training()
    calls, iteration = np.ones_like(training.self_ns), np.arange(training.n_trials) + 1
    ran = summarise(replace(training, calls=calls, iteration=iteration))
    for keys, shown in (
        (("median", "interval", "mean"), ["mean", "median", "interval"]),
        (("median", "share"), ["mean", "share"]),
    ):
        assert [one.key for one in layer_columns(keys, ran)] == shown


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


def test_the_largest_gain_of_the_program_comes_first() -> None:
    """A gain of an iteration is one of the program by the part that iterations are of it."""
    summary = summarise(make_training())
    kernels = next(one for one in summary.findings if one.code == "kernels")
    assert kernels.gain is not None
    spent = (
        Spent("iterations", "", 4 * S, 10),
        Spent("evaluation", "validation", 4 * S, 2),
        Spent("profiler", "saving", 2 * S),
    )
    found = program_findings(replace(program(), wall_ns=10 * S, spent=spent), summary)
    gains = {one.code: one.gain for one in found}
    assert list(gains)[:2] == ["evaluation", "kernels"]
    assert gains["evaluation"] == pytest.approx(2.0)
    assert gains["kernels"] == pytest.approx(1 / (0.5 + 0.5 / kernels.gain))


def test_the_system_s_time_by_layer_of_older_versions_is_passed_over() -> None:
    recording = make_recording(3)
    now = counters(recording, fault_ns=None)
    by_layer = tuple(replace(one, layers=(9,) * 3) for one in now.counted)
    old = summarise(replace(recording, counters=replace(now, counted=by_layer)))
    assert set(old.layers["verdict"]) == {""}


# -- comparisons


def test_a_change_without_a_verdict_in_words() -> None:
    for ratio, said in ((0.5, "2.00x faster"), (float("nan"), "-"), (float("inf"), "-")):
        assert comparison.change(ratio, UNKNOWN) == said


def test_layers_of_a_comparison_are_sorted() -> None:
    one, every = compared(), {}
    for sort in ("change", "time", "index", "path"):
        found = comparison.shown_layers(one, sort=sort, everything=False)
        assert sorted(found.index) == [3, 7]
        every[sort] = comparison.shown_layers(one, sort=sort, everything=True)
        assert sorted(every[sort].index) == list(range(24))
    assert every["index"].index.tolist() == list(range(24))
    by_change = (every["change"]["after_s"] - every["change"]["before_s"]).abs()
    assert by_change.is_monotonic_decreasing
    assert every["path"]["path"].is_monotonic_increasing


def test_cells_of_a_comparison() -> None:
    every_other = compare(chainer_run(), engine_run(chainer_run(2), [tuple(range(0, 24, 2))]))
    place = comparison.layer_columns(every_other)[0].cell(next(every_other.layers.itertuples()))
    assert place == "0, 2, 4, 6,…"
    few = compare(run(1), run(2, n_trials=1))
    text = to_csv(comparison.COLUMNS, comparison.file_rows([few]))
    row = list(csv.DictReader(io.StringIO(text)))[4]
    assert (row["ci95_low"], row["ci95_high"], row["verdict"]) == ("", "", "not known")


# -- engines


def test_while_others_keep_the_cores_no_interval_is_shown() -> None:
    for other_cpu, known in ((0.0, True), (1.9, False)):
        heads = [one.name for one in engines.table_columns(make_run(other_cpu=other_cpu))]
        assert ("95 %" in heads) == known


def test_the_main_function_stands_for_a_node() -> None:
    fast_one, chainer = (recordings()[name] for name in ("fast", "chainer"))
    names = ["Convolution2DFunction", engines.OWN_STEPS, "Convolution2DFunction"]
    assert engines.main_functions(fast_one, chainer) == names
    assert engines.main_functions(fast_one, None) == names
    assert engines.main_functions(chainer, chainer)[1] == "FixedBatchNormalization"


def test_checks_of_an_engine_name_no_options_and_no_threads_of_blas() -> None:
    blas = Environment(blas=(BlasLibrary("openblas", "0.3", 4),))
    recording = fast(environment=blas)
    assert not takes_options(recording.settings)
    few = fast(**{n: getattr(recording, n)[:5] for n in ("self_ns", "trial_ns")})
    (finding,) = (f for f in check(summarise(few)) if f.code == "few-trials")
    assert "--" not in finding.advice
    # Those of Chainer in a race were chosen.
    for one in (recording, replace(recordings()["chainer"], environment=blas)):
        assert "threads" not in {finding.code for finding in check(summarise(one))}
    assert [*map(format_scientific, (0.0, 1.24e-6, float("inf")))] == ["0", "1.2e-06", "infinite"]


# -- networks


def test_columns_of_a_network() -> None:
    rows = network_row("/fc", "Linear", 12, parameters=7), network_row("/", "ReLU", 2)
    known = network_of(*rows, network_row("/a\nb", "=F\x1b", None))
    for view, every in network.COLUMNS.items():
        names, usual = list(every), network.DEFAULTS[view]
        text = network.to_file(known, view=view, columns=names)
        cells = list(csv.DictReader(io.StringIO(text)))
        assert list(cells[0]) == names
        assert sum(int(row["flops"] or 0) for row in cells) == known.flops == 14
        assert sum(int(row["parameters"]) for row in cells) == known.parameters
        assert network.choose_columns(view, None) == usual
        assert set(usual) <= set(names)
        assert network.choose_columns(view, names[::-1]) == tuple(names[::-1])
        assert network.choose_columns(view, [names[1], *names[:2]]) == (names[1], names[0])
        for wrong in (["macs\n", "foo"], [""], []):
            said = rf"unknown column.*known are {', '.join(names)}$"
            with pytest.raises(UsageError, match=said):
                network.choose_columns(view, wrong)


def test_the_columns_of_a_sweep_are_documented() -> None:
    text = (ROOT / "docs" / "sweep.md").read_text()
    assert {name for name in meanings(sweep.COLUMNS) if f"`{name}`" not in text} == set()
