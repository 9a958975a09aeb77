"""``profile.py completion``: a script that lets a shell complete the options of all commands.

:func:`parsers` is also what the reference of the command line (docs/cli.md) is made from.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from chainer_profile.basics.errors import ProfileError
from chainer_profile.basics.parsing import Parser
from chainer_profile.basics.words import PROG
from chainer_profile.cli.running import printing

if TYPE_CHECKING:
    from chainer_profile.networks.loading import RegisteredModel

SHELLS = ("bash", "zsh", "fish")
#: The command that has no word of its own.
RUN = "run"

#: Commands by their words: the module with the parser, and the parser's function.
COMMANDS = {
    RUN: ("arguments", "run_parser"),
    "report": ("arguments", "report_parser"),
    "summary": ("summary_command", "parser"),
    "machine": ("arguments", "machine_parser"),
    "compare": ("compare_command", "parser"),
    "sweep": ("sweep_command", "parser"),
    "history": ("history_command", "parser"),
    "engines": ("engines_arguments", "parser"),
    "export": ("export_command", "parser"),
    "completion": ("completion", "parser"),
}

#: What the user writes ``python`` for, before the name of the program.
_PYTHONS = ("python", "python3")
_FUNCTION = "_chainer_profile_python"
#: Name of the function that the scripts define for the program itself.
_MAIN = "_shtab_profile_py"

# The program is run as `python profile.py ...`. The shell asks python's completion then, which
# hands over to the program's where its first word is the program, and else to what was there.
_BASH = f"""
{_FUNCTION}_now=$(complete -p python 2>/dev/null | sed -n 's/.* -F \\([^ ]*\\) .*/\\1/p')
[[ ${_FUNCTION}_now == {_FUNCTION} ]] || {_FUNCTION}_before=${_FUNCTION}_now
{_FUNCTION}() {{
  if [[ ${{COMP_WORDS[1]##*/}} == {PROG} ]] && (( COMP_CWORD > 1 )); then
    local words=("${{COMP_WORDS[@]:1}}")
    local COMP_WORDS=("${{words[@]}}") COMP_CWORD=$((COMP_CWORD - 1))
    {_MAIN}
  elif [[ -n ${_FUNCTION}_before ]]; then
    "${_FUNCTION}_before" "$@"
  fi
}}
complete -o bashdefault -o default -F {_FUNCTION} {" ".join(_PYTHONS)}
"""
_ZSH = f"""
{_FUNCTION}() {{
  if [[ ${{words[2]:t}} == {PROG} ]] && (( CURRENT > 2 )); then
    shift words
    (( CURRENT -= 1 ))
    {_MAIN}
  elif (( $+functions[_python] )); then
    _python "$@"
  else
    _files
  fi
}}
compdef {_FUNCTION} {" ".join(_PYTHONS)}
"""
_FISH = "".join(
    f"""
complete -c {python} -n 'string match -qr "[/ ]{PROG} " -- (commandline -cp)' -x \
-a '(complete -C (string replace -r "^\\\\S+\\\\s+\\\\S*{PROG}" {PROG} -- (commandline -cp)))'"""
    for python in _PYTHONS
)
_PREAMBLES = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def parser() -> argparse.ArgumentParser:
    """Options of the command."""
    parser = Parser(
        prog=f"{PROG} completion",
        description="Prints a script that lets a shell complete the commands, options and networks "
        f"of {PROG}. For bash put 'eval \"$(python {PROG} completion bash)\"' into ~/.bashrc, for "
        f"zsh the same with zsh into ~/.zshrc, behind compinit; for fish write the output into "
        f"~/.config/fish/completions/{PROG}.fish.",
    )
    parser.add_argument("shell", choices=SHELLS, help="the shell")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser


def run(argv: list[str], registry: Mapping[str, RegisteredModel]) -> int:
    """Run the command; returns the exit code.

    Args:
        argv: The arguments after ``completion``.
        registry: The networks that ``--model`` knows by name.

    Raises:
        ProfileError: The script cannot be made or not be written.
        UsageError: The shell is none of :data:`SHELLS`.
    """
    args = parser().parse_args(argv)
    text = script(args.shell, registry)
    with printing():
        print(text, flush=True)
    return 0


def parsers() -> dict[str, argparse.ArgumentParser]:
    """The parsers of all commands, by their words; a run, which has none, is ``run``."""
    return {
        name: getattr(import_module(f"chainer_profile.{module}"), function)()
        for name, (module, function) in COMMANDS.items()
    }


def script(shell: str, names: Iterable[str]) -> str:
    """The script for one of :data:`SHELLS`.

    Args:
        shell: Its name.
        names: The networks that ``--model`` knows.

    Raises:
        ProfileError: The package that makes it is not installed.
    """
    try:
        import shtab
    except ImportError:
        raise ProfileError(
            "completion needs the package shtab: python -m pip install shtab"
        ) from None

    return str(shtab.complete(_whole(tuple(names)), shell, preamble=_PREAMBLES[shell])).rstrip()


def _whole(names: tuple[str, ...]) -> argparse.ArgumentParser:
    """One parser of the run's options, with all other commands below it."""
    found = parsers()
    whole = found.pop(RUN)
    commands = whole.add_subparsers(metavar="COMMAND")
    for name, of_command in found.items():
        commands.add_parser(
            name,
            parents=[of_command],
            add_help=False,
            description=of_command.description,
            help=(of_command.description or "").partition(".")[0],
        )
        for action in of_command._actions:
            _mark(action, names)
    for action in whole._actions:
        _mark(action, names)
    return whole


def _mark(action: argparse.Action, names: tuple[str, ...]) -> None:
    """Say what completes an option's value, in the words of shtab: a name, a folder, a file."""
    metavar = str(action.metavar or "")
    kind: Any = None
    if "--model" in action.option_strings or "--models" in action.option_strings:
        kind = _words_or_files("model", names)
    elif "--input" in action.option_strings:
        kind = _words_or_files("input", ("random", "cifar10"))
    elif metavar == "DIR":
        kind = "directory"
    elif metavar.startswith("FILE"):
        kind = "file"
    if kind is not None:
        action.complete = kind  # type: ignore[attr-defined]


def _words_or_files(what: str, words: tuple[str, ...]) -> dict[str, Any]:
    """What completes one of these words, or the name of a file."""
    function, listed = f"_chainer_profile_{what}", " ".join(map(shlex.quote, words))
    return {
        "bash": function,
        "zsh": function,
        "fish": f"{listed} (__fish_complete_path (commandline -ct))",
        "preamble": {
            "bash": f'{function}() {{\n  compgen -W "{listed}" -- "$1"\n  compgen -f -- "$1"\n}}',
            "zsh": f"{function}() {{\n  compadd -- {listed}\n  _files\n}}",
        },
    }
