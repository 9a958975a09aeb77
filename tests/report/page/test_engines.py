"""What the page shows of a run of several engines."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chainer_profile.analyse.summaries import summarise
from chainer_profile.engines.results import EnginesRun
from chainer_profile.report.content.engines_text import BETWEEN
from chainer_profile.report.page import render
from chainer_profile.report.page.engines import Engines, from_run
from tests.engines.fake_engines import MISSING, WRONG, make_run, recordings, result
from tests.report.page.test_page import Read


def test_every_engine_that_made_trials_has_a_row() -> None:
    run = make_run(WRONG, MISSING)
    found = from_run(run, recordings())
    assert [row.name for row in found.rows] == [engine.name for engine in run.measured]
    chainer, fast, wrong = found.rows
    assert (chainer.speedup, chainer.difference) == ("", "")
    assert (fast.speedup, fast.difference) == ("10.00x (10.00x to 10.00x)", "1.0e-06")
    assert wrong.speedup == "wrong outputs"
    assert ", above " in wrong.difference
    assert "openvino: not installed: pip install openvino" in found.notes
    assert any(step.startswith("Take fast") for step in found.steps)
    assert any(step.startswith("Do not use hasty") for step in found.steps)


def test_functions_add_up_to_the_median_trial() -> None:
    found = from_run(make_run(), recordings())
    for row in found.rows:
        assert sum(seconds for _, seconds in row.by_function) == pytest.approx(row.median_s)
        assert BETWEEN in dict(row.by_function)


def test_nodes_have_all_layers_and_times() -> None:
    run, made = make_run(), recordings()
    (fast,) = from_run(run, made).nodes
    assert fast.name == "fast"
    assert "became" in fast.text
    before = [row.before_s for row in fast.rows]
    assert None not in before
    whole = made["chainer"].self_ns.sum(axis=1).mean() * 1e-9
    assert sum(filter(None, before)) == pytest.approx(whole)
    assert sum(row.after_s for row in fast.rows) == pytest.approx(
        made["fast"].self_ns.sum(axis=1).mean() * 1e-9
    )


def test_without_recordings_without_trials_and_with_one_trial() -> None:
    run = make_run()
    bare = from_run(run, {})
    assert bare.nodes == ()
    assert [row.by_function for row in bare.rows] == [(), ()]
    nothing = from_run(EnginesRun(engines=(MISSING,), settings=run.settings), {})
    assert nothing.rows == ()
    assert nothing.notes == ("openvino: not installed: pip install openvino",)
    # Without Chainer there is nothing to be compared with.
    alone = from_run(replace(run, engines=run.engines[1:]), {})
    assert [row.speedup for row in alone.rows] == [""]
    one = [replace(e, clean_ns=e.clean_ns[:1], round=e.round[:1]) for e in run.engines]
    assert from_run(replace(run, engines=tuple(one)), {}).rows[1].speedup == "10.00x"


def test_the_page_shows_them() -> None:
    run, made = make_run(WRONG, MISSING, result("third", 77)), recordings()
    summary = summarise(made["chainer"])
    read = Read(render(summary, engines=from_run(run, made)))
    assert "engines" in read.charts
    for part in ("10.00x (10.00x to 10.00x)", "Take third", "wrong outputs", BETWEEN, "became"):
        assert part in read.text
    for row in from_run(run, made).nodes[0].rows:
        assert row.node in read.text
    # Nothing ran: the notes alone.
    bare = Read(render(summary, engines=Engines((), ("openvino: not installed",))))
    assert "openvino: not installed" in bare.text
    assert "engines" not in bare.charts
