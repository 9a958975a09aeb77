"""Findings: each one on a run that deserves it, none on a good run."""

import re
import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainer_profile.analyse.checks import probed_threads
from chainer_profile.analyse.findings import LEAST_GAIN, NOTE, STEP, WARNING, in_order
from chainer_profile.analyse.summaries import summarise
from chainer_profile.record.recording import (
    BlasLibrary,
    Conditions,
    Environment,
    Recording,
    Settings,
)
from tests.conftest import make_layers, make_training
from tests.counting import counters

US = 1000
NONE = np.zeros(0, np.int64)


def run(walls_us, layers_us=(300, 100), clean_us=None, layer_noise=None, **changes):
    """A run of the given trial times; its layers take fixed times, or vary by a given factor."""
    walls = np.rint(np.asarray(walls_us, float) * US).astype(np.int64)
    factor = np.ones((len(walls), 1)) if layer_noise is None else np.asarray(layer_noise)
    self_ns = np.rint(np.outer(np.ones(len(walls)), layers_us) * US * factor).astype(np.int64)
    walls = np.maximum(walls, self_ns.sum(axis=1))
    starts = np.concatenate([[0], np.cumsum(walls)[:-1]])
    clean = NONE if clean_us is None else np.rint(np.asarray(clean_us) * US).astype(np.int64)
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
    """Times around 1,000 us that vary by the given part."""
    return 1000 * np.maximum(0, 1 + spread * np.random.default_rng(seed).standard_normal(count))


def findings(recording):
    """What to know of the numbers, by code; each finding is held to what every one must be."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = summarise(recording).findings
    assert len({finding.code for finding in found}) == len(found)
    for finding in found:
        assert finding.text
        assert finding.advice or finding.severity == STEP
        assert finding.gain is None or finding.gain >= LEAST_GAIN
        for text in filter(None, (finding.text, finding.evidence, finding.advice)):
            assert "\n" not in text
            assert text[0].isupper() or text[0].isdigit()
            assert text.endswith(".")
            assert not re.search(r"\b(nan|inf|None)\b|-inf", text)
    assert found == in_order(found)
    return {finding.code: finding for finding in found if finding.severity != STEP}


def one(recording, code):
    """The only finding."""
    found = findings(recording)
    assert list(found) == [code]
    return found[code]


# --- a good run


@pytest.mark.parametrize("seed", range(5))
def test_a_good_run_has_no_findings(seed):
    recording = run(
        noise(1000, 0.03, seed),
        layer_noise=1 + 0.05 * np.random.default_rng(seed).standard_normal((1000, 2)),
        clean_us=noise(100, 0.03, seed + 1) * 0.992,
        conditions=Conditions(clock_resolution_ns=1, window_ns=150, other_cpu=0.05),
        environment=Environment(
            usable_cores=2, blas=(BlasLibrary("openblas", "0.3", 1),), memory_nbytes=8 << 30
        ),
    )
    assert findings(recording) == {}


def alternating(added, spread=0.0, cycles=8):
    """Eight cycles of 20 profiled and 10 clean trials."""
    kinds = np.tile(np.repeat([True, False, True], 10), cycles)
    times = noise(len(kinds), spread, seed=4) * np.where(kinds, 1 + added, 1) * US
    times = np.rint(times).astype(np.int64)
    starts = np.cumsum(times) - times
    return run(
        times[kinds] / US,
        start_ns=starts[kinds],
        clean_us=times[~kinds] / US,
        clean_start_ns=starts[~kinds],
    )


def blas(threads):
    return Environment(usable_cores=4, blas=(BlasLibrary("openblas", "0.3", threads),))


def probed(one_us, many_us, **changes):
    times = np.array([*one_us, *many_us]) * US
    threads = np.repeat([1, 4], [len(one_us), len(many_us)])
    return run([1000] * 100, environment=blas(4), probe_ns=times, probe_threads=threads, **changes)


GOOD = [1000] * 100
SLOW_START = np.concatenate([[1300] * 12, [1000] * 388]) + np.tile([1, -1], 200)
# In turn 1.2 and 0.8, and 1.5 and 0.5 of the mean, of the second and the third layer.
IN_TURN = np.tile([[1, 1.2, 1.5], [1, 0.8, 0.5]], (500, 1))
HELD_BACK = (
    "was set: libraries may use slower instructions than this processor has{}. Unset "
    "OPENBLAS_CORETYPE and run again, unless that is what you want to measure."
)


def ended(why, count=100, **asked):
    return run([1000] * count, ended=why, settings=Settings(**asked))


def clock(window_ns, resolution_ns=1, **changes):
    conditions = Conditions(clock_resolution_ns=resolution_ns, window_ns=window_ns)
    return run(GOOD, conditions=conditions, **changes)


def one_thread(library, **settings):
    environment = Environment(usable_cores=4, blas=(BlasLibrary(library, "0.3", 1),))
    asked = Settings(trials=100, warmups=10, **settings)
    return replace(probed([800] * 5, [1000] * 5), environment=environment, settings=asked)


def held_back(*variables, kernels="Nehalem"):
    blas = (BlasLibrary("openblas", "0.3", 1, kernels),)
    return run(GOOD, environment=Environment(blas=blas, variables=variables))


def busy(other, cores=None):
    environment = Environment(usable_cores=cores)
    return run(GOOD, conditions=Conditions(other_cpu=other), environment=environment)


BY_USER, KILLED = "interrupted by the user", "killed before its end"


@pytest.mark.parametrize(
    ("recording", "code", "severity", "says"),
    [
        # How the run ended.
        *((ended(why, trials=10_000, **asked), "ended-early", NOTE,
           f"The run ended after 100 of 10,000 trials: {why}. This was asked for")
          for why in ("time limit reached", "wanted interval reached")
          for asked in ({"max_seconds": 60.0}, {"until_ci": 0.01})),
        *((ended(why, trials=10_000, **asked), "interrupted", WARNING,
           f"after 100 of 10,000 trials: {why}. The results are of those trials. {advice}")
          for why, asked, advice in (
              (BY_USER, {}, "Run it again for the full number of trials."),
              (BY_USER, {"max_seconds": 60.0}, "Run it again for the full"),
              (KILLED, {"until_ci": 0.01}, "Run it again for the full"),
              ("failed: the limit was not reached", {"max_seconds": 60.0}, "Mend that first"))),
        (ended(KILLED, 30), "interrupted", WARNING, f"The run ended after 30 trials: {KILLED}. The "
         "results are of those trials. Run it again for those behind them."),
        # Too few trials.
        (run([1000]), "few-trials", WARNING, "1 trial: too few for an interval"),
        (run([1000] * 2), "few-trials", WARNING, "2 trials: "),
        (run([1000] * 29), "few-trials", WARNING, "Run at least 30 trials"),
        (run([1000] * 5, trial_ns=None, start_ns=None), "few-trials", WARNING, "5 trials: "),
        # Trials and layers that vary.
        (run(np.where(np.arange(2000) % 20 == 7, 2000.0, 1000.0)), "unstable", WARNING,
         "standard deviation is 21 % of the mean, and the slowest took 2.000 ms against a median "
         "of 1.000 ms."),
        (run([1000] * 1000, layers_us=(300, 100, 50), layer_noise=IN_TURN), "unstable-layers", NOTE,
         "2 of 3 layers vary by 10 % of their mean or more; the worst is 2_ReLU with 50 %."),
        # The clock: 20 x 200 ns = 4 us, two layers; 200 of 400 ns.
        (clock(200, layers_us=(300, 2, 10, 0.4)), "near-resolution", NOTE,
         "2 layers took less than 20 times the 200.0 ns that the clock can tell or an empty "
         "function shows: up to 50 % of 3_Convolution2DFunction. Do not compare these layers "
         "with one another; together they hold 0.8 % of the layers' time."),
        (clock(10, resolution_ns=100_000), "near-resolution", NOTE,
         "2 layers took less than 20 times the 100.0 us"),
        *((clock(200, layers_us=(300, none)), "near-resolution", NOTE,
           "1 layer took less than 20 times the 200.0 ns that the clock can tell or an empty "
           "function shows: up to 100 % of 1_FixedBatchNormalization") for none in (0.001, 0)),
        (alternating(0.05), "overhead", WARNING, "Profiling made a trial 5.0 % slower."),
        # Threads.
        (probed([800] * 5, [1000] * 5), "threads", NOTE,
         "BLAS ran with 4 threads, not one: 1.000 ms a trial instead of 800.0 us (medians of 5 "
         "trials each). Run with one thread."),
        *((one_thread(library, **more), "threads", NOTE,
           "BLAS ran with one thread, not 4: 800.0 us a trial instead of 1.000 ms (medians of 5 "
           f"trials each). Other programs run it with 4 unless {name}_NUM_THREADS=1 is set; "
           "threads=4 measures that.")
          for library, more, name in (("openblas", {}, "OPENBLAS"), ("mkl", {}, "MKL"),
                                      ("flexiblas", {"phase": "train"}, "OMP"))),
        (run(GOOD, environment=blas(4)), "threads", NOTE,
         "BLAS used 4 threads. Small layers are often faster with one. Try threads=1 and compare."),
        # The machine.
        (held_back("OPENBLAS_CORETYPE=Nehalem"), "held-back", WARNING,
         f"OPENBLAS_CORETYPE=Nehalem {HELD_BACK.format(' (BLAS ran Nehalem kernels)')}"),
        (held_back("OPENBLAS_CORETYPE=Nehalem", kernels=""), "held-back", WARNING,
         f"OPENBLAS_CORETYPE=Nehalem {HELD_BACK.format('')}"),
        (held_back("MKL_CBWR=SSE2", "NPY_DISABLE_CPU_FEATURES=AVX2 FMA3"), "held-back", WARNING,
         "MKL_CBWR=SSE2 and NPY_DISABLE_CPU_FEATURES=AVX2 FMA3 were set: libraries may use slower "
         "instructions than this processor has (BLAS ran Nehalem kernels). Unset MKL_CBWR and "
         "NPY_DISABLE_CPU_FEATURES and run again"),
        (busy(1.26, 2), "busy", WARNING, "Other programs kept 1.3 of 2 cores busy during"),
        (busy(1.26), "busy", WARNING, "Other programs kept 1.3 busy during the trials."),
        (busy(0.25), "busy", WARNING, "Other programs kept 0.2 busy during the trials."),
        # Phases: 3,650 us.
        (make_training(100, outside_us=200), "outside-of-phases", NOTE,
         "5.2 % of the trial passes outside of its phases (forward, backward, update)."),
    ],
)  # fmt: skip
def test_what_is_found(recording, code, severity, says):
    finding = one(recording, code)
    assert finding.severity == severity
    assert says in finding.said()


@pytest.mark.parametrize(
    "recording",
    [
        run(GOOD, clean_us=[1000] * 10),
        run(GOOD, trial_ns=None, start_ns=None),
        run([1000] * 30),
        run(GOOD, layers_us=(300, 0)),
        run(GOOD, layers_us=(0, 0)),
        *(run(GOOD, conditions=Conditions(window_ns=window_ns)) for window_ns in (None, 0, 0.0)),
        *(alternating(added) for added in (-0.1, 0.0, 0.0199)),
        *(probed([one_us] * 5, [1000] * 5) for one_us in (975, 1000, 1500)),
        run(GOOD, environment=blas(1)),
        run(GOOD, environment=blas(4), settings=Settings(threads=4)),
        run(GOOD, environment=blas(4), settings=Settings(device="gpu:0")),
        *(busy(other) for other in (None, 0.0, 0.24)),
    ],
)
def test_what_is_worth_no_word(recording):
    assert findings(recording) == {}


def test_framework_that_is_not_known_by_phase_is_outside_of_none():
    for unknown in ({"phases": (), "framework_ns": None}, {"trial_ns": None, "start_ns": None}):
        found = findings(make_training(100, outside_us=1000, **unknown))
        assert "outside-of-phases" not in found
    assert "outside-of-phases" not in findings(make_training(100, outside_us=180))


def test_a_wide_interval_says_how_many_trials_would_do():
    recording = run(noise(40, 0.09, seed=2))
    half_width = summarise(recording).totals.profiled.half_width
    assert half_width > 0.02
    finding = one(recording, "few-trials")
    assert f"{half_width * 100:.1f} %" in finding.text
    needed = int(re.search(r"About ([\d,]+) profiled trials", finding.advice)[1].replace(",", ""))
    assert needed == int(np.ceil(40 * (half_width / 0.02) ** 2))
    # So many such trials are enough.
    assert findings(run(noise(2 * needed, 0.09, seed=2))) == {}


def test_the_interval_says_of_which_trials_it_is():
    clean = noise(40, 0.09, seed=2)
    found = one(run(noise(100, 0.001), clean_us=clean), "few-trials")
    assert re.fullmatch(
        r"The 95 % interval is \+/- [\d.]+ % of the median of the 40 clean trials\.", found.text
    )
    assert re.search(r"About \d+ clean trials .* \(clean_trials=\d+\)\.", found.advice)
    both = findings(run(clean, clean_us=clean))["few-trials"]
    assert "of the 40 clean trials and " in both.text
    assert both.text.endswith("of the 40 profiled trials.")


def test_no_number_of_trials_is_advised_that_nobody_makes():
    recording = run(1000 * np.random.default_rng(0).lognormal(0, 2, 60))
    assert summarise(recording).totals.profiled.half_width > 0.2
    assert "close other programs" in findings(recording)["few-trials"].advice


@pytest.mark.parametrize(("spread", "codes"), [(0.099, []), (0.101, ["unstable"])])
def test_unstable_begins_at_10_per_cent(spread, codes):
    walls = np.tile([1.0, 0.0, 0.0, -1.0], 2500)
    walls = 1000 * (1 + spread * walls / walls.std(ddof=1))
    assert list(findings(run(walls))) == codes


@pytest.mark.parametrize(("second", "text"), [(1100, "10.0 % slower"), (900, "10.0 % faster")])
def test_drift(second, text):
    walls = np.concatenate([[1000] * 100, [second] * 100])
    found = findings(run(walls + np.tile([1, -1], 100)))
    assert f"The second half of the run was {text} than the first." == found["drift"].text
    assert found["drift"].severity == WARNING
    assert "short-warmup" not in found


def test_a_small_drift_or_one_of_few_trials_is_not_told():
    for change in (0.96, 1.04):
        assert "drift" not in findings(run([1000.0] * 500 + [1000.0 * change] * 500))
    assert "drift" not in findings(run([1000] * 29 + [1200] * 30))
    assert "drift" in findings(run([1000] * 30 + [1200] * 30))


def test_noise_is_not_taken_for_drift():
    seen = sum("drift" in findings(run(noise(100, 0.3, seed))) for seed in range(100))
    # Half of such runs have halves that differ by 5 % or more by chance.
    assert seen <= 8


def test_a_slow_start():
    finding = findings(run(SLOW_START, settings=Settings(trials=400, warmups=3)))["short-warmup"]
    assert finding.severity == WARNING
    # 400 trials: the first twentieth, 20, of which 12 are slow.
    assert finding.said() == (
        "The first 20 trials were 30 % slower than the rest: a warm-up of 3 trials was too short. "
        "Use more warm-up trials (warmups=43)."
    )
    asked = Settings(trials=400, warmups=50)
    by_time = run(SLOW_START, settings=asked, warmup_ns=np.full(7, 10**9))
    assert (
        findings(by_time)["short-warmup"]
        .said()
        .endswith("a warm-up of 7 trials was too short. Compare the medians.")
    )


@pytest.mark.parametrize(
    "walls",
    [
        [5000] + [1000] * 98,
        [5000] * 2 + [1000] * 98,
        # Slow and fast in turn, in blocks of 25: the first 25 are slow, and so is half of the rest.
        np.tile(np.repeat([1300, 1000], 25), 20),
    ],
)
def test_no_slow_start(walls):
    assert "short-warmup" not in findings(run(walls))


@pytest.mark.parametrize("spread", [0.1, 0.3])
def test_noise_is_not_taken_for_a_slow_start(spread):
    seen = 0
    for seed in range(100):
        walls = 1000 * np.random.default_rng(seed).lognormal(0, spread, 60)
        seen += "short-warmup" in findings(run(walls))
    assert seen <= 4


def test_a_cost_that_is_not_sure_is_not_told():
    recording = alternating(0.025, spread=0.08)
    overhead = summarise(recording).totals.overhead
    assert overhead.low < 0.02 < overhead.high
    assert "overhead" not in findings(recording)


def test_a_probe_that_was_cut_short_is_none():
    assert probed_threads(probed([], [1000] * 5)) is None
    assert probed_threads(probed([1000] * 5, [])) is None


def test_findings_on_a_training_step_do_not_speak_of_inference():
    recording = make_training(
        5,
        outside_us=1000,
        conditions=Conditions(window_ns=5000, other_cpu=1.0),
        environment=blas(4),
        ended="interrupted by the user",
    )
    found = findings(recording)
    assert {"outside-of-phases", "few-trials", "near-resolution"} <= set(found)
    text = " ".join(f"{finding.text} {finding.advice}" for finding in found.values()).lower()
    for word in ("inference", "latency", "forward pass"):
        assert word not in text


@pytest.mark.parametrize(
    ("command", "ours"),
    [
        ("python train.py", False),
        ("chainer-profile train --epoch 3", False),
        ("python -m chainer_profile train", False),
        ("python -m chainer_profile run train.py --epoch 3", False),
        ("python profile.py --phase train", True),
        ("chainer-profile --phase train", True),
        ("python -m chainer_profile --phase train", True),
    ],
)
def test_findings_on_a_training_name_only_options_that_it_takes(command, ours):
    few = make_training(5, environment=blas(4), settings={"command": command})
    wide = make_training(60, settings={"command": command})
    wide = replace(wide, trial_ns=wide.trial_ns * np.where(np.arange(60) < 30, 12, 10) // 10)
    for recording, codes in ((few, {"few-trials", "threads"}), (wide, {"few-trials", "drift"})):
        found = findings(recording)
        assert codes <= set(found)
        text = " ".join(f"{finding.text} {finding.advice}" for finding in found.values())
        assert ("--" in text) == ours
    slow = make_training(100, settings={"command": command})
    slow = replace(slow, trial_ns=slow.trial_ns + 10**6 * (np.arange(100) < 5))
    assert ("--warmups" in findings(slow)["short-warmup"].advice) == ours


@pytest.mark.parametrize(
    ("command", "way"),
    [
        ("", " (trials=1000)"),
        ("%layerprofile net(x)", " (trials=1000)"),
        ("profile.py", " (--trials 1000)"),
        ("chainer-profile run a.py", ""),
    ],
)
def test_advice_is_in_the_words_of_what_made_the_run(command, way):
    recording = run([1000] * 5, settings=Settings(command=command))
    expected = f"Run at least 30 trials, better 1,000{way}."
    assert one(recording, "few-trials").advice == expected


# --- any run


def test_warnings_come_first():
    recording = run(
        [1000] * 5,
        layers_us=(300, 1),
        ended="interrupted by the user",
        conditions=Conditions(window_ns=200, other_cpu=1.0),
        environment=blas(4),
    )
    codes = list(findings(recording))
    assert codes == ["interrupted", "few-trials", "busy", "near-resolution", "threads"]


@settings(max_examples=60)
@given(
    n_trials=st.integers(1, 120),
    spread=st.sampled_from([0.0, 0.01, 0.2, 2.0]),
    layers_us=st.lists(st.sampled_from([0, 0.001, 1, 1000]), min_size=1, max_size=4),
    clean=st.integers(0, 5),
    window_ns=st.none() | st.floats(0, 1e5),
    other=st.none() | st.floats(0, 64),
    threads=st.integers(1, 4),
    ended=st.sampled_from(["complete", "interrupted", "time limit reached"]),
    seed=st.integers(0, 99),
)
def test_any_finding_of_any_run_is_fit_to_print(
    n_trials, spread, layers_us, clean, window_ns, other, threads, ended, seed
):
    rng = np.random.default_rng(seed)
    recording = run(
        1000 * rng.lognormal(0, spread, n_trials),
        layers_us=layers_us,
        layer_noise=rng.lognormal(0, spread, (n_trials, len(layers_us))),
        clean_us=1000 * rng.lognormal(0, spread, clean),
        conditions=Conditions(window_ns=window_ns, other_cpu=other),
        environment=blas(threads),
        ended=ended,
    )
    findings(recording)


# --- counters


def counted(*, variables=None, **more):
    """A good run with these counters in every layer."""
    recording = run(noise(200, 0.001), clean_us=noise(200, 0.001))
    recording = replace(recording, settings=replace(recording.settings, **(variables or {})))
    return replace(recording, counters=counters(recording, **more))


def faults(recording):
    """The finding of page faults; None without."""
    found = summarise(recording).findings
    return next((one for one in found if one.code == "page-faults"), None)


def test_page_faults():
    assert faults(counted(system_us=4)) is None
    assert faults(counted(system_us=9, page_faults=0)) is None
    found = faults(counted(system_us=9))
    assert (found.severity, found.gain) == (STEP, pytest.approx(1 / (1 - 27 / 270)))
    assert found.text == (
        "The kernel takes 10.0 % of a trial's CPU time (27.00 us), to hand out memory among others."
    )
    assert found.evidence == "A trial has 150 page faults, which take at least 15.00 us."
    ours = faults(counted(system_us=9, variables={"command": "profile.py"}))
    assert (found.command, ours.command) == ("chainer_profile.accelerate()", "--keep-memory")
    for kept in ({"fast": "numpy"}, {"keep_memory": True}, {"engine": "other 1.0"}):
        assert faults(counted(system_us=9, variables=kept)) is None
    older = faults(counted(system_us=9, fault_ns=None))
    assert older.evidence == "A trial has 150 page faults."


def test_system_time_that_is_chance_is_no_finding():
    recording = counted()
    whole = recording.counters
    uneven = tuple(
        replace(one, trial=(0, 0, 0, sum(one.trial))) if one.name == "system_ns" else one
        for one in whole.counted
    )
    recording = replace(recording, counters=replace(whole, counted=uneven))
    assert faults(recording) is None


def test_disturbed():
    quiet = {"system_us": 0, "page_faults": 0}
    assert findings(counted(cpu_us=96, preemptions=1, **quiet)) == {}
    taken = findings(counted(cpu_us=90, preemptions=2, waits=1, **quiet))["disturbed"]
    assert taken.severity == WARNING
    assert "10 % of the wall time" in taken.text
    assert "taken from it 6.0 times a trial" in taken.text
    waited = findings(counted(cpu_us=90, preemptions=1, waits=2, **quiet))["disturbed"]
    assert waited.severity == NOTE
    assert waited.text.endswith("waited 6.0 times a trial.")  # a third of it in each layer
    several = Environment(blas=(BlasLibrary("openblas", "0.3", 2),))
    recording = replace(counted(cpu_us=50, waits=9, **quiet), environment=several)
    assert "disturbed" not in findings(recording)


def test_a_place_is_named_only_where_it_holds_more_than_half():
    """Of two layers and the framework between them, 100 us of wall time and 50 faults each."""

    def texts(second):
        recording = counted(cpu_us=90, waits=2)
        names = {"cpu_ns": 4 * max(0, 100 - second) * US, "page_faults": 4 * second}
        changed = tuple(
            replace(
                one,
                layers=(one.layers[0], names[one.name]),
                # The trial and its layers were measured by the same readings.
                trial=tuple(at - one.layers[1] // 4 + names[one.name] // 4 for at in one.trial),
            )
            if one.name in names
            else one
            for one in recording.counters.counted
        )
        counters = replace(recording.counters, counted=changed)
        found = replace(recording, counters=counters)
        return findings(found)["disturbed"].text, faults(found).evidence

    # Lost are 10 us in each of the others: 20 of 39 us and 20 of 41 us.
    assert texts(19)[0].endswith("waited 6.0 times a trial.")
    assert texts(21)[0].endswith(
        "waited 6.0 times a trial; most of that in 1_FixedBatchNormalization (21.00 us)."
    )
    # The others have 50 faults each.
    assert texts(99)[1].startswith("A trial has 199 page faults, which take at least ")
    assert texts(101)[1].endswith("; 50.2 % of them are in FixedBatchNormalization.")
    assert "%" not in texts(99)[1]
