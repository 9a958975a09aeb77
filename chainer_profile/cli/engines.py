"""``engines``: a network under several engines, in turn and layer by layer."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from chainer_profile.basics.errors import ProfileError
from chainer_profile.basics.words import PROG
from chainer_profile.cli import WRONG, from_options
from chainer_profile.cli.main import Context, Interrupts
from chainer_profile.engines import race
from chainer_profile.engines.catalogue import BASELINE
from chainer_profile.engines.measuring import measure
from chainer_profile.engines.results import EnginesRun
from chainer_profile.measure.arguments import Arguments
from chainer_profile.measure.clock import HOST_CLOCK
from chainer_profile.measure.devices import move_to_gpu
from chainer_profile.measure.progress import ProgressBar
from chainer_profile.networks import loading
from chainer_profile.record.recording import Recording
from chainer_profile.runs import engines as run_folder

_MAX_LAYER_TRIALS = 200


def run(args: argparse.Namespace, context: Context) -> int:
    """Run a network under the engines; the exit code is 4 if an engine's outputs are wrong."""
    contestants = race.make_contestants(args.engines)
    source = from_options.find_source(args, context)
    batch = from_options.read_input(args, source)
    given = Arguments(from_options.arrays_by_position(batch), {})
    settings = from_options.settings_for(source, batch, args, context, clean_trials=args.trials)
    if args.load_engine is not None:
        race.load_from(args.load_engine, contestants)
    default = from_options.default_folder(settings, "engines-")
    names = [contestant.name for contestant in contestants]
    with run_folder.take_engines_folder(args.out, default, args.force, names) as folder:
        model = from_options.build(source, args)
        loading.check_arguments(model, given.args, {})
        clock = HOST_CLOCK
        if args.gpu >= 0:
            given, clock = move_to_gpu(model, given, args.gpu)
        results, recordings, failure = measure(
            model,
            given.args,
            settings,
            contestants,
            layer_trials=min(args.trials, _MAX_LAYER_TRIALS),
            tolerance=args.tolerance,
            clock=clock,
            stop=context.interrupts.reason,
            measuring=context.interrupts.measuring(),
            bar=ProgressBar(args.quiet, args.max_seconds),
        )
        _write(results, recordings, folder, args, context.interrupts)
        if failure is not None:
            raise failure
        return _exit_code(results, args, context.interrupts)


def _write(
    run: EnginesRun,
    recordings: Mapping[str, Recording],
    folder: Path,
    args: argparse.Namespace,
    interrupts: Interrupts,
) -> None:
    """Write results and reports, and print the tables; without trials, report an interrupt."""
    # Imported after the trials, because they load pandas: see cli/profile.py.
    from chainer_profile.cli.output import say_written
    from chainer_profile.cli.report import show_engines

    if any(len(engine.clean_ns) for engine in run.engines):
        try:
            run_folder.write_run(folder, run, recordings)
            files = ["engines.json", *run_folder.write_reports(folder, run, recordings)]
            files += run_folder.write_engine_reports(folder, run, recordings)
        finally:
            show_engines(run, recordings, args)
        say_written(folder, files, args.quiet)
    elif interrupts.signum:
        print(f"{PROG}: {interrupts.reason()}: no trial was made", file=sys.stderr)


def _exit_code(run: EnginesRun, args: argparse.Namespace, interrupts: Interrupts) -> int:
    """Print the engines with wrong outputs; return the exit code.

    Raises ProfileError if none of the engines that the user named could run.
    """
    from chainer_profile.report.content.engine_texts import other_line, wrong_lines

    if interrupts.signum:
        return interrupts.code
    for line in wrong_lines(run):
        print(f"{PROG}: {line}", file=sys.stderr)
    if run.wrong:
        return WRONG
    if args.engines is not None and not any(e.name != BASELINE for e in run.measured):
        named = [engine for engine in run.others if engine.name != BASELINE]
        if named:
            raise ProfileError(f"no engine but {BASELINE} ran: {other_line(named[0])}")
    return 0
