"""What is said of the recording of another engine than Chainer, and what is not."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from chainer_profile.analyse.checks import check
from chainer_profile.analyse.findings import takes_options
from chainer_profile.analyse.summaries import summarise
from chainer_profile.analyse.summary import Summary
from chainer_profile.record.recording import BlasLibrary, Environment, Recording
from chainer_profile.report.content.layer_section import by_node
from chainer_profile.report.content.method import method_points
from chainer_profile.report.document import plain
from chainer_profile.report.text import engine_text
from tests.analyse.test_steps import said as steps_said
from tests.engines.fake_engines import recordings
from tests.report.reading import as_markdown, on_terminal, read, report_md


def fast(**changes: object) -> Recording:
    """An engine's recording of 40 trials, with clean ones."""
    recording = recordings()["fast"]
    assert recording.trial_ns is not None
    values: dict[str, object] = {
        "self_ns": np.tile(recording.self_ns, (10, 1)),
        "trial_ns": np.tile(recording.trial_ns, 10),
        "clean_ns": np.full(30, 90_000),
        "clean_start_ns": np.arange(30) * 90_000,
    }
    return replace(recording, **(values | changes))  # type: ignore[arg-type]


def method(summary: Summary) -> str:
    return "\n".join(map(plain, method_points(summary)))


@pytest.fixture
def summary() -> Summary:
    return summarise(fast())


def test_the_terminal_names_the_engine_and_its_own_parts(summary: Summary) -> None:
    text = on_terminal(summary, 160)
    assert "engine: fast 1.0 in fp32; a row is a node of it" in text
    assert "Sum of the nodes" in text
    assert "Runtime overhead (between the nodes)  5.000 us (5.0 % of the profiled trial)" in text
    for word in ("between the functions", "Added by the recorder"):
        assert word not in text
    assert not re.search(r"--\w", text.partition("Command and versions")[0])


def test_the_method_is_the_engines(summary: Summary) -> None:
    said = method(summary)
    assert "not run under Chainer but under fast 1.0 in fp32" in said
    assert "30 clean trials ran without the engine's profiling, in turn" in said
    assert "engine's own, from 40 trials in which its profiling was on" in said
    for word in ("hook", "Framework", "self time", "type checks"):
        assert word not in said
    nothing = np.zeros(0, np.int64)
    without = method(summarise(replace(fast(), clean_ns=nothing, clean_start_ns=nothing)))
    assert "clean trial" not in without


def test_chainers_trials_did_not_alternate_in_a_race() -> None:
    race = fast()
    chainer = replace(
        recordings()["chainer"], clean_ns=race.clean_ns, clean_start_ns=race.clean_start_ns
    )
    said = method(summarise(chainer))
    assert "30 clean trials ran without any hook, apart from the 4 profiled trials" in said


def test_the_report_adds_up_in_the_engines_words(summary: Summary) -> None:
    text = report_md(summary)
    assert (
        "It adds up: nodes 0.0950 ms + runtime overhead 0.0050 ms = profiled trial 0.1000 ms."
        in text
    )


def test_nodes_are_shown_with_the_layers_that_they_do(summary: Summary) -> None:
    shown = read(as_markdown(by_node(summary)))
    nodes = shown.tables[0]
    assert [row[:4] for row in nodes[1:]] == [
        ["0", "Fused n0", "0-2", "3"],
        ["1", "Fused n1", "-", "0"],
        ["2", "Fused n2", "3-4", "2"],
    ]
    assert sum(float(row[4]) for row in nodes[1:]) == pytest.approx(0.095)


def test_chainers_own_report_has_no_nodes() -> None:
    text = report_md(summarise(recordings()["chainer"]))
    assert "By node" not in text
    assert "framework 0.2000 ms = profiled" in text


def test_advice_is_none_of_chainers(summary: Summary) -> None:
    steps = steps_said(summary)
    for word in ("framework", "--", "im2col", "folded into the convolution", "stay on the CPU"):
        assert word not in steps
    much = fast(trial_ns=np.full(40, 200_000))
    said = steps_said(summarise(much))
    assert "52.5 % of the trial passes between the engine's nodes" in said


def test_checks_name_no_options_and_no_threads_of_blas() -> None:
    blas = Environment(blas=(BlasLibrary("openblas", "0.3", 4),))
    recording = fast(environment=blas)
    assert not takes_options(recording.settings)
    assert "threads" not in {finding.code for finding in check(summarise(recording))}
    few = fast(**{n: getattr(recording, n)[:5] for n in ("self_ns", "trial_ns")})
    (finding,) = (f for f in check(summarise(few)) if f.code == "few-trials")
    assert "--" not in finding.advice
    own = replace(recordings()["chainer"], environment=blas)
    assert "threads" not in {f.code for f in check(summarise(own))}  # they were chosen


def test_a_precision_that_is_not_known_is_left_out() -> None:
    settings = replace(fast().settings, precision="")
    assert engine_text(settings) == "fast 1.0"
