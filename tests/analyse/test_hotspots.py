"""Rules for hotspots, and the layers that they choose."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chainer_profile.analyse.hotspots import DEFAULT_RULE, find_hotspots, parse_rule
from chainer_profile.basics.errors import UsageError
from tests.refusing import refusal

times = st.lists(st.integers(0, 10**7), min_size=1, max_size=60).map(
    lambda ns: np.array(ns, np.float64) * 1e-9
)


def hot(typical_s, text):
    return find_hotspots(np.array(typical_s, np.float64), parse_rule(text)).indices


def test_rules_are_read():
    for text, kind, value in (
        *(("0.36ms", "time", 0.36e-3), (" 2 s ", "time", 2.0), ("5%", "share", 0.05)),
        *(("top:10", "top", 10), ("pareto:99.9%", "pareto", 0.999), (DEFAULT_RULE, "pareto", 0.5)),
    ):
        rule = parse_rule(text)
        assert (rule.kind, rule.text) == (kind, text)
        assert rule.value == pytest.approx(value, rel=1e-15), text
    assert str(parse_rule("top:1")) == "the 1 slowest layer"
    assert str(parse_rule("5%")) == "layers that take at least 5.0 % of the trial"
    for text in (
        *("", ":", "5", "0ms", "-1ms", "0%", "101%", "nan%", "%", "top", "top:", "top:0", "top:-3"),
        *("pareto:0.5", "top:1.5", "top:5%", "top:x", "TOP:3", "pareto", "pareto:", "pareto:0%"),
        *("pareto:101%", "pareto:x", "time:3ms", "slowest", "top:3:4", "a\nb", "top:²"),
    ):
        message = refusal(parse_rule, text, error=UsageError)
        assert message.startswith(repr(text))
        assert message.endswith("give a time (0.36ms), a share (5%), top:10 or pareto:50%")


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
        ([10, 50, 30, 10], "pareto:90%", [0, 1, 2, 3]),
        ([10, 50, 30, 10], "pareto:100%", [0, 1, 2, 3]),
        # Bars that look alike are of one colour: the largest gap within a tenth is the line.
        ([158, 157, 159, 157, 158, 158, 157, 30, 3, 1], "pareto:50%", [0, 1, 2, 3, 4, 5, 6]),
        ([50, 30, 29, 28.5, 28, 8], "pareto:40%", [0, 1, 2, 3, 4]),
        ([50, 30, 29.9, 27.5, 27.2, 26.9], "pareto:40%", [0, 1, 2]),
        *(([0, 0, 0], rule, []) for rule in ("1ns", "5%", "pareto:50%")),
        ([0, 0, 0], "top:1", [0]),
        *(([0, 7, 0], rule, [1]) for rule in ("1ns", "5%", "100%", "pareto:100%")),
    ):
        assert hot(typical_s, rule) == chosen, rule
    # A time and a share have a line.
    lines = {"0.36ms": 0.36e-3, "5%": 0.15, "top:2": None, "pareto:50%": None}
    lines_s = {rule: find_hotspots(np.ones(3), parse_rule(rule)).line_s for rule in lines}
    assert lines_s == {
        rule: line and pytest.approx(line, rel=1e-15) for rule, line in lines.items()
    }
    # A share is of the trial, of which these layers may be a part.
    assert find_hotspots(np.ones(3), parse_rule("25%"), 0.8).hot.all()
    assert not find_hotspots(np.ones(3), parse_rule("25%"), 0.7).hot.any()
    # Of many equal layers the earlier ones are taken.
    typical_s = np.tile([1.0, 2.0, 1.0, 2.0, 0.0], 40)
    slow = np.flatnonzero(typical_s == 2.0).tolist()
    for rule, count in (("top:50", 50), ("pareto:50%", 80)):
        assert hot(typical_s, rule) == slow[:count]


@given(st.integers(1, 10**7), st.integers(1, 200), st.integers(1, 100))
@example(530_000, 1, 100)  # parse_duration("0.53ms") is one bit above it
def test_equal_layers_are_all_hot_in_any_unit(ns, count, percent):
    for text in (f"{ns}ns", f"{ns / 1000!r}us", f"{ns / 10**6!r}ms", f"{ns / 10**9!r}s"):
        assert hot([ns * 1e-9, (ns - 1) * 1e-9], text) == [0]
    assert len(hot([ns * 1e-9] * count, f"{100 / count!r}%")) == count
    assert hot([0.1] * count, f"pareto:{percent}%") == list(range(count))


@given(times, st.integers(1, 100))
def test_pareto_is_enough_and_ends_at_a_gap(typical_s, percent):
    chosen = find_hotspots(typical_s, parse_rule(f"pareto:{percent}%")).hot
    wanted = percent / 100 * typical_s.sum()
    if not typical_s.any():
        assert not chosen.any()
        return
    times = np.sort(typical_s)[::-1]
    held = np.cumsum(times)
    assert held[chosen.sum() - 1] >= wanted * (1 - 1e-9)
    fewest = next(at for at, sum_s in enumerate(held) if sum_s >= wanted * (1 - 1e-9))
    # All beyond the fewest are about as slow as the last of those, and no gap there is larger.
    last = chosen.sum() - 1
    assert times[last] >= 0.9 * times[fewest]
    following = np.append(times, 0.0)
    for at in range(fewest, int((times >= 0.9 * times[fewest]).sum())):
        assert following[last + 1] / times[last] <= following[at + 1] / times[at]
    if not chosen.all():
        assert typical_s[chosen].min() > typical_s[~chosen].max()
    if percent == 100:
        assert chosen.sum() == (typical_s > 0).sum()
