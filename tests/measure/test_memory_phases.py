"""Memory by phase: bytes that are known by hand, and what files say of them."""

from __future__ import annotations

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest

from chainer_profile.measure.learner import learn_structure
from chainer_profile.measure.memory import measure_memory
from chainer_profile.measure.steps import make_step
from chainer_profile.record.recording import MemoryUse, PhaseMemory, Recording
from tests.conftest import make_recording
from tests.measure.test_memory import MB, about, by_phase, measure, ones
from tests.nets import net
from tests.recordings import refusal, rewrite


class Kept(chainer.Chain):
    """Keeps its output, as Chainer's Classifier keeps its loss: 2 MB of activations."""

    def __init__(self):
        super().__init__()
        self.y = None
        with self.init_scope():
            self.W = chainer.Parameter(ones(1, MB // 4))

    def forward(self, x):
        self.y = None
        self.y = F.tanh(F.relu(x + self.W))
        return self.y


class TestPhases:
    def test_a_training_step(self):
        model = net(lambda self, x: F.tanh(F.relu(self.a(x))), a=L.Linear(500, 500))
        _, use = measure(model, ones(500, 500), phase="train", loss=F.sum)
        assert [part.phase for part in use.phases] == ["forward", "backward", "update"]
        phases = by_phase(use)
        # The outputs of ReLU and Tanh; that of Linear goes before Tanh's is there.
        assert phases["forward"].retained_nbytes == pytest.approx(2 * MB, abs=30_000)
        # Older NumPys take a buffer for the sum.
        most = 30_000 + 4 * np.getbufsize()
        assert phases["forward"].high_nbytes == pytest.approx(2 * MB, abs=most)
        # cleargrads frees 1 MB, and the gradients of W are allocated anew.
        assert phases["backward"].retained_nbytes == pytest.approx(0, abs=30_000)
        assert phases["backward"].high_nbytes == use.high_water_nbytes
        assert phases["update"].retained_nbytes <= -2 * MB + 30_000  # the graph is freed in it
        assert phases["update"].high_nbytes < use.high_water_nbytes

    def test_a_single_phase_is_the_whole_trial(self):
        def forward(self, x):
            np.empty(5 * MB, np.uint8)
            return F.relu(x)

        _, use = measure(net(forward), ones(1, MB // 4))
        assert use.high_water_layer is None
        (part,) = use.phases
        assert (part.phase, part.high_nbytes) == ("forward", use.high_water_nbytes)
        assert part.high_nbytes == about(5 * MB)

    def test_outside_of_the_phases_is_none_of_them(self):
        step = make_step("forward-backward", net(lambda self, x: F.relu(x)), (ones(1, MB // 4),))

        def outside():
            kept.append(np.empty(7 * MB, np.uint8))
            type(step).__call__(step)

        kept = []
        with step.configured():
            structure = learn_structure(step)
            outside.timed, outside.roots, outside.inputs = step.timed, step.roots, step.inputs
            use = measure_memory(outside, structure)
        # ReLU's output, and what softmax keeps; they are freed after the phases.
        retained = [part.retained_nbytes for part in use.phases]
        assert sum(retained) == pytest.approx(2 * MB, abs=30_000)
        # What was there meanwhile is in the phases' high water.
        assert all(part.high_nbytes >= 9 * MB for part in use.phases)

    def test_what_an_earlier_forward_has_left_is_not_kept_for_backward_again(self):
        _, use = measure(Kept(), ones(1, MB // 4), phase="train", loss=F.sum)
        assert use.kept_for_backward_nbytes == pytest.approx(2 * MB, abs=30_000)
        # It was there when the trial began.
        assert by_phase(use)["forward"].retained_nbytes == pytest.approx(0, abs=30_000)


class TestFiles:
    USE = MemoryUse(
        peak_nbytes=(10, 20),
        retained_nbytes=(1, -2),
        parameter_nbytes=3,
        input_nbytes=4,
        high_water_nbytes=30,
        high_water_layer=1,
        kept_for_backward_nbytes=5,
        phases=(PhaseMemory("forward", 30, -1), PhaseMemory("backward", -5, 0)),
    )

    def saved(self, tmp_path):
        path = tmp_path / "recording.npz"
        make_recording(n_layers=2, memory=self.USE).save(path)
        return path

    def test_the_phases_come_back(self, tmp_path):
        assert Recording.load(self.saved(tmp_path)).memory == self.USE

    def test_an_older_recording_has_none(self, tmp_path):
        path = self.saved(tmp_path)
        rewrite(path, lambda meta: meta["memory"].pop("phases") and None)
        loaded = Recording.load(path).memory
        assert loaded.phases == ()
        assert loaded.peak_nbytes == self.USE.peak_nbytes

    @pytest.mark.parametrize("phases", [["forward"], [{"phase": "forward"}], 3])
    def test_damaged_phases_are_refused(self, tmp_path, phases):
        path = self.saved(tmp_path)
        rewrite(path, lambda meta: meta["memory"].update(phases=phases))
        assert refusal(path).startswith("damaged recording")
