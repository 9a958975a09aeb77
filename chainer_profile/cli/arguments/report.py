"""Arguments of ``report``."""

from __future__ import annotations

import argparse

from chainer_profile.basics.parsing import folder
from chainer_profile.cli import output_options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Makes the reports of a run, or of a run of engines, again. Recovers the trials of a "
        "killed run. Merges the recordings of ChainerMN's ranks, without MPI, and shows which rank "
        "or layer the others wait for, how long, and what communication takes."
    )
    about = "folder of a run, or a recording; or a folder that contains rank-0, rank-1, ..."
    parser.add_argument("run", metavar="DIR", type=folder, help=about)
    about = "write the files of ranks into this folder (default: DIR)"
    parser.add_argument("-o", "--out", metavar="DIR", type=folder, help=about)
    output_options.add_table_options(parser)
    output_options.add_report_options(parser)
