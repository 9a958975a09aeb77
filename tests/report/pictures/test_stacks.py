"""Stacks for flame graphs add up to the recording's trials."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings

from chainer_profile.analyse.summaries import summarise
from chainer_profile.record.recording import Layer, Recording, Settings
from chainer_profile.report.pictures import stacks
from tests.conftest import make_layers, make_recording
from tests.report.devicing import make_device_training
from tests.report.tracing import SAMPLES, nested


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


def check(recording: Recording) -> None:
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
    # Those that go on below the layers are held by tests/report/test_inside.py.
    check(replace(Recording.load(path), inside=None))


@settings(max_examples=20)
@given(nested())
def test_any_recording(recording: Recording) -> None:
    check(recording)


@pytest.mark.parametrize("n_layers", [1, 2, 1100])
def test_any_size(n_layers: int) -> None:
    check(make_recording(n_layers, n_trials=3))


def test_on_a_device() -> None:
    check(make_device_training(4))


@pytest.mark.parametrize(
    "name", ["a;b", "a b 5", "a\nb", "<script>", "=cmd", "\u202egnp", "\ud800", "{}\\\"'", "\u2028"]
)
def test_names_are_data(name: str) -> None:
    layers = (Layer(0, f"/{name}", name, phase=name), Layer(1, "", ""))
    recording = make_recording(2, n_trials=2, layers=layers, settings=Settings(model=name))
    check_names = folded(recording)
    assert len(check_names) >= 2


def test_a_trial_shorter_than_its_layers() -> None:
    """In a damaged recording there is no time between the layers."""
    recording = make_recording(2, n_trials=1, n_clean=0)
    recording = replace(recording, trial_ns=recording.self_ns.sum(axis=1) - 10)
    assert sum(folded(recording).values()) == recording.self_ns.sum()


def test_deep_nesting() -> None:
    layers = tuple(
        replace(layer, parent=layer.index - 1 if layer.index else None, path="/a")
        for layer in make_layers(300)
    )
    check(make_recording(300, n_trials=1, n_clean=0, layers=layers))
