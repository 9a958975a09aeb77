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
#: The file next to it with the changes that were tried, and their gains.
ADVICE = "advice.json"

START = "start of Python"
IMPORTS = "imports"
DATA = "data"
ITERATIONS = "iterations"
#: Iterations that the program left before their end.
INTERRUPTED = "interrupted iterations"
CALLS = "calls of networks"
#: Calls in test mode in a program that trains, outside of iterations and extensions.
TEST_CALLS = "test-mode calls"
#: Calls of links that call no function of Chainer, among the calls above.
WITHOUT_FUNCTIONS = "without functions"
EVALUATION = "evaluation"
EXTENSIONS = "extensions"
SNAPSHOTS = "snapshots"
REST = "the script's own code"
PROFILER = "profiler"
#: Names of snapshots by Chainer's function, which compresses unless it is asked not to.
SAVE_NPZ, SAVE_NPZ_PLAIN = "save_npz", "save_npz(compression=False)"
#: Work of the profiler after the program. No report can contain the time of the second itself.
SAVING, REPORTS = "saving", "making the reports"
#: Outcome of a program that has not ended.
RUNNING = "running"
#: Between a package and a package that it imports.
BENEATH = " > "
#: Operations of other threads are counted by these names: this one, and :data:`CALLS`.
UPDATES = "updates of optimizers"
#: The parts of a budget, in the order of reports.
PARTS = (
    *(START, IMPORTS, DATA, ITERATIONS, INTERRUPTED, CALLS, TEST_CALLS, EVALUATION, EXTENSIONS),
    *(SNAPSHOTS, REST, PROFILER),
)


@dataclass(frozen=True)
class Spent(Escaped):
    """Time of one of :data:`PARTS`, or of one thing in it, without the time of others within it.

    The name is that of an imported package (``nltk > scipy`` for a package that it imports) or of
    an extension; empty for the part itself. The count is 0 where it says nothing.
    """

    part: str
    name: str
    ns: int
    count: int = 0


#: The code that ran at a sample: a network, whose time is in its rows, data loading, or other code.
NETWORK, LOADING, OTHER = "network", "data", "other"


@dataclass(frozen=True)
class Sampled(Escaped):
    """A Python function that ran in one of :data:`PARTS` when the main thread was sampled.

    ``where`` is :data:`LOADING` or :data:`OTHER`, or :data:`NETWORK`, which has no function. The
    time is that between samples; its share of a part is approximate.
    """

    part: str
    name: str
    where: str
    function: str  #: ``train.py:30 accuracy``; empty for all others together.
    ns: int
    samples: int


@dataclass(frozen=True)
class Trials(Escaped):
    """The folder with the recording of trials whose time is in a part of a budget."""

    part: str
    name: str
    folder: str  #: From the folder of the budget.
    #: Examples that an iteration loads, and their bytes; 0 where that is not known.
    loaded: int = 0
    loaded_nbytes: int = 0
    #: Time in which Chainer's MultiprocessIterator moves as much from its processes to this one;
    #: 0 where that was not measured.
    moved_ns: int = 0
    #: Processor cores that no program used when that was measured.
    free_cores: float = 0.0


@dataclass(frozen=True)
class Extension(Escaped):
    """How often an extension of a Trainer does its work, and how."""

    name: str  #: That of its account.
    kind: str  #: The call that makes it, such as ``extensions.PlotReport``.
    period: float  #: It works once in so many units; 0 where its trigger is of another kind.
    unit: str  #: ``epoch`` or ``iteration``.
    times: int  #: How often it worked.
    #: Its own argument with the period, such as PlotReport's ``trigger``; empty for that of
    #: ``Trainer.extend``.
    argument: str = ""
    compresses: bool = False  #: Whether it compresses what it saves.


@dataclass(frozen=True)
class Budget(Escaped):
    """The wall time of a program, from the start of the process to the script's end.

    ``wall_ns`` is the sum of the times in ``spent``: the start of Python (until the profiler's
    first line), imports by package, data (sets that were made or loaded before a training),
    iterations of trainings with everything in them, calls of networks outside of iterations,
    evaluation, extensions of a Trainer by name, snapshots saved or loaded, the script's own code
    (all else), and the time that the profiler added. Calls of other threads are only counted, in
    ``untimed``. ``ended`` is the last moment that was written (UTC); ``outcome`` is ``running`` if
    the program was killed. ``extensions`` has the extensions of trainings that have ended.
    ``unmeasured`` has the times of calls of networks that are in no recording, by part.
    ``other_cpu`` is the mean number of cores that other programs kept busy meanwhile, of ``cores``;
    None if it could not be read.
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
    other_cpu: float | None = None
    cores: int | None = None

    def part(self, part: str) -> tuple[Spent, ...]:
        """The times of a part, the longest first."""
        return tuple(sorted((s for s in self.spent if s.part == part), key=lambda s: -s.ns))

    def of(self, part: str) -> Spent:
        """The whole time of a part, and the sum of its counts."""
        times = self.part(part)
        return Spent(part, "", sum(s.ns for s in times), sum(s.count for s in times))


def write_json(budget: Budget) -> str:
    return as_json({"format": FORMAT, "version": VERSION, **vars(budget)})


def read_budget(folder: Path) -> Budget | None:
    """The budget in a run's folder; None where there is none."""
    # They import NumPy, whose import should be in the account of the profiled program.
    from chainer_profile.record.checking import check_folder_name, check_numbers
    from chainer_profile.record.versioned import read_beside

    def check(budget: Budget) -> None:
        check_numbers(budget)
        for trials in budget.trials:
            check_folder_name(trials.folder)

    return read_beside(folder / BUDGET, Budget, FORMAT, VERSION, check=check)
