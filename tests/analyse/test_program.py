"""The tree of a program's time: exact times of its parts, and functions by samples."""

from dataclasses import replace

import numpy as np
import pytest

from chainer_profile.analyse.findings import NOTE, Finding
from chainer_profile.analyse.program import (
    ProgramTime,
    mean_of_trials,
    program_findings,
    program_parts,
    sampling_error_s,
    tips,
    trial_count,
    with_last_trials,
)
from chainer_profile.analyse.summaries import summarise
from chainer_profile.record.budget import RUNNING, Budget, Sampled, Spent, Trials
from chainer_profile.record.recording import COMPLETE, Layer, MemoryUse, Recording, Settings

ITERATIONS = "iterations", ""
BLEU = "extensions", "Bleu"


def recording(model, *rows, between=0, outside=0):
    """Two trials of rows ``phase path ns``, with time between functions and outside of phases."""
    cells = [row.split() for row in rows]
    layers = tuple(Layer(index, path, "F", phase) for index, (phase, path, _) in enumerate(cells))
    self_ns = np.array([[int(ns) for *_, ns in cells]] * 2)
    phases = tuple(dict.fromkeys(phase for phase, *_ in cells))
    return Recording(
        layers,
        self_ns,
        phases=phases,
        framework_ns=np.full((2, len(phases)), between),
        calls=np.full_like(self_ns, 3),
        trial_ns=self_ns.sum(axis=1) + len(phases) * between + outside,
        settings=Settings(model=model),
    )


def lines(parts, indent=""):
    """Lines of a tree, one per part: name, nanoseconds and count; ``~`` marks sampled parts."""
    for part in parts:
        count = f" x{part.count:g}" if part.count else ""
        about = "~" if part.sampled else ""
        yield f"{indent}{part.name}{part.path and ' at '}{part.path} {about}{part.ns:g}{count}"
        yield from lines(part.inner, f"{indent}  ")


def tree(trials, *spent, **more):
    budget = Budget("a.py", "", "", COMPLETE, sum(each.ns for each in spent), spent, **more)
    return list(lines(program_parts(ProgramTime(budget, trials))))


#: An iteration of 390 ns.
ROWS = "data data 40", "data convert 10", "forward /a 100", "forward /b 200"
TRAINING = recording("Net", *ROWS, between=5, outside=30)
FORWARD = recording("Net", "forward /a 100", between=20)


def test_functions_in_data_loading_and_between_phases_have_rows():
    """Time between trials, here 8 ns, counts as code of the program."""
    sampled = (
        Sampled(*ITERATIONS, "data", "a.py:1 get_example", 30, 3),
        Sampled(*ITERATIONS, "data", "", 10, 1),
        Sampled(*ITERATIONS, "other", "a.py:9 log", 20, 2),
        Sampled(*ITERATIONS, "network", "", 500, 50),
    )
    assert tree({ITERATIONS: [TRAINING]}, Spent(*ITERATIONS, 788, 2), sampled=sampled) == [
        "iterations 788 x2",
        "  forward 610",
        "    F at /b 400 x6",
        "    F at /a 200 x6",
        "    between functions 10",
        "  data 110",
        "    F at data 80 x6",
        "      a.py:1 get_example ~60",  # three of four samples during loading
        "    F at convert 20 x6",
        "    between functions 10",
        "  code between the phases 68",
        "    a.py:9 log ~68",
    ]


def test_iterations_not_timed_by_row_have_a_row():
    iterations = tree({ITERATIONS: [TRAINING]}, Spent(*ITERATIONS, 2000, 5))
    assert "  3 others, not timed by row 1220 x3" in iterations
    with_memory = replace(TRAINING, memory=MemoryUse((), (), 0, 0, 0, None))
    for n_trials, others in (
        (4, "2 others, for --memory"),
        (5, "3 others, not timed by row (2 for --memory)"),
    ):
        parts = tree({ITERATIONS: [with_memory]}, Spent(*ITERATIONS, 2000, n_trials))
        assert f"  {others} 1220 x{n_trials - 2}" in parts
    # A part may be shorter than its trials, by a few clock steps.
    iterations = tree({ITERATIONS: [TRAINING]}, Spent(*ITERATIONS, 390, 2))
    assert iterations[:2] == ["iterations 390 x2", "  forward 305"]


def started(recording, *start_ns):
    return replace(recording, start_ns=np.array(start_ns))


def test_trials_after_the_last_budget_of_a_killed_program_are_added():
    """The journal has two trials; the budget was written after the first of them."""
    training = started(TRAINING, 0, 1000)
    training = replace(training, trial_ns=np.array([390, 500]))
    others = Spent("imports", "", 100), Spent("profiler", "", 7)
    budget = Budget("a.py", "", "", RUNNING, 497, (Spent(*ITERATIONS, 390, 1), *others))
    program = with_last_trials(ProgramTime(budget, {ITERATIONS: [training]}))
    assert program.budget.spent == (Spent(*ITERATIONS, 890, 2), *others)
    assert program.budget.wall_ns == 997
    assert next(lines(program_parts(program))) == "iterations 890 x2"
    assert mean_of_trials(program, training) == (pytest.approx(445e-9), 2)
    assert trial_count(program, training) == training.n_trials
    # A budget with all trials, or with more trials than rows have, does not change.
    for count in (2, 3):
        spent = Spent(*ITERATIONS, 890, count), *others
        complete = ProgramTime(replace(budget, spent=spent, wall_ns=997), {ITERATIONS: [training]})
        assert with_last_trials(complete) == complete


def test_last_trials_of_several_networks_are_the_latest_ones():
    one, other = started(FORWARD, 0, 900), started(FORWARD, 200, 500)
    one = replace(one, trial_ns=np.array([120, 150]))
    calls = "calls of networks", ""
    budget = Budget("a.py", "", "", RUNNING, 360, (Spent(*calls, 360, 3),))
    program = with_last_trials(ProgramTime(budget, {calls: [one, other]}))
    assert program.budget.spent == (Spent(*calls, 360 + 150, 4),)


def test_rows_of_extensions_imports_and_own_code():
    sampled = (
        Sampled(*BLEU, "other", "a.py:5 bleu", 90, 9),
        Sampled(*BLEU, "network", "", 40, 4),
        Sampled("the script's own code", "", "other", "a.py:1 main", 1, 1),
    )
    spent = (
        *(Spent("evaluation", "validation", 300, 2), Spent(*BLEU, 1240, 1)),
        *(Spent("imports", "a", 10, 1), Spent("imports", "a > b", 30, 1)),
        *(
            Spent("imports", "c", 5, 1),
            Spent("profiler", "", 7),
            Spent("the script's own code", "", 100),
        ),
    )
    trials = {("evaluation", "validation"): [FORWARD], BLEU: [FORWARD]}
    network = ["F at /a 200 x6", "between functions 40"]
    assert tree(trials, *spent, sampled=sampled) == [
        *("extensions: Bleu 1240 x1", "  a.py:5 bleu ~1000", *(f"  {line}" for line in network)),
        *("evaluation: validation 300 x2", *(f"  {line}" for line in network)),
        *("the script's own code 100", "  a.py:1 main ~100"),
        *("imports 45", "  a 40", "    b 30", "  c 5"),
    ]


def test_unmeasured_networks_are_not_reported_as_functions():
    sampled = (
        Sampled(*BLEU, "other", "a.py:5 bleu", 10, 1),
        Sampled(*BLEU, "network", "", 90, 9),
    )
    unmeasured = Spent(*BLEU, 900, 7), Spent("evaluation", "", 1, 1)
    for trials, function_ns in (({BLEU: [FORWARD]}, 100), ({}, 340)):
        parts = tree(trials, Spent(*BLEU, 1240, 1), sampled=sampled, unmeasured=unmeasured)
        assert "  other networks, not timed by row 900 x7" in parts
        assert f"  a.py:5 bleu ~{function_ns}" in parts


@pytest.mark.parametrize(("samples", "error_s"), [(100, 0.2), (25, 0.4)])
def test_fewer_samples_a_second_have_a_larger_error(samples, error_s):
    functions = [Sampled(*BLEU, "other", name, 10**9, samples) for name in ("a.py:5 a", "")]
    budget = Budget("a.py", "", "", COMPLETE, 2 * 10**9, (), sampled=tuple(functions))
    assert sampling_error_s(budget) == pytest.approx(error_s)


def test_several_networks_have_names_in_their_paths():
    generator, discriminator = (recording(name, "forward /a 100") for name in ("Gen", "Dis"))
    runs = [generator, discriminator, generator]
    calls = tree({("calls of networks", ""): runs}, Spent("calls of networks", "", 600, 6))
    assert calls[1:3] == ["  F at /Gen/a 400 x12", "  F at /Dis/a 200 x6"]


def test_iteration_has_one_mean_in_program_and_report():
    budget = Budget("a.py", "", "", COMPLETE, 10**9, (Spent(*ITERATIONS, 1560, 4),))
    program = ProgramTime(budget, {ITERATIONS: [TRAINING]})
    assert mean_of_trials(program, TRAINING) == (pytest.approx(390e-9), 4)
    assert trial_count(program, TRAINING) == 4
    # A mean belongs to one recording, and two trainings have no common mean.
    assert mean_of_trials(program, replace(TRAINING)) is None
    both = ProgramTime(budget, {ITERATIONS: [TRAINING, replace(TRAINING)]})
    assert mean_of_trials(both, TRAINING) is None
    assert trial_count(both, TRAINING) == 4
    assert trial_count(program, replace(TRAINING)) == 0


@pytest.mark.parametrize("ns", [4 * 389, 4 * 391])
def test_mean_outside_of_the_recorded_trials_is_not_used(ns):
    """Other iterations, such as the memory pass, were slower or faster than all recorded ones."""
    budget = Budget("a.py", "", "", COMPLETE, ns, (Spent(*ITERATIONS, ns, 4),))
    assert mean_of_trials(ProgramTime(budget, {ITERATIONS: [TRAINING]}), TRAINING) is None


def loading_findings(moved_ns, cores, function="SerialIterator"):
    """Findings about data loading in a program of 1,000 ns that loads for 400 ns."""
    layers = Layer(0, "data", function, "data"), Layer(1, "/a", "F")
    self_ns = np.array([[200, 200]] * 2)
    run = Recording(
        layers,
        self_ns,
        trial_ns=self_ns.sum(axis=1),
        settings=Settings(phase="train"),
    )
    spent = Spent(*ITERATIONS, 800, 2), Spent("imports", "", 200)
    trials = (Trials(*ITERATIONS, ".", 32, 320, moved_ns, cores),)
    budget = Budget("a.py", "", "", COMPLETE, 1000, spent, trials=trials)
    return [
        finding
        for finding in program_findings(budget, summarise(run))
        if "MultiprocessIterator" in finding.to_do
    ]


@pytest.mark.parametrize(
    ("moved_ns", "cores", "gain"),
    [
        (100, 2, 1 / (1 - 0.2)),  # 100 of 200 ns in each of two iterations
        (50, 8, 1 / (1 - 0.3)),
        (180, 2, None),  # gains less than 5 %
        (200, 2, None),
        (300, 2, None),
        (0, 2, None),  # not measured
        (50, 1.0, None),  # no free core
        (50, 0.1, None),
        (50, 1.2, 1.2),
    ],
)
def test_other_processes_are_to_load_only_what_takes_longer_to_load_than_to_move(
    moved_ns, cores, gain
):
    findings = loading_findings(moved_ns, cores)
    assert [finding.gain for finding in findings] == ([pytest.approx(gain)] if gain else [])
    assert not loading_findings(moved_ns, cores, "MultiprocessIterator")


def test_screen_has_three_tips_of_which_those_with_known_gains_come_first():
    gains = [Finding("a", NOTE, "", gain=gain) for gain in (4, 3, 2, 1.5)]
    unknown = [Finding("b", NOTE, ""), Finding("c", NOTE, "")]
    assert tips([*gains, *unknown]) == gains[:3]
    assert tips([*unknown, *gains[:1]]) == [*gains[:1], *unknown[:2]]
    assert tips(unknown) == unknown[:3]
    assert not tips([])
