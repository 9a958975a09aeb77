"""``--machine``: the limits of this machine."""

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
    """Print the limits, kept ones or measured now."""
    refresh = args.machine == "again"
    device = machine.find_device(named_device(args.gpu))
    with threadpool_limits(args.threads, "blas"):  # None leaves them as they are
        result = machine.find_limits(environment.collect(), device, refresh=refresh)
    limits = result.limits
    lines = [("machine", limits.key)]
    if not device.gpu:
        threads = units.format_count(limits.threads) if limits.threads else units.NOT_KNOWN
        lines.append(("BLAS threads", threads))
    lines.append(("float32 matrix product", f"{units.format_giga(limits.flops_per_s)} GFLOP/s"))
    if limits.half_flops_per_s is not None:
        half = units.format_giga(limits.half_flops_per_s)
        lines.append(("float16 matrix product", f"{half} GFLOP/s"))
    in_place = units.format_giga(limits.copy_nbytes_per_s)
    ridge = units.format_significant(limits.ridge)
    fresh = units.format_significant(limits.flops_per_s / limits.fresh_nbytes_per_s)
    lines += [
        (
            f"pass over {units.format_nbytes(limits.copied_nbytes)}",
            f"{in_place} GB/s, read and written in place",
        ),
        ("copy into new memory", f"{units.format_giga(limits.fresh_nbytes_per_s)} GB/s"),
        ("ridge point", f"{ridge} flop/byte, into new memory {fresh} flop/byte"),
    ]
    if result.kept:
        lines.append(("kept in", f"{machine.limits_file()} since {limits.measured}"))
    if result.note:
        hint = "" if refresh or not result.kept else "; --machine again measures them anew"
        lines.append(("note" if result.kept else "not kept", f"{result.note}{hint}"))
    show([properties(lines)])
    return 0
