"""Programs in the style of Chainer's official examples, and what is to be found in their profiles.

Each is a file of this folder, or a package; it imports Chainer alone, makes its data, and writes
only into the folder of its option ``--out``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
#: What bounds a program's trials: an updater's iteration, or an optimizer's update.
ITERATION, UPDATE = "iteration", "update"


@dataclass
class Program:
    """A program, how it is run, and what it then does."""

    name: str  # the file without its suffix, or the package
    quick: tuple[str, ...]  # with these it takes a part of a second behind its imports
    longer: tuple[str, ...]  # with these 10 to 15 s of CPU time
    bounded_by: str
    trials: int  # with ``quick``
    evaluates: bool  # outside of trials
    exit_code: int
    package: bool  # which is run by ``python -m`` in FOLDER
    # Of links that run functions within the trials, from the optimizer's network or the outermost
    # link; of several optimizers, each has its name in front, ``/gen/l0``.
    links: list[str] = field(default_factory=list)
    extensions: dict[str, int] = field(default_factory=dict)  # with ``quick``, by name

    @property
    def command(self) -> tuple[str, ...]:
        """What ``python`` is given to run it, without arguments."""
        return ("-m", self.name) if self.package else (str(FOLDER / f"{self.name}.py"),)


def _read(table: str) -> tuple[Program, ...]:
    found: list[Program] = []
    for line in table.strip().splitlines():
        if line.startswith(" "):
            for called, _, count in (word.partition("=") for word in line.split()):
                if count:
                    found[-1].extensions[called] = int(count)
                else:
                    found[-1].links.append(called)
            continue
        name, quick, longer, trials, *flags = (part.strip() for part in line.split("|"))
        bounded_by, count = trials.split()
        code = next((int(flag.split()[1]) for flag in flags if "exit" in flag), 0)
        how = (bounded_by, int(count), "evaluates" in flags, code, "package" in flags)
        found.append(Program(name, tuple(quick.split()), tuple(longer.split()), *how))
    return tuple(found)


#: Name, arguments for few and for many trials, what bounds them, and their number; below the links
#: that run functions, and how often extensions are called.
PROGRAMS = _read("""
train_mnist | --epoch 1 | --epoch 9 | iteration 60 | evaluates
    /predictor/l1 /predictor/l2 /predictor/bn /predictor/l3
    LogReport=61 PrintReport=61 PlotReport=61 PlotReport_1=61 ProgressBar=60 validation=4
    dump_graph=1 _Snapshot=3
train_imagenet | --epoch 2 --batchsize 8 | --epoch 60 | iteration 24 | evaluates
    /mlpconv1/0 /mlpconv1/1 /mlpconv2/0 /mlpconv2/1
    LogReport=24 _observe_value=24 validation=8 _Snapshot=8 _Snapshot_1=8
train_ptb_custom_loop | --epoch 1 --bproplen 5 | --epoch 10 | update 19 | evaluates
    /predictor/embed /predictor/lstm/upward /predictor/lstm/lateral /predictor/gru/W_r
    /predictor/gru/U_r /predictor/gru/W_z /predictor/gru/U_z /predictor/gru/W /predictor/gru/U
    /predictor/out
seq2seq | --unit 16 | --epoch 10 --good 990 | iteration 7 | evaluates | exit 1 | package
    /embed_x /embed_y /encoder /decoder /W
    PrintReport=1 CalculateBleu=1 _Snapshot=1 LogReport=7
train_dcgan | --epoch 1 --batchsize 8 | --epoch 25 | iteration 16 | evaluates
    /gen/l0 /gen/bn0 /gen/dc1 /gen/bn1 /gen/dc2 /dis/c0_0 /dis/c0_1 /dis/bn0_1 /dis/l4
    make_image=2 _Snapshot=2 _Snapshot_1=2 _Snapshot_2=2 PrintReport=4 LogReport=16
    ProgressBar=16
""")
