"""Traces and stacks are well formed, and their totals are the recording's."""

import itertools
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from chainer_profile.analyse.summaries import summarise
from chainer_profile.basics.errors import UsageError
from chainer_profile.record.recording import Layer, LinkCalls, Recording, Settings
from chainer_profile.report.pictures import stacks, trace
from tests.conftest import make_layers, make_recording, make_training
from tests.report.documents import NAMES
from tests.report.tracing import SAMPLES, Block, Trace, nested, read
from tests.report.working import make_device_training


def rendered(recording: Recording, trial: int | None = None) -> Trace:
    return read(trace.render(summarise(recording), trial))


def lengths(recording: Recording) -> np.ndarray:
    whole = recording.trial_ns
    return recording.self_ns.sum(axis=1) if whole is None else whole


def self_ns(block: Block) -> int:
    return int(block.args["self_us"] * 1000)


def check_trace(recording: Recording, trial: int | None = None) -> Trace:
    """Every total of a trace against the recording's."""
    shown = rendered(recording, trial)
    entries = shown.other["shown"]
    assert [entry["process"] for entry in entries] == list(shown.processes)
    middle = entries[0]["trial"]
    off = np.abs(lengths(recording) - np.median(lengths(recording)))
    assert off[middle] == off.min()
    wanted = [middle] if trial in (None, middle) else [middle, trial]
    sides = 2 if recording.on_device else 1
    assert [entry["trial"] for entry in entries] == np.repeat(wanted, sides).tolist()
    for place, entry in enumerate(entries):
        number, pid = entry["trial"], entry["process"]
        on_host = recording.on_device and place % 2 == 0
        own_ns = recording.host_ns if on_host else recording.self_ns
        walls_ns = recording.span_ns if recording.on_device and not on_host else lengths(recording)
        assert own_ns is not None
        assert walls_ns is not None
        own = own_ns[number]
        functions = shown.functions(pid)
        assert sorted(block.args["index"] for block in functions) == list(range(len(own)))
        for block in functions:
            layer = recording.layers[block.args["index"]]
            assert block.name == layer.function
            assert self_ns(block) == own[layer.index]
            assert block.length == self_ns(block) + sum(inner.length for inner in block.inner)
            inside = block.outer.args["index"] if block.outer else None
            has_parent = layer.parent is not None and 0 <= layer.parent < layer.index
            assert inside == (layer.parent if has_parent else None)
        tops = [block for block in functions if block.outer is None]
        assert sum(block.length for block in tops) == own.sum()
        of_phases = shown.one(pid, "phase")
        for before, after in (*itertools.pairwise(tops), *itertools.pairwise(of_phases)):
            assert before.end <= after.begin
        [root] = shown.one(pid, "trial")
        assert root.length == walls_ns[number]
        # Every function is within its link and its phase.
        held_in(functions, shown.tracks.get((pid, "links"), []), "path")
        held_in(tops, of_phases, "phase")
        held_in(functions, [root])
        in_phases = sum(block.args["calls_us"] for block in of_phases)
        assert in_phases * 1000 == sum(call.length for call in tops)
    return shown


def held_in(calls: list[Block], blocks: list[Block], by: str = "") -> None:
    for call in calls:
        holders = [block for block in blocks if not by or block.name == call.args[by]]
        assert any(block.begin <= call.begin <= call.end <= block.end for block in holders)


def folded(recording: Recording) -> dict[tuple[str, ...], int]:
    """Lines as flame graph programs read them: the last word is the number."""
    lines = stacks.render_folded(summarise(recording)).splitlines()
    pairs = [line.rsplit(" ", 1) for line in lines]
    numbers = {tuple(frames.split(";")): int(number) for frames, number in pairs}
    assert len(numbers) == len(lines)
    assert all(frame and frame.isprintable() and " " not in frame for s in numbers for frame in s)
    return numbers


def check_stacks(recording: Recording) -> None:
    shown = folded(recording)
    # They add up to the mean trial in whole nanoseconds, half of one rounded up.
    total, trials = sum(map(int, lengths(recording))), recording.n_trials
    assert sum(shown.values()) == total // trials + (2 * (total % trials) >= trials)
    wanted: Counter[str] = Counter()
    for layer, mean in zip(recording.layers, recording.self_ns.mean(axis=0), strict=True):
        wanted[layer.function] += mean
    spent: Counter[str] = Counter()
    for stack, ns in shown.items():
        spent[stack[-1]] += ns
    for name, mean in wanted.items():
        assert spent[name] == pytest.approx(mean, abs=len(recording.layers))


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.parent.name)
def test_the_samples(path: Path) -> None:
    recording = Recording.load(path)
    check_trace(recording, recording.n_trials - 1)
    check_stacks(replace(recording, inside=None))


@given(nested())
def test_any_recording(recording: Recording) -> None:
    check_trace(recording, 0)
    check_stacks(recording)


def test_any_size() -> None:
    sizes = [make_recording(n_layers, n_trials=3) for n_layers in (1, 1100)]
    for recording in (*sizes, make_device_training(4)):
        check_trace(recording, 2)
        check_stacks(recording)
    # Every call is within the one before.
    rows = zip(make_layers(3000), (None, *range(2999)), strict=True)
    layers = tuple(replace(layer, parent=parent, path="/a") for layer, parent in rows)
    deep = rendered(make_recording(3000, n_trials=1, n_clean=0, layers=layers))
    assert deep.functions(1)[0].length == sum(map(self_ns, deep.functions(1)))
    # In a damaged recording, whose trial is shorter than its layers, nothing is between these.
    recording = make_recording(2, n_trials=1, n_clean=0)
    recording = replace(recording, trial_ns=recording.self_ns.sum(axis=1) - 10)
    [root] = rendered(recording).one(1, "trial")
    assert root.length == sum(folded(recording).values()) == recording.self_ns.sum()


def test_the_median_trial_and_a_chosen_one() -> None:
    recording = make_training(4)
    median = "median trial (trial 0 of 4, counted from 0)"
    chosen = "chosen trial (trial 3 of 4, counted from 0)"
    for trial, names in ((None, [median]), (0, [median]), (3, [median, chosen])):
        assert list(check_trace(recording, trial).processes.values()) == names
    for trial in (-1, 4, 10**20):
        with pytest.raises(UsageError, match=rf"^there is no trial {trial}: .* trials 0 to 3$"):
            trace.render(summarise(recording), trial)


def test_names_are_data() -> None:
    for name in NAMES:
        first = Layer(0, f"/{name}", name, phase=name)
        settings = Settings(model=name)
        layers, links = (first, Layer(1, "", "")), (LinkCalls(f"/{name}", name, 1, 0),)
        recording = make_recording(2, n_trials=2, layers=layers, links=links, settings=settings)
        shown, nameless = rendered(recording).functions(1)
        assert shown.name.isprintable()
        assert shown.name == name or not name.isprintable()
        assert nameless.name == "(no name)"
        assert len(folded(recording)) >= 2
