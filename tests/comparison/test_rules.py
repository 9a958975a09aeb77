"""Known answers of the rules for faster, slower and not significant."""

import numpy as np

from chainer_profile.comparison import significance
from chainer_profile.comparison.judge import Judge


def judged(factors, trials=60, machine=1.0, min_effect=0.03, ns=1e6, window_s=0.0, function=0):
    """Return verdicts on layers when their times change by these factors.

    If ``factors`` is a list of runs, its first half is the runs before. The times of a run vary by
    a thousandth.
    """
    several = isinstance(factors[0], list)
    runs = np.array(factors if several else [[1.0] * len(factors), factors])
    wave = 1 + 0.001 * np.sin(np.arange(trials) * 2.4)
    samples = [np.rint(ns * wave[:, None] * run).astype(np.int64) for run in runs]
    half = len(samples) // 2
    n = runs.shape[1]
    numbers = np.arange(n) if function is None else np.full(n, function)
    judge = Judge(min_effect, (1 / machine, machine), several, window_s)
    groups = significance.Groups(numbers, numbers)
    return judge.layers(samples[:half], samples[half:], groups)[0].to_dict("list")


def total(factor, machine=1.0):
    """Return the verdict on a trial of 1 ms that takes ``factor`` times as long."""
    before = np.rint(1e6 + 1e3 * np.sin(np.arange(60) * 2.4)).astype(np.int64)
    judge = Judge(0.02, (1 / machine, machine), False, 0.0)
    after = np.rint(before * factor).astype(np.int64)
    return judge.totals([before], [after])["verdict"][0]


def verdicts(factors, **more):
    return judged(factors, **more)["verdict"]


def close(got, expected):
    np.testing.assert_allclose(got, expected, rtol=0.02)


def test_rules_give_known_answers():
    same = "not significant"
    # One layer is 10 % slower, one is 10 % faster, and the others are unchanged.
    assert verdicts([1.1, 0.9] + [1.0] * 8) == ["slower", "faster", *[same] * 8]
    close(judged([1.1, 0.9] + [1.0] * 8)["ratio"][:2], [1.1, 0.9])

    # A change below the threshold, and a change that exceeds the machine's by less than the
    # threshold.
    assert verdicts([1.028] + [1.0] * 9) == [same] * 10
    assert verdicts([1.028] + [1.0] * 9, min_effect=0.01)[0] == "slower"
    explained = judged([1.08] * 9 + [1.08 * 1.028], machine=1.1)
    assert explained["verdict"] == [same] * 10
    assert min(explained["p_value"][:9]) > 0.05
    # The machine became faster, so the layer itself is slower, but its time hardly changed.
    assert verdicts([1.02] + [0.92] * 9, machine=1.1)[0] == same
    # If each function has one layer, this change is within the variation between runs.
    assert verdicts([1.05] + [0.9] * 9, machine=1.2, function=None)[0] == same
    # The other layers slow down by more, so this layer is neither faster nor slower.
    assert verdicts([1.04] + [1.1] * 9, machine=1.2)[0] == same

    # All ten layers are equally far from the median. The interval allows for the median of few
    # layers.
    wide = judged([1.03, 1 / 1.03] * 5, trials=400)
    half = 2.2281 * 1.4826 * np.log(1.03) * np.sqrt(1.2)
    close(np.log(wide["high"][0] / wide["ratio"][0]), half)

    # Layers change together by more or by less than runs of the same code may differ.
    assert verdicts([1.08] * 10) == [same] * 10
    assert verdicts([1.3] * 10) == ["slower"] * 10
    assert [total(factor) for factor in (1.08, 1.3, 0.7)] == [same, "slower", "faster"]
    # The machine slowed down by as much as the trial, or by less.
    assert [total(x, machine=1.4) for x in (1.01, 1.3, 1.8)] == [
        *(same, "machine or code", "slower")
    ]

    # 50 ns, measured with a clock that has a resolution of 100 ns.
    assert verdicts([1.5] + [1.0] * 9, ns=100.0)[0] == "slower"
    assert verdicts([1.5] + [1.0] * 9, ns=100.0, window_s=100e-9)[0] == same

    # 3 trials are too few. For 4 and 4 separate trials, p is 2/66 in the test of Mann and Whitney.
    assert verdicts([1.1] * 3, trials=3, function=None) == ["not known"] * 3
    few = judged([1.3] + [1.0] * 9, trials=4)
    assert few["verdict"] == [same] * 10
    close(few["p_value"][0], 10 * 0.0304)
    assert verdicts([1.3], trials=4, function=None) == ["slower"]

    # 1.5 % is within the variation between runs. Then all layers change, by different factors.
    assert verdicts([1.015] + [1.0] * 9, min_effect=0.01)[0] == same
    assert verdicts([1.25, 0.8] * 5) == ["slower", "faster"] * 5
    # Calls of 5 us vary by as much, and so do layers while the machine changes.
    assert verdicts([1.25, 0.8] * 5, ns=5e3) == [same] * 10
    assert verdicts([1.25, 0.8] * 5, machine=1.3) == [same] * 10

    # Levels last for 20 trials, so 1,000 trials have only 50 independent values.
    levels = np.random.default_rng(1).normal(1, 0.05, (2, 50))
    close(significance.rank_test(*levels[:, :, None]), stays_for(levels, 20))

    # Student's t-test of 3 and 3 runs, by a table: t = 2.776 is 5 % with 4 degrees of freedom.
    for t, p, verdict in ((2.9, 0.0441, "slower"), (2.65, 0.0570, same)):
        judgement = compare_three_runs(t)
        close(judgement["p_value"], [p])
        assert judgement["verdict"] == [verdict]
        close(np.log(judgement["low"]), [(t - 2.776) * 0.02])
    # t = 3.2 is 3.3 %: not significant for one of two layers, significant for both.
    assert compare_three_runs(3.2, 0)["verdict"] == [same] * 2
    close(compare_three_runs(3.2, 0)["p_value"][0], 2 * 0.0329)
    assert compare_three_runs(3.2, 3.2)["verdict"] == ["slower"] * 2

    # One of 30 layers happens to have the same time in both runs of a side.
    spread = np.random.default_rng(2).normal(1, 0.03, (4, 30))
    spread[:, 0] = [1, 1, 1.04, 1.0401]
    assert verdicts(spread.tolist(), function=None)[0] == same


def stays_for(levels, length):
    """Return p-values of the rank test on trials; each level lasts for ``length`` trials."""
    trials = np.rint(np.repeat(levels, length, axis=1) * 1e6).astype(np.int64)[:, :, None]
    return significance.rank_test(*map(significance.block_times, trials))


def compare_three_runs(*t):
    """Compare 3 runs with 3: log ratios of the layers are ``t`` times the standard error of 2 %."""
    deviation = 0.02 * np.sqrt(3 / 2)
    runs = np.array([-deviation, 0, deviation])[:, None] * np.ones(len(t))
    logs = np.concatenate([runs, runs + 0.02 * np.array(t)])
    return judged(np.exp(logs).tolist(), function=None)
