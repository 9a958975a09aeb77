"""Which parts, tables and boxes there are of a run, and what is left out of large ones."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.ranks import training as ranks_of
from chainer_profile import summarise
from chainer_profile.analyse.summary import Summary
from chainer_profile.ranks.merging import merge
from chainer_profile.record.inside import Stack
from chainer_profile.record.recording import Environment, Layer, LinkCalls, Recording, Settings
from chainer_profile.report.content import boxes as of_run
from chainer_profile.report.content import comparison, ranks
from chainer_profile.report.content.budget import picture_of
from chainer_profile.report.content.layer_section import MAX_ROWS
from chainer_profile.report.content.pass_section import memory_on_page
from chainer_profile.report.content.profile import Beside, ReportTitle, overview, page, report
from chainer_profile.report.document import (
    Block,
    Boxes,
    Code,
    Figure,
    Fold,
    Heading,
    Lines,
    Points,
    Text,
    plain,
)
from chainer_profile.report.pictures import ranks_trace, stacks, trace
from tests.analyse import test_inside
from tests.conftest import make_layers, make_recording, make_training
from tests.goldens.keeping import listed
from tests.goldens.words import PARTS, UNTIMED, fast
from tests.ranks.test_merging import two
from tests.report import tracing
from tests.report.documents import compared, program
from tests.report.working import (
    DEVICE_BOUND,
    launching,
    make_device_recording,
    training,
    with_work,
    working,
)


def _short(words: str) -> str:
    return words if len(words) < 50 else f"{words[:50]}…"


def _outline(blocks: Iterable[Block]) -> Iterator[str]:
    for block in blocks:
        if isinstance(block, Heading):
            yield f"{'#' * block.level} {block.text}"
        elif isinstance(block, Text):
            yield _short(f"{'! ' if block.note else ''}{plain(block.words)}")
        elif isinstance(block, Points | Lines | Code):
            yield type(block).__name__
        elif isinstance(block, Figure):
            yield f"figure {block.file}"
        elif isinstance(block, Boxes):
            yield f"{len(block.boxes)} boxes: {block.label}"
        elif isinstance(block, Fold):
            yield f"folded{' warning' * block.warning}: {_short(plain(block.line))}"
            yield from (f"  {line}" for line in _outline(block.blocks))
        else:
            cells = block.cells()
            first = [row[0].strip() for row in cells]
            some = first if len(first) < 15 else [*first[:4], "…", *first[-3:]]
            heads = ", ".join(column.name for column in block.columns)
            yield f"{block.caption}: {len(cells)} rows of {heads}"
            yield f"  {'; '.join(some)}"
            yield from filter(None, [f"  {block.notes()}" if block.legend else ""])


@listed()
def outlines() -> dict[str, Iterable[str]]:
    """The parts of what is shown."""
    layers = tuple(Layer(at, f"/l{at}", "ReLU") for at in range(MAX_ROWS + 50))
    flat = make_recording(len(layers), n_trials=3, layers=layers)
    many = make_recording(MAX_ROWS + 10, n_trials=3)
    late = [replace(x, phase="backward" if x.index > 100 else "forward") for x in many.layers]
    one = (Layer(0, "/", "F"),)
    bare: dict[str, Any] = {**UNTIMED, "settings": Settings(), "environment": Environment()}
    runs = {
        "forward": (working(), page),
        "a GPU": (launching(), page),
        "an engine": (summarise(fast()), page),
        "trials left out": (summarise(make_recording(left_out=60)), page),
        "no limits": (working(limits=None), report),
        "no memory": (working(memory=None), report),
        "memory alone": (summarise(replace(with_work(make_recording()),
                                           layers=make_recording().layers)), report),
        "bare": (summarise(make_recording(2, n_trials=1, **bare)), report, overview, page),
        "a layer at the root": (summarise(make_recording(1, layers=one)), report, page),
        "phases not known": (summarise(make_training(phases=(), framework_ns=None)), report),
        "links not known": (summarise(make_training(links=())), overview),
        "40 layers": (summarise(make_recording(40, n_trials=3)), report),
        "a flat network": (summarise(flat), report),
        "2,000 layers": (summarise(make_recording(2000, n_trials=2)), report, overview, page),
        "of several phases": (summarise(replace(many, layers=tuple(late)), "top:60"), report),
        "all hot": (summarise(many, "pareto:100%"), report),
    }  # fmt: skip
    found = {
        f"{name}: {form.__name__}": _outline(form(summary))
        for name, (summary, *forms) in runs.items()
        for form in forms
    }
    step = training()
    for limit in (0, 3):
        shown = overview(step, limit=limit, group_by="block", tree=limit == 0, depth=limit)
        found[f"limited to {limit}"] = _outline(shown)
    titled = report(step, ReportTitle(author="A"), files=False, beside=Beside(budget=program()))
    found["with a program"] = _outline(titled)
    known = merge(two(arrived_ns=None, left_ns=None))
    found["ranks, arrivals not known"] = _outline(ranks.merged(known))
    found["many ranks"] = _outline(ranks.merged(merge(ranks_of(20, 60, 8, slow={13: 2.0})), 2))
    found["changed layers"] = _outline(comparison.compared(compared(), everything=True, limit=5))
    return found


def _boxes(pictures: Iterable[Block | tuple[str, Block]]) -> Iterator[str]:
    for one in pictures:
        picture = one[1] if isinstance(one, tuple) else one
        if isinstance(picture, Boxes):
            yield f"{picture.label}. {picture.caption}"
            if list(picture.legend) != [(box.said, box.kind) for box in picture.boxes]:
                yield f"legend: {list(picture.legend)}"
            for box in picture.boxes:
                yield (f"{'  ' * (box.row + 1)}{box.left:.4f} + {box.width:.4f} {box.kind}: "
                       f"{box.said}{f' ({box.name})' * bool(box.name)}")  # fmt: skip


def _all_boxes(summary: Summary) -> Iterator[str]:
    yield from _boxes([*of_run.parts(summary), *of_run.timeline(summary), *of_run.links(summary)])


def nested() -> Recording:
    """Calls three deep."""
    parents = (None, 0, 1, 1, None, None)
    layers = [replace(x, parent=up) for x, up in zip(make_layers(6), parents, strict=True)]
    return make_recording(layers=tuple(layers))


def deep() -> Recording:
    """Links on nine levels."""
    layers = [Layer(i, "/" + "/".join("abcdefghi"[: i + 1]), "ReLU") for i in range(9)]
    links = [LinkCalls("/" + "/".join("abcdefghi"[:i]), "Chain", 1, 0) for i in range(10)]
    return make_recording(9, layers=tuple(layers), links=tuple(links))


@listed()
def boxes() -> dict[str, Iterable[str]]:
    """Pictures made of boxes."""
    use = training().recording.memory
    assert use is not None
    memory = replace(use, gradient_nbytes=3 << 20, state_nbytes=6 << 20)
    functions = tuple(replace(x, function=f"F{x.index}") for x in make_layers(12))
    alike = make_recording(12, layers=functions, self_ns=np.full((100, 12), 1000), **UNTIMED)
    return {
        "training": _all_boxes(summarise(make_training(data=True))),
        "on a GPU": _all_boxes(launching()),
        "calls in calls": _all_boxes(summarise(nested())),
        "links in links": _all_boxes(summarise(deep())),
        "many functions": _boxes(of_run.parts(summarise(alike))),
        "memory": _boxes(memory_on_page(training(memory=memory))),
        "a program": _boxes(picture_of(replace(program(), spent=PARTS))),
        "ranks": _boxes(ranks.bars(merge(ranks_of(3, 30, 5, planted_ms={(2, 1): 10.0})))),
        "many ranks": _boxes(ranks.bars(merge(ranks_of(40, 11, 4, planted_ms={(33, 0): 50.0})))),
    }


def _traced(text: str, *other: str) -> Iterator[str]:
    """Blocks as they lie in each other, counters, and arrows."""
    found = tracing.read(text)
    for (pid, track), blocks in found.tracks.items():
        yield f"{found.processes[pid]}, {track}"
        for block in blocks:
            within, depth = block.outer, 1
            while within is not None:
                within, depth = within.outer, depth + 1
            args = ", ".join(f"{name} {value}" for name, value in block.args.items())
            place = f"{block.begin} to {block.end}"
            yield f"{'  ' * depth}{place} {block.category} {block.name}: {args}"
    for (_, name), values in found.counters.items():
        yield f"{name}: {', '.join(f'{value} at {at}' for at, value in values)}"
    for begin, end in found.arrows.values():
        yield (f"{begin['name']}: {begin['block'].name} at {begin['ts']} of {begin['pid']} to "
               f"{end['block'].name} at {end['ts']} of {end['pid']}")  # fmt: skip
    for name in other:
        yield f"{name}: {found.other[name]}"


def _recorded(
    layers: Sequence[Layer], times: Sequence[int], trial: int, links: Any = (), **between: int
) -> Summary:
    """One trial of these times, and framework time by phase."""
    given = {"self_ns": np.array([times]), "trial_ns": np.array([trial])}
    made = make_recording(
        len(layers), 1, layers=tuple(layers), start_ns=np.array([0]), links=links, **given
    )
    if between:
        known = {"phases": tuple(between), "framework_ns": np.array([[*between.values()]])}
        made = replace(made, **known)
    return summarise(made)


@listed()
def traces() -> dict[str, Iterable[str]]:
    """Trials in time, and stacks for flame graphs."""
    a_block = (LinkCalls("/a", "Block", 3, 5),)
    by_hand = _recorded(
        (Layer(0, "/a/conv", "Convolution2DFunction", flops=12, input_shapes=((1, 2), (3,))),
         Layer(1, "/a", "ReLU", calls=2), Layer(2, "/b", "Outer"),
         Layer(3, "/b", "Inner", parent=2)), (100, 20, 10, 7), 145, links=a_block,
    )  # fmt: skip
    outer = Layer(0, "/a", "Outer"), Layer(1, "/a", "Inner", parent=0)
    equal = _recorded((*outer, Layer(2, "/b/c", "Inner", parent=0), Layer(3, "/a", "Outer")),
                      (1, 2, 4, 8), 15)  # fmt: skip
    back = Layer(2, "/a", "F", "backward")
    calls = Layer(0, "/a", "F"), Layer(1, "/b", "F")
    by_phase = _recorded((*calls, back), (10, 10, 10), 60, update=5, forward=7, backward=4)
    parts = calls[0], replace(back, index=1), replace(calls[0], index=2)
    in_two = _recorded(parts, (1, 1, 1), 11, forward=4, backward=4)
    within = [replace(x, parent=0 if x.index == 1 else None) for x in make_layers(3)]
    memory = with_work(make_recording(3, n_trials=5, layers=tuple(within)))
    device = summarise(make_device_recording(DEVICE_BOUND, wait_us=26_300, n_trials=3))
    step = summarise(make_training(2))
    seen = Stack((2, 0), 0.006, 600, row=0), Stack((2, 1), 0.002, 200, row=0), Stack((3,), 0.001, 9)
    return {
        "by hand": _traced(trace.render(by_hand), "places", "settings", "environment", "trials"),
        "framework by phase": _traced(trace.render(by_phase)),
        "a phase in two parts": _traced(trace.render(in_two)),
        "a training step": _traced(trace.render(step, 1), "shown"),
        "a GPU": _traced(trace.render(device, 2), "places", "environment", "shown"),
        "memory": _traced(trace.render(summarise(memory)), "places"),
        "ranks": _traced(ranks_trace.render(merge(two())), "iteration"),
        "stacks of a training step": stacks.render_folded(step).splitlines(),
        "stacks of equal calls": stacks.render_folded(equal).splitlines(),
        "stacks that go on inside": stacks.render_folded(
            summarise(test_inside.recording(*seen))).splitlines(),
    }  # fmt: skip
