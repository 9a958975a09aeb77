"""``machine``: what this machine can do at best."""

from __future__ import annotations

import argparse

from threadpoolctl import threadpool_limits

from chainer_profile.basics import units
from chainer_profile.basics.parsing import named_device
from chainer_profile.cli.main import Context
from chainer_profile.cli.shown import show
from chainer_profile.measure import environment, machine
from chainer_profile.report.columns import properties


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
    lines.append(("float32 matrix product", f"{units.format_giga(limits.flops_per_s)} GFLOP/s"))
    if limits.half_flops_per_s is not None:
        half = units.format_giga(limits.half_flops_per_s)
        lines.append(("float16 matrix product", f"{half} GFLOP/s"))
    passed = units.format_giga(limits.copy_nbytes_per_s)
    ridge = units.format_significant(limits.ridge)
    fresh = units.format_significant(limits.flops_per_s / limits.fresh_nbytes_per_s)
    lines += [
        (
            f"pass over {units.format_nbytes(limits.copied_nbytes)}",
            f"{passed} GB/s, read and written in place",
        ),
        ("copy into new memory", f"{units.format_giga(limits.fresh_nbytes_per_s)} GB/s"),
        ("ridge point", f"{ridge} flop/byte, into new memory {fresh} flop/byte"),
    ]
    if found.kept:
        lines.append(("kept in", f"{machine.limits_file()} since {limits.measured}"))
    if found.note:
        again = "" if args.refresh or not found.kept else "; --refresh measures again"
        lines.append(("note" if found.kept else "not kept", f"{found.note}{again}"))
    show([properties(lines)])
    return 0
