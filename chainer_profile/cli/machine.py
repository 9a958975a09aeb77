"""``machine``: what this machine can do at best."""

from __future__ import annotations

import argparse

from chainer_profile.basics.parsing import Parser
from chainer_profile.basics.units import (
    NOT_KNOWN,
    format_count,
    format_flops_rate,
    format_intensity,
    format_nbytes,
    format_nbytes_rate,
)
from chainer_profile.basics.words import PROG
from chainer_profile.cli.options import MACHINE, asked_device, take
from chainer_profile.cli.running import Context, printing, terminal_width


def parser() -> argparse.ArgumentParser:
    """Options of showing the machine's limits."""
    parser = Parser(
        prog=f"{PROG} machine",
        description="Shows what this machine can do at best: the rate of matrix products and of "
        "memory. They are measured once, which takes about a second, and kept.",
    )
    take(parser.add_argument_group("measuring"), *MACHINE, "--refresh", "--debug")
    return parser


def run(args: argparse.Namespace, context: Context) -> int:
    """Print the limits, measured or as they are kept."""
    from threadpoolctl import threadpool_limits

    from chainer_profile.measure import environment, machine
    from chainer_profile.measure.machine import limits_file
    from chainer_profile.report.writers.terminal import pairs

    device = machine.find_device(asked_device(args))
    with threadpool_limits(args.threads, "blas"):  # None leaves them as they are
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
    passed = f"pass over {format_nbytes(limits.copied_nbytes)}"
    fresh_ridge = limits.flops_per_s / limits.fresh_nbytes_per_s
    lines += [
        (passed, f"{format_nbytes_rate(limits.copy_nbytes_per_s)}, read and written in place"),
        ("copy into new memory", format_nbytes_rate(limits.fresh_nbytes_per_s)),
        (
            "ridge point",
            f"{format_intensity(limits.ridge)}, into new memory {format_intensity(fresh_ridge)}",
        ),
    ]
    if found.kept:
        lines.append(("kept in", f"{limits_file()} since {limits.measured}"))
    if found.note:
        again = "" if args.refresh or not found.kept else "; --refresh measures again"
        lines.append(("note" if found.kept else "not kept", f"{found.note}{again}"))
    with printing():
        for line in pairs(lines, terminal_width()):
            print(line)
    return 0
