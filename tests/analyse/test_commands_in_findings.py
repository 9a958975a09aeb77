"""Commands, options and code in findings work for the run of the finding."""

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
from chainer_profile.analyse.findings import command_that_tries
from chainer_profile.analyse.summary import Summary
from chainer_profile.basics import parsing
from chainer_profile.cli.main import _split
from chainer_profile.cli.notebook import _parser
from chainer_profile.cli.parsers import parser_of
from chainer_profile.record.recording import Recording, Settings
from tests.goldens import findings

NUMBERS = {"trials": 100, "warmups": 50, "clean_trials": 10}
#: Command and settings of a run, by what started it.
STARTS = {
    "profile.py": ("python profile.py --model tiny --trials 100", NUMBERS),
    "engines": ("python profile.py engines --model tiny --trials 100", NUMBERS),
    "run": ("python profile.py run a.py --epoch 2", {}),
    "train.py": ("python train.py --profile", {}),
    "profile()": ("", NUMBERS),
    "a hook, or blocks of code": ("", {"trials": 100}),
    "%layerprofile": ("%layerprofile -n 100 model(x)", NUMBERS),
    "%%layerprofile": ("%%layerprofile -n 100", NUMBERS),
}


def recordings():
    for cases in (findings.checks(), findings.steps()):
        for case in cases.values():
            run = case[0] if isinstance(case, tuple) else case
            yield run.recording if isinstance(run, Summary) else run


@pytest.fixture(scope="module")
def advice_by_start():
    """Advice and commands of all findings with their settings, by what started the run."""
    advice: dict[str, dict[tuple[str, str], Settings]] = {name: {} for name in STARTS}
    for recording in recordings():
        assert isinstance(recording, Recording)
        if not any(re.search(r"--|=|run", f.to_do) for f in summarise(recording).findings):
            continue
        for name, (command, numbers) in STARTS.items():
            no_trials = {"trials": 0, "warmups": 0, "clean_trials": 0}
            settings = replace(recording.settings, command=command, **no_trials | numbers)
            if settings.engine:
                continue
            for finding in summarise(replace(recording, settings=settings)).findings:
                if finding.advice or finding.command:
                    advice[name][finding.advice, finding.command] = settings
    return advice


@pytest.fixture(autouse=True)
def many_cores(monkeypatch):
    monkeypatch.setattr(parsing, "usable_cores", lambda: 64)


def test_options_exist_in_the_command_that_started_the_run(advice_by_start, subtests):
    n_options = 0
    for name in STARTS:
        for advice, command in advice_by_start[name]:
            text = re.sub(r"nvidia-smi --\S+|run: .*", "", advice)
            options = re.findall(r"--[a-z][a-z-]*(?: [\d,]+)?", text)
            options += [command] if command.startswith("--") else []
            values = re.findall(r"\b([a-z_]+)=([\d,]+)", text)
            n_options += len(options) + len(values)
            with subtests.test(name, advice=advice, command=command):
                for option in options:
                    parser = {"profile.py": parser_of("profile")}.get(name)
                    parser = _parser() if "layerprofile" in name else parser
                    assert parser is not None, option
                    parser.parse_args(option.split())
                parameters = inspect.signature(chainer_profile.profile).parameters
                for option, _ in values:
                    assert name == "profile()"
                    assert option in parameters
    assert n_options > 8


def test_commands_are_complete_and_code_runs(advice_by_start, subtests):
    kinds = set()
    for name in STARTS:
        for advice, command in advice_by_start[name]:
            full_command = command or (re.search(r"run: (.*)", advice) or ("", ""))[1]
            if full_command and not full_command.startswith("--"):
                with subtests.test(name, advice=advice, command=full_command):
                    kinds.add(check_command(full_command))
    assert kinds >= {"advise", "engines", "run", "code", "variable"}


def check_command(command):
    """Check that a command can be parsed, or that code runs; return its kind."""
    if re.fullmatch(r"[A-Z_]+=\d+", command):
        return "variable"
    arguments = shlex.split(command)
    if arguments[:2] == ["python", "profile.py"]:
        name, rest = _split(arguments[2:])
        args = parser_of(name).parse_args(["3" if each == "SHAPE" else each for each in rest])
        if name == "engines":  # a user's network needs its input shape
            assert args.model == "FILE.py:NETWORK"
            assert args.input_shape
        return name
    model = L.Linear(3, 2)
    names = {"model": model, "np": np, "chainer": chainer, "chainer_profile": chainer_profile}
    names |= {"embed": L.EmbedID(9, 4), "sequence": np.zeros((5, 2), np.int32)}
    code = ast.parse(command)
    last = code.body[-1]
    scope = SimpleNamespace(**names)
    exec(compile(ast.Module(code.body[:-1], []), "<finding>", "exec"), vars(scope))
    if isinstance(last, ast.Expr):
        result = eval(compile(ast.Expression(last.value), "<finding>", "eval"), vars(scope))
        if hasattr(result, "undo"):
            result.undo()
    else:
        exec(compile(ast.Module([last], []), "<finding>", "exec"), vars(scope))
    assert F  # names in the code may use F
    return "code"


@pytest.mark.parametrize(("n_trials", "tries"), [(4, False), (19, False), (20, True), (100, True)])
def test_program_of_few_iterations_is_not_tried(n_trials, tries):
    """``run --try`` of a GAN with four iterations used to be advised, and measured no change."""
    command = "python -m chainer_profile run train.py -b 2"
    settings = SimpleNamespace(command=command)
    tried = command_that_tries(SimpleNamespace(settings=settings, n_trials=n_trials))
    assert tried.endswith(" run --try train.py -b 2") if tries else not tried
