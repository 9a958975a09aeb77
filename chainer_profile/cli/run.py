"""``run``: runs any program that uses Chainer, and shows where its time goes."""

from __future__ import annotations

import argparse
from pathlib import Path

from chainer_profile.cli.main import Context
from chainer_profile.integrations import script as scripts
from chainer_profile.integrations.script import Outcome, Script


def run(args: argparse.Namespace, context: Context) -> int:
    """Run a program and write its reports; returns the program's exit code."""
    kind = scripts.MODULE if args.module else scripts.TEXT if args.text else scripts.FILE
    name, *words = args.program[args.program[0] == "--" :]
    script = Script(name, tuple(words), kind)
    with context.interrupts.with_previous_handlers():
        if args.compat_only:
            outcome = scripts.run(script)
            if not args.quiet:
                outcome.print_advice()
        else:
            outcome = _run_profiled(args, script, context)
    return outcome.exit()


def _run_profiled(args: argparse.Namespace, script: Script, context: Context) -> Outcome:
    """Run a program with the profiler, and write its reports unless this process is a fork."""
    from chainer_profile.integrations.script_run import ScriptRun  # not needed with --compat-only

    with ScriptRun(
        script,
        args.out,
        Path("reports") / script.stem,
        force=args.force,
        command=context.command,
        layers="layers" not in args.skip,
        memory=args.memory,
        samples=not {"samples", "layers"} & {*args.skip},
        tries=args.tries,
    ) as running:
        outcome = running.run()
        if not args.quiet:
            outcome.print_advice()
        if not running.forked:
            running.finish(outcome, args.formats, args.quiet)
    return outcome
