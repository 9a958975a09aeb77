"""Rules for hotspots, and the layers that they choose."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.analyse.hotspots import DEFAULT_RULE, find_hotspots, parse_rule
from chainer_profile.basics.errors import UsageError
from chainer_profile.basics.units import parse_duration

times = st.lists(st.integers(0, 10**7), min_size=1, max_size=60).map(
    lambda ns: np.array(ns, np.float64) * 1e-9
)


def hot(typical_s, text):
    return find_hotspots(np.array(typical_s, np.float64), parse_rule(text)).indices


def test_rules_are_read_and_shown():
    for text, kind, value, shown in (
        ("0.36ms", "time", 0.36e-3, "layers of at least 360.0 us"),
        (" 2 s ", "time", 2.0, "layers of at least 2.000 s"),
        ("5%", "share", 0.05, "layers with at least 5.0 % of the layers' time"),
        ("top:1", "top", 1, "the 1 slowest layer"),
        ("top:10", "top", 10, "the 10 slowest layers"),
        ("pareto:99.9%", "pareto", 0.999, "the fewest layers that take 99.9 % of the layers' time"),
        ("pareto:0.5%", "pareto", 0.005, "the fewest layers that take 0.5 % of the layers' time"),
        (DEFAULT_RULE, "pareto", 0.5, "the fewest layers that take 50.0 % of the layers' time"),
    ):
        rule = parse_rule(text)
        assert (rule.kind, rule.text, str(rule)) == (kind, text, shown), text
        assert rule.value == pytest.approx(value, rel=1e-15), text


NONSENSE = (
    *("", ":", "5", "0ms", "-1ms", "0%", "101%", "nan%", "%", "top", "top:", "top:0", "top:-3"),
    *("pareto:0.5", "top:1.5", "top:5%", "top:x", "TOP:3", "pareto", "pareto:", "pareto:0%"),
    *("pareto:101%", "pareto:x", "time:3ms", "slowest", "top:3:4", "a\nb", "top:²"),
)


def test_nonsense_is_no_rule():
    for text in NONSENSE:
        with pytest.raises(UsageError) as error:
            parse_rule(text)
        message = str(error.value)
        assert "\n" not in message
        assert message.startswith(repr(text))
        assert message.endswith("give a time (0.36ms), a share (5%), top:10 or pareto:50%")


@given(st.text(max_size=12) | st.from_regex(r"(top|pareto):[0-9.%]*", fullmatch=True))
def test_any_text_is_a_rule_or_an_error(text):
    try:
        rule = parse_rule(text)
    except UsageError:
        return
    assert rule.value > 0
    assert find_hotspots(np.array([1.0, 2.0]), rule).hot.shape == (2,)


def test_by_hand():
    for typical_s, rule, chosen in (
        ([0.359e-3, 0.36e-3, 0.361e-3], "0.36ms", [1, 2]),
        ([4.9, 5.0, 90.1], "5%", [1, 2]),
        # Of equal ones the earlier.
        ([1, 3, 2, 3, 3], "top:2", [1, 3]),
        ([1, 3, 2, 3, 3], "top:4", [1, 2, 3, 4]),
        ([1, 3], "top:10", [0, 1]),
        ([10, 50, 30, 10], "pareto:50%", [1]),
        ([10, 50, 30, 10], "pareto:50.1%", [1, 2]),
        ([10, 50, 30, 10], "pareto:90%", [0, 1, 2]),
        ([10, 50, 30, 10], "pareto:100%", [0, 1, 2, 3]),
        *(([0, 0, 0], rule, []) for rule in ("1ns", "5%", "pareto:50%")),
        ([0, 0, 0], "top:1", [0]),
        *(([0, 7, 0], rule, [1]) for rule in ("1ns", "5%", "100%", "pareto:100%")),
    ):
        assert hot(typical_s, rule) == chosen, rule


def test_a_time_and_a_share_have_a_line():
    lines = {"0.36ms": 0.36e-3, "5%": 0.15, "top:2": None, "pareto:50%": None}
    found = {rule: find_hotspots(np.ones(3), parse_rule(rule)).line_s for rule in lines}
    assert found == {rule: line and pytest.approx(line, rel=1e-15) for rule, line in lines.items()}


@given(st.integers(1, 10**7))
def test_a_time_of_whole_nanoseconds_reaches_the_same_time_in_any_unit(ns):
    for text in (f"{ns}ns", f"{ns / 1000!r}us", f"{ns / 10**6!r}ms", f"{ns / 10**9!r}s"):
        assert hot([ns * 1e-9, (ns - 1) * 1e-9], text) == [0]


def test_a_time_in_nanoseconds_reaches_a_line_in_another_unit():
    typical_s = 530_000 * 1e-9
    assert parse_duration("0.53ms") > typical_s  # by one bit
    assert hot([typical_s], "0.53ms") == hot([typical_s], "530us") == [0]


@given(st.integers(1, 200), st.integers(1, 10**9))
def test_equal_layers_all_reach_their_share(count, ns):
    assert len(hot([ns * 1e-9] * count, f"{100 / count!r}%")) == count


@given(times, st.integers(1, 80))
def test_top_takes_so_many_and_none_is_slower_than_they_are(typical_s, count):
    chosen = find_hotspots(typical_s, parse_rule(f"top:{count}")).hot
    assert chosen.sum() == min(count, len(typical_s))
    if not chosen.all():
        assert typical_s[chosen].min() >= typical_s[~chosen].max()


@pytest.mark.parametrize("rule", ["top:50", "pareto:50%"])
def test_of_many_equal_layers_the_earlier_ones_are_taken(rule):
    typical_s = np.tile([1.0, 2.0, 1.0, 2.0, 0.0], 40)
    slow = np.flatnonzero(typical_s == 2.0)
    chosen = find_hotspots(typical_s, parse_rule(rule)).indices
    assert chosen == slow[: len(chosen)].tolist()
    assert len(chosen) in (50, 60)


@given(times, st.integers(1, 100))
def test_pareto_is_enough_and_minimal(typical_s, percent):
    chosen = find_hotspots(typical_s, parse_rule(f"pareto:{percent}%")).hot
    wanted = percent / 100 * typical_s.sum()
    if not typical_s.any():
        assert not chosen.any()
        return
    held = typical_s[chosen].sum()
    assert held >= wanted * (1 - 1e-9)
    assert held - typical_s[chosen].min() < wanted
    if not chosen.all():
        assert typical_s[chosen].min() >= typical_s[~chosen].max()
    if percent == 100:
        assert chosen.sum() == (typical_s > 0).sum()


@given(st.integers(1, 100), st.integers(1, 100))
def test_pareto_of_equal_layers_takes_no_more_than_needed(count, percent):
    found = hot([0.1] * count, f"pareto:{percent}%")
    assert found == list(range(-(-count * percent // 100)))
