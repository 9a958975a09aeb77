"""What a program does beside its network: the argument that shortens it, and what that saves."""

import ast

import pytest

from chainer_profile.analyse.program import program_findings
from chainer_profile.record.budget import Budget, Extension, Spent

S = 10**9
NPZ = "functools.partial(serializers.save_npz, compression=False)"
TRY = "python profile.py run --try t.py"
WHERE = {"extensions.Evaluator": "evaluation", "extensions.snapshot": "snapshots"}


def findings_of(*spent, **more):
    wall_ns = sum(each.ns for each in spent)
    return program_findings(Budget("t.py", "", "", "complete", wall_ns, spent, **more))


def advised(*extensions, takes_s=5, **more):
    """The findings of a program of 10 s, of which each extension takes as much."""
    spent = [
        Spent(WHERE.get(each.kind, "extensions"), each.name, takes_s * S, each.times)
        for each in extensions
    ]
    rest = Spent("iterations", "", (10 - takes_s * len(spent)) * S, 100)
    return findings_of(*spent, rest, extensions=extensions, **more)


#: Kind, period, unit, times and own argument of an extension; code to write, and what it saves.
CURES = [
    # By an argument of its own, PlotReport draws as seldom as that says.
    ("extensions.PlotReport 1 epoch 20 trigger", "PlotReport(..., trigger=(10, 'epoch'))", 0.9),
    ("extensions.PlotReport 2 epoch 9 trigger", "PlotReport(..., trigger=(10, 'epoch'))", 8 / 9),
    ("extensions.LogReport 1 epoch 3 trigger", "LogReport(..., trigger=(2, 'epoch'))", 2 / 3),
    (
        "extensions.VariableStatisticsPlot 1 epoch 10 trigger",
        "VariableStatisticsPlot(..., trigger=(10, 'epoch')), trigger=(10, 'iteration'))",
        0.9,
    ),
    (
        "extensions.Evaluator 1 epoch 10",
        "extend(extensions.Evaluator(...), trigger=(10, 'epoch'))",
        0.9,
    ),
    ("extensions.Evaluator 1 epoch 1", "SubDataset(test, 0, len(test) // 10)", 0.9),
    ("Own 0.5 epoch 10", "extend(Own(...), trigger=(5, 'epoch'))", 0.9),
    # A training needs a shift, and others cannot run less often.
    ("extensions.ExponentialShift 1 iteration 100", "", 0),
    ("extensions.PlotReport 1 epoch 1 trigger", "", 0),
    ("Own 0 - 0", "", 0),
]


@pytest.mark.parametrize(("words", "code", "saved"), CURES)
def test_the_argument_that_shortens_an_extension(words, code, saved):
    kind, period, unit, times, *argument = words.split()
    advice = advised(Extension("a", kind, float(period), unit, int(times), *argument))
    assert len(advice) == bool(code)
    for finding in advice:
        assert code in finding.command
        ast.parse(finding.command)
        assert finding.gain == pytest.approx(1 / (1 - 0.5 * saved))
        assert "takes 50.0 % of the program." in finding.text


def test_extensions_with_one_cure_are_one_finding_and_the_largest_is_first():
    plots = [Extension(name, "extensions.PlotReport", 1, "epoch", 20, "trigger") for name in "ab"]
    evaluator = Extension("c", "extensions.Evaluator", 1, "epoch", 10)
    assert [finding.text for finding in advised(evaluator, *plots, takes_s=2)] == [
        "a and b take 40.0 % of the program.",
        "c takes 20.0 % of the program.",
    ]
    # A part of a program that no cure can shorten by 5 % is no finding.
    assert len(advised(evaluator, takes_s=1)) == 1
    assert not findings_of(Spent("evaluation", "c", S, 10), Spent("iterations", "", 29 * S, 10))


def test_compression_and_loops_of_ones_own():
    snapshot = Extension("a", "extensions.snapshot", 1, "epoch", 4, "", True)
    (finding,) = advised(snapshot)
    assert finding.to_do == f"To measure what saving without compression brings, run: {TRY}"
    # Snapshots of 5 s take 2 s less without it, of 10.
    (finding,) = advised(snapshot, compression={"a": 0.4})
    assert finding.command == f"extensions.snapshot(savefun={NPZ})"
    assert "takes 40.0 % less (measured in memory)" in finding.advice
    assert finding.gain == pytest.approx(10 / 8)
    for part, name, code in (
        ("evaluation", "", ""),
        ("snapshots", "save_npz", TRY),
        ("snapshots", "save_npz(compression=False)", ""),
    ):
        (finding,) = findings_of(Spent(part, name, 5 * S, 3), Spent("iterations", "", 5 * S, 10))
        assert (finding.command, finding.gain) == (code, pytest.approx(2.0))
