"""The runs under a folder of reports, in a store that answers at once.

The store is one SQLite file in that folder. It holds nothing that is not in the recordings: it can
be removed at any time, and is made again.
"""

from __future__ import annotations

import math
import os
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import astuple, dataclass, fields
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from chainer_profile.basics.errors import ProfileError, UsageError

if TYPE_CHECKING:
    from chainer_profile.record.recording import Recording

STORE = "history.sqlite"
REPORTS = Path("reports")
#: Of the store's form; to be raised with every change of :class:`Run`.
_VERSION = 1
_RECORDING = "recording.npz"
#: Seconds to wait for another process that writes the store.
_WAIT_S = 30.0


@dataclass(frozen=True)
class Run:
    """One run, as the history shows it.

    Attributes:
        name: Its folder below the reports, such as ``resnet20-cpu-b1``.
        started: When it began (UTC).
        model: The network.
        device: ``cpu``, ``gpu:0`` and so on.
        batchsize: Inputs per trial.
        phase: What a trial was.
        dtype: Data type.
        input_shape: Shape of the input, batch included: ``1x3x32x32``.
        commit_id: Commit of the user's repository; empty where it is not known.
        latency_s: Median of the clean trials, or else of the profiled ones; NaN without both.
        clean: Whether these are clean trials.
        fps: Inputs a second, batch over mean; NaN likewise.
        hot_layer: Label of the slowest layer.
        hot_path: Its path.
        hot_share: Its part of the layers' time.
        trials: Number of profiled trials.
        ended: ``complete``, or why the run ended before.
        processor: The processor, or the GPU.
        command: The command line.
    """

    name: str
    started: str
    model: str
    device: str
    batchsize: int
    phase: str
    dtype: str
    input_shape: str
    commit_id: str
    latency_s: float
    clean: bool
    fps: float
    hot_layer: str
    hot_path: str
    hot_share: float
    trials: int
    ended: str
    processor: str
    command: str


@dataclass(frozen=True)
class Query:
    """Which runs, and in which order.

    Attributes:
        words: Each must be in one of a run's texts, whatever its case.
        model: Name of the network, with ``*`` and ``?`` as in a shell; empty for any.
        device: The same of the device; ``gpu`` is any GPU.
        commit: What the commit begins with.
        since: The earliest start (UTC), as :func:`parse_since` gives it.
        sort: One of :data:`SORTS`.
    """

    words: tuple[str, ...] = ()
    model: str = ""
    device: str = ""
    commit: str = ""
    since: str = ""
    sort: str = "when"


#: Orders of the history: newest, fastest, or by name first. What is not known comes last.
SORTS = {
    "when": "started DESC",
    "latency": "latency_s IS NULL, latency_s",
    "fps": "fps IS NULL, fps DESC",
    "model": "model, device, batchsize, started DESC",
    "device": "device, model, batchsize, started DESC",
    "batch": "batchsize, model, device, started DESC",
    "commit": "commit_id, started DESC",
    "name": "name",
}
_TEXTS = (
    *("name", "started", "model", "device", "phase", "dtype", "input_shape", "commit_id"),
    *("hot_layer", "hot_path", "ended", "processor", "command"),
)


@dataclass(frozen=True)
class History:
    """What was found.

    Attributes:
        runs: The runs asked for, in order.
        total: How many runs there are.
        unread: Recordings that cannot be read, with the reason.
        notes: What the user should know, a line each.
    """

    runs: tuple[Run, ...]
    total: int
    unread: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def history(reports: Path, query: Query, *, rebuild: bool = False) -> History:
    """The runs in a folder of reports, and below it. The store follows the recordings first.

    Args:
        reports: The folder; need not exist.
        query: Which runs.
        rebuild: Read all recordings again.
    """
    if not reports.is_dir():
        return History((), 0)
    notes: list[str] = []
    with _one_process(reports):
        path = reports / STORE
        try:
            return _from_file(path, query, rebuild, notes)
        except sqlite3.OperationalError as error:
            # The folder cannot be written, is full, or the store is in the way.
            if rebuild:
                notes.append(f"{path}: cannot be written ({error}); working without it")
        for copied in (False,) if rebuild else (True, False):
            with closing(sqlite3.connect(":memory:")) as store:
                if copied and not _copy(path, store):
                    continue
                with suppress(*((sqlite3.DatabaseError,) if copied else ())):
                    return _ask(store, reports, query, notes)
    raise AssertionError("a store in memory always answers")


def _from_file(path: Path, query: Query, rebuild: bool, notes: list[str]) -> History:
    if rebuild:
        _remove(path)
    try:
        with closing(sqlite3.connect(path, timeout=_WAIT_S)) as store:
            return _ask(store, path.parent, query, notes)
    except sqlite3.OperationalError:
        raise
    except sqlite3.DatabaseError:
        notes.append(f"{path} was damaged; it was made again from the recordings")
    _remove(path)
    with closing(sqlite3.connect(path, timeout=_WAIT_S)) as store:
        return _ask(store, path.parent, query, notes)


def _remove(path: Path) -> None:
    """Remove a store, and what SQLite keeps beside it."""
    for name in (path.name, f"{path.name}-journal", f"{path.name}-wal", f"{path.name}-shm"):
        with suppress(OSError):
            path.with_name(name).unlink()


def _copy(path: Path, store: sqlite3.Connection) -> bool:
    """Take over what a store holds that cannot be written; whether there was anything."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as kept:
            kept.backup(store)
    except sqlite3.Error:
        return False
    return True


@contextmanager
def _one_process(reports: Path) -> Iterator[None]:
    """Within this, no other process of ours uses the store; as far as the system can lock."""
    try:
        import fcntl

        opened = os.open(reports, os.O_RDONLY)
    except (ImportError, OSError):
        yield
        return
    try:
        with suppress(OSError):
            fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


def _ask(store: sqlite3.Connection, reports: Path, query: Query, notes: list[str]) -> History:
    _prepare(store)
    unread = _follow(store, reports)
    total = store.execute("SELECT count(*) FROM runs").fetchone()[0]
    where, values = _conditions(query)
    names = ", ".join(field.name for field in fields(Run))
    # The name makes the order one that does not change.
    rows = store.execute(
        f"SELECT {names} FROM runs WHERE {where} ORDER BY {SORTS[query.sort]}, name", values
    )
    return History(tuple(map(_run, rows)), total, tuple(unread), tuple(notes))


def _prepare(store: sqlite3.Connection) -> None:
    """Make the table, anew where it is of another version."""
    # What a power failure would take is made again.
    store.execute("PRAGMA synchronous = OFF")
    with store:
        store.execute("BEGIN IMMEDIATE")
        if store.execute("PRAGMA user_version").fetchone()[0] != _VERSION:
            store.execute("DROP TABLE IF EXISTS runs")
            columns = ", ".join(f"{field.name} NOT NULL" for field in fields(Run))
            # A number that is not known is NULL.
            for number in ("latency_s", "fps", "hot_share"):
                columns = columns.replace(f"{number} NOT NULL", number)
            store.execute(
                f"CREATE TABLE runs ({columns}, mtime_ns NOT NULL, size NOT NULL, "
                "PRIMARY KEY (name))"
            )
            store.execute(f"PRAGMA user_version = {_VERSION}")
    # A damaged page is found now, and not half way.
    checked = store.execute("PRAGMA quick_check(1)").fetchone()[0]
    columns_there = [row[1] for row in store.execute("PRAGMA table_info(runs)")]
    if checked != "ok" or columns_there != [*(f.name for f in fields(Run)), "mtime_ns", "size"]:
        raise sqlite3.DatabaseError("damaged")


def _follow(store: sqlite3.Connection, reports: Path) -> list[str]:
    """Make the store as the recordings are; returns those that cannot be read."""
    from chainer_profile.record.recording import Recording

    found = dict(_recordings(reports))
    kept = {
        name: (mtime_ns, size)
        for name, mtime_ns, size in store.execute("SELECT name, mtime_ns, size FROM runs")
    }
    unread = []
    marks = ", ".join("?" * (len(fields(Run)) + 2))
    with store:
        gone = [(name,) for name in kept if name not in found]
        store.executemany("DELETE FROM runs WHERE name = ?", gone)
        for name, stamp in found.items():
            if kept.get(name) == stamp:
                continue
            try:
                run = run_of(name, Recording.load(reports / name / _RECORDING))
            except ProfileError as error:
                unread.append(str(error))
                store.execute("DELETE FROM runs WHERE name = ?", (name,))
                continue
            values = [_stored(value) for value in astuple(run)]
            store.execute(f"INSERT OR REPLACE INTO runs VALUES ({marks})", (*values, *stamp))
    return unread


def _recordings(reports: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    """Every folder with a recording, and the recording's time and size, in the order of names."""
    for folder, below, files in os.walk(reports):
        below[:] = sorted(name for name in below if not name.startswith("."))
        if _RECORDING not in files:
            continue
        name = Path(folder).relative_to(reports).as_posix()
        try:
            name.encode()  # bytes that are no text cannot be stored
            state = os.stat(os.path.join(folder, _RECORDING))
        except (OSError, UnicodeEncodeError):
            continue
        yield name, (state.st_mtime_ns, state.st_size)


def run_of(name: str, recording: Recording) -> Run:
    """A run as the history shows it.

    Args:
        name: Its folder below the reports.
        recording: Its recording.

    Raises:
        ProfileError: It holds nothing to show.
    """
    import numpy as np

    from chainer_profile.basics.units import format_shape

    if not recording.self_ns.size:
        raise ProfileError(f"{name}: holds no complete profiled trial")
    settings, environment = recording.settings, recording.environment
    clean = len(recording.clean_ns) > 0
    samples = recording.clean_ns if clean else recording.trial_ns
    latency_s = fps = math.nan
    if samples is not None and len(samples):
        latency_s = float(np.median(samples)) * 1e-9
        fps = settings.batchsize / (float(samples.mean()) * 1e-9) if samples.any() else math.nan
    means = recording.self_ns.mean(axis=0)
    hot = recording.layers[int(means.argmax())]
    total = float(means.sum())
    gpu = environment.gpu
    return Run(
        name=name,
        started=environment.started,
        model=settings.model,
        device=settings.device,
        batchsize=settings.batchsize,
        phase=settings.phase,
        dtype=settings.dtype,
        input_shape=format_shape(settings.input_shape) if settings.input_shape else "",
        commit_id=environment.commit,
        latency_s=latency_s,
        clean=clean,
        fps=fps,
        hot_layer=hot.label,
        hot_path=hot.path,
        hot_share=float(means.max()) / total if total else math.nan,
        trials=recording.n_trials,
        ended=recording.ended,
        processor=gpu.name if gpu is not None and gpu.name else environment.processor,
        command=settings.command,
    )


def _stored(value: object) -> object:
    return None if isinstance(value, float) and math.isnan(value) else value


def _run(row: Sequence[object]) -> Run:
    values = {
        field.name: math.nan if value is None else value
        for field, value in zip(fields(Run), row, strict=True)
    }
    return Run(**(values | {"clean": bool(values["clean"])}))  # type: ignore[arg-type]


def _conditions(query: Query) -> tuple[str, list[str]]:
    parts, values = ["1"], []
    for column, pattern in (("model", query.model), ("device", query.device)):
        if pattern:
            parts.append(f"lower({column}) GLOB lower(?)")
            # A bracket means nothing here.
            values.append(pattern.replace("[", "[[]"))
    if query.commit:
        parts.append("substr(commit_id, 1, length(?)) = ?")
        values += [query.commit, query.commit]
    if query.since:
        parts.append("started >= ?")
        values.append(query.since)
    text = " || ' ' || ".join(_TEXTS)
    for word in query.words:
        parts.append(f"instr(lower({text}), lower(?)) > 0")
        values.append(word)
    return " AND ".join(parts), values


def parse_since(text: str) -> str:
    """A moment as recordings write it, from a date or a date with a time (UTC unless it says).

    Raises:
        UsageError: The text is neither.
    """
    try:
        # Python 3.10 knows no Z.
        moment = datetime.fromisoformat(re.sub("[zZ]$", "+00:00", text.strip()))
    except ValueError:
        raise UsageError(f"{text[:40]!r} is no date: write it as 2026-11-21") from None
    if moment.tzinfo is not None:
        moment = moment.astimezone(timezone.utc)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def resolve_run(name: str | Path, reports: Path = REPORTS) -> Path:
    """The place of a run that was given by its path, or by its name as the history shows it.

    A name is that of the folder below the reports (``sweep-r3/resnet18-1024x2048-cpu-b1``), or its
    last part, where just one run has it. What exists as a path is that path; what is neither is
    given back as it is.

    Raises:
        UsageError: Several runs have the name.
    """
    place = Path(name)
    if place.exists() or place.is_absolute() or ".." in place.parts or not place.parts:
        return place
    if (reports / place).is_dir():
        return reports / place
    if len(place.parts) > 1 or not reports.is_dir():
        return place
    found = [run for run, _ in _recordings(reports) if run.rpartition("/")[2] == str(place)]
    if len(found) > 1:
        raise UsageError(
            f"{name}: several runs have this name ({', '.join(found[:3])}); give one of these"
        )
    return reports / found[0] if found else place
