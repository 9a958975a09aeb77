"""What older versions of this program wrote still loads: files that they left, not made here.

``stored/`` holds a run and what a killed run left, by the first version of the format and by the
second, of the network in ``net.py``: ``profile.py -m net.py:Net --input-shape 3x8x8 -n 20 -w 2``.
"""

import shutil
from pathlib import Path

import pytest

from chainer_profile.analyse.summaries import summarise
from chainer_profile.record.journal import recover
from chainer_profile.record.recording import Recording
from chainer_profile.runs.folder import JOURNAL, RECORDING, load_run
from tests.recordings import assert_same
from tests.report.reading import layers_csv

STORED = Path(__file__).parent / "stored"
FORWARD = ["Convolution2DFunction", "FixedBatchNormalization", "ReLU", "Reshape", "LinearFunction"]
#: By file: profiled trials, functions, and the sum of all layers' times.
EXPECTED = {
    "version1.npz": (20, FORWARD, 32_648_131),
    "version1.journal": (49, FORWARD, 111_895_886),
    "version2.journal": (25, FORWARD, 7_733_128),
    "version2-train.npz": (
        20,
        [
            *("Convolution2DFunction", "BatchNormalization", "ReLU", "Reshape", "LinearFunction"),
            *("SoftmaxCrossEntropy", "cleargrads", "SoftmaxCrossEntropy", "LinearFunction"),
            *("Reshape", "ReLU", "BatchNormalization", "Convolution2DFunction", "WeightDecay"),
            *("MomentumSGD", "MomentumSGD", "MomentumSGD"),
        ],
        159_363_317,
    ),
}


def read(name):
    path = STORED / name
    return recover(path) if path.suffix == ".journal" else Recording.load(path)


@pytest.mark.parametrize("name", EXPECTED)
def test_it_loads_and_is_written_anew_without_loss(name, tmp_path):
    recording = read(name)
    trials, functions, total_ns = EXPECTED[name]
    assert recording.n_trials == trials
    assert [layer.function for layer in recording.layers] == functions
    assert int(recording.self_ns.sum()) == total_ns
    assert (len(recording.clean_ns), len(recording.warmup_ns)) == (5, 2)
    assert recording.clean_cpu_ns is None
    assert recording.trial_ns is not None
    assert (recording.trial_ns >= recording.self_ns.sum(axis=1)).all()
    assert recording.settings.input_shape == (1, 3, 8, 8)
    assert (recording.on_device, recording.environment.gpu) == (False, None)
    summary = summarise(recording)
    assert summary.layers["share"].sum() == pytest.approx(1)
    assert len(layers_csv(summary).splitlines()) == len(functions) + 1
    recording.save(tmp_path / "new.npz")
    assert_same(Recording.load(tmp_path / "new.npz"), recording)


@pytest.mark.parametrize("name", [name for name in EXPECTED if name.endswith(".journal")])
def test_what_was_killed_is_made_whole(name, tmp_path):
    shutil.copy(STORED / name, tmp_path / JOURNAL)
    assert load_run(tmp_path).n_trials == EXPECTED[name][0]
    assert (tmp_path / RECORDING).exists()
    assert not (tmp_path / JOURNAL).exists()
