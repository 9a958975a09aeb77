"""The cases of a sweep, from lists and from TOML."""

import os
from typing import Any

import pytest

from chainer_profile.basics.errors import UsageError
from chainer_profile.cli.parsers import parser_of
from chainer_profile.cli.sweep import cases_of, read_toml
from chainer_profile.runs.sweep import case_names
from tests.refusing import refusal
from tests.sweeping import make_case

R3 = {
    "model": "resnet18,resnet34, resnet50",
    "input-shape": "1024x2048,500x334",
    "device": "cpu,gpu:0",
    "trials": "300",
    "max-seconds": "60",
    "skip": "machine",
}


def find(model, classes, arguments):
    return model.replace(":", "-"), None if ":" in model else (3, 224, 224)


def test_each_combination_is_a_case_that_profile_accepts():
    cases = cases_of(R3, find)
    assert len(cases) == 12
    assert [case.settings.device for case in cases[:3]] == ["cpu", "gpu:0", "cpu"]
    assert " ".join(cases[1].words) == (
        "--model resnet18 --input-shape 1024x2048 --batchsize 1 --device gpu:0 --phase forward "
        "--trials 300 --warmups 50 --threads 1 --seed 0 --dtype float32 --max-seconds 60 "
        "--skip machine"
    )
    # profile.py accepts the words of a case, and has the same defaults.
    args = parser_of("profile").parse_args([*cases[1].words, "-q", "--out", "x"])
    assert (args.model, args.threads, args.gpu, args.skip) == ("resnet18", 1, 0, ("machine",))
    (case,) = cases_of({}, find)
    usual = parser_of("profile").parse_args([])
    for name in ("model", "trials", "warmups", "seed", "dtype", "phase"):
        assert getattr(case.settings, name) == getattr(usual, name)


def test_cases_are_equal_if_they_measure_the_same():
    case = make_case()
    (sized,) = cases_of({"model": "a", "input-shape": "5x6"}, find)
    (shaped,) = cases_of({"model": "a", "input-shape": "3x5x6", "skip": "machine"}, find)
    assert sized == shaped
    changes: dict[str, Any] = {
        **{"batchsize": 2, "device": "gpu:0", "phase": "train", "trials": 5, "warmups": 2},
        **{"threads": 1, "seed": 1, "dtype": "float16", "max_seconds": 1.0, "input_shape": (3,)},
    }
    for name, value in changes.items():
        other = make_case(**{name: value})
        assert other.key != case.key
        assert not other.matches(case.settings)


def test_names_of_cases_are_unique_and_stable():
    cases = {
        make_case(): "resnet18-8x8-cpu-b1",
        make_case(phase="train", device="gpu:1", batchsize=4): "resnet18-8x8-gpu1-b4-train",
        make_case(dtype="mixed16", threads=2, seed=7): "resnet18-8x8-cpu-b1-mixed16-t2-seed7",
        make_case(trials=9): "resnet18-8x8-cpu-b1-2",
        make_case(input_shape=(1, 8, 8)): "resnet18-1x8x8-cpu-b1",
    }
    names = case_names(list(cases), {})
    assert names == cases
    again = case_names([make_case(trials=9), make_case(trials=10), make_case()], names)
    assert again[make_case(trials=9)] == "resnet18-8x8-cpu-b1-2"
    assert len(set(again.values())) == 3


def test_names_of_cases_have_the_shapes_of_all_arguments():
    shapes = ("4:int32:9", "4:int32:9,a=2..5x3")
    first, second = cases_of({"model": "nets.py:A", "input-shape": shapes}, find)
    assert first.name == "nets.py-A-4-int32-9+4-int32-9-cpu-b1"
    assert second.name == "nets.py-A-4-int32-9+a=2..5x3-cpu-b1"


def read(path, text):
    path.write_text(text)
    name, groups = read_toml(path)
    return name, [case for where, group in groups for case in cases_of(group, find, where)]


def test_cases_are_read_from_toml(tmp_path):
    name, cases = read(
        tmp_path / "r3.toml",
        """
        name = "references"
        [common]
        trials = 300
        skip = "machine,memory"
        [[cases]]
        model = ["resnet18", "resnet34"]
        skip = "memory"
        [[cases]]
        model = "a:b"
        input_shape = "7"
        batchsize = [1, 2]
        trials = 9
        """,
    )
    assert name == "references"
    assert [case.settings.trials for case in cases] == [300] * 2 + [9] * 2
    assert ["machine,memory" in case.words for case in cases] == [False] * 2 + [True] * 2
    assert cases[-1].settings.input_shape == (2, 7)
    name, cases = read(tmp_path / "few.toml", '[common]\nmodel = "resnet18,resnet34"')
    assert (name, [case.model for case in cases]) == ("few", ["resnet18", "resnet34"])


#: Files that are refused, and the messages.
BAD = {
    "[common]\n\ntrials = \n": "not valid TOML: Invalid value (at line 3, column 10)",
    "[common]\ntrails = 3": "[common]: unknown key 'trails' (did you mean trials?)",
    "trials = 3": "unknown field `trials`; a sweep takes a name of letters, digits and ._+-, and",
    "cases = []": "Expected `array` of length >= 1 - at `$.cases`",
    "[common]\nmodel = []": "[common]: model: the list is empty; give at least one entry",
    "[[cases]]\ntrials = [1, 2]": "trials: must be a whole number, 1 or more, not '[1, 2]'",
    "[common]\nskip = 'gpu'": "'gpu' cannot be skipped: choose memory, counters, machine",
    "[[cases]]\nmax-seconds = 1\nmax_seconds = 2": "max-seconds is given twice",
    "name = '../x'": "at `$.name`; a sweep takes a name of letters",
    "[[cases]]\ninput-shape = [['xs=5', 'xs=6']]": "--input-shape xs= is given twice",
}


def test_bad_toml_is_refused_in_one_line(tmp_path):
    path = tmp_path / "r3.toml"
    for text, message in BAD.items():
        output = refusal(read, path, text, error=UsageError)
        assert message in output, text
        assert output.startswith(f"{path}: ")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    for name, reason in {"fifo": "not a regular file", "folder": "Is a directory"}.items():
        assert refusal(read_toml, tmp_path / name, error=UsageError) == (
            f"{tmp_path / name}: cannot be read ({reason})"
        )
    many = {"model": "a", "batchsize": ",".join(map(str, range(1, 20_000)))}
    with pytest.raises(UsageError, match="a sweep takes at most 10,000"):
        cases_of(many, find)
