"""Rules for hotspots and the layers that they choose."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chainer_profile.analyse.hotspots import DEFAULT_RULE, find_hotspots, parse_rule
from chainer_profile.basics.errors import UsageError
from tests.refusing import refusal


def hot(mean_s, text, whole_s=None):
    """Indices of the hot layers. ``whole_s`` is by default the time of all layers."""
    times_s = np.array(mean_s, np.float64)
    whole_s = times_s.sum() if whole_s is None else whole_s
    return find_hotspots(times_s, parse_rule(text), whole_s).indices


def test_hotspot_rules_are_parsed():
    for text, kind, value in (
        *(("0.36ms", "time", 0.36e-3), (" 2 s ", "time", 2.0), ("5%", "share", 0.05)),
        *(("top:10", "top", 10), ("pareto:99.9%", "pareto", 0.999), (DEFAULT_RULE, "pareto", 0.5)),
    ):
        rule = parse_rule(text)
        assert (rule.kind, rule.value) == (kind, pytest.approx(value, rel=1e-15)), text
    for text in (
        *("", ":", "5", "0ms", "-1ms", "0%", "101%", "nan%", "top", "top:", "top:0", "top:1.5"),
        *("pareto:0.5", "top:x", "TOP:3", "pareto", "pareto:0%", "slowest", "a\nb", "top:²"),
    ):
        message = refusal(parse_rule, text, error=UsageError)
        assert message.startswith(repr(text))
        assert message.endswith("give a time (0.36ms), a share (5%), top:10 or pareto:50%")


def test_hotspots_chosen_by_each_rule():
    for mean_s, rule, chosen in (
        ([0.359e-3, 0.36e-3, 0.361e-3], "0.36ms", [1, 2]),
        ([4.9, 5.0, 90.1], "5%", [1, 2]),
        # The earlier layers of equal ones are hot.
        ([1, 3, 2, 3, 3], "top:2", [1, 3]),
        ([1, 3], "top:10", [0, 1]),
        ([10, 50, 30, 10], "pareto:50%", [1]),
        ([10, 50, 30, 10], "pareto:50.1%", [1, 2]),
        # Similar layers are hot together: the limit is the largest gap within a tenth.
        ([158, 157, 159, 157, 158, 158, 157, 30, 3, 1], "pareto:50%", [0, 1, 2, 3, 4, 5, 6]),
        ([50, 30, 29, 28.5, 28, 8], "pareto:40%", [0, 1, 2, 3, 4]),
        ([50, 30, 29.9, 27.5, 27.2, 26.9], "pareto:40%", [0, 1, 2]),
        *(([0, 0, 0], rule, []) for rule in ("1ns", "5%", "pareto:50%")),
        *(([0, 7, 0], rule, [1]) for rule in ("1ns", "5%", "100%", "pareto:100%")),
    ):
        assert hot(mean_s, rule) == chosen, rule
    # Shares are of the trial, which may have other time.
    assert hot([1, 1, 1], "25%", whole_s=3 / 0.8) == [0, 1, 2]
    assert hot([1, 1, 1], "25%", whole_s=3 / 0.7) == []
    # Rules by time or share have a limit, which plots draw.
    lines = [
        find_hotspots(np.ones(3), parse_rule(rule), 3.0).line_s for rule in ("1ms", "5%", "top:2")
    ]
    assert lines == [1e-3, pytest.approx(0.15), None]


@given(st.integers(1, 10**7), st.integers(1, 200), st.integers(1, 100))
@example(530_000, 1, 100)  # parse_duration("0.53ms") is one bit above it
def test_equal_layers_are_all_hot_in_any_unit(ns, count, percent):
    for text in (f"{ns}ns", f"{ns / 1000!r}us", f"{ns / 10**6!r}ms", f"{ns / 10**9!r}s"):
        assert hot([ns * 1e-9, (ns - 1) * 1e-9], text) == [0]
    assert len(hot([ns * 1e-9] * count, f"{100 / count!r}%")) == count
    assert hot([0.1] * count, f"pareto:{percent}%") == list(range(count))
