"""Sentences and rows of runs that differ in one thing, a case after the other."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from benchmarks.ranks import training as ranks_of
from chainer_profile import summarise
from chainer_profile.advice.changes import WALL, Candidate, Possible, propose
from chainer_profile.advice.results import Advice
from chainer_profile.analyse.findings import Change
from chainer_profile.analyse.program import program_findings
from chainer_profile.analyse.summary import Overhead, Summary
from chainer_profile.comparison import fused
from chainer_profile.comparison.compare import Comparison, Side, compare
from chainer_profile.comparison.significance import SAME
from chainer_profile.engines.results import EngineResult, EnginesRun, Speedup
from chainer_profile.ranks.merging import Ranks, merge, who_died
from chainer_profile.record.budget import REPORTS, RUNNING, Budget, Looked, Spent
from chainer_profile.record.folding import fold_call_history
from chainer_profile.record.inside import Stack
from chainer_profile.record.journal import KILLED
from chainer_profile.record.parts import UNKNOWN_NS
from chainer_profile.record.recording import (
    COMPLETE,
    TIME_LIMIT,
    BlasLibrary,
    Conditions,
    Counters,
    Environment,
    Gpu,
    GpuState,
    Inside,
    Layer,
    MemoryUse,
    PhaseMemory,
    Rank,
    Recording,
    Settings,
)
from chainer_profile.report import text, views
from chainer_profile.report.content import (
    advice,
    answer,
    budget,
    comparison,
    engines,
    network,
    pass_section,
    ranks,
    result_section,
    sweep,
)
from chainer_profile.report.content.method import experiment_rows, method_points
from chainer_profile.report.content.profile import report
from chainer_profile.report.content.result_section import hotspots
from chainer_profile.report.document import Block, Heading, Text, plain
from chainer_profile.report.writers import markdown, terminal
from tests.analyse import test_inside
from tests.comparing import alike, conditions, run
from tests.comparing import scaled as slower
from tests.conftest import make_recording, make_training
from tests.counting import counters
from tests.engines import fake_engines as faked
from tests.fusing import chainer_run, engine_run, in_threes
from tests.goldens.keeping import listed
from tests.goldens.scenarios import ACCELERATED, ADVICE
from tests.ranks.test_merging import two
from tests.recordings import on_gpu
from tests.report.documents import network_of, network_row
from tests.report.working import (
    GPU,
    STATE,
    computing,
    launching,
    make_device_recording,
    make_device_training,
    scaled,
    training,
    working,
)
from tests.sweeping import make_run as make_case

UNTIMED: dict[str, Any] = {"trial_ns": None, "start_ns": None, "n_clean": 0}


def _texts(blocks: Iterable[Block]) -> Iterator[str]:
    for block in blocks:
        if isinstance(block, Text):
            yield ("! " if block.note else "") + plain(block.words)


def _rows(rows: Iterable[tuple[str, str]]) -> list[str]:
    return [f"{name}: {value}" for name, value in rows]


def _zero(**changes: Any) -> Recording:
    nothing = {"self_ns": np.zeros((100, 6), np.int64), "trial_ns": np.zeros(100, np.int64)}
    return make_recording(**nothing, clean_ns=np.zeros(10, np.int64), **changes)


def fast(**changes: Any) -> Recording:
    """An engine's recording of 40 trials, with clean ones."""
    recording = faked.recordings()["fast"]
    assert recording.trial_ns is not None
    values: dict[str, Any] = {
        "self_ns": np.tile(recording.self_ns, (10, 1)),
        "trial_ns": np.tile(recording.trial_ns, 10),
        "clean_ns": np.full(30, 90_000),
        "clean_start_ns": np.arange(30) * 90_000,
    }
    return replace(recording, **(values | changes))


def _rows_of(recording: Recording, kept: Callable[[Layer], bool], **changes: Any) -> Recording:
    """Some of its rows alone."""
    layers = tuple(filter(kept, recording.layers))
    self_ns = recording.self_ns[:, [layer.index for layer in layers]]
    return replace(recording, layers=layers, self_ns=self_ns, **changes)


def _forward_backward() -> Recording:
    """The training step without its update."""
    step = make_training(settings={"phase": "forward-backward", "optimizer": ""})
    nothing: dict[str, Any] = {"phases": (), "framework_ns": None, "links": ()}
    return _rows_of(step, lambda row: row.phase != "update", **nothing)


@listed()
def answers() -> dict[str, Iterable[str]]:
    """How long and how sure, where the time goes, what next."""
    recordings = {
        "forward and backward": _forward_backward(),
        "training": make_training(),
        "engine, mostly between": fast(trial_ns=np.full(40, 200_000)),
        "one trial": make_recording(2, 1, n_clean=0),
        "few trials": make_recording(n_trials=3, n_clean=0),
        "not timed": make_recording(**UNTIMED),
        "no time": _zero(),
        "inclusive": fold_call_history([("a", 0.003), ("b", 0.001)] * 4),
        "interrupted": make_recording(ended="interrupted by SIGINT"),
        "many left out": make_recording(left_out=60),
        "left out, no clean ones": make_recording(left_out=60, n_clean=0),
        "a loss alone": make_recording(settings=Settings(loss="softmax_cross_entropy")),
        "five parts": scaled([30, 25, 20, 15, 10], list("ABCDE")),
        "a part of 4 %": scaled([96, 4], list("AB")),
        "a part of 2 %": scaled([98, 2], list("AB")),
        "mostly between": scaled([10, 10], list("AB"), 80_000),
        "launch bound of 128": make_device_recording(settings={"batchsize": 128}),
        "training on a GPU": make_device_training(),
    }
    summaries = {name: summarise(one) for name, one in recordings.items()}
    summaries |= {"not held": launching(n_held=0), "busy": computing()}
    found = {name: _texts(answer.answer(one)) for name, one in summaries.items()}
    return found | {"tried": _texts(answer.answer(summaries["training"], ADVICE))}


@listed(lambda one: [markdown.write(advice.section(one)).strip()])
def tried() -> dict[str, Advice]:
    """What changes brought."""
    candidate = Candidate("one BLAS thread", "they wait", "OPENBLAS_NUM_THREADS=1", Change(),
                          Change(threads=2), WALL)  # fmt: skip
    threads = replace(ACCELERATED, candidate=candidate)
    vain, doubtful, failed = ADVICE.tried[1:]
    single = replace(doubtful, cpu=Speedup(1.1, math.nan, math.nan), pairs=1)
    return {
        "in vain": replace(ADVICE, tried=(vain, failed)),
        "one thread beside a gain": replace(ADVICE, tried=(threads, ACCELERATED)),
        "one thread alone": replace(ADVICE, tried=(threads,)),
        "not sure": replace(ADVICE, tried=(doubtful,)),
        "one pair": replace(ADVICE, tried=(single,)),
        "ended": replace(ADVICE, ended="interrupted by SIGINT"),
    }


def _changed(change: Change) -> str:
    told = ((one.name, getattr(change, one.name)) for one in fields(Change))
    return ", ".join(f"{name} {value}" for name, value in told if value) or "as it is"


def _proposed(recording: Recording, possible: Possible) -> Iterator[str]:
    found, untried = propose(summarise(recording), possible)
    for one in found:
        yield f"{one.name}: {one.reason} | {one.keep}"
        what = f"{_changed(one.change)} against {_changed(one.against)}, by {one.decides}"
        yield f"  {what}{'' if one.alone else ', beside others'}"
    yield from (f"not {one.name}: {one.why}" for one in untried)


@listed(lambda case: _proposed(*case))
def proposed() -> dict[str, tuple[Recording, Possible]]:
    """Changes that a profile proposes, and those that it does not."""
    usual = Possible({}, threads=1, cores=2)
    lacks = {"torch": "not installed: pip", "glibc": "needs glibc", "openvino": "not installed"}

    def of(function: str = "Convolution2DFunction", **settings: Any) -> Recording:
        """Two layers of 40 us each in trials of 100 us."""
        two = make_recording(n_trials=10, n_layers=2)
        layers = tuple(replace(layer, function=function) for layer in two.layers)
        own, trials = np.full((10, 2), 40_000), np.full(10, 100_000)
        asked = replace(two.settings, batchsize=1, **settings)
        return replace(two, layers=layers, self_ns=own, trial_ns=trials, settings=asked)

    small = MemoryUse((1000, 131071), (0, 0), 0, 0, 0, None)
    return {
        "convolutions": (of(), usual),
        "what is not there": (of(), Possible(lacks, threads=1, cores=1)),
        "other functions": (of("LinearFunction"), usual),
        "train": (of(phase="train"), usual),
        "train mode": (of(train_mode=True), usual),
        "halves": (of(dtype="float16"), usual),
        "a thread as asked": (of(), Possible({}, threads=1, cores=2, asked=True)),
        "two threads": (of(), Possible({}, threads=2, cores=2)),
        # They are never given back.
        "small arrays": (make_recording(2, memory=small), usual),
        "nothing but framework": (make_recording(2, 10, self_ns=np.zeros((10, 2), int)), usual),
        "a training": (make_training(), usual),
    }


def _said_of(one: Comparison) -> Iterator[str]:
    yield views.comparison_line(one)
    yield comparison.verdict(one)
    yield from map(comparison.side_text, (one.before, one.after))
    yield comparison.differences_line(one)
    yield comparison.machine_line(one)
    yield from comparison.notes(one)
    yield comparison.counts_line(one)
    yield from comparison.unmatched_lines(one)
    for gate in map(comparison.Gate, (0.05, 0.9)):
        yield comparison.gate_line(one, gate)
        yield from comparison.failures(one, gate)


def _numbers_of(one: Comparison) -> Iterator[str]:
    named = ("judged", "several", "same_run", "moved", "other_machine", "headline", "fusion")
    yield ", ".join(f"{name} {getattr(one, name)}" for name in named)
    yield f"runs differ by {one.run_spread:.4g}"
    names = ("before_s", "after_s", "ratio", "low", "high", "p_value")
    for table in (one.totals, one.layers):
        for row in table.itertuples():
            numbers = " ".join(f"{getattr(row, name):.4g}" for name in names)
            place = ""
            if table is one.layers:
                place = f"{row.before_index} to {row.after_index}, {row.covers} {row.function} "
                place += f"at {row.path} ({row.phase}) "
            if table is one.totals or row.Index < 4 or row.verdict != SAME:
                yield f"{row.Index}: {place}{numbers} {row.verdict}"
    yield from (f"before alone: {row.covers or row.index}" for row in one.only_before)
    yield from (f"after alone: {row.covers or row.index}" for row in one.only_after)
    yield from (f"too slow: {it.name}, {it.ratio:.4g}" for it in one.slower_than(0.06))


@listed(_numbers_of)
def compared_runs() -> dict[str, Comparison]:
    """Layers and trials of two runs, by numbers."""
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
    ours = [engine_run(one, in_threes(), 0.2) for one in codes[:3]]
    theirs = [engine_run(one, [(0, 1), *in_threes()[1:]], 0.1, "b 2") for one in codes[3:]]
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
        "three trials": against({0: 2.0}, n_trials=3, n_clean=2),
        "a least effect": compare(first, slower(first, {0: 1.08}), 0.10),
        "less than the clock can show": compare(
            *(replace(one, self_ns=one.self_ns // 1000) for one in (first, slower(first, {0: 1.2})))
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
        "several of one layer": sides([alike(at, 1, 0.02) for at in range(6)]),
        "several of few trials": sides([run(at, 2, 2, n_clean=0) for at in (0, 1, 2, 9, 10, 11)]),
        "several": sides(
            [*map(alike, (10, 11, 12)), *(slower(alike(at), {5: 1.08}) for at in (13, 14, 15))]
        ),
        "an engine": compare(chainer_run(), engine_run(chainer_run(2), [(), *in_threes()])),
        "layers that it does not do": compare(six, engine_run(six, [(1,), (2, 3), (5,)])),
        "several of two engines": sides([*ours, *theirs]),
        "inclusive times": compare(folded, untimed),
    }


@listed(_said_of)
def comparisons() -> dict[str, Comparison]:
    """What is said of two runs."""
    slow, alone = {3: 1.5, 7: 0.6}, dict.fromkeys(("trial_ns", "start_ns"))

    def changed(*, whole: float = 1.0, **changes: Any) -> Comparison:
        return compare(Side("A", (run(1),)), Side("B", (slower(run(2, **changes), slow, whole),)))

    def untimed(recording: Recording, **changes: Any) -> Recording:
        none = recording.clean_ns[:0]
        return replace(recording, clean_ns=none, clean_start_ns=none, **changes)

    def with_settings(**changes: Any) -> Recording:
        return replace(run(2), settings=replace(run(2).settings, **changes))

    other = with_settings(model="x" * 99, batchsize=2)
    other = replace(other, environment=replace(other.environment, processor="", cupy="1"))
    many = dict.fromkeys(("phase", "dtype", "device", "loss", "optimizer"), "x")
    elsewhere = run(2, conditions=conditions(2))
    elsewhere = replace(elsewhere, environment=replace(elsewhere.environment, processor="Z"))
    when = replace(run(1).environment, started="2026-01-02T03:04:05Z", commit="abc")
    all_slow = slower(run(2), dict.fromkeys(range(24), 1.5))
    by_engine = engine_run(chainer_run(2), [(), *in_threes()[:-1], (21, 22)])
    return {
        "slower as a whole": changed(whole=1.5),
        "faster as a whole": changed(whole=0.5),
        "slower, by the machine": changed(whole=1.5, conditions=conditions(1.4)),
        "a machine that others kept": changed(conditions=conditions(1.5, other_cpu=1.6)),
        "a machine not known": changed(conditions=Conditions()),
        "one trial": changed(n_trials=1),
        "few unprofiled trials": changed(whole=1.5, n_clean=2),
        "profiled trials alone": compare(untimed(run(1)), untimed(all_slow)),
        "layers alone": compare(untimed(run(1), **alone), untimed(all_slow, **alone)),
        "a run with itself": compare(run(1), run(1)),
        "two runs of each": compare(
            Side("a\nb", (run(1, environment=when), run(3))), Side("B", (run(2), run(4)))
        ),
        "other settings": compare(run(1), other),
        "many other settings": compare(run(1), with_settings(**many)),
        "another phase": compare(run(1), with_settings(phase="train")),
        "another device": compare(run(1), with_settings(device="gpu:0")),
        "another machine": compare(run(1), elsewhere),
        "more layers": compare(run(1), run(2, 36)),
        "from an engine": compare(by_engine, run(1)),
        "an engine that fuses none": compare(
            chainer_run(), engine_run(chainer_run(2), [(at,) for at in range(24)])
        ),
    }


def _joined(recordings: list[Recording]) -> Iterator[str]:
    for one in fused.merged(recordings):
        beside = ("trial_ns", "framework_ns", "host_ns", "gap_ns", "held_ns", "span_ns")
        sums = (f"{name} {values.sum()}" for name in beside
                if (values := getattr(one, name)) is not None)  # fmt: skip
        yield f"{', '.join(sums)}; memory {one.memory}"
        for row, times in zip(one.layers, one.self_ns.T, strict=True):
            what = f"{row.index}: {row.covers} {row.function} at {row.path} ({row.phase})"
            counts = f"{row.flops} flops, {row.macs} macs, {row.nbytes_read} bytes"
            place = f"parent {row.parent}, forward {row.forward}, {row.node}, {row.input_shapes}"
            yield f"  {what}: {times.sum()} ns in {row.calls} calls; {counts}; {place}"


@listed(_joined)
def joined() -> dict[str, list[Recording]]:
    """Layers that an engine does together."""
    six, four, three = (chainer_run(n_layers=count) for count in (6, 4, 3))
    step = make_training(n_trials=4)
    use = MemoryUse((1, 2, 3), (0, 0, 0), 0, 0, 3, 2)
    some = [replace(x, nbytes_read=8, macs=None if x.index == 1 else 4) for x in three.layers]
    inner = [replace(x, parent={1: 0, 3: 1}.get(x.index)) for x in four.layers]
    unknown, nested = replace(three, layers=tuple(some)), replace(four, layers=tuple(inner))
    engines_of_six = [
        engine_run(six, [(0, 1), (2,), (3,), (4, 5)]),
        engine_run(six, [(0,), (1, 2), (3,), (4,), (5,)], engine="openvino 2026.4"),
    ]
    return {
        "a node of three layers": [six, engine_run(six, [(0, 1, 2), (), (3,), (4, 5)])],
        "a layer of two nodes": [three, engine_run(three, [(0,), (0,), (1, 2)])],
        "two engines": engines_of_six,
        "a layer that the engine lost": [three, engine_run(three, [(0, 2)])],
        "a training": [step, engine_run(step, [(0, 1), tuple(range(2, 8))])],
        "data": [make_training(4, data=True), engine_run(step, [(0, 1)])],
        "a GPU": [on_gpu(memory=use), engine_run(three, [(0, 1, 2)])],
        "numbers that one row does not know": [unknown, engine_run(unknown, [(0, 1, 2)])],
        "a nested call": [nested, engine_run(nested, [(0, 1, 2), (3,)])],
        "no engine": [six],
        "nothing": [],
    }


def _said_of_engines(run: EnginesRun) -> Iterator[str]:
    yield engines.verdict(run)
    for lines in (engines.about_lines, engines.warnings, engines.wrong_lines):
        yield from lines(run)
    yield from map(engines.other_line, run.others)
    yield from engines.note_lines(run)
    yield from engines.fusion_lines(run, faked.recordings())
    yield from (f"- {step}" for step in engines.next_steps(run))


@listed()
def raced() -> dict[str, Iterable[str]]:
    """What is said of engines."""
    make, result = faked.make_run, faked.result
    wrong, missing = faked.WRONG, faked.MISSING
    plain_run = make()
    chainer, quick = plain_run.engines
    seventeen = np.arange(60) // 2 < 17
    clean_ns = np.where(seventeen, chainer.clean_ns // 30, 3 * chainer.clean_ns)
    unsure = replace(quick, name="unsure", clean_ns=clean_ns)
    served = replace(quick, jobs=2, served_per_s=19_000.0)
    cases = {
        "a wrong and a missing one": make(wrong, missing, result("chainer-fast", 500)),
        "one that failed": make(EngineResult("bad", error="no such function: Roll")),
        "as fast as the best": make(result("onnxruntime", 100)),
        "ended, others busy": make(ended="interrupted by SIGINT", other_cpu=1.5),
        "a thread beside them": make(other_cpu=1.1),
        "crowded": make(other_cpu=1.9),
        "none is faster": replace(plain_run, engines=(chainer, result("slow", 1000))),
        "a wrong one alone": replace(plain_run, engines=(chainer, wrong)),
        "Chainer alone": replace(plain_run, engines=(chainer,)),
        "without Chainer": replace(plain_run, engines=(quick,)),
        "one that may be fastest": replace(plain_run, engines=(chainer, quick, unsure)),
        "several at a time": replace(plain_run, engines=(chainer, served)),
    }
    found: dict[str, Iterable[str]] = {name: _said_of_engines(one) for name, one in cases.items()}
    nothing = EnginesRun(engines=(missing,), settings=plain_run.settings)
    found["no trials"] = [markdown.write(engines.report(nothing, {}))]
    own = faked.recordings()
    no_covers = [replace(layer, covers=()) for layer in own["fast"].layers]
    foreign = replace(own["fast"], layers=tuple(no_covers))
    clean = {"clean_ns": np.full(20, 80_000), "clean_start_ns": np.arange(20)}
    for name, one in (("foreign nodes", foreign), ("its own clock", replace(own["fast"], **clean))):
        found[name] = [engines.fusion_text(plain_run, one, own["chainer"])]
    return found


def _told_of(one: Ranks) -> list[str]:
    return [ranks.verdict(one), *ranks.answer(one), *(f"! {it}" for it in ranks.doubts(one))]


@listed(_told_of)
def merged() -> dict[str, Ranks]:
    """What is said of ranks."""

    def made(size: int = 4, rows: int = 8, **more: Any) -> Ranks:
        return merge(ranks_of(size, 60, rows, **more))

    def away(error_ns: int) -> Ranks:
        recordings = two()
        who = recordings["rank-1"].rank
        assert who is not None
        there = replace(who, host="there", clock_error_ns=error_ns)
        return merge(recordings | {"rank-1": replace(recordings["rank-1"], rank=there)})

    silent = merge(two(arrived_ns=None, left_ns=None))
    alone = [
        replace(one, layers=tuple(replace(row, phase="update") for row in one.layers),
                arrived_ns=None, left_ns=None)
        for one in silent.recordings
    ]  # fmt: skip
    return {
        "one": made(1),
        "few iterations": merge(two()),
        "alike": made(),
        "a slow one": made(slow={3: 2.0}),
        "five slow ones": made(12, slow=dict.fromkeys(range(5), 2.0)),
        "slow now and then": made(2, 30, planted_ms={(1, 0): 15.0}, every=5),
        "a small straggler": made(planted_ms={(1, 0): 90.0, (2, 5): 10.0}),
        "five stragglers": made(planted_ms={(1, at): 30.0 for at in range(0, 10, 2)}),
        "arrivals not known": silent,
        "no communication": merge(dict(zip(silent.names, alone, strict=True))),
        "clocks known to 5 ns": away(5),
        "clocks known to 40 ns": away(40),
        "clocks not known": away(UNKNOWN_NS),
    }


def _counted_of(one: Ranks) -> Iterator[str]:
    named = ("names", "size", "numbered", "phases", "collectives", "clock_doubt_s")
    yield ", ".join(f"{name} {getattr(one, name)}" for name in named)
    yield f"efficiency {one.efficiency:.6g}"
    times = ("waiting_ns", "moving_ns", "moving_of_last_ns", "communication_ns", "between_ns")
    more = ("computing_ns", "iteration_ns", "phase_ns", "last", "iterations", "trials")
    for name in (*times, *more):
        values = getattr(one, name)
        yield f"{name}: {values.tolist() if values.size < 20 else values.sum()}"
    yield from one.notes


def _ended(ended: Sequence[str], outcomes: dict[str, str], **more: Any) -> list[str]:
    recordings = ranks_of(3, iterations=4)
    for at, (name, one) in enumerate(recordings.items()):
        changed = {key: values[at] for key, values in more.items()}
        recordings[name] = replace(one, ended=ended[at], **changed)
    return [who_died(recordings, outcomes) or "nothing is told"]


@listed()
def ranked() -> dict[str, Iterable[str]]:
    """What is known of ranks by numbers, and of how they ended."""
    usual, four, pair = two(), ranks_of(4, iterations=10), ranks_of(2, iterations=10)
    rows = usual["rank-0"].layers
    root = (rows[0], replace(rows[1], function="Bcast"), *rows[2:])
    away = Rank(1, 2, "there", clock_offset_ns=-1_000_000, clock_error_ns=5)
    second = usual["rank-1"]
    assert second.arrived_ns is not None
    assert second.left_ns is not None
    later = {"arrived_ns": second.arrived_ns + 10**6, "left_ns": second.left_ns + 10**6}
    short = four.pop("rank-2")
    parts = ("self", "trial", "start", "framework", "arrived", "left")
    parts = ("iteration", *(f"{name}_ns" for name in parts))
    cut = replace(short, ended=KILLED, **{name: getattr(short, name)[:3] for name in parts})
    del four["rank-1"]
    late = replace(pair["rank-1"], ended=KILLED, iteration=np.arange(3, 13) * 100)
    cases = {
        "two": merge(usual),
        "on another clock": merge(usual | {"rank-1": replace(second, rank=away, **later)}),
        "a broadcast": merge({name: replace(one, layers=root) for name, one in usual.items()}),
        "not all iterations": merge(two(iteration=np.array([2, 3]))),
        "iterations without numbers": merge(two(iteration=None)),
        "arrivals not known": merge(two(arrived_ns=None, left_ns=None)),
        "what is missing": merge(
            four | {"rank-2": cut, "x": replace(short, rank=None)}, problems=["rank-7: damaged"]
        ),
        "cut short late": merge(pair | {"rank-1": late}),
        "one alone": merge({"rank-1": pair["rank-1"]}),
    }
    found: dict[str, Iterable[str]] = {name: _counted_of(one) for name, one in cases.items()}
    bad, names = "ValueError: a batch is bad", [f"rank-{at}" for at in range(3)]
    end, end_now, kill = COMPLETE, "exit code 0", KILLED
    stopped = [np.arange(4) + after for after in (1000, 0, 1000)]
    endings: tuple[tuple[list[str], dict[str, str]], ...] = (
        ([end] * 3, {}),
        ([TIME_LIMIT] * 3, {"rank-0": end}),
        ([end] * 3, dict.fromkeys(names, "interrupted")),
        # A program's error is not in its recording, and a rank may have none at all.
        ([kill, end, kill], {"rank-0": RUNNING, "rank-1": bad}),
        ([kill] * 3, {"rank-9": "exit code 3"}),
        (["failed: full", end, end], {}),
        ([end, kill, end], {"rank-0": end, "rank-1": RUNNING, "rank-2": end_now}),
        ([end, kill, end], {}),
        ([kill] * 3, {}),
    )
    found |= {f"ended {ended}, {known}": _ended(ended, known) for ended, known in endings}
    return found | {"killed at other iterations": _ended([kill] * 3, {}, iteration=stopped)}


def _experiment(recording: Recording) -> Iterator[str]:
    summary = summarise(recording)
    blocks = report(summary)
    named = {block.text: at for at, block in enumerate(blocks) if isinstance(block, Heading)}
    first, behind = named["1 Experiment description"], named["2 Environment"]
    yield from _texts(blocks[first:behind])
    yield from _rows(experiment_rows(summary))
    yield from (f"- {plain(it)}" for it in method_points(summary))


@listed(_experiment)
def methods() -> dict[str, Recording]:
    """How a run was made, and what was run."""
    step = make_training()
    inside = _rows_of(step, lambda row: row.path not in ("loss", "cleargrads", "optimizer")
                      and row.function != "gradient_accumulation")  # fmt: skip
    collective = replace(step.layers[-1], phase="communication")
    blas = [Environment(blas=(BlasLibrary("openblas", "0.3", n),)) for n in (1, 2)]
    probed: dict[str, Any] = {
        "probe_ns": np.array([4, 4, 1, 1]) * 1_000_000, "probe_threads": np.array([2, 2, 1, 1])
    }  # fmt: skip
    three = make_recording(3)
    counted = counters(three)
    counted = replace(counted, counted=tuple(replace(x, window=3e3) for x in counted.counted))
    race, own = fast(), faked.recordings()["chainer"]
    nothing = np.zeros(0, np.int64)
    calls = {"calls": np.ones_like(step.self_ns), "iteration": np.arange(step.n_trials) + 1}
    return {
        "some rows alone": inside,
        "a collective": replace(step, layers=(*step.layers[:-1], collective)),
        "phases not known": make_training(phases=(), framework_ns=None),
        "not timed": make_training(trial_ns=None, start_ns=None),
        "a program": replace(step, **calls),
        "warm-ups cut": make_recording(
            warmup_ns=np.full(3, 1_000_000, np.int64), settings=Settings(warmups=50)
        ),
        "one thread": make_recording(environment=blas[0], **probed),
        "two threads": make_recording(environment=blas[1], **probed),
        "a clock": make_recording(conditions=Conditions(40.0, 85.0)),
        "train mode on purpose": make_recording(settings=Settings(train_mode=True)),
        "one convolution": make_recording(1),
        "backward in test mode": make_training(
            settings={"train_mode": False, "phase": "forward-backward"}
        ),
        "passes": replace(three, counters=counted, inside=Inside("py-spy 0.4.3", 200, 1.0, 7)),
        "an engine": race,
        "an engine without unprofiled trials": fast(clean_ns=nothing, clean_start_ns=nothing),
        "Chainer in a race": replace(
            own, clean_ns=race.clean_ns, clean_start_ns=race.clean_start_ns
        ),
        "no held trials": make_device_recording(n_held=0),
    }


def _summed(one: Summary) -> Iterator[str]:
    yield from _rows(result_section.total_rows(one))
    yield from _texts(result_section.device(one))


@listed(_summed)
def sums() -> dict[str, Summary]:
    """The times of whole trials, and of a device."""
    full = summarise(make_recording())

    def with_cost(*fraction: float) -> Summary:
        return replace(full, totals=replace(full.totals, overhead=Overhead(*fraction)))

    return {
        "29 unprofiled trials": summarise(make_recording(n_clean=29)),
        "30 unprofiled trials": summarise(make_recording(n_clean=30)),
        "recorder known": with_cost(0.008, 0.007, 0.009),
        "recorder not sure": with_cost(-0.001, math.nan, math.nan),
        "no unprofiled trials": summarise(make_recording(n_clean=0)),
        "one trial": summarise(make_recording(n_trials=1, n_clean=1)),
        "layers alone": summarise(make_recording(**UNTIMED)),
        "no time": summarise(_zero()),
        "an engine": summarise(fast()),
        "launch bound": launching(),
        "not held": launching(n_held=0),
        "busy": computing(),
        "busy, not held": computing(n_held=0),
    }


def _of_trial(*phases: str, **settings: Any) -> Recording:
    rows = tuple(Layer(at, "/", "ReLU", phase) for at, phase in enumerate(phases))
    return Recording(rows, np.ones((2, len(rows)), np.int64), settings=Settings(**settings))


@listed()
def lines() -> dict[str, Iterable[str]]:
    """What was run and where, in words."""
    both, all_three = ("forward", "backward"), ("forward", "backward", "update")
    runs = {
        "forward": _of_trial("forward"),
        "forward in train mode": _of_trial("forward", train_mode=True),
        "with a loss": _of_trial(*both, phase="forward-backward", loss="mean_squared_error"),
        "with its own loss": _of_trial(*both, phase="forward-backward", loss="output"),
        "training": _of_trial(*all_three, phase="train", loss="hinge", optimizer="MomentumSGD"),
        "with data": _of_trial("data", *all_three, phase="train", optimizer="Adam"),
        "with ranks": _of_trial(*both, "communication", "update", phase="train"),
        "rows say it": _of_trial(*all_three),
        "two rows say it": _of_trial(*both, loss="a\nb"),
        "cut": make_recording(n_trials=40, ended="interrupted"),
        "without unprofiled trials": make_recording(n_trials=7, n_clean=0),
        "without times": make_recording(**UNTIMED),
        "left out": make_recording(left_out=60, n_clean=1),
    }
    found = {
        name: [*text.run_lines(one), views.recording_line(one), *text.interruption(one),
               *text.gaps(one)]
        for name, one in runs.items()
    }  # fmt: skip
    some = Settings(weights="a.npz", seed=3, dtype="mixed16", keep_memory=True, device="gpu:0")
    known = {"nothing set": Settings(), "a seed": Settings(seed=3), "set": some}
    for name, settings in known.items():
        found[name] = [text.weights_text(settings), text.settings_text(settings),
                       *_rows(text.option_rows(settings))]  # fmt: skip
    blas = BlasLibrary("openblas", "0.3.30", 2, "Haswell"), BlasLibrary("mkl", "", 1)
    where = Environment(
        "2026-01-02T03:04:05Z", physical_cores=4, usable_cores=2, memory_nbytes=8 << 30,
        cupy="13.6.0", chainer="7.8.1", profiler="0.1.0", commit="abc1234", blas=blas,
        variables=("OPENBLAS_CORETYPE=Haswell", "MKL_CBWR=AVX2"),
    )  # fmt: skip
    machines = {"a machine": where, "a core": Environment(usable_cores=1)}
    machines |= {"cores": Environment(physical_cores=8), "none": Environment()}
    for name, one in machines.items():
        found[name] = [*text.environment_lines(one), *_rows(text.environment_rows(one))]
    hot = replace(STATE, sm_mhz=1410, temperature_c=71, power_w=690.0, throttle=("power cap",))
    gpus: dict[str, tuple[Gpu | None, Conditions]] = {
        "all of a GPU": (GPU, Conditions(gpu_before=STATE, gpu_after=hot)),
        "little of a GPU": (Gpu(number=1), Conditions(gpu_after=GpuState(sm_mhz=1000))),
        "no GPU": (None, Conditions(gpu_before=GpuState(), gpu_after=GpuState())),
        "a driver": (Gpu(driver="550.54"), Conditions()),
        "a driver's CUDA": (Gpu(driver_cuda="12.4"), Conditions()),
        "no cuDNN, TF32": (replace(GPU, cudnn="", tf32=True), Conditions()),
    }
    for name, (gpu, state) in gpus.items():
        ran = make_device_recording(environment=Environment(gpu=gpu), conditions=state)
        found[name] = _rows(text.gpu_rows(ran))
    return found


@listed()
def passes() -> dict[str, Iterable[str]]:
    """What memory, counters and the pass inside say."""
    use = training().recording.memory
    assert use is not None
    kept = replace(use, kept_for_backward_nbytes=3 << 20, high_water_layer=None)
    below = (PhaseMemory("a|b", -2048, 0), PhaseMemory("b", 0, -1))
    more = replace(use, gradient_nbytes=3 << 20, state_nbytes=6 << 20)
    memories = {
        "forward": working(),
        "gradients and state": training(memory=more),
        "kept for backward": training(memory=kept),
        "no phases": training(memory=replace(use, phases=())),
        "below the begin": training(memory=replace(use, phases=below)),
    }
    found = {f"memory, {name}": [markdown.write(pass_section.memory(one))]
             for name, one in memories.items()}  # fmt: skip
    three = make_recording(3)
    old = counters(three, fault_ns=None)
    by_layer = tuple(
        replace(one, layers=(9,) * 3, framework=(9,) * len(three.phases)) for one in old.counted
    )
    whole = counters(three)
    nothing = tuple(replace(one, layers=(0, 0, 0)) for one in whole.counted)
    counted = {
        "usual": whole,
        "no price of a fault": replace(old, counted=by_layer),
        "counters of older versions": counters(three, cycles=100, instructions=250, cache_misses=7),
        "a thread's time alone": Counters(whole.trials, whole.counted[:2]),
        "nothing": Counters(whole.trials, nothing),
    }
    for name, one in counted.items():
        summary = summarise(replace(three, counters=one))
        found[f"counters, {name}"] = [markdown.write(pass_section.counters(summary))]
    step = make_training()
    summary = summarise(replace(step, counters=counters(step)))
    found["counters, phases"] = [markdown.write(pass_section.counters(summary))]
    line, repeated = Stack((2,), 0.006, 600, row=0), Stack((2, 0), 0.006, 600, row=0)
    for name, recording in {
        "a line": test_inside.recording(line),
        "a busy machine": test_inside.recording(repeated, repeats=4),
    }.items():
        summary = summarise(recording)
        found[f"inside, {name}"] = [*pass_section.inside_said(summary),
                                    pass_section.how_it_looked(summary)]  # fmt: skip
    return found


S = 10**9
PARTS = (
    *(Spent("start of Python", "", S // 10), Spent("imports", "chainer", 8 * S // 10, 120)),
    *(Spent("imports", "numpy", 2 * S // 10, 30), Spent("iterations", "", 6 * S, 600)),
    *(Spent("evaluation", "validation", S, 2), Spent("evaluation", "", S // 2, 4)),
    *(Spent("extensions", "PlotReport", 7 * S // 10, 2), Spent("extensions", "a", S // 1000, 1)),
    *(Spent("extensions", "b", S // 1000, 1), Spent("snapshots", "snapshot", S // 4, 1)),
    *(Spent("the script's own code", "", 448 * S // 1000), Spent("profiler", "around", S, 600)),
)


@listed()
def programs() -> dict[str, Iterable[str]]:
    """What is said of the time of programs."""

    def of(*spent: Spent, outcome: str = COMPLETE, looked: tuple[Looked, ...] = ()) -> Budget:
        wall_ns = sum(one.ns for one in spent)
        when = "2026-01-02T03:04:05Z", "2026-01-02T03:04:17Z"
        return Budget("train.py --epoch 2", *when, outcome, wall_ns, spent, looked=looked)

    loop = Spent("iterations", "", 4 * S, 10)
    packages = (("nltk", 2 * S, 10), ("nltk > scipy", 5 * S, 30), ("nltk > re", S // 1000, 1),
                ("yaml", S, 1))  # fmt: skip
    seen = Looked("accuracy (train.py): CRF1d.argmax", S // 4, 25), Looked("rare", S // 1000, 1)
    cases = {
        "a training": of(*PARTS),
        "with reports": of(*PARTS, Spent("profiler", REPORTS, 4 * S)),
        "killed": of(*PARTS, outcome=RUNNING),
        "failed": of(*PARTS, outcome="exit code 3"),
        "packages": of(*(Spent("imports", *one) for one in packages)),
        "calls of networks": of(Spent("calls of networks", "", 10 * S, 200)),
        "plots": of(loop, Spent("extensions", "PlotReport", 12 * S, 40)),
        "snapshots": of(loop, Spent("snapshots", "snapshot", 4 * S, 2)),
        "evaluation": of(loop, Spent("evaluation", "validation", 4 * S, 2)),
        "moves": of(loop, looked=(Looked("main (train.py): Link.to_gpu", S, 100),)),
        "functions beside": of(*PARTS, looked=seen),
        "nothing": of(),
    }
    step = summarise(make_training())
    found = {
        name: [budget.sentence(one), *(it.said() for it in program_findings(one)),
               markdown.write(budget.section(one, least=0.01))]
        for name, one in cases.items()
    }  # fmt: skip
    calls = cases["calls of networks"]
    found["calls by layer"] = [markdown.write(budget.section(calls, summarise(make_recording())))]
    found["all of it"] = [markdown.write(budget.section(cases["a training"], step, least=0.0))]
    return found


@listed()
def tables() -> dict[str, Iterable[str]]:
    """Tables of a sweep's cases and of networks that differ in one thing."""
    failed = make_case("resnet34", math.nan, error="out of memory | =1", fps=math.nan, timed=0)
    cases = {
        "phase": [make_case(phase="train"), make_case()],
        "dtype": [make_case(dtype="mixed16")],
        "machines": [make_case(), make_case("resnet34", machine="other", processor="Another")],
        "profiled": [make_case(clean=False)],
        "failed": [make_case(), failed],
        "failed alone": [failed],
    }
    found = {name: [terminal.written(sweep.overview(one), 80)] for name, one in cases.items()}
    for count in (1, 2):
        blocks = sweep.report("r3", [make_case()] * count, count, "python profile.py", ())
        found[f"a report of {count}"] = [markdown.write(blocks)]
    networks = {
        "without a call": network_of(network_row("/fc", "", 0, parameters=7, output_shapes=())),
        "nothing at all": replace(network_of(), name="a\nb"),
        "about": network_of(network_row("/fc", "Odd", 12, approximate=1), network_row("/", "R", 2)),
        "known": network_of(network_row("/fc", "Linear", 12, nbytes_output=1_500_000)),
    }
    for name, one in networks.items():
        found[f"network {name}"] = [terminal.written(network.overview(one), 80)]
    return found


@listed(lambda case: [markdown.write(hotspots(summarise(*case)))])
def hot() -> dict[str, tuple[Recording, str]]:
    """The hot layers by several rules, in several networks."""
    four = scaled([10, 40, 20, 30], list("ABAC"))
    wrapped = make_recording(18)
    layers = tuple(replace(one, path=f"/predictor{one.path}") for one in wrapped.layers)
    parts = tuple(Layer(at, f"/conv{at}", "ReLU") for at in range(60))
    return {
        "three of four": (four, "top:3"),
        "two of four": (four, "top:2"),
        "none": (make_recording(6), "1s"),
        "of a training": (make_training(), "0.3ms"),
        "beside the network": (make_training(), "pareto:100%"),
        "a wrapped network": (replace(wrapped, layers=layers), "top:9"),
        "many parts": (Recording(parts, np.ones((3, 60), np.int64)), "top:60"),
    }
