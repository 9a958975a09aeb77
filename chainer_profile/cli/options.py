"""The options of all commands in one table, of which a command takes those that it names."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

from chainer_profile.analyse.hotspots import DEFAULT_RULE, parse_rule
from chainer_profile.basics import parsing, words
from chainer_profile.basics.units import parse_percent
from chainer_profile.cli import FAILED
from chainer_profile.record.parts import Settings
from chainer_profile.runs.wanted import ALL, FILES, NONE, PAGE, parse_formats

#: What argparse is told of an option.
Told = dict[str, Any]


def told(about: str, **more: Any) -> Told:
    """What an option says of itself, and what else argparse is told of it."""
    return {"help": about, **more}


def _value(
    about: str, read: Callable[[str], Any] | None = None, default: Any = None, **more: Any
) -> Told:
    """An option with a value, and how that is read."""
    return told(about, type=read, default=default, **more)


def _choice(choices: Sequence[str], about: str) -> Told:
    """An option whose value is one of these, the first by default."""
    return told(about, choices=choices, default=choices[0])


def _flag(about: str, **more: Any) -> Told:
    """An option without a value."""
    return told(about, **{"action": "store_true", **more})


def _layer_columns(text: str) -> tuple[str, ...]:
    """Names of columns of the layer table."""
    from chainer_profile.report.columns import LAYER_COLUMNS
    from chainer_profile.report.tables import choose

    return choose(parsing.split_names(text), LAYER_COLUMNS, "the layer table")


SORT_KEYS = (
    *("time", "median", "mean", "p95", "std", "index", "path", "name"),
    *("flops", "memory", "reached", words.SELF_TIME, words.TOTAL_TIME),
)

#: Trials in which an engine's layers are timed, at most, where none were asked for.
LAYER_TRIALS = 200

#: Every option as ``--help`` shows it (a value has the option's own name unless one is given), and
#: what argparse is told of it.
OPTIONS: dict[str, Told] = {
    # -- the network
    "-m, --model": _value(
        "a name from --list-models, package.module:Callable or path/to/file.py:Callable "
        "(default: %(default)s)",
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
        "random, cifar10 (a test image), an image file, or a .npy or .npz file of the arguments, "
        "batch included (default: %(default)s)",
        default="random",
    ),
    "--index I": _value("first test image (default: 0)", parsing.whole(0), 0),
    "--data-dir DIR": _value("folder with cifar-10-python.tar.gz"),
    "--input-shape SPEC": _value(
        "shape of one input without the batch, required for your own network, once for each "
        "argument: [NAME=]SHAPE[:DTYPE[:RANGE]], such as 3x224x224, 20:int32:10000 (integers "
        "below 10000), one:int32:1000 (one integer per input), 5..20x128 (a list of sequences of "
        "5 to 20 steps)",
        parsing.parse_input,
        action="append",
    ),
    "--input-size HxW": _value("size of the images, such as 1024x2048", parsing.size),
    "--input-dtype": _choice(
        ("float32", "float16", "float64", "int32", "int64"),
        "data type of the input; integers are all 0 (default: %(default)s)",
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
    "--no-memory": _flag(
        "skip the memory pass (two more trials after the timed ones)",
        action="store_false",
        dest="memory",
    ),
    "--counters": _flag(
        "count each layer's CPU time, page faults and context switches in 5 s of further trials, "
        "or not (default: in a tenth of the trials' time, at most 5 s; on a CPU)",
        action=argparse.BooleanOptionalAction,
    ),
    "--no-machine": _flag(
        "do not measure the machine's limits, which the first run measures and keeps",
        action="store_false",
        dest="limits",
    ),
    "--layer-frames": _flag(
        "run each layer in a function named after it, for samplers such as py-spy and perf; adds "
        "about 7 us a call"
    ),
    "--seed N": _value(
        "seed of the weights and of the random input (default: %(default)s)", parsing.whole(0), 0
    ),
    "--tf32": _flag("let float32 matrix products round inputs to TF32 (CUPY_TF32=1)"),
    "--refresh": _flag("measure again and keep the result"),
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
    "--save-engine FILE": _value(
        "save the prepared engine that has files, such as onnxruntime", Path
    ),
    "--load-engine FILE": _value("run an engine from such a file, with the file's weights", Path),
    "--layer-trials N": _value(
        "further trials of each engine that time its layers (default: as many as trials, at "
        f"most {LAYER_TRIALS})",
        parsing.whole(1),
    ),
    "--to FILE": _value("the .onnx file", Path, required=True),
    "--dynamic-batch": _flag(
        "a file for any batch size, or only for this one (default: any, if the network allows it)",
        action=argparse.BooleanOptionalAction,
    ),
    # -- training
    "-d, --dataset": _choice(
        ("cifar10", "cifar100", "synthetic"),
        "data set (default: %(default)s); synthetic needs no download",
    ),
    "--synthetic-size N": _value(
        "training images of the synthetic set (default: 1000)", parsing.whole(1)
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
    "--no-layers": _flag("measure the program's parts alone, without layers and Python functions"),
    "--no-samples": _flag(
        "do not sample the main thread, which names Python functions (100 times a second)"
    ),
    "--executor WHERE": _value(
        "local (one case at a time), local:N or dask://HOST:PORT (default: local)",
        parsing.executor,
        "local",
    ),
    "--dry-run": _flag("list the cases and their commands and exit"),
    "--models A,B,C": _value("networks, as --model of profile.py takes them"),
    "--input-sizes HxW,...": _value("heights and widths of images, such as 1024x2048,500x334"),
    "--input-shapes CxHxW,...": _value("shapes of one input, instead of sizes"),
    "--batchsizes N,...": _value("inputs per trial (default: 1)"),
    "--devices D,...": _value("cpu, gpu:0 and so on (default: cpu)"),
    "--phases P,...": _value(f"{', '.join(words.PHASES)} (default: {words.PHASES[0]})"),
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
    "--all": _flag("show unchanged layers too"),
    # -- what is shown
    "--tree": _flag("show the tree of links instead of the layers"),
    "--columns A,B,C": _value(
        "columns of the layer table, such as path,median,verdict,peak (an unknown one lists all)",
        _layer_columns,
    ),
    "--depth N": _value(
        f"levels of the tree below the network (default: {words.DEFAULT_DEPTH}; 99 for all)",
        parsing.whole(0),
    ),
    "--full": _flag("show everything, not only the first screen"),
    "--group-by": _value(
        "print only the times by function, link, block or shape (with --full: by function)",
        choices=words.GROUPS,
    ),
    "--macs": _flag("show multiply-adds instead of operations"),
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
    "--target Fx": _value(
        "show how much faster which layers must become for a trial this many times as fast, such "
        "as 1.5x",
        parsing.factor,
    ),
    "--limit N": _value(
        "rows of the tables of layers and groups on the terminal, 0 for all (default: 10, or 20 "
        "with --full)",
        parsing.whole(0),
    ),
    "-q, --quiet": _flag("print only errors"),
    "--debug": _flag("show the traceback of an error"),
    # -- what is written
    "-o, --out DIR": _value("write the files into this folder", parsing.folder),
    "--force": _flag("replace a run in the --out folder, or write beside other files there"),
    "--report DIR": _value("make this run's reports again", parsing.folder),
    "--format A,B": _value(
        f"files beside the usual ones: {', '.join(FILES)} or {ALL}; {PAGE}: the usual ones of a "
        f"short program, too; {NONE}: no reports",
        parse_formats,
        (),
        dest="formats",
    ),
    "--json": _flag("print report.json and nothing else"),
    "--title": _value("title of the report", default=""),
    "--author": _value("who wrote it", default=""),
    "--course": _value("the course it was written for", default=""),
    "--trace-trial N": _value(
        "trial that the trace shows beside the median one, from 0", parsing.whole(0)
    ),
}

#: Options of a sweep that take a list (a case is made for each combination of their entries).
LISTS = ("models", "input-sizes", "input-shapes", "batchsizes", "devices", "phases")
FLAG = "no-machine"
#: Options of a run that are the same for all its cases; the last one has no value.
SINGLES = ("trials", "warmups", "threads", "seed", "dtype", "max-seconds", FLAG)


def _by_name() -> dict[str, tuple[list[str], Told]]:
    """The words of each option, and what argparse is told of it, by its long word."""
    found = {}
    for shown, told in OPTIONS.items():
        *short, last = shown.split(", ")
        word, _, metavar = last.partition(" ")
        known = {"metavar": metavar, **told} if metavar else told
        found[word.lstrip("-")] = [*short, word], known
    return found


_BY_NAME = _by_name()


def take(
    group: argparse._ActionsContainer,
    names: str,
    own: Mapping[str, str | Told] = MappingProxyType({}),
    **of_all: Any,
) -> None:
    """Add options of the table by their names; of those with a ``|`` between them one can be given.

    ``own`` and ``of_all`` are told argparse otherwise, of one or of all: a text is the help, and
    ``short=False`` leaves out the short word. An argument that has a place stands in ``own`` alone.
    """
    for name in names.split():
        if "|" in name:
            either = group.add_mutually_exclusive_group()
            take(either, name.replace("|", " "), own, **of_all)
            continue
        said, usual = _BY_NAME.get(name, ([name], {}))
        other = own.get(name.replace("-", "_"), {})
        asked = {**of_all, **(told(other) if isinstance(other, str) else other)}
        if not asked.pop("short", True):
            said = said[-1:]
        found = {**usual, **asked}
        if found.get("default") is None and "help" not in asked:
            # What holds without the option is said all the same.
            found["help"] = found["help"].replace("%(default)s", str(usual.get("default")))
        group.add_argument(*said, **found)


#: Settings that an option of the same name does not say: its words name what is to be found first.
_FOUND = ("model", "input", "input_shape", "loss")


def settings_of(args: argparse.Namespace, **found: Any) -> Settings:
    """The settings that the options ask for: each that goes by the name of an option."""
    asked: dict[str, Any] = {"device": parsing.named_device(args.gpu)} if "gpu" in args else {}
    for name in (field.name for field in fields(Settings) if field.name not in _FOUND):
        if getattr(args, name, None) is not None:
            asked[name] = getattr(args, name)
    return Settings(**{**asked, **found})
