"""chainer-profile completion: the scripts complete, in the shells that are there."""

import re
import shutil
import subprocess
import sys

import pytest

from chainer_profile.basics.words import PHASES
from chainer_profile.cli import COMMANDS, PROFILE, completion
from chainer_profile.cli import main as cli
from chainer_profile.cli.completion import script
from chainer_profile.cli.parsers import parsers
from tests import HANGS_S
from tests.command import Entry

SHELLS = ("bash", "zsh", "fish")
NETWORKS = ("resnet20", "resnet20-he", "vgg")

#: A line as the user has typed it, and what the shell offers.
CASES = {
    "chainer-profile --mod": {"--model", "--model-args"},
    "chainer-profile ": set(COMMANDS) - {PROFILE},
    "chainer-profile --model resnet2": {"resnet20", "resnet20-he"},
    "chainer-profile --quiet --phase ": set(PHASES),
    "chainer-profile sweep --models vg": {"vgg"},
    "chainer-profile completion ": set(SHELLS),
    "chainer-profile machine --refr": {"--refresh"},
    "chainer-profile summary --model resnet20-": {"resnet20-he"},
}
#: Files are offered beside names.
WITH_FILES = {
    "chainer-profile --model v": {"vgg", "vehicle.py"},
    "chainer-profile --input r": {"random", "random.png", "run", "reports"},
    "chainer-profile report r": {"reports"},
}

_BASH = """
offer() {
  read -ra COMP_WORDS <<< "$1"
  [[ $1 == *' ' ]] && COMP_WORDS+=('')
  COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
  COMPREPLY=()
  local function=$(complete -p "${COMP_WORDS[0]}" | sed 's/.* -F \\([^ ]*\\) .*/\\1/')
  "$function"
  echo "${COMPREPLY[@]}"
}
"""


def run_shell(shell, options, text, folder):
    if not shutil.which(shell):
        pytest.skip(f"there is no {shell}")
    done = subprocess.run(
        [shell, *options],
        input=text,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=HANGS_S,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout


def test_bash_completes(tmp_path):
    for name in ("vehicle.py", "random.png", "run"):
        (tmp_path / name).touch()
    (tmp_path / "reports").mkdir()
    calls = "".join(f"offer '{line}'\n" for line in [*CASES, *WITH_FILES])
    out = run_shell("bash", ["--norc"], script("bash", NETWORKS) + _BASH + calls, tmp_path)
    offered = [set(line.split()) for line in out.splitlines()]
    assert offered == [*CASES.values(), *WITH_FILES.values()]


def test_fish_completes(tmp_path):
    for line, expected in CASES.items():
        text = script("fish", NETWORKS) + f"\ncomplete -C '{line}'\n"
        out = run_shell("fish", ["--no-config"], text, tmp_path)
        assert {offer.partition("\t")[0] for offer in out.splitlines()} == expected, line


def test_zsh_reads_its_script(tmp_path):
    run_shell("zsh", ["-f", "-n"], script("zsh", NETWORKS), tmp_path)


def test_a_script_has_all_commands_options_and_choices():
    for name, parser in parsers().items():
        options = [word for action in parser._actions for word in action.option_strings]
        choices = [str(one) for action in parser._actions for one in action.choices or ()]
        for shell in SHELLS:
            text = script(shell, NETWORKS)
            for option in options:
                shown = option.lstrip("-") if shell == "fish" else option
                assert re.search(rf"(?<!\w){re.escape(shown)}(?!\w)", text), option
            for word in (*choices, *NETWORKS, *([] if name == PROFILE else [name])):
                assert word in text


def test_the_script_goes_to_standard_output_where_the_package_is(capsys, monkeypatch):
    registry = {name: Entry() for name in NETWORKS}
    assert cli.main(["completion", "bash"], registry) == 0
    assert capsys.readouterr().out == script("bash", NETWORKS) + "\n"
    monkeypatch.setitem(sys.modules, "shtab", None)
    with pytest.raises(completion.ProfileError, match="pip install shtab"):
        script("bash", NETWORKS)
