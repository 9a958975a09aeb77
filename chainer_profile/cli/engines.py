"""``engines``: the same network under other engines, in turn and layer by layer."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainer_profile.basics.choosing import split_names
from chainer_profile.basics.errors import ProfileError, UsageError
from chainer_profile.basics.parsing import Parser, checked, folder, number, whole
from chainer_profile.basics.words import COMMAND, PROG
from chainer_profile.cli.options import (
    add_classes,
    add_input,
    add_machine,
    add_max_seconds,
    add_messages,
    add_model,
    add_out,
    add_precision,
    add_seed,
    add_trials,
    add_warmups,
    add_weights,
    asked_device,
    check_input,
    read_input,
)
from chainer_profile.cli.running import Context, printing, show
from chainer_profile.engines.catalogue import BASELINE, ENGINES

if TYPE_CHECKING:
    from chainer_profile.cli.interrupts import Interrupts
    from chainer_profile.engines.measuring import Measured
    from chainer_profile.engines.race import Contestant
    from chainer_profile.engines.results import EnginesRun
    from chainer_profile.networks.loading import ModelSource
    from chainer_profile.record.recording import Recording, Settings

#: Exit code where an engine's outputs differ from Chainer's by more than the tolerance.
WRONG = 4
#: Trials in which nodes are timed, at most, where none were asked for.
LAYER_TRIALS = 200


def parser() -> argparse.ArgumentParser:
    """Options of the command."""
    parser = Parser(
        prog=f"{PROG} engines",
        description="Runs the same network with the same weights under several engines, compares "
        "their outputs with Chainer's, and shows how fast each is and what became of every layer.",
    )
    group = parser.add_argument_group("network")
    add_model(group)
    add_classes(group)
    add_weights(group)
    group = parser.add_argument_group("input")
    add_input(group)

    group = parser.add_argument_group("engines")
    group.add_argument(
        "--engines",
        metavar="A,B",
        type=checked(split_names),
        help="names of --list-engines, or module:Class of your own; chainer always comes first "
        "(default: all that can run on the device)",
    )
    group.add_argument("--list-engines", action="store_true", help="list the engines and exit")
    add_precision(group, "what the other engines compute in; Chainer stays in fp32")
    group.add_argument(
        "--tolerance",
        metavar="F",
        type=number("a number above 0 up to 1, such as 1e-4", most=1),
        help="largest difference of an output that is right, as a fraction of the largest output "
        "(default: 1e-4 for fp32, 1e-2 for fp16, 5e-2 for bf16)",
    )
    group.add_argument(
        "--save-engine",
        metavar="FILE",
        type=Path,
        help="keep an engine made ready; the file's ending says which",
    )
    group.add_argument(
        "--load-engine",
        metavar="FILE",
        type=Path,
        help="run an engine from such a file, with the weights that are in it",
    )

    group = parser.add_argument_group("measuring")
    add_trials(group, "trials of each engine, taken in turn")
    add_warmups(group, "warm-up runs of each, for ten seconds at most", 10)
    group.add_argument(
        "--layer-trials",
        metavar="N",
        type=whole(1),
        help="further trials of each, in which its layers are timed (default: as many as trials, "
        f"{LAYER_TRIALS} at most)",
    )
    add_max_seconds(group, "end the trials after so many seconds")
    add_machine(group, "-d")
    add_seed(group)

    group = parser.add_argument_group("output")
    add_out(
        group,
        "folder of the results (default: the next free reports/engines-MODEL-DEVICE-bBATCH)",
        "replace a run in the --out folder, or a saved engine",
    )
    group.add_argument(
        "--report", metavar="DIR", type=folder, help="make the reports of such a run again"
    )
    add_messages(group)
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
        return report(args.report, quiet=args.quiet)
    _check(args)

    from chainer_profile.engines import chosen as engines
    from chainer_profile.networks import loading
    from chainer_profile.record.recording import Settings
    from chainer_profile.runs import engines as run_folder

    chosen = engines.choose(args.engines)
    source = loading.find_model(args.model, context.registry, args.classes)
    batch = read_input(args, source)
    if batch.kwargs or len(batch.args) > 1 or isinstance(batch.args[0], list):
        raise UsageError("engines take one array: give one --input-shape")
    device, batchsize = asked_device(args), batch.array.shape[0]
    settings = Settings(
        model=source.name,
        input=batch.description,
        input_shape=batch.array.shape,
        batchsize=batchsize,
        device=device,
        trials=args.trials,
        clean_trials=args.trials,
        warmups=args.warmups,
        threads=args.threads,
        seed=args.seed,
        weights=args.weights or "",
        max_seconds=args.max_seconds,
        command=shlex.join([*COMMAND, "engines", *context.argv]),
        precision=args.precision,
    )
    engines.place(
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


def report(place: Path, *, quiet: bool) -> int:
    """The reports of such a run again, from its recordings."""
    from chainer_profile.runs import engines as run_folder

    found, recordings = run_folder.read_run(place)
    files = run_folder.write_reports(place, found, recordings)
    _print(found, recordings, quiet)
    _say_written(place, files, quiet)
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
            _print(run, recordings, args.quiet)
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


def _print(run: EnginesRun, recordings: Mapping[str, Recording], quiet: bool) -> None:
    from chainer_profile.report.content.engines import overview

    show(overview(run, recordings), quiet)


def _say_written(place: Path, files: Sequence[str], quiet: bool) -> None:
    from chainer_profile.report.document import text

    show([text(f"Written to {place}: {', '.join(files)}")], quiet)
