"""Findings about extensions: the argument that shortens each, and the time that it saves."""

import ast
from types import SimpleNamespace

import chainer
import pytest
from chainer.training import extensions

from chainer_profile.analyse.program import program_findings
from chainer_profile.record.budget import Budget, Extension, Spent

S = 10**9
WHERE = {"extensions.Evaluator": "evaluation", "extensions.snapshot": "snapshots"}


def findings_of(*spent, **more):
    wall_ns = sum(each.ns for each in spent)
    return program_findings(Budget("t.py", "", "", "complete", wall_ns, spent, **more))


def advised(*works, takes_s=5, **more):
    """Findings of a program of 10 s, in which each extension takes ``takes_s``."""
    spent = [
        Spent(WHERE.get(each.kind, "extensions"), each.name, takes_s * S, each.times)
        for each in works
    ]
    rest = Spent("iterations", "", (10 - takes_s * len(spent)) * S, 100)
    return findings_of(*spent, rest, extensions=works, **more)


#: Extension: kind, period, unit, number of calls, argument name; saved share; code in the advice.
ADVICE = """
extensions.PlotReport 2 epoch 9 trigger; 8/9; PlotReport(..., trigger=(10, 'epoch'))
extensions.LogReport 1 epoch 3 trigger; 2/3; LogReport(..., trigger=(2, 'epoch'))
extensions.VariableStatisticsPlot 1 epoch 10 trigger; 9/10; trigger=(10, 'iteration'))
extensions.Evaluator 1 epoch 10; 9/10; extend(extensions.Evaluator(...), trigger=(10, 'epoch'))
extensions.Evaluator 1 epoch 1; 9/10; SubDataset(test, 0, max(1, len(test) // 10))
Own 0.5 epoch 10; 9/10; extend(Own(...), trigger=(5, 'epoch'))
extensions.ExponentialShift 1 iteration 100; 0/1;
extensions.PlotReport 1 epoch 1 trigger; 0/1;
"""


@pytest.mark.parametrize("line", ADVICE.strip().splitlines())
def test_finding_names_the_argument_that_saves_time_in_an_extension(line):
    """No advice about shifts, which training needs, and about extensions that run once."""
    extension, saved, code = (part.strip() for part in line.split(";"))
    kind, period, unit, times, *argument = extension.split()
    n_saved, n_total = map(int, saved.split("/"))
    advice = advised(Extension("a", kind, float(period), unit, int(times), *argument))
    assert len(advice) == bool(code)
    for finding in advice:
        assert code in finding.command
        ast.parse(finding.command)
        assert finding.gain == pytest.approx(1 / (1 - 0.5 * n_saved / n_total))
        assert "takes 50.0 % of the program." in finding.text


@pytest.mark.parametrize(
    ("times", "enough"), [(3, "once is"), (10, "once is"), (20, "2 times are")]
)
def test_advice_counts_how_often_is_enough(times, enough):
    (finding,) = advised(Extension("a", "extensions.PlotReport", 1, "epoch", times))
    assert finding.advice == f"This happens {times} times. If {enough} enough, write."


@pytest.mark.parametrize(("examples", "part"), [(2, 1), (9, 1), (19, 1), (40, 4)])
def test_a_part_of_the_examples_has_at_least_one(examples, part):
    """It used to be empty for fewer than ten examples, which ended the program."""
    evaluator = Extension("a", "extensions.Evaluator", 1, "epoch", 1, examples=examples)
    (finding,) = advised(evaluator)
    program = {"chainer": chainer, "test": list(range(examples))}
    exec(finding.command, program)
    assert len(program["test"]) == part
    assert finding.gain == pytest.approx(1 / (0.5 + 0.5 * part / examples))


def test_an_evaluation_on_one_example_has_no_advice():
    assert not advised(Extension("a", "extensions.Evaluator", 1, "epoch", 1, examples=1))


def test_the_longest_time_of_an_extension_remains():
    """Half of 4 plots used to count as half of their time, although the first one takes most."""
    plot = Extension("a", "extensions.PlotReport", 1, "epoch", 4, "trigger")
    rest = Spent("iterations", "", 5 * S, 100)
    (finding,) = findings_of(Spent("extensions", "a", 5 * S, 4, 2 * S), rest, extensions=[plot])
    assert finding.gain == pytest.approx(10 / 8)


def test_work_before_a_training_remains():
    plot = Extension("a", "extensions.PlotReport", 1, "epoch", 5, "trigger", before=1)
    (finding,) = advised(plot)
    assert finding.advice == "This happens 5 times. If 3 times are enough, write."
    assert finding.gain == pytest.approx(10 / 8)


def test_extensions_with_the_same_advice_share_a_finding():
    plots = [Extension(name, "extensions.PlotReport", 1, "epoch", 20, "trigger") for name in "ab"]
    evaluator = Extension("c", "extensions.Evaluator", 1, "epoch", 10)
    assert [finding.text for finding in advised(evaluator, *plots, takes_s=2)] == [
        "a and b take 40.0 % of the program.",
        "c takes 20.0 % of the program.",
    ]
    # Without a change that saves 5 % of the program, there are no findings.
    assert not findings_of(Spent("evaluation", "c", S, 10), Spent("iterations", "", 29 * S, 10))


@pytest.mark.parametrize(
    "extension",
    [
        Extension("a", "extensions.snapshot", 1, "epoch", 4, "", True),
        Extension("save_npz", "extensions.snapshot", 1, "epoch", 4),
    ],
)
def test_advice_to_save_without_compression_has_no_number(extension):
    (finding,) = advised(extension)
    assert "compression=False" in finding.command
    ast.parse(finding.command)
    assert "extensions." not in finding.command  # snapshot or snapshot_object
    assert not any(character.isdigit() for character in finding.to_do)
    assert finding.gain is None
    spent = Spent("snapshots", extension.name, S, 4), Spent("iterations", "", 29 * S, 10)
    assert not findings_of(*spent, extensions=[extension])


def test_the_argument_that_saves_without_compression_needs_no_import_but_chainer(tmp_path):
    (finding,) = advised(Extension("a", "extensions.snapshot", 1, "epoch", 4, "", True))
    link = chainer.links.Linear(40, 40, initialW=1)
    sizes = []
    for argument in ("", finding.command):
        program = {"chainer": chainer, "extensions": extensions, "link": link}
        save = eval(f"extensions.snapshot_object(link, 'model', {argument})", program)
        save(SimpleNamespace(out=str(tmp_path)))
        sizes.append((tmp_path / "model").stat().st_size)
    assert sizes[0] < 1600 * 4 < sizes[1]


@pytest.mark.parametrize(
    ("name", "count", "gain"),
    [("save_hdf5", 4, 1.6), ("save_hdf5", 1, None), ("load_npz", 4, None), ("load_hdf5", 1, None)],
)
def test_saving_less_often_is_advised_only_for_repeated_saves(name, count, gain):
    spent = Spent("snapshots", name, 5 * S, count), Spent("iterations", "", 5 * S, 10)
    findings = findings_of(*spent)
    assert [finding.gain for finding in findings] == ([pytest.approx(gain)] if gain else [])
    assert all(finding.to_do == "Save less often." for finding in findings)


@pytest.mark.parametrize("part", ["test-mode calls", "calls of networks", "the script's own code"])
def test_evaluating_less_often_is_advised_only_for_evaluators(part):
    spent = Spent(part, "evaluate", 5 * S, 10), Spent("iterations", "", 5 * S, 10)
    assert not findings_of(*spent)
