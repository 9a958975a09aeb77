"""What is advised on extensions of a Trainer: never what they have, and the largest gain first."""

import ast

import pytest

from chainer_profile.analyse.program import program_findings
from chainer_profile.record.budget import Budget, Extension, Spent

S = 10**9
NPZ = "functools.partial(serializers.save_npz, compression=False)"
TRY = "python profile.py run --try t.py"
WHERE = {"extensions.Evaluator": "evaluation", "extensions.snapshot": "snapshots"}


def advised(*extensions, takes_s=5, part="", **more):
    """The findings of a program of 10 s or more, of which each extension takes as much."""
    spent = [
        Spent(part or WHERE.get(each.kind, "extensions"), each.name, takes_s * S, each.times)
        for each in extensions
    ]
    rest = Spent("iterations", "", max(1, 10 - takes_s * len(spent)) * S, 100)
    wall_ns = sum(each.ns for each in spent) + rest.ns
    budget = Budget(
        "t.py", "", "", "complete", wall_ns, (*spent, rest), extensions=extensions, **more
    )
    return program_findings(budget)


@pytest.mark.parametrize(
    ("extension", "code", "saved"),
    [
        # By an argument of its own, PlotReport draws as seldom as that says.
        (
            ("extensions.PlotReport", 1, "epoch", 20, "trigger"),
            "PlotReport(..., trigger=(10, 'epoch'))",
            0.9,
        ),
        (
            ("extensions.PlotReport", 2, "epoch", 9, "trigger"),
            "PlotReport(..., trigger=(10, 'epoch'))",
            8 / 9,
        ),
        (
            ("extensions.LogReport", 1, "epoch", 3, "trigger"),
            "LogReport(..., trigger=(2, 'epoch'))",
            2 / 3,
        ),
        (
            ("extensions.VariableStatisticsPlot", 1, "epoch", 10, "trigger"),
            "VariableStatisticsPlot(..., trigger=(10, 'epoch')), trigger=(10, 'iteration'))",
            0.9,
        ),
        (
            ("extensions.Evaluator", 1, "epoch", 10),
            "extend(extensions.Evaluator(...), trigger=(10, 'epoch'))",
            0.9,
        ),
        (("extensions.Evaluator", 1, "epoch", 1), "SubDataset(test, 0, len(test) // 10)", 0.9),
        (("Own", 0.5, "epoch", 10), "extend(Own(...), trigger=(5, 'epoch'))", 0.9),
        (
            ("extensions.snapshot", 1, "epoch", 10),
            "extend(extensions.snapshot(...), trigger=(10,",
            0.9,
        ),
    ],
)
def test_the_argument_that_shortens_an_extension(extension, code, saved):
    (finding,) = advised(Extension("a", *extension))
    assert code in finding.command
    ast.parse(finding.command)
    assert finding.gain == pytest.approx(1 / (1 - 0.5 * saved))
    assert "takes 50.0 % of the program." in finding.text


@pytest.mark.parametrize(
    "extension",
    [
        ("extensions.ExponentialShift", 1, "iteration", 100),  # its training needs it
        ("extensions.PlotReport", 1, "epoch", 1, "trigger"),
        ("extensions.snapshot", 1, "epoch", 1),
        ("Own", 0, "", 0),
    ],
)
def test_what_cannot_run_less_often_is_told_nothing(extension):
    assert not advised(Extension("a", *extension))


def test_extensions_with_one_cure_are_one_finding_and_the_largest_is_first():
    plots = [Extension(name, "extensions.PlotReport", 1, "epoch", 20, "trigger") for name in "ab"]
    findings = advised(Extension("c", "extensions.Evaluator", 1, "epoch", 10), *plots, takes_s=2)
    assert [finding.text for finding in findings] == [
        "a and b take 40.0 % of the program.",
        "c takes 20.0 % of the program.",
    ]
    # A part of a program that no cure can shorten by 5 % is no finding.
    assert len(advised(Extension("c", "extensions.Evaluator", 1, "epoch", 10), takes_s=1)) == 1
    spent = Spent("evaluation", "c", S, 10), Spent("iterations", "", 29 * S, 10)
    assert not program_findings(Budget("t.py", "", "", "complete", 30 * S, spent))


def test_what_compression_costs_is_told_where_it_was_measured():
    snapshot = Extension("a", "extensions.snapshot", 1, "epoch", 4, "", True)
    (finding,) = advised(snapshot)
    assert finding.to_do == f"To measure what saving without compression brings, run: {TRY}"
    # Snapshots of 5 s take 2 s less without it, of 10.
    (finding,) = advised(snapshot, compression={"a": 0.4})
    assert finding.command == f"extensions.snapshot(savefun={NPZ})"
    assert "takes 40.0 % less (measured in memory)" in finding.advice
    assert finding.gain == pytest.approx(10 / 8)


def test_what_a_loop_of_its_own_does():
    for part, name, code in (
        ("evaluation", "", ""),
        ("snapshots", "save_npz", TRY),
        ("snapshots", "save_npz(compression=False)", ""),
    ):
        spent = Spent(part, name, 5 * S, 3), Spent("iterations", "", 5 * S, 10)
        (finding,) = program_findings(Budget("t.py", "", "", "complete", 10 * S, spent))
        assert (finding.command, finding.gain) == (code, pytest.approx(2.0))
