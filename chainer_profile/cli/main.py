"""The command line: ``profile.py [options]`` profiles a network, ``profile.py report`` reports.

``profile.py summary`` shows a network without timing, ``profile.py machine`` the machine's limits.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainer_profile.analyse.hotspots import Rule, parse_rule
from chainer_profile.basics.errors import ProfileError, UsageError, one_line
from chainer_profile.basics.units import (
    NOT_KNOWN,
    format_count,
    format_flops_rate,
    format_intensity,
    format_nbytes,
    format_nbytes_rate,
    plural,
)
from chainer_profile.basics.words import DEFAULT_DEPTH, PROG
from chainer_profile.cli.arguments import (
    gpu_options,
    machine_parser,
    report_parser,
    run_parser,
    wanted,
)
from chainer_profile.cli.interrupts import Interrupted, Interrupts
from chainer_profile.cli.options import asked_device, check_input, read_input
from chainer_profile.cli.running import console_width, printing, run_command, terminal_width
from chainer_profile.runs.formats import check as check_formats
from chainer_profile.runs.formats import needs_no_tables

if TYPE_CHECKING:
    import argparse

    from chainer_profile.networks.loading import RegisteredModel
    from chainer_profile.networks.weights import WeightFormat
    from chainer_profile.record.recording import Recording
    from chainer_profile.runs.output import RunFolder


def main(
    argv: list[str],
    registry: Mapping[str, RegisteredModel],
    formats: Sequence[WeightFormat] = (),
) -> int:
    """Run a command; returns the exit code.

    Args:
        argv: The arguments after the program's name.
        registry: The networks that ``--model`` knows by name.
        formats: Forms of weights that ``--weights`` reads beside Chainer's own.
    """

    def command(interrupts: Interrupts) -> int:
        if argv[:1] == ["summary"]:
            from chainer_profile.cli import summary as summary_command

            return summary_command.run(argv[1:], registry)
        if argv[:1] == ["compare"]:
            from chainer_profile.cli import compare as compare_command

            return compare_command.run(argv[1:])
        if argv[:1] == ["sweep"]:
            from chainer_profile.cli import sweep as sweep_command

            return sweep_command.run(argv[1:], registry)
        if argv[:1] == ["history"]:
            from chainer_profile.cli import history as history_command

            return history_command.run(argv[1:])
        if argv[:1] == ["engines"]:
            from chainer_profile.cli import engines as engines_command

            return engines_command.run(argv[1:], registry, formats, interrupts)
        if argv[:1] == ["export"]:
            from chainer_profile.cli import export as export_command

            return export_command.run(argv[1:], registry, formats)
        if argv[:1] == ["completion"]:
            from chainer_profile.cli import completion

            return completion.run(argv[1:], registry)
        if argv[:1] == ["report"]:
            return _report(report_parser().parse_args(argv[1:]), interrupts)
        if argv[:1] == ["machine"]:
            return _machine(machine_parser().parse_args(argv[1:]))
        return _run(run_parser().parse_args(argv), argv, registry, formats, interrupts)

    return run_command(PROG, argv, command)


def _report(args: argparse.Namespace, interrupts: Interrupts) -> int:
    from chainer_profile.engines.results import RESULTS
    from chainer_profile.runs import output
    from chainer_profile.runs.history import resolve_run

    run = resolve_run(args.run)
    if (run / RESULTS).exists():
        from chainer_profile.cli import engines as engines_command

        if args.formats:
            raise UsageError(
                f"{run}: holds a run of several engines; --format is for the folder of one of them"
            )
        quiet = ["--quiet"] if args.quiet else []
        return engines_command.run(["--report", str(run), *quiet], {}, (), interrupts)
    recording = output.load_run(run)
    check_formats(wanted(args), recording.n_trials)
    folder = run if run.is_dir() else run.parent
    _show(recording, folder, args)
    return 0


def _machine(args: argparse.Namespace) -> int:
    from threadpoolctl import threadpool_limits

    from chainer_profile.measure import environment, machine
    from chainer_profile.measure.limits import limits_file
    from chainer_profile.report.aligned import pairs

    device = machine.find_device(asked_device(args))
    threads = nullcontext() if args.threads is None else threadpool_limits(args.threads, "blas")
    with threads:
        collected = environment.collect()
        found = machine.find_limits(collected, device, refresh=args.refresh)
    limits = found.limits
    lines = [("machine", limits.key)]
    if not device.gpu:
        lines.append(
            ("BLAS threads", format_count(limits.threads) if limits.threads else NOT_KNOWN)
        )
    lines.append(("float32 matrix product", format_flops_rate(limits.flops_per_s)))
    if limits.half_flops_per_s is not None:
        lines.append(("float16 matrix product", format_flops_rate(limits.half_flops_per_s)))
    copied = f"copy of {format_nbytes(limits.copied_nbytes)}"
    fresh_ridge = limits.flops_per_s / limits.fresh_nbytes_per_s
    lines += [
        (copied, f"{format_nbytes_rate(limits.copy_nbytes_per_s)}, read and written"),
        ("the same into new memory", format_nbytes_rate(limits.fresh_nbytes_per_s)),
        (
            "ridge point",
            f"{format_intensity(limits.ridge)}, into new memory {format_intensity(fresh_ridge)}",
        ),
    ]
    if found.kept:
        lines.append(("kept in", f"{limits_file()} since {limits.measured}"))
    if found.note:
        lines.append(("note" if found.kept else "not kept", found.note))
    with printing():
        for line in pairs(lines, terminal_width()):
            print(line)
    return 0


def _run(
    args: argparse.Namespace,
    argv: list[str],
    registry: Mapping[str, RegisteredModel],
    formats: Sequence[WeightFormat],
    interrupts: Interrupts,
) -> int:
    if args.list_models:
        from chainer_profile.report.aligned import wrapped

        width = terminal_width()
        with printing():
            for name, entry in registry.items():
                line = f"{name:23} {'x'.join(map(str, entry.input_shape)):10} {entry.description}"
                print(wrapped(line, width, 24))
        return 0

    if args.force and args.out is None:
        raise UsageError("--force replaces the run in a folder: name it with --out")
    check_input(args)
    asked = gpu_options(args)
    if asked and args.gpu < 0:
        raise UsageError(f"{asked[0]} is for a GPU: give --gpu 0 as well")
    check_formats(wanted(args), args.trials)
    from chainer_profile.measure import configuration
    from chainer_profile.networks import loading, weights
    from chainer_profile.record.recording import Settings
    from chainer_profile.runs import output

    source = loading.find_model(args.model, registry, args.classes)
    batch = read_input(args, source)
    device = asked_device(args)
    phase = "" if args.phase == "forward" else f"-{args.phase}"
    default = Path("reports") / f"{source.name}-{device.replace(':', '')}-b{args.batchsize}{phase}"
    with output.take_folder(args.out, default, args.force) as folder:
        settings = Settings(
            model=source.name,
            input=batch.description,
            input_shape=batch.array.shape,
            batchsize=args.batchsize,
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
            command=shlex.join(["python", PROG, *argv]),
            dtype=args.dtype,
            cudnn=_cudnn(args),
            workspace_nbytes=args.workspace,
        )
        try:
            with configuration.configured(settings):
                model = loading.build_model(source, args.seed)
                if args.weights:
                    weights.load_weights(model, args.weights, formats)
                array = batch.array.astype(configuration.input_dtype(), copy=False)
                return _measure(model, array, settings, folder, args, interrupts)
        except Interrupted as interrupt:
            if folder.holds_trials():
                interrupt.hint = f"; {PROG} report {folder.path} shows the trials so far"
            raise


def _cudnn(args: argparse.Namespace) -> str:
    from chainer_profile.measure.configuration import AUTOTUNE, NEVER

    return NEVER if args.no_cudnn else AUTOTUNE if args.cudnn_autotune else ""


def _clean_trials(args: argparse.Namespace) -> int:
    from chainer_profile.measure.runner import default_clean_trials

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

    from chainer_profile.measure import configuration
    from chainer_profile.measure.clock import HOST_CLOCK
    from chainer_profile.measure.devices import move_to_gpu
    from chainer_profile.measure.progress import ProgressBar
    from chainer_profile.measure.runner import RunError, calibration_of, run
    from chainer_profile.measure.steps import make_step
    from chainer_profile.record.journal import Journal, JournalError
    from chainer_profile.record.recording import Conditions

    clock = HOST_CLOCK
    if args.gpu >= 0:
        if args.tf32:
            configuration.allow_tf32()
        array, clock = move_to_gpu(model, array, args.gpu)
        for_cudnn = ("--cudnn-autotune", "--workspace")
        configuration.require_cudnn([name for name in gpu_options(args) if name in for_cudnn])
    step = make_step(
        settings.phase,
        model,
        (array,),
        train_mode=settings.train_mode,
        loss=args.loss,
        seed=settings.seed,
    )
    journal = Journal(folder.journal)
    failure: ProfileError | None = None
    threads = nullcontext() if args.threads is None else threadpool_limits(args.threads, "blas")
    try:
        with threads, interrupts.measuring():
            with ProgressBar(args.quiet) as progress:
                recording = run(
                    step,
                    settings,
                    journal=journal,
                    clock=clock,
                    progress=progress,
                    stop=interrupts.reason,
                    memory=not args.no_memory,
                    ranges=args.nvtx,
                    calibration=calibration_of(step, clock),
                )
            if not (args.no_machine or interrupts.signum):
                recording = _with_limits(recording)
    except RunError as error:
        failure, recording = error, error.recording
    except (KeyboardInterrupt, SystemExit) as error:  # raised by the network's own code
        failure = ProfileError(f"the network ends the program: {one_line(error)}")
        recording = journal.recording(Conditions(), f"failed: {failure}")
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


def _with_limits(recording: Recording) -> Recording:
    """The recording with the machine's limits; without them where they cannot be measured."""
    from chainer_profile.measure import machine

    try:
        device = machine.find_device(recording.settings.device)
        limits = machine.find_limits(recording.environment, device).limits
    except ProfileError:
        return recording
    return replace(recording, limits=limits)


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
        _show(recording, folder.path, args, "recording.npz")
    except ProfileError as error:
        raise ProfileError(f"{error}; the trials are safe in recording.npz: {again}") from error


def _show(
    recording: Recording, folder: Path | None, args: argparse.Namespace, written: str = ""
) -> None:
    """Write a recording's reports where there is a folder for them, and print its tables."""
    from rich.console import Console

    from chainer_profile.analyse.summaries import summarise
    from chainer_profile.report.writers import json_report, table
    from chainer_profile.runs import output

    rule = args.hotspots if isinstance(args.hotspots, Rule) else parse_rule(args.hotspots)
    summary = summarise(recording, rule)
    asked = wanted(args)
    as_json = needs_no_tables(asked.formats)
    console = Console(quiet=args.quiet or as_json, width=console_width())
    files = []
    # Files come first: a reader of our output that goes away (`| head`) does not prevent them.
    try:
        if folder is not None:
            files = output.write_reports(folder, summary, asked)
    finally:
        with printing():
            if as_json and not args.quiet:
                sys.stdout.write(json_report.render(summary))
            table.render(
                summary,
                console,
                sort=args.sort,
                limit=args.limit or None,
                group_by=args.group_by,
                tree=args.tree,
                depth=DEFAULT_DEPTH if args.depth is None else args.depth,
                macs=args.macs,
                columns=args.columns,
            )
    names = ", ".join(filter(None, (written, *(file.name for file in files))))
    if folder is not None and names:
        with printing():
            said = f"Written to {folder}: {names}"
            console.print(said, markup=False, highlight=False, soft_wrap=True)
