"""Writing the reports of a run."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from chainer_profile.analyse.findings import FOLDER
from chainer_profile.basics.errors import ProfileError
from chainer_profile.basics.files import make_folder
from chainer_profile.record.budget import CALLS, ITERATIONS, RUNNING, Budget, read_budget
from chainer_profile.runs.folder import RECORDING, is_of_run, load_run, save_recording
from chainer_profile.runs.formats import FORMATS, Report, parse_formats
from chainer_profile.runs.written import refuse_folders, refuse_foreign, write

if TYPE_CHECKING:
    from chainer_profile.analyse.program import ProgramTime
    from chainer_profile.analyse.summary import Summary
    from chainer_profile.record.recording import Recording
    from chainer_profile.report.content.profile import ReportTitle
    from chainer_profile.report.content.related import RelatedResults


def write_reports(
    folder: Path,
    summary: Summary,
    formats: Sequence[str] = (),
    title: ReportTitle | None = None,
    only: Collection[str] | None = None,
    run: Path | None = None,
) -> list[Path]:
    """Write the files that are made of a run, or those named in ``only``; returns them.

    ``run`` is the folder of the run, which has its advice; by default it is the same folder.
    """
    run = run or folder
    report = Report(
        in_folder(summary, run),
        related_results(run, summary.recording),
        title,
        tuple(formats),
        only,
    )
    asked = [
        format
        for format in FORMATS
        if format.is_asked(formats) and (only is None or format.file in only)
    ]
    refuse_folders(folder, {format.file for format in asked}.__contains__)
    # An interruption leaves no part of the usual reports: all are made before one is written.
    usual = {format.file: format.make(report) for format in asked if not format.name}
    files = write(folder, {file: made for file, made in usual.items() if made is not None})
    # Those that are asked for may be large: each is written before the next one is made.
    for format in asked:
        if format.name and (content := format.make(report)) is not None:
            files += write(folder, {format.file: content})
    return files


def related_results(folder: Path, recording: Recording) -> RelatedResults:
    """The advice on a run, and the time of its program, from its folder."""
    from chainer_profile.advice.results import read_advice
    from chainer_profile.report.content.related import RelatedResults

    advice = read_advice(folder)
    if advice is not None and advice.environment.started != recording.environment.started:
        advice = None
    return RelatedResults(advice, program_of(folder, recording))


def program_of(folder: Path, recording: Recording) -> ProgramTime | None:
    """The time of the program that a run in this folder is of, with all of its recordings."""
    from chainer_profile.analyse.program import ProgramTime, with_last_trials

    budget = _budget_of(folder, recording)
    if budget is None:
        return None
    trials: defaultdict[tuple[str, str], list[Recording]] = defaultdict(list)
    for of_part in budget.trials:
        with suppress(ProfileError):  # its folder may be gone
            place = folder / of_part.folder
            same = place.resolve() == folder.resolve()
            trials[of_part.part, of_part.name].append(recording if same else load_run(place))
    if not budget.trials:  # of a version before
        part = ITERATIONS if recording.settings.phase == "train" else CALLS
        trials[part, ""].append(recording)
    return with_last_trials(ProgramTime(budget, trials))


def _budget_of(folder: Path, recording: Recording) -> Budget | None:
    """The time of the program that a run in this folder is of; None for runs of a network."""
    started, budget = recording.environment.started, read_budget(folder)
    # The end of a program that was killed is not known.
    if budget is None or not (
        budget.started <= started and (budget.outcome == RUNNING or started <= budget.ended)
    ):
        return None
    return budget


def in_folder(summary: Summary, folder: Path) -> Summary:
    """The same whose findings name the run's folder in their commands."""
    name = shlex.quote(str(folder))
    findings = (
        replace(finding, command=finding.command.replace(FOLDER, name))
        for finding in summary.findings
    )
    return replace(summary, findings=tuple(findings))


def save(
    summary: Summary, folder: str | Path, formats: Sequence[str] = (), **by_whom: str
) -> list[Path]:
    """What :meth:`.Summary.save` does."""
    from chainer_profile.report.content.profile import ReportTitle

    names = [formats] if isinstance(formats, str) else formats
    asked = parse_formats(",".join(names)) if names else ()
    path = Path(folder)
    refuse_foreign(path, is_of_run, "run", (path / RECORDING).exists())
    make_folder(path)
    save_recording(path, summary.recording)
    return [path / RECORDING, *write_reports(path, summary, asked, ReportTitle(**by_whom))]
