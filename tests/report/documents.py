"""Every kind of document that is shown or written, of runs made by hand; and the same of runs in
which all that has a name has a hostile one.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.ranks import training
from chainer_profile.analyse.case_result import CaseResult
from chainer_profile.analyse.program import ProgramTime
from chainer_profile.analyse.summaries import summarise
from chainer_profile.analyse.summary import Summary
from chainer_profile.comparison.compare import Comparison, Side, compare
from chainer_profile.engines.results import EnginesRun
from chainer_profile.ranks.merging import Ranks, merge
from chainer_profile.record.budget import OTHER, PARTS, Budget, Sampled, Spent
from chainer_profile.record.network import COUNTS, TEXTS, ModelSummary
from chainer_profile.record.recording import Environment, LinkCalls, Recording, Settings
from chainer_profile.report.content import budget, comparison, engines, network, ranks, sweep
from chainer_profile.report.content.profile import ReportTitle, overview, report
from chainer_profile.report.document import Block
from tests.comparing import run, scaled
from tests.conftest import make_recording, make_training
from tests.engines.fake_engines import MISSING, WRONG, make_run, recordings, result
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
    """A recording in which all that has a name has one of these, if there are any."""
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
#: Runs that lack something.
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


def engines_run(names: Sequence[str] = ()) -> tuple[EnginesRun, dict[str, Recording]]:
    chainer, fast = (recordings()[name] for name in ("chainer", "fast"))
    if not names:
        run = make_run(WRONG, MISSING, replace(MISSING, name="odd", note="it broke"))
        return run, {"chainer": chainer, "fast": fast}
    every = "".join(names)
    texts = {"version": every, "worst_layer": every, "note": every}
    parts = ["".join(names[at::4]) for at in range(4)]
    odd = [result(name, 50 + at, **texts, folder=name) for at, name in enumerate(parts)]
    missing = replace(MISSING, name=every, error=every, install=every)
    run = make_run(*odd, replace(WRONG, **texts), missing)
    renamed = {"chainer": named(chainer, names)}
    renamed |= dict.fromkeys(parts[:2], named(fast, names))
    return replace(run, settings=renamed["chainer"].settings, ended=every), renamed


def cases(names: Sequence[str] = ()) -> list[CaseResult]:
    """Cases of a sweep."""
    if not names:
        large = {"input_shape": (3, 1024, 2048), "memory_nbytes": None}
        failed = make_case("resnet34", error="out of memory | =1", timed=0)
        other = make_case("vgg", 61.397, phase="train", clean=False, machine="other", **large)
        return [make_case(), other, make_case(dtype="mixed16"), failed]
    texts = ("name", "machine", "processor", "blocks", "device", "phase", "dtype")
    good = [make_case(name, **dict.fromkeys(texts, name)) for name in names]
    return [*good, make_case(names[0], name=names[0], error="".join(names))]


def merged_ranks(names: Sequence[str] = (), *, several_hosts: bool = False) -> Ranks:
    """Three ranks, one of them slow and one with a straggler; a fourth is missing."""
    recordings = training(4, max(60, 3 * len(names)), 6, planted_ms={(0, 3): 20.0}, slow={2: 1.5})
    del recordings["rank-1"]
    every = "".join(names)
    for name, recording in recordings.items():
        assert recording.rank is not None
        host = f"{every or 'a host'} {name if several_hosts else ''}"
        rank = replace(recording.rank, host=host)
        recordings[name] = replace(named(recording, names), rank=rank)
    return merge(recordings, problems=[f"rank-9: {every}"] if names else ())


_ZEROS = dict.fromkeys(["parameters", "trainable", "persistent"], 0)


def network_row(path: str, function: str, flops: int | None, **more: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"path": path, "function": function, "input_shapes": ((1, 3),)}
    row |= {"output_shapes": ((1, 2),), "dtype": "float32", **_ZEROS, "macs": 0, "flops": flops}
    row |= {"nbytes_read": 12, "nbytes_written": 8, "nbytes_output": 8, "approximate": 0}
    if flops is None:
        row |= dict.fromkeys(["macs", "nbytes_read", "nbytes_written"])
    return row | more


def network_of(
    *rows: dict[str, Any], name: str = "net", kinds: dict[str, str] | None = None
) -> ModelSummary:
    table = pd.DataFrame(list(rows), columns=[*TEXTS, *COUNTS])
    table.index.name = "index"
    for column in ("macs", "flops", "nbytes_read", "nbytes_written"):
        table[column] = table[column].astype("Int64")
    kinds = kinds or {"/": "Net", "/fc": "Linear"}
    return ModelSummary(name, ((1, 3),), ("float32",), table, kinds, 12, 24, 8)


def a_network(names: Sequence[str] = ()) -> ModelSummary:
    own = {"parameters": 1_234_567, "trainable": 1_234_000, "persistent": 5, "macs": 6}
    own["approximate"] = 1
    if not names:
        odd = network_row("/", "Odd", None)
        return network_of(network_row("/fc", "Linear", 12, **own), odd, network_row("/", "ReLU", 2))
    rows = [network_row(f"/{name}", name, None, dtype=name) for name in names]
    kinds = {f"/{name}": name for name in names}
    return network_of(*rows, name="".join(names), kinds=kinds)


def program(names: Sequence[str] = ()) -> Budget:
    """The time of a program: something in every part, by several names in most."""
    every = "".join(names)
    spent = [
        Spent(part, name, 10**9 * (at + 1) + 10**7 * number, 10 * at + number)
        for at, part in enumerate(PARTS)
        for number, name in enumerate(names or ("", "numpy", "chainer") * (at > 0) or ("",))
    ]
    wall_ns = sum(each.ns for each in spent)
    how = every or "ValueError: no data"
    return Budget(every or "train.py --epoch 2", "2026", "2027", how, wall_ns, tuple(spent))


def program_time(names: Sequence[str] = ()) -> ProgramTime:
    """The same with a training's rows in it, and functions that samples found."""
    budget, training = program(names), profiles(names)["train"]().recording
    sampled = (
        *(Sampled("extensions", "", OTHER, name, 10**9, 100) for name in names or ("a.py:3 draw",)),
        Sampled("extensions", "", OTHER, "", 10**8, 10),
    )
    return ProgramTime(replace(budget, sampled=sampled), {("iterations", ""): [training]})


#: A second in nanoseconds.
S = 10**9


def documents(names: Sequence[str] = ()) -> dict[str, Callable[[], list[Block]]]:
    """What makes each document."""
    made: dict[str, Callable[[], Iterable[Block]]] = {}
    every = "".join(names)
    title = ReportTitle(*(every or word for word in ("A title", "Ada", "Systems")))
    for kind, make in profiles(names).items():
        made[f"{kind} report"] = lambda make=make: report(make(), title)
        made[f"{kind} overview"] = lambda make=make: overview(make())
    for view in (network.LAYERS, network.LINKS):
        made[f"network {view}"] = partial(network.overview, a_network(names), view=view, limit=2)
    train, several, run = profiles(names)["train"], cases(names), engines_run(names)
    how = {"plots": ["p 1.png", "2.png"], "limit": 1, "gate": comparison.Gate(0.05)}
    command = every or "python profile.py"
    made |= {
        "tree": lambda: overview(train(), tree=True, depth=1, limit=3, group_by="block"),
        "comparison report": lambda: comparison.report([compared(names)] * 2, **how),
        "comparison": lambda: comparison.compared(compared(names), everything=True),
        "engines report": lambda: engines.report(*run),
        "engines": lambda: engines.overview(*run),
        "sweep report": lambda: sweep.report(every or "r3", several, 4, command, ["a-b.png"]),
        "sweep": lambda: sweep.overview(several),
        "ranks report": lambda: ranks.report(merged_ranks(names)),
        "ranks of several hosts": lambda: ranks.report(merged_ranks(names, several_hosts=True)),
        "ranks": lambda: ranks.merged(merged_ranks(names), 3, "--limit 0 shows all"),
        "program": lambda: budget.overview(program_time(names), train()),
        "program in a report": lambda: budget.section(program_time(names), train()),
    }
    return {name: lambda make=make: list(make()) for name, make in made.items()}


@cache
def document(name: str, *, hostile: bool = False) -> list[Block]:
    """One document; nothing changes it."""
    return documents(NAMES if hostile else ())[name]()
