"""What a GPU is to be accepted by, as far as the stand-in shows it: no figure here is a GPU's."""

import json
from dataclasses import replace

import pytest

from benchmarks import gpu_acceptance, truth_gpu
from chainer_profile.cli.parsers import parser_of
from chainer_profile.record.recording import Recording
from models import REGISTRY
from tests.fakes import ROOT, process

pytestmark = pytest.mark.process

MEASURE = """
from pathlib import Path
from benchmarks.truth_gpu import measure
measure(0, 3).save(Path("recording.npz"))

import json
import chainer.links as L
import numpy as np
from benchmarks.overhead import added_time, agreement
from chainer_profile.measure.devices import move_to_gpu
from chainer_profile.measure.learner import learn_structure
from chainer_profile.measure.steps import ForwardStep

model = L.Linear(4, 4)
x, clock = move_to_gpu(model, np.ones((2, 4), np.float32), 0)
step = ForwardStep(model, (x,))
with step.configured():
    structure = learn_structure(step)
    _, added = added_time(step, structure, clock, 2)
    recording, theirs = agreement(step, structure, clock, 2)
found = {name: len(values) for name, values in added.items()}
print(json.dumps([found, recording.n_trials, recording.on_device, theirs.tolist()]))
"""


def missed(recording):
    return [figure.name for figure in truth_gpu.figures(recording) if not figure.holds]


def test_planted_kernels_are_found_with_the_table_of_costs(tmp_path, capsys):
    result = process(["-c", MEASURE], tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    planted = Recording.load(tmp_path / "recording.npz")
    added, n_trials, on_device, theirs = json.loads(result.stdout)
    assert added.keys() >= {"recorder", "TimerHook", "nothing"}
    assert set(added.values()) == {2}
    assert (n_trials, on_device) == (20, True)
    assert len(theirs) == 1
    assert theirs[0] > 0
    found = list(truth_gpu.figures(planted))
    judged = [figure for figure in found if "+/-" in figure.target]
    # Two ways of four lengths and two phases; one of them is not judged.
    assert len(judged) == 2 * 4 * 2 - 1
    assert {figure.value.split(", ")[1] for figure in judged} == {"+0.00 %"}
    assert truth_gpu.show(iter(found))
    assert "MISSED" not in capsys.readouterr().out
    # What is wrong is missed.
    rows = {(layer.path, layer.phase, layer.function): layer.index for layer in planted.layers}
    row = rows["/middle", "backward", "Planted"]
    longer, held, layers = planted.self_ns.copy(), planted.held_ns.copy(), list(planted.layers)
    longer[:, row] = longer[:, row] * 103 // 100  # of 50 us
    held[:, row] = held[:, row] * 103 // 100
    layers[row] = replace(layers[row], function="Other")
    for change, found in (
        ({"self_ns": longer}, "middle, backward, from event to event"),
        ({"held_ns": held}, "middle, backward, busy"),
        ({"layers": tuple(layers)}, "middle, backward"),
        ({"trial_ns": planted.trial_ns * 2}, "time on the GPU / wall time"),
    ):
        assert missed(replace(planted, **change)) == [found]


def test_every_case_is_a_command():
    for name, (program, *options) in gpu_acceptance.CASES.items():
        assert (ROOT / program).is_file()
        if program == "profile.py":
            args = parser_of("profile").parse_args([*options, "--gpu", "0", "--out", name])
            assert args.model in REGISTRY
