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


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        (clock(1950), clock(1410, "power cap"), {"throttled": WARNING}),
        (clock(1950), clock(1950, "power cap", "temperature"), {"throttled": WARNING}),
        (GpuState(throttle=("power cap",)), None, {"throttled": WARNING}),
        (None, GpuState(throttle=("power cap",)), {"throttled": WARNING}),
        # That somebody has set them is no fault.
        (*[clock(1950, "clocks set by an application")] * 2, {}),
        (clock(1900), clock(1805), {}),
        (clock(1900), clock(1804), {"gpu-clock": WARNING}),
        (clock(1900), clock(1995), {}),
        (clock(345), clock(1950), {"gpu-clock": NOTE}),
        (clock(0), clock(1950), {}),
        (clock(None), clock(1950), {}),
    ],
)
def test_clocks(before: GpuState | None, after: GpuState | None, found: dict[str, str]) -> None:
    said = busy_run(conditions=Conditions(gpu_before=before, gpu_after=after))
    assert {code: one.severity for code, one in said.items()} == found


def test_the_resolution_is_that_of_events() -> None:
    conditions = Conditions(window_ns=1e6, clock_resolution_ns=1e6)
    assert busy_run(conditions=conditions) == {}
    times = ((10_000, 9), (900, 900), (5, 5), (9800, 9))
    assert list(findings(make_device_recording(times, wait_us=7400))) == ["near-resolution"]


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
