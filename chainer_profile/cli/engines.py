"""``profile.py engines``: the same network under other engines, in turn and layer by layer."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainer_profile.basics.errors import ProfileError
from chainer_profile.basics.words import PROG
from chainer_profile.cli.engines_arguments import LAYER_TRIALS, check, parser
from chainer_profile.cli.options import asked_device, read_input
from chainer_profile.cli.running import console_width, printing
from chainer_profile.engines.catalogue import BASELINE, ENGINES

if TYPE_CHECKING:
    from chainer_profile.cli.interrupts import Interrupts
    from chainer_profile.engines.chosen import Chosen
    from chainer_profile.engines.measuring import Measured
    from chainer_profile.engines.results import EnginesRun
    from chainer_profile.networks.loading import ModelSource, RegisteredModel
    from chainer_profile.networks.weights import WeightFormat
    from chainer_profile.record.recording import Recording, Settings

#: Exit code where an engine's outputs differ from Chainer's by more than the tolerance.
WRONG = 4


def run(
    argv: list[str],
    registry: Mapping[str, RegisteredModel],
    formats: Sequence[WeightFormat],
    interrupts: Interrupts,
) -> int:
    """Run the command; returns the exit code: 4 where an engine's outputs are wrong.

    Args:
        argv: The arguments after ``engines``.
        registry: The networks that ``--model`` knows by name.
        formats: Forms of weights that ``--weights`` reads beside Chainer's own.
        interrupts: Handles signals: the first one ends the trials in good order.

    Raises:
        ProfileError: Chainer cannot run the network, none of the engines that were named could
            run, or something cannot be written.
        UsageError: The arguments say nothing that can be done.
    """
    args = parser().parse_args(argv)
    if args.list_engines:
        return _list_engines()
    if args.report is not None:
        return _report(args)
    check(args)

    from chainer_profile.engines import chosen as engines
    from chainer_profile.networks import loading
    from chainer_profile.record.recording import Settings
    from chainer_profile.runs import engines as run_folder

    chosen = engines.choose(args.engines, gpu=args.gpu >= 0)
    source = loading.find_model(args.model, registry, args.classes)
    batch = read_input(args, source)
    device = asked_device(args)
    settings = Settings(
        model=source.name,
        input=batch.description,
        input_shape=batch.array.shape,
        batchsize=args.batchsize,
        device=device,
        trials=args.trials,
        clean_trials=args.trials,
        warmups=args.warmups,
        threads=args.threads,
        seed=args.seed,
        weights=args.weights or "",
        max_seconds=args.max_seconds,
        command=shlex.join(["python", PROG, "engines", *argv]),
        precision=args.precision,
    )
    engines.place(
        chosen.contestants,
        precision=args.precision,
        save=args.save_engine,
        load=args.load_engine,
    )
    default = Path("reports") / f"engines-{source.name}-{device.replace(':', '')}-b{args.batchsize}"
    with run_folder.taken(args.out, default, args.force) as place:
        measured = _measure(source, batch.array, settings, chosen, args, formats, interrupts)
        return _finish(measured, place, args, interrupts)


def _list_engines() -> int:
    with printing():
        for entry in ENGINES.values():
            missing = entry.missing()
            state = f"not installed: {entry.install}" if missing else "installed"
            where = ", on a GPU only" if entry.gpu else ""
            print(f"{entry.name:13} {entry.description}{where} ({state})")
    return 0


def _report(args: argparse.Namespace) -> int:
    from chainer_profile.runs import engines as run_folder

    found, recordings = run_folder.read_run(args.report)
    files = run_folder.write_reports(args.report, found, recordings)
    _print(found, recordings, args)
    _say_written(args.report, files, args)
    return 0


def _measure(
    source: ModelSource,
    array: Any,
    settings: Settings,
    chosen: Chosen,
    args: argparse.Namespace,
    formats: Sequence[WeightFormat],
    interrupts: Interrupts,
) -> Measured:
    """Build the network on its device, and measure."""
    from chainer_profile.engines.measuring import measure
    from chainer_profile.measure.clock import HOST_CLOCK
    from chainer_profile.measure.devices import move_to_gpu
    from chainer_profile.measure.progress import ProgressBar
    from chainer_profile.networks import loading, weights

    model = loading.build_model(source, args.seed)
    if args.weights:
        weights.load_weights(model, args.weights, formats)
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
        stop=interrupts.reason,
        measuring=interrupts.measuring(),
        bar=ProgressBar(args.quiet),
    )


def _finish(
    measured: Measured, place: Path, args: argparse.Namespace, interrupts: Interrupts
) -> int:
    """Write everything and print the table; returns the exit code."""
    from chainer_profile.report.content.engines_text import wrong_lines
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
        _say_written(place, files, args)
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
            from chainer_profile.report.content.engines_text import other_line

            raise ProfileError(f"no engine but {BASELINE} ran: {other_line(named[0])}")
    return 0


def _print(run: EnginesRun, recordings: Mapping[str, Recording], args: argparse.Namespace) -> None:
    from rich.console import Console

    from chainer_profile.report.writers import engines_table

    with printing():
        console = Console(quiet=args.quiet, width=console_width())
        engines_table.render(run, recordings, console)


def _say_written(place: Path, files: Sequence[str], args: argparse.Namespace) -> None:
    from rich.console import Console

    from chainer_profile.report.text import printable

    with printing():
        console = Console(quiet=args.quiet, width=console_width())
        said = f"Written to {printable(str(place))}: {', '.join(files)}"
        console.print(said, markup=False, highlight=False, soft_wrap=True)
