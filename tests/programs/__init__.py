"""Programs in the style of Chainer's official examples, and what is to be found in their profiles.

Each is a file of this folder, or a package; it imports Chainer alone, makes its data, and writes
only into the folder of its option ``--out``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent


@dataclass
class Program:
    """A program, how it is run, and what it then does."""

    name: str  # the file without its suffix, or the package, which ``python -m`` runs in FOLDER
    quick: tuple[str, ...]  # with these it takes a part of a second behind its imports
    trials: int  # with ``quick``
    # Of links that run functions within the trials, from the optimizer's network or the outermost
    # link; of several optimizers, each has its name in front, ``/gen/l0``. With ``quick``, how
    # often extensions are called.
    found: str
    exit_code: int = 0

    @property
    def command(self) -> tuple[str, ...]:
        """What ``python`` is given to run it, without arguments."""
        file = FOLDER / f"{self.name}.py"
        return (str(file),) if file.exists() else ("-m", self.name)

    @property
    def links(self) -> set[str]:
        return {word for word in self.found.split() if "=" not in word}

    @property
    def extensions(self) -> dict[str, int]:
        counts = (word.split("=") for word in self.found.split() if "=" in word)
        return {name: int(count) for name, count in counts}


PROGRAMS = (
    Program(
        *("train_mnist", ("--epoch", "1"), 60),
        "/predictor/l1 /predictor/l2 /predictor/bn /predictor/l3"
        " LogReport=61 PrintReport=61 PlotReport=61 PlotReport_1=61 ProgressBar=60 validation=4"
        " dump_graph=1 snapshot=3",
    ),
    Program(
        *("train_ptb_custom_loop", ("--epoch", "1", "--bproplen", "5"), 19),
        "/predictor/embed /predictor/lstm/upward /predictor/lstm/lateral /predictor/gru/W_r"
        " /predictor/gru/U_r /predictor/gru/W_z /predictor/gru/U_z /predictor/gru/W"
        " /predictor/gru/U /predictor/out",
    ),
    Program(
        *("seq2seq", ("--unit", "16"), 7),
        "/embed_x /embed_y /encoder /decoder /W PrintReport=1 TestLoss=1 snapshot=1 LogReport=7",
        exit_code=1,
    ),
    Program(
        *("train_dcgan", ("--epoch", "1", "--batchsize", "8"), 16),
        "/gen/l0 /gen/bn0 /gen/dc1 /gen/bn1 /gen/dc2 /dis/c0_0 /dis/c0_1 /dis/bn0_1 /dis/l4"
        " snapshot=2 snapshot_1=2 snapshot_2=2 PrintReport=4 LogReport=16 ProgressBar=16",
    ),
)
