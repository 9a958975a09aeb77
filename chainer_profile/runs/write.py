"""Writes the reports of a run."""

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
from chainer_profile.runs.folder import RECORDING, is_run_file, load_run, save_recording
from chainer_profile.runs.formats import FORMATS, Report, parse_formats
from chainer_profile.runs.output_files import refuse_folders, refuse_foreign, write

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
    """Write the report files of a run; return their paths.

    Args:
        folder: The folder for the files.
        summary: The summary of the run.
        formats: Requested formats, from :func:`.formats.parse_formats`.
        title: Title of the report.
        only: Names of the files to write. Default: all.
        run: The folder of the run, which may contain advice. Default: ``folder``.
    """
    run = run or folder
    report = Report(
        with_folder_name(summary, run),
        related_results(run, summary.recording),
        title,
        tuple(formats),
        only,
    )
    requested = [
        format
        for format in FORMATS
        if format.is_requested(formats) and (only is None or format.file in only)
    ]
    refuse_folders(folder, {format.file for format in requested}.__contains__)
    # All usual reports are made before the first is written, so an interruption leaves all or none.
    usual = {format.file: format.make(report) for format in requested if not format.name}
    files = write(folder, {file: text for file, text in usual.items() if text is not None})
    # Other formats may be large, so each is written before the next is made.
    for format in requested:
        if format.name and (content := format.make(report)) is not None:
            files += write(folder, {format.file: content})
    return files


def related_results(folder: Path, recording: Recording) -> RelatedResults:
    """Read the advice on a run and the time budget of its program from its folder."""
    from chainer_profile.advice.results import read_advice
    from chainer_profile.report.content.related import RelatedResults

    advice = read_advice(folder)
    if advice is not None and advice.environment.started != recording.environment.started:
        advice = None
    return RelatedResults(advice, program_of(folder, recording))


def program_of(folder: Path, recording: Recording) -> ProgramTime | None:
    """Read a program's time budget and all its recordings; None for a run of a network."""
    from chainer_profile.analyse.program import ProgramTime, with_last_trials

    budget = _budget_of(folder, recording)
    if budget is None:
        return None
    trials: defaultdict[tuple[str, str], list[Recording]] = defaultdict(list)
    for entry in budget.trials:
        with suppress(ProfileError):  # the user may have deleted its folder
            path = folder / entry.folder
            same = path.resolve() == folder.resolve()
            trials[entry.part, entry.name].append(recording if same else load_run(path))
    if not budget.trials:  # from an older version
        part = ITERATIONS if recording.settings.phase == "train" else CALLS
        trials[part, ""].append(recording)
    return with_last_trials(ProgramTime(budget, trials))


def _budget_of(folder: Path, recording: Recording) -> Budget | None:
    """Read the time budget of the program of a run; None for a run of a network."""
    started, budget = recording.environment.started, read_budget(folder)
    # The end of a killed program is unknown.
    if budget is None or not (
        budget.started <= started and (budget.outcome == RUNNING or started <= budget.ended)
    ):
        return None
    return budget


def with_folder_name(summary: Summary, folder: Path) -> Summary:
    """Insert the name of the run's folder into the commands of a summary's findings."""
    name = shlex.quote(str(folder))
    findings = (
        replace(finding, command=finding.command.replace(FOLDER, name))
        for finding in summary.findings
    )
    return replace(summary, findings=tuple(findings))


def save(
    summary: Summary, folder: str | Path, formats: Sequence[str] = (), **title_fields: str
) -> list[Path]:
    """Write a recording and its reports into a folder (:meth:`.Summary.save`).

    ``title_fields`` are the fields of :class:`.ReportTitle`.
    """
    from chainer_profile.report.content.profile import ReportTitle

    names = [formats] if isinstance(formats, str) else formats
    requested = parse_formats(",".join(names)) if names else ()
    path = Path(folder)
    refuse_foreign(path, is_run_file, "run", (path / RECORDING).exists())
    make_folder(path)
    save_recording(path, summary.recording)
    return [path / RECORDING, *write_reports(path, summary, requested, ReportTitle(**title_fields))]
