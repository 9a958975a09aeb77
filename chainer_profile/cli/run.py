"""``run``: any program that uses Chainer, unchanged; where its time goes, and its layers."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from chainer_profile.basics.errors import UsageError
from chainer_profile.basics.parsing import Parser
from chainer_profile.basics.words import COMMAND, PROG
from chainer_profile.cli.options import take
from chainer_profile.cli.running import Context
from chainer_profile.cli.shown import formats

if TYPE_CHECKING:
    from chainer_profile.integrations.script import Outcome, Script


def parser() -> argparse.ArgumentParser:
    """Options of running a program."""
    parser = Parser(
        prog=f"{PROG} run",
        usage="%(prog)s [options] SCRIPT [ARGS ...]\n"
        "       %(prog)s [options] -m MODULE [ARGS ...]\n"
        "       %(prog)s [options] -c TEXT [ARGS ...]",
        description="Runs a program that uses Chainer, unchanged, as Python would, and says where "
        "its time went: imports, data, iterations by layer, evaluation, every extension of a "
        "Trainer, snapshots. Its exit code is the program's. Chainer is mended for current Python, "
        "NumPy and CuPy first.",
    )
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument(
        "-m",
        "--module",
        action="store_true",
        help="run a module by its name, as python -m does",
    )
    kinds.add_argument(
        "-c", dest="text", action="store_true", help="run a program's own text, as python -c does"
    )
    parser.add_argument(
        "--compat-only",
        action="store_true",
        help="mend Chainer, run the program, and measure nothing",
    )
    parser.add_argument(
        "--no-layers",
        action="store_true",
        help="measure the program's parts alone: no layers, and no functions beside Chainer",
    )
    parser.add_argument(
        "--no-memory", action="store_true", help="leave out the memory pass, one trial of a kind"
    )
    parser.add_argument(
        "--no-samples",
        action="store_true",
        help="do not look at the main thread, 100 times a second, for what takes time beside "
        "Chainer",
    )
    about = "folder of the results (default: the next free reports/NAME of the script)"
    group = parser.add_argument_group("output")
    take(group, "--out", help=about)
    take(group, "--force")
    take(parser, "--format")
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing of our own")
    parser.add_argument("program", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def run(args: argparse.Namespace, context: Context) -> int:
    """Run a program, then write and say what was measured; gives the program's exit code."""
    from chainer_profile.integrations import script as scripts

    words = args.program[1:] if args.program[:1] == ["--"] else args.program
    if not words:
        raise UsageError(f"name a program: {PROG} run SCRIPT [ARGS ...]")
    if args.force and args.out is None:
        raise UsageError("--force replaces the run in a folder: name it with --out")
    kind = scripts.MODULE if args.module else scripts.TEXT if args.text else scripts.FILE
    script = scripts.Script(words[0], tuple(words[1:]), kind)
    with context.interrupts.as_before():
        if args.compat_only:
            outcome = scripts.run(script)
            _explain(outcome, args)
        else:
            outcome = _watched(args, script, context)
    return outcome.leave()


def _watched(args: argparse.Namespace, script: Script, context: Context) -> Outcome:
    from chainer_profile.integrations.script_run import ScriptRun

    command = shlex.join([*COMMAND, "run", *context.argv])
    with ScriptRun(
        script,
        args.out,
        Path("reports") / script.stem,
        force=args.force,
        command=command,
        layers=not args.no_layers,
        memory=not args.no_memory,
        samples=not (args.no_samples or args.no_layers),
    ) as running:
        outcome = running.run()
        _explain(outcome, args)
        if not running.forked:
            running.finish(outcome, formats(args), args.quiet)
    return outcome


def _explain(outcome: Outcome, args: argparse.Namespace) -> None:
    if not args.quiet:
        outcome.explain()
