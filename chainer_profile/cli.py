"""The command line: ``profile.py [options]`` profiles a network, ``profile.py report`` reports."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import chainer_profile
from chainer_profile.errors import ProfileError, UsageError, one_line
from chainer_profile.hotspots import DEFAULT_RULE, Rule, parse_rule
from chainer_profile.interrupts import Interrupted, Interrupts
from chainer_profile.units import format_count, format_duration, parse_percent, plural

if TYPE_CHECKING:
    from chainer_profile.loading import RegisteredModel
    from chainer_profile.output import RunFolder
    from chainer_profile.recording import Recording
    from chainer_profile.runner import Progress

PROG = "profile.py"
DEFAULT_MODEL = "resnet20"
SORT_KEYS = ("time", "median", "p95", "std", "index", "path", "name")


class _Parser(argparse.ArgumentParser):
    """A parser whose complaint is one line."""

    def __init__(self, **kwargs: Any) -> None:
        # Shortened names would change their meaning with every new option.
        super().__init__(allow_abbrev=False, **kwargs)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)")


def main(argv: list[str], registry: Mapping[str, RegisteredModel]) -> int:
    """Run a command; returns the exit code.

    Args:
        argv: The arguments after the program's name.
        registry: The networks that ``--model`` knows by name.
    """
    interrupts = Interrupts()
    debug = "--debug" in argv
    try:
        if argv[:1] == ["report"]:
            return _report(_report_parser().parse_args(argv[1:]))
        return _run(_run_parser(registry).parse_args(argv), argv, registry, interrupts)
    except ProfileError as error:
        if debug:
            traceback.print_exc()
        print(f"{PROG}: error: {error}", file=sys.stderr)
        return error.exit_code
    except Interrupted as interrupt:
        print(f"{PROG}: interrupted{interrupt.hint}", file=sys.stderr)
        return 128 + interrupt.signum
    except BrokenPipeError:
        # The reader of our output went away (`| head`): nothing is left to say to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _whole(minimum: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        # 18 digits are more than anything needs, and keep int() away from endless ones.
        if not re.fullmatch("-?[0-9]{1,18}", text) or int(text) < minimum:
            raise argparse.ArgumentTypeError(
                f"must be a whole number, {minimum} or more, not {text[:40]!r}"
            )
        return int(text)

    return parse


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number of seconds above 0, not {text[:40]!r}")
    return seconds


def _checked(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """One of our parsers as argparse wants it."""

    def checked(text: str) -> Any:
        try:
            return parse(text)
        except UsageError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return checked


def _shape(text: str) -> tuple[int, ...]:
    from chainer_profile.inputs import parse_shape

    return parse_shape(text)


def _folder(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("must be the name of a folder, not ''")
    return Path(text)


def _add_shown(parser: argparse.ArgumentParser) -> None:
    """Options of what is shown, which running and reporting share."""
    group = parser.add_argument_group("what is shown")
    group.add_argument(
        "--hotspots",
        metavar="RULE",
        type=_checked(parse_rule),
        default=DEFAULT_RULE,
        help="which layers are hot: 0.36ms, 5%%, top:10 or pareto:50%% (default: %(default)s, the "
        "fewest layers that hold half of the layers' time)",
    )
    group.add_argument(
        "--sort", choices=SORT_KEYS, default="time", help="order of the layer table (default: time)"
    )
    group.add_argument(
        "--limit",
        metavar="N",
        type=_whole(0),
        default=20,
        help="rows of the layer table on the terminal, 0 for all (default: 20)",
    )
    group.add_argument("-q", "--quiet", action="store_true", help="print nothing but errors")
    group.add_argument("--debug", action="store_true", help="show the traceback of an error")


def _run_parser(registry: Mapping[str, RegisteredModel]) -> argparse.ArgumentParser:
    parser = _Parser(
        prog=PROG,
        description="Profiles a Chainer network layer by layer and writes a table, a plot and a "
        f"report. Another command: {PROG} report DIR makes the reports of a run again.",
    )
    parser.add_argument("--version", action="version", version=chainer_profile.__version__)

    group = parser.add_argument_group("network")
    group.add_argument(
        "-m",
        "--model",
        default=DEFAULT_MODEL,
        help="a name of --list-models, package.module:Callable or path/to/file.py:Callable "
        "(default: %(default)s)",
    )
    group.add_argument("--list-models", action="store_true", help="list the networks and exit")
    group.add_argument("--weights", metavar="FILE.npz", help="weights saved with save_npz")
    group.add_argument(
        "--train-mode",
        action="store_true",
        help="run with chainer.config.train on; inference is done in test mode, without it",
    )

    group = parser.add_argument_group("input")
    group.add_argument(
        "-i",
        "--input",
        default="random",
        help="random, cifar10 (a test image) or a picture's file (default: %(default)s)",
    )
    group.add_argument(
        "--index", metavar="I", type=_whole(0), default=0, help="first test image (default: 0)"
    )
    group.add_argument("--data-dir", metavar="DIR", help="folder of CIFAR-10's files")
    group.add_argument(
        "--input-shape",
        metavar="CxHxW",
        type=_checked(_shape),
        help="shape of one input without the batch; needed for your own network",
    )
    group.add_argument(
        "-b",
        "--batchsize",
        metavar="N",
        type=_whole(1),
        default=1,
        help="inputs per trial (default: %(default)s)",
    )

    group = parser.add_argument_group("measuring")
    group.add_argument(
        "-n",
        "--trials",
        metavar="N",
        type=_whole(1),
        default=1000,
        help="profiled trials (default: %(default)s)",
    )
    group.add_argument(
        "--clean-trials",
        metavar="N",
        type=_whole(0),
        help="trials without hooks on top (default: a tenth of the trials, at least 5)",
    )
    group.add_argument(
        "-w",
        "--warmups",
        metavar="N",
        type=_whole(0),
        default=10,
        help="warm-up trials (default: %(default)s)",
    )
    group.add_argument(
        "--max-seconds", metavar="S", type=_seconds, help="end the trials after so many seconds"
    )
    group.add_argument(
        "--until-ci",
        metavar="PCT",
        type=_checked(parse_percent),
        help="end the trials when the 95%% interval of the mean trial is within PCT per cent",
    )
    group.add_argument(
        "--threads",
        metavar="N",
        type=_whole(1),
        help="BLAS threads (default: as many as BLAS chooses)",
    )
    group.add_argument(
        "-g",
        "--gpu",
        metavar="ID",
        type=_whole(-1),
        default=-1,
        help="GPU to run on (default: -1, the CPU)",
    )
    group.add_argument(
        "--seed",
        metavar="N",
        type=_whole(0),
        default=0,
        help="seed of the weights and of the random input (default: %(default)s)",
    )

    group = parser.add_argument_group("output")
    group.add_argument(
        "-o",
        "--out",
        metavar="DIR",
        type=_folder,
        help="folder of the results (default: the next free reports/MODEL-DEVICE-bBATCH)",
    )
    group.add_argument("--force", action="store_true", help="replace a run in the --out folder")
    _add_shown(parser)
    return parser


def _report_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=f"{PROG} report",
        description="Makes the table, the plot and the report of a run again, from its recording "
        "alone. Recovers the trials of a run that was killed.",
    )
    parser.add_argument("run", metavar="DIR", type=Path, help="folder of a run, or a recording")
    _add_shown(parser)
    return parser


def _report(args: argparse.Namespace) -> int:
    from chainer_profile import output

    recording = output.load_run(args.run)
    folder = args.run if args.run.is_dir() else args.run.parent
    _show(recording, folder, args)
    return 0


def _run(
    args: argparse.Namespace,
    argv: list[str],
    registry: Mapping[str, RegisteredModel],
    interrupts: Interrupts,
) -> int:
    if args.list_models:
        with _printing():
            for name, entry in registry.items():
                print(f"{name:16} {'x'.join(map(str, entry.input_shape)):10} {entry.description}")
        return 0

    if args.force and args.out is None:
        raise UsageError("--force replaces the run in a folder: name it with --out")
    if args.input != "cifar10" and (args.index or args.data_dir is not None):
        option = "--index" if args.index else "--data-dir"
        raise UsageError(f"{option} is for CIFAR-10: give --input cifar10 as well")

    from chainer_profile import inputs, loading, output, weights
    from chainer_profile.recording import Settings

    source = loading.find_model(args.model, registry)
    shape = args.input_shape or source.input_shape
    if shape is None:
        raise UsageError(
            f"--model {args.model}: give the shape of its input, such as --input-shape 3x32x32"
        )
    batch = inputs.make_input(
        args.input,
        shape,
        args.batchsize,
        seed=args.seed,
        index=args.index,
        data_dir=args.data_dir,
        mean=source.mean,
        std=source.std,
    )
    device = "cpu" if args.gpu < 0 else f"gpu:{args.gpu}"
    default = Path("reports") / f"{source.name}-{device.replace(':', '')}-b{args.batchsize}"
    with output.take_folder(args.out, default, args.force) as folder:
        model = loading.build_model(source, args.seed)
        if args.weights:
            weights.load_weights(model, args.weights)
        settings = Settings(
            model=source.name,
            input=batch.description,
            input_shape=batch.array.shape,
            batchsize=args.batchsize,
            device=device,
            train_mode=args.train_mode,
            trials=args.trials,
            clean_trials=_clean_trials(args),
            warmups=args.warmups,
            threads=args.threads,
            seed=args.seed,
            weights=args.weights or "",
            max_seconds=args.max_seconds,
            until_ci=args.until_ci,
            command=shlex.join(["python", PROG, *argv]),
        )
        try:
            return _measure(model, batch.array, settings, folder, args, interrupts)
        except Interrupted as interrupt:
            if folder.holds_trials():
                interrupt.hint = f"; {PROG} report {folder.path} shows the trials so far"
            raise


def _clean_trials(args: argparse.Namespace) -> int:
    from chainer_profile.runner import default_clean_trials

    if args.clean_trials is None:
        return default_clean_trials(args.trials)
    return int(args.clean_trials)


def _measure(
    model: Any,
    array: Any,
    settings: Any,
    folder: RunFolder,
    args: argparse.Namespace,
    interrupts: Interrupts,
) -> int:
    """Make the trials, and write what came out, also when they failed or were interrupted."""
    from threadpoolctl import threadpool_limits

    from chainer_profile.clock import HOST_CLOCK
    from chainer_profile.devices import move_to_gpu
    from chainer_profile.journal import Journal, JournalError
    from chainer_profile.recording import Conditions
    from chainer_profile.runner import RunError, run

    clock = HOST_CLOCK
    if args.gpu >= 0:
        array, clock = move_to_gpu(model, array, args.gpu)
    journal = Journal(folder.journal)
    failure: ProfileError | None = None
    threads = nullcontext() if args.threads is None else threadpool_limits(args.threads, "blas")
    try:
        with threads, _Bar(args.quiet) as progress, interrupts.measuring():
            recording = run(
                model,
                array,
                settings,
                journal=journal,
                clock=clock,
                progress=progress,
                stop=interrupts.reason,
            )
    except RunError as error:
        failure, recording = error, error.recording
    except (KeyboardInterrupt, SystemExit) as error:  # raised by the network's own code
        failure = ProfileError(f"the network ends the program: {one_line(error)}")
        recording = journal.recording(Conditions(), f"failed: {failure}")
    finally:
        # Also where a second signal did not wait for the end of its trial.
        with suppress(JournalError):
            journal.flush()
    trials = f"{format_count(recording.n_trials)} of {plural(settings.trials, 'trial')}"
    if recording.n_trials:
        try:
            _save(recording, folder, args)
        except ProfileError as error:
            raise ProfileError(f"{failure}; {error}" if failure else str(error)) from error
    if failure is not None:
        kept = f"; {trials} are in {folder.path}" if recording.n_trials else ""
        full = isinstance(failure.__cause__, JournalError)
        advice = "; free some space, or name a folder elsewhere with --out" if full else ""
        raise ProfileError(f"{failure}{kept}{advice}") from failure
    if interrupts.signum:
        done = (
            f"{trials} are in {folder.path}"
            if recording.n_trials
            else "no profiled trial was complete"
        )
        print(f"{PROG}: {interrupts.reason()}: {done}", file=sys.stderr)
        return 128 + interrupts.signum
    return 0


def _save(recording: Recording, folder: RunFolder, args: argparse.Namespace) -> None:
    """Write a recording and its reports, and print its tables whether that works or not."""
    again = f"free some space, then run {PROG} report {folder.path}"
    try:
        folder.save(recording)
    except ProfileError as error:
        _show(recording, None, args)
        raise ProfileError(f"{error}; the trials are kept in {folder.journal.name}: {again}") from (
            error
        )
    try:
        _show(recording, folder.path, args, "recording.npz, ")
    except ProfileError as error:
        raise ProfileError(f"{error}; the trials are safe in recording.npz: {again}") from error


def _show(
    recording: Recording, folder: Path | None, args: argparse.Namespace, written: str = ""
) -> None:
    """Write a recording's reports where there is a folder for them, and print its tables."""
    from rich.console import Console

    from chainer_profile import output
    from chainer_profile.renderers import table
    from chainer_profile.summary import summarise

    rule = args.hotspots if isinstance(args.hotspots, Rule) else parse_rule(args.hotspots)
    summary = summarise(recording, rule)
    console = Console(quiet=args.quiet)
    files = []
    # Files come first: a reader of our output that goes away (`| head`) does not prevent them.
    try:
        if folder is not None:
            files = output.write_reports(folder, summary)
    finally:
        with _printing():
            table.render(summary, console, sort=args.sort, limit=args.limit or None)
    if files:
        names = written + ", ".join(file.name for file in files)
        with _printing():
            console.print(f"Written to {folder}: {names}", markup=False, highlight=False)


@contextmanager
def _printing() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise ProfileError(f"standard output cannot be written ({error.strerror})") from error


class _Bar:
    """A progress bar on standard error, where that is a terminal."""

    def __init__(self, quiet: bool) -> None:
        self._hidden = quiet or not sys.stderr.isatty()

    def __enter__(self) -> Progress:
        if self._hidden:
            return lambda done, total, mean_s: None
        from time import monotonic

        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        # Redrawn between trials only: a thread of its own would disturb them.
        self._bar = Progress(
            TextColumn("profiling"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TextColumn("mean {task.fields[mean]}"),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            auto_refresh=False,
            transient=True,
        )
        self._bar.start()
        begin = shown = monotonic()
        task = self._bar.add_task("", total=None, rate="", mean="-")

        def update(done: int, total: int, mean_s: float) -> None:
            nonlocal shown
            now = monotonic()
            if now - shown >= 0.5 or done == total:
                shown = now
                self._bar.update(
                    task,
                    completed=done,
                    total=total,
                    rate=f"{done / (now - begin):.0f} trials/s",
                    mean=format_duration(mean_s),
                    refresh=True,
                )

        return update

    def __exit__(self, *_: object) -> None:
        if not self._hidden:
            self._bar.stop()
