"""Findings about a GPU: each one on a run that deserves it, none on a good run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainer_profile.analyse.findings import NOTE, WARNING, Finding
from chainer_profile.record.recording import BlasLibrary, Conditions, Environment, GpuState
from tests.analyse.test_checks import findings
from tests.report.devicing import (
    DEVICE_BOUND,
    GPU,
    LAUNCH_BOUND,
    STATE,
    make_device_recording,
    make_device_training,
)


def busy_run(**changes: Any) -> dict[str, Finding]:
    """Findings of a run in which the device sets the pace."""
    return findings(make_device_recording(DEVICE_BOUND, wait_us=26_300, **changes))


def test_a_good_run_has_no_findings() -> None:
    assert busy_run() == {}
    blas = (BlasLibrary("openblas", "0.3", 4),)
    assert busy_run(environment=Environment(gpu=GPU, blas=blas)) == {}


def test_a_launch_bound_run_is_none_of_the_numbers_doubts() -> None:
    assert findings(make_device_recording()) == {}
    assert findings(make_device_training()) == {}


def test_without_held_trials() -> None:
    for found in (busy_run(n_held=0), findings(make_device_recording(n_held=0))):
        assert list(found) == ["no-held-trials"]
        assert found["no-held-trials"].severity == NOTE
        assert "Nsight Systems" in found["no-held-trials"].advice
    # One that was cut short has not come to them.
    assert list(busy_run(n_held=0, ended="interrupted by the user")) == ["interrupted"]


def clock(mhz: int | None, *throttle: str) -> GpuState:
    return replace(STATE, sm_mhz=mhz, throttle=throttle)


LOWERED = "The GPU had lowered its clocks (power cap)"


@pytest.mark.parametrize(
    ("before", "after", "severity", "text"),
    [
        (clock(1950), clock(1410, "power cap"), WARNING,
         f"{LOWERED}; its clock was 1,950 MHz before the warm-up, 1,410 MHz at the end."),
        (clock(1950), clock(1950, "power cap", "temperature (hardware)"), WARNING,
         "The GPU had lowered its clocks (power cap, temperature (hardware)); its clock was 1,950 "
         "MHz before the warm-up, 1,950 MHz at the end."),
        (GpuState(throttle=("power cap",)), None, WARNING, f"{LOWERED}."),
        (None, GpuState(throttle=("power cap",)), WARNING, f"{LOWERED}."),
        # That somebody has set them is no fault.
        (*[clock(1950, "clocks set by an application")] * 2, None, ""),
        (clock(1900), clock(1805), None, ""),
        (clock(1900), clock(1804), WARNING,
         "The GPU's clock fell by 5.1 %: 1,900 MHz before the warm-up, 1,804 MHz at the end."),
        (clock(1900), clock(1995), None, ""),
        (clock(345), clock(1950), NOTE,
         "The GPU's clock rose by 465.2 %: 345 MHz before the warm-up, 1,950 MHz at the end."),
        (clock(0), clock(1950), None, ""),
        (clock(None), clock(1950), None, ""),
    ],
)  # fmt: skip
def test_clocks(
    before: GpuState | None, after: GpuState | None, severity: str | None, text: str
) -> None:
    found = busy_run(conditions=Conditions(gpu_before=before, gpu_after=after)).values()
    assert [(one.severity, one.text) for one in found] == ([(severity, text)] if severity else [])


def test_the_resolution_is_that_of_events() -> None:
    conditions = Conditions(window_ns=1e6, clock_resolution_ns=1e6)
    assert busy_run(conditions=conditions) == {}
    times = ((10_000, 9), (900, 900), (5, 5), (9800, 9))
    found = findings(make_device_recording(times, wait_us=7400))
    assert list(found) == ["near-resolution"]
    assert found["near-resolution"].text == (
        "1 layer took less than 20 times the 500.0 ns that events on the GPU can tell: up to 6 % "
        "of 1_FixedBatchNormalization."
    )


state = st.none() | st.builds(
    GpuState,
    st.none() | st.integers(0, 3000),
    st.none() | st.integers(0, 3000),
    throttle=st.lists(st.sampled_from(["power cap", "clocks set by an application"])).map(tuple),
)


@settings(max_examples=40)
@given(
    st.sampled_from([LAUNCH_BOUND, DEVICE_BOUND, ((0,), (0,), (0,), (0,))]),
    st.integers(0, 30_000),
    st.integers(1, 100),
    st.integers(0, 2),
    state,
    state,
)
def test_any_finding_of_any_run_is_fit_to_print(
    times: Any, wait_us: int, n_trials: int, n_held: int, before: Any, after: Any
) -> None:
    findings(
        make_device_recording(
            times,
            wait_us=wait_us,
            n_trials=n_trials,
            n_held=n_held,
            conditions=Conditions(gpu_before=before, gpu_after=after),
        )
    )
