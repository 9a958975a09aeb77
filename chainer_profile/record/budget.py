"""The time budget of a program: its wall time, divided into accounts."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from chainer_profile.basics.files import as_json
from chainer_profile.record.parts import Escaped

FORMAT = "chainer-profile budget"
VERSION = 1
#: The file of the budget, in a run's folder.
BUDGET = "budget.json"
#: The file with the results of changes, in a run's folder.
ADVICE = "advice.json"

START = "start of Python"
IMPORTS = "imports"
DATA = "data"
ITERATIONS = "iterations"
#: Iterations that an exception or a break interrupted.
INTERRUPTED = "interrupted iterations"
CALLS = "calls of networks"
#: Calls in test mode, outside of iterations and extensions, in a program that trains.
TEST_CALLS = "test-mode calls"
#: Calls of links that call no function of Chainer; part of :data:`CALLS` or :data:`TEST_CALLS`.
WITHOUT_FUNCTIONS = "without functions"
EVALUATION = "evaluation"
EXTENSIONS = "extensions"
SNAPSHOTS = "snapshots"
REST = "the script's own code"
PROFILER = "profiler"
#: Names of snapshots, by the call that saves them. ``save_npz`` compresses by default.
SAVE_NPZ, SAVE_NPZ_PLAIN = "save_npz", "save_npz(compression=False)"
#: Work of the profiler after the program. Reports cannot contain the time to make them.
SAVING, REPORTS = "saving", "making the reports"
#: Outcome of a program that has not ended.
RUNNING = "running"
#: Separates a package from a package that it imports.
BENEATH = " > "
#: Name that counts updates in other threads; their calls of networks count as :data:`CALLS`.
UPDATES = "updates of optimizers"
#: Kinds of trials: trainings, calls in test mode, and trials with changes. The folders of further
#: kinds of a name have a number: ``test-2``.
TRAINING, TEST, TRIED = "train", "test", "tried"
#: The parts of a budget, in the order of the reports.
PARTS = (
    *(START, IMPORTS, DATA, ITERATIONS, INTERRUPTED, CALLS, TEST_CALLS, EVALUATION, EXTENSIONS),
    *(SNAPSHOTS, REST, PROFILER),
)


@dataclass(frozen=True)
class Spent(Escaped):
    """Time of one of :data:`PARTS`, or of one account in it, without accounts nested in it."""

    part: str
    #: Name of an imported package (``nltk > scipy`` if nltk imports it) or of an extension; empty
    #: for the part itself.
    name: str
    ns: int
    count: int = 0  #: Number of calls; 0 if it has no meaning.
    longest_ns: int = 0  #: The longest call; 0 if unknown.


#: The code that a sample found: a network (its time is in rows), data loading, or other code.
NETWORK, LOADING, OTHER = "network", "data", "other"


@dataclass(frozen=True)
class Sampled(Escaped):
    """Samples of the main thread in one Python function and one account."""

    part: str
    name: str
    where: str  #: :data:`LOADING`, :data:`OTHER`, or :data:`NETWORK`, which has no function.
    function: str  #: ``train.py:30 accuracy``; empty for all other functions together.
    ns: int  #: Approximate time: the sum of the intervals before the samples.
    samples: int


@dataclass(frozen=True)
class Trials(Escaped):
    """The folder of a recording of trials, and the account with their time."""

    part: str
    name: str
    folder: str  #: Relative to the folder of the budget.
    #: Examples that an iteration loads, and their bytes; 0 if unknown.
    loaded: int = 0
    loaded_nbytes: int = 0
    #: Time that Chainer's MultiprocessIterator takes to move these bytes from its processes to this
    #: one; 0 if it was not measured.
    moved_ns: int = 0
    #: Idle processor cores during that measurement.
    free_cores: float = 0.0


@dataclass(frozen=True)
class Extension(Escaped):
    """An extension of a Trainer, with its trigger and the number of its calls."""

    name: str  #: Name of its account.
    kind: str  #: The call that makes it, such as ``extensions.PlotReport``.
    period: float  #: Period of its trigger in ``unit``; 0 for a trigger of another kind.
    unit: str  #: ``epoch`` or ``iteration``.
    times: int  #: How often it works.
    #: The extension's argument for the trigger, such as PlotReport's ``trigger``; empty if the
    #: trigger is an argument of ``Trainer.extend``.
    argument: str = ""
    compresses: bool = False  #: Whether it compresses the files that it saves.
    before: int = 0  #: How often it works before the training, whatever its trigger.
    examples: int = 0  #: Number of examples on which it evaluates; 0 if unknown.


@dataclass(frozen=True)
class Budget(Escaped):
    """The wall time of a program, from the start of the process to the script's end.

    ``wall_ns`` is the sum of the times in ``spent``: the start of Python (until the profiler's
    first line), imports by package, data (sets that were made or loaded before a training),
    iterations of trainings with everything in them, calls of networks outside of iterations,
    evaluation, extensions of a Trainer by name, snapshots saved or loaded, the script's own code
    (the rest), and the time that the profiler added.
    """

    script: str
    started: str  #: UTC.
    ended: str  #: Time of the last update of the file (UTC).
    outcome: str  #: How the program ended; :data:`RUNNING` if it was killed.
    wall_ns: int
    spent: tuple[Spent, ...]
    untimed: dict[str, int] = field(default_factory=dict)  #: Number of calls in other threads.
    sampled: tuple[Sampled, ...] = ()
    trials: tuple[Trials, ...] = ()
    extensions: tuple[Extension, ...] = ()  #: Extensions of trainings that have ended.
    #: Calls of networks that are in no recording, by part.
    unmeasured: tuple[Spent, ...] = ()
    #: Mean number of cores that other programs used during the run; None if unknown.
    other_cpu: float | None = None
    cores: int | None = None  #: Number of cores of the machine.

    def accounts(self, part: str) -> tuple[Spent, ...]:
        """The accounts of a part, longest first."""
        return tuple(sorted((s for s in self.spent if s.part == part), key=lambda s: -s.ns))

    def total(self, part: str) -> Spent:
        """The time and the count of all accounts of a part together."""
        times = self.accounts(part)
        return Spent(part, "", sum(s.ns for s in times), sum(s.count for s in times))


def write_json(budget: Budget) -> str:
    return as_json({"format": FORMAT, "version": VERSION, **vars(budget)})


def read_budget(folder: Path) -> Budget | None:
    """Read the budget in a run's folder; None if the file is missing."""
    # These modules import NumPy, whose import should be in the account of the profiled program.
    from chainer_profile.record.checking import check_folder_name, check_numbers
    from chainer_profile.record.versioned import read_if_exists

    def check(budget: Budget) -> None:
        check_numbers(budget)
        for trials in budget.trials:
            check_folder_name(trials.folder)

    return read_if_exists(folder / BUDGET, Budget, FORMAT, VERSION, check=check)
