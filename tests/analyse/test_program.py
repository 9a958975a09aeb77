"""The tree of a program's time: what is in each part, exactly, and functions by samples."""

from dataclasses import replace

import numpy as np
import pytest

from chainer_profile.analyse.program import (
    BETWEEN_FUNCTIONS,
    BETWEEN_PHASES,
    NOT_BY_ROW,
    Part,
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


def tree(trials, *spent, sampled=()):
    budget = Budget("a.py", "", "", COMPLETE, sum(entry.ns for entry in spent), spent, {}, sampled)
    return program_parts(ProgramTime(budget, trials))


TRAINING = recording(
    "Net",
    *(
        ("data", "data", 40),
        ("data", "convert", 10),
        ("forward", "/a", 100),
        ("forward", "/b", 200),
    ),
    between=5,
    outside=30,
)
ITERATION_NS = 50 + 5 + 300 + 5 + 30


def test_iterations_with_functions_in_data_loading_and_beside_the_phases():
    sampled = (
        Sampled(ITERATIONS, "", LOADING, "a.py:1 get_example", 30, 3),
        Sampled(ITERATIONS, "", LOADING, "", 10, 1),
        Sampled(ITERATIONS, "", OTHER, "a.py:9 log", 20, 2),
        Sampled(ITERATIONS, "", NETWORK, "", 500, 50),
    )
    spent = Spent(ITERATIONS, "", 2 * ITERATION_NS + 8, 2)
    (part,) = tree({(ITERATIONS, ""): [TRAINING]}, spent, sampled=sampled)
    assert part == Part(
        ITERATIONS,
        2 * ITERATION_NS + 8,
        2,
        (
            Part(
                "forward",
                610,
                inner=(
                    Part("F", 400, 6, path="/b"),
                    Part("F", 200, 6, path="/a"),
                    Part(BETWEEN_FUNCTIONS, 10),
                ),
            ),
            Part(
                "data",
                110,
                inner=(
                    # Three of four samples while data was loaded.
                    Part("F", 80, 6, (Part("a.py:1 get_example", 60, sampled=True),), path="data"),
                    Part("F", 20, 6, path="convert"),
                    Part(BETWEEN_FUNCTIONS, 10),
                ),
            ),
            # What is around the trials is the program's own.
            Part(BETWEEN_PHASES, 68, inner=(Part("a.py:9 log", 68, sampled=True),)),
        ),
    )


def test_iterations_that_are_not_in_rows():
    (iterations,) = tree({(ITERATIONS, ""): [TRAINING]}, Spent(ITERATIONS, "", 2000, 5))
    assert Part("3 others, not timed by row", 2000 - 2 * ITERATION_NS, 3) in iterations.inner
    # Of a program that was killed the trials go on behind the last budget.
    (iterations,) = tree({(ITERATIONS, ""): [TRAINING]}, Spent(ITERATIONS, "", ITERATION_NS, 1))
    assert sum(part.ns for part in iterations.inner) == pytest.approx(ITERATION_NS)


def test_layers_and_functions_in_evaluation_and_extensions():
    network = recording("Net", ("forward", "/a", 100), between=20)
    trials = {(EVALUATION, "validation"): [network], (EXTENSIONS, "Bleu"): [network]}
    sampled = (
        Sampled(EXTENSIONS, "Bleu", OTHER, "a.py:5 bleu", 90, 9),
        Sampled(EXTENSIONS, "Bleu", NETWORK, "", 40, 4),
        Sampled(EXTENSIONS, "PlotReport", OTHER, "figure.py:7 savefig", 30, 3),
        Sampled(EXTENSIONS, "PlotReport", OTHER, "", 10, 1),
    )
    extensions, evaluation = tree(
        trials,
        *(Spent(EVALUATION, "validation", 300, 2), Spent(EXTENSIONS, "Bleu", 1240, 1)),
        *(Spent(EXTENSIONS, "PlotReport", 400, 2), Spent(PROFILER, "", 7)),
        sampled=sampled,
    )
    layer = Part("F", 200, 6, path="/a")
    between = Part(BETWEEN_FUNCTIONS, 40)
    # A part of one name is one line.
    assert evaluation == Part("evaluation: validation", 300, 2, (layer, between))
    assert extensions.inner == (
        Part("Bleu", 1240, 1, (Part("a.py:5 bleu", 1000, sampled=True), layer, between)),
        Part("PlotReport", 400, 2, (Part("figure.py:7 savefig", 300, sampled=True),)),
    )


def test_networks_that_were_not_measured_are_not_told_as_functions():
    network = recording("Net", ("forward", "/a", 100), between=20)
    budget = Budget(
        *("a.py", "", "", COMPLETE, 1240, (Spent(EXTENSIONS, "Bleu", 1240, 1),)),
        sampled=(
            Sampled(EXTENSIONS, "Bleu", OTHER, "a.py:5 bleu", 10, 1),
            Sampled(EXTENSIONS, "Bleu", NETWORK, "", 90, 9),
        ),
        unmeasured=(Spent(EXTENSIONS, "Bleu", 900, 7), Spent(EVALUATION, "", 1, 1)),
    )
    for trials, of_network_ns in (({(EXTENSIONS, "Bleu"): [network]}, 240), ({}, 0)):
        (extensions,) = program_parts(ProgramTime(budget, trials))
        function = Part("a.py:5 bleu", 340 - of_network_ns, sampled=True)
        assert {Part(NOT_BY_ROW, 900, 7), function} <= set(extensions.inner)
        assert sum(part.ns for part in extensions.inner) == 1240


def test_networks_of_one_part_have_their_names():
    generator, discriminator = (recording(name, ("forward", "/a", 100)) for name in ("Gen", "Dis"))
    (calls,) = tree({(CALLS, ""): [generator, discriminator, generator]}, Spent(CALLS, "", 600, 6))
    assert {(part.path, part.ns) for part in calls.inner if part.path} == {
        ("/Gen/a", 400),
        ("/Dis/a", 200),
    }


def test_imports_data_and_own_code():
    spent = (
        *(Spent(IMPORTS, "a", 10, 1), Spent(IMPORTS, "a > b", 30, 1), Spent(IMPORTS, "c", 5, 1)),
        *(Spent(DATA, "", 7), Spent(DATA, "get_mnist", 3, 1), Spent(REST, "", 100)),
    )
    sampled = (Sampled(REST, "", OTHER, "a.py:1 main", 1, 1),)
    own, imports, data = tree({}, *spent, sampled=sampled)
    assert own == Part(REST, 100, 0, (Part("a.py:1 main", 100, sampled=True),))
    assert imports.inner == (Part("a", 40, inner=(Part("b", 30),)), Part("c", 5))
    assert (data.ns, data.inner) == (10, (Part("get_mnist", 3, 1),))


def test_one_figure_for_one_iteration():
    budget = Budget("a.py", "", "", COMPLETE, 10**9, (Spent(ITERATIONS, "", 10**9, 4),))
    program = ProgramTime(budget, {(ITERATIONS, ""): [TRAINING]})
    assert mean_of_trials(program, TRAINING) == (0.25, 4)
    # Another recording is of other trials, and two trainings have no common one.
    assert mean_of_trials(program, replace(TRAINING)) is None
    both = ProgramTime(budget, {(ITERATIONS, ""): [TRAINING, replace(TRAINING)]})
    assert mean_of_trials(both, TRAINING) is None
