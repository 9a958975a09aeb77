"""The commands, options and code that findings print work for the run that they are said of."""

import ast
import inspect
import re
import shlex
from dataclasses import replace
from types import SimpleNamespace

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest

import chainer_profile
from chainer_profile import summarise
from chainer_profile.analyse.summary import Summary
from chainer_profile.basics import parsing
from chainer_profile.cli.main import _split
from chainer_profile.cli.notebook import _parser
from chainer_profile.cli.parsers import parser_of
from chainer_profile.record.recording import Recording, Settings
from tests.goldens import findings

ASKED = {"trials": 100, "warmups": 50, "clean_trials": 10}
#: What may have started a run, and its settings.
STARTED = {
    "profile.py": ("python profile.py --model tiny --trials 100", ASKED),
    "engines": ("python profile.py engines --model tiny --trials 100", ASKED),
    "run": ("python profile.py run a.py --epoch 2", {}),
    "train.py": ("python train.py --profile", {}),
    "profile()": ("", ASKED),
    "a hook, or blocks of code": ("", {"trials": 100}),
    "%layerprofile": ("%layerprofile -n 100 model(x)", ASKED),
    "%%layerprofile": ("%%layerprofile -n 100", ASKED),
}


def recordings():
    for cases in (findings.checks(), findings.steps()):
        for case in cases.values():
            shown = case[0] if isinstance(case, tuple) else case
            yield shown.recording if isinstance(shown, Summary) else shown


@pytest.fixture(scope="module")
def said():
    """What the findings of every run say to do, by what may have started it."""
    every: dict[str, dict[tuple[str, str], Settings]] = {name: {} for name in STARTED}
    for recording in recordings():
        assert isinstance(recording, Recording)
        if not any(re.search(r"--|=|run", f.to_do) for f in summarise(recording).findings):
            continue
        for name, (command, asked) in STARTED.items():
            usual = {"trials": 0, "warmups": 0, "clean_trials": 0}
            settings = replace(recording.settings, command=command, **usual | asked)
            if settings.engine:
                continue
            for finding in summarise(replace(recording, settings=settings)).findings:
                if finding.advice or finding.command:
                    every[name][finding.advice, finding.command] = settings
    return every


@pytest.fixture(autouse=True)
def many_cores(monkeypatch):
    monkeypatch.setattr(parsing, "usable_cores", lambda: 64)


def test_options_are_those_of_what_started_the_run(said, subtests):
    n_options = 0
    for name in STARTED:
        for advice, command in said[name]:
            text = re.sub(r"nvidia-smi --\S+|run: .*", "", advice)
            given = re.findall(r"--[a-z][a-z-]*(?: [\d,]+)?", text)
            given += [command] if command.startswith("--") else []
            values = re.findall(r"\b([a-z_]+)=([\d,]+)", text)
            n_options += len(given) + len(values)
            with subtests.test(name, advice=advice, command=command):
                for option in given:
                    parser = {"profile.py": parser_of("profile")}.get(name)
                    parser = _parser() if "layerprofile" in name else parser
                    assert parser is not None, option
                    parser.parse_args(option.split())
                parameters = inspect.signature(chainer_profile.profile).parameters
                for option, _ in values:
                    assert name == "profile()"
                    assert option in parameters
    assert n_options > 8


def test_commands_are_complete_and_code_runs(said, subtests):
    kinds = set()
    for name in STARTED:
        for advice, command in said[name]:
            said_command = command or (re.search(r"run: (.*)", advice) or ("", ""))[1]
            if said_command and not said_command.startswith("--"):
                with subtests.test(name, advice=advice, command=said_command):
                    kinds.add(works(said_command))
    assert kinds >= {"advise", "engines", "run", "code", "variable"}


def works(command):
    """Parse a command, or run code; gives its kind."""
    if re.fullmatch(r"[A-Z_]+=\d+", command):
        return "variable"
    words = shlex.split(command)
    if words[:2] == ["python", "profile.py"]:
        word, rest = _split(words[2:])
        args = parser_of(word).parse_args(["3" if each == "SHAPE" else each for each in rest])
        if word == "engines":  # of a network of the user's own, which has no usual input
            assert args.model == "FILE.py:NETWORK"
            assert args.input_shape
        return word
    model = L.Linear(3, 2)
    names = {"model": model, "np": np, "chainer": chainer, "chainer_profile": chainer_profile}
    names |= {"embed": L.EmbedID(9, 4), "sequence": np.zeros((5, 2), np.int32)}
    code = ast.parse(command)
    last = code.body[-1]
    scope = SimpleNamespace(**names)
    exec(compile(ast.Module(code.body[:-1], []), "<said>", "exec"), vars(scope))
    if isinstance(last, ast.Expr):
        result = eval(compile(ast.Expression(last.value), "<said>", "eval"), vars(scope))
        if hasattr(result, "undo"):
            result.undo()
    else:
        exec(compile(ast.Module([last], []), "<said>", "exec"), vars(scope))
    assert F  # the functions that the code names
    return "code"
