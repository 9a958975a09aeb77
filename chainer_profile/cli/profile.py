"""``profile``, the default command: measures a network, and reports."""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext
from typing import Any

from chainer_profile.basics.errors import ProfileError, one_line
from chainer_profile.basics.units import format_count, plural
from chainer_profile.basics.words import PROG, TYPED
from chainer_profile.cli import from_options
from chainer_profile.cli.main import Context, Interrupted, Interrupts
from chainer_profile.measure import calibration, configuration, runner
from chainer_profile.measure import clock as clocks
from chainer_profile.measure.arguments import Arguments
from chainer_profile.measure.devices import move_to_gpu
from chainer_profile.measure.layer_frames import layer_frames
from chainer_profile.measure.progress import ProgressBar
from chainer_profile.measure.steps import make_step
from chainer_profile.networks import loading
from chainer_profile.record.journal import Journal, JournalError
from chainer_profile.record.recording import Conditions, Recording, Settings
from chainer_profile.runs.folder import RunFolder, take_folder
from chainer_profile.runs.formats import trace_trial


def run(args: argparse.Namespace, context: Context) -> int:
    """Make a run: take a folder, build the network, measure, write and print."""
    trace_trial(args.formats, args.trials)  # refuse a trace of a trial that is not made
    source = from_options.find_source(args, context)
    batch = from_options.read_input(args, source)
    usual = runner.default_clean_trials(args.trials)
    clean = usual if args.clean_trials is None else args.clean_trials
    settings = from_options.settings_for(source, batch, args, context, clean_trials=clean)
    given = from_options.arguments_of(batch)
    with take_folder(args.out, from_options.default_folder(settings), args.force) as folder:
        try:
            with configuration.configured(settings):
                model = from_options.build(source, args)
                loading.check_arguments(model, given.args, given.kwargs)
                given = given.with_floats(configuration.input_dtype())
                return _measure(model, given, settings, folder, args, context.interrupts)
        except Interrupted as interrupt:
            if folder.has_trials():
                interrupt.hint = f"; {TYPED} report {folder.path} shows the trials so far"
            raise


def _measure(
    model: Any,
    given: Arguments,
    settings: Settings,
    folder: RunFolder,
    args: argparse.Namespace,
    interrupts: Interrupts,
) -> int:
    """Make the trials, write and print, even if trials failed; returns the exit code."""
    clock = clocks.HOST_CLOCK
    if args.gpu >= 0:
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
            recording = runner.run(
                step,
                settings,
                journal=journal,
                clock=clock,
                progress=progress,
                say=bar.say,
                warn=bar.warn,
                stop=interrupts.reason,
                memory="memory" not in args.skip,
                counters=False if "counters" in args.skip else args.counters,
                why=args.why,
                limits="machine" not in args.skip,
                calibration=calibration.calibration_of(step, clock),
            )
    except runner.RunError as error:
        failure, recording = error, error.recording
    except (KeyboardInterrupt, SystemExit) as error:  # raised by the network's own code
        failure = ProfileError(f"the network ends the program: {one_line(error)}")
        recording = journal.recording(Conditions(), f"failed: {failure}")
    kept = _save_trials(recording, failure, folder, args)
    if failure is not None:
        full = isinstance(failure.__cause__, JournalError)
        advice = "free some space, or choose another folder with --out" if full else ""
        raise ProfileError("; ".join(filter(None, [str(failure), kept, advice]))) from failure
    if interrupts.signum:
        done = kept or "no profiled trial was complete"
        print(f"{PROG}: {interrupts.reason()}: {done}", file=sys.stderr)
    return interrupts.code


def _save_trials(
    recording: Recording, failure: ProfileError | None, folder: RunFolder, args: argparse.Namespace
) -> str:
    """Save a recording if it has trials; returns where they are, for the messages after it."""
    if not recording.n_trials:
        return ""
    try:
        _save(recording, folder, args)
    except ProfileError as error:
        raise ProfileError(f"{failure}; {error}" if failure else str(error)) from error
    wanted = plural(recording.settings.trials, "trial")
    return f"{format_count(recording.n_trials)} of {wanted} are in {folder.path}"


def _save(recording: Recording, folder: RunFolder, args: argparse.Namespace) -> None:
    """Write a recording and its reports, and print its tables even if the writing fails."""
    # Imported after the trials: glibc keeps memory that the import of pandas frees, and the trials
    # would use it.
    from chainer_profile.cli.report import show_run

    try:
        folder.save(recording)
    except ProfileError as error:
        show_run(recording, None, args)
        raise ProfileError(str(error)) from error
    try:
        show_run(recording, folder.path, args, "recording.npz")
    except ProfileError as error:
        again = f"free some space, then run {TYPED} report {folder.path}"
        raise ProfileError(f"{error}; the trials are safe in recording.npz: {again}") from error
