"""``sweep``: many networks, inputs and devices, each case in a fresh process."""

from __future__ import annotations

import argparse
import itertools
import math
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import cache
from pathlib import Path
from time import monotonic
from typing import Annotated, Any

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress

from chainer_profile.analyse.case_result import CaseResult
from chainer_profile.basics.errors import ProfileError, UsageError
from chainer_profile.basics.parsing import Parser, input_shape, whole, with_nearest
from chainer_profile.basics.units import (
    format_duration,
    format_significant,
    plural,
    roughly,
)
from chainer_profile.basics.words import COMMAND, DEFAULT_MODEL, DTYPES, PHASES, PROG
from chainer_profile.cli.main import Context, Interrupted, printing
from chainer_profile.cli.options import FLAG, LISTS, SINGLES, settings_of, take
from chainer_profile.cli.shown import show
from chainer_profile.networks.loading import find_model
from chainer_profile.report import page
from chainer_profile.report.content import sweep as content
from chainer_profile.report.document import text
from chainer_profile.report.pictures import sweep as sweep_plot
from chainer_profile.report.tables import to_csv
from chainer_profile.report.text import printable
from chainer_profile.report.writers import markdown
from chainer_profile.runs.executors import open_workers
from chainer_profile.runs.sweep import Case, SweepFolder, run_cases, take_sweep
from chainer_profile.runs.written import write

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

#: Finds a network's name for folders, and the shape of its input if known, from the user's words.
FindModel = Callable[[str], tuple[str, "tuple[int, ...] | None"]]
#: The values of options by name: texts, numbers, truths, or lists of them.
Options = Mapping[str, Any]

_MAX_CASES = 10_000
KNOWN = (*LISTS, *SINGLES)
#: The option of ``profile.py`` for each option here, and the reverse.
_SINGULAR = {name: name[:-1] if name in LISTS else name for name in KNOWN}
_PLURAL = {singular: name for name, singular in _SINGULAR.items()}
_USUAL = {"models": DEFAULT_MODEL, "batchsizes": 1, "devices": "cpu", "phases": PHASES[0]}
_USUAL |= {"trials": 1000, "warmups": 50, "threads": 1, "seed": 0, "dtype": DTYPES[0]}


def run(args: argparse.Namespace, context: Context) -> int:
    """Run the cases that are not done, or list them; the exit code is 1 where one failed."""
    name, asked = _cases(args, context.registry)
    counts = Counter(asked)
    cases = [*counts]
    if repeated := len(asked) - len(cases):
        (case, _), *_ = counts.most_common(1)
        _Progress(args.quiet, 0, 0).say(
            f"{plural(repeated, 'case is', 'cases are')} given more than once and run once, such "
            f"as {case.name}"
        )
    path = args.out or Path("reports") / f"sweep-{name}"
    if args.dry_run:
        folder = SweepFolder(path, cases, args.force)
        with printing():
            for case in cases:
                place = folder.names[case]
                words = [*COMMAND, *case.words, "--out", str(path / place)]
                print(f"{place}{' (done)' if folder.finished(case) else ''}\n  {shlex.join(words)}")
        return 0
    results: dict[Case, CaseResult] = {}
    with take_sweep(path, cases, args.force) as folder:
        try:
            _run(cases, folder, results, args)
        except Interrupted as interrupt:
            good = sum(not result.error for result in results.values())
            done = f"{good} of {plural(len(cases), 'case is', 'cases are')} done"
            interrupt.hint = f"; {done}: repeat the command to continue"
            raise
        finally:
            found = [results[case] for case in cases if case in results]
            files = _write(name, found, len(cases), context.command, path) if found else []
    return _show(found, files, path, args.quiet)


# -- the cases


def _cases(args: argparse.Namespace, registry: Mapping[str, Any]) -> tuple[str, list[Case]]:
    @cache
    def find(model: str) -> tuple[str, tuple[int, ...] | None]:
        source = find_model(model, registry)
        return source.name, source.input_shape

    asked = {name: getattr(args, name.replace("-", "_")) for name in KNOWN}
    options = {name: value for name, value in asked.items() if value is not None}
    if args.file is None:
        if "models" not in options:
            raise UsageError("give --models, or a TOML file with the cases")
        cases = cases_of(options, find)
        networks = list(dict.fromkeys(case.settings.model for case in cases))
        more = f"-and-{len(networks) - 4}-more" if len(networks) > 4 else ""
        return "-".join(networks[:4]) + more, cases
    if lists := [name for name in LISTS if name in options]:
        raise UsageError(f"--{lists[0]} and {args.file}: give the cases in one place")
    name, groups = read_toml(args.file)
    return name, [
        case for where, group in groups for case in cases_of({**group, **options}, find, where)
    ]


def cases_of(options: Options, find: FindModel, where: str = "") -> list[Case]:
    """A case for each combination; the networks vary last. ``where`` begins what is wrong."""
    if "input-sizes" in options and "input-shapes" in options:
        raise UsageError(f"{where}input-sizes and input-shapes: give one of them")
    asked = {**_USUAL, **options}
    values = {name: _listed(asked[name], name, where) for name in KNOWN if name in asked}
    count = math.prod(map(len, values.values()))
    if count > _MAX_CASES:
        raise UsageError(f"these are {count:,d} cases; a sweep takes at most {_MAX_CASES:,d}")
    try:
        read = _reader()
        choices = [[read(name, value) for value in given] for name, given in values.items()]
        cases = []
        for each in itertools.product(*choices):
            args = argparse.Namespace(input_shape=None, input_size=None)
            for _, parsed in each:
                vars(args).update(parsed)
            network, known = find(args.model)
            shape = (args.batchsize, *input_shape(args, known))
            settings = settings_of(args, model=network, input_shape=shape)
            words = tuple(word for said, _ in each for word in said)
            cases.append(Case(args.model, settings, words))
    except UsageError as error:
        raise UsageError(f"{where}{error}") from None
    return cases


def _listed(given: Any, name: str, where: str) -> list[Any]:
    if name in LISTS and isinstance(given, str):
        return [entry.strip() for entry in given.split(",")]
    if name not in LISTS or not isinstance(given, list):
        return [given]
    if not given:
        raise UsageError(f"{where}{name}: the list is empty; give at least one entry")
    return given


def _reader() -> Callable[[str, Any], tuple[list[str], dict[str, Any]]]:
    """What gives the words of an option's value, and what they say to a run."""
    parser = Parser(prog=f"{PROG} sweep")
    # There may be more cores where the case runs.
    own = {"threads": {"type": whole(1)}}
    take(parser, " ".join(_PLURAL), own, short=False, default=argparse.SUPPRESS)

    def read(name: str, value: Any) -> tuple[list[str], dict[str, Any]]:
        option = f"--{_SINGULAR[name]}"
        if name != FLAG:
            return [option, str(value)], vars(parser.parse_args([f"{option}={value}"]))
        if not isinstance(value, bool):
            raise UsageError(f"{name}: must be true or false, not {str(value)[:40]!r}")
        return [option] if value else [], {}

    return read


class _File(msgspec.Struct, forbid_unknown_fields=True):
    name: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][\w.+-]{0,99}$")] = ""
    common: dict[str, Any] = {}
    cases: Annotated[list[dict[str, Any]], msgspec.Meta(min_length=1)] | None = None


def read_toml(path: Path) -> tuple[str, list[tuple[str, Options]]]:
    """The name of a sweep, and the options of each group of cases with their place in the file."""
    try:
        content = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), _File)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from None
    except msgspec.ValidationError as error:
        raise UsageError(
            f"{path}: {error}; a sweep takes a name of letters, digits and ._+-, and options below "
            "[common] and [[cases]]"
        ) from None
    except ValueError as error:  # the message names line and column
        raise UsageError(f"{path}: not valid TOML: {' '.join(str(error).split())}") from None
    common = _table(content.common, f"{path}: [common]: ")
    if content.cases is None:
        return content.name or path.stem, [(f"{path}: [common]: ", common)]
    found: list[tuple[str, Options]] = []
    for number, group in enumerate(content.cases, 1):
        where = f"{path}: [[cases]] {number}: "
        table = _table(group, where)
        # A group's inputs replace the common ones, whichever of the two options gives them.
        inputs = {"input-sizes", "input-shapes"}
        replaced = inputs if inputs & table.keys() else set()
        kept = {key: value for key, value in common.items() if key not in replaced}
        found.append((where, kept | table))
    return content.name or path.stem, found


def _table(content: Options, where: str) -> dict[str, Any]:
    """The options in a table of a file: their keys with - or _, of a list also in the singular."""
    table: dict[str, Any] = {}
    for key, value in content.items():
        name = key.replace("_", "-")
        name = _PLURAL.get(name, name)
        if name not in KNOWN:
            raise UsageError(
                f"{where}unknown key {with_nearest(name, KNOWN)}; known are {', '.join(KNOWN)}"
            )
        if name in table:
            raise UsageError(f"{where}{name} is given twice")
        table[name] = value
    return table


# -- running them


def _run(
    cases: Sequence[Case],
    folder: SweepFolder,
    results: dict[Case, CaseResult],
    args: argparse.Namespace,
) -> None:
    results |= {case: done for case in cases if (done := folder.finished(case))}
    todo = [case for case in cases if case not in results]
    if not todo:
        return
    with (
        open_workers(args.executor) as workers,
        _Progress(args.quiet, len(cases), len(results)) as progress,
    ):
        folder.begin()
        with closing(run_cases(todo, folder, workers, progress.say)) as found:
            for case, result in found:
                results[case] = result
                in_order = [results[case] for case in cases if case in results]
                write(folder.path, {"sweep.csv": to_csv(content.COLUMNS, in_order).encode()})
                progress.ended(result)


def _write(
    name: str, results: Sequence[CaseResult], planned: int, command: str, path: Path
) -> Iterable[str]:
    """Write the table and the plots; returns the names of the files."""
    drawn = sweep_plot.pictures(results)
    blocks = content.report(name, results, planned, command, list(drawn))
    files = {"sweep.csv": to_csv(content.COLUMNS, results).encode()}
    files["sweep.md"] = markdown.write(blocks).encode()
    files["sweep.html"] = page.page(blocks, "Sweep", drawn).encode()
    files |= {plot: picture.png() for plot, picture in drawn.items()}
    files |= {plot.replace(".png", ".svg"): picture.svg() for plot, picture in drawn.items()}
    write(path, files)
    return files


def _show(results: Sequence[CaseResult], files: Iterable[str], path: Path, quiet: bool) -> int:
    """Print the table; a case that failed is an error."""
    written = text(f"Written to {path}: {', '.join(files)}")
    show([*content.overview(results), written], quiet)
    failed = [f"{result.name} ({result.error})" for result in results if result.error]
    if failed:
        more = f" and {len(failed) - 3} more" if len(failed) > 3 else ""
        raise ProfileError(
            f"{len(failed)} of {plural(len(results), 'case')} failed: "
            f"{', '.join(failed[:3])}{more}; repeat the command to try again"
        )
    return 0


class _Progress:
    """How far a sweep is, on standard error: a line for each case, and on a terminal a bar."""

    def __init__(self, quiet: bool, total: int, done: int) -> None:
        self._total, self._done, self._first, self._begin = total, done, done, monotonic()
        self._bar = Progress(
            *(BarColumn(), MofNCompleteColumn()),
            console=Console(stderr=True, quiet=quiet),
            auto_refresh=False,  # the thread that does it would disturb the cases
            transient=True,
            disable=quiet or not sys.stderr.isatty(),
        )
        self._task = self._bar.add_task("", total=total, completed=done)

    def __enter__(self) -> _Progress:
        if self._done:
            self.say(f"{self._done} of {self._total} cases are done already")
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def say(self, text: str) -> None:
        self._bar.console.out(f"{PROG}: {printable(text)}", highlight=False)

    def ended(self, result: CaseResult) -> None:
        """Say how a case ended, and about how long the others will take."""
        self._done += 1
        self._bar.update(self._task, completed=self._done, refresh=True)
        said = f"failed: {result.error}"
        if not result.error:
            times = map(format_duration, (result.median_s, result.std_s))
            said = f"{', std '.join(times)}, {format_significant(result.fps)} FPS"
        left = (monotonic() - self._begin) / (self._done - self._first) * (self._total - self._done)
        about = f" (about {roughly(left)} left)" if self._done < self._total else ""
        self.say(f"[{self._done}/{self._total}] {result.name}: {said}{about}")
