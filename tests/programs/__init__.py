"""Programs in the style of Chainer's official examples, and what is to be found in their profiles.

Each is a file of this folder; it imports Chainer alone, makes its data, and writes only into the
folder of its option ``--out``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent


@dataclass
class Program:
    """A program, how it is run, and what it then does."""

    name: str  # the file without its suffix
    quick: tuple[str, ...]  # with these it takes a part of a second behind its imports
    trials: int  # with ``quick``
    # Of links that run functions within the trials, from the optimizer's network or the outermost
    # link. With ``quick``, how often extensions are called.
    expected: str

    @property
    def command(self) -> tuple[str, ...]:
        """Arguments of ``python`` that run it, without its own."""
        return (str(FOLDER / f"{self.name}.py"),)

    @property
    def links(self) -> set[str]:
        return {word for word in self.expected.split() if "=" not in word}

    @property
    def extensions(self) -> dict[str, int]:
        counts = (word.split("=") for word in self.expected.split() if "=" in word)
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
)
