"""The tree of a program's time: what is in each part, exactly, and functions by samples."""

from dataclasses import replace

import numpy as np

from chainer_profile.analyse.program import (
    ProgramTime,
    mean_of_trials,
    program_parts,
)
from chainer_profile.record.budget import (
    CALLS,
    DATA,
    EVALUATION,
    EXTENSIONS,
    IMPORTS,
    ITERATIONS,
    LOADING,
    NETWORK,
    OTHER,
    PROFILER,
    REST,
    Budget,
    Sampled,
    Spent,
)
from chainer_profile.record.recording import COMPLETE, Layer, Recording, Settings


def recording(model, *rows, between=0, outside=0, n=2):
    """So many trials of rows ``(phase, path, ns)``, with what is between them in each phase."""
    layers = tuple(Layer(at, path, "F", phase) for at, (phase, path, _) in enumerate(rows))
    self_ns = np.array([[ns for *_, ns in rows]] * n, np.int64)
    phases = tuple(dict.fromkeys(phase for phase, *_ in rows))
    framework_ns = np.full((n, len(phases)), between, np.int64)
    trial_ns = self_ns.sum(axis=1) + framework_ns.sum(axis=1) + outside
    calls = np.full_like(self_ns, 3)
    settings = Settings(model=model)
    return Recording(
        *(layers, self_ns, phases, framework_ns, calls), trial_ns=trial_ns, settings=settings
    )


def lines(parts, indent=""):
    """A tree as a line for each part: its name, nanoseconds and count; ``~`` is by samples."""
    for part in parts:
        count = f" x{part.count:g}" if part.count else ""
        about = "~" if part.sampled else ""
        yield f"{indent}{part.name}{part.path and ' at '}{part.path} {about}{part.ns:g}{count}"
        yield from lines(part.inner, f"{indent}  ")


def tree(trials, *spent, **more):
    budget = Budget("a.py", "", "", COMPLETE, sum(entry.ns for entry in spent), spent, **more)
    return list(lines(program_parts(ProgramTime(budget, trials))))


DATA_ROWS = ("data", "data", 40), ("data", "convert", 10)
FORWARD_ROWS = ("forward", "/a", 100), ("forward", "/b", 200)
TRAINING = recording("Net", *DATA_ROWS, *FORWARD_ROWS, between=5, outside=30)
ITERATION_NS = 50 + 5 + 300 + 5 + 30
NETWORK_RUN = recording("Net", ("forward", "/a", 100), between=20)


def test_iterations_with_functions_in_data_loading_and_beside_the_phases():
    """What is around the trials is the program's own: here 8 ns."""
    sampled = (
        Sampled(ITERATIONS, "", LOADING, "a.py:1 get_example", 30, 3),
        Sampled(ITERATIONS, "", LOADING, "", 10, 1),
        Sampled(ITERATIONS, "", OTHER, "a.py:9 log", 20, 2),
        Sampled(ITERATIONS, "", NETWORK, "", 500, 50),
    )
    spent = Spent(ITERATIONS, "", 2 * ITERATION_NS + 8, 2)
    assert tree({(ITERATIONS, ""): [TRAINING]}, spent, sampled=sampled) == [
        "iterations 788 x2",
        "  forward 610",
        "    F at /b 400 x6",
        "    F at /a 200 x6",
        "    between functions 10",
        "  data 110",
        "    F at data 80 x6",
        "      a.py:1 get_example ~60",  # three of four samples while data was loaded
        "    F at convert 20 x6",
        "    between functions 10",
        "  code between the phases 68",
        "    a.py:9 log ~68",
    ]


def test_iterations_that_are_not_in_rows():
    iterations = tree({(ITERATIONS, ""): [TRAINING]}, Spent(ITERATIONS, "", 2000, 5))
    assert "  3 others, not timed by row 1220 x3" in iterations
    # Of a program that was killed the trials go on behind the last budget.
    iterations = tree({(ITERATIONS, ""): [TRAINING]}, Spent(ITERATIONS, "", ITERATION_NS, 1))
    assert iterations[:2] == ["iterations 390 x1", "  forward 305"]


def test_layers_and_functions_in_evaluation_and_extensions():
    trials = {(EVALUATION, "validation"): [NETWORK_RUN], (EXTENSIONS, "Bleu"): [NETWORK_RUN]}
    sampled = (
        Sampled(EXTENSIONS, "Bleu", OTHER, "a.py:5 bleu", 90, 9),
        Sampled(EXTENSIONS, "Bleu", NETWORK, "", 40, 4),
        Sampled(EXTENSIONS, "PlotReport", OTHER, "figure.py:7 savefig", 30, 3),
        Sampled(EXTENSIONS, "PlotReport", OTHER, "", 10, 1),
    )
    spent = (
        *(Spent(EVALUATION, "validation", 300, 2), Spent(EXTENSIONS, "Bleu", 1240, 1)),
        *(Spent(EXTENSIONS, "PlotReport", 400, 2), Spent(PROFILER, "", 7)),
    )
    assert tree(trials, *spent, sampled=sampled) == [
        "extensions 1640",
        "  Bleu 1240 x1",
        "    a.py:5 bleu ~1000",
        "    F at /a 200 x6",
        "    between functions 40",
        "  PlotReport 400 x2",
        "    figure.py:7 savefig ~300",
        "evaluation: validation 300 x2",  # a part of one name is one line
        "  F at /a 200 x6",
        "  between functions 40",
    ]


def test_networks_that_were_not_measured_are_not_told_as_functions():
    sampled = (
        Sampled(EXTENSIONS, "Bleu", OTHER, "a.py:5 bleu", 10, 1),
        Sampled(EXTENSIONS, "Bleu", NETWORK, "", 90, 9),
    )
    unmeasured = Spent(EXTENSIONS, "Bleu", 900, 7), Spent(EVALUATION, "", 1, 1)
    for trials, function_ns in (({(EXTENSIONS, "Bleu"): [NETWORK_RUN]}, 100), ({}, 340)):
        spent = Spent(EXTENSIONS, "Bleu", 1240, 1)
        extensions = tree(trials, spent, sampled=sampled, unmeasured=unmeasured)
        assert "  other networks, not timed by row 900 x7" in extensions
        assert f"  a.py:5 bleu ~{function_ns}" in extensions


def test_networks_of_one_part_have_their_names():
    generator, discriminator = (recording(name, ("forward", "/a", 100)) for name in ("Gen", "Dis"))
    runs = [generator, discriminator, generator]
    calls = tree({(CALLS, ""): runs}, Spent(CALLS, "", 600, 6))
    assert calls[1:3] == ["  F at /Gen/a 400 x12", "  F at /Dis/a 200 x6"]


def test_imports_data_and_own_code():
    spent = (
        *(Spent(IMPORTS, "a", 10, 1), Spent(IMPORTS, "a > b", 30, 1), Spent(IMPORTS, "c", 5, 1)),
        *(Spent(DATA, "", 7), Spent(DATA, "get_mnist", 3, 1), Spent(REST, "", 100)),
    )
    assert tree({}, *spent, sampled=(Sampled(REST, "", OTHER, "a.py:1 main", 1, 1),)) == [
        "the script's own code 100",
        "  a.py:1 main ~100",
        *("imports 45", "  a 40", "    b 30", "  c 5"),
        *("data 10", "  get_mnist 3 x1"),
    ]


def test_one_figure_for_one_iteration():
    budget = Budget("a.py", "", "", COMPLETE, 10**9, (Spent(ITERATIONS, "", 10**9, 4),))
    program = ProgramTime(budget, {(ITERATIONS, ""): [TRAINING]})
    assert mean_of_trials(program, TRAINING) == (0.25, 4)
    # Another recording is of other trials, and two trainings have no common one.
    assert mean_of_trials(program, replace(TRAINING)) is None
    both = ProgramTime(budget, {(ITERATIONS, ""): [TRAINING, replace(TRAINING)]})
    assert mean_of_trials(both, TRAINING) is None
