"""Options of each command, and the meaning of the options in a sweep's cases."""

import argparse

import pytest

from chainer_profile.cli import COMMANDS, INSTEAD
from chainer_profile.cli.arguments.sweep import add_case_options
from chainer_profile.cli.notebook import _parser
from chainer_profile.cli.parsers import parser_of
from chainer_profile.cli.sweep import _DEFAULTS, OPTIONS

#: Arguments of each command in the order of its help, with every name of an option.
ARGUMENTS = {
    "profile": """
        -h/--help --help-all --version -m/--model --model-args --classes --weights --list-models
        --dtype --fast --keep-memory --phase --loss --train-mode -i/--input --data-dir --input-shape
        -b/--batchsize -n/--trials --clean-trials -w/--warmups --max-seconds --until-ci --threads
        -g/--gpu -d/--device --why --counters --skip --machine --layer-frames --seed -o/--out
        --force --tree --columns --full --group-by --hotspots --sort --limit -q/--quiet --debug
        --format --json --title --author --course
    """,
    "run": """
        -h/--help -m/--module -c --try --memory --compat-only --skip --format -q/--quiet program
        -o/--out --force
    """,
    "report": """
        -h/--help run -o/--out --tree --columns --full --group-by --hotspots --sort --limit
        -q/--quiet --debug --format --json --title --author --course
    """,
    "compare": """
        -h/--help runs --min-effect --fail-above --gate --sort --limit --full -o/--out -q/--quiet
        --debug
    """,
    "advise": """
        -h/--help run -m/--model --model-args --classes --weights --dtype --phase --loss
        --train-mode -i/--input --data-dir --input-shape -b/--batchsize --threads --seed --budget
        -o/--out --force --full -q/--quiet --debug
    """,
    "engines": """
        -h/--help -m/--model --model-args --classes --weights -i/--input --data-dir --input-shape
        -b/--batchsize --engines --list-engines --tolerance --load-engine -n/--trials -w/--warmups
        --max-seconds --threads -g/--gpu -d/--device --seed -o/--out --force --full -q/--quiet
        --debug
    """,
    "sweep": """
        -h/--help file --model --input-shape --batchsize --device --phase --model-args --classes
        --weights --trials --warmups --threads --seed --dtype --max-seconds --skip --executor
        --dry-run -o/--out --force -q/--quiet --debug
    """,
    "summary": """
        -h/--help -m/--model --model-args --classes --weights --phase --seed -i/--input --data-dir
        --input-shape -b/--batchsize --tree --columns --limit --format --debug
    """,
    "export": """
        -h/--help file -m/--model --model-args --classes --weights --seed -i/--input --data-dir
        --input-shape -b/--batchsize --force -q/--quiet --debug
    """,
    "train": """
        -h/--help --version -m/--model --model-args -d/--dataset --data-dir --no-augmentation
        -e/--epoch -b/--batchsize -l/--learning-rate --seed --threads -g/--gpu --device --fast
        --profile -o/--out --force -r/--resume --snapshot -q/--quiet --debug
    """,
    "%layerprofile": """
        -n/--trials -w/--warmups --max-seconds --until-ci --phase --memory --group-by --tree
        --hotspots -o/--output -q/--quiet -h/--help code
    """,
}


def arguments(parser):
    return ["/".join(action.option_strings) or action.dest for action in parser._actions]


def test_commands_have_these_arguments_in_this_order():
    assert ARGUMENTS.keys() == {*COMMANDS, "%layerprofile"}
    for name, expected in ARGUMENTS.items():
        parser = _parser() if name == "%layerprofile" else parser_of(name)
        assert arguments(parser) == expected.split(), name


def test_options_that_replace_a_run_accept_its_options():
    words = [["profile", "--list-models"], ["profile", "--machine"], ["engines", "--list-engines"]]
    assert {option[2:].replace("-", "_") for _, option in words} == INSTEAD.keys()
    for word, *option in (*words, ["advise", "run"]):
        args = parser_of(word).parse_args([*option, "--force"])
        assert args.force
        assert args.out is None


@pytest.fixture
def cases():
    parser = argparse.ArgumentParser(add_help=False)
    add_case_options(parser)
    return parser


def test_cases_have_exactly_the_options_of_a_sweep(cases):
    assert sorted(arguments(cases)) == sorted(f"--{name}" for name in OPTIONS)
    assert set(arguments(cases)) < set(arguments(parser_of("sweep")))


def test_help_of_sweep_names_the_defaults_of_its_cases():
    options = parser_of("sweep")._option_string_actions
    for name, default in _DEFAULTS.items():
        if name != "model":
            assert options[f"--{name}"].help.endswith(f"(default: {default})")


def test_cases_parse_values_like_a_profile(cases):
    profile = parser_of("profile")._option_string_actions
    values = {"input-shape": "3x8x8", "device": "@cupy:1", "skip": "machine"}
    for name in {*OPTIONS} - {"phase", "dtype"}:
        words = [f"--{name}", values.get(name, "1")]
        read = vars(cases.parse_args(words))[profile[words[0]].dest]
        assert read == vars(parser_of("profile").parse_args(words))[profile[words[0]].dest], name
    for name in ("--phase", "--dtype"):
        assert cases._option_string_actions[name].choices == profile[name].choices
