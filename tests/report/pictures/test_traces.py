"""Traces and stacks are well formed, and their totals are the recording's; cases: tests/goldens."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from benchmarks.ranks import training
from chainer_profile.analyse.summaries import summarise
from chainer_profile.basics.errors import UsageError
from chainer_profile.ranks.merging import merge
from chainer_profile.record.recording import Layer, LinkCalls, Recording, Settings
from chainer_profile.report.pictures import stacks, trace
from chainer_profile.report.pictures.ranks_trace import MOST_RANKS, render
from tests.conftest import make_layers, make_recording, make_training
from tests.ranks.test_merging import stays, two
from tests.report.devicing import make_device_training
from tests.report.documents import NAMES, merged_ranks
from tests.report.tracing import SAMPLES, Block, Trace, nested, read


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


def mean_ns(recording: Recording) -> int:
    """The mean trial in whole nanoseconds, half of one rounded up."""
    times = recording.self_ns.sum(axis=1) if recording.trial_ns is None else recording.trial_ns
    total, trials = sum(map(int, times)), recording.n_trials
    return total // trials + (2 * (total % trials) >= trials)


def check_stacks(recording: Recording) -> None:
    found = folded(recording)
    assert sum(found.values()) == mean_ns(recording)
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
    # What goes on below the layers is in tests/goldens.
    check_stacks(replace(recording, inside=None))
    assert len(SAMPLES) >= 5


@given(nested())
def test_any_recording(recording: Recording) -> None:
    check_trace(recording, 0)
    check_stacks(recording)


def deep(n_layers: int) -> Recording:
    """Every call is within the one before."""
    layers = tuple(
        replace(layer, parent=layer.index - 1 if layer.index else None, path="/a")
        for layer in make_layers(n_layers)
    )
    return make_recording(n_layers, n_trials=1, n_clean=0, layers=layers)


def test_any_size() -> None:
    for n_layers in (1, 2, 1100):
        recording = make_recording(n_layers, n_trials=3)
        check_trace(recording, 2)
        check_stacks(recording)
    check_trace(make_device_training(4), 1)
    check_stacks(make_device_training(4))
    check_stacks(deep(300))
    found = rendered(deep(3000))
    assert found.functions(1)[0].length == sum(map(self_ns, found.functions(1)))


def test_the_median_trial_and_a_chosen_one() -> None:
    recording = make_training(4)
    median = "median trial (trial 0 of 4, counted from 0)"
    chosen = "chosen trial (trial 3 of 4, counted from 0)"
    for trial, names in ((None, [median]), (0, [median]), (3, [median, chosen])):
        assert list(check_trace(recording, trial).processes.values()) == names
    for trial in (-1, 4, 10**20):
        with pytest.raises(UsageError, match=rf"^there is no trial {trial}: .* trials 0 to 3$"):
            trace.render(summarise(recording), trial)


def hostile() -> Iterator[tuple[str, Recording]]:
    names = ['<script>alert("x")</script>', "\u202egnp", "a\nb\0", "}{][\\", "\ud800", "é", "a;b"]
    for name in [*names, "a b 5", "=cmd", "{}\\\"'", "\u2028"]:
        first = Layer(0, f"/{name}", name, phase=name, dtype=name, node=name, covers=(0, 5))
        settings = Settings(model=name, command=name, max_seconds=float("inf"))
        layers, links = (first, Layer(1, "", "")), (LinkCalls(f"/{name}", name, 1, 0),)
        made = make_recording(2, n_trials=2, layers=layers, links=links, settings=settings)
        yield name, made


def test_names_are_data() -> None:
    for name, recording in hostile():
        found = rendered(recording)
        first, nameless = found.functions(1)
        assert first.name.isprintable()
        assert first.args["covers"] == [0, 5]
        assert found.other["model"] == found.other["settings"]["command"] == first.name
        assert found.other["settings"]["max_seconds"] is None
        assert first.name == name or not name.isprintable()
        assert nameless.name == "(no name)"
        assert len(folded(recording)) >= 2


def test_a_trial_shorter_than_its_layers_is_as_long_as_they_are() -> None:
    """In a damaged recording there is no time between the layers."""
    recording = make_recording(2, n_trials=1, n_clean=0)
    recording = replace(recording, trial_ns=recording.self_ns.sum(axis=1) - 10)
    [root] = rendered(recording).one(1, "trial")
    assert root.length == sum(folded(recording).values()) == recording.self_ns.sum()


# -- ranks


def test_every_rank_that_waited_has_its_arrow_and_every_call_its_length() -> None:
    ranks = merge(training(4, 30, 5, planted_ms={(2, 1): 10.0}))
    shown = read(render(ranks))
    chosen = ranks.iterations.tolist().index(shown.other["iteration"])
    assert len(shown.arrows) == int((ranks.waiting_ns[:, chosen] > 0).sum())
    first = [pair for pair in shown.arrows.values() if pair[1]["block"].args["order"] == 1]
    assert {begin["pid"] for begin, _ in first} == {3}
    for at in range(4):
        lengths = [block.length for block in shown.functions(at + 1)]
        assert lengths == ranks.self_ns[at, chosen, list(ranks.computing)].tolist()


def test_of_many_ranks_those_are_shown_that_the_others_waited_for() -> None:
    ranks = merge(training(MOST_RANKS + 6, 11, 4, planted_ms={(MOST_RANKS + 3, 0): 50.0}))
    shown = read(render(ranks))
    assert len(shown.processes) == MOST_RANKS
    assert f"rank {MOST_RANKS + 3}" in shown.processes.values()
    assert {int(begin["pid"]) for begin, _ in shown.arrows.values()} <= set(shown.processes)


def test_any_names_hosts_and_clocks() -> None:
    for names in ((), NAMES):
        shown = read(render(merged_ranks(names)))
        assert len(shown.processes) == 3
        assert all(name.isprintable() for name in shown.processes.values())


@given(stays())
def test_any_stays_make_a_trace(recordings: dict[str, Recording]) -> None:
    ranks = merge(recordings)
    # A rank's collectives follow one another.
    arrived = np.sort(ranks.arrived_ns, axis=2)
    gap = np.diff(arrived, axis=2, append=arrived[:, :, -1:])
    ranks = replace(
        ranks,
        arrived_ns=arrived,
        waiting_ns=np.minimum(ranks.waiting_ns, gap),
        moving_ns=np.maximum(0, np.minimum(ranks.moving_ns, gap - ranks.waiting_ns)),
    )
    read(render(ranks))


def test_without_arrivals_or_starts_there_are_the_calls() -> None:
    changes = {"arrived_ns": None, "left_ns": None, "start_ns": None}
    shown = read(render(merge(two(**changes))))
    assert not shown.arrows
    assert np.sum([len(shown.functions(pid)) for pid in (1, 2)]) == 8
