"""``--machine``: the limits of this machine."""

from __future__ import annotations

import argparse

from threadpoolctl import threadpool_limits

from chainer_profile.basics import units
from chainer_profile.basics.parsing import named_device
from chainer_profile.cli.main import Context
from chainer_profile.cli.output import show
from chainer_profile.measure import environment, machine
from chainer_profile.report.columns import properties


def run(args: argparse.Namespace, context: Context) -> int:
    """Print the limits; measure them unless they are stored, or with ``--machine again``."""
    refresh = args.machine == "again"
    device = machine.find_device(named_device(args.gpu))
    with threadpool_limits(args.threads, "blas"):  # None changes nothing
        result = machine.find_limits(environment.collect(), device, refresh=refresh)
    limits = result.limits
    giga, significant = units.format_giga, units.format_significant
    threads = units.format_count(limits.threads) if limits.threads else units.NOT_KNOWN
    fresh = significant(limits.flops_per_s / limits.fresh_nbytes_per_s)
    half = limits.half_flops_per_s
    hint = "" if refresh or not result.saved else "; --machine again measures them anew"
    lines = {
        "machine": limits.key,
        "BLAS threads": "" if device.gpu else threads,
        "float32 matrix product": f"{giga(limits.flops_per_s)} GFLOP/s",
        "float16 matrix product": "" if half is None else f"{giga(half)} GFLOP/s",
        f"pass over {units.format_nbytes(limits.copied_nbytes)}": (
            f"{giga(limits.copy_nbytes_per_s)} GB/s, read and written in place"
        ),
        "copy into new memory": f"{giga(limits.fresh_nbytes_per_s)} GB/s",
        "ridge point": f"{significant(limits.ridge)} flop/byte, into new memory {fresh} flop/byte",
        "kept in": f"{machine.limits_file()} since {limits.measured}" if result.saved else "",
        "note" if result.saved else "not kept": f"{result.note}{hint}" if result.note else "",
    }
    show([properties((name, value) for name, value in lines.items() if value)])
    return 0
