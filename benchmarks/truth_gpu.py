"""Test the times of a GPU with kernels of known length in some layers.

    python -m benchmarks.truth_gpu [--gpu 0] [--trials 100]

A planted function launches one kernel in its forward and one in its backward. The kernel waits on
the GPU's clock for a given time. A function with a time of 0 measures the launch and end of a
kernel, which are subtracted. The exit code is 1 if a figure misses its target.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import chainer_profile

# ruff: isort: split
import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np

from chainer_profile.analyse.device_use import device_use, layer_device
from chainer_profile.basics.describe import NS
from chainer_profile.measure.clock import DeviceQueue
from chainer_profile.measure.devices import move_to_gpu
from chainer_profile.record.recording import Recording
from chainer_profile.report.text import environment_lines, gpu_rows

#: Microseconds in forward and in backward. After the first function the host is ahead of the GPU,
#: so no layer's time contains waits. The last one measures the constant time of a kernel.
PLANTED_US = {
    "ahead": (5000, 5000),
    "short": (50, 200),
    "middle": (1000, 50),
    "long": (200, 5000),
    "nothing": (0, 0),
}
WITHIN, WHOLE_WITHIN = 0.02, 0.01


class Figure(NamedTuple):
    """A measured figure and its target."""

    name: str
    value: str
    target: str
    holds: bool


class Planted(chainer.FunctionNode):
    """An identity function that keeps the GPU busy for a given time."""

    def __init__(self, queue: DeviceQueue, lengths_us: tuple[int, int]) -> None:
        super().__init__()
        self._queue = queue
        self._lengths_us = lengths_us

    def forward(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        self._queue.hold(self._lengths_us[0] * 1000)
        return inputs

    def backward(self, indexes: tuple[int, ...], grads: tuple[Any, ...]) -> tuple[Any, ...]:
        self._queue.hold(self._lengths_us[1] * 1000)
        return grads


class Plant(chainer.Chain):
    """A layer followed by a planted function."""

    def __init__(self, lengths_us: tuple[int, int]) -> None:
        super().__init__()
        self.queue: DeviceQueue | None = None
        self._lengths_us = lengths_us
        with self.init_scope():
            self.fc = L.Linear(16, 16)

    def forward(self, x: Any) -> Any:
        assert self.queue is not None
        (y,) = Planted(self.queue, self._lengths_us).apply((F.relu(self.fc(x)),))
        return y


class Network(chainer.Chain):
    """A sequence of plants."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            for name, lengths_us in PLANTED_US.items():
                setattr(self, name, Plant(lengths_us))

    def forward(self, x: Any) -> Any:
        for name in PLANTED_US:
            x = self[name](x)
        return x


def measure(gpu: int, trials: int) -> Recording:
    model = Network()
    x, clock = move_to_gpu(model, np.ones((8, 16), np.float32), gpu)
    for plant in model.children():
        plant.queue = clock.device
    return chainer_profile.profile(
        model, x, phase="forward-backward", trials=trials, warmups=10, memory=False
    )


def figures(recording: Recording) -> Iterator[Figure]:
    """Compare a recording of this network with the planted times."""
    rows = {
        (layer.path.strip("/"), layer.phase): layer.index
        for layer in recording.layers
        if layer.function == "Planted"
    }
    ways = {
        "from event to event": np.median(recording.self_ns, axis=0) * NS,
        "busy": layer_device(recording)["busy_s"],
    }
    for index, phase in enumerate(("forward", "backward")):
        for name, lengths_us in PLANTED_US.items():
            row, length_s = rows.get((name, phase)), lengths_us[index] * 1e-6
            if row is None:
                yield Figure(f"{name}, {phase}", "has no row", "has one", False)
                continue
            for way, times_s in ways.items():
                floor_s = times_s[rows["nothing", phase]]
                label = f"{name}, {phase}, {way}"
                if not length_s:
                    yield Figure(label, f"{floor_s * 1e6:.2f} us", "", True)
                    continue
                # The first layer of all waits for the host.
                judged = way != "from event to event" or (name, phase) != ("ahead", "forward")
                error = (times_s[row] - floor_s) / length_s - 1
                value = f"{times_s[row] * 1e6:.2f} us, {error * 100:+.2f} %"
                target = f"{lengths_us[index]} us +/- {WITHIN * 100:.0f} %" if judged else ""
                yield Figure(label, value, target, not judged or abs(error) <= WITHIN)
    yield from _sums(recording)


def _sums(recording: Recording) -> Iterator[Figure]:
    """Check that the separately measured parts of a trial add up."""
    use = device_use(recording)
    assert use is not None
    all_s = sum(map(sum, PLANTED_US.values())) * 1e-6
    for name, part, whole in (
        ("layers and gaps / time on the GPU", use.layers_s + use.gaps_s, use.span_s),
        ("time on the GPU / wall time", use.span_s, use.trial_s),
        ("busy layers / time on the GPU, held", use.busy_s or 0.0, use.held_span_s or 1.0),
    ):
        holds = -WHOLE_WITHIN <= part / whole - 1 <= 0.001
        yield Figure(name, f"{part / whole * 100:.2f} %", "99 to 100 %", holds)
    share = all_s / use.span_s
    yield Figure("planted / time on the GPU", f"{share * 100:.2f} %", "<= 100 %", share <= 1.0)
    launched = use.launch_s / use.trial_s
    yield Figure("launching / wall time", f"{launched * 100:.2f} %", "<= 50 %", launched <= 0.5)


def show(figures: Iterator[Figure]) -> bool:
    """Print figures as rows; return whether all targets are met."""
    good = True
    for name, value, target, holds in figures:
        print(f"| {name:44} | {value:34} | {target:14} | {'' if holds else 'MISSED':6} |")
        good = good and holds
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", type=int, default=0)
    parser.add_argument("--trials", type=int, default=100)
    args = parser.parse_args()
    recording = measure(args.gpu, args.trials)
    print(*map(": ".join, gpu_rows(recording)), *environment_lines(recording.environment), sep="\n")
    return int(not show(figures(recording)))


if __name__ == "__main__":
    sys.exit(main())
