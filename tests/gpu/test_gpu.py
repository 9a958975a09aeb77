"""``--gpu 0`` from end to end, on a fake CuPy without a GPU."""

import csv

import pytest

from chainer_profile import summarise
from chainer_profile.measure.clock import HOST_CLOCK
from chainer_profile.measure.machine import Device, save_limits
from chainer_profile.record.recording import Environment, Recording
from chainer_profile.runs.write import write_reports
from tests.command import stand_in
from tests.fakes import ROOT, process, profile

pytestmark = pytest.mark.process

NETS = """
import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np


class Small(chainer.Chain):
    def __init__(self, n_in=8, n_out=4):
        super().__init__()
        with self.init_scope():
            self.one = L.Linear(n_in, 16)
            self.two = L.Linear(16, n_out)

    def forward(self, x):
        return self.two(F.relu(self.one(x)))


class Constant(Small):
    scale = np.ones(8, np.float32)

    def forward(self, x):
        return super().forward(x * self.scale)


class Images(Small):
    def __init__(self):
        super().__init__(3 * 32 * 32, 10)
"""
SMALL = ["--model", "nets.py:Small", "--input-shape", "8", "-b", "3"]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "nets.py").write_text(NETS)
    return tmp_path


def output(result):
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def recorded(folder):
    """Load the recording of a run, and check that its device times are possible."""
    recording = Recording.load(folder / "run" / "recording.npz")
    tail = recording.span_ns - recording.self_ns.sum(axis=1) - recording.gap_ns.sum(axis=1)
    assert recording.on_device
    assert (tail >= 0).all()
    assert (recording.launch_ns <= recording.trial_ns).all()
    assert (recording.span_ns <= recording.trial_ns).all()
    return recording


@pytest.mark.smoke
def test_forward_pass_on_a_gpu(folder):
    assert "launch" in output(profile(*SMALL, "--full", cwd=folder, reports=True))
    recording, path = recorded(folder), folder / "run" / "report.md"
    functions = [layer.function for layer in recording.layers]
    assert functions == ["LinearFunction", "ReLU", "LinearFunction"]
    assert recording.settings.device == "gpu:0"
    gpu = recording.environment.gpu
    assert (gpu.number, gpu.cudnn, recording.environment.cupy) == (0, "", "14.2.0")
    assert (len(recording.clean_ns), recording.held_ns.shape[1]) == (5, 3)
    memory = recording.memory
    assert memory.pool_total_nbytes >= memory.pool_used_nbytes >= memory.parameter_nbytes > 0
    # Blocks of the pool are multiples of 512 bytes.
    assert not any(peak % 512 for peak in (*memory.peak_nbytes, memory.high_water_nbytes))
    report = path.read_text()
    assert "## On the GPU" in report
    assert "CuPy's memory pool held" in report
    path.unlink()
    write_reports(folder / "run", summarise(recording), only=["report.md", "layers.png"])
    assert path.read_text() == report
    *layers, framework = csv.DictReader((folder / "run" / "layers.csv").open())
    assert all(float(row["host_ms"]) > 0 and float(row["busy_ms"]) > 0 for row in layers)
    assert framework["function"] == "framework"


def test_training_step_on_a_gpu(folder):
    options = ("--phase", "train", "--dtype", "mixed16", "--device", "@cupy:1", "-q")
    output(profile(*SMALL, *options, cwd=folder, FAKE_CUPY_DEVICES=2))
    recording = recorded(folder)
    # The device was given by Chainer's name.
    assert (recording.settings.device, recording.settings.dtype) == ("gpu:1", "mixed16")
    assert recording.phases == ("update", "forward", "backward")
    assert {layer.phase for layer in recording.layers} == {"forward", "backward", "update"}
    # Framework time on the device is known by phase, and is between layers.
    assert (recording.framework_ns >= 0).all()
    write_reports(folder / "run", summarise(recording), only=["report.md", "layers.png"])
    assert "## On the GPU" in (folder / "run" / "report.md").read_text()


def test_resnet20_has_the_same_layers_as_on_the_cpu(folder):
    output(profile("-q", cwd=folder))
    on_gpu = recorded(folder)
    assert len(on_gpu.layers) == 66
    on_cpu = Recording.load(ROOT / "reports" / "samples" / "resnet20-cpu-b1" / "recording.npz")
    assert [(a.path, a.function, a.output_shapes, a.macs) for a in on_gpu.layers] == [
        (a.path, a.function, a.output_shapes, a.macs) for a in on_cpu.layers
    ]


@pytest.mark.parametrize(
    ("options", "env", "message"),
    [
        (
            ["--model", "nets.py:Constant"],
            {},
            "; an array of the network was left on the host: make it a parameter, or register it",
        ),
        (
            ["-b", "100000"],
            {"FAKE_CUPY_MEMORY": 5_000_000},
            "the GPU's memory is full with a batch of 100,000 (",
        ),
        ([], {"FAKE_CUPY_DEVICES": -1}, "--gpu 0: CuPy 14.2.0 finds no NVIDIA driver; leave out"),
    ],
)
def test_bad_input_is_refused_in_one_line(folder, options, env, message):
    result = profile(*SMALL, *options, cwd=folder, **env)
    assert result.returncode == 1
    assert result.stderr.startswith("profile.py: error: ")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_api_profiles_a_network_on_a_gpu_and_refuses_mixed_devices(folder):
    script = """
import chainer_profile, numpy as np, cupy
from nets import Small
model, x = Small(), np.zeros((2, 8), np.float32)
model.to_device("@cupy:0")
recording = chainer_profile.profile(model, cupy.asarray(x), trials=3, warmups=0)
print(recording.settings.device, recording.on_device, len(recording.layers))
for array in (x, cupy.asarray(x)):
    try:
        chainer_profile.profile(model, array, trials=3)
    except chainer_profile.ProfileError as error:
        print(error)
    model.two.to_cpu()
"""
    accepted, on_host, mixed = output(process(["-c", script], folder)).splitlines()
    assert accepted == "gpu:0 True 3"
    assert on_host.endswith("; the input is on the host: send it to the network's device")
    assert mixed.startswith("the network is on cpu and gpu:0: move all of it to one device")


def test_train_command_profiles_on_a_gpu(folder, monkeypatch):
    # Use saved limits, because benchmarks would never end on a fake clock.
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    gpu = Device("gpu:0", None, HOST_CLOCK, 0, (), "Fake GPU 0")
    limits = stand_in(Environment(cupy="14.2.0"), gpu)
    save_limits(limits)
    options = "--gpu 0 --dataset synthetic:320 --epoch 1 -b 64 -q --out trained"
    options += " --profile --model nets.py:Images"
    result = process([str(ROOT / "train.py"), *options.split()], folder)
    assert result.returncode == 0, result.stderr
    recording = Recording.load(folder / "trained" / "profile" / "recording.npz")
    assert (recording.settings.device, recording.on_device) == ("gpu:0", True)
    assert {layer.phase for layer in recording.layers} >= {"data", "forward", "backward", "update"}
    assert recording.limits == limits
