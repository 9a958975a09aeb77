"""What is said of the recording of another engine than Chainer, and what is not."""

from __future__ import annotations

from dataclasses import replace

from chainer_profile.analyse.checks import check
from chainer_profile.analyse.findings import takes_options
from chainer_profile.analyse.summaries import summarise
from chainer_profile.record.recording import BlasLibrary, Environment
from chainer_profile.report.text import engine_text
from tests.engines.fake_engines import recordings
from tests.goldens.words import fast


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
