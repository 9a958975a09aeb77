"""The trace is well formed, and its totals are the recording's."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from chainer_profile.analyse.summaries import summarise
from chainer_profile.basics.errors import UsageError
from chainer_profile.record.recording import (
    Layer,
    LinkCalls,
    MemoryUse,
    PhaseMemory,
    Recording,
    Settings,
)
from chainer_profile.report.pictures import trace
from tests.conftest import make_layers, make_recording, make_training
from tests.report.devicing import DEVICE_BOUND, make_device_recording, make_device_training
from tests.report.tracing import SAMPLES, Block, Trace, nested, read

US = 1000
TRACKS = ["trial and phases", "links", "functions"]


def rendered(recording: Recording, trial: int | None = None) -> Trace:
    return read(trace.render(summarise(recording), trial))


def lengths(recording: Recording) -> np.ndarray:
    whole = recording.trial_ns
    return recording.self_ns.sum(axis=1) if whole is None else whole


def self_ns(block: Block) -> int:
    return int(block.args["self_us"] * 1000)


def check(recording: Recording, trial: int | None = None) -> Trace:
    """Every total of a trace against the recording's."""
    found = rendered(recording, trial)
    assert found.other["trials"] == recording.n_trials
    shown = found.other["shown"]
    assert [entry["process"] for entry in shown] == list(found.processes)
    middle = shown[0]["trial"]
    off = np.abs(lengths(recording) - np.median(lengths(recording)))
    assert off[middle] == off.min()
    wanted = [middle] if trial in (None, middle) else [middle, trial]
    sides = 2 if recording.on_device else 1
    assert [entry["trial"] for entry in shown] == [one for one in wanted for _ in range(sides)]
    for place, entry in enumerate(shown):
        number, pid = entry["trial"], entry["process"]
        on_host = recording.on_device and place % 2 == 0
        own = (recording.host_ns if on_host else recording.self_ns)[number]  # type: ignore[index]
        functions = found.functions(pid)
        assert sorted(block.args["index"] for block in functions) == list(range(len(own)))
        for block in functions:
            layer = recording.layers[block.args["index"]]
            assert self_ns(block) == own[block.args["index"]]
            assert block.length == self_ns(block) + sum(inner.length for inner in block.inner)
            assert block.name == layer.function
            inside = block.outer.args["index"] if block.outer else None
            known = layer.parent is not None and 0 <= layer.parent < layer.index
            assert inside == (layer.parent if known else None)
        tops = [block for block in functions if block.outer is None]
        assert sum(block.length for block in tops) == own.sum()
        assert [block.args["index"] for block in tops] == sorted(
            block.args["index"] for block in tops
        )
        for before, after in itertools.pairwise(tops):
            assert before.end <= after.begin
        [root] = found.one(pid, "trial")
        on_device = recording.on_device and not on_host
        assert root.length == (recording.span_ns if on_device else lengths(recording))[number]  # type: ignore[index]
        assert root.outer is None
        assert all(root.begin <= block.begin <= block.end <= root.end for block in functions)
        links(found, pid)
        phases(found, pid)
    return found


def links(found: Trace, pid: int) -> None:
    """Every function is within its link, and links within those above them."""
    blocks = found.tracks.get((pid, "links"), [])
    for block in blocks:
        if block.outer is not None and block.name.startswith(block.outer.name.rstrip("/") + "/"):
            assert block.outer.begin <= block.begin <= block.end <= block.outer.end
        assert block.args["calls_us"] * 1000 <= block.length
    for call in found.functions(pid):
        path = call.args["path"]
        holders = [block for block in blocks if block.name == path]
        assert any(block.begin <= call.begin <= call.end <= block.end for block in holders)


def phases(found: Trace, pid: int) -> None:
    """The phases follow each other, and hold their functions."""
    blocks = found.one(pid, "phase")
    for before, after in itertools.pairwise(blocks):
        assert before.end <= after.begin
    tops = [call for call in found.functions(pid) if call.outer is None]
    assert sum(block.args["calls_us"] for block in blocks) * 1000 == sum(c.length for c in tops)
    for call in tops:
        holders = [block for block in blocks if block.name == call.args["phase"]]
        assert any(block.begin <= call.begin <= call.end <= block.end for block in holders)


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.parent.name)
def test_the_samples(path: Path) -> None:
    recording = Recording.load(path)
    check(recording, recording.n_trials - 1)
    assert len(SAMPLES) >= 5


@settings(max_examples=20)
@given(nested())
def test_any_recording(recording: Recording) -> None:
    check(recording, 0)


@pytest.mark.parametrize("n_layers", [1, 2, 1100])
def test_any_size(n_layers: int) -> None:
    check(make_recording(n_layers, n_trials=3), 2)


def test_a_forward_pass_by_hand() -> None:
    layers = (
        Layer(0, "/a/conv", "Convolution2DFunction", flops=12, input_shapes=((1, 2), (3,))),
        Layer(1, "/a", "ReLU", calls=2),
        Layer(2, "/b", "Outer"),
        Layer(3, "/b", "Inner", parent=2),
    )
    recording = make_recording(
        layers=layers,
        self_ns=np.array([[100, 20, 10, 7]], np.int64),
        trial_ns=np.array([145], np.int64),
        start_ns=np.array([0], np.int64),
        n_trials=1,
        n_layers=4,
        links=(LinkCalls("/a", "Block", 3, 5),),
    )
    found = rendered(recording)
    # 8 ns lie before, between and behind 3 calls: 2 each. 10 ns of Outer around Inner: 5 and 5.
    assert [(b.name, b.begin, b.end) for b in found.functions(1)] == [
        ("Convolution2DFunction", 2, 102),
        ("ReLU", 104, 124),
        ("Outer", 126, 143),
        ("Inner", 131, 138),
    ]
    assert [(b.name, b.begin, b.end) for b in found.one(1, "link")] == [
        ("/", 2, 143),
        ("/a", 2, 124),
        ("/a/conv", 2, 102),
        ("/b", 126, 143),
    ]
    assert [(b.name, b.begin, b.end) for b in found.tracks[1, TRACKS[0]]] == [
        ("chain", 0, 145),
        ("forward", 0, 145),
    ]
    link = found.one(1, "link")[1]
    assert {**link.args, "calls_us": float(link.args["calls_us"])} == {
        "calls_us": 0.12, "class": "Block", "calls_in_a_trial": 3, "own_parameters": 5
    }  # fmt: skip
    convolution, relu, _, inner = (block.args for block in found.functions(1))
    assert (convolution["flops"], convolution["input_shapes"]) == (12, "1x2 3")
    assert float(convolution["share"]) == pytest.approx(100 / 137, abs=1e-6)
    assert "calls" not in convolution
    assert relu["calls"] == "2 calls laid as one"
    assert inner["within"] == "2_Outer"


def test_a_training_step_by_hand() -> None:
    recording = make_training(2)
    found = check(recording, 1)
    pid = found.pid("trial 0 ")
    blocks = found.one(pid, "phase")
    assert [block.name for block in blocks] == ["forward", "backward", "update"]
    scale = 1.02 * US
    # Rows and framework of the phases; 50 us are spread around them.
    assert [block.length for block in blocks] == [1300 * scale, 2050 * scale, 300 * scale]
    assert blocks[0].begin == 12_750
    [accumulated] = [b for b in found.functions(pid) if b.name == "gradient_accumulation"]
    assert "goes_back_through" not in accumulated.args
    backward = [b for b in found.functions(pid) if b.args["phase"] == "backward"]
    assert backward[1].args["goes_back_through"] == "8_SoftmaxCrossEntropy"
    assert {b.name for b in found.one(pid, "link") if b.outer is None} == {
        "/", "loss", "cleargrads", "optimizer"
    }  # fmt: skip


def test_the_median_trial_and_a_chosen_one() -> None:
    recording = make_training(4)
    assert len(check(recording).processes) == 1
    assert len(check(recording, 0).processes) == 1
    found = check(recording, 3)
    assert list(found.processes.values()) == [
        "median trial (trial 0 of 4, counted from 0)",
        "chosen trial (trial 3 of 4, counted from 0)",
    ]


@pytest.mark.parametrize("trial", [-1, 4, 10**20])
def test_a_trial_that_is_not_there(trial: int) -> None:
    with pytest.raises(UsageError, match=rf"^there is no trial {trial}: .* trials 0 to 3$"):
        trace.render(summarise(make_training(4)), trial)


def test_host_and_device() -> None:
    found = check(make_device_recording(DEVICE_BOUND, wait_us=26_300, n_trials=3), 2)
    host, device = found.pid("median trial (trial 0 of 3, counted from 0): host"), 2
    assert len(found.processes) == 4
    # 30,000 us of layers, 30 between them, 50 behind: the end is the trial's.
    [root] = found.one(device, "trial")
    assert (root.begin, root.end) == ((30_200 - 30_080) * US, 30_200 * US)
    layers = found.functions(device)
    assert layers[0].begin == (120 + 5) * US
    assert [b.begin - a.end for a, b in itertools.pairwise(layers)] == [5 * US] * 5
    [wait] = found.one(host, "wait")
    assert (wait.begin, wait.end, wait.args) == (3_900 * US, 30_200 * US, {})
    # The first call begins behind its layer as laid out: no arrow may go back in time.
    begins = [[block.begin for block in found.functions(pid)] for pid in (host, device)]
    forwards = [a <= b for a, b in zip(*begins, strict=True)]
    assert len(found.arrows) == 2 * sum(forwards)
    assert sum(forwards) >= 5
    for begin, end in found.arrows.values():
        assert begin["block"].args["index"] == end["block"].args["index"]


def test_a_training_step_on_a_device() -> None:
    found = check(make_device_training(4), 1)
    for pid in found.processes:
        assert [b.name for b in found.one(pid, "phase")] == ["forward", "backward", "update"]


def test_what_is_measured_is_said() -> None:
    host = rendered(make_recording(3)).other
    device = rendered(make_device_recording()).other
    assert any("spread evenly" in line for line in host["places"])
    assert any("gaps between them are measured" in line for line in device["places"])
    assert not any("arrow" in line or "emory" in line for line in host["places"])
    assert not rendered(make_recording(3)).counters
    assert any("arrow" in line for line in device["places"])
    assert host["settings"]["model"] == "chain"
    assert host["environment"]["processor"] == "A processor"
    assert device["environment"]["gpu"]["name"] == "NVIDIA H200"


def used(layers: int, **changes: object) -> MemoryUse:
    values = {
        "peak_nbytes": tuple(100 * (place + 1) for place in range(layers)),
        "retained_nbytes": tuple(10 * (place + 1) for place in range(layers)),
        "parameter_nbytes": 5,
        "input_nbytes": 6,
        "high_water_nbytes": 330,
        "high_water_layer": 2,
    }
    return MemoryUse(**(values | changes))  # type: ignore[arg-type]


def test_the_memory_pass_is_a_counter() -> None:
    use = used(3, phases=(PhaseMemory("forward", 330, -4),))
    layers = tuple(
        replace(layer, parent=0 if layer.index == 1 else None) for layer in make_layers(3)
    )
    found = rendered(make_recording(3, n_trials=5, memory=use, layers=layers), 1)
    allocated = found.counters[1, trace.ALLOCATED]
    peaks = found.counters[1, trace.PEAK]
    assert {pid for pid, _ in found.counters} == {1}
    # Layer 1 lies within layer 0.
    assert [value for _, value in allocated] == [0, 20, 30, 60, -4]
    assert [value for _, value in peaks] == [0, 100, 200, 100, 30, 330, 60, -4]
    first, second, third = found.functions(1)
    assert [at for at, _ in allocated[1:4]] == [second.end, first.end, third.end]
    assert any("memory pass" in line for line in found.other["places"])


@pytest.mark.parametrize(
    "name", ['<script>alert("x")</script>', "\u202egnp", "a\nb\0", "}{][\\", "\ud800", "é"]
)
def test_names_are_data(name: str) -> None:
    layers = (Layer(0, f"/{name}", name, phase=name, dtype=name, node=name, covers=(0, 5)),)
    recording = make_recording(
        1,
        n_trials=2,
        layers=layers,
        links=(LinkCalls(f"/{name}", name, 1, 0),),
        settings=Settings(model=name, command=name, max_seconds=float("inf")),
    )
    found = rendered(recording)
    shown = found.functions(1)[0].name
    assert shown.isprintable()
    assert found.functions(1)[0].args["covers"] == [0, 5]
    assert found.other["model"] == found.other["settings"]["command"] == shown
    assert found.other["settings"]["max_seconds"] is None
    if name.isprintable():
        assert shown == name
    nameless = rendered(make_recording(1, n_trials=2, layers=(Layer(0, "", ""),)))
    assert nameless.functions(1)[0].name == "(no name)"


def test_every_trial_is_as_long_in_a_damaged_recording() -> None:
    """A trial shorter than its layers has no time between them, and is as long as they are."""
    recording = make_recording(2, n_trials=1, n_clean=0)
    recording = replace(recording, trial_ns=recording.self_ns.sum(axis=1) - 10)
    found = rendered(recording)
    [root] = found.one(1, "trial")
    assert root.length == recording.self_ns.sum()


def test_deep_nesting() -> None:
    layers = tuple(
        replace(layer, parent=layer.index - 1 if layer.index else None, path="/a")
        for layer in make_layers(3000)
    )
    found = rendered(make_recording(3000, n_trials=1, n_clean=0, layers=layers))
    assert found.functions(1)[0].length == sum(map(self_ns, found.functions(1)))
