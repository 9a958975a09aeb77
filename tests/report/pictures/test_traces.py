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
        for before, after in itertools.pairwise(tops):
            assert before.end <= after.begin
            assert before.args["index"] < after.args["index"]
        [root] = found.one(pid, "trial")
        on_device = recording.on_device and not on_host
        assert root.length == (recording.span_ns if on_device else lengths(recording))[number]  # type: ignore[index]
        assert root.outer is None
        # Every function is within its link and its phase; phases follow each other.
        of_links, of_phases = found.tracks.get((pid, "links"), []), found.one(pid, "phase")
        held_in(functions, of_links, "path")
        held_in(tops, of_phases, "phase")
        assert all(block.args["calls_us"] * 1000 <= block.length for block in of_links)
        for before, after in itertools.pairwise(of_phases):
            assert before.end <= after.begin
        in_phases = sum(block.args["calls_us"] for block in of_phases)
        assert in_phases * 1000 == sum(call.length for call in tops)
        held_in(functions, [root])
    return found


def held_in(calls: list[Block], blocks: list[Block], by: str = "") -> None:
    for call in calls:
        holders = [block for block in blocks if not by or block.name == call.args[by]]
        assert any(block.begin <= call.begin <= call.end <= block.end for block in holders)


def folded(recording: Recording) -> dict[tuple[str, ...], int]:
    """Lines as flame graph programs read them: the last word is the number."""
    found: dict[tuple[str, ...], int] = {}
    text = stacks.render_folded(summarise(recording))
    assert text.endswith("\n")
    for line in text[:-1].split("\n"):
        frames, number = line.rsplit(" ", 1)
        assert number.isdecimal()
        assert not any(char.isspace() or not char.isprintable() for char in frames)
        stack = tuple(frames.split(";"))
        assert all(stack)
        assert stack not in found
        found[stack] = int(number)
    return found


def check_stacks(recording: Recording) -> None:
    found = folded(recording)
    # They add up to the mean trial in whole nanoseconds, half of one rounded up.
    total, trials = sum(map(int, lengths(recording))), recording.n_trials
    assert sum(found.values()) == total // trials + (2 * (total % trials) >= trials)
    wanted: Counter[str] = Counter()
    for layer, mean in zip(recording.layers, recording.self_ns.mean(axis=0), strict=True):
        wanted[layer.function] += mean
    spent: Counter[str] = Counter()
    for stack, ns in found.items():
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
