"""The parsers of all commands: each one's words and options, and which do not go together."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from chainer_profile.basics.errors import UsageError
from chainer_profile.basics.parsing import (
    InputSpec,
    Parser,
    folder,
    parse_shape,
)
from chainer_profile.basics.words import PROG, TRAIN_PROG, TYPED, VERSION
from chainer_profile.cli import COMMANDS, PROFILE
from chainer_profile.cli.options import LISTS, SINGLES, Told, take, told

#: Options that go together.
_NETWORK = "model classes weights"
_TRIAL = "phase loss train-mode"
_INPUT = "input index data-dir input-shape input-size batchsize"
_MACHINE = "threads gpu device"
_MESSAGES = "quiet debug"
_SHOWN = {
    "what is shown": "tree|columns full depth group-by macs hotspots sort target limit "
    f"{_MESSAGES}",
    "reports": "format json title author course trace-trial",
}
#: What several commands tell otherwise than the table: of threads that trials choose, and of an
#: input that is one array.
_BY_TRIALS = "BLAS threads (default: one, or as many as BLAS chooses where these are faster)"
_ONE_ARRAY: dict[str, Told] = {
    "input_shape": told(
        "shape of one input without the batch; required for your own network",
        metavar="CxHxW",
        action="store",
        type=parse_shape,
    ),
    "batchsize": told("inputs in the batch (default: 1)", default=1),
}

#: What a command says of itself; names of options by the titles of their groups; and what it tells
#: otherwise of an option (the help, or what argparse is told), and of its arguments.
_Command = tuple[str, Mapping[str, str], Mapping[str, str | Told]]


def _command(about: str, groups: Mapping[str, str], **own: str | Told) -> _Command:
    return about, groups, own


def _results(default: str) -> str:
    return f"folder of the results (default: {default})"


_TABLE = {
    PROFILE: _command(
        "Profiles a Chainer network layer by layer and writes tables, a plot and a report.",
        {
            "network": "model model-args list-models classes weights dtype fast keep-memory",
            "what a trial is": _TRIAL,
            "input": _INPUT,
            "measuring": f"trials clean-trials warmups max-seconds until-ci {_MACHINE} why "
            "no-memory counters no-machine layer-frames seed",
            "on a GPU": "tf32",
            "output": "out force",
            **_SHOWN,
        },
        threads=_BY_TRIALS,
        out=_results("the next free reports/MODEL-DEVICE-bBATCH"),
    ),
    "run": _command(
        "Runs a Chainer program unchanged, on current Python, NumPy and CuPy, and shows where its "
        "time went: imports, data, iterations by layer, evaluation, each extension of a Trainer, "
        "snapshots. The exit code is the program's.",
        {
            "": "module|c try compat-only no-layers no-memory no-samples format quiet program",
            "output": "out force",
        },
        no_memory="skip the memory pass (one trial)",
        quiet="print nothing but the program's own output",
        out=_results("the next free reports/NAME of the script"),
        program=told(argparse.SUPPRESS, nargs=argparse.REMAINDER),
    ),
    "report": _command(
        "Makes a run's reports again from its recording. Recovers the trials of a killed run.",
        {"": "run", **_SHOWN},
        run=told("folder of a run, or a recording", metavar="DIR", type=Path),
    ),
    "compare": _command(
        "Compares runs layer by layer with the first one, and says what is noise. Join several "
        "runs of the same thing with commas (A1,A2,A3 B1,B2,B3): this measures how much they "
        "differ.",
        {
            "": "runs",
            "judging": "min-effect fail-above gate",
            "what is shown": f"sort limit full all out {_MESSAGES}",
        },
        runs=told("folders of runs, or recordings; at least two", metavar="DIR", nargs="+"),
        sort=told(
            "order of the layers; change sorts by the time that a trial gains or loses "
            "(default: %(default)s)",
            choices=("change", "time", "index", "path"),
            default="change",
        ),
        limit="rows of the table, 0 for all (default: 10, or 20 with --full)",
        out="write comparison.csv, .md, .png and .html into this folder",
    ),
    "ranks": _command(
        "Merges the recordings of a ChainerMN training's ranks and shows which rank or layer the "
        "others wait for, how long, and what communication takes. It needs no MPI.",
        {"": "folder", "what is shown": f"limit full out {_MESSAGES}"},
        folder=told("folder that contains rank-0, rank-1, ...", metavar="DIR", type=folder),
        limit="rows of a table, 0 for all (default: 10, or 20 with --full)",
        out="write the files into this folder (default: DIR)",
    ),
    "advise": _command(
        "Profiles a network, then tries changes that could make it faster on the CPU, each in "
        "processes that take turns with the unchanged network. It says what each change gains, "
        "and how to keep it.",
        {
            "": "run",
            "network": "model model-args classes weights dtype",
            "what a trial is": _TRIAL,
            "input": _INPUT,
            "measuring": "threads seed",
            "trying": "budget",
            "output": f"out force full {_MESSAGES}",
        },
        run=told(
            "folder of a run: use its network and settings, and write the advice there",
            metavar="DIR",
            nargs="?",
        ),
        threads=_BY_TRIALS,
        out=_results("the next free reports/advise-MODEL-cpu-bBATCH"),
        force="replace a run in the --out folder, or the advice in DIR",
    ),
    "engines": _command(
        "Runs a network under several engines, compares their outputs with Chainer's, and shows "
        "how fast each engine is and what became of each layer.",
        {
            "network": _NETWORK,
            "input": _INPUT,
            "engines": "engines list-engines tolerance save-engine load-engine",
            "measuring": f"trials warmups layer-trials max-seconds {_MACHINE} seed",
            "output": f"out force report full {_MESSAGES}",
        },
        trials="trials of each engine, taken in turn (default: %(default)s)",
        warmups=told(
            "warm-up runs of each engine, for at most 10 s (default: %(default)s)",
            default=10,
        ),
        max_seconds="time limit for the trials",
        out=_results("the next free reports/engines-MODEL-DEVICE-bBATCH"),
        force="replace a run in the --out folder, or a saved engine",
    ),
    "sweep": _command(
        "Profiles each combination of the lists in a process of its own, and writes one table and "
        "plots. The same command goes on with an interrupted sweep.",
        {
            "": "file",
            "cases (all combinations of these lists)": " ".join(LISTS),
            "settings of every case, before those of the file": " ".join(SINGLES),
            "running": "executor dry-run",
            "output": f"out force {_MESSAGES}",
        },
        file=told(
            "file with the cases, instead of the lists", metavar="FILE.toml", nargs="?", type=Path
        ),
        # A sweep's own reader reads them, with those of the file.
        **{
            name.replace("-", "_"): {"short": False, "type": None, "default": None}
            for name in SINGLES[:-1]
            if name != "threads"
        },
        threads={
            **told("BLAS threads of every case (default: 1)", type=None, default=None),
            "short": False,
        },
        no_machine={"action": "store_true", "default": None, "dest": "no_machine"},
        out=_results("reports/sweep-NAME, named after the file or the networks"),
        force="measure everything again and replace another sweep",
    ),
    "summary": _command(
        "Shows a network's layers, parameters, operations, bytes and memory. Nothing is timed.",
        {
            "network": "model classes phase",
            "input": "input-shape input-size input-dtype batchsize",
            "what is shown": "depth columns limit format debug",
        },
        **_ONE_ARRAY,
        phase=told("inference, the only choice here", choices=("forward",)),
        depth="one row per link, so many levels deep, instead of one per layer",
        columns=told(
            "columns of the table, such as path,output_shapes,macs (an unknown one lists all)",
            type=str,
        ),
        limit="rows of the table on the terminal, 0 for all (default: all)",
        format=told(
            "form of the output (default: %(default)s)",
            **{"metavar": None, "type": None, "dest": "format", "default": "table"},
            choices=("table", "csv", "markdown"),
        ),
    ),
    "export": _command(
        "Exports a network to an ONNX file, and compares its outputs under ONNX Runtime with "
        "Chainer's.",
        {
            "network": f"{_NETWORK} seed",
            "input (apart from the batch, the file accepts only this)": "input-shape input-size "
            "batchsize",
            "output": f"to dynamic-batch force {_MESSAGES}",
        },
        **_ONE_ARRAY,
        force="replace an existing file",
    ),
    "train": _command(
        "Trains a network with Chainer's Trainer: momentum SGD, the learning rate divided by ten "
        "after half and three quarters of the epochs.",
        {
            "network and data": "model dataset data-dir synthetic-size no-augmentation",
            "training": f"epoch batchsize learning-rate seed {_MACHINE} fast profile",
            "output": f"out force resume snapshot {_MESSAGES}",
        },
        model=f"a name from {PROG} --list-models, package.module:Callable or "
        "path/to/file.py:Callable (default: %(default)s)",
        data_dir=told(
            "folder with the archive, such as cifar-10-python.tar.gz (default: Chainer's copy, "
            "downloaded if necessary)",
            type=folder,
        ),
        batchsize="images per iteration (default: 128, or 32 for synthetic)",
        seed="seed of the weights, the order, the crops and the synthetic set (default: "
        "%(default)s)",
        device={"short": False},  # -d is the data's
        out="folder (default: results/MODEL-DATASET)",
        force="replace a training in the folder",
    ),
    "machine": _command(
        "Shows this machine's limits: the rate of matrix products and of memory. The first time "
        "measures them, in about a second, and keeps them.",
        {"measuring": f"{_MACHINE} refresh debug"},
    ),
}


def parsers() -> dict[str, Parser]:
    return {word: parser_of(word) for word in COMMANDS}


def parser_of(word: str, only: Collection[str] = ()) -> Parser:
    """The parser of a command; with its groups of these titles alone, if any are given."""
    about, groups, own = _TABLE[word]
    own_program = {PROFILE: PROG, "train": TRAIN_PROG}
    parser = Parser(
        prog=own_program.get(word, f"{PROG} {word}"), description=about, check=_CHECKS.get(word)
    )
    if word in own_program:
        parser.add_argument("--version", action="version", version=VERSION)
    if word == PROFILE:
        width = max(map(len, COMMANDS)) + 2
        others = [f"  {one:{width}}{does}" for one, does in COMMANDS.items() if one != PROFILE]
        parser.epilog = "\n".join(["other commands, each with --help of its own:", *others])
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
    if word == "run":
        called = ("SCRIPT", "-m MODULE", "-c TEXT")
        parser.usage = "\n       ".join(f"%(prog)s [options] {one} [ARGS ...]" for one in called)
    for title, names in groups.items():
        if not only or title in only:
            take(parser.add_argument_group(title) if title else parser, names, own)
    return parser


# -- what does not go together


def _check_run(args: argparse.Namespace) -> None:
    if args.list_models:
        return
    _check_force(args)
    _check_input(args)
    _check_fast(args)
    if args.tf32 and args.gpu < 0:
        raise UsageError("--tf32 is for a GPU: add --gpu 0")
    if args.counters and args.gpu >= 0:
        raise UsageError("--counters is for the CPU: leave out --counters or --gpu")


def _check_program(args: argparse.Namespace) -> None:
    args.program = args.program[1:] if args.program[:1] == ["--"] else args.program
    if not args.program:
        raise UsageError(f"name a program: {TYPED} run SCRIPT [ARGS ...]")
    for option in ("compat_only", "no_layers"):
        if args.tries and getattr(args, option):
            without = option.replace("_", "-")
            raise UsageError(f"--try measures iterations: leave out --{without}")
    _check_force(args)


def _check_comparison(args: argparse.Namespace) -> None:
    if len(args.runs) < 2:
        raise UsageError(f"give at least two runs: {TYPED} compare BEFORE AFTER")
    if args.fail_above is not None and args.fail_above < args.min_effect:
        raise UsageError(
            "--fail-above must be at least --min-effect, below which changes are ignored"
        )
    if args.gate == "cpu" and args.fail_above is None:
        raise UsageError("--gate cpu needs --fail-above")


def _check_advice(args: argparse.Namespace) -> None:
    if args.run is None:
        _check_input(args)
        _check_force(args)


def _check_engines(args: argparse.Namespace) -> None:
    if args.list_engines or args.report is not None:
        return
    if args.save_engine is None:
        _check_force(args)
    _check_input(args)
    if args.load_engine is not None and not args.load_engine.is_file():
        raise UsageError(f"--load-engine {args.load_engine}: there is no such file")
    if args.save_engine is not None and args.save_engine.exists() and not args.force:
        raise UsageError(
            f"--save-engine {args.save_engine} exists already; replace it with --force"
        )


def _check_export(args: argparse.Namespace) -> None:
    path: Path = args.to
    if path.suffix != ".onnx":
        raise UsageError(f"--to {path}: name a file that ends with .onnx")
    if path.is_dir():
        raise UsageError(f"--to {path} is a folder; name a file")
    if path.exists() and not args.force:
        raise UsageError(f"--to {path} exists already; replace it with --force")


def _check_training(args: argparse.Namespace) -> None:
    if args.resume and args.force:
        raise UsageError(
            "--resume continues a training and --force replaces it: give only one of them"
        )
    _check_fast(args)
    if args.synthetic_size is not None and args.dataset != "synthetic":
        raise UsageError("--synthetic-size is for --dataset synthetic")
    if args.data_dir is not None and args.dataset == "synthetic":
        raise UsageError("--data-dir is for CIFAR: the synthetic set is generated each time")


def _check_force(args: argparse.Namespace) -> None:
    if args.force and args.out is None:
        raise UsageError("--force replaces the run in a folder: name it with --out")


def _check_fast(args: argparse.Namespace) -> None:
    if args.fast is not None and args.gpu >= 0:
        raise UsageError("--fast is for the CPU: leave out --gpu")


def _check_input(args: argparse.Namespace) -> None:
    """Refuse options of an input that is another one."""
    if args.input != "cifar10" and (args.index or args.data_dir is not None):
        option = "--index" if args.index else "--data-dir"
        raise UsageError(f"{option} is for CIFAR-10: add --input cifar10")
    if args.input != "random" and asks_for_more(args):
        raise UsageError(
            f"--input {args.input} is one array of floats: give one plain --input-shape"
        )
    if is_file_of_arrays(args.input):
        if args.input_shape or args.input_size:
            raise UsageError(f"--input {args.input} has its own shapes: leave out --input-shape")
        if args.batchsize is not None:
            raise UsageError(f"--input {args.input} has its own batch: leave out --batchsize")


def is_file_of_arrays(name: str) -> bool:
    """Whether ``--input`` names a file that holds arrays."""
    return name.endswith((".npy", ".npz"))


def asks_for_more(args: argparse.Namespace) -> bool:
    """Whether other arguments than one array of floats are wanted."""
    specs = args.input_shape or []
    return len(specs) > 1 or any(one != InputSpec(one.shape) for one in specs)


_CHECKS: dict[str, Callable[[argparse.Namespace], None]] = {
    PROFILE: _check_run,
    "run": _check_program,
    "compare": _check_comparison,
    "advise": _check_advice,
    "engines": _check_engines,
    "export": _check_export,
    "train": _check_training,
}
