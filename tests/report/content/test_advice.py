"""What is said of changes that were tried."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from chainer_profile.advice.changes import WALL, Candidate
from chainer_profile.advice.results import Advice, LayerGain, Tried
from chainer_profile.analyse.changes import Untried
from chainer_profile.analyse.findings import Change
from chainer_profile.engines.results import Speedup
from chainer_profile.record.recording import Settings
from chainer_profile.report.content.advice import report, section, verdict
from chainer_profile.report.writers import markdown

FAST = Tried(
    Candidate("accelerate()", "it pays", "chainer_profile.accelerate()", Change(kernels="numpy")),
    wall=Speedup(2.4, 2.2, 2.6),
    cpu=Speedup(2.5, 2.4, 2.6),
    pairs=8,
    confirmed=True,
    before_s=24e-3,
    after_s=10e-3,
    layers=(LayerGain("forward", "0_Conv", "/conv1", 4e-3, 1e-3),),
)
VAIN = replace(
    FAST,
    candidate=replace(FAST.candidate, name="memory kept"),
    cpu=Speedup(1.0, 0.99, 1.01),
    pairs=2,
    confirmed=False,
)
DOUBTFUL = replace(VAIN, cpu=Speedup(1.1, 0.9, 1.3))
FAILED = Tried(replace(FAST.candidate, name="openvino"), error="its process ended (exit code 3)")
ADVICE = Advice(
    (FAST, VAIN, FAILED),
    (Untried("float16", "NumPy computes it in software"),),
    settings=Settings(model="net", phase="train", threads=1, command="profile.py --phase train"),
    budget_s=180.0,
    took_s=172.0,
)


def test_the_answer() -> None:
    assert verdict(ADVICE) == (
        "accelerate() makes a training step 2.50x as fast (CPU time, 95 % interval 2.40 to 2.60): "
        "24.00 ms an input before, 10.00 ms after."
    )


def test_no_answer() -> None:
    assert verdict(replace(ADVICE, tried=(VAIN, FAILED))) == (
        "Nothing makes a training step faster beyond doubt: 1 change measured."
    )


def test_what_the_run_has_already_is_the_answer_only_where_nothing_else_helps() -> None:
    threads = replace(
        FAST,
        candidate=Candidate(
            "one BLAS thread",
            "they wait",
            "OPENBLAS_NUM_THREADS=1",
            Change(),
            Change(threads=2),
            WALL,
        ),
    )
    assert verdict(replace(ADVICE, tried=(threads, FAST))) == verdict(ADVICE)
    assert verdict(replace(ADVICE, tried=(threads,))).startswith(
        "one BLAS thread makes a training step 2.40x as fast as with what BLAS takes by itself"
    )


def test_all_of_it_is_said() -> None:
    shown = markdown.write(report(ADVICE))
    for words in (
        "# What was tried on net",
        "| accelerate() | 2.40x | 2.20 to 2.60 | 2.50x | 2.40 to 2.60 | CPU time |",
        "`chainer_profile.accelerate()` (it pays)",
        "| 0_Conv | /conv1 | forward | 4.0000 | 1.0000 | 4.00x |",
        "Tried in vain",
        "**memory kept**: 1.00x, 0.99 to 1.01, 2 pairs, by CPU time",
        "openvino: its process ended (exit code 3)",
        "float16: NumPy computes it in software",
        "it took 3 min of the 3 min that there were",
        "profile.py --phase train",
    ):
        assert words.replace("_", "\\_") in shown or words in shown, words


def test_what_is_not_known_is_said_to_be_so() -> None:
    shown = markdown.write(section(replace(ADVICE, tried=(DOUBTFUL,))))
    assert "Not sure; a larger --budget would tell" in shown
    assert "1.10x, 0.90 to 1.30, 2 pairs, by CPU time" in shown
    assert "in vain" not in shown
    single = replace(DOUBTFUL, cpu=Speedup(1.1, math.nan, math.nan), pairs=1)
    assert "1.10x, -, 1 pair" in markdown.write(section(replace(ADVICE, tried=(single,))))


@pytest.mark.parametrize("ended", ["interrupted by SIGINT"])
def test_an_early_end_is_said(ended: str) -> None:
    shown = markdown.write(section(replace(ADVICE, ended=ended)))
    assert "It ended before all was tried (interrupted by SIGINT)." in shown
