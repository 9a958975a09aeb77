"""A run, the command that needs no word: measures a network, and reports."""

from __future__ import annotations

import argparse
import shlex
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainer_profile.basics.errors import ProfileError, UsageError, one_line
from chainer_profile.basics.parsing import Parser, checked, whole
from chainer_profile.basics.units import format_count, parse_percent, plural
from chainer_profile.basics.words import COMMAND, PROG, VERSION
from chainer_profile.cli import other_commands
from chainer_profile.cli.interrupts import Interrupted, Interrupts
from chainer_profile.cli.options import (
    add_classes,
    add_dtype,
    add_fast,
    add_input,
    add_machine,
    add_max_seconds,
    add_model,
    add_model_args,
    add_out,
    add_seed,
    add_trial,
    add_trials,
    add_warmups,
    add_weights,
    asked_device,
    check_fast,
    check_input,
    read_input,
)
from chainer_profile.cli.running import Context, printing, terminal_width
from chainer_profile.cli.shown import add_shown, show, wanted
from chainer_profile.runs.wanted import check as check_formats

if TYPE_CHECKING:
    from chainer_profile.measure.arguments import Arguments
    from chainer_profile.record.recording import Recording
    from chainer_profile.runs.folder import RunFolder


def parser() -> argparse.ArgumentParser:
    """Options of a run."""
    parser = Parser(
        prog=PROG,
        description="Profiles a Chainer network layer by layer and writes tables, a plot and a "
        "report.",
        epilog=other_commands(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=VERSION)

    group = parser.add_argument_group("network")
    add_model(group)
    add_model_args(group)
    group.add_argument("--list-models", action="store_true", help="list the networks and exit")
    add_classes(group)
    add_weights(group)
    add_dtype(group)

    add_fast(group)
    group.add_argument(
        "--keep-memory",
        action="store_true",
        help="have glibc keep freed memory in the process, in place of fetching it anew for every "
        "array; --fast does so too",
    )

    add_trial(parser.add_argument_group("what a trial is"))

    group = parser.add_argument_group("input")
    add_input(group)

    group = parser.add_argument_group("measuring")
    add_trials(group, "profiled trials")
    group.add_argument(
        "--clean-trials",
        metavar="N",
        type=whole(0),
        help="trials without hooks on top (default: a tenth of the trials, at least 30 or as many)",
    )
    add_warmups(group, "warm-up trials, for ten seconds at most", 50)
    add_max_seconds(group, "time for all passes together; the trials end before")
    group.add_argument(
        "--until-ci",
        metavar="PCT",
        type=checked(parse_percent),
        help="end the trials when the 95%% interval of the median profiled trial is within PCT per "
        "cent (looked at from 200 trials on)",
    )
    add_machine(group, "-d", default="one, or as many as BLAS chooses where these are faster")
    group.add_argument(
        "--why",
        action="store_true",
        help="look inside the layers for some seconds after the trials: in which parts their time "
        "goes, and the framework's between them",
    )
    group.add_argument(
        "--no-memory",
        dest="memory",
        action="store_false",
        help="leave out the memory pass, two trials more after the timed ones",
    )
    group.add_argument(
        "--counters",
        action=argparse.BooleanOptionalAction,
        help="count CPU time, page faults and switches of the thread by layer, in trials of their "
        "own after the timed ones: for five seconds, or none (default: for a tenth of the trials' "
        "time, five seconds at most; on a CPU)",
    )
    group.add_argument(
        "--no-machine",
        dest="limits",
        action="store_false",
        help="leave out the machine's limits, which are measured after the trials of the first run "
        "and kept for later ones",
    )
    group.add_argument(
        "--layer-frames",
        action="store_true",
        help="run every layer below a function of its name, for samplers such as py-spy and perf; "
        "a call takes about 7 us more",
    )
    add_seed(group)

    _add_gpu(parser)

    group = parser.add_argument_group("output")
    add_out(
        group,
        "folder of the results (default: the next free reports/MODEL-DEVICE-bBATCH)",
        "replace a run in the --out folder",
    )
    add_shown(parser)
    return parser


def _add_gpu(parser: argparse.ArgumentParser) -> None:
    """The options that only a GPU has."""
    group = parser.add_argument_group("on a GPU")
    group.add_argument(
        "--tf32",
        action="store_true",
        help="let float32 matrix products round their inputs to TF32 (CUPY_TF32=1)",
    )


def run(args: argparse.Namespace, context: Context) -> int:
    """Make a run: take its folder, build the network, measure, write and print."""
    if args.list_models:
        from chainer_profile.report.writers.terminal import wrapped

        width = terminal_width()
        with printing():
            for name, entry in context.registry.items():
                line = f"{name:23} {'x'.join(map(str, entry.input_shape)):10} {entry.description}"
                print(wrapped(line, width, 24))
        return 0

    if args.force and args.out is None:
        raise UsageError("--force replaces the run in a folder: name it with --out")
    check_input(args)
    check_fast(args)
    if args.tf32 and args.gpu < 0:
        raise UsageError("--tf32 is for a GPU: give --gpu 0 as well")
    if args.counters and args.gpu >= 0:
        raise UsageError("--counters are the CPU's: leave --counters or --gpu out")
    check_formats(wanted(args), args.trials)
    from chainer_profile.measure import configuration
    from chainer_profile.measure.arguments import Arguments
    from chainer_profile.networks import loading, weights
    from chainer_profile.record.recording import Settings
    from chainer_profile.runs.folder import take_folder

    source = loading.find_model(args.model, context.registry, args.classes, args.model_args)
    batch = read_input(args, source)
    device = asked_device(args)
    phase = "" if args.phase == "forward" else f"-{args.phase}"
    if args.fast:
        phase += "-fast" if args.fast == "numpy" else f"-{args.fast}"
    given = Arguments(batch.args, dict(batch.kwargs))
    batchsize = given.batchsize
    default = Path("reports") / f"{source.name}-{device.replace(':', '')}-b{batchsize}{phase}"
    with take_folder(args.out, default, args.force) as folder:
        settings = Settings(
            model=source.name,
            input=batch.description,
            input_shape=batch.array.shape,
            batchsize=batchsize,
            device=device,
            phase=args.phase,
            train_mode=args.train_mode,
            trials=args.trials,
            clean_trials=_clean_trials(args),
            warmups=args.warmups,
            threads=args.threads,
            seed=args.seed,
            weights=args.weights or "",
            max_seconds=args.max_seconds,
            until_ci=args.until_ci,
            command=shlex.join([*COMMAND, *context.argv]),
            dtype=args.dtype,
            fast=args.fast or "",
            keep_memory=args.keep_memory,
        )
        try:
            with configuration.configured(settings):
                model = loading.build_model(source, args.seed)
                if args.weights:
                    weights.load_weights(model, args.weights, context.formats)
                loading.check_arguments(model, given.args, given.kwargs)
                given = given.with_floats(configuration.input_dtype())
                return _measure(model, given, settings, folder, args, context.interrupts)
        except Interrupted as interrupt:
            if folder.holds_trials():
                interrupt.hint = f"; {PROG} report {folder.path} shows the trials so far"
            raise


def _clean_trials(args: argparse.Namespace) -> int:
    from chainer_profile.measure.runner import default_clean_trials

    if args.clean_trials is None:
        return default_clean_trials(args.trials)
    return int(args.clean_trials)


def _measure(
    model: Any,
    given: Arguments,
    settings: Any,
    folder: RunFolder,
    args: argparse.Namespace,
    interrupts: Interrupts,
) -> int:
    """Make the trials, and write what came out, also when they failed or were interrupted."""
    from chainer_profile.measure import configuration
    from chainer_profile.measure.clock import HOST_CLOCK
    from chainer_profile.measure.devices import move_to_gpu
    from chainer_profile.measure.layer_frames import layer_frames
    from chainer_profile.measure.progress import ProgressBar
    from chainer_profile.measure.runner import RunError, calibration_of, run
    from chainer_profile.measure.steps import make_step
    from chainer_profile.record.journal import Journal, JournalError
    from chainer_profile.record.recording import Conditions

    clock = HOST_CLOCK
    if args.gpu >= 0:
        if args.tf32:
            configuration.allow_tf32()
        given, clock = move_to_gpu(model, given, args.gpu)
    step = make_step(
        settings.phase,
        model,
        given.args,
        keywords=given.kwargs,
        train_mode=settings.train_mode,
        loss=args.loss,
        seed=settings.seed,
    )
    journal = Journal(folder.journal)
    failure: ProfileError | None = None
    bar = ProgressBar(args.quiet, args.max_seconds)
    frames = layer_frames(model) if args.layer_frames else nullcontext()
    try:
        with interrupts.measuring(), frames, bar as progress:
            recording = run(
                step,
                settings,
                journal=journal,
                clock=clock,
                progress=progress,
                say=bar.say,
                warn=bar.warn,
                stop=interrupts.reason,
                memory=args.memory,
                counters=args.counters,
                why=args.why,
                limits=args.limits,
                calibration=calibration_of(step, clock),
            )
    except RunError as error:
        failure, recording = error, error.recording
    except (KeyboardInterrupt, SystemExit) as error:  # raised by the network's own code
        failure = ProfileError(f"the network ends the program: {one_line(error)}")
        recording = journal.recording(Conditions(), f"failed: {failure}")
    trials = f"{format_count(recording.all_trials)} of {plural(settings.trials, 'trial')}"
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
        recording = folder.save(recording)
    except ProfileError as error:
        show(recording, None, args)
        raise ProfileError(f"{error}; the trials are kept in {folder.journal.name}: {again}") from (
            error
        )
    try:
        show(recording, folder.path, args, "recording.npz")
    except ProfileError as error:
        raise ProfileError(f"{error}; the trials are safe in recording.npz: {again}") from error
