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

from chainer_profile.analyse.case_result import CaseResult
from chainer_profile.basics.errors import ProfileError, UsageError
from chainer_profile.basics.files import read_regular
from chainer_profile.basics.parsing import (
    Parser,
    asks_for_more,
    check_names,
    input_shape,
    split_names,
    with_nearest,
)
from chainer_profile.basics.units import format_duration, format_significant, plural, roughly
from chainer_profile.basics.words import COMMAND, DEFAULT_MODEL, DTYPES, PHASES, PROG
from chainer_profile.cli.arguments.sweep import add_case_options
from chainer_profile.cli.main import Context, Interrupted, printing
from chainer_profile.cli.options import settings_of
from chainer_profile.cli.output import show
from chainer_profile.measure.progress import ProgressBar
from chainer_profile.networks.inputs import make_arguments
from chainer_profile.networks.loading import find_model
from chainer_profile.report import page
from chainer_profile.report.content import sweep as content
from chainer_profile.report.document import text
from chainer_profile.report.pictures import sweep as sweep_plot
from chainer_profile.report.tables import to_csv
from chainer_profile.report.text import printable
from chainer_profile.report.writers import markdown
from chainer_profile.runs.executors import open_workers
from chainer_profile.runs.output_files import write
from chainer_profile.runs.sweep import Case, SweepFolder, run_cases, take_sweep

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

#: Finds a network by the values of --model, --classes and --model-args; returns its name for
#: folders, and the usual shape of its input.
FindModel = Callable[[str, "int | None", str], tuple[str, "tuple[int, ...] | None"]]
#: The values of options by name: texts, numbers, or lists of them.
Options = Mapping[str, Any]

_MAX_CASES = 10_000
#: Options that take a list. Each combination of the lists' entries is a case.
LISTS = ("model", "input-shape", "batchsize", "device", "phase")
#: All options of cases. Options outside of LISTS have one value for all cases.
OPTIONS = (
    *LISTS,
    *("model-args", "classes", "weights", "trials", "warmups", "threads", "seed", "dtype"),
    *("max-seconds", "skip"),
)
_DEFAULTS = {"model": DEFAULT_MODEL, "batchsize": 1, "device": "cpu", "phase": PHASES[0]}
_DEFAULTS |= {"trials": 1000, "warmups": 50, "threads": 1, "seed": 0, "dtype": DTYPES[0]}


def run(args: argparse.Namespace, context: Context) -> int:
    """Run the cases that are not done, or list all. Raises ProfileError if a case failed."""
    name, given = _read_cases(args, context.registry)
    counts = Counter(given)
    cases = [*counts]
    if repeated := len(given) - len(cases):
        (case, _), *_ = counts.most_common(1)
        more = plural(repeated, "case is", "cases are")
        ProgressBar(args.quiet).say(
            f"{more} given more than once and run once, such as {printable(case.name)}"
        )
    path = args.out or Path("reports") / f"sweep-{name}"
    if args.dry_run:
        folder = SweepFolder(path, cases, args.force)
        with printing():
            for case in cases:
                folder_name = folder.names[case]
                words = [*COMMAND, *case.words, "--out", str(path / folder_name)]
                done = " (done)" if folder.finished(case) else ""
                print(f"{folder_name}{done}\n  {shlex.join(words)}")
        return 0
    results: dict[Case, CaseResult] = {}
    with take_sweep(path, cases, args.force) as folder:
        try:
            _run(cases, folder, results, args)
        except Interrupted as interrupt:
            n_done = sum(not result.error for result in results.values())
            done = f"{n_done} of {plural(len(cases), 'case is', 'cases are')} done"
            interrupt.hint = f"; {done}: repeat the command to continue"
            raise
        finally:
            in_order = [results[case] for case in cases if case in results]
            files = _write(name, in_order, len(cases), context.command, path) if in_order else []
    return _show(in_order, files, path, args.quiet)


# -- the cases


def _read_cases(args: argparse.Namespace, registry: Mapping[str, Any]) -> tuple[str, list[Case]]:
    """Find the name of the sweep and its cases, from the options or from the file."""

    @cache
    def find(model: str, classes: int | None, words: str) -> tuple[str, tuple[int, ...] | None]:
        source = find_model(model, registry, classes, words)
        return source.name, source.input_shape

    values = {name: getattr(args, name.replace("-", "_")) for name in OPTIONS}
    options = {name: value for name, value in values.items() if value is not None}
    if "input-shape" in options:
        options["input-shape"] = tuple(options["input-shape"])
    if args.file is None:
        if "model" not in options:
            raise UsageError("give --model, or a TOML file with the cases")
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
    """Make a case for each combination; the network varies slowest. Errors begin with ``where``."""
    given = {**_DEFAULTS, **options}
    values = {name: _entries(given[name], name, where) for name in OPTIONS if name in given}
    count = math.prod(map(len, values.values()))
    if count > _MAX_CASES:
        raise UsageError(f"these are {count:,d} cases; a sweep takes at most {_MAX_CASES:,d}")
    parser = Parser(prog=f"{PROG} sweep", argument_default=argparse.SUPPRESS)
    add_case_options(parser)
    try:
        choices = [[_option(name, entry) for entry in values[name]] for name in values]
        cases = []
        for combination in itertools.product(*choices):
            words = list(itertools.chain(*combination))
            args = argparse.Namespace(input_shape=None, classes=None, model_args="")
            # Joined by =, so that a value may begin with a dash.
            parser.parse_args(list(map("=".join, words)), args)
            check_names(args.input_shape)
            network, usual_shape = find(args.model, args.classes, args.model_args)
            shape = _batch_shape(args, usual_shape)
            settings = settings_of(args, model=network, input_shape=shape)
            arguments = _describe_arguments(args)
            cases.append(Case(args.model, settings, tuple(itertools.chain(*words)), arguments))
    except UsageError as error:
        raise UsageError(f"{where}{error}") from None
    return cases


def _option(name: str, entry: Any) -> list[tuple[str, str]]:
    """Pair an option with its value; a list of shapes gives a pair for each argument."""
    is_list = name == "input-shape" and isinstance(entry, list)
    return [(f"--{name}", str(value)) for value in (entry if is_list else [entry])]


def _batch_shape(args: argparse.Namespace, usual: tuple[int, ...] | None) -> tuple[int, ...]:
    """The shape of a case's first array, batch included."""
    if asks_for_more(args):
        batch = make_arguments(args.input_shape, args.batchsize, args.seed)
        return tuple(map(int, batch.array.shape))
    return (args.batchsize, *input_shape(args, usual))


def _describe_arguments(args: argparse.Namespace) -> str:
    """Describe the options of a case that its settings do not contain, such as the classes."""
    words = [args.model_args] if args.model_args else []
    words += [f"{args.classes} classes"] if args.classes else []
    words += list(map(str, args.input_shape)) if asks_for_more(args) else []
    return "; ".join(words)


def _entries(value: Any, name: str, where: str) -> list[Any]:
    """Split the value of an option in :data:`LISTS` into entries; others have a single entry."""
    if name not in LISTS:
        return [value]
    if name == "input-shape" and isinstance(value, tuple):  # given for each argument
        lists = [split_names(entries) for entries in value]
        return list(map(list, itertools.product(*lists))) if len(lists) > 1 else lists[0]
    entries = split_names(value) if isinstance(value, str) else value
    if not isinstance(entries, list):
        return [entries]
    if not entries:
        raise UsageError(f"{where}{name}: the list is empty; give at least one entry")
    return entries


class _File(msgspec.Struct, forbid_unknown_fields=True):
    """The content of a sweep's TOML file."""

    name: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][\w.+-]{0,99}$")] = ""
    common: dict[str, Any] = {}
    cases: Annotated[list[dict[str, Any]], msgspec.Meta(min_length=1)] | None = None


def read_toml(path: Path) -> tuple[str, list[tuple[str, Options]]]:
    """Read the name of a sweep, and its groups of cases: a prefix for errors, and the options."""
    try:
        content = msgspec.convert(tomllib.loads(read_regular(path).decode("utf-8")), _File)
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
    groups: list[tuple[str, Options]] = []
    for number, group in enumerate(content.cases, 1):
        where = f"{path}: [[cases]] {number}: "
        groups.append((where, common | _table(group, where)))
    return content.name or path.stem, groups


def _table(content: Options, where: str) -> dict[str, Any]:
    """Check the options in a table of a file. Their names may have _ in place of -."""
    table: dict[str, Any] = {}
    for key, value in content.items():
        name = key.replace("_", "-")
        if name not in OPTIONS:
            raise UsageError(
                f"{where}unknown key {with_nearest(name, OPTIONS)}; keys are {', '.join(OPTIONS)}"
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
    """Run the cases that are not done. Each result is added to ``results`` and to sweep.csv."""
    results |= {case: done for case in cases if (done := folder.finished(case))}
    todo = [case for case in cases if case not in results]
    if not todo:
        return
    with open_workers(args.executor) as workers:
        progress = _Progress(args.quiet, len(cases), len(results))
        folder.begin()
        with closing(run_cases(todo, folder, workers, progress.say)) as ended:
            for case, result in ended:
                results[case] = result
                in_order = [results[case] for case in cases if case in results]
                write(folder.path, {"sweep.csv": to_csv(content.COLUMNS, in_order)})
                progress.report(result)


def _write(
    name: str, results: Sequence[CaseResult], planned: int, command: str, path: Path
) -> Iterable[str]:
    """Write the tables, the page and the plots; returns the names of the files."""
    drawn = sweep_plot.pictures(results)
    blocks = content.report(name, results, planned, command, list(drawn))
    files: dict[str, str | bytes] = {
        "sweep.csv": to_csv(content.COLUMNS, results),
        "sweep.md": markdown.write(blocks),
        "sweep.html": page.page(blocks, "Sweep", drawn),
        **{plot: picture.png() for plot, picture in drawn.items()},
    }
    files |= {plot.replace(".png", ".svg"): picture.svg() for plot, picture in drawn.items()}
    write(path, files)
    return files


def _show(results: Sequence[CaseResult], files: Iterable[str], path: Path, quiet: bool) -> int:
    """Print the table; raise ProfileError if a case failed. Returns the exit code."""
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
    """Prints the progress of a sweep on standard error, a line for each case."""

    def __init__(self, quiet: bool, total: int, done: int) -> None:
        self._total, self._done, self._n_done_before = total, done, done
        self._begin, self._say = monotonic(), ProgressBar(quiet).say
        if done:
            self.say(f"{done} of {total} cases are done already")

    def say(self, text: str) -> None:
        self._say(printable(text))

    def report(self, result: CaseResult) -> None:
        """Print the result of a case, and the approximate time until all cases are done."""
        self._done += 1
        outcome = f"failed: {result.error}"
        if not result.error:
            times = map(format_duration, (result.median_s, result.std_s))
            outcome = f"{', std '.join(times)}, {format_significant(result.fps)} FPS"
        mean_s = (monotonic() - self._begin) / (self._done - self._n_done_before)
        left = self._total - self._done
        more = f" (about {roughly(mean_s * left)} left)" if left else ""
        self.say(f"[{self._done}/{self._total}] {result.name}: {outcome}{more}")
