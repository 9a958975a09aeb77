"""The table of all options, from which a command takes those that it names."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

from chainer_profile.analyse.hotspots import DEFAULT_RULE, parse_rule
from chainer_profile.basics import parsing, words
from chainer_profile.basics.errors import UsageError
from chainer_profile.basics.units import parse_percent
from chainer_profile.cli import FAILED
from chainer_profile.record.parts import Settings
from chainer_profile.runs.formats import ALL, FILES, NONE, PAGE, parse_formats

#: Keyword arguments of argparse's ``add_argument``.
Keywords = dict[str, Any]


def keywords(about: str, **others: Any) -> Keywords:
    """Those of an argument with this help."""
    return {"help": about, **others}


def _value(
    about: str, read: Callable[[str], Any] | None = None, default: Any = None, **others: Any
) -> Keywords:
    """An option with a value, which ``read`` converts."""
    return keywords(about, type=read, default=default, **others)


def _choice(choices: Sequence[str], about: str) -> Keywords:
    """An option with one of these values, the first by default."""
    return keywords(about, choices=choices, default=choices[0])


def _flag(about: str, **others: Any) -> Keywords:
    """An option without a value."""
    return keywords(about, **{"action": "store_true", **others})


def skipping(about: str, **parts: str) -> Keywords:
    """``--skip`` of a command with these parts, each with a remark."""

    def read(text: str) -> tuple[str, ...]:
        names = parsing.split_names(text)
        for name in names:
            if name not in parts:
                raise UsageError(f"{name!r} cannot be skipped: choose {', '.join(parts)}")
        return tuple(names)

    listed = ", ".join(f"{name} ({remark})" for name, remark in parts.items())
    return keywords(f"{about}: {listed}", type=read, default=())


def _dataset(text: str) -> tuple[str, int]:
    """``cifar10``, ``cifar100`` or ``synthetic``, and the number of images of the last one."""
    name, colon, size = text.partition(":")
    if name not in ("cifar10", "cifar100", "synthetic") or (colon and name != "synthetic"):
        raise UsageError(f"{text[:40]!r} is no data set: choose cifar10, cifar100 or synthetic:N")
    return name, parsing.whole(1)(size) if colon else 1000


def _layer_columns(text: str) -> tuple[str, ...]:
    """Names of columns of the layer table."""
    from chainer_profile.report.columns import LAYER_COLUMNS
    from chainer_profile.report.tables import choose

    return choose(parsing.split_names(text), LAYER_COLUMNS, "the layer table")


#: Orders of the layer table.
SORT_KEYS = (
    *("time", "median", "mean", "p95", "std", "index", "path", "name"),
    *("flops", "memory", "reached", words.SELF_TIME, words.TOTAL_TIME),
)

#: Every option as ``--help`` shows it: its words, and the name of its value unless that is the
#: option's own in capitals.
OPTIONS: dict[str, Keywords] = {
    # -- the network
    "-m, --model": _value(
        f"a name from {words.PROG} --list-models, package.module:Callable or "
        "path/to/file.py:Callable (default: %(default)s)",
        default=words.DEFAULT_MODEL,
    ),
    "--model-args ARGS": _value(
        'literal arguments of your own network: "100, n_out=10"', default=""
    ),
    "--list-models": _flag("list the networks and exit"),
    "--classes N": _value("number of outputs", parsing.whole(1)),
    "--weights FILE.npz": _value("weights saved with save_npz"),
    "--dtype": _choice(
        words.DTYPES,
        "data type of parameters and input; mixed16: float16, float32 where precision needs it "
        "(default: %(default)s)",
    ),
    "--fast KERNELS": _value(
        "faster CPU kernels for Chainer's functions: numpy (default) or torch, PyTorch's; see "
        "docs/accelerate.md",
        nargs="?",
        choices=("numpy", "torch"),
        const="numpy",
    ),
    "--keep-memory": _flag("let glibc keep freed memory in the process; --fast implies it"),
    # -- what a trial is
    "--phase": _choice(
        words.PHASES,
        "forward: inference; forward-backward: with a loss and its backward; train: also the "
        "update by momentum SGD (default: %(default)s)",
    ),
    "--loss": _choice(
        words.LOSSES,
        "loss, against random labels; output: the network returns it (default: %(default)s, "
        "softmax_cross_entropy unless the output is one number)",
    ),
    "--train-mode": _flag("run inference with chainer.config.train on (default: off)"),
    # -- its input
    "-i, --input": _value(
        "random, cifar10 or cifar10:INDEX (test images from that on), an image file, or a .npy or "
        ".npz file of the arguments, batch included (default: %(default)s)",
        default="random",
    ),
    "--data-dir DIR": _value(
        "folder with cifar-10-python.tar.gz, or cifar-10.npz of your own (docs/training.md)"
    ),
    "--input-shape SPEC": _value(
        "shape of one input without the batch, required for your own network, once for each "
        "argument: [NAME=]SHAPE[:DTYPE[:RANGE]], such as 3x224x224, 20:int32:10000 (integers "
        "below 10000), one:int32:1000 (one integer per input), 5..20x128 (a list of sequences of "
        "5 to 20 steps); of images also the size alone, such as 1024x2048",
        parsing.parse_input,
        action="append",
    ),
    "-b, --batchsize N": _value("inputs per trial (default: 1)", parsing.whole(1)),
    # -- measuring
    "-n, --trials N": _value("profiled trials (default: %(default)s)", parsing.whole(1), 1000),
    "--clean-trials N": _value(
        "unprofiled trials (default: a tenth of the trials, at least 30 unless the trials are "
        "fewer)",
        parsing.whole(0),
    ),
    "-w, --warmups N": _value(
        "warm-up trials, for at most 10 s (default: %(default)s)", parsing.whole(0), 50
    ),
    "--max-seconds S": _value("time limit of all passes", parsing.positive_seconds),
    "--until-ci PCT": _value(
        "stop when the 95%% interval of the median profiled trial is within PCT per cent (from "
        "200 trials on)",
        parse_percent,
    ),
    "--threads N": _value("BLAS threads (default: as many as BLAS chooses)", parsing.thread_count),
    "-g, --gpu ID": _value("GPU to run on (default: -1, the CPU)", parsing.whole(-1), -1),
    "-d, --device DEVICE": _value(
        "device by Chainer's name: @numpy or @cupy:0",
        parsing.parse_device,
        argparse.SUPPRESS,
        dest="gpu",
    ),
    "--why": _flag(
        "sample the layers for some seconds after the trials, to show which code in and between "
        "them takes the time"
    ),
    "--counters": _flag(
        "count each layer's CPU time, page faults and context switches in 5 s of further trials "
        "(default: in a tenth of the trials' time, at most 5 s; on a CPU)",
        default=None,
    ),
    "--skip A,B": skipping(
        "leave out passes after the trials",
        memory="two more trials",
        counters="a tenth of the trials' time",
        machine="its limits, which the first run measures and keeps",
    ),
    "--machine": _value(
        "show this machine's limits and exit: those of the first time, which are kept (default), "
        "or measured again",
        nargs="?",
        const="kept",
        choices=("kept", "again"),
    ),
    "--memory": _flag(
        "show what each layer allocates: two iterations count memory, and are not timed"
    ),
    "--layer-frames": _flag(
        "run each layer in a function named after it, for samplers such as py-spy and perf; adds "
        "about 7 us a call"
    ),
    "--seed N": _value(
        "seed of the weights and of the random input (default: %(default)s)", parsing.whole(0), 0
    ),
    "--budget TIME": _value("total time, such as 90s or 3m (default: 3m)", parsing.duration, 180.0),
    # -- engines
    "--engines A,B": _value(
        "names from --list-engines, onnxruntime:PROVIDER for another execution provider, or "
        "module:Class of your own; chainer always runs (default: chainer, chainer-fast, "
        "onnxruntime)",
        parsing.split_names,
    ),
    "--list-engines": _flag("list the engines and exit"),
    "--tolerance F": _value(
        "accepted difference, as a fraction of the largest output (default: 1e-4)",
        parsing.fraction,
    ),
    "--load-engine FILE": _value(
        "run an engine from its file, such as one of export, with the file's weights", Path
    ),
    # -- training
    "-d, --dataset NAME": _value(
        "cifar10, cifar100, or synthetic, which needs no download and has 1000 training images, or "
        "N as synthetic:N (default: %(default)s)",
        _dataset,
        "cifar10",
    ),
    "--no-augmentation": _flag("do not crop and flip the training images"),
    "-e, --epoch N": _value("epochs (default: 164, or 6 for synthetic)", parsing.whole(1)),
    "-l, --learning-rate RATE": _value(
        "initial learning rate (default: 0.1, or 0.02 for synthetic)",
        parsing.number("a number above 0"),
    ),
    "--profile": _flag("profile every iteration, into OUT/profile"),
    "-r, --resume": _flag("go on from the newest snapshot in the folder; repeat the other options"),
    "--snapshot every=N": _value(
        "write a snapshot every N iterations, and keep the last 3 (default: every epoch)",
        parsing.every,
    ),
    # -- programs, sweeps
    "-m, --module": _flag("run a module by its name, like python -m"),
    "-c": _flag("run a program given as text, like python -c", dest="text"),
    "--try": _flag(
        "try what makes the program faster: switch each change on and off by turns, iteration by "
        "iteration, and show what it brings",
        dest="tries",
    ),
    "--compat-only": _flag("make Chainer run on this Python and NumPy, but measure nothing"),
    "--executor WHERE": _value(
        "local (one case at a time), local:N or dask://HOST:PORT (default: local)",
        parsing.executor,
        "local",
    ),
    "--dry-run": _flag("list the cases and their commands and exit"),
    # -- comparing
    "--min-effect PCT": _value(
        "ignore smaller changes (default: %(default)s)", parse_percent, "2%"
    ),
    "--fail-above PCT": _value(
        f"exit with {FAILED} if the trial, or a layer with more than 1%% of the time, is "
        "significantly slower by more than this",
        parse_percent,
    ),
    "--gate": _choice(
        ("wall", "cpu"),
        "what the gate compares: wall times or, for shared machines, the CPU time of unprofiled "
        "trials (default: %(default)s)",
    ),
    # -- output on the terminal
    "--tree": _value(
        "show the tree of links instead of the layers, with so many levels below the network "
        f"(default: {words.DEFAULT_DEPTH}; 99 for all)",
        parsing.whole(0),
        nargs="?",
        const=words.DEFAULT_DEPTH,
        metavar="LEVELS",
    ),
    "--columns A,B,C": _value(
        "columns of the layer table, such as path,median,verdict,peak (an unknown one lists all)",
        _layer_columns,
    ),
    "--full": _flag("show everything, not only the first screen"),
    "--group-by": _value(
        "print only the times by function, link, block or shape (with --full: by function)",
        choices=words.GROUPS,
    ),
    "--hotspots RULE": _value(
        "which layers are hot: 0.36ms, 5%%, top:10 or pareto:50%% (default: %(default)s, the "
        "fewest that take half of the layers' time, down to the next gap)",
        parse_rule,
        DEFAULT_RULE,
    ),
    "--sort": _choice(
        SORT_KEYS,
        "order of the layer table, or self or total for --group-by; memory is the peak (default: "
        "time)",
    ),
    "--limit N": _value(
        "rows of the tables of layers and groups on the terminal, 0 for all (default: 10, or 20 "
        "with --full)",
        parsing.whole(0),
    ),
    "-q, --quiet": _flag("print only errors"),
    "--debug": _flag("show the traceback of an error"),
    # -- files
    "-o, --out DIR": _value("write the files into this folder", parsing.folder),
    "--force": _flag("replace a run in the --out folder, or write beside other files there"),
    "--format A,B": _value(
        f"files beside the usual ones: {', '.join(FILES)} or {ALL}, and trace:N for a trace that "
        f"also shows trial N, from 0; {PAGE}: the usual ones of a short program, too; {NONE}: no "
        "reports",
        parse_formats,
        (),
        dest="formats",
    ),
    "--json": _flag("print report.json and nothing else"),
    "--title": _value("title of the report", default=""),
    "--author": _value("who wrote it", default=""),
    "--course": _value("the course it was written for", default=""),
}

#: Options of a sweep that take a list. Each combination of the lists' entries is a case.
LISTS = ("model", "input-shape", "batchsize", "device", "phase")
#: Options of a sweep that hold for all of its cases.
SINGLES = (
    *("model-args", "classes", "weights", "trials", "warmups", "threads", "seed", "dtype"),
    *("max-seconds", "skip"),
)


def _by_name() -> dict[str, tuple[list[str], Keywords]]:
    """The words of each option, and its keyword arguments, by its long word."""
    options = {}
    for shown, given in OPTIONS.items():
        *short, last = shown.split(", ")
        word, _, metavar = last.partition(" ")
        options[word.lstrip("-")] = (
            [*short, word],
            {"metavar": metavar, **given} if metavar else given,
        )
    return options


_BY_NAME = _by_name()


def take(
    group: argparse._ActionsContainer,
    names: str,
    own: Mapping[str, str | Keywords] = MappingProxyType({}),
    **of_all: Any,
) -> None:
    """Add options of the table to a parser by their names; ``a|b`` are alternatives.

    ``own`` replaces keyword arguments of single options, ``of_all`` those of all: a text is the
    help, and ``short=False`` leaves out the short word. Positional arguments are in ``own`` alone.
    """
    for name in names.split():
        if "|" in name:
            alternatives = group.add_mutually_exclusive_group()
            take(alternatives, name.replace("|", " "), own, **of_all)
            continue
        option_words, usual = _BY_NAME.get(name, ([name], {}))
        change = own.get(name.replace("-", "_"), {})
        changes = {**of_all, **(keywords(change) if isinstance(change, str) else change)}
        if not changes.pop("short", True):
            option_words = option_words[-1:]
        arguments = {**usual, **changes}
        if arguments.get("default") is None and "help" not in changes:
            # The help names the usual default, also where a command reads it elsewhere.
            default = str(usual.get("default"))
            arguments["help"] = arguments["help"].replace("%(default)s", default)
        group.add_argument(*option_words, **arguments)


#: Settings that do not have the value of the option of their name, which is looked up first.
_LOOKED_UP = ("model", "input", "input_shape", "loss")


def settings_of(args: argparse.Namespace, **others: Any) -> Settings:
    """The settings of the options, each with the value of the option of its name; and others."""
    given: dict[str, Any] = {"device": parsing.named_device(args.gpu)} if "gpu" in args else {}
    for name in (field.name for field in fields(Settings) if field.name not in _LOOKED_UP):
        if getattr(args, name, None) is not None:
            given[name] = getattr(args, name)
    return Settings(**{**given, **others})
