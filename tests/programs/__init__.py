"""Programs in the style of Chainer's official examples, and what is to be found in their profiles.

Each is a file of this folder, or a package; it imports Chainer alone, makes its data, and writes
only into the folder of its option ``--out``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
#: What bounds a program's trials: an updater's iteration, an optimizer's update, or a link's call.
ITERATION, UPDATE, CALL = "iteration", "update", "call"
_REPORTS = ("LogReport", "PrintReport")


@dataclass(frozen=True)
class Program:
    """A program, how it is run, and what it then does."""

    name: str  # the file without its suffix, or the package
    quick: tuple[str, ...]  # with these it takes a part of a second behind its imports
    longer: tuple[str, ...]  # with these 10 to 15 s of CPU time (``raises`` cannot)
    bounded_by: str
    trials: int  # with ``quick``
    # Of links that run functions within the trials, from the optimizer's network or the outermost
    # link; of several optimizers, each has its name in front, ``/gen/l0``.
    links: tuple[str, ...]
    extensions: dict[str, int] = field(default_factory=dict)  # calls with ``quick``, by name
    evaluates: bool = False  # outside of trials
    exit_code: int = 0
    package: bool = False  # which is run by ``python -m`` in FOLDER

    @property
    def command(self) -> tuple[str, ...]:
        """What ``python`` is given to run it, without arguments."""
        return ("-m", self.name) if self.package else (str(FOLDER / f"{self.name}.py"),)


def _all(count: int, *names: str, **others: int) -> dict[str, int]:
    """So many calls of each extension, and other numbers of others."""
    return dict.fromkeys(names, count) | others


_MLP = ("/predictor/l1", "/predictor/l2", "/predictor/l3")

PROGRAMS = (
    Program(
        "train_mnist",
        ("--epoch", "1"),
        ("--epoch", "25"),
        ITERATION,
        20,
        _MLP,
        extensions=_all(
            21,
            *_REPORTS,
            "PlotReport",
            "PlotReport_1",
            ProgressBar=20,
            validation=2,
            dump_graph=1,
            _Snapshot=1,
        ),
        evaluates=True,
    ),
    Program(
        "train_mnist_custom_loop",
        ("--epoch", "1"),
        ("--epoch", "80"),
        UPDATE,
        20,
        _MLP,
        evaluates=True,
    ),
    Program(
        "train_mnist_v1", ("--epoch", "1"), ("--epoch", "60"), UPDATE, 20, _MLP, evaluates=True
    ),
    Program(
        "train_mnist_static_graph",
        ("--epoch", "1"),
        ("--epoch", "120"),
        ITERATION,
        20,
        (),  # but for the first two iterations functions run without a hook
        extensions=_all(20, *_REPORTS, validation=1),
        evaluates=True,
    ),
    Program(
        "train_imagenet",
        ("--test", "--epoch", "2", "--batchsize", "8"),
        ("--epoch", "60"),
        ITERATION,
        24,
        ("/mlpconv1/0", "/mlpconv1/1", "/mlpconv2/0", "/mlpconv2/1"),
        extensions=_all(
            24,
            *_REPORTS,
            "_observe_value",
            "ProgressBar",
            validation=8,
            _Snapshot=8,
            _Snapshot_1=8,
        ),
        evaluates=True,
    ),
    Program(
        "train_ptb_custom_loop",
        ("--epoch", "1", "--bproplen", "5"),
        ("--epoch", "10"),
        UPDATE,
        19,
        (
            "/predictor/embed",
            "/predictor/lstm/upward",
            "/predictor/lstm/lateral",
            *(f"/predictor/gru/{link}" for link in ("W_r", "U_r", "W_z", "U_z", "W", "U")),
            "/predictor/out",
        ),
        evaluates=True,
    ),
    Program(
        "seq2seq",
        ("--epoch", "1", "--unit", "16"),
        ("--epoch", "10"),
        ITERATION,
        5,
        ("/embed_x", "/embed_y", "/encoder", "/decoder", "/W"),
        extensions=_all(1, "PrintReport", "CalculateBleu", "translate", "_Snapshot", LogReport=5),
        evaluates=True,
    ),
    Program(
        "train_dcgan",
        ("--epoch", "1", "--batchsize", "8"),
        ("--epoch", "25"),
        ITERATION,
        16,
        (
            *(f"/gen/{link}" for link in ("l0", "bn0", "dc1", "bn1", "dc2")),
            *(f"/dis/{link}" for link in ("c0_0", "c0_1", "bn0_1", "l4")),
        ),
        extensions=_all(
            2,
            "make_image",
            "_Snapshot",
            "_Snapshot_1",
            "_Snapshot_2",
            PrintReport=4,
            LogReport=16,
            ProgressBar=16,
        ),
        evaluates=True,
    ),
    Program(
        "train_sentiment",
        ("--epoch", "1"),
        ("--epoch", "20"),
        UPDATE,
        40,
        ("/embed", "/l", "/w"),
        evaluates=True,
    ),
    Program(
        "train_dqn",
        ("--episodes", "8"),
        ("--episodes", "200"),
        UPDATE,
        69,
        ("/l0", "/l1", "/l2"),
        evaluates=True,  # before the first update
    ),
    Program(
        "neural_style",
        ("--iter", "15"),
        ("--iter", "1000"),
        UPDATE,
        15,
        # Of a network that no optimizer has.
        ("/Features/conv1_1", "/Features/conv1_2", "/Features/conv2_1"),
        evaluates=True,
    ),
    Program(
        "kfold",
        ("--folds", "2", "--epoch", "2"),
        ("--epoch", "120"),
        ITERATION,
        30,
        ("/predictor/layers/0", "/predictor/layers/1", "/predictor/out"),
        extensions=_all(30, *_REPORTS, validation=4),
        evaluates=True,
    ),
    Program(
        "save_and_load",
        ("--iteration", "12"),
        ("--iteration", "2000"),
        UPDATE,
        36,
        ("/predictor/0", "/predictor/1", "/predictor/2"),
    ),
    Program(
        "resume",
        ("--epoch", "1"),
        ("--epoch", "60"),
        ITERATION,
        45,
        ("/predictor/l1", "/predictor/bn", "/predictor/l2"),
        extensions=_all(45, *_REPORTS, validation=3, _Snapshot=3),
        evaluates=True,
    ),
    Program(
        "predict",
        ("--repeat", "6"),
        ("--repeat", "500"),
        CALL,
        18,
        ("/conv1", *(f"/res/{i}/{link}" for i in "01" for link in ("conv1", "bn1")), "/fc"),
    ),
    Program(
        "raises",
        ("--bad", "400"),
        ("--bad", "1999"),
        ITERATION,
        20,
        ("/predictor/0", "/predictor/1"),
        extensions={"LogReport": 20, "PrintReport": 2},
        exit_code=1,
    ),
    Program(
        "packaged",
        ("--epoch", "1"),
        ("--epoch", "100"),
        ITERATION,
        15,
        ("/conv", "/fc1", "/fc2"),
        extensions=_all(15, *_REPORTS),
        package=True,
    ),
)
