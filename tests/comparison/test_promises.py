"""What docs/compare.md promises, by a few of the simulated comparisons of benchmarks/."""

from __future__ import annotations

from benchmarks.comparison_simulated import same_code, slower_code


def test_single_runs_of_the_same_code_are_hardly_called_different() -> None:
    called = same_code(1, 40)
    assert called.layers <= 0.01
    assert called.gate <= 0.03


def test_five_runs_a_side_of_the_same_code_are_not_either() -> None:
    called = same_code(5, 30)
    assert called.layers <= 0.01
    assert called.any_layer <= 0.15


def test_five_runs_a_side_find_five_percent() -> None:
    assert slower_code("Convolution2DFunction", 5, 12) >= 0.8
