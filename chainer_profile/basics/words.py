"""Words that several packages share: the program's name, defaults, and values of options."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

#: The package's version; ``pyproject.toml`` reads it here.
VERSION = "0.2.0"


def _command() -> tuple[str, ...]:
    """The words that start the program: as it was started, or as it can be."""
    started = Path(sys.argv[0]).stem if sys.argv else ""
    words = sys.orig_argv
    if "-m" in words and words[words.index("-m") + 1 :][:1] == ["chainer_profile"]:
        return ("python", "-m", "chainer_profile")
    in_clone = (Path(__file__).parents[2] / "profile.py").is_file()
    if started == "chainer-profile" or not in_clone:
        return ("chainer-profile",)
    return ("python", "profile.py")


#: The words that start the program, in recordings; the same as text; its name, in messages.
COMMAND = _command()
TYPED = " ".join(COMMAND)
PROG = " ".join(COMMAND) if "-m" in COMMAND else COMMAND[-1]
#: The same for training a network, for which a clone has a program of its own.
TRAIN_COMMAND = ("python", "train.py") if PROG == "profile.py" else (*COMMAND, "train")
TRAIN_PROG = "train.py" if PROG == "profile.py" else f"{PROG} train"
#: The argument of ``pip install`` where a package is missing.
REQUIREMENTS = "-r requirements.txt" if PROG == "profile.py" else "chainer-profile"
DEFAULT_MODEL = "resnet20"
#: Levels of the tree of links below the network.
DEFAULT_DEPTH = 2

#: The phases of a row.
FORWARD, BACKWARD, UPDATE, DATA = "forward", "backward", "update", "data"
#: Among ranks: the collectives of ChainerMN's optimizers, between backward and update.
COMMUNICATION = "communication"
#: Values of ``--phase``.
PHASES = ("forward", "forward-backward", "train")
#: Values of ``--loss``.
LOSSES = ("auto", "softmax_cross_entropy", "mean_squared_error", "output")
#: Values of ``--group-by``.
GROUPS = ("function", "link", "block", "shape")
#: Orders of a table of groups: by self time, or by the time with all calls within.
SELF_TIME, TOTAL_TIME = "self", "total"
#: Values of ``--dtype``.
DTYPES = ("float32", "float16", "mixed16")

#: Between the names of layers that share a row.
JOIN = " + "

_DOORS = ("profile.py", "chainer-profile", "chainer_profile")


def _words_of(command: str) -> list[str] | None:
    """The words behind the name of one of our programs in a command line; None for others."""
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    at = next((at for at, word in enumerate(words[:3]) if word in _DOORS), None)
    return None if at is None else words[at + 1 :]


def is_run(command: str) -> bool:
    """Whether a recording's command line is that of a profile run, by any of our programs."""
    words = _words_of(command)
    return words is not None and words[:1] not in (["train"], ["run"])


def run_words(command: str) -> list[str] | None:
    """The words after the program's name in the command line of a run; None for other commands."""
    words = _words_of(command)
    return None if words and not words[0].startswith("-") else words


#: Behind these words of ``run`` a program is named.
_PROGRAM = ("-", "-c", "-m", "--module")
#: The option of ``run`` that tries what makes a program faster.
TRY = "--try"


def command_with_try(program: str) -> str:
    """The command that tries what makes a program faster; ``train.py --epoch 1`` is one."""
    return f"{TYPED} run {TRY} {program}"


def same_command_with_try(command: str) -> str:
    """The command of a program's run with :data:`TRY`; empty for other commands, or one with it.

    The folder of the results is another one.
    """
    words = _words_of(command) or []
    if words[:1] != ["run"] or TRY in words:
        return ""
    kept, rest = [], iter(words[1:])
    for word in rest:
        if word in ("-o", "--out"):
            next(rest, "")
        elif word == "--format":
            kept += [word, next(rest, "")]
        elif word != "--force" and not word.startswith("--out="):
            kept.append(word)
            if word in _PROGRAM or not word.startswith("-"):  # what follows is the program's
                break
    return command_with_try(shlex.join([*kept, *rest]))
