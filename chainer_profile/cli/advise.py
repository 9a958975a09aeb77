"""``advise``: tries changes that could make a network faster, and shows the gain of each."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainer_profile.advice.worker import Worker, serve_standard_streams
from chainer_profile.analyse.findings import Change
from chainer_profile.basics.errors import UsageError
from chainer_profile.basics.files import is_free, numbered
from chainer_profile.basics.free_memory import free_nbytes
from chainer_profile.basics.parsing import Parser
from chainer_profile.basics.words import (
    COMMAND,
    command_with_try,
    export_command,
    profile_arguments,
    same_command_with_try,
)
from chainer_profile.cli import PROFILE, from_options
from chainer_profile.cli.arguments.advise import add_own_options
from chainer_profile.cli.main import Context
from chainer_profile.cli.options import settings_of
from chainer_profile.cli.parsers import parser_of
from chainer_profile.measure.arguments import Arguments

if TYPE_CHECKING:
    from chainer_profile.advice.changes import Capabilities
    from chainer_profile.record.recording import Recording

#: Trials of the profile of the unchanged network, and the part of the budget that it may take.
_MAX_PROFILE_TRIALS, _PROFILE_PART = 300, 0.12
#: Part of the budget in which the number of threads is chosen, if the profile did not choose it.
_CHOOSING_THREADS_PART = 0.1
#: Seconds of the budget that are reserved for the reports.
_REPORTS_S = 5.0
#: Memory of a process without its network, and the part of the free memory for all processes.
_PROCESS_NBYTES, _MAX_MEMORY_PART = 400 << 20, 0.7
#: The environment variable with the job of a process that measures a change.
_WORKER = "CHAINER_PROFILE_ADVISE"


def run(args: argparse.Namespace, context: Context) -> int:
    """Try the changes that a network's profile proposes; an existing run replaces the profile."""
    if job := os.environ.get(_WORKER):  # started by _start() in another process
        return _work(json.loads(job), context)
    begin = time.monotonic()
    # All words but the options of ``advise`` itself are arguments of a profile.
    own = Parser()
    add_own_options(own)
    words = own.parse_known_args(context.argv)[1]
    if args.run is not None:
        words.remove(args.run)
        if words or args.out is not None:
            option = words[0] if words else "--out"
            raise UsageError(f"{args.run} has its own network and folder: leave out {option}")
        folder, words = _existing_run(args)
    else:
        folder = args.out or _new_folder(args, context)
        if code := _profile(args, words, folder, context):
            return code
    return _advise(args, words, folder, begin, context)


def _new_folder(args: argparse.Namespace, context: Context) -> Path:
    """The default folder, or its name with -2, -3, ..., whichever is free first."""
    source = from_options.find_source(args, context)
    settings = from_options.settings_for(
        source, from_options.read_input(args, source), args, context
    )
    return next(filter(is_free, numbered(from_options.default_folder(settings, "advise-"))))


def _profile(args: argparse.Namespace, words: list[str], folder: Path, context: Context) -> int:
    """Profile the unchanged network for a short time, without reports; returns the exit code."""
    from chainer_profile.cli import profile

    seconds = max(1.0, _PROFILE_PART * args.budget)
    words = [*words, "--trials", str(_MAX_PROFILE_TRIALS), "--max-seconds", f"{seconds:g}"]
    words += ["--format", "none", "-q", "--out", str(folder), *["--force"] * args.force]
    return profile.run(
        parser_of(PROFILE).parse_args(words),
        replace(context, command=shlex.join([*COMMAND, *words])),
    )


def _existing_run(args: argparse.Namespace) -> tuple[Path, list[str]]:
    """Find the folder and the arguments of the run that the user names.

    Raises UsageError if the run is a program, uses an engine or a GPU, and so cannot be changed.
    """
    from chainer_profile.measure.progress import ProgressBar
    from chainer_profile.record.budget import ADVICE
    from chainer_profile.runs.folder import load_run

    folder = Path(args.run)
    settings = load_run(folder).settings
    words = profile_arguments(settings.command)
    if words is None:
        tried = same_command_with_try(settings.command) or command_with_try("SCRIPT")
        raise UsageError(
            f"{args.run} is the run of a program, and advise builds networks; to try what makes "
            f"the program faster: {tried}"
        )
    if settings.engine:
        raise UsageError(f"{args.run} ran {settings.engine}; advise changes networks of Chainer")
    if settings.device != "cpu":
        raise UsageError(f"{args.run} ran on {settings.device}; advise tries changes on the CPU")
    if not folder.is_dir():
        raise UsageError(f"{args.run} is a file; name the folder of the run")
    if (folder / ADVICE).exists() and not args.force:
        raise UsageError(f"{args.run} contains advice already; replace it with --force")
    words, removed = _update_words(words)
    if removed:
        problem = f"{args.run} is taken without {shlex.join(removed)}"
        ProgressBar(args.quiet).warn(f"{problem}: this version has no such option")
    return folder, words


def _update_words(words: list[str]) -> tuple[list[str], list[str]]:
    """Replace options of older versions; also return the arguments that this version refuses."""
    old = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    # --format is dropped, because no process that measures a change writes files.
    for option in ("--input-size", "--index", "--format"):
        old.add_argument(option)
    given, words = old.parse_known_args(words)
    words += [f"--input-shape={given.input_size}"] if given.input_size else []
    words += [f"--input=cifar10:{given.index}"] if given.index else []
    return words, parser_of(PROFILE).parse_known_args(words)[1]


def _advise(
    args: argparse.Namespace, words: list[str], folder: Path, begin: float, context: Context
) -> int:
    """Try the changes, write the advice and the reports, and print it; returns the exit code."""
    # Not at the top: the processes that measure changes do not need these modules.
    from chainer_profile.advice.changes import Candidate, propose
    from chainer_profile.advice.results import Advice, promising, write_json
    from chainer_profile.advice.trying import Experiment
    from chainer_profile.analyse.summaries import summarise
    from chainer_profile.cli.output import first_screen_hint, say_written, show
    from chainer_profile.measure.progress import ProgressBar
    from chainer_profile.record.budget import ADVICE
    from chainer_profile.record.recording import COMPLETE
    from chainer_profile.report.content.advice import section
    from chainer_profile.runs.folder import load_run
    from chainer_profile.runs.output_files import write
    from chainer_profile.runs.write import write_reports

    recording = load_run(folder)
    summary = summarise(recording)
    capabilities = replace(_capabilities(recording), export=export_command(words))
    stop, say = context.interrupts.reason, ProgressBar(args.quiet).say
    one_thread = Change(threads=1)

    def new_experiment(candidates: list[Candidate], seconds: float) -> Experiment:
        start = partial(_start, words, capabilities.threads, stop)
        at_once = _max_processes(recording)
        return Experiment(candidates, start, seconds=seconds, at_once=at_once, stop=stop, say=say)

    with context.interrupts.measuring():
        if capabilities.threads > 1 and not (
            capabilities.threads_requested or len(recording.probe_ns)
        ):
            # The profile had no time to choose threads. Other changes use the better number.
            fewer = [
                each for each in propose(summary, capabilities)[0] if each.change == one_thread
            ]
            if any(
                map(promising, new_experiment(fewer, _CHOOSING_THREADS_PART * args.budget).look())
            ):
                capabilities = replace(capabilities, threads=1)
        candidates, untried = propose(summary, capabilities)
        tries = new_experiment(candidates, args.budget - (time.monotonic() - begin) - _REPORTS_S)
        tried, undone = tries.run()
    advice = Advice(
        tried,
        (*undone, *untried),
        settings=replace(recording.settings, threads=capabilities.threads),
        environment=recording.environment,
        budget_s=args.budget,
        took_s=time.monotonic() - begin,
        ended=tries.ended or COMPLETE,
    )
    write(folder, {ADVICE: write_json(advice)})
    try:
        files = [ADVICE, *(path.name for path in write_reports(folder, summary))]
    finally:
        show(section(advice), args.quiet, hint=first_screen_hint(args))
    say_written(folder, files, args.quiet)
    return context.interrupts.code


def _capabilities(recording: Recording) -> Capabilities:
    """Find what changes depend on: missing libraries, and numbers of threads and cores."""
    from chainer_profile.advice.changes import Capabilities, missing_requirements
    from chainer_profile.measure import environment

    def max_threads(libraries: Any) -> int:
        return max((library.threads for library in libraries), default=1)

    cores = max_threads(environment.blas_libraries())
    return Capabilities(
        missing_requirements(),
        threads=min(max_threads(recording.environment.blas), cores),
        cores=cores,
        threads_requested=recording.settings.threads is not None,
    )


def _max_processes(recording: Recording) -> int:
    """Number of processes, each with the network, that fit into the free memory together."""
    memory = recording.memory
    network = 0 if memory is None else (memory.initial_nbytes or 0) + memory.high_water_nbytes
    free = _MAX_MEMORY_PART * (free_nbytes() or 0)
    return int(free / (_PROCESS_NBYTES + 2 * network))


def _start(words: list[str], threads: int, stop: Callable[[], str], change: Change) -> Worker:
    """Start a process that measures the network of ``words`` with a change."""
    from chainer_profile.runs.executors import PROGRAM

    job = {"words": words, "threads": threads, "change": asdict(change)}
    return Worker([str(PROGRAM), "advise"], stop, {_WORKER: json.dumps(job)})


def _work(job: dict[str, Any], context: Context) -> int:
    """Measure the network with a change, in a process that :func:`_start` has started."""
    from chainer_profile.advice.network import network_with_change

    args = parser_of(PROFILE).parse_known_args(job["words"])[0]

    def build(batchsize: int) -> tuple[Any, Arguments]:
        other = argparse.Namespace(**{**vars(args), "batchsize": batchsize})
        source = from_options.find_source(other, context)
        batch = from_options.read_input(other, source)
        return from_options.build(source, other), from_options.arguments_of(batch)

    settings = settings_of(args, model=args.model, threads=job["threads"])
    serve_standard_streams(
        partial(network_with_change, build, settings, args.loss, Change(**job["change"]))
    )
    return 0
