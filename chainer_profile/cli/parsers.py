"""The parsers of all commands, each by its command's word, and which options do not go together."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from chainer_profile.basics.errors import UsageError
from chainer_profile.basics.parsing import (
    InputSpec,
    Parser,
    folder,
    named_device,
    parse_device,
)
from chainer_profile.basics.words import PROG, TRAIN_PROG, VERSION
from chainer_profile.cli import COMMANDS, PROFILE
from chainer_profile.cli.options import (
    BY_TRIALS,
    FORM,
    HISTORY_ROWS,
    INPUT,
    LISTS,
    MACHINE,
    MESSAGES,
    NETWORK,
    ONE_SHAPE,
    SINGLES,
    TRIAL,
    take,
)


def parsers() -> dict[str, Parser]:
    """Those of all commands."""
    return {word: globals()[word]() for word in COMMANDS}


def profile() -> Parser:
    width = max(map(len, COMMANDS)) + 2
    others = [f"  {word:{width}}{about}" for word, about in COMMANDS.items() if word != PROFILE]
    parser = Parser(
        prog=PROG,
        description="Profiles a Chainer network layer by layer and writes tables, a plot and a "
        "report.",
        epilog="\n".join(["other commands, each with --help of its own:", *others]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        check=_check_run,
    )
    parser.add_argument("--version", action="version", version=VERSION)
    group = _group(
        parser, "network", "--model --model-args --list-models --classes --weights --dtype"
    )
    take(group, "--fast --keep-memory")
    _group(parser, "what a trial is", *TRIAL)
    _group(parser, "input", *INPUT)
    group = _group(
        parser, "measuring", "--trials --clean-trials --warmups --max-seconds --until-ci"
    )
    take(group, "--threads", help=BY_TRIALS)
    take(group, "--gpu --device --why --no-memory --counters --no-machine")
    take(group, "--layer-frames --seed")
    _group(parser, "on a GPU", "--tf32")
    _output(parser, "the next free reports/MODEL-DEVICE-bBATCH")
    _shown(parser)
    return parser


def run() -> Parser:
    parser = Parser(
        prog=f"{PROG} run",
        usage="%(prog)s [options] SCRIPT [ARGS ...]\n"
        "       %(prog)s [options] -m MODULE [ARGS ...]\n"
        "       %(prog)s [options] -c TEXT [ARGS ...]",
        description="Runs a program that uses Chainer, unchanged, as Python would, and says where "
        "its time went: imports, data, iterations by layer, evaluation, every extension of a "
        "Trainer, snapshots. Its exit code is the program's. Chainer is mended for current Python, "
        "NumPy and CuPy first.",
        check=_check_program,
    )
    take(parser.add_mutually_exclusive_group(), "--module", "-c")
    take(parser, "--compat-only --no-layers")
    take(parser, "--no-memory", help="leave out the memory pass, one trial of a kind")
    take(parser, "--no-samples")
    _output(parser, "the next free reports/NAME of the script")
    take(parser, "--format")
    take(parser, "--quiet", help="print nothing of our own")
    parser.add_argument("program", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def report() -> Parser:
    parser = _parser(
        "report",
        "Makes the table, the plot and the report of a run again, from its recording alone. "
        "Recovers the trials of a run that was killed.",
    )
    parser.add_argument("run", metavar="DIR", type=Path, help="folder of a run, or a recording")
    _shown(parser)
    return parser


def compare() -> Parser:
    parser = _parser(
        "compare",
        "Compares runs layer by layer, and says what is noise. The first run is the one that each "
        "of the others is compared with. Several runs of the same thing, separated by commas "
        "(A1,A2,A3 B1,B2,B3), are taken together, which measures how runs differ.",
        check=_check_comparison,
    )
    parser.add_argument(
        "runs", metavar="DIR", nargs="+", help="folders of runs, or recordings, two at least"
    )
    _group(parser, "judging", "--min-effect --fail-above --gate")
    group = parser.add_argument_group("what is shown")
    sorts = ("change", "time", "index", "path")
    about = "order of the layers; change is by the time that a trial gains or loses"
    take(group, "--sort", help=f"{about} (default: %(default)s)", choices=sorts, default="change")
    take(group, "--limit", help="rows of the layer table, 0 for all (default: 10, with --full 20)")
    take(group, "--full --all")
    take(group, "--out", help="write comparison.csv, .md, .png and .html into this folder")
    take(group, *MESSAGES)
    return parser


def ranks() -> Parser:
    parser = _parser(
        "ranks",
        "Puts the recordings of the ranks of a ChainerMN training together: which rank or layer "
        "the others wait for, how long, and what the communication takes. It needs no MPI.",
    )
    parser.add_argument(
        "folder", metavar="DIR", type=folder, help="folder with rank-0, rank-1, ... in it"
    )
    about = "rows of a table, 0 for all (default: 10, with --full 20)"
    group = _group(parser, "what is shown", "--limit", help=about)
    take(group, "--full")
    take(group, "--out", help="write the files into this folder (default: DIR)")
    take(group, *MESSAGES)
    return parser


def advise() -> Parser:
    parser = _parser(
        "advise",
        "Profiles a network, then tries on the CPU what could make it faster, each change in fresh "
        "processes that take turns with the network as it is, and says how much each brings, what "
        "to write to keep it, and what was in vain.",
        check=_check_advice,
    )
    parser.add_argument(
        "run",
        metavar="DIR",
        nargs="?",
        help="folder of a run, whose network and settings are taken; the advice goes there",
    )
    group = _group(parser, "network", "--model --model-args --classes --weights --dtype")
    _group(parser, "what a trial is", *TRIAL)
    _group(parser, "input", *INPUT)
    group = _group(parser, "measuring", "--threads", help=BY_TRIALS)
    take(group, "--seed")
    return advises_by(parser)


def advises_by(parser: Parser) -> Parser:
    """A parser with the options of ``advise`` that a run does not have, or not for the same."""
    _group(parser, "trying", "--budget")
    force = "replace a run in the --out folder, or the advice in DIR"
    group = _output(parser, "the next free reports/advise-MODEL-cpu-bBATCH", help=force)
    take(group, "--full", *MESSAGES)
    return parser


def engines() -> Parser:
    parser = _parser(
        "engines",
        "Runs the same network with the same weights under several engines, compares their outputs "
        "with Chainer's, and shows how fast each is and what became of every layer.",
        check=_check_engines,
    )
    _group(parser, "network", *NETWORK)
    _group(parser, "input", *INPUT)
    group = _group(parser, "engines", "--engines --list-engines")
    about = "what the other engines compute in; Chainer stays in fp32 (default: %(default)s)"
    take(group, "--precision", help=about)
    take(group, "--tolerance --save-engine --load-engine")
    about = "trials of each engine, taken in turn (default: %(default)s)"
    group = _group(parser, "measuring", "--trials", help=about)
    about = "warm-up runs of each, for ten seconds at most (default: %(default)s)"
    take(group, "--warmups", help=about, default=10)
    take(group, "--layer-trials")
    take(group, "--max-seconds", help="end the trials after so many seconds")
    take(group, *MACHINE, "--seed")
    force = "replace a run in the --out folder, or a saved engine"
    group = _output(parser, "the next free reports/engines-MODEL-DEVICE-bBATCH", help=force)
    take(group, "--report --full", *MESSAGES)
    return parser


def sweep() -> Parser:
    from chainer_profile.runs.executors import check_executor

    parser = _parser(
        "sweep",
        "Profiles many cases, a case for each combination of the lists, each in a fresh process, "
        "and writes one table and plots. The same command goes on with a sweep that was "
        "interrupted.",
    )
    parser.add_argument(
        "file", metavar="FILE.toml", nargs="?", type=Path, help="the cases, in place of the lists"
    )
    group = parser.add_argument_group("cases, a combination of lists")
    for name, (metavar, about) in LISTS.items():
        group.add_argument(f"--{name}", metavar=metavar, help=about)
    group = parser.add_argument_group("every case, in place of what the file says")
    *values, flag = (f"--{name}" for name in SINGLES)
    take(group, *values, short=False, type=None, default=None)
    take(group, flag, action="store_true", default=None, dest="no_machine")
    group = _group(parser, "running", "--executor", type=check_executor)
    take(group, "--dry-run")
    force = "measure all again, and replace another sweep"
    group = _output(parser, "reports/sweep-NAME, by the file or the networks", help=force)
    take(group, *MESSAGES)
    return parser


def history() -> Parser:
    from chainer_profile.runs.history import SORTS, parse_since

    parser = _parser(
        "history",
        "Lists the runs under reports/, with those of sweeps. A run's name is its folder below "
        "that.",
    )
    group = parser.add_argument_group("which runs")
    group.add_argument(
        "words",
        metavar="WORD",
        nargs="*",
        help="words that must all be in a run's name, network, input, machine, layer or command",
    )
    group.add_argument("--model", metavar="NAME", default="", help="network, such as 'resnet*'")
    group.add_argument(
        "--device", metavar="D", default="", type=_devices, help="cpu, gpu:0, or gpu"
    )
    take(group, "--since", type=parse_since)
    take(group, "--commit")
    group = parser.add_argument_group("what is shown")
    sorts = tuple(SORTS)
    take(group, "--sort", choices=sorts, default="when", help="order (default: when, newest first)")
    about = f"so many runs at most, 0 for all (default: {HISTORY_ROWS} in a table, else all)"
    take(group, "--limit", help=about)
    take(group, "--format", **{**FORM, "help": "form (default: %(default)s)"})
    take(group, "--names --reports --debug")
    return parser


def _devices(text: str) -> str:
    """A pattern from a device as Chainer or the profiler names it."""
    if text in ("", "gpu", "cupy", "@cupy", "cuda"):
        return "gpu*" if text else ""
    return text if "*" in text or "?" in text else named_device(parse_device(text))


def summary() -> Parser:
    parser = _parser(
        "summary",
        "Shows a network's layers with output shapes, parameters, operations and bytes, its totals "
        "and the memory of its arrays. Nothing is timed.",
    )
    group = _group(parser, "network", "--model --classes")
    take(group, "--phase", choices=("forward",), help="inference, the only one here")
    _one_array(parser, "input", "--input-dtype")
    group = parser.add_argument_group("what is shown")
    about = "one row a link, to so many levels below the network, in place of one a layer"
    take(group, "--depth", help=about)
    about = "columns of the table, such as path,output_shapes,macs (an unknown one lists all)"
    take(group, "--columns", help=about, type=str)
    take(group, "--limit", help="rows of the table on the terminal, 0 for all (default: all)")
    take(group, "--format", **FORM)
    take(group, "--debug")
    return parser


#: Engines by what the files end with that are exported for them.
EXPORTED = {".onnx": "onnxruntime", ".xml": "openvino"}


def export() -> Parser:
    parser = _parser(
        "export",
        "Writes a network for ONNX Runtime or OpenVINO; then reads it again, and compares the "
        "outputs with Chainer's.",
        check=_check_export,
    )
    _group(parser, "network", *NETWORK, "--seed")
    _one_array(parser, "input; the file takes no other shape but for its batch")
    group = _group(parser, "output", "--to --dynamic-batch --opset --precision")
    take(group, "--force", help="replace a file that is there")
    take(group, *MESSAGES)
    return parser


def train() -> Parser:
    parser = Parser(
        prog=TRAIN_PROG,
        description="Trains a network on CIFAR-10, CIFAR-100 or a small synthetic set with "
        "Chainer's Trainer: momentum SGD, the learning rate falls to a tenth at half and again at "
        "three quarters of the epochs.",
        check=_check_training,
    )
    parser.add_argument("--version", action="version", version=VERSION)
    group = parser.add_argument_group("network and data")
    model = (
        f"a network of {PROG} --list-models, package.module:Callable or path/to/file.py:Callable"
    )
    take(group, "--model", help=f"{model} (default: %(default)s)")
    take(group, "--dataset")
    archive = (
        "folder with the archive of the set, such as cifar-10-python.tar.gz (default: Chainer's "
        "own copy, downloaded if need be)"
    )
    take(group, "--data-dir", type=folder, help=archive)
    take(group, "--synthetic-size --no-augmentation")
    group = _group(parser, "training", "--epoch")
    take(group, "--batchsize", help="images per iteration (default: 128, for synthetic 32)")
    take(group, "--learning-rate")
    what = "the weights, the order, the crops and the synthetic set"
    take(group, "--seed", help=f"seed of {what} (default: %(default)s)")
    # Without -d: a training takes its data by that.
    take(group, *MACHINE[:-1])
    take(group, "--device", short=False)
    take(group, "--fast --profile")
    group = _group(parser, "output", "--out", help="folder (default: results/MODEL-DATASET)")
    take(group, "--force", help="replace a training in the folder")
    take(group, "--resume --snapshot", *MESSAGES)
    return parser


def machine() -> Parser:
    parser = _parser(
        "machine",
        "Shows what this machine can do at best: the rate of matrix products and of memory. They "
        "are measured once, which takes about a second, and kept.",
    )
    _group(parser, "measuring", *MACHINE, "--refresh --debug")
    return parser


#: What is completed: the installed command.
COMPLETED = "chainer-profile"


def completion() -> Parser:
    parser = _parser(
        "completion",
        f"Prints a script that lets a shell complete the commands, options and "
        f"networks of the installed command. For bash put 'eval \"$({COMPLETED} completion "
        f"bash)\"' into ~/.bashrc, for zsh the same with zsh into ~/.zshrc, behind compinit; for "
        f"fish write the output into ~/.config/fish/completions/{COMPLETED}.fish.",
    )
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell")
    take(parser, "--debug")
    return parser


# -- what several have


def _parser(word: str, about: str, check: Any = None, **more: Any) -> Parser:
    return Parser(prog=f"{PROG} {word}", description=about, check=check, **more)


def _group(parser: Parser, title: str, *names: str, **told: Any) -> argparse._ArgumentGroup:
    group = parser.add_argument_group(title)
    take(group, *names, **told)
    return group


def _output(parser: Parser, out: str, **force: Any) -> argparse._ArgumentGroup:
    """Options of where results go by default, and of what ``--force`` replaces there."""
    group = _group(parser, "output", "--out", help=f"folder of the results (default: {out})")
    take(group, "--force", **force)
    return group


def _shown(parser: Parser) -> None:
    """Options of what is shown, which running and reporting share."""
    group = parser.add_argument_group("what is shown")
    take(group.add_mutually_exclusive_group(), "--tree --columns")
    take(group, "--full --depth --group-by --macs --hotspots --sort --target")
    take(group, "--limit", *MESSAGES)
    group = _group(parser, "reports", "--format --json --title --author --course --trace-trial")


def _one_array(parser: Parser, title: str, *more: str) -> None:
    """Options of an input that is one array."""
    group = _group(parser, title, "--input-shape", **ONE_SHAPE)
    take(group, "--input-size", *more)
    take(group, "--batchsize", help="inputs in the batch (default: 1)", default=1)


# -- what does not go together


def _check_run(args: argparse.Namespace) -> None:
    if args.list_models:
        return
    _check_force(args)
    _check_input(args)
    _check_fast(args)
    if args.tf32 and args.gpu < 0:
        raise UsageError("--tf32 is for a GPU: give --gpu 0 as well")
    if args.counters and args.gpu >= 0:
        raise UsageError("--counters are the CPU's: leave --counters or --gpu out")


def _check_program(args: argparse.Namespace) -> None:
    args.program = args.program[1:] if args.program[:1] == ["--"] else args.program
    if not args.program:
        raise UsageError(f"name a program: {PROG} run SCRIPT [ARGS ...]")
    _check_force(args)


def _check_comparison(args: argparse.Namespace) -> None:
    if len(args.runs) < 2:
        raise UsageError(f"give two runs at least: {PROG} compare BEFORE AFTER")
    if args.fail_above is not None and args.fail_above < args.min_effect:
        raise UsageError("--fail-above is less than --min-effect, below which nothing is a change")
    if args.gate == "cpu" and args.fail_above is None:
        raise UsageError("--gate cpu goes with --fail-above")


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
            f"--save-engine {args.save_engine}: is there already; replace it with --force"
        )


def _check_export(args: argparse.Namespace) -> None:
    path: Path = args.to
    if path.suffix not in EXPORTED:
        raise UsageError(f"--to {path}: name a file that ends with {' or '.join(EXPORTED)}")
    if args.dynamic_batch and path.suffix != ".onnx":
        raise UsageError(f"--dynamic-batch: {path} is for one batch size; only .onnx is for any")
    if args.opset is not None and path.suffix != ".onnx":
        raise UsageError(f"--opset {args.opset}: only .onnx files have one, and not {path}")
    args.files = [path, path.with_suffix(".bin")] if path.suffix == ".xml" else [path]
    for file in args.files:
        if file.is_dir():
            raise UsageError(f"--to {file}: is a folder; name a file")
        if file.exists() and not args.force:
            raise UsageError(f"--to {file}: is there already; replace it with --force")


def _check_training(args: argparse.Namespace) -> None:
    if args.resume and args.force:
        raise UsageError("--resume goes on with a training, --force replaces it: give one of them")
    _check_fast(args)
    if args.synthetic_size is not None and args.dataset != "synthetic":
        raise UsageError("--synthetic-size is for --dataset synthetic")
    if args.data_dir is not None and args.dataset == "synthetic":
        raise UsageError("--data-dir is for CIFAR: the synthetic set is made anew each time")


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
        raise UsageError(f"{option} is for CIFAR-10: give --input cifar10 as well")
    if args.input != "random" and asks_for_more(args):
        raise UsageError(
            f"--input {args.input} is one array of floats: give one plain --input-shape"
        )
    if is_file_of_arrays(args.input):
        if args.input_shape or args.input_size:
            raise UsageError(f"--input {args.input} has its own shapes: leave --input-shape out")
        if args.batchsize is not None:
            raise UsageError(f"--input {args.input} has its own batch: leave --batchsize out")


def is_file_of_arrays(name: str) -> bool:
    """Whether ``--input`` names a file that holds arrays."""
    return name.endswith((".npy", ".npz"))


def asks_for_more(args: argparse.Namespace) -> bool:
    """Whether other arguments than one array of floats are wanted."""
    specs = args.input_shape or []
    return len(specs) > 1 or any(one != InputSpec(one.shape) for one in specs)
