"""The runs under a folder of reports."""

from __future__ import annotations

import fnmatch
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

from chainer_profile.basics.errors import ProfileError, UsageError
from chainer_profile.basics.units import format_shape
from chainer_profile.basics.words import RUN_ORDERS
from chainer_profile.record.digest import Digest, Run
from chainer_profile.runs.folder import RECORDING

REPORTS = Path("reports")


@dataclass(frozen=True)
class Query:
    """Which runs, and in which order (one of :data:`RUN_ORDERS`)."""

    words: tuple[str, ...] = ()  #: Each must be in one of a run's texts, whatever its case.
    model: str = ""  #: A pattern with ``*`` and ``?`` as in a shell; empty for any.
    device: str = ""  #: Likewise.
    commit: str = ""  #: How the commit begins.
    since: str = ""  #: The earliest start (UTC), as :func:`.parsing.moment` gives it.
    sort: str = "when"

    def is_for(self, run: Run) -> bool:
        """Whether a run is one of those."""
        digest = run.digest
        settings = digest.settings
        shape = format_shape(settings.input_shape) if settings.input_shape else ""
        texts = (
            *(run.name, digest.started, settings.model, settings.device, settings.phase),
            *(settings.dtype, shape, digest.commit, digest.hot_layer, digest.hot_path),
            *(digest.ended, digest.processor, settings.command),
        )
        text = " ".join(texts).lower()
        return (
            _matches(settings.model, self.model)
            and _matches(settings.device, self.device)
            and digest.commit.startswith(self.commit)
            and digest.started >= self.since
            and all(word.lower() in text for word in self.words)
        )


def _matches(name: str, pattern: str) -> bool:
    """Whether a name is as a pattern has it; a bracket means nothing here."""
    return not pattern or fnmatch.fnmatchcase(name.lower(), pattern.lower().replace("[", "[[]"))


def _by(*names: str) -> Callable[[Run], Any]:
    return attrgetter(*(f"digest.{name}" for name in names))


#: By what each order of the history sorts. What is not known comes last.
SORTS: dict[str, Callable[[Run], Any]] = dict(
    zip(
        RUN_ORDERS,
        (
            lambda run: 0,
            lambda run: (math.isnan(run.digest.median_s), run.digest.median_s),
            lambda run: (math.isnan(run.digest.fps), -run.digest.fps),
            _by("settings.model", "settings.device", "settings.batchsize"),
            _by("settings.device", "settings.model", "settings.batchsize"),
            _by("settings.batchsize", "settings.model", "settings.device"),
            _by("commit"),
            lambda run: run.name,
        ),
        strict=True,
    )
)
#: Of these the order among equals is by name; of the others the newest comes first.
_BY_NAME = ("latency", "fps", "name")


@dataclass(frozen=True)
class History:
    """The runs asked for, in order; how many there are, and why recordings cannot be read."""

    runs: tuple[Run, ...]
    total: int
    unread: tuple[str, ...] = ()


def history(reports: Path, query: Query) -> History:
    """The runs in a folder of reports, which need not exist, and below it."""
    runs, unread = [], []
    for name in _recordings(reports):
        try:
            runs.append(Run(name, _digest(name, os.path.join(reports, name, RECORDING))))
        except ProfileError as error:
            unread.append(str(error))
    found = sorted(filter(query.is_for, runs), key=lambda run: run.name)
    if query.sort not in _BY_NAME:
        found.sort(key=lambda run: run.digest.started, reverse=True)
    found.sort(key=SORTS[query.sort])
    return History(tuple(found), len(runs), tuple(unread))


def _digest(name: str, path: str) -> Digest:
    """The facts of a recording."""
    from chainer_profile.record.recording import Recording, digest_of

    digest = digest_of(Recording.load(Path(path)))
    if not digest.hot_layer:
        raise ProfileError(f"{name} contains no complete profiled trial")
    return digest


def _recordings(folder: str | Path, name: str = "") -> Iterator[str]:
    """Names of all folders below with a recording, in order."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    if any(entry.name == RECORDING for entry in entries):
        yield name or "."
    for entry in entries:
        # Bytes that are no text are surrogates here, which cannot be printed.
        is_text = not any("\ud800" <= char <= "\udfff" for char in entry.name)
        if entry.name[0] != "." and is_text and entry.is_dir(follow_symlinks=False):
            yield from _recordings(entry.path, f"{name}/{entry.name}" if name else entry.name)


def resolve_run(name: str | Path, reports: Path = REPORTS) -> Path:
    """The place of a run that was given by its path, or by its name as the history shows it.

    That is its folder below the reports, or the last part of it where just one run has it. What is
    neither is given back as it is.
    """
    place = Path(name)
    if place.exists() or place.is_absolute() or ".." in place.parts or not place.parts:
        return place
    if (reports / place).is_dir():
        return reports / place
    if len(place.parts) > 1 or not reports.is_dir():
        return place
    found = [run for run in _recordings(reports) if run.rpartition("/")[2] == str(place)]
    if len(found) > 1:
        raise UsageError(
            f"{name}: several runs have this name ({', '.join(found[:3])}); give one of these"
        )
    return reports / found[0] if found else place
