"""Constants that several packages share, and functions on this program's command lines.

The constants are the command's name, defaults, and values of options.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

#: The package's version; ``pyproject.toml`` reads it from here.
VERSION = "0.3.0"


def _command() -> tuple[str, ...]:
    """The command that started this program, or that another program could use to start it."""
    started = Path(sys.argv[0]).stem if sys.argv else ""
    argv = sys.orig_argv
    if "-m" in argv and argv[argv.index("-m") + 1 :][:1] == ["chainer_profile"]:
        return ("python", "-m", "chainer_profile")
    in_clone = (Path(__file__).parents[2] / "profile.py").is_file()
    if started == "chainer-profile" or not in_clone:
        return ("chainer-profile",)
    return ("python", "profile.py")


#: The command that starts this program, as arguments and as text, and its name in messages.
COMMAND = _command()
TYPED = " ".join(COMMAND)
PROG = " ".join(COMMAND) if "-m" in COMMAND else COMMAND[-1]
#: The command that trains a network: in a clone, a script.
TRAIN_COMMAND = ("python", "train.py") if PROG == "profile.py" else (*COMMAND, "train")
TRAIN_PROG = "train.py" if PROG == "profile.py" else f"{PROG} train"
#: Arguments of ``pip install`` in messages about a missing package, and about CuPy.
REQUIREMENTS = "-r requirements.txt" if PROG == "profile.py" else "chainer-profile"
GPU_REQUIREMENTS = "-r requirements-gpu.txt" if PROG == "profile.py" else '"chainer-profile[gpu]"'
DEFAULT_MODEL = "resnet20"
#: Levels of links below the network that a tree shows by default.
DEFAULT_DEPTH = 2
#: Time that ``advise`` may take unless --budget is given.
ADVISE_SECONDS = 180.0

#: The phases of a row.
FORWARD, BACKWARD, UPDATE, DATA = "forward", "backward", "update", "data"
#: Chainer's iterator that loads data in the process of the training.
SERIAL_ITERATOR = "SerialIterator"
#: The phase of the collectives of ChainerMN's optimizers, between backward and update.
COMMUNICATION = "communication"
#: Values of ``--phase``.
PHASES = ("forward", "forward-backward", "train")
#: Values of ``--loss``.
LOSSES = ("auto", "softmax_cross_entropy", "mean_squared_error", "output")
#: Values of ``--group-by``.
GROUPS = ("function", "link", "block", "shape")
#: Orders of a table of groups: self time, or total time, which includes nested calls.
SELF_TIME, TOTAL_TIME = "self", "total"
#: Values of ``--dtype``.
DTYPES = ("float32", "float16", "mixed16")

#: Separates the names of layers that share a row.
JOIN = " + "

_PROGRAM_NAMES = ("profile.py", "chainer-profile", "chainer_profile")


def _arguments(command: str) -> list[str] | None:
    """Arguments of a command line that starts this program; None for another program."""
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    names = (index for index, word in enumerate(words[:3]) if word in _PROGRAM_NAMES)
    name = next(names, None)
    return None if name is None else words[name + 1 :]


def profile_arguments(command: str) -> list[str] | None:
    """Arguments of a command line that profiles a network; None for other commands."""
    arguments = _arguments(command)
    return None if arguments and not arguments[0].startswith("-") else arguments


#: Options of the network and of its input, with their short forms. All commands that build a
#: network take them, and each has a value.
_NETWORK_OPTIONS = (
    *("-m --model", "--model-args", "--classes", "--weights", "--seed"),
    *("-i --input", "--data-dir", "--input-shape", "-b --batchsize"),
)


def export_command(words: Sequence[str]) -> str:
    """The command that exports the network of a command line with these arguments."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for option in _NETWORK_OPTIONS:
        parser.add_argument(*option.split(), action="append", default=[])
    given, _ = parser.parse_known_args(list(words))
    network = []
    for name, values in vars(given).items():
        option = f"--{name.replace('_', '-')}"
        # The last value of an option counts, but each --input-shape is an argument.
        for value in values if name == "input_shape" else values[-1:]:
            network += [f"{option}={value}"] if value.startswith("-") else [option, value]
    return shlex.join([*COMMAND, "export", "net.onnx", *network])


def export_command_of(command: str, batchsize: int | None = None) -> str:
    """The command that exports the network of a whole command line, perhaps for another batch."""
    words = _arguments(command) or []
    return export_command(words if batchsize is None else [*words, "-b", str(batchsize)])


#: These arguments of ``run`` come immediately before the name or text of a program.
_BEFORE_PROGRAM = ("-", "-c", "-m", "--module")
#: The option of ``run`` that tries changes to make a program faster.
TRY = "--try"


def command_with_try(program: str) -> str:
    """The ``run`` command that tries changes in a program, such as ``train.py --epoch 1``."""
    return f"{TYPED} run {TRY} {program}"


def command_to_start(program: str, needs_compat: bool) -> str:
    """The command that runs a program without profiling it.

    Args:
        program: How the program is called, such as ``train.py --epoch 1``.
        needs_compat: Whether Chainer does not import without this package.
    """
    return f"{TYPED} run --compat-only {program}" if needs_compat else f"python {program}"


def same_command_with_try(command: str) -> str:
    """Add :data:`TRY` to a ``run`` command, and remove its output folder.

    Returns an empty text for another command, or if the command has the option already.
    """
    arguments = _arguments(command) or []
    if arguments[:1] != ["run"] or TRY in arguments:
        return ""
    options, rest = [], iter(arguments[1:])
    for argument in rest:
        if argument in ("-o", "--out"):
            next(rest, "")
        elif argument == "--format":
            options += [argument, next(rest, "")]
        elif argument != "--force" and not argument.startswith("--out="):
            options.append(argument)
            if argument in _BEFORE_PROGRAM or not argument.startswith("-"):
                break  # the rest belongs to the program
    return command_with_try(shlex.join([*options, *rest]))
