"""Output about hand-made runs in every format, for the golden files."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from chainer_profile import summarise
from chainer_profile.advice.changes import BEFORE, UNCHANGED, WALL, Candidate
from chainer_profile.advice.results import Advice, ChangeResult, LayerGain, LossChange
from chainer_profile.analyse.changes import Untried
from chainer_profile.analyse.findings import Change
from chainer_profile.analyse.program import ProgramTime
from chainer_profile.analyse.summary import Summary
from chainer_profile.comparison.compare import compare
from chainer_profile.engines.results import Speedup
from chainer_profile.record.budget import CALLS, EXTENSIONS, ITERATIONS, OTHER, Sampled, Spent
from chainer_profile.record.recording import Recording, Settings
from chainer_profile.report import views
from chainer_profile.report.content import advice, budget, comparison, profile
from chainer_profile.report.content.comparison_tables import COLUMNS, file_rows
from chainer_profile.report.content.first_screen import first_screen
from chainer_profile.report.content.gate import Gate
from chainer_profile.report.content.profile import ReportTitle, report
from chainer_profile.report.content.related import RelatedResults
from chainer_profile.report.document import Block, Heading
from chainer_profile.report.tables import to_csv
from chainer_profile.report.writers import markdown, terminal
from chainer_profile.report.writers.csv_files import layers_csv, links_csv
from tests.conftest import make_recording, make_training
from tests.fusing import chainer_run, engine_run, groups_of_three
from tests.goldens.keeping import Kept, kept_files
from tests.report import documents as examples
from tests.report.working import with_work

ACCELERATED = ChangeResult(
    Candidate("accelerate()", "it pays", "chainer_profile.accelerate()", Change(kernels="numpy")),
    wall=Speedup(2.4, 2.2, 2.6),
    cpu=Speedup(2.5, 2.4, 2.6),
    pairs=8,
    confirmed=True,
    before_s=24e-3,
    after_s=10e-3,
    layers=(LayerGain("forward", "0_Conv", "/conv1", 4e-3, 1e-3),),
)
_THREAD, _BOTH = Change(threads=1), Change(threads=1, kernels="numpy")


def _interleaved(name: str, against: Change, **more: Any) -> ChangeResult:
    candidate = Candidate(name, "", "", _BOTH, against, decides=WALL)
    times: dict[str, Any] = {"pairs": 20, "layers": (), "before_s": 3.6e-3, "after_s": 1.5e-3}
    return replace(ACCELERATED, candidate=candidate, **times | more)


BY_TURNS = Advice(
    (
        _interleaved("one BLAS thread + accelerate()", UNCHANGED, loss=LossChange(0, -0.01, 0.01)),
        _interleaved("+ accelerate()", _THREAD, loss=LossChange(0.05, 0.04, 0.06)),
        _interleaved("+ memory kept", _THREAD, wall=Speedup(1.01, 0.97, 1.05)),
        _interleaved("+ slow", _THREAD, wall=Speedup(0.9, 0.88, 0.92)),
        _interleaved("+ broken", _THREAD, wall=None, error="MemoryError: no room"),
    ),
    (Untried('accelerate("torch")', "not installed: python -m pip install torch"),),
    settings=Settings(phase="train", command="chainer-profile run --try train.py"),
    script="train.py --epoch 2",
    lines=(
        (BEFORE, "OPENBLAS_NUM_THREADS=1 python train.py --epoch 2"),
        ("train.py:30", "with chainer_profile.accelerate():"),
    ),
    trials=3202,
    trials_s=12.05,
)
_KEPT = replace(ACCELERATED.candidate, name="memory kept")
ADVICE = Advice(
    (
        ACCELERATED,
        replace(ACCELERATED, candidate=_KEPT, cpu=Speedup(1.0, 0.99, 1.01), confirmed=False),
        replace(ACCELERATED, candidate=_KEPT, cpu=Speedup(1.1, 0.9, 1.3), confirmed=False),
        ChangeResult(replace(_KEPT, name="onnxruntime"), error="its process ended (exit code 3)"),
    ),
    (Untried("float16", "NumPy computes it in software"),),
    settings=Settings(model="net", phase="train", threads=1, command="profile.py --phase train"),
    budget_s=180.0,
    took_s=172.0,
)
TITLE = ReportTitle("A title", "Ada", "Systems")
#: A line between several parts of terminal output.
LINE = "\n" + "=" * 80 + "\n"


def _csv(summary: Summary) -> str:
    """Return layers and links as CSV."""
    return f"{layers_csv(summary)}\n{links_csv(summary)}"


def _terminal(*shown: Iterable[Block]) -> str:
    return LINE.join(terminal.written(blocks, 80) for blocks in shown)


def _under(blocks: Iterable[Block], *headings: str) -> Iterable[Block]:
    """Return the sections with these headings."""
    shown = False
    for block in blocks:
        if isinstance(block, Heading):
            shown = block.text in headings
        if shown:
            yield block


def render_run(recording: Recording, rule: str) -> tuple[Summary, Kept]:
    """Render a run: its report, the first screen, and its layers and links as CSV."""
    summary = summarise(recording, rule)
    markdown_text = markdown.write(report(summary, TITLE))
    screen = _terminal(first_screen(summary))
    return summary, {"md": markdown_text, "txt": screen, "csv": _csv(summary)}


@kept_files
def forward() -> Kept:
    recording = with_work(make_recording(9, n_trials=40))
    first, *others = recording.layers
    recording = replace(recording, layers=(replace(first, work_is_about=True), *others))
    summary, kept = render_run(recording, "top:2")
    more = _under(
        profile.overview(summary, sort="memory", limit=3, group_by="shape"),
        *("The layers", "By shape", "Work and limits"),
    )
    lines = f"{views.recording_line(recording)}\n{views.summary_line(summary)}\n"
    kept["txt"] += LINE + _terminal(more) + LINE + lines
    return kept


@kept_files
def training() -> Kept:
    summary, kept = render_run(with_work(make_training(10, data=True)), "0.3ms")
    tree = _under(
        profile.overview(summary, tree=True, depth=1, limit=3, group_by="block", sort="std"),
        *("The tree of links", "By block"),
    )
    shapes = _under(profile.overview(summary, group_by="shape"), "By shape")
    kept["txt"] += LINE + _terminal(tree, shapes)
    return kept


@kept_files
def compared() -> Kept:
    usual = examples.compared()
    gate = Gate(0.05)
    chainer = chainer_run()
    fused = compare(chainer, engine_run(chainer_run(2), [(), *groups_of_three()[:-1], (21, 22)]))
    both = [usual, fused]
    return {
        "md": markdown.write(comparison.report(both, plots=["p 1.png", "2.png"], gate=gate)),
        "txt": _terminal(
            comparison.comparison_blocks(usual, limit=1), comparison.comparison_blocks(fused)
        )
        + LINE
        + f"{views.comparison_line(usual)}\n",
        "csv": to_csv(COLUMNS, file_rows(both)),
    }


@kept_files
def program() -> Kept:
    # The two iterations of the memory pass are not recorded.
    short, training = summarise(make_recording(3)), summarise(make_training(3200))
    spent = examples.program()
    beside = [part for part in spent.spent if part.part not in (ITERATIONS, CALLS)]
    trials = Spent(ITERATIONS, "", 12_050_000_000, 3202), Spent(CALLS, "", 30_000_000, 5)
    wall_ns = sum(part.ns for part in (*beside, *trials))
    spent = replace(spent, spent=(*beside, *trials), wall_ns=wall_ns)
    sampled = (
        *(Sampled(EXTENSIONS, "", OTHER, f"train.py:{n} f{n}", 10**9 * n, 100) for n in (2, 4)),
        Sampled(EXTENSIONS, "", OTHER, "", 10**9, 100),
    )
    whole = ProgramTime(
        replace(spent, sampled=sampled),
        {(ITERATIONS, ""): [training.recording], (CALLS, ""): [short.recording]},
    )
    return {
        "md": markdown.write(report(short, related=RelatedResults(ADVICE, whole)))
        + markdown.write(advice.report(ADVICE))
        + markdown.write(advice.report(BY_TURNS, whole)),
        "txt": _terminal(
            budget.overview(whole, training), first_screen(short, RelatedResults(ADVICE))
        )
        + LINE
        + _terminal(budget.overview(whole, training, advice=BY_TURNS)),
        "csv": _csv(training),
    }
