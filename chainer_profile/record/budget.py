"""Where the whole time of a program went."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from chainer_profile.basics.files import as_json
from chainer_profile.record.parts import Escaped

FORMAT = "chainer-profile budget"
VERSION = 1
#: The file, in a run's folder.
BUDGET = "budget.json"

START = "start of Python"
IMPORTS = "imports"
DATA = "data"
ITERATIONS = "iterations"
CALLS = "calls of networks"
EVALUATION = "evaluation"
EXTENSIONS = "extensions"
SNAPSHOTS = "snapshots"
REST = "the script's own code"
PROFILER = "profiler"
#: Names of snapshots: those of Chainer's function, which compresses unless it is asked not to.
SAVE_NPZ, SAVE_NPZ_PLAIN = "save_npz", "save_npz(compression=False)"
#: What the profiler does after the program, the last of which no report can tell of itself.
SAVING, REPORTS = "saving", "making the reports"
#: Outcome of a program that has not ended.
RUNNING = "running"
#: Between a package and one that it imports.
BENEATH = " > "
#: What other threads call, beside networks.
UPDATES = "updates of optimizers"
#: The parts of a budget, in the order in which they are told.
PARTS = (
    *(START, IMPORTS, DATA, ITERATIONS, CALLS, EVALUATION, EXTENSIONS, SNAPSHOTS, REST),
    PROFILER,
)


@dataclass(frozen=True)
class Spent(Escaped):
    """Time that went to one of :data:`PARTS`, or to one thing of it, without others within it.

    The name is that of a package that was imported (``nltk > scipy`` for one that it imports), or
    of an extension; empty for the part as such. The count is 0 where it says nothing.
    """

    part: str
    name: str
    ns: int
    count: int = 0


#: What ran at a sample: a network, whose rows tell its time, data loading, or other code.
NETWORK, LOADING, OTHER = "network", "data", "other"


@dataclass(frozen=True)
class Sampled(Escaped):
    """A Python function in which samples of the main thread found one of :data:`PARTS`.

    ``where`` is :data:`LOADING` or :data:`OTHER`, and :data:`NETWORK` without a function. The time
    is that between samples, whose shares of a part are about those of its time.
    """

    part: str
    name: str
    where: str
    function: str  #: ``train.py:30 accuracy``; empty for all others together.
    ns: int
    samples: int


@dataclass(frozen=True)
class Trials(Escaped):
    """Where the recording is of trials whose time is in a part of a budget."""

    part: str
    name: str
    folder: str  #: From the folder of the budget.


@dataclass(frozen=True)
class Extension(Escaped):
    """What decides how often an extension of a Trainer does its work, and how."""

    name: str  #: That of its account.
    kind: str  #: How it is made, such as ``extensions.PlotReport``.
    period: float  #: It works once in so many units; 0 where its trigger is of another kind.
    unit: str  #: ``epoch`` or ``iteration``.
    times: int  #: How often it worked.
    #: Its own argument that says so, such as PlotReport's ``trigger``; empty for that of
    #: ``Trainer.extend``.
    argument: str = ""
    compresses: bool = False  #: Whether it compresses what it saves.


@dataclass(frozen=True)
class Budget(Escaped):
    """The wall time of a program, from the start of the process to the script's end.

    ``wall_ns`` is the sum of what was ``spent`` for the parts: the start of Python (until the
    profiler's first line), imports by package, data (sets that were made or loaded before a
    training), iterations of trainings with all that is in them, calls of networks outside of any,
    evaluation, extensions of a Trainer by name, snapshots saved or loaded, the script's own code
    (all else), and what the profiler added. What other threads called is counted alone, in
    ``untimed``. ``ended`` is the last moment that is known of (UTC), and ``outcome`` is ``running``
    where it was killed. ``extensions`` has those of trainings that have ended. ``unmeasured`` has
    what of the parts went to calls of networks that no recording has.
    """

    script: str
    started: str
    ended: str
    outcome: str
    wall_ns: int
    spent: tuple[Spent, ...]
    untimed: dict[str, int] = field(default_factory=dict)
    sampled: tuple[Sampled, ...] = ()
    trials: tuple[Trials, ...] = ()
    extensions: tuple[Extension, ...] = ()
    unmeasured: tuple[Spent, ...] = ()

    def part(self, part: str) -> tuple[Spent, ...]:
        """What was spent for a part, the most first."""
        return tuple(
            sorted((one for one in self.spent if one.part == part), key=lambda one: -one.ns)
        )

    def of(self, part: str) -> Spent:
        found = self.part(part)
        return Spent(part, "", sum(one.ns for one in found), sum(one.count for one in found))


def write_json(budget: Budget) -> str:
    return as_json({"format": FORMAT, "version": VERSION, **vars(budget)})


def read_budget(folder: Path) -> Budget | None:
    """The budget in a run's folder; None where there is none."""
    # With NumPy, which is to be imported by the program's account when its budget is kept.
    from chainer_profile.record.versioned import read_beside

    return read_beside(folder / BUDGET, Budget, FORMAT, VERSION)
