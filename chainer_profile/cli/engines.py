"""``engines``: the same network under other engines, in turn and layer by layer."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainer_profile.basics.errors import ProfileError, UsageError
from chainer_profile.basics.parsing import Parser
from chainer_profile.basics.words import COMMAND, PROG
from chainer_profile.cli.options import (
    INPUT,
    LAYER_TRIALS,
    MACHINE,
    MESSAGES,
    NETWORK,
    asked_device,
    check_input,
    read_input,
    settings_of,
    take,
)
from chainer_profile.cli.running import FULL, Context, printing, show, written_text
from chainer_profile.engines.catalogue import BASELINE, ENGINES

if TYPE_CHECKING:
    from chainer_profile.cli.running import Interrupts
    from chainer_profile.engines.measuring import Measured
    from chainer_profile.engines.race import Contestant
    from chainer_profile.engines.results import EnginesRun
    from chainer_profile.networks.loading import ModelSource
    from chainer_profile.record.recording import Recording, Settings

#: Exit code where an engine's outputs differ from Chainer's by more than the tolerance.
WRONG = 4


def parser() -> argparse.ArgumentParser:
    """Options of the command."""
    parser = Parser(
        prog=f"{PROG} engines",
        description="Runs the same network with the same weights under several engines, compares "
        "their outputs with Chainer's, and shows how fast each is and what became of every layer.",
    )
    take(parser.add_argument_group("network"), *NETWORK)
    take(parser.add_argument_group("input"), *INPUT)
    group = parser.add_argument_group("engines")
    take(group, "--engines", "--list-engines")
    about = "what the other engines compute in; Chainer stays in fp32 (default: %(default)s)"
    take(group, "--precision", help=about)
    take(group, "--tolerance", "--save-engine", "--load-engine")
    group = parser.add_argument_group("measuring")
    take(group, "--trials", help="trials of each engine, taken in turn (default: %(default)s)")
    about = "warm-up runs of each, for ten seconds at most (default: %(default)s)"
    take(group, "--warmups", help=about, default=10)
    take(group, "--layer-trials")
    take(group, "--max-seconds", help="end the trials after so many seconds")
    take(group, *MACHINE, "--seed")
    group = parser.add_argument_group("output")
    about = "folder of the results (default: the next free reports/engines-MODEL-DEVICE-bBATCH)"
    take(group, "--out", help=about)
    take(group, "--force", help="replace a run in the --out folder, or a saved engine")
    take(group, "--report", "--full", *MESSAGES)
    return parser


def _check(args: argparse.Namespace) -> None:
    """Refuse options that do not go together, before anything is done."""
    if args.force and args.out is None and args.save_engine is None:
        raise UsageError("--force replaces the run in a folder: name it with --out")
    check_input(args)
    if args.load_engine is not None and not args.load_engine.is_file():
        raise UsageError(f"--load-engine {args.load_engine}: there is no such file")
    if args.save_engine is not None and args.save_engine.exists() and not args.force:
        raise UsageError(
            f"--save-engine {args.save_engine}: is there already; replace it with --force"
        )


def run(args: argparse.Namespace, context: Context) -> int:
    """Run a network under the engines; the exit code is 4 where an engine's outputs are wrong."""
    if args.list_engines:
        return _list_engines()
    if args.report is not None:
        return report(args.report, args)
    _check(args)

    from chainer_profile.engines import race
    from chainer_profile.networks import loading
    from chainer_profile.runs import engines as run_folder

    chosen = race.choose(args.engines)
    source = loading.find_model(args.model, context.registry, args.classes)
    batch = read_input(args, source)
    if batch.kwargs or len(batch.args) > 1 or isinstance(batch.args[0], list):
        raise UsageError("engines take one array: give one --input-shape")
    device, batchsize = asked_device(args), batch.array.shape[0]
    settings = settings_of(
        args,
        model=source.name,
        input=batch.description,
        input_shape=batch.array.shape,
        batchsize=batchsize,
        clean_trials=args.trials,
        command=shlex.join([*COMMAND, "engines", *context.argv]),
    )
    race.place(
        chosen,
        precision=args.precision,
        save=args.save_engine,
        load=args.load_engine,
    )
    default = Path("reports") / f"engines-{source.name}-{device.replace(':', '')}-b{batchsize}"
    names = [one.name for one in chosen]
    with run_folder.taken(args.out, default, args.force, names) as place:
        measured = _measure(source, batch.array, settings, chosen, args, context)
        return _finish(measured, place, args, context.interrupts)


def _list_engines() -> int:
    with printing():
        for entry in ENGINES.values():
            lacks = entry.lacks()
            state = f"{lacks}: {entry.install}" if lacks else "installed"
            print(f"{entry.name:13} {entry.description} ({state})")
    return 0


def report(place: Path, args: argparse.Namespace) -> int:
    """The reports of such a run again, from its recordings."""
    from chainer_profile.runs import engines as run_folder

    found, recordings = run_folder.read_run(place)
    files = run_folder.write_reports(place, found, recordings)
    _print(found, recordings, args)
    _say_written(place, files, args.quiet)
    return 0


def _measure(
    source: ModelSource,
    array: Any,
    settings: Settings,
    chosen: list[Contestant],
    args: argparse.Namespace,
    context: Context,
) -> Measured:
    """Build the network on its device, and measure."""
    from chainer_profile.engines.measuring import measure
    from chainer_profile.measure.clock import HOST_CLOCK
    from chainer_profile.measure.devices import move_to_gpu
    from chainer_profile.measure.progress import ProgressBar
    from chainer_profile.networks import loading, weights

    model = loading.build_model(source, args.seed)
    if args.weights:
        weights.load_weights(model, args.weights, context.formats)
    clock = HOST_CLOCK
    if args.gpu >= 0:
        array, clock = move_to_gpu(model, array, args.gpu)
    return measure(
        model,
        array,
        settings,
        chosen,
        layer_trials=args.layer_trials or min(args.trials, LAYER_TRIALS),
        tolerance=args.tolerance,
        save=args.save_engine,
        clock=clock,
        stop=context.interrupts.reason,
        measuring=context.interrupts.measuring(),
        bar=ProgressBar(args.quiet, args.max_seconds),
    )


def _finish(
    measured: Measured, place: Path, args: argparse.Namespace, interrupts: Interrupts
) -> int:
    """Write everything and print the table; returns the exit code."""
    from chainer_profile.report.content.engines import wrong_lines
    from chainer_profile.runs import engines as run_folder

    run, recordings = measured.run, measured.recordings
    if any(len(engine.clean_ns) for engine in run.engines):
        files: list[str] = []
        try:
            run_folder.write_run(place, run, recordings)
            files = ["engines.json", *run_folder.write_reports(place, run, recordings)]
            files += run_folder.write_engine_reports(place, run, recordings)
        finally:
            _print(run, recordings, args)
        _say_written(place, files, args.quiet)
    elif interrupts.signum:
        print(f"{PROG}: {interrupts.reason()}: no trial was made", file=sys.stderr)
    if measured.failure is not None:
        raise measured.failure
    if interrupts.signum:
        return 128 + interrupts.signum
    for line in wrong_lines(run):
        print(f"{PROG}: {line}", file=sys.stderr)
    if run.wrong:
        return WRONG
    if args.engines is not None and not any(e.name != BASELINE for e in run.measured):
        named = [engine for engine in run.others if engine.name != BASELINE]
        if named:
            from chainer_profile.report.content.engines import other_line

            raise ProfileError(f"no engine but {BASELINE} ran: {other_line(named[0])}")
    return 0


def _print(run: EnginesRun, recordings: Mapping[str, Recording], args: argparse.Namespace) -> None:
    from chainer_profile.report.content.engines import overview

    show(overview(run, recordings), args.quiet, hint="" if args.full else FULL)


def _say_written(place: Path, files: Sequence[str], quiet: bool) -> None:
    from chainer_profile.report.document import text

    show([text(written_text(place, files))], quiet)
