"""``--list-models`` and ``--list-engines``, without Chainer."""

from __future__ import annotations

import argparse

from chainer_profile.basics.units import format_shape
from chainer_profile.cli.main import Context
from chainer_profile.cli.output import show
from chainer_profile.engines.catalogue import EngineEntry, all_entries
from chainer_profile.report import unit
from chainer_profile.report.columns import properties
from chainer_profile.report.tables import Column, Table, by_key

_NETWORKS = by_key(
    Column("network", "network", unit.TEXT, value=lambda item: item[0], fold=12),
    Column("input", "input", unit.TEXT, value=lambda item: format_shape(item[1].input_shape)),
    Column("description", "description", unit.TEXT, value=lambda item: item[1].description),
)


def run(args: argparse.Namespace, context: Context) -> int:
    """List the networks, or the engines."""
    if getattr(args, "list_models", False):
        show([Table(_NETWORKS, context.registry.items(), "The networks")])
    else:
        show([properties((entry.name, _description(entry)) for entry in all_entries())])
    return 0


def _description(entry: EngineEntry) -> str:
    lacks = entry.why_unavailable()
    state = f"{lacks}: {entry.install}" if lacks else "installed"
    return f"{entry.description} ({state})"
