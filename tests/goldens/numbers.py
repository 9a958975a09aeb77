"""Numbers of comparisons and of ranks, case by case."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.ranks import training as ranks_of
from chainer_profile.comparison import fused
from chainer_profile.comparison.compare import Comparison, compare
from chainer_profile.comparison.sides import Side
from chainer_profile.comparison.significance import SAME
from chainer_profile.ranks.merging import Ranks, merge, who_died
from chainer_profile.record.budget import RUNNING
from chainer_profile.record.journal import KILLED
from chainer_profile.record.recording import (
    COMPLETE,
    TIME_LIMIT,
    Layer,
    MemoryUse,
    Rank,
    Recording,
)
from tests.comparing import alike, conditions, run
from tests.comparing import scaled as slower
from tests.conftest import make_training
from tests.fusing import chainer_run, engine_run, groups_of_three
from tests.goldens.keeping import listed
from tests.ranks.test_merging import two_ranks
from tests.recordings import gpu_recording


def _rows_of(recording: Recording, kept: Callable[[Layer], bool], **changes: Any) -> Recording:
    """Keep only some rows of a recording."""
    layers = tuple(filter(kept, recording.layers))
    self_ns = recording.self_ns[:, [layer.index for layer in layers]]
    return replace(recording, layers=layers, self_ns=self_ns, **changes)


def _numbers_of(comparison: Comparison) -> Iterator[str]:
    named = ("judged", "several", "same_run", "moved", "other_machine", "headline", "fusion")
    yield ", ".join(f"{name} {getattr(comparison, name)}" for name in named)
    yield f"runs differ by {comparison.run_spread:.4g}"
    names = ("before_s", "after_s", "ratio", "low", "high", "p_value")
    for table in (comparison.totals, comparison.layers):
        for row in table.itertuples():
            numbers = " ".join(f"{getattr(row, name):.4g}" for name in names)
            place = ""
            if table is comparison.layers:
                place = f"{row.before_index} to {row.after_index}, {row.covers} {row.function} "
                place += f"at {row.path} ({row.phase}) "
            if table is comparison.totals or row.Index < 4 or row.verdict != SAME:
                yield f"{row.Index}: {place}{numbers} {row.verdict}"
    yield from (f"before alone: {row.covers or row.index}" for row in comparison.only_before)
    yield from (f"after alone: {row.covers or row.index}" for row in comparison.only_after)
    yield from (f"too slow: {it.name}, {it.ratio:.4g}" for it in comparison.slower_than(0.06))


@listed(_numbers_of)
def compared_runs() -> dict[str, Comparison]:
    """Layers and trials of two runs, in numbers."""
    every, first = dict.fromkeys(range(24), 1.2), run(1)

    def against(factors: dict[int, float], whole: float = 1.0, **changes: Any) -> Comparison:
        return compare(first, slower(run(2, **changes), factors, whole))

    def sides(runs: Sequence[Recording]) -> Comparison:
        half = len(runs) // 2
        return compare(Side("A", tuple(runs[:half])), Side("B", tuple(runs[half:])))

    def short(recording: Recording, of: int) -> Recording:
        factor = np.where(np.arange(24) == 2, 1, of)
        return replace(recording, self_ns=recording.self_ns * factor // of)

    machine = slower(run(2, conditions=conditions(1.2)), every, 1.2)
    place = replace(machine.environment, processor="Another")
    layers = [Layer(0, "/a", "ReLU"), Layer(1, "/b", "ReLU"), Layer(2, "/a", "ReLU"),
              Layer(3, "/a", "ReLU", "backward"), Layer(4, "/c", "Add")]  # fmt: skip
    moved = [*(layers[at] for at in (4, 0, 3, 2, 2)), Layer(5, "/d", "Add")]
    moved = [replace(layer, index=at) for at, layer in enumerate(moved)]
    step = make_training(n_trials=200)
    forward = _rows_of(step, lambda row: row.phase == "forward", phases=(), framework_ns=None,
                       settings=replace(step.settings, phase="forward"))  # fmt: skip
    zeros = [replace(run(at, 3), self_ns=np.zeros((200, 3), np.int64)) for at in (1, 2)]
    zeros[1] = replace(zeros[1], environment=replace(zeros[1].environment, started="later"))
    six = chainer_run(n_layers=6)
    six = replace(six, layers=tuple(replace(x, path="/", function="ReLU") for x in six.layers))
    codes = [alike(seed, 24) for seed in range(6)]
    ours = [engine_run(code, groups_of_three(), 0.2) for code in codes[:3]]
    theirs = [engine_run(code, [(0, 1), *groups_of_three()[1:]], 0.1, "b 2") for code in codes[3:]]
    after = slower(run(2), {0: 1.2, 1: 1.045}, 1.2)
    folded = replace(untimed := run(1, trial_ns=None, start_ns=None, n_clean=0),
                     settings=replace(untimed.settings, inclusive=True))  # fmt: skip
    return {
        "a slower and a faster layer": against({3: 1.1, 7: 0.8}),
        "slower": against(every, 1.2),
        "slower, as its machine": compare(first, machine),
        "slower, as its machine, but for a layer": compare(first, slower(machine, {4: 1.2})),
        "slower, on another machine": compare(first, replace(machine, environment=place)),
        "busy cores": against({}, 1.8, conditions=conditions(other_cpu=1.5)),
        "cores that are free": against({}, 1.8, conditions=conditions(other_cpu=0.5)),
        "the same factor for all": compare(first, slower(first, every, 1.2)),
        "one trial": compare(first, run(2, n_trials=1)),
        "three trials": against({0: 2.0}, n_trials=3, n_clean=2),
        "a least effect": compare(first, slower(first, {0: 1.08}), 0.10),
        "less than the clock can show": compare(
            *(replace(it, self_ns=it.self_ns // 1000) for it in (first, slower(first, {0: 1.2})))
        ),
        "layers that moved": compare(
            replace(run(1, 5), layers=tuple(layers)), replace(run(2, 6), layers=tuple(moved))
        ),
        "phases that one has alone": compare(step, forward),
        "layers that matter": compare(first, after),
        "a layer that does not": compare(
            slower(short(first, 100), {0: 1.2}), slower(short(after, 100), {2: 5.0})
        ),
        "no time": compare(zeros[0], zeros[0]),
        "no time before": compare(zeros[0], run(1, 3)),
        "several without time": compare(Side("A", tuple(zeros)), run(3, 3)),
        "several of few trials": sides([run(at, 2, 2, n_clean=0) for at in (0, 1, 2, 9, 10, 11)]),
        "several": sides(
            [*map(alike, (10, 11, 12)), *(slower(alike(at), {5: 1.08}) for at in (13, 14, 15))]
        ),
        "an engine": compare(chainer_run(), engine_run(chainer_run(2), [(), *groups_of_three()])),
        "layers that it does not do": compare(six, engine_run(six, [(1,), (2, 3), (5,)])),
        "several of two engines": sides([*ours, *theirs]),
        "inclusive times": compare(folded, untimed),
    }


def _joined(recordings: list[Recording]) -> Iterator[str]:
    for recording in fused.merged(recordings):
        beside = ("trial_ns", "framework_ns", "host_ns", "gap_ns", "held_ns", "span_ns")
        sums = (f"{name} {values.sum()}" for name in beside
                if (values := getattr(recording, name)) is not None)  # fmt: skip
        yield f"{', '.join(sums)}; memory {recording.memory}"
        for row, times in zip(recording.layers, recording.self_ns.T, strict=True):
            call = f"{row.index}: {row.covers} {row.function} at {row.path} ({row.phase})"
            counts = f"{row.flops} flops, {row.macs} macs, {row.nbytes_read} bytes"
            place = f"parent {row.parent}, forward {row.forward}, {row.node}, {row.input_shapes}"
            yield f"  {call}: {times.sum()} ns in {row.calls} calls; {counts}; {place}"


@listed(_joined)
def joined() -> dict[str, list[Recording]]:
    """Layers that an engine fuses."""
    six, four, three = (chainer_run(n_layers=count) for count in (6, 4, 3))
    step = make_training(n_trials=4)
    use = MemoryUse((1, 2, 3), (0, 0, 0), 0, 0, 3, 2)
    some = [replace(x, nbytes_read=8, macs=None if x.index == 1 else 4) for x in three.layers]
    inner = [replace(x, parent={1: 0, 3: 1}.get(x.index)) for x in four.layers]
    unknown, nested = replace(three, layers=tuple(some)), replace(four, layers=tuple(inner))
    return {
        "a node of three layers": [six, engine_run(six, [(0, 1, 2), (), (3,), (4, 5)])],
        "a layer of two nodes": [three, engine_run(three, [(0,), (0,), (1, 2)])],
        "a layer that the engine lost": [three, engine_run(three, [(0, 2)])],
        "a training": [step, engine_run(step, [(0, 1), tuple(range(2, 8))])],
        "data": [make_training(4, data=True), engine_run(step, [(0, 1)])],
        "a GPU": [gpu_recording(memory=use), engine_run(three, [(0, 1, 2)])],
        "numbers that one row does not know": [unknown, engine_run(unknown, [(0, 1, 2)])],
        "a nested call": [nested, engine_run(nested, [(0, 1, 2), (3,)])],
    }


def _counted_of(ranks: Ranks) -> Iterator[str]:
    named = ("size", "phases", "collectives")
    yield ", ".join(f"{name} {getattr(ranks, name)}" for name in named)
    yield f"efficiency {ranks.efficiency:.6g}"
    times = ("waiting_ns", "moving_ns", "moving_of_last_ns", "communication_ns", "between_ns")
    more = ("computing_ns", "iteration_ns", "phase_ns", "last", "iterations")
    for name in (*times, *more):
        values = getattr(ranks, name)
        yield f"{name}: {values.tolist() if values.size < 20 else values.sum()}"
    yield from ranks.notes


def _ended(ended: Sequence[str], outcomes: dict[str, str], **more: Any) -> list[str]:
    recordings = ranks_of(3, iterations=4)
    for index, (name, rank) in enumerate(recordings.items()):
        changed = {key: values[index] for key, values in more.items()}
        recordings[name] = replace(rank, ended=ended[index], **changed)
    return [who_died(recordings, outcomes) or "nothing is told"]


@listed()
def ranked() -> dict[str, Iterable[str]]:
    """Numbers of ranks, and how the ranks ended."""
    usual, four, pair = two_ranks(), ranks_of(4, iterations=10), ranks_of(2, iterations=10)
    rows = usual["rank-0"].layers
    root = (rows[0], replace(rows[1], function="Bcast"), *rows[2:])
    short = four.pop("rank-2")
    parts = ("self", "trial", "start", "framework", "arrived", "left")
    parts = ("iteration", *(f"{name}_ns" for name in parts))
    cut = replace(short, ended=KILLED, **{name: getattr(short, name)[:3] for name in parts})
    del four["rank-1"]
    late = replace(pair["rank-1"], ended=KILLED, iteration=np.arange(3, 13) * 100)
    cases = {
        "two": merge(usual),
        "on two hosts": merge(two_ranks(rank=Rank(1, 2, "there"))),
        "a broadcast": merge({name: replace(rank, layers=root) for name, rank in usual.items()}),
        "not all iterations": merge(two_ranks(iteration=np.array([2, 3]))),
        "arrivals not known": merge(two_ranks(arrived_ns=None, left_ns=None)),
        "what is missing": merge(
            four | {"rank-2": cut, "x": replace(short, rank=None)}, problems=["rank-7: damaged"]
        ),
        "cut short late": merge(pair | {"rank-1": late}),
        "one alone": merge({"rank-1": pair["rank-1"]}),
    }
    text: dict[str, Iterable[str]] = {name: _counted_of(ranks) for name, ranks in cases.items()}
    bad, names = "ValueError: a batch is bad", [f"rank-{index}" for index in range(3)]
    end, end_now, kill = COMPLETE, "exit code 0", KILLED
    stopped = [np.arange(4) + after for after in (1000, 0, 1000)]
    endings: tuple[tuple[list[str], dict[str, str]], ...] = (
        ([end] * 3, {}),
        ([TIME_LIMIT] * 3, {"rank-0": end}),
        ([end] * 3, dict.fromkeys(names, "interrupted")),
        # The recording does not have a program's error, and a rank may have no recording.
        ([kill, end, kill], {"rank-0": RUNNING, "rank-1": bad}),
        ([kill] * 3, {"rank-9": "exit code 3"}),
        (["failed: full", end, end], {}),
        ([end, kill, end], {"rank-0": end, "rank-1": RUNNING, "rank-2": end_now}),
        ([end, kill, end], {}),
        ([kill] * 3, {}),
    )
    text |= {f"ended {ended}, {outcomes}": _ended(ended, outcomes) for ended, outcomes in endings}
    return text | {"killed at other iterations": _ended([kill] * 3, {}, iteration=stopped)}
