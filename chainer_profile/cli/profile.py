"""A run, the command that needs no word: measures a network, and reports."""

from __future__ import annotations

import argparse
import shlex
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainer_profile.basics.errors import ProfileError, UsageError, one_line
from chainer_profile.basics.parsing import Parser
from chainer_profile.basics.units import format_count, plural
from chainer_profile.basics.words import COMMAND, PROG, VERSION
from chainer_profile.cli import other_commands
from chainer_profile.cli.options import (
    BY_TRIALS,
    INPUT,
    TRIAL,
    asked_device,
    check_fast,
    check_input,
    read_input,
    settings_of,
    take,
)
from chainer_profile.cli.running import Context, Interrupted, Interrupts, printing, terminal_width
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
    take(group, "--model", "--model-args", "--list-models", "--classes", "--weights", "--dtype")
    take(group, "--fast", "--keep-memory")
    take(parser.add_argument_group("what a trial is"), *TRIAL)
    take(parser.add_argument_group("input"), *INPUT)
    group = parser.add_argument_group("measuring")
    take(group, "--trials", "--clean-trials", "--warmups", "--max-seconds", "--until-ci")
    take(group, "--threads", help=BY_TRIALS)
    take(group, "--gpu", "--device", "--why", "--no-memory", "--counters", "--no-machine")
    take(group, "--layer-frames", "--seed")
    take(parser.add_argument_group("on a GPU"), "--tf32")
    group = parser.add_argument_group("output")
    about = "folder of the results (default: the next free reports/MODEL-DEVICE-bBATCH)"
    take(group, "--out", help=about)
    take(group, "--force")
    add_shown(parser)
    return parser


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
        settings = settings_of(
            args,
            model=source.name,
            input=batch.description,
            input_shape=batch.array.shape,
            batchsize=batchsize,
            clean_trials=_clean_trials(args),
            command=shlex.join([*COMMAND, *context.argv]),
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
