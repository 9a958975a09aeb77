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
    Recording,
    Settings,
)
from chainer_profile.report.pictures import trace
from tests.conftest import make_layers, make_recording, make_training
from tests.report.tracing import SAMPLES, Block, Trace, nested, read


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
