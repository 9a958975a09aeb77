from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from chainer_profile.record.recording import BlasLibrary, Environment, Layer, Recording, Settings
from chainer_profile.report.text import (
    environment_lines,
    environment_rows,
    gaps,
    input_text,
    interruption,
    mode_text,
    model_name,
    printable,
    run_lines,
    trial_text,
    trials_text,
    versions,
    weights_text,
)
from tests.conftest import make_recording

FULL = Environment(
    started="2026-01-02T03:04:05Z",
    system="Linux 6.1 x86_64",
    processor="A processor",
    physical_cores=4,
    usable_cores=2,
    memory_nbytes=8 << 30,
    python="CPython 3.11.7",
    chainer="7.8.1",
    numpy="2.4.6",
    cupy="13.6.0",
    profiler="0.1.0",
    commit="abc1234",
    blas=(BlasLibrary("openblas", "0.3.30", 1),),
)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("conv1", "conv1"),
        ("two words", "two words"),
        ("a\nb", "a\\nb"),
        ("\x1b[31m", "\\x1b[31m"),
        ("\ud800", "\\ud800"),
        ("é", "é"),
    ],
)
def test_printable_is_one_line(name: str, shown: str) -> None:
    assert printable(name) == shown
    assert printable(name).isprintable()


def test_environment_names_all_that_is_known() -> None:
    shown = dict(environment_rows(FULL))
    assert shown == {
        "Processor": "A processor",
        "Cores": "4 cores (2 usable)",
        "Memory": "8.0 GiB",
        "System": "Linux 6.1 x86_64",
        "Python": "CPython 3.11.7",
        "NumPy": "2.4.6",
        "Chainer": "7.8.1",
        "CuPy": "13.6.0",
        "BLAS": "openblas 0.3.30 with 1 thread",
        "Profiler": "chainer-profile 0.1.0",
        "Commit": "abc1234",
        "Started": "2026-01-02T03:04:05Z",
    }
    assert environment_lines(FULL) == [
        "A processor, 4 cores (2 usable), openblas 0.3.30 with 1 thread",
        "CPython 3.11.7, NumPy 2.4.6, Chainer 7.8.1, CuPy 13.6.0, chainer-profile 0.1.0",
    ]


def test_the_blas_is_named_with_its_kernels_and_what_chose_them() -> None:
    where = replace(
        FULL,
        blas=(BlasLibrary("openblas", "0.3.30", 2, "Haswell"), BlasLibrary("mkl", "", 1)),
        variables=("OPENBLAS_CORETYPE=Haswell", "MKL_CBWR=AVX2"),
    )
    shown = dict(environment_rows(where))
    assert shown["BLAS"] == ("openblas 0.3.30 (Haswell kernels) with 2 threads, mkl with 1 thread")
    assert shown["Variables"] == "OPENBLAS_CORETYPE=Haswell, MKL_CBWR=AVX2"
    assert "openblas 0.3.30 (Haswell kernels) with 2 threads" in environment_lines(where)[0]


def test_environment_passes_over_what_is_not_known() -> None:
    assert environment_rows(Environment()) == []
    assert environment_lines(Environment()) == []
    assert versions(Environment()) == []
    assert dict(environment_rows(Environment(usable_cores=1))) == {"Cores": "1 core"}
    assert dict(environment_rows(Environment(physical_cores=8))) == {"Cores": "8 cores"}


def test_run_lines() -> None:
    assert run_lines(make_recording()) == [
        "chain, random image, seed 0, shape 1x16x32x32, batch 1, cpu, test mode",
        "trial: forward pass",
        "100 profiled trials, 10 clean trials, 3 warm-ups; 6 layers",
    ]
    assert "train mode" in run_lines(make_recording(settings=Settings(train_mode=True)))[0]


def test_settings_in_words() -> None:
    assert model_name(Settings()) == "unnamed network"
    assert input_text(Settings()) == "input not recorded"
    assert mode_text(Settings()) == "test mode"
    assert weights_text(Settings()) == "initial weights"
    assert weights_text(Settings(seed=3)) == "initial weights, seed 3"
    assert weights_text(Settings(weights="a.npz", seed=3)) == "weights from a.npz"


FORWARD, BACKWARD, UPDATE, DATA = (
    Layer(0, "/", "ReLU", phase) for phase in ("forward", "backward", "update", "data")
)


@pytest.mark.parametrize(
    ("layers", "settings", "text"),
    [
        ([FORWARD], {}, "forward pass"),
        ([FORWARD], {"train_mode": True}, "forward pass"),
        (
            [FORWARD, BACKWARD],
            {"phase": "forward-backward", "loss": "mean_squared_error"},
            "forward, mean_squared_error, backward",
        ),
        (
            [FORWARD, BACKWARD],
            {"phase": "forward-backward", "loss": "output"},
            "forward with the network's own loss, backward",
        ),
        (
            [FORWARD, BACKWARD, UPDATE],
            {"phase": "train", "loss": "softmax_cross_entropy", "optimizer": "MomentumSGD"},
            "training step (forward, softmax_cross_entropy, backward, update with MomentumSGD)",
        ),
        (
            [DATA, FORWARD, BACKWARD, UPDATE],
            {"phase": "train", "optimizer": "Adam"},
            "training step (loading of data, forward, backward, update with Adam)",
        ),
        (
            [FORWARD, BACKWARD, replace(UPDATE, phase="communication"), UPDATE],
            {"phase": "train"},
            "training step (forward, backward, communication with the other ranks, update)",
        ),
        # What the rows show is said without settings as well.
        ([FORWARD, BACKWARD, UPDATE], {}, "training step (forward, backward, update)"),
        ([FORWARD, BACKWARD], {}, "forward, backward"),
        ([FORWARD, BACKWARD], {"loss": "a\nb"}, "forward, a\\nb, backward"),
    ],
)
def test_what_a_trial_was(layers: list[Layer], settings: dict[str, object], text: str) -> None:
    rows = tuple(replace(layer, index=at) for at, layer in enumerate(layers))
    recording = Recording(
        rows,
        np.ones((2, len(rows)), np.int64),
        settings=Settings(**settings),  # type: ignore[arg-type]
    )
    assert trial_text(recording) == text
    assert f"trial: {text}" in run_lines(recording)


def test_trials_counts_those_that_were_made() -> None:
    recording = make_recording(n_trials=7, n_clean=1)
    assert trials_text(recording) == "7 profiled trials, 1 clean trial, 3 warm-ups"


def test_interruption_says_how_many_of_how_many() -> None:
    assert interruption(make_recording()) == []
    recording = make_recording(n_trials=40, ended="interrupted")
    recording = replace(recording, settings=replace(recording.settings, trials=1000))
    (sentence,) = interruption(recording)
    assert "(interrupted)" in sentence
    assert "40 of 1,000 profiled trials" in sentence
    (sentence,) = interruption(replace(recording, settings=Settings()))
    assert "40 profiled trials" in sentence


def test_gaps_name_what_is_missing() -> None:
    assert gaps(make_recording()) == []
    assert len(gaps(make_recording(n_clean=0))) == 1
    assert len(gaps(make_recording(n_clean=0, trial_ns=None, start_ns=None))) == 2
