"""``machine``: what this machine can do at best."""

from __future__ import annotations

import argparse

from threadpoolctl import threadpool_limits

from chainer_profile.basics import units
from chainer_profile.basics.parsing import named_device
from chainer_profile.cli.main import Context, printing
from chainer_profile.cli.shown import terminal_width
from chainer_profile.measure import environment, machine
from chainer_profile.report.writers.terminal import pairs


def run(args: argparse.Namespace, context: Context) -> int:
    """Print the limits, measured or as they are kept."""
    device = machine.find_device(named_device(args.gpu))
    with threadpool_limits(args.threads, "blas"):  # None leaves them as they are
        found = machine.find_limits(environment.collect(), device, refresh=args.refresh)
    limits = found.limits
    lines = [("machine", limits.key)]
    if not device.gpu:
        threads = units.format_count(limits.threads) if limits.threads else units.NOT_KNOWN
        lines.append(("BLAS threads", threads))
    lines.append(("float32 matrix product", units.format_flops_rate(limits.flops_per_s)))
    if limits.half_flops_per_s is not None:
        lines.append(("float16 matrix product", units.format_flops_rate(limits.half_flops_per_s)))
    passed = units.format_nbytes_rate(limits.copy_nbytes_per_s)
    fresh = units.format_intensity(limits.flops_per_s / limits.fresh_nbytes_per_s)
    lines += [
        (
            f"pass over {units.format_nbytes(limits.copied_nbytes)}",
            f"{passed}, read and written in place",
        ),
        ("copy into new memory", units.format_nbytes_rate(limits.fresh_nbytes_per_s)),
        ("ridge point", f"{units.format_intensity(limits.ridge)}, into new memory {fresh}"),
    ]
    if found.kept:
        lines.append(("kept in", f"{machine.limits_file()} since {limits.measured}"))
    if found.note:
        again = "" if args.refresh or not found.kept else "; --refresh measures again"
        lines.append(("note" if found.kept else "not kept", f"{found.note}{again}"))
    with printing():
        for line in pairs(lines, terminal_width()):
            print(line)
    return 0
