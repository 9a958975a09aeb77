"""Engines race in alternation, on a clock that only they advance."""

from functools import partial
from itertools import chain

import numpy as np
import pytest

from chainer_profile.engines.protocol import Network
from chainer_profile.engines.race import Contestant, Race
from chainer_profile.engines.results import round_medians
from chainer_profile.record.recording import COMPLETE, TIME_LIMIT
from tests.command import raising
from tests.engines.fake_engines import FakeEngine, X, double, layers, profile
from tests.refusing import refusal


def race(clock, *engines, trials=60, device="cpu", **options):
    contestants = [Contestant(name=engine.name, engine=engine) for engine in engines]
    network = Network("net", None, (X.copy(),), layers(), device=device)
    return Race(contestants, network, **{"trials": trials, "warmups": 3, "clock": clock} | options)


def finished_race(clock, *engines, **options):
    """Run a race to its end."""
    contest = race(clock, *engines, **options)
    contest.run()
    return contest


def chainer(clock, **more):
    return FakeEngine(clock, 1000, "chainer", **more)


def test_trials_have_engine_times_and_progress_counts_all_engines(clock):
    progress_calls = []
    engines = chainer(clock), FakeEngine(clock, 100)
    contest = finished_race(
        clock, *engines, progress=lambda *progress: progress_calls.append(progress)
    )
    slow, fast = contest.contestants
    assert slow.clean_ns.tolist() == [1000] * 60
    assert fast.clean_ns.tolist() == [100] * 60
    times = [zip(c.start_ns, c.start_ns + c.clean_ns, strict=True) for c in contest.contestants]
    begins, ends = np.transpose(sorted(chain(*times)))
    assert (begins[1:] >= ends[:-1]).all()
    assert slow.prepare_s == fast.prepare_s == pytest.approx(1e-3)
    assert contest.ended == COMPLETE
    assert [d.relative for d in fast.differences] == [0.0, 0.0, 0.0]
    assert progress_calls[-1] == (120, 120, pytest.approx(550e-9))
    assert [done for done, _, _ in progress_calls] == sorted(done for done, _, _ in progress_calls)


def test_engines_alternate_in_varying_order(clock):
    log = []
    engines = [FakeEngine(clock, 10, name, log=log) for name in ("chainer", "b", "c")]
    finished_race(clock, *engines, warmups=0)
    # Each engine runs twice for its outputs (Chainer four times), and once at the end. A block has
    # an untimed run and two trials.
    trials = log[8:-3]
    blocks = [set(trials[i : i + 3]) for i in range(0, len(trials), 3)]
    order = [name for block in blocks for name in block]
    assert order[:9] == ["chainer", "b", "c", "b", "c", "chainer", "c", "chainer", "b"]
    assert len(order) == 90
    # A race has many rounds of few trials.
    for trials, rounds in ((1, 1), (29, 29), (59, 59), (61, 31), (1000, 100)):
        (slow,) = finished_race(clock, chainer(clock), trials=trials).contestants
        assert (len(slow.clean_ns), len(round_medians(slow))) == (trials, rounds)


def test_failed_engine_keeps_its_trials_and_others_continue(clock):
    lacks = FakeEngine(clock, name="lacks", fails_to_prepare="no such function: Roll")
    # Two runs for outputs, three warm-ups, then one untimed and two timed runs per round.
    breaks = FakeEngine(clock, name="breaks", fails_at=5 + 3 + 2)
    spoils = FakeEngine(clock, name="spoils", function=lambda x: np.multiply(x, 2, out=x))
    contest = finished_race(clock, chainer(clock), lacks, breaks, spoils, FakeEngine(clock))
    assert [(c.error, len(c.clean_ns)) for c in contest.contestants] == [
        ("", 60),
        ("no such function: Roll", 0),
        ("after 2 trials: RuntimeError: out of order", 2),
        ("changes its input", 0),
        ("", 60),
    ]
    assert contest.contestants[1].prepare_s is None
    np.testing.assert_array_equal(contest.network.inputs[0], X)
    assert contest.ended == COMPLETE


def test_failure_of_chainer_ends_the_race(clock):
    draw = np.random.default_rng(0).standard_normal
    for more, trials, message in (
        ({"fails_to_prepare": "cannot"}, 60, "chainer: cannot"),
        ({"fails_at": 10}, 10, "chainer: after 1 trials: RuntimeError: out of order"),
        # No engine can be compared with random outputs.
        (
            {"function": lambda x: x + draw(x.shape)},
            60,
            "chainer: the network returns different outputs for the same",
        ),
    ):
        contest = race(clock, chainer(clock, **more), FakeEngine(clock), trials=trials)
        assert refusal(contest.run).startswith(message)


def test_wrong_outputs_are_found(clock, monkeypatch):
    first_output = double(X)
    # An engine may reuse the memory of its outputs.
    chainer_function, engine_function = (
        partial(np.multiply, 2, out=np.empty_like(X)) for _ in range(2)
    )
    breaking = FakeEngine(clock, name="breaking")
    breaking.function = lambda x: x * (2 if breaking.calls < 50 else 3)
    outputs = {0: X, 3: X}
    monkeypatch.setattr("chainer_profile.engines.equality.chainer_intermediates", lambda _: outputs)
    helpful, silent = (FakeEngine(clock, name=name, function=lambda x: x) for name in ("a", "b"))
    helpful.intermediates = lambda inputs: {0: X, 3: X + 1}
    silent.intermediates = raising(RuntimeError("nothing to show"))
    _, right, off, constant, broken, *named = finished_race(
        clock,
        chainer(clock, function=chainer_function),
        FakeEngine(clock, function=engine_function),
        FakeEngine(clock, name="off", function=lambda x: x * 2 + 0.1),
        FakeEngine(clock, name="of the first input", function=lambda x: first_output),
        breaking,
        *(helpful, silent),
    ).contestants
    assert [d.relative for d in right.differences] == [0.0] * 3
    assert off.wrong
    assert off.difference.largest == pytest.approx(0.1, rel=1e-5)
    assert (off.tolerance, len(off.clean_ns)) == (1e-4, 60)
    assert [d.relative > 0.1 for d in constant.differences] == [False, True, False]
    assert [d.relative for d in broken.differences] == [0.0, 0.0, 0.5]
    assert [each.worst_layer for each in named] == [
        "the first layer that differs is 3_Convolution2DFunction at /res2/1/conv1",
        "the first differing layer is unknown (RuntimeError: nothing to show)",
    ]
    assert [each.tolerance for each in race(clock, breaking, tolerance=0.5).contestants] == [0.5]


def test_signal_and_time_limit_keep_measurements(clock):
    engine = FakeEngine(clock)
    contest = finished_race(
        clock, chainer(clock), engine, stop=lambda: "interrupted" if engine.calls >= 20 else ""
    )
    assert contest.ended == "interrupted"
    slow, fast = (len(c.clean_ns) for c in contest.contestants)
    assert 0 < fast < 60
    assert abs(slow - fast) <= 2
    contest.profile_nodes(10)
    assert engine.layer_trials == 0
    # The time limit applies only to trials.
    engine = FakeEngine(clock, 100, node_profile=profile([1], [()], 2))
    contest = finished_race(clock, chainer(clock), engine, max_seconds=20e-6)
    assert contest.ended == TIME_LIMIT
    assert 0 < len(contest.contestants[0].clean_ns) < 20
    contest.profile_nodes(10)
    assert engine.layer_trials == 10
    assert finished_race(clock, chainer(clock), trials=3, max_seconds=6e-6).ended == COMPLETE


def test_time_for_node_profiles_is_limited(clock):
    node_profile = profile([1], [()], 2)
    engine = FakeEngine(clock, 1_000_000, node_profile=node_profile)
    silent, failing = FakeEngine(clock, name="silent"), FakeEngine(clock, name="failing")
    failing.layers = raising(ZeroDivisionError("division by zero"))
    contest = finished_race(clock, chainer(clock), engine, silent, failing)
    contest.profile_nodes(200, max_seconds=0.05)
    assert engine.layer_trials == 50
    assert [(c.profile, c.note, c.error) for c in contest.contestants[1:]] == [
        (node_profile, "", ""),
        (None, "it does not report the times of its nodes", ""),
        (None, "no node times: ZeroDivisionError: division by zero", ""),
    ]


def test_memory_is_the_growth_during_runs(clock, monkeypatch):
    class FakeGrowth:
        def settle(self):
            self.before = engine.calls

        def nbytes(self):
            return (engine.calls - self.before) << 20

    monkeypatch.setattr("chainer_profile.engines.race.MemoryGrowth", FakeGrowth)
    for run_ns, warmups, device, nbytes in (
        (1000, 3, "cpu", 3 << 20),
        (4 * 10**9, 50, "cpu", 3 << 20),  # a warm-up takes at most about ten seconds
        (1000, 3, "gpu:0", None),
    ):
        engine = FakeEngine(clock, run_ns, "chainer")
        (contestant,) = finished_race(
            clock, engine, device=device, trials=1, warmups=warmups
        ).contestants
        assert contestant.memory_nbytes == nbytes
