"""Order, selection, limits and layout of the output, where tests/goldens does not cover them."""

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from benchmarks.ranks import training as training_of_ranks
from chainer_profile.analyse.program import ProgramTime, program_findings
from chainer_profile.analyse.summaries import summarise
from chainer_profile.analyse.summary import Summary
from chainer_profile.basics import units
from chainer_profile.basics.errors import UsageError
from chainer_profile.cli.output_options import SORT_KEYS
from chainer_profile.ranks.merging import merge
from chainer_profile.record.budget import Spent
from chainer_profile.record.recording import (
    COMPLETE,
    INTERVAL,
    TIME_LIMIT,
    Conditions,
    Counted,
    Counters,
    Denormals,
    Recording,
    Settings,
)
from chainer_profile.report.content import (
    budget,
    comparison_tables,
    engines,
    network,
    profile,
    sweep,
)
from chainer_profile.report.content import pass_section as passes
from chainer_profile.report.content.engine_texts import verdict
from chainer_profile.report.content.first_screen import first_screen
from chainer_profile.report.content.layer_section import spreads
from chainer_profile.report.content.profile import overview, report
from chainer_profile.report.content.rank_texts import verdict as slow_ranks
from chainer_profile.report.document import (
    FULL,
    PAGE,
    REPORT,
    Block,
    Boxes,
    Fold,
    Text,
    blocks_in_form,
    plain,
)
from chainer_profile.report.tables import SPREAD, Spread, Table
from chainer_profile.report.text import option_rows, settings_text
from chainer_profile.report.writers import markdown, terminal
from tests import ROOT
from tests.conftest import make_recording, make_training
from tests.engines.fake_engines import WRONG, make_run
from tests.recordings import with_all_fields
from tests.report.documents import S, a_network, compared, program
from tests.report.reading import report_md, table_of
from tests.report.tracing import nested
from tests.report.working import with_work
from tests.sweeping import make_run as make_case

SAMPLE = ROOT / "reports" / "samples" / "resnet20-cpu-b1" / "recording.npz"


@pytest.mark.parametrize("faults", [0.024, 1.44, 15.26, 15_612.2, 3])
def test_sentence_and_table_have_the_same_number_of_page_faults(faults: float) -> None:
    recording = make_recording(1)
    values = tuple(
        Counted(name, () if name == "system_ns" else (1000 * mean,), (), (mean,) * 1000)
        for name, mean in (("wall_ns", 9000), ("cpu_ns", 9000), ("system_ns", 900))
    )
    pages = Counted("page_faults", (1000 * faults,), (), (faults,) * 1000)
    counters = Counters(1000, (*values, pages), 100.0)
    blocks = [*passes.counters(summarise(replace(recording, counters=counters)))]
    sentence = " ".join(plain(block.content) for block in blocks if isinstance(block, Text))
    (table,) = (block for block in blocks if isinstance(block, Table))
    shown = units.format_count(faults)
    assert f", with {shown} page faults of at least" in sentence
    column = next(column for column in table.columns if column.key == "page_faults")
    assert [column.cell(row) for row in table.rows] == [shown]


def test_number_of_independent_samples_has_commas() -> None:
    recording = with_all_fields(make_recording())
    assert recording.inside is not None
    busy = replace(recording.inside, samples=2516, repeats=1.75)
    text = report_md(summarise(replace(recording, inside=busy)))
    assert "2,516 samples" in text
    assert "they are worth 1,438 independent samples." in text


def test_layers_are_sorted_by_each_key() -> None:
    summary = summarise(with_work(make_recording(12)))
    keys = dict.fromkeys(("time", "self", "total"), "mean_s")
    keys |= {"name": "function", "memory": "peak_nbytes"}
    keys |= {name: f"{name}_s" for name in ("median", "mean", "p95", "std")}
    for sort in SORT_KEYS:
        how = {"ascending": sort in ("path", "name", "index"), "kind": "stable"}
        expected = summary.layers.sort_values(keys.get(sort, sort), **how)
        *layers, framework, trial = table_of(overview(summary, sort=sort), "The layers").rows
        assert [row.Index for row in layers] == list(expected.index), sort
        assert math.fsum(row.share for row in (*layers, framework)) == pytest.approx(trial.share)


@pytest.mark.parametrize("form", ["first screen", FULL, REPORT, PAGE])
@pytest.mark.parametrize(
    ("ended", "wanted", "words"),
    [
        (COMPLETE, 10_000, ""),
        (TIME_LIMIT, 10_000, "The run ended after 40 of 10,000 trials: time limit reached."),
        (INTERVAL, 10_000, "The run ended after 40 of 10,000 trials: wanted interval reached."),
        # A program asks for no number of trials.
        ("interrupted by SIGINT", 0, "The run ended after 40 trials: interrupted by SIGINT."),
    ],
)
def test_each_format_says_once_that_a_run_ended_early(
    form: str, ended: str, wanted: int, words: str
) -> None:
    recording = make_recording(9, n_trials=40)
    settings = replace(recording.settings, trials=wanted)
    summary = summarise(replace(recording, ended=ended, settings=settings))
    if form == "first screen":
        blocks = first_screen(summary)
    else:
        blocks = blocks_in_form(form, profile.sections(summary))
    message = " ".join(
        plain(block.line if isinstance(block, Fold) else getattr(block, "with_lead", ()))
        for block in blocks
    )
    assert message.count("The run ended") == bool(words)
    assert words in message


def test_report_of_resnet20_is_short_and_lists_each_layer() -> None:
    summary = summarise(Recording.load(SAMPLE))
    made = report_md(summary)
    assert made.count("\n") <= 250
    *_, appendix = made.partition("\n| layer | path | mean [ms] | share [%] |\n")
    labels = [line.replace("*", "").split(" | ")[0] for line in appendix.split("\n")[1:67]]
    assert labels == [f"| {label}" for label in summary.layers["label"]]


def test_time_of_a_group_includes_nested_calls() -> None:
    """The self time of a nested call is that call's alone; the total includes every call."""
    training = make_training()
    mean_s = (training.self_ns.mean(axis=0) * 1e-9).tolist()
    # The backward call of a convolution, layer 16, makes two calls; one of them makes a third.
    parents = {17: 16, 18: 17, 20: 16}
    layers = [replace(layer, parent=parents.get(at)) for at, layer in enumerate(training.layers)]
    summary = summarise(replace(training, layers=tuple(layers)))
    functions = [layer.function for layer in layers]
    for sort, time in (("self", "total_s"), ("total", "inclusive_s")):
        shown = overview(summary, sort=sort, group_by="function")
        *rows, framework, trial = table_of(shown, "By function").rows
        assert math.fsum(row.share for row in (*rows, framework)) == pytest.approx(trial.share)
        times = [getattr(row, time) for row in rows]
        assert times == sorted(times, reverse=True)
    for row in rows:
        held = {at for at, name in enumerate(functions) if name == row.Index}
        for inner, outer in parents.items():  # Outer calls come first.
            held |= {inner} & ({inner} if outer in held else set())
        assert row.inclusive_s == pytest.approx(sum(mean_s[at] for at in held))
        assert row.total_s == pytest.approx(row.forward_s + row.backward_s + row.update_s)
    assert any(row.inclusive_s > row.total_s for row in rows)


# -- pictures made of boxes and lines


def page_of(summary: Summary) -> Iterator[Block]:
    return blocks_in_form(PAGE, profile.sections(summary))


def boxes_of(blocks: Any) -> list[Boxes]:
    inner = [block.blocks if isinstance(block, Fold) else [block] for block in blocks]
    return [block for blocks in inner for block in blocks if isinstance(block, Boxes)]


MANY = make_recording(20, n_trials=3)
MANY = replace(MANY, layers=tuple(replace(x, function=f"F{x.index}") for x in MANY.layers))
#: Two functions take 43.645 % and 56.265 % of the trials. The other functions are left out.
LEFT_OUT = make_recording(
    3,
    n_trials=1,
    framework_ns=45,
    self_ns=np.array([[43_645, 56_265, 45]]),
    trial_ns=np.array([100_000]),
)


@example(MANY)  # More functions than colours.
@example(LEFT_OUT)
@given(nested())
def test_boxes_are_nested_and_do_not_overlap(recording: Any) -> None:
    for picture in boxes_of(page_of(summarise(recording))):
        rows = defaultdict(list)
        for box in picture.boxes:
            rows[box.row].append(box)
            assert box.width >= 0
            assert -1e-9 <= box.left <= box.left + box.width <= 1 + 1e-9
        assert sorted(rows) == list(range(len(rows)))
        for row in rows.values():
            for box, following in pairwise(row):
                assert box.left + box.width <= following.left + 1e-9
        for box in picture.boxes if picture.label == "Where the time of a trial goes" else ():
            percent = float(box.tooltip.removesuffix(" %").rpartition(" ")[2])
            assert box.width * 100 == pytest.approx(percent, abs=0.0501)


def spread(times_ns: Any) -> Spread:
    """Return the spread of a single layer."""
    own = np.array(times_ns).reshape(-1, 1)
    (drawn,) = spreads(summarise(make_recording(1, len(own), self_ns=own)))
    return drawn


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=200))
def test_spread_is_within_its_picture(times_ns: list[int]) -> None:
    drawn = spread(times_ns)
    assert max(drawn.counts) == SPREAD
    assert min(drawn.counts) >= 0
    assert 0 <= min(drawn.course) <= max(drawn.course) <= SPREAD
    assert len(drawn.course) == min(24, len(times_ns))


def test_long_trial_does_not_compress_the_spread_and_raises_its_course() -> None:
    assert min(spread([*range(1000, 2000), 10**9]).counts) > SPREAD / 2
    slower = spread([1000] * 25 + [2000] * 25).course
    assert slower[-1] - slower[0] > SPREAD / 2


# -- words


def test_report_shows_the_options_of_a_run() -> None:
    asked = Settings(dtype="float16", keep_memory=True)
    assert settings_text(asked).endswith("float16, memory kept")
    assert "kept in the process" in dict(option_rows(asked))["Freed memory"]


def test_command_is_shown_once() -> None:
    summary = summarise(Recording.load(SAMPLE))
    for form in (first_screen, profile.overview, page_of, report):
        words = [getattr(block, "words", ()) for block in form(summary)]
        words += [item for block in form(summary) for item in getattr(block, "items", ())]
        message = [*map(plain, words), *(getattr(block, "text", "") for block in form(summary))]
        (command,) = (text for text in message if "profile.py advise" in text)
        # The reports give the reason before the command.
        assert form is first_screen or "accelerate() replaces" in command
        assert form is first_screen or "Inference engines" in command


def test_largest_gain_of_the_program_comes_first() -> None:
    """A gain for iterations is scaled by their share of the program's time."""
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


def test_screen_of_a_program_warns_about_its_numbers() -> None:
    run = make_training()
    weight = Denormals("/res/0/conv/W", run.layers[0].path, part=1.0, slowdown=70.0)
    for conditions, warns in (
        (Conditions(), []),
        (Conditions(denormals=(weight,)), ["The network contains denormal numbers"]),
        (Conditions(not_finite=("/a/W",)), ["The network contains NaN or infinite numbers"]),
    ):
        summary = summarise(replace(run, conditions=conditions))
        shown = [plain(block.content) for block in budget.overview(ProgramTime(program()), summary)
                 if getattr(block, "lead", "") == "Warning"]  # fmt: skip
        assert [words.partition(":")[0].partition(",")[0] for words in shown] == warns


def test_cases_that_differ_in_a_second_input_are_told_apart_by_their_folders() -> None:
    first, second = make_case(), replace(make_case(), name="second")
    for cases, is_shown in (([first], False), ([first, second], True)):
        headings = [column.heading for column in sweep.table_columns(cases)]
        assert ("case" in headings) is is_shown


def test_layers_of_a_comparison_are_sorted() -> None:
    changed = comparison_tables.select_layers(compared(), sort="change", everything=False)
    assert sorted(changed.index) == [3, 7]
    change, index, path = (
        comparison_tables.select_layers(compared(), sort=sort, everything=True)
        for sort in ("change", "index", "path")
    )
    assert (change["after_s"] - change["before_s"]).abs().is_monotonic_decreasing
    assert index.index.tolist() == list(range(24))
    assert path["path"].is_monotonic_increasing


def test_intervals_of_engines_are_hidden_while_other_programs_use_the_cores() -> None:
    for other_cpu, shown in ((0.0, True), (1.9, False)):
        blocks = list(engines.overview(make_run(other_cpu=other_cpu), {}))
        assert (" 95 %" in terminal.written(blocks, 120)) == shown


def test_verdict_mentions_engines_with_wrong_outputs() -> None:
    chainer = make_run().engines[0]
    alone, wrong = make_run(engines=(chainer,)), make_run(engines=(chainer, WRONG))
    assert verdict(alone) == "Only chainer ran: 1.000 ms a trial."
    assert verdict(wrong) == "Only chainer gave right outputs: 1.000 ms a trial."


@pytest.mark.parametrize(
    ("used", "warning"),
    [
        (None, ""),
        (0.2, ""),
        (1.26, "Other programs kept 1.3 of 2 cores busy. Close them and run again."),
    ],
)
def test_programs_and_engines_warn_about_busy_cores_in_the_same_words(
    used: float | None, warning: str
) -> None:
    busy = replace(program(), other_cpu=used, cores=2)
    on_screen = markdown.write(budget.overview(ProgramTime(busy)))
    of_engines = markdown.write(engines.overview(make_run(other_cpu=used), {}))
    for shown in (on_screen, of_engines):
        assert ("Other programs" in shown) == bool(warning)
        assert warning in shown


def test_next_step_shows_the_call_of_accelerate_as_code() -> None:
    fast = make_run().engines[1]
    run = make_run(engines=(make_run().engines[0], replace(fast, name="chainer-fast")))
    step = "In Python, call the network within `with chainer_profile.accelerate():`."
    assert step in markdown.write(engines.report(run, {}))


def test_verdict_counts_the_slow_ranks_that_it_does_not_name() -> None:
    for slow, counted in ((4, "1 more rank is slow."), (5, "2 more ranks are slow.")):
        factors = {rank: 1.5 + rank / 10 for rank in range(slow)}
        assert counted in slow_ranks(merge(training_of_ranks(12, 22, slow=factors)))


def test_columns_of_a_network_can_be_chosen() -> None:
    for view, every in network.COLUMNS.items():
        first, second, *_ = names = list(every)
        assert network.choose_columns(view, [second, first, second]) == (second, first)
        with pytest.raises(UsageError, match=rf"unknown column.*known are {', '.join(names)}$"):
            network.choose_columns(view, ["macs\n", "foo"])
        head, *rows = network.table_csv(a_network(), view=view, columns=["flops"]).splitlines()
        assert head == "flops"
        assert sum(int(cell.strip('"') or 0) for cell in rows) == a_network().flops > 0
