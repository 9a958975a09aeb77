"""Commands and options in messages exist and do what the message says.

The messages are all string literals of the package except docstrings.
"""

import ast
import re

import pytest

from chainer_profile.basics.errors import UsageError
from chainer_profile.cli import COMMANDS
from chainer_profile.cli.parsers import parser_of, parsers
from tests import ROOT

PACKAGE = ROOT / "chainer_profile"
#: Options of other programs, by the text that names them.
FOREIGN = {
    "--lock-gpu-clocks": "nvidia-smi's",
    "--cap-add": "Docker's",
    **dict.fromkeys(
        ("--nonblocking", "--idle", "--full-filenames", "--collapsed"), "the samplers'"
    ),
    **dict.fromkeys(("--always", "--dirty", "--abbrev", "--exclude", "--show-toplevel"), "git's"),
    **dict.fromkeys(("--depth", "--row", "--rows"), "variables of a page's style"),
    **dict.fromkeys(("--input-size", "--index"), "options of older versions"),
    **{"--nthreads": "Dask's", "--output": "the magics'"},
}
#: A placeholder for a value in a text.
VALUE = "\N{WHITE SQUARE}"


def texts(path):
    """Return the string literals of a module except docstrings, with :data:`VALUE` for each value.

    Commands have the names that they have in a clone.
    """
    tree = ast.parse(path.read_text())
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    skipped = set()
    for node in ast.walk(tree):
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
            skipped.add(id(node.body[0].value))
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in node.values}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(map(text_of_part, node.values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def text_of_part(part):
    if isinstance(part, ast.Constant):
        return part.value
    name = ast.unparse(part.value)
    return {"TYPED": "python profile.py", "TRY": "--try"}.get(name, VALUE)


def every_text():
    for path in sorted(PACKAGE.rglob("*.py")):
        for line, text in texts(path):
            yield str(path.relative_to(PACKAGE)), line, text


def names_of(word):
    return {name for action in parser_of(word)._actions for name in action.option_strings}


def with_model():
    return [word for word in COMMANDS if "--model" in names_of(word)]


def mentioned(text):
    """Return the long options in a text."""
    return re.findall(r"(?<![\w-])(--[a-z][a-z-]*)", text)


def test_options_in_messages_exist():
    ours = {name for word in COMMANDS for name in names_of(word)}
    found = [
        (module, line, option)
        for module, line, text in every_text()
        for option in mentioned(text)
        if option not in FOREIGN
    ]
    assert len(found) > 150
    assert [each for each in found if each[2] not in ours] == []


#: Options that other parts of a command do not use.
WITHOUT = {
    "sweep": {"--input", "--data-dir"},  # its inputs are random
    "train": {"--input", "--input-shape"},  # its inputs are images
}


def test_commands_with_a_model_accept_every_option_for_building_it():
    words = with_model()
    assert len(words) == 7
    asked = {
        option
        for module, _, text in every_text()
        if module.startswith("networks/")
        for option in mentioned(text.replace("python profile.py --list-models", ""))
    }
    assert {"--model-args", "--input-shape"} <= asked
    for word in words:
        assert asked - names_of(word) <= WITHOUT.get(word, set()), word


def commands():
    """Yield the commands in texts: the words after the program's name."""
    for module, line, text in every_text():
        for after in text.split("python profile.py ")[1:]:
            words = []
            for token in after.replace(": ", " ; ").split():
                bare = token.strip(";,.)")
                is_word = not words and bare in COMMANDS
                is_value = bare.isupper() or VALUE in bare or bare in ("A", "[ARGS") or "." in bare
                if not bare or not (is_word or bare.startswith("-") or is_value):
                    break
                words.append(bare)
                if bare != token:
                    break
            yield module, line, words


def test_commands_in_messages_are_accepted_by_their_parsers(subtests, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = [each for each in commands() if each[2]]
    assert len(found) > 10
    for module, line, words in found:
        with subtests.test(f"{module}:{line}: {' '.join(words)}"):
            word, rest = (words[0], words[1:]) if words[0] in COMMANDS else ("profile", words)
            rest = [each for each in rest if each not in ("[ARGS",)]
            rest = [re.sub(f"{VALUE}+", "3", each) for each in rest]
            if rest != ["--help"]:
                parsers()[word].parse_args(rest)


def test_wrong_command_in_a_message_is_found(tmp_path, monkeypatch):
    module = tmp_path / "wrong.py"
    module.write_text('def f(x):\n    """--none"""\n    return f"{TYPED} export {x} --none"\n')
    monkeypatch.setattr("tests.cli.test_messages.PACKAGE", tmp_path)
    assert [text for *_, text in every_text()] == [f"python profile.py export {VALUE} --none"]
    ((_, _, words),) = commands()
    with pytest.raises(UsageError, match="unrecognized arguments: --none"):
        parser_of("export").parse_args(["x.onnx", *words[2:]])
