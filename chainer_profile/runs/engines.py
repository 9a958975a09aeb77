"""The folder of an engines run: results, reports, and a folder for the run of each engine."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from chainer_profile.basics.errors import ProfileError
from chainer_profile.basics.files import make_folder, numbered, removed_if_empty
from chainer_profile.engines.results import (
    RESULTS,
    EnginesRun,
    folder_names,
    read_json,
    with_recorded_fields,
    write_json,
)
from chainer_profile.record.recording import Recording
from chainer_profile.runs import write
from chainer_profile.runs.folder import RECORDING, is_run_file, load_run, save_recording
from chainer_profile.runs.output_files import refuse_folders, refuse_foreign, remove_all
from chainer_profile.runs.output_files import write as write_files

_FILES = (RESULTS, "engines.csv", "engines.md", "engines.html", "engines.png", "engines.svg")


@contextmanager
def take_engines_folder(
    out: Path | None, default: Path, force: bool, engines: Sequence[str]
) -> Iterator[Path]:
    """Make a folder for an engines run: ``out``, or the default with the next free number."""
    if out is None:
        out = next(folder for folder in numbered(default) if not os.path.lexists(folder))
    else:
        refuse_foreign(out, _FILES.__contains__, "run", (out / RESULTS).exists(), force)
        for name in folder_names(engines).values():
            refuse_folders(out / name, is_run_file)
    with removed_if_empty(out):
        yield out


def write_run(folder: Path, run: EnginesRun, recordings: Mapping[str, Recording]) -> None:
    """Write each recording into its engine's folder, and the results; remove an earlier run."""
    old = _engine_folders(folder)
    for engine in run.engines:
        if engine.name in recordings:
            engine_folder = folder / engine.folder
            make_folder(engine_folder)
            save_recording(engine_folder, recordings[engine.name])
    write_files(folder, {RESULTS: write_json(run, recordings)})
    for name in old - {engine.folder for engine in run.engines}:
        remove_all(folder / name, is_run_file)


def _engine_folders(folder: Path) -> set[str]:
    """Names of the engines' folders in the folder of an engines run; empty without results."""
    with suppress(ProfileError):
        names = {engine.folder for engine in read_json(folder / RESULTS).engines}
        # A damaged file may contain paths to other folders.
        return {name for name in names if name and Path(name).name == name}
    return set()


def read_run(folder: Path) -> tuple[EnginesRun, dict[str, Recording]]:
    """Read the results, and the recordings that exist, by the engines' names."""
    run = read_json(folder / RESULTS)
    recordings = {
        engine.name: load_run(folder / engine.folder)
        for engine in run.engines
        if engine.folder and (folder / engine.folder / RECORDING).exists()
    }
    return with_recorded_fields(run, recordings), recordings


def write_reports(folder: Path, run: EnginesRun, recordings: Mapping[str, Recording]) -> list[str]:
    """Write the reports of an engines run; return the names of the files."""
    from chainer_profile.report import page
    from chainer_profile.report.content.engine_table import engines_csv
    from chainer_profile.report.content.engines import CSV, PLOT, report
    from chainer_profile.report.pictures.engines import figure
    from chainer_profile.report.pictures.figures import Picture
    from chainer_profile.report.writers import markdown

    picture, blocks = Picture(lambda: figure(run, recordings)), report(run, recordings)
    contents: dict[str, str | bytes] = {
        CSV: engines_csv(run, recordings),
        "engines.md": markdown.write(blocks),
        "engines.html": page.page(blocks, "Engines", {PLOT: picture}),
        PLOT: picture.png(),
        "engines.svg": picture.svg(),
    }
    return [path.name for path in write_files(folder, contents)]


def write_engine_reports(
    folder: Path, run: EnginesRun, recordings: Mapping[str, Recording]
) -> list[str]:
    """Write the reports of each engine; return the names of their folders."""
    from chainer_profile.analyse.summaries import summarise

    engines = [engine for engine in run.engines if engine.name in recordings]
    for engine in engines:
        write.write_reports(folder / engine.folder, summarise(recordings[engine.name]))
    return [engine.folder for engine in engines]
