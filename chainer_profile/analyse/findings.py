"""Findings on a run. All reports show the same list."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from chainer_profile.basics.words import profile_arguments, same_command_with_try
from chainer_profile.record.recording import Recording, Settings

#: Severities; see :attr:`Finding.severity`.
WARNING, STEP, NOTE = "warning", "step", "note"
SEVERITIES = (WARNING, STEP, NOTE)
#: Findings with a smaller gain are not reported.
MIN_GAIN = 1.05
#: ``run --try`` is advised for programs with this number of iterations or more. It leaves out five,
#: and then needs three rounds of each change and of none.
_MIN_TO_TRY = 20
#: Stands for the folder of a run, which a summary does not know.
FOLDER = "FOLDER"
#: Variables that keep freed memory in a process.
_KEEP_MEMORY = (
    "MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=2147483647 MALLOC_TOP_PAD_=67108864 "
    "before the command"
)


@dataclass(frozen=True)
class Change:
    """A change of a run; the default changes nothing."""

    #: Kernels of ``accelerate()``: ``numpy`` or ``torch``; empty for Chainer's own.
    kernels: str = ""
    keep_memory: bool = False  #: Whether freed memory stays in the process.
    engine: str = ""  #: Name of the engine that runs the network; empty for Chainer.
    threads: int | None = None  #: BLAS threads; None for the number of the run.
    batchsize: int | None = None  #: Inputs at a time; None for the batch of the run.
    dtype: str = ""  #: Chainer's ``config.dtype``; empty for the type of the run.
    #: Entries of ``chainer.config`` that are switched, such as ``type_check``.
    config: tuple[str, ...] = ()

    def with_(self, other: Change) -> Change:
        """Both changes together; if both set a field, the value of ``other`` counts."""
        changed = {name: value for name, value in vars(other).items() if value}
        changed["config"] = tuple(dict.fromkeys((*self.config, *other.config)))
        return replace(self, **changed)

    @property
    def name(self) -> str:
        """The name of a change that sets one field."""
        if self.kernels:
            return "accelerate()" if self.kernels == "numpy" else 'accelerate(kernels="torch")'
        if self.threads:
            return "one BLAS thread" if self.threads == 1 else f"{self.threads} BLAS threads"
        if self.batchsize:
            return f"batch size {self.batchsize}"
        if self.config:
            return f"chainer.config.{self.config[0]}"
        return self.engine or ("memory kept" if self.keep_memory else self.dtype)

    def keep(self, export: str = "") -> str:
        """Return the code, option or command with which a user keeps a change that sets one field.

        Args:
            export: The command that writes the file for an engine.
        """
        if self.kernels:
            return f"chainer_profile.{self.name}"
        if self.threads:
            n = self.threads
            return f"OPENBLAS_NUM_THREADS={n} (or MKL_NUM_THREADS={n}) before the command"
        if self.engine:
            return export
        if self.batchsize:
            return f"-b {self.batchsize}"
        return _KEEP_MEMORY if self.keep_memory else f"--dtype {self.dtype} (chainer.config.dtype)"


@dataclass(frozen=True)
class Finding:
    """Something to know about a run, or to do."""

    code: str  #: Short name of the rule that it follows from: ``unsteady``.
    #: ``warning`` where a number may mislead; ``step`` where something takes time and may take
    #: less; ``note`` otherwise.
    severity: str
    text: str  #: The finding, with its number: one sentence or two.
    advice: str = ""  #: One sentence of advice; empty if there is nothing to do.
    evidence: str = ""  #: More numbers that show it, for reports; empty without any.
    command: str = ""  #: Command to type or code to write; may be empty.
    #: How many times as fast a trial would be, at most or as known in general (the text says
    #: which); None where that is not known.
    gain: float | None = None
    changes: tuple[Change, ...] = ()  #: Changes that ``advise`` tries for it.
    #: Relative error that the cause of a warning may have in the headline; infinite if unknown.
    off: float = 0.0

    @property
    def to_do(self) -> str:
        """The advice with its command: ``Measure it: python profile.py advise FOLDER.``"""
        return f"{self.advice.removesuffix('.')}: {self.command}" if self.command else self.advice


@dataclass(frozen=True)
class Untried:
    """A change that is not tried, and why."""

    name: str
    why: str


def sort_findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Leave out findings with a gain below :data:`MIN_GAIN`, and sort the others.

    Warnings come first, the largest ``off`` at the top; then steps, the largest gain at the top;
    then notes.
    """

    def sort_key(finding: Finding) -> tuple[int, float]:
        weight = {WARNING: finding.off, STEP: finding.gain or 0.0}.get(finding.severity, 0.0)
        return SEVERITIES.index(finding.severity), -weight

    worth = (finding for finding in findings if finding.gain is None or finding.gain >= MIN_GAIN)
    return tuple(sorted(worth, key=sort_key))


def steps_to_do(findings: Iterable[Finding]) -> list[Finding]:
    """The steps with advice that gain at least :data:`MIN_GAIN`, the largest gain first."""
    ordered = sort_findings(findings)
    return [finding for finding in ordered if finding.severity == STEP and finding.to_do]


def gain_without(share: float) -> float | None:
    """How many times as fast something is without this fraction of its time; None for all of it."""
    return 1 / (1 - share) if share < 1 else None


def takes_options(settings: Settings) -> bool:
    """Whether our command line made the run, so that advice may name its options."""
    return profile_arguments(settings.command) is not None and not settings.engine


def command_that_tries(recording: Recording) -> str:
    """The ``run`` command that made the run, with ``--try``; empty if that could measure nothing.

    A program of few iterations ends before a change has been measured.
    """
    if recording.n_trials < _MIN_TO_TRY:
        return ""
    return same_command_with_try(recording.settings.command)


def is_profile_call(settings: Settings) -> bool:
    """Whether ``profile()`` made the run, so that advice may name its arguments."""
    # Hooks and blocks of code have no warm-ups and no unprofiled trials.
    asked = settings.warmups or settings.clean_trials
    return not settings.command and bool(asked) and not settings.engine


#: Settings that the notebook's magics take, and arguments of ``profile()``.
_OF_MAGICS = ("trials", "warmups")
_OF_PROFILE = (*_OF_MAGICS, "clean_trials", "threads")


def option(settings: Settings, name: str, value: object) -> str:
    """The option or argument for a setting: ``--trials 1000``, ``trials=1000``.

    Empty if the run was made in a way that does not take it.
    """
    is_of_magic = settings.command.startswith("%") and name in _OF_MAGICS
    if takes_options(settings) or (is_of_magic and not settings.engine):
        return f"--{name.replace('_', '-')} {value}"
    return f"{name}={value}" if is_profile_call(settings) and name in _OF_PROFILE else ""


def bracketed(words: str) -> str:
    """Words in brackets after a space: `` (--trials 1000)``; empty without words."""
    return f" ({words})" if words else ""
