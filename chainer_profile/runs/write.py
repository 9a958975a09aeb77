"""Writing the reports of a run."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from chainer_profile.advice.results import read_advice
from chainer_profile.analyse.findings import FOLDER
from chainer_profile.basics.errors import ProfileError
from chainer_profile.basics.files import make_folder
from chainer_profile.record.budget import CALLS, ITERATIONS, RUNNING, Budget, read_budget
from chainer_profile.runs.folder import RECORDING, is_of_run, load_run, save_recording
from chainer_profile.runs.wanted import FILES, USUAL, Wanted, named, parse_formats
from chainer_profile.runs.written import refuse_foreign, write

if TYPE_CHECKING:
    from chainer_profile.analyse.program import ProgramTime
    from chainer_profile.analyse.summary import Summary
    from chainer_profile.record.recording import Recording
    from chainer_profile.report.content.profile import Beside
    from chainer_profile.report.document import Block, Section


def write_reports(
    folder: Path,
    summary: Summary,
    wanted: Wanted = USUAL,
    only: Collection[str] | None = None,
    run: Path | None = None,
) -> list[Path]:
    """Write what is made from a recording, or of it the files named in ``only``; returns them.

    ``run`` is the folder of the run, which has its advice; by default it is the same folder.
    """
    summary = in_folder(summary, run or folder)
    if only is not None:
        wanted = replace(wanted, formats=tuple(n for n in wanted.formats if FILES[n] in only))
    known = beside(run or folder, summary.recording)
    usual = _usual_reports(summary, wanted, known, only) if wanted.usual else {}
    contents = {name: make() for name, make in usual.items() if only is None or name in only}
    files = write(folder, contents)
    # These may be large: each is written before the next one is made.
    for name, content in asked_for(summary, wanted):
        files += write(folder, {name: content})
    return files


def beside(folder: Path, recording: Recording) -> Beside:
    """What else there is of a run in its folder."""
    from chainer_profile.report.content.profile import Beside

    advice = read_advice(folder)
    if advice is not None and advice.environment.started != recording.environment.started:
        advice = None
    return Beside(advice, _program_of(folder, recording))


def _program_of(folder: Path, recording: Recording) -> ProgramTime | None:
    """The time of the program that a run in this folder is of, with all of its recordings."""
    from chainer_profile.analyse.program import ProgramTime

    budget = budget_of(folder, recording)
    if budget is None:
        return None
    trials: defaultdict[tuple[str, str], list[Recording]] = defaultdict(list)
    for one in budget.trials:
        with suppress(ProfileError):  # its folder may be gone
            place = folder / one.folder
            same = place.resolve() == folder.resolve()
            trials[one.part, one.name].append(recording if same else load_run(place))
    if not budget.trials:  # of a version before
        part = ITERATIONS if recording.settings.phase == "train" else CALLS
        trials[part, ""].append(recording)
    return ProgramTime(budget, trials)


def budget_of(folder: Path, recording: Recording) -> Budget | None:
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
    findings = (replace(one, command=one.command.replace(FOLDER, name)) for one in summary.findings)
    return replace(summary, findings=tuple(findings))


def save(
    summary: Summary, folder: str | Path, formats: Sequence[str] = (), **by_whom: str
) -> list[Path]:
    """What :meth:`.Summary.save` does."""
    from chainer_profile.report.content.profile import ReportTitle

    names = [formats] if isinstance(formats, str) else formats
    asked = named(parse_formats(",".join(names)) if names else ())
    wanted = replace(asked, title=ReportTitle(**by_whom))
    path = Path(folder)
    refuse_foreign(path, is_of_run, "run", (path / RECORDING).exists())
    make_folder(path)
    save_recording(path, summary.recording)
    return [path / RECORDING, *write_reports(path, summary, wanted)]


def _usual_reports(
    summary: Summary, wanted: Wanted, beside: Beside | None, only: Collection[str] | None = None
) -> dict[str, Callable[[], bytes]]:
    from chainer_profile.report.columns import LAYER_COLUMNS, LINK_COLUMNS, link_frame
    from chainer_profile.report.content import advice as tried
    from chainer_profile.report.content.profile import report, sections
    from chainer_profile.report.document import Figure
    from chainer_profile.report.tables import to_csv
    from chainer_profile.report.writers import markdown

    made = sections(summary, beside)

    def blocks() -> Iterator[Block]:
        """The report, without pictures that are not written."""
        for block in report(summary, wanted.title, beside=beside, made=made):
            if only is None or not isinstance(block, Figure) or block.file in only:
                yield block

    usual: dict[str, Callable[[], bytes]] = {
        "layers.csv": lambda: to_csv(LAYER_COLUMNS, summary.layers).encode(),
        "links.csv": lambda: to_csv(LINK_COLUMNS, link_frame(summary.links)).encode(),
        "report.md": lambda: markdown.write(blocks()).encode(),
    }
    if beside is not None and (advice := beside.advice) is not None:
        usual["advice.md"] = lambda: markdown.write(tried.report(advice)).encode()
    # Matplotlib takes a third of a second.
    if only is None or not usual.keys() >= set(only):
        usual |= _drawn(summary, wanted, beside, made)
    return usual


def _drawn(
    summary: Summary, wanted: Wanted, beside: Beside | None, made: Sequence[Section]
) -> dict[str, Callable[[], bytes]]:
    """The page and the pictures."""
    from chainer_profile.report import page, pictures
    from chainer_profile.report.document import PLOT, ROOFLINE

    drawn = pictures.of_run(summary)
    files: dict[str, Callable[[], bytes]] = {
        PLOT: drawn[PLOT].png,
        "layers.svg": drawn[PLOT].svg,
        "report.html": lambda: page.render(summary, beside, drawn, made, wanted.title).encode(),
    }
    if ROOFLINE in drawn:
        files |= {ROOFLINE: drawn[ROOFLINE].png, "roofline.svg": drawn[ROOFLINE].svg}
    return files


def asked_for(summary: Summary, wanted: Wanted) -> Iterator[tuple[str, bytes]]:
    """The files that are wanted, by their names, each made when it is taken."""
    if not wanted.formats:
        return
    from chainer_profile.report.pictures import stacks, trace
    from chainer_profile.report.writers import json_report

    makers: dict[str, Callable[[], bytes]] = {
        "json": lambda: json_report.render(summary).encode(),
        "trace": lambda: trace.render(summary, wanted.trace_trial).encode(),
        "folded": lambda: stacks.render_folded(summary).encode(),
    }
    for name in wanted.formats:
        yield FILES[name], makers[name]()
