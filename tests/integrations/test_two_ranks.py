"""Two ranks of ChainerMN train on this machine, and each is profiled."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from chainer_profile.ranks.merging import merge
from chainer_profile.record.budget import ITERATIONS, read_budget
from chainer_profile.record.recording import Recording
from chainer_profile.runs.folder import read_ranks
from tests import needs
from tests.scripts import python

MPIEXEC = Path(sys.executable).with_name("mpiexec")
TCP = "--mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include lo"
COMMAND = [str(MPIEXEC), "-n", "2", "--allow-run-as-root", "--oversubscribe", *TCP.split()]

pytestmark = pytest.mark.process

if not MPIEXEC.exists():
    needs.missing("openmpi")


def on_two_ranks(folder, *arguments):
    """Run Python on two ranks in a folder; return their standard error."""
    done = python(*arguments, before=COMMAND, cwd=folder, env={"TMPDIR": str(folder)})
    assert done.returncode == 0, done.stderr
    return " ".join(done.stderr.split())


#: Bytes of each parameter of the predictor.
MOVED = {"first/W": 80, "first/b": 20, "norm/beta": 20, "norm/gamma": 20, "second/W": 60}
MOVED |= {"second/b": 12}


def test_trainer_on_two_ranks_is_profiled(tmp_path):
    on_two_ranks(tmp_path, str(Path(__file__).with_name("two_ranks.py")), str(tmp_path))
    arrived, left = [], []
    for number in (0, 1):
        recording = Recording.load(tmp_path / f"profile/rank-{number}/recording.npz")
        assert (recording.rank.number, recording.rank.size) == (number, 2)
        assert recording.iteration.tolist() == [*range(1, 10)]
        rows = [layer for layer in recording.layers if layer.phase == "communication"]
        moved = {row.path.removeprefix("/predictor/"): row.input_nbytes for row in rows}
        assert moved == MOVED
        # The first iteration sends parameters.
        values = {(row.function, row.dtype) for row in rows}
        assert values == {("Bcast", "float32"), ("Allreduce", "float32")}
        phases = list(dict.fromkeys(layer.phase for layer in recording.layers))
        assert phases == ["data", "forward", "backward", "communication", "update"]
        # Exact times are tested on a fake clock.
        inside = recording.self_ns.sum(axis=1) + recording.framework_ns.sum(axis=1)
        assert (recording.trial_ns >= inside).all()
        moves_ns = recording.self_ns[:, [row.index for row in rows]]
        np.testing.assert_array_equal(recording.left_ns - recording.arrived_ns, moves_ns)
        # All iterations except the first reduce gradients, and end before the next one begins.
        gradients = [row.function == "Allreduce" for row in rows]
        arrived.append(recording.arrived_ns[1:, gradients])
        left.append(recording.left_ns[1:, gradients])
        assert (recording.start_ns[1:, None] < arrived[-1]).all()
        assert (left[-1][:-1] < recording.start_ns[2:, None]).all()
    # No rank leaves a collective before the last rank has entered it.
    assert (np.min(left, axis=0) > np.max(arrived, axis=0)).all()
    # No attribute is left, and both ranks have the same weights.
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    assert first[:2] == [[[], [], [], []], "Intracomm"]
    assert second == first


def test_unedited_program_on_two_ranks_is_profiled(tmp_path):
    script = Path(__file__).with_name("two_ranks_loop.py")
    arguments = (
        "-m",
        "chainer_profile",
        "run",
        "--format",
        "none",
        "-o",
        "run",
        str(script),
        "0.02",
    )
    stderr = on_two_ranks(tmp_path, *arguments)
    # Only the first rank reports, and says how to merge all ranks.
    assert stderr.count(" took ") == 1
    assert "; to merge the ranks, run python -m chainer_profile report run" in stderr
    for number in (0, 1):
        assert read_budget(tmp_path / f"run/rank-{number}").total(ITERATIONS).count == 60
    recordings, problems, _ = read_ranks(tmp_path / "run")
    ranks = merge(recordings, problems)
    paths = [f"/predictor/{link}/{parameter}" for link in (0, 1) for parameter in "Wb"]
    rows = [ranks.layers[row] for row in ranks.collectives]
    # The first update sends parameters from rank 0, and all others reduce gradients.
    expected = [(function, path) for function in ("Bcast", "Allreduce") for path in paths]
    assert [(row.function, row.path) for row in rows] == expected
    is_allreduce = [row.function == "Allreduce" for row in rows]
    stays_ns = (ranks.waiting_ns + ranks.moving_ns)[:, ranks.iterations > 1]
    assert (stays_ns[:, :, is_allreduce] > 0).all()
    assert not stays_ns[:, :, np.logical_not(is_allreduce)].any()
    # On a busy machine, other layers may be slow, too.
    functions = [ranks.layers[row].function for row in ranks.computing]
    nap = {functions[each.layer]: each for each in ranks.judged.stragglers}["Nap"]
    assert nap.rank == 1
    assert nap.excess_s >= 0.02
