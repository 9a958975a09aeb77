"""The parsers of all commands: each one's arguments and options, and which do not go together."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from chainer_profile.basics.errors import UsageError
from chainer_profile.basics.parsing import (
    InputSpec,
    Parser,
    cifar10_index,
    folder,
)
from chainer_profile.basics.words import DEFAULT_DEPTH, PROG, TRAIN_PROG, TYPED, VERSION
from chainer_profile.cli import COMMANDS, INSTEAD, PROFILE
from chainer_profile.cli.options import LISTS, SINGLES, Keywords, keywords, skipping, take

#: Options that go together.
_TRIAL = "phase loss train-mode"
_DEVICE = "threads gpu device"
_MESSAGES = "quiet debug"
_SHOWN = {
    "what is shown": f"tree|columns full group-by hotspots sort limit {_MESSAGES}",
    "reports": "format json title author course",
}
#: The options of ``profile.py --help``; ``--help-all`` shows the others too.
COMMON = "model input-shape batchsize phase fast trials threads gpu why out format full"

_THREADS = "BLAS threads (default: one, or as many as BLAS chooses where these are faster)"


class _Command(NamedTuple):
    """A command's description, and names of its options by the titles of their groups.

    ``own`` holds its positional arguments, and what it changes in options of the table: the help,
    or keyword arguments of argparse.
    """

    about: str
    groups: Mapping[str, str]
    own: Mapping[str, str | Keywords]


def _command(about: str, groups: Mapping[str, str], **own: str | Keywords) -> _Command:
    return _Command(about, groups, own)


def _of_network(also: str = "", **between: str) -> dict[str, str]:
    """The groups of the options of a network and of its input, the same for all commands."""
    network = f"model model-args classes weights {also}".strip()
    groups = {title.replace("_", " "): names for title, names in between.items()}
    return {"network": network, **groups, "input": "input data-dir input-shape batchsize"}


def _results(default: str) -> str:
    return f"folder of the results (default: {default})"


#: An option of a sweep is a text here: the command reads it, like those of a file, and each entry
#: of a list.
_UNREAD: Keywords = {"short": False, "type": None, "default": None}
_LIST: Keywords = {**_UNREAD, "choices": None, "action": "store"}

_TABLE = {
    PROFILE: _command(
        "Profiles a Chainer network layer by layer and writes tables, plots and a report.",
        {
            **_of_network("list-models dtype fast keep-memory", what_a_trial_is=_TRIAL),
            "measuring": f"trials clean-trials warmups max-seconds until-ci {_DEVICE} why "
            "counters skip machine layer-frames seed",
            "output": "out force",
            **_SHOWN,
        },
        threads=_THREADS,
        out=_results("the next free reports/MODEL-DEVICE-bBATCH"),
    ),
    "run": _command(
        "Runs a Chainer program unchanged, on current Python, NumPy and CuPy, and shows where its "
        "time went: imports, data, iterations by layer, evaluation, each extension of a Trainer, "
        "snapshots. The exit code is the program's.",
        {
            "": "module|c try memory compat-only skip format quiet program",
            "output": "out force",
        },
        skip=skipping(
            "leave out measurements",
            layers="and Python functions, so that the program's parts alone are left",
            samples="of the main thread, 100 times a second, which name Python functions",
        ),
        quiet="print nothing but the program's own output",
        out=_results("the next free reports/NAME of the script"),
        program=keywords(argparse.SUPPRESS, nargs=argparse.REMAINDER),
    ),
    "report": _command(
        "Makes a run's reports again from its recording, also those of a run of several engines. "
        "Recovers the trials of a killed run. Of a ChainerMN training it merges the recordings of "
        "the ranks, without MPI, and shows which rank or layer the others wait for, how long, and "
        "what communication takes.",
        {"": "run out", **_SHOWN},
        run=keywords(
            "folder of a run, or a recording; or a folder that contains rank-0, rank-1, ...",
            metavar="DIR",
            type=folder,
        ),
        out="write the files of ranks into this folder (default: DIR)",
    ),
    "compare": _command(
        "Compares runs layer by layer with the first one, and says what is noise. Join several "
        "runs of the same thing with commas (A1,A2,A3 B1,B2,B3): this measures how much they "
        "differ.",
        {
            "": "runs",
            "judging": "min-effect fail-above gate",
            "what is shown": f"sort limit full out {_MESSAGES}",
        },
        runs=keywords("folders of runs, or recordings; at least two", metavar="DIR", nargs="+"),
        sort=keywords(
            "order of the layers; change sorts by the time that a trial gains or loses "
            "(default: %(default)s)",
            choices=("change", "time", "index", "path"),
            default="change",
        ),
        full="show everything, unchanged layers too",
        limit="rows of the table, 0 for all (default: 10, or 20 with --full)",
        out="write comparison.csv, .md, .png and .html into this folder",
    ),
    "advise": _command(
        "Profiles a network, then tries changes that could make it faster on the CPU, each in "
        "processes that take turns with the unchanged network. It says what each change gains, "
        "and how to keep it.",
        {
            "": "run",
            **_of_network("dtype", what_a_trial_is=_TRIAL),
            "measuring": "threads seed",
            "trying": "budget",
            "output": f"out force full {_MESSAGES}",
        },
        run=keywords(
            "folder of a run: use its network and settings, and write the advice there",
            metavar="DIR",
            nargs="?",
        ),
        threads=_THREADS,
        out=_results("the next free reports/advise-MODEL-cpu-bBATCH"),
        force="replace a run in the --out folder, or the advice in DIR",
    ),
    "engines": _command(
        "Runs a network under several engines, compares their outputs with Chainer's, and shows "
        "how fast each engine is and what became of each layer.",
        {
            **_of_network(),
            "engines": "engines list-engines tolerance load-engine",
            "measuring": f"trials warmups max-seconds {_DEVICE} seed",
            "output": f"out force full {_MESSAGES}",
        },
        trials="trials of each engine, in turn; up to 200 more time its layers (default: "
        "%(default)s)",
        warmups=keywords(
            "warm-up runs of each engine, for at most 10 s (default: %(default)s)",
            default=10,
        ),
        max_seconds="time limit for the trials",
        out=_results("the next free reports/engines-MODEL-DEVICE-bBATCH"),
    ),
    "sweep": _command(
        "Profiles each combination of the lists in a process of its own, and writes one table and "
        "plots. The same command goes on with an interrupted sweep.",
        {
            "": "file",
            "cases (all combinations of these lists, separated by commas)": " ".join(LISTS),
            "settings of every case, before those of the file": " ".join(SINGLES),
            "running": "executor dry-run",
            "output": f"out force {_MESSAGES}",
        },
        file=keywords(
            "file with the cases, instead of the lists", metavar="FILE.toml", nargs="?", type=Path
        ),
        model=keywords("networks, as profile.py takes them", **_LIST),
        input_shape=keywords(
            "shapes without the batch, or sizes of images; once for each argument",
            **{**_LIST, "action": "append"},
        ),
        batchsize=keywords("inputs per trial (default: 1)", **_LIST),
        device=keywords("cpu, gpu:0 and so on (default: cpu)", **_LIST, dest="device"),
        phase=keywords("phases (default: forward)", **_LIST, metavar="PHASE"),
        **{name.replace("-", "_"): _UNREAD for name in SINGLES if name != "threads"},
        threads=keywords("BLAS threads of every case (default: 1)", **_UNREAD),
        out=_results("reports/sweep-NAME, named after the file or the networks"),
        force="measure everything again and replace another sweep",
    ),
    "summary": _command(
        "Shows a network's layers, parameters, operations, bytes and memory. Nothing is timed.",
        {
            **_of_network("phase seed"),
            "what is shown": "tree columns limit format debug",
        },
        batchsize="inputs in the batch (default: 1)",
        phase=keywords("inference, the only choice here", choices=("forward",)),
        tree="one row per link, so many levels deep, instead of one per layer (default: "
        f"{DEFAULT_DEPTH})",
        columns=keywords(
            "columns of the table, such as path,output_shapes,macs (an unknown one lists all)",
            type=str,
        ),
        limit="rows of the table on the terminal, 0 for all (default: all)",
        format=keywords(
            "form of the output (default: %(default)s)",
            **{"metavar": None, "type": None, "dest": "format", "default": "table"},
            choices=("table", "csv", "markdown"),
        ),
    ),
    "export": _command(
        "Exports a network to an ONNX file, and compares its outputs under ONNX Runtime with "
        "Chainer's.",
        {
            "": "file",
            **_of_network("seed"),
            "output": f"force {_MESSAGES}",
        },
        file=keywords("the file to write", metavar="FILE.onnx", type=Path),
        batchsize="make a file for this batch size alone (default: for any, if the network allows "
        "it, else for 1)",
        force="replace an existing file",
    ),
    "train": _command(
        "Trains a network with Chainer's Trainer: momentum SGD, the learning rate divided by ten "
        "after half and three quarters of the epochs.",
        {
            "network and data": "model model-args dataset data-dir no-augmentation",
            "training": f"epoch batchsize learning-rate seed {_DEVICE} fast profile",
            "output": f"out force resume snapshot {_MESSAGES}",
        },
        data_dir=keywords(
            "folder with the archive, such as cifar-10-python.tar.gz, or with cifar-10.npz or "
            "cifar-100.npz of your own (default: Chainer's copy, downloaded if necessary)",
            type=folder,
        ),
        batchsize="images per iteration (default: 128, or 32 for synthetic)",
        seed="seed of the weights, the order, the crops and the synthetic set (default: "
        "%(default)s)",
        threads=_THREADS,
        device={"short": False},  # -d is the data's
        out="folder (default: results/MODEL-DATASET)",
        force="replace a training in the folder",
    ),
}


def parsers() -> dict[str, Parser]:
    return {word: parser_of(word) for word in COMMANDS}


def parser_of(word: str, only: Collection[str] = ()) -> Parser:
    """The parser of a command; with the groups of these titles alone, if any are given."""
    about, groups, own = _TABLE[word]
    check = partial(_check, word)
    if word == PROFILE:
        parser = _with_commands(check)
    else:
        prog = TRAIN_PROG if word == "train" else f"{PROG} {word}"
        parser = Parser(prog=prog, description=about, check=check)
    if word == "train":
        parser.add_argument("--version", action="version", version=VERSION)
    if word == "run":
        programs = ("SCRIPT", "-m MODULE", "-c TEXT")
        parser.usage = "\n       ".join(f"%(prog)s [options] {of} [ARGS ...]" for of in programs)
    for title, names in groups.items():
        if not only or title in only:
            take(parser.add_argument_group(title) if title else parser, names, own)
    return parser


def _with_commands(check: Callable[[argparse.Namespace], None] | None = None) -> Parser:
    """A parser of profile.py whose help lists the commands above the options."""
    parser = Parser(
        prog=PROG,
        usage=f"{PROG} [options]\n       {PROG} COMMAND [options]",
        description=_TABLE[PROFILE].about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
        check=check,
    )
    width = max(map(len, COMMANDS)) + 2
    lines = [f"{word:{width}}{about}" for word, about in COMMANDS.items() if word != PROFILE]
    parser.add_argument_group("commands, each with --help of its own", "\n".join(lines))
    own_help = parser.add_argument_group("help")
    about = "show the options for most runs, and exit"
    own_help.add_argument(
        "-h", "--help", action=_Help, nargs=0, default=argparse.SUPPRESS, help=about
    )
    own_help.add_argument("--help-all", action="help", help="show all options, and exit")
    own_help.add_argument("--version", action="version", version=VERSION)
    return parser


class _Help(argparse.Action):
    """Prints the help of some options of profile.py."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        short = _with_commands()
        take(short.add_argument_group("options for most runs"), COMMON, _TABLE[PROFILE].own)
        short.print_help()
        parser.exit()


def is_file_of_arrays(name: str) -> bool:
    """Whether ``--input`` names a file that holds arrays."""
    return name.endswith((".npy", ".npz"))


def asks_for_more(args: argparse.Namespace) -> bool:
    """Whether the options ask for other arguments than one array of floats."""
    specs = args.input_shape or []
    return len(specs) > 1 or any(spec != InputSpec(spec.shape) for spec in specs)


def _check(word: str, args: argparse.Namespace) -> None:
    """Refuse values that do not go together; of a run that there is, ``advise`` takes all."""
    if any(getattr(args, option, None) for option in INSTEAD) or getattr(args, "run", None):
        return
    for is_given, message in _refusals(word, args):
        if is_given:
            raise UsageError(message)


def _refusals(word: str, args: argparse.Namespace) -> Iterator[tuple[object, str]]:
    """What does not go together in a command: whether it is given, and what is said of it."""
    if word == "run":
        yield args.program in ([], ["--"]), f"name a program: {TYPED} run SCRIPT [ARGS ...]"
        for option, is_given in (
            ("--compat-only", args.compat_only),
            ("--skip layers", "layers" in args.skip),
        ):
            yield args.tries and is_given, f"--try measures iterations: leave out {option}"
    if word in (PROFILE, "run", "advise", "engines"):
        replaces = args.force and args.out is None
        yield replaces, "--force replaces the run in a folder: name it with --out"
    if word in (PROFILE, "advise", "engines", "summary", "export"):
        is_cifar = cifar10_index(args.input) is not None
        yield args.data_dir and not is_cifar, "--data-dir is for CIFAR-10: add --input cifar10"
        names = [spec.name for spec in args.input_shape or [] if spec.name]
        twice = next((name for name in names if names.count(name) > 1), "")
        yield twice, f"--input-shape {twice}= is given twice: give each argument once"
        is_other = args.input != "random" and asks_for_more(args)
        yield is_other, f"--input {args.input} is one array of floats: give one plain --input-shape"
        for option, part, value in (
            ("--input-shape", "shapes", args.input_shape),
            ("--batchsize", "batch", args.batchsize),
        ):
            has_own = is_file_of_arrays(args.input) and value is not None
            yield has_own, f"--input {args.input} has its own {part}: leave out {option}"
    if word in (PROFILE, "train"):
        yield args.fast and args.gpu >= 0, "--fast is for the CPU: leave out --gpu"
    if word == PROFILE:
        for option, is_given in (("--gpu", args.gpu >= 0), ("--skip", "counters" in args.skip)):
            both = args.counters and is_given
            yield both, f"--counters is for the CPU: leave out --counters or {option}"
    if word == "compare":
        yield len(args.runs) < 2, f"give at least two runs: {TYPED} compare BEFORE AFTER"
        is_below = args.fail_above is not None and args.fail_above < args.min_effect
        reason = "below which changes are ignored"
        yield is_below, f"--fail-above must be at least --min-effect, {reason}"
        yield args.gate == "cpu" and args.fail_above is None, "--gate cpu needs --fail-above"
    if word == "engines" and (file := args.load_engine) is not None:
        yield not file.is_file(), f"--load-engine {file}: there is no such file"
    if word == "export":
        yield args.file.suffix != ".onnx", f"{args.file}: name a file that ends with .onnx"
        yield args.file.is_dir(), f"{args.file} is a folder; name a file"
        is_there = args.file.exists() and not args.force
        yield is_there, f"{args.file} exists already; replace it with --force"
    if word == "train":
        why = "--resume continues a training and --force replaces it: give only one of them"
        yield args.resume and args.force, why
        is_drawn = args.data_dir and args.dataset[0] == "synthetic"
        yield is_drawn, "--data-dir is for CIFAR: the synthetic set is generated each time"
