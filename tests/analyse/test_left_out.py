"""What a summary says of a run whose trials made other calls too, as versions before wrote them."""

from __future__ import annotations

import pytest

from chainer_profile.analyse.findings import NOTE, WARNING
from chainer_profile.analyse.summaries import summarise
from chainer_profile.record.folding import fold_call_history
from chainer_profile.record.recording import digest_of
from tests.conftest import make_recording


@pytest.mark.parametrize(("left_out", "mixed"), [(0, False), (5, False), (6, True)])
def test_clean_trials_of_other_calls_too_are_compared_with_none(left_out: int, mixed: bool) -> None:
    """They would be the overhead and the latency of a mixture."""
    recording = make_recording(left_out=left_out)  # of 100 that are not
    assert recording.mixed is mixed
    totals = summarise(recording).totals
    assert (totals.clean is None, totals.overhead is None) == (mixed, mixed)
    assert (totals.trial == totals.profiled) is mixed
    assert digest_of(recording).clean is not mixed
    assert digest_of(recording).timed == (100 if mixed else 10)


@pytest.mark.parametrize(
    ("kept", "left_out", "severity"), [(95, 5, NOTE), (100, 5, NOTE), (100, 6, WARNING)]
)
def test_a_finding_tells_of_trials_left_out(kept: int, left_out: int, severity: str) -> None:
    recording = make_recording(n_trials=kept, left_out=left_out)
    (found,) = (one for one in summarise(recording).findings if one.code == "left-out")
    assert found.severity == severity
    assert found.text.startswith(f"{left_out} of {kept + left_out} profiled trials (")
    assert "left-out" not in {one.code for one in summarise(make_recording()).findings}


def test_nothing_vanishes() -> None:
    run = make_recording(left_out=100, ended="interrupted")
    assert digest_of(run).trials == run.all_trials == 200
    said = {one.code: one.text for one in summarise(run).findings}
    assert "after 200 of 100 trials" in said["interrupted"]


def test_inclusive_times_are_added_up_to_no_trial() -> None:
    history = [("a", 0.003), ("b", 0.001)] * 4
    assert summarise(fold_call_history(history)).totals.layers_s is None
    assert summarise(make_recording()).totals.layers_s == pytest.approx(
        summarise(make_recording()).layers["mean_s"].sum()
    )
