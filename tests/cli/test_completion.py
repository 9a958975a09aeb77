"""profile.py completion: the scripts complete, in the shells that are there."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from chainer_profile.basics.parsing import Parser
from chainer_profile.basics.words import DTYPES, GROUPS, PHASES
from chainer_profile.cli import completion
from chainer_profile.cli import main as cli
from chainer_profile.cli.completion import COMMANDS, RUN, SHELLS, parsers, script
from tests.command import Entry, signals  # noqa: F401

NETWORKS = ("resnet20", "resnet20-he", "vgg")

#: A line as the user has typed it, and what the shell offers.
CASES = [
    ("profile.py --mod", {"--model"}),
    ("profile.py ", set(COMMANDS) - {RUN}),
    ("profile.py --model resnet2", {"resnet20", "resnet20-he"}),
    ("profile.py --quiet --phase ", set(PHASES)),
    ("profile.py compare --sort ", {"change", "time", "index", "path"}),
    ("profile.py report run --group-by ", set(GROUPS)),
    ("profile.py sweep --models vg", {"vgg"}),
    ("profile.py history --rebu", {"--rebuild"}),
    ("profile.py completion ", set(SHELLS)),
    ("python profile.py --dtype ", set(DTYPES)),
    ("python3 ./profile.py machine --refr", {"--refresh"}),
    ("python profile.py summary --model vg", {"vgg"}),
]

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


def needs(shell: str) -> str:
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"there is no {shell}")
    return found


def run_shell(words: list[str], text: str, folder: Path) -> str:
    done = subprocess.run(
        words, input=text, cwd=folder, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr == ""
    return done.stdout


def test_bash_completes(tmp_path: Path) -> None:
    bash = needs("bash")
    calls = "".join(f"offer '{line}'\n" for line, _ in CASES)
    out = run_shell([bash, "--norc"], script("bash", NETWORKS) + _BASH + calls, tmp_path)
    offered = [set(line.split()) for line in out.splitlines()]
    assert offered == [expected for _, expected in CASES]


def test_bash_completes_files_beside_names(tmp_path: Path) -> None:
    bash = needs("bash")
    for name in ("vgg.py", "random.png", "run"):
        (tmp_path / name).touch()
    (tmp_path / "reports").mkdir()
    lines = {
        "profile.py --model v": {"vgg", "vgg.py"},
        "profile.py --input r": {"random", "random.png", "run", "reports"},
        "profile.py report r": {"reports"},
        "profile.py --weights v": {"vgg.py"},
        "profile.py --out r": {"reports"},
    }
    calls = "".join(f"offer '{line}'\n" for line in lines)
    out = run_shell([bash, "--norc"], script("bash", NETWORKS) + _BASH + calls, tmp_path)
    assert [set(line.split()) for line in out.splitlines()] == list(lines.values())


def test_bash_leaves_other_programs_of_python_alone(tmp_path: Path) -> None:
    bash = needs("bash")
    before = "before() { COMPREPLY=(of-before); }\ncomplete -F before python\n"
    text = before + script("bash", NETWORKS) * 2 + _BASH  # read twice, as a shell in a shell does
    out = run_shell([bash, "--norc"], text + "offer 'python other.py --mo'\n", tmp_path)
    assert out.split() == ["of-before"]


def test_fish_completes(tmp_path: Path) -> None:
    fish = needs("fish")
    for line, expected in CASES:
        text = script("fish", NETWORKS) + f"\ncomplete -C '{line}'\n"
        out = run_shell([fish, "--no-config"], text, tmp_path)
        assert {offer.partition("\t")[0] for offer in out.splitlines()} == expected, line


def test_zsh_reads_its_script(tmp_path: Path) -> None:
    zsh = needs("zsh")
    run_shell([zsh, "-f", "-n"], script("zsh", NETWORKS), tmp_path)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_has_all_commands_options_and_choices(shell: str) -> None:
    text = script(shell, NETWORKS)
    for name, parser in parsers().items():
        assert name == RUN or name in text
        for action in parser._actions:
            for option in action.option_strings:
                shown = option.lstrip("-") if shell == "fish" else option
                assert re.search(rf"(?<!\w){re.escape(shown)}(?!\w)", text), option
            for choice in action.choices or ():
                assert str(choice) in text
    for network in NETWORKS:
        assert network in text


def test_a_command_has_the_parser_that_it_runs_with() -> None:
    found = parsers()
    assert list(found) == list(COMMANDS)
    for name, parser in found.items():
        assert isinstance(parser, Parser)
        assert parser.prog == ("profile.py" if name == RUN else f"profile.py {name}")


def test_the_script_goes_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    registry = {name: Entry() for name in NETWORKS}
    assert completion.run(["bash"], registry) == 0
    assert capsys.readouterr().out == script("bash", NETWORKS) + "\n"


def test_an_unknown_shell_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def command(_: object) -> int:
        return completion.run(["tcsh"], {})

    assert cli.run_command("profile.py", ["tcsh"], command) == 2
    err = capsys.readouterr().err
    assert "'tcsh'" in err
    assert len(err.splitlines()) == 1


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "shtab", None)
    with pytest.raises(completion.ProfileError, match="pip install shtab"):
        script("bash", NETWORKS)


def test_parsers_stay_as_they_are() -> None:
    """What completes a value is no part of the parser that reads it."""
    script("bash", NETWORKS)
    for parser in parsers().values():
        assert isinstance(parser, argparse.ArgumentParser)
        assert not any(hasattr(action, "complete") for action in parser._actions)
