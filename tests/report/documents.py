"""Every kind of document that is shown or written, for hand-made recordings and for recordings in
which every name is hostile.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import chainer.functions as F
import chainer.links as L
import numpy as np

import chainer_profile
from benchmarks.ranks import training
from chainer_profile.analyse.case_result import CaseResult
from chainer_profile.analyse.program import ProgramTime
from chainer_profile.analyse.summaries import summarise
from chainer_profile.analyse.summary import Summary
from chainer_profile.comparison.compare import Comparison, compare
from chainer_profile.comparison.sides import Side
from chainer_profile.engines.results import EnginesRun
from chainer_profile.ranks.merging import Ranks, merge
from chainer_profile.record.budget import OTHER, PARTS, Budget, Sampled, Spent
from chainer_profile.record.network import ModelSummary
from chainer_profile.record.recording import Environment, LinkCalls, Recording, Settings
from chainer_profile.report.content import budget, comparison, engines, network, ranks, sweep
from chainer_profile.report.content.gate import Gate
from chainer_profile.report.content.profile import ReportTitle, overview, report
from chainer_profile.report.document import Block
from tests.comparing import run, scaled
from tests.conftest import FakeClock, make_recording, make_training
from tests.engines.fake_engines import MISSING, WRONG, make_run, recordings
from tests.nets import Wait, net
from tests.report.working import make_device_recording, make_device_training, with_work
from tests.sweeping import make_run as make_case

NAMES = (
    *("<script>alert(1)</script>", "\"quotes\" & 'apostrophes' <b>", "=cmd|' /C calc'!A0", "+1"),
    *("-1", "@SUM(A1:A9)", "\t=1", "\r=1", " =1", "'=1", "\uff1dcmd", "\u202egnp.exe", "\x1b[31m"),
    *("$\\frac{1}{0$", "{braces}{0}%s%(x)s", "back\\slash\nline", "a|b`c*d_e[f](g)#h~i", "x " * 99),
    *("名前", "עברית العربية", "\ud800", "x" * 300, "%", "..", "_hidden", "]]>", "<!--", "&lt;"),
    *("\u2028", "\x00", "\ufffe", "```", "javascript:alert(1)", "[red]x[/red]"),
    *("🙂 \u200f!", "[x](javascript:1)", "![x](http://a/b.png)", "`"),
    *("[[a](b", "**bold** _it_ __init__ a_b_", "- item", "1. item", "1)", "# head", "head #"),
    *("~~gone~~", "</style></table>", "{{7*7}} ${x} \\(x\\)", "a\\", "`` ` ``", "http://a.b"),
    *("<http://a>", "&amp;#39;", "| |", "---", "***", "> x", "[f]: http://a", "[ms]", "[ms][x]"),
    "x [ms](y)",
)


def named(recording: Recording, names: Sequence[str]) -> Recording:
    """Return the recording with every name replaced by one of ``names``, if there are any."""
    if not names:
        return recording
    every = "".join(names)
    layers = tuple(
        replace(layer, path=f"/{name}", function=name, node=layer.node and name)
        for layer, name in zip(recording.layers, names * len(recording.layers), strict=False)
    )
    wanted = ["model", "input", "command", "weights", "loss", "optimizer", "device"]
    wanted += ["engine"] if recording.settings.engine else []
    settings = replace(recording.settings, **dict.fromkeys(wanted, every))
    machine = dict.fromkeys(("processor", "python", "commit", "system"), every)
    environment = replace(recording.environment, **machine)
    links = (LinkCalls("/", every, 1, 0), *(LinkCalls(f"/{name}", name, 1, 1) for name in names))
    changes = {"settings": settings, "environment": environment, "links": links, "ended": every}
    return replace(recording, layers=layers, **changes)


def profiles(names: Sequence[str] = ()) -> dict[str, Callable[[], Summary]]:
    def of(make: Callable[[], Recording]) -> Callable[[], Summary]:
        return lambda: summarise(named(make(), names))

    count = len(names) or 9
    return {
        "forward": of(lambda: with_work(make_recording(count, n_trials=5))),
        "train": of(lambda: with_work(make_training(4, data=True))),
        "gpu": of(lambda: make_device_recording()),
        "engine": of(lambda: recordings()["fast"]),
    }


NO_TRIALS: dict[str, Any] = {"trial_ns": None, "start_ns": None}
NO_PHASES: dict[str, Any] = {"phases": (), "framework_ns": None}
BARE = Recording(make_recording(2).layers, np.array([[5000, 1000]]))
#: Runs that lack some measurement.
LACKING: dict[str, Callable[[], Recording]] = {
    "bare": lambda: BARE,
    "ended": lambda: replace(BARE, ended="failed: MemoryError", settings=Settings(trials=9)),
    "one layer": lambda: make_recording(1),
    "one trial": lambda: make_recording(n_trials=1),
    "one of each": lambda: make_recording(n_trials=1, n_clean=1),
    "no unprofiled trials": lambda: make_recording(n_clean=0),
    "functions only": lambda: make_recording(n_clean=0, **NO_TRIALS),
    "no begins": lambda: make_recording(start_ns=None),
    "no time": lambda: make_recording(n_trials=5, self_ns=np.zeros((5, 6), np.int64)),
    "no time at all": lambda: Recording(make_recording(1).layers, np.zeros((3, 1), np.int64)),
    "no settings": lambda: make_recording(settings=Settings(), environment=Environment()),
    "no memory": lambda: with_work(make_recording(3), memory=None),
    "no limits": lambda: with_work(make_recording(3), limits=None),
    "steps, no trials": lambda: make_training(**NO_TRIALS),
    "steps, no phases": lambda: make_training(**NO_PHASES),
    "steps, no links": lambda: make_training(links=()),
    "steps, functions only": lambda: make_training(links=(), **NO_TRIALS, **NO_PHASES),
    "one step": lambda: make_training(n_trials=1),
    "gpu, no held trials": lambda: make_device_training(n_held=0),
    "1,000 layers": lambda: with_work(make_recording(1000, n_trials=2, n_clean=0)),
}


def compared(names: Sequence[str] = ()) -> Comparison:
    count = len(names) or 24
    before, after = (named(run(seed, count, n_trials=60), names) for seed in (1, 2))
    after = scaled(after, {3: 1.5, 7: 0.6})
    if names:
        after = replace(after, layers=(*after.layers[:-1], replace(after.layers[-1], path="/new")))
    every = "".join(names)
    return compare(Side(every or "A", (before,)), Side(every * 2 or "B", (after,)))


def engines_run() -> tuple[EnginesRun, dict[str, Recording]]:
    return make_run(WRONG, MISSING, replace(MISSING, name="odd", note="it broke")), recordings()


def cases() -> list[CaseResult]:
    """Cases of a sweep."""
    large = {"input_shape": (3, 1024, 2048), "memory_nbytes": None}
    failed = make_case("resnet34", error="out of memory | =1", timed=0)
    other = make_case("vgg", 61.397, phase="train", clean=False, machine="other", **large)
    return [make_case(), other, make_case(dtype="mixed16"), failed]


def merged_ranks(names: Sequence[str] = (), *, several_hosts: bool = False) -> Ranks:
    """Three ranks: one is slow and one has a straggler. A fourth rank is missing."""
    recordings = training(4, max(60, 3 * len(names)), 6, planted_ms={(0, 3): 20.0}, slow={2: 1.5})
    del recordings["rank-1"]
    every = "".join(names)
    for name, recording in recordings.items():
        assert recording.rank is not None
        host = f"{every or 'a host'} {name if several_hosts else ''}"
        rank = replace(recording.rank, host=host)
        recordings[name] = replace(named(recording, names), rank=rank)
    return merge(recordings, problems=[f"rank-9: {every}"] if names else ())


def a_network(n_layers: int = 1) -> ModelSummary:
    """A linear layer, functions with unknown cost, and a ReLU."""

    def forward(model: Any, x: Any) -> Any:
        x = model.fc(x)
        for _ in range(n_layers):
            (x,) = Wait(FakeClock(), 0).apply((x,))
        return F.relu(x)

    return chainer_profile.summary(net(forward, fc=L.Linear(3, 2)), (1, 3))


def program() -> Budget:
    """The time of a program, with time in every part and several names in most parts."""
    spent = [
        Spent(part, name, 10**9 * (index + 1) + 10**7 * number, 10 * index + number)
        for index, part in enumerate(PARTS)
        for number, name in enumerate(("", "numpy", "chainer") * (index > 0) or ("",))
    ]
    wall_ns = sum(each.ns for each in spent)
    how = "ValueError: no data"
    return Budget("train.py --epoch 2", "2026", "2027", how, wall_ns, tuple(spent))


def program_time(names: Sequence[str] = ()) -> ProgramTime:
    """The time of a program with rows of a training and functions found by sampling."""
    names = names or ("a.py:3 draw",)
    sampled = [Sampled("extensions", "", OTHER, name, 10**9, 100) for name in names]
    sampled.append(Sampled("extensions", "", OTHER, "", 10**8, 10))
    training = profiles(names)["train"]().recording
    budget = replace(program(), sampled=tuple(sampled))
    return ProgramTime(budget, {("iterations", ""): [training]})


#: Nanoseconds in a second.
S = 10**9


def documents(names: Sequence[str] = ()) -> dict[str, Callable[[], list[Block]]]:
    """A function for each document. With ``names``, only documents of recordings."""
    makers: dict[str, Callable[[], Iterable[Block]]] = {}
    every = "".join(names)
    title = ReportTitle(*(every or word for word in ("A title", "Ada", "Systems")))
    for kind, make in profiles(names).items():
        makers[f"{kind} report"] = lambda make=make: report(make(), title)
        makers[f"{kind} overview"] = lambda make=make: overview(make())
    train = profiles(names)["train"]
    how = {"plots": ["p 1.png", "2.png"], "limit": 1, "gate": Gate(0.05)}
    makers |= {
        "tree": lambda: overview(train(), tree=True, depth=1, limit=3, group_by="block"),
        "comparison report": lambda: comparison.report([compared(names)] * 2, **how),
        "comparison": lambda: comparison.comparison_blocks(compared(names), everything=True),
        "ranks report": lambda: ranks.report(merged_ranks(names)),
        "ranks of several hosts": lambda: ranks.report(merged_ranks(names, several_hosts=True)),
        "ranks": lambda: ranks.overview(merged_ranks(names), 3, "--limit 0 shows all"),
        "program": lambda: budget.overview(program_time(names), train()),
        "program in a report": lambda: budget.section(program_time(names), train()),
    }
    if not names:
        for view in (network.LAYERS, network.LINKS):
            makers[f"network {view}"] = partial(network.overview, a_network(), view=view, limit=2)
        makers |= {
            "engines report": lambda: engines.report(*engines_run()),
            "engines": lambda: engines.overview(*engines_run()),
            "sweep report": lambda: sweep.report("r3", cases(), 4, "profile.py", ["a-b.png"]),
            "sweep": lambda: sweep.overview(cases()),
        }
    return {name: lambda make=make: list(make()) for name, make in makers.items()}
