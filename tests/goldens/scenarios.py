"""What is shown of runs made by hand, in every form that readers meet: what the goldens keep."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from chainer_profile import summarise
from chainer_profile.advice.changes import Candidate
from chainer_profile.advice.results import Advice, LayerGain, Tried
from chainer_profile.analyse.changes import Untried
from chainer_profile.analyse.findings import Change
from chainer_profile.comparison.compare import compare
from chainer_profile.engines.results import Speedup
from chainer_profile.record.inside import Stack
from chainer_profile.record.recording import Recording, Settings
from chainer_profile.report import views
from chainer_profile.report.columns import LAYER_COLUMNS, LINK_COLUMNS, link_frame
from chainer_profile.report.content import (
    advice,
    budget,
    comparison,
    engines,
    history,
    network,
    profile,
    ranks,
    sweep,
)
from chainer_profile.report.content.profile import Beside, ReportTitle, report
from chainer_profile.report.content.result_section import target
from chainer_profile.report.document import Block, Heading
from chainer_profile.report.tables import to_csv
from chainer_profile.report.writers import html, json_report, latex, markdown, terminal
from tests.analyse import test_inside
from tests.conftest import make_recording, make_training
from tests.counting import counters
from tests.engines.fake_engines import recordings, result
from tests.fusing import chainer_run, engine_run, in_threes
from tests.goldens.keeping import Kept, of_files
from tests.report import documents as made
from tests.report.working import (
    DEVICE_BOUND,
    make_device_recording,
    make_device_training,
    with_work,
)

ACCELERATED = Tried(
    Candidate("accelerate()", "it pays", "chainer_profile.accelerate()", Change(kernels="numpy")),
    wall=Speedup(2.4, 2.2, 2.6),
    cpu=Speedup(2.5, 2.4, 2.6),
    pairs=8,
    confirmed=True,
    before_s=24e-3,
    after_s=10e-3,
    layers=(LayerGain("forward", "0_Conv", "/conv1", 4e-3, 1e-3),),
)
_KEPT = replace(ACCELERATED.candidate, name="memory kept")
ADVICE = Advice(
    (
        ACCELERATED,
        replace(ACCELERATED, candidate=_KEPT, cpu=Speedup(1.0, 0.99, 1.01), confirmed=False),
        replace(ACCELERATED, candidate=_KEPT, cpu=Speedup(1.1, 0.9, 1.3), confirmed=False),
        Tried(replace(_KEPT, name="openvino"), error="its process ended (exit code 3)"),
    ),
    (Untried("float16", "NumPy computes it in software"),),
    settings=Settings(model="net", phase="train", threads=1, command="profile.py --phase train"),
    budget_s=180.0,
    took_s=172.0,
)
TITLE = ReportTitle("A title", "Ada", "Systems", "today")
#: Where a terminal shows several things after each other.
LINE = "\n" + "=" * 80 + "\n"


def _csv(*tables: tuple[Any, Any]) -> str:
    return "\n".join(to_csv(columns, rows) for columns, rows in tables)


def _terminal(*shown: Iterable[Block]) -> str:
    return LINE.join(terminal.written(blocks, 80) for blocks in shown)


def _under(blocks: Iterable[Block], *headings: str) -> Iterable[Block]:
    """The sections with these headings."""
    shown = False
    for block in blocks:
        if isinstance(block, Heading):
            shown = block.text in headings
        if shown:
            yield block


def of_run(recording: Recording, rule: str = "pareto:50%", *ends: str, files: bool = False) -> Kept:
    """A run: its report, the first screen, and files with all digits that are asked for."""
    summary = summarise(recording, rule)
    tables = (LAYER_COLUMNS, summary.layers), (LINK_COLUMNS, link_frame(summary.links))
    known = {"csv": lambda: _csv(*tables), "json": lambda: json_report.render(summary)}
    return {
        "md": markdown.write(report(summary, TITLE if files else None, files=files)),
        "txt": _terminal(profile.brief(summary)),
        **{end: known[end]() for end in ends},
    }


@of_files
def forward() -> Kept:
    recording = with_work(make_recording(9, n_trials=40))
    first, *others = recording.layers
    recording = replace(recording, layers=(replace(first, work_is_about=True), *others))
    summary = summarise(recording, "top:2")
    kept = of_run(recording, "top:2", "csv", files=True)
    more = _under(
        profile.overview(summary, sort="memory", limit=3, group_by="shape", macs=True),
        *("The layers", "By shape", "Work and limits"),
    )
    lines = f"{views.recording_line(recording)}\n{views.summary_line(summary)}\n"
    kept["txt"] += LINE + _terminal(more) + LINE + lines
    drawn = _under(profile.page(summary), "All layers", "Tree of links", "In time")
    kept["html"] = html.write(drawn)
    return kept


@of_files
def training() -> Kept:
    recording = with_work(make_training(10, data=True))
    summary = summarise(recording, "0.3ms")
    kept = of_run(recording, "0.3ms", "csv", "json", files=True)
    full = profile.overview(summary)
    tree = _under(
        profile.overview(summary, tree=True, depth=1, limit=3, group_by="block", sort="std"),
        *("The tree of links", "By block"),
    )
    shapes = _under(profile.overview(summary, group_by="shape"), "By shape")
    kept["txt"] += LINE + _terminal(full, tree, shapes, target(summary, 3e-3))
    kept["tex"] = latex.write(
        profile.tables(summary),
        title=TITLE.title,
        prefix=profile.prefix(summary),
        by_whom=TITLE.rows(),
    )
    return kept


@of_files
def gpu() -> Kept:
    recording = make_device_recording(n_trials=30)
    kept = of_run(recording, "pareto:50%", "csv", "json")
    kept["txt"] += LINE + _terminal(profile.overview(summarise(recording)))
    return kept


@of_files
def gpu_training() -> Kept:
    kept = of_run(make_device_training(30))
    busy = summarise(make_device_recording(DEVICE_BOUND, wait_us=26_300, n_trials=30))
    kept["txt"] += LINE + _terminal(profile.brief(busy))
    return kept


@of_files
def counted() -> Kept:
    recording = make_recording(3, n_trials=30)
    found = counters(recording, waits=3, preemptions=1)
    return of_run(replace(recording, counters=found), "pareto:50%", "csv", "json")


@of_files
def inside() -> Kept:
    stacks = Stack((2, 0), 0.006, 600, row=0), Stack((2, 1), 0.002, 200, row=0)
    others = Stack((2, 1), 0.001, 100, row=1), Stack((3,), 0.001, 150), Stack((4,), 0.001, 150)
    notes = ("lines are not told",)
    recording = test_inside.recording(*stacks, *others, notes=notes)
    return of_run(recording, "pareto:50%", "json")


@of_files
def engine() -> Kept:
    return of_run(recordings()["fast"], "pareto:50%", "csv")


@of_files
def ended() -> Kept:
    """A run that says little: interrupted, with trials left out, and few trials."""
    recording = make_recording(5, n_trials=3, n_clean=0, left_out=60, ended="interrupted by SIGINT")
    return of_run(replace(recording, settings=Settings(inclusive=True)))


@of_files
def compared() -> Kept:
    one = made.compared()
    gate = comparison.Gate(0.05)
    chainer = chainer_run()
    fused = compare(chainer, engine_run(chainer_run(2), [(), *in_threes()[:-1], (21, 22)]))
    both = [one, fused]
    return {
        "md": markdown.write(comparison.report(both, plots=["p 1.png", "2.png"], gate=gate)),
        "txt": _terminal(comparison.compared(one, limit=1), comparison.compared(fused))
        + LINE
        + f"{views.comparison_line(one)}\n",
        "csv": _csv((comparison.COLUMNS, comparison.file_rows(both))),
    }


@of_files
def of_engines() -> Kept:
    run, known = made.engines_run()
    first, fast, *others = run.engines
    known_memory = replace(first, memory_nbytes=3 << 20)
    served = replace(fast, jobs=2, served_per_s=19_000.0)
    run = replace(run, engines=(known_memory, served, result("third", 77), *others))
    return {
        "md": markdown.write(engines.report(run, known)),
        "txt": _terminal(engines.overview(run, known)),
        "csv": engines.to_file(run, known),
    }


@of_files
def of_ranks() -> Kept:
    found = made.merged_ranks()
    return {
        "md": markdown.write(ranks.report(found)),
        "txt": _terminal(ranks.merged(found, 3, "--limit 0 shows all")),
        "csv": f"{ranks.layers_csv(found)}\n{ranks.collectives_csv(found)}",
    }


@of_files
def swept() -> Kept:
    cases, runs = made.cases(), made.runs()
    return {
        "md": markdown.write(sweep.report("r3", cases, 4, "python profile.py", ["a-b.png"]))
        + markdown.write(history.overview(runs, 3)),
        "txt": _terminal(sweep.overview(cases), history.overview(runs)),
        "csv": _csv((sweep.COLUMNS, cases), (history.COLUMNS, runs)),
    }


@of_files
def program() -> Kept:
    short, training = summarise(make_recording(3)), summarise(make_training(10))
    spent = made.program()
    return {
        "md": markdown.write(report(short, files=False, beside=Beside(ADVICE, spent)))
        + markdown.write(advice.report(ADVICE)),
        "txt": _terminal(budget.overview(spent, training), profile.brief(short, advice=ADVICE)),
    }


@of_files
def of_network() -> Kept:
    one = made.a_network()
    return {
        "md": markdown.write(network.overview(one, view=network.LINKS, limit=1)),
        "txt": _terminal(network.overview(one)),
        "csv": network.to_file(one) + network.to_file(one, view=network.LINKS),
    }
