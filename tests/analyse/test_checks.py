"""Findings of runs: each finding where it applies, none for a good run."""

import re
import warnings
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.analyse.findings import MIN_GAIN, STEP, WARNING, Finding, sort_findings
from chainer_profile.analyse.summaries import summarise
from chainer_profile.analyse.threads import probed_threads
from chainer_profile.record.recording import (
    BlasLibrary,
    Conditions,
    Environment,
    GpuState,
    Recording,
    Settings,
)
from chainer_profile.report.content.first_screen import first_screen
from tests.conftest import make_layers
from tests.counting import counters
from tests.report.working import DEVICE_BOUND, LAUNCH_BOUND, make_device_recording

US = 1000


def run(walls_us, layers_us=(300, 100), clean_us=(), layer_noise=1, **changes):
    """Make a run with these trial times. Layers take fixed times, multiplied by ``layer_noise``."""
    walls, clean = (
        np.rint(np.asarray(us, float) * US).astype(np.int64) for us in (walls_us, clean_us)
    )
    self_ns = np.outer(np.ones(len(walls)), layers_us) * US * layer_noise
    self_ns = np.rint(self_ns).astype(np.int64)
    walls = np.maximum(walls, self_ns.sum(axis=1))
    starts = walls.cumsum() - walls
    values = {
        "layers": make_layers(len(layers_us)),
        "self_ns": self_ns,
        "trial_ns": walls,
        "start_ns": starts,
        "clean_ns": clean,
        "clean_start_ns": starts[-1] + 1 + np.arange(len(clean)),
        "settings": Settings(trials=len(walls), warmups=10),
    }
    return Recording(**(values | changes))


def noise(count, spread, seed=0):
    """Times around 1,000 us with this relative standard deviation."""
    return 1000 * np.maximum(0, 1 + spread * np.random.default_rng(seed).standard_normal(count))


def findings(recording):
    """Check that all findings are well formed; return all except next steps, by code."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        every = summarise(recording).findings
    assert len({finding.code for finding in every}) == len(every)
    for finding in every:
        assert finding.text
        assert finding.advice or finding.severity == STEP
        assert finding.gain is None or finding.gain >= MIN_GAIN
        for text in filter(None, (finding.text, finding.evidence, finding.advice)):
            assert "\n" not in text
            assert text[0].isupper() or text[0].isdigit()
            assert text.endswith(".")
            assert not re.search(r"\b(nan|inf|None)\b|-inf", text)
    assert every == sort_findings(every)
    return {finding.code: finding for finding in every if finding.severity != STEP}


def blas(threads):
    return Environment(usable_cores=4, blas=(BlasLibrary("openblas", "0.3", threads),))


def probed(rounds_us, blas_threads=1, **changes):
    """Make a run that alternated four threads and one: times of each in us, by round."""
    times = np.repeat(np.ravel(rounds_us), 3) * US
    threads = np.tile(np.repeat([4, 1], 3), len(times))[: len(times)]
    where = {"environment": blas(blas_threads)}
    return run([1000] * 100, probe_ns=times, probe_threads=threads, **(where | changes))


def alternating(added, spread=0.0, profiled=(20,) * 8, pace=np.ones_like, seed=4):
    """Make cycles of profiled trials, slower by the share ``added``, around 10 unprofiled ones."""
    kinds = np.concatenate([np.repeat([1, 0, 1], [n // 2, 10, n // 2]) for n in profiled]) == 1
    times = noise(len(kinds), spread, seed) * pace(np.linspace(0, 1, len(kinds)))
    times = np.rint(times * (1 + added * kinds) * US).astype(np.int64)
    starts = np.cumsum(times) - times
    return run(
        times[kinds] / US,
        start_ns=starts[kinds],
        clean_us=times[~kinds] / US,
        clean_start_ns=starts[~kinds],
    )


def counted(*, variables=None, **more):
    """Make a good run with these counters in every layer."""
    recording = run(0.4 * noise(200, 0.001), clean_us=0.4 * noise(200, 0.001))
    recording = replace(recording, settings=replace(recording.settings, **(variables or {})))
    return replace(recording, counters=counters(recording, **more))


HUNDRED = [1000] * 100
QUIET = {"system_us": 0, "page_faults": 0}


def test_warning_with_the_largest_effect_comes_first():
    """Other programs used half of the cores, which also caused the wide interval."""
    walls, conditions = noise(40, 0.09, seed=2), Conditions(other_cpu=0.9)
    where = {"conditions": conditions, "environment": Environment(usable_cores=2)}
    recording = run(walls, clean_us=walls, **where)
    assert list(findings(recording)) == ["unsteady"]
    blocks = first_screen(summarise(recording))
    (note,) = (block.content[0] for block in blocks if getattr(block, "note", False))
    assert note == (
        "The machine was unsteady: other programs kept 0.9 of 2 cores busy. Close other programs "
        "and run again."
    )
    # An unknown effect may be larger than all others.
    offs = {"a": 0.1, "b": np.inf, "c": 0.5, "d": 0.0}
    ordered = sort_findings(Finding(code, WARNING, "Text.", off=off) for code, off in offs.items())
    assert [finding.code for finding in ordered] == ["b", "c", "a", "d"]


def test_good_run_has_no_findings():
    for seed in range(3):
        recording = run(
            noise(1000, 0.03, seed),
            layer_noise=1 + 0.05 * np.random.default_rng(seed).standard_normal((1000, 2)),
            clean_us=noise(100, 0.03, seed + 1) * 0.992,
            conditions=Conditions(clock_resolution_ns=1, window_ns=150, other_cpu=0.05),
            environment=replace(blas(1), memory_nbytes=8 << 30),
        )
        assert findings(recording) == {}


def test_thread_counts_are_compared_within_rounds():
    # The machine became eight times slower, so the ratio of all medians is 1.0.
    rounds = [(2000 * slow, 1000 * slow) for slow in (1, 1, 1, 1, 8, 8, 8, 8)]
    probe = probed_threads(probed([*rounds, (2000, 9000)]))
    assert (probe.many, probe.ratio, probe.low, probe.high, probe.rounds) == (4, 2, 2, 2, 9)
    # An incomplete round does not count, and half a round is not enough.
    assert probed_threads(probed([*np.ravel(rounds), 2000])).rounds == 8
    assert probed_threads(probed([1000])) is None
    # Overlapping rounds and few rounds are not enough for a finding.
    for rounds in ([(9000, 1000), (1000, 9000)] * 5, [(2000, 1000)] * 5):
        assert "threads" not in findings(probed(rounds))


def test_random_variation_is_no_finding():
    # The halves of many such runs differ by 5 % or more.
    seeds = range(40)
    assert sum("drift" in findings(run(noise(100, 0.3, seed))) for seed in seeds) <= 4
    walls = (1000 * np.random.default_rng(seed).lognormal(0, 0.2, 60) for seed in seeds)
    assert sum("short-warmup" in findings(run(times)) for times in walls) <= 3
    recording = alternating(0.025, spread=0.08)
    overhead = summarise(recording).totals.overhead
    assert overhead.low < 0.02 < overhead.fraction
    assert "overhead" not in findings(recording)
    # System time in a single trial.
    recording = counted(system_us=9)
    all_counters = recording.counters
    once = [
        replace(x, trial=(0, 0, 0, sum(x.trial))) for x in all_counters.counted if "sys" in x.name
    ]
    others = [counter for counter in all_counters.counted if "sys" not in counter.name]
    uneven = replace(recording, counters=replace(all_counters, counted=(*others, *once)))
    codes = [{finding.code for finding in summarise(r).findings} for r in (recording, uneven)]
    assert codes[0] - codes[1] == {"page-faults"}


@given(
    walls=st.lists(st.floats(0, 1e5), min_size=1, max_size=120),
    layers_us=st.lists(st.sampled_from([0, 0.001, 1, 1000]), min_size=1, max_size=4),
    clean_us=st.lists(st.floats(0, 1e5), max_size=5),
    conditions=st.builds(
        Conditions,
        window_ns=st.none() | st.floats(0, 1e5),
        other_cpu=st.none() | st.floats(0, 64),
    ),
    environment=st.builds(blas, st.integers(1, 4)),
    ended=st.sampled_from(["complete", "interrupted", "time limit reached"]),
    seed=st.none() | st.integers(0, 99),
)
def test_findings_of_any_run_are_well_formed(walls, layers_us, seed, **changes):
    noises = np.ones((len(walls), len(layers_us)))
    if seed is not None:
        noises = np.random.default_rng(seed).lognormal(0, 1, noises.shape)
    findings(run(walls, layers_us, layer_noise=noises, **changes))


STATES = st.none() | st.builds(
    GpuState,
    sm_mhz=st.none() | st.integers(0, 3000),
    throttle=st.lists(st.sampled_from(["power cap", "clocks set by an application"])).map(tuple),
)


@given(
    times=st.sampled_from([LAUNCH_BOUND, DEVICE_BOUND, ((0,), (0,), (0,), (0,))]),
    wait_us=st.integers(0, 30_000),
    n_trials=st.integers(1, 100),
    n_held=st.integers(0, 2),
    conditions=st.builds(Conditions, gpu_before=STATES, gpu_after=STATES),
)
def test_findings_of_any_gpu_run_are_well_formed(times, **changes):
    findings(make_device_recording(times, **changes))
