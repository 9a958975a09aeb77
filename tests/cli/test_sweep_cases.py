"""The cases of a sweep, from lists and from TOML."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chainer_profile.basics.errors import UsageError
from chainer_profile.cli.parsers import parser_of
from chainer_profile.cli.sweep import cases_of, read_toml
from chainer_profile.runs.sweep import Case, case_names
from tests.sweeping import make_case

R3 = {
    "models": "resnet18,resnet34, resnet50",
    "input-sizes": "1024x2048,500x334",
    "batchsizes": "1",
    "devices": "cpu,gpu:0",
    "phases": "forward",
    "trials": "300",
    "warmups": "25",
}


def find(model: str) -> tuple[str, tuple[int, ...] | None]:
    if model == "unknown":
        raise UsageError(f"unknown model {model!r}")
    return model.replace(":", "-"), None if ":" in model else (3, 224, 224)


def test_a_case_for_each_combination() -> None:
    cases = cases_of(R3, find)
    assert len(cases) == 12
    assert [case.settings.device for case in cases[:3]] == ["cpu", "gpu:0", "cpu"]
    shapes = {case.settings.input_shape for case in cases}
    assert shapes == {(1, 3, 1024, 2048), (1, 3, 500, 334)}
    assert [case.model for case in cases[::4]] == ["resnet18", "resnet34", "resnet50"]
    assert " ".join(cases_of(R3 | {"threads": "1", "max-seconds": "60"}, find)[1].words) == (
        "--model resnet18 --input-size 1024x2048 --batchsize 1 --device gpu:0 --phase forward "
        "--trials 300 --warmups 25 --threads 1 --seed 0 --dtype float32 --max-seconds 60"
    )


def test_profile_takes_the_words_of_a_case_and_has_the_same_defaults() -> None:
    options = {"threads": "1", "max-seconds": "0.125", "no-machine": True}
    for case in cases_of(R3 | options, find):
        args = parser_of("profile").parse_args([*case.words, "-q", "--out", "x"])
        assert (args.model, args.threads, args.max_seconds) == (case.model, 1, 0.125)
        assert args.gpu == (-1 if case.settings.device == "cpu" else 0)
        assert not args.limits
    (case,) = cases_of({}, find)
    usual = parser_of("profile").parse_args([])
    assert case.model == usual.model
    for name in ("trials", "warmups", "seed", "dtype", "phase", "threads"):
        assert getattr(case.settings, name) == getattr(usual, name)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"models": "resnet18,unknown"}, "unknown model 'unknown'"),
        ({"models": []}, "models: the list is empty; give at least one entry"),
        ({"models": "a:b"}, "--model a:b: give the shape of its input"),
        ({"devices": "tpu"}, "--device: 'tpu' is no device"),
        ({"input-sizes": "1024"}, "--input-size: not a height and a width: '1024'"),
        ({"input-sizes": "0x3"}, "--input-size: not a shape: '0x3'"),
        (
            {"input-sizes": "3x3", "input-shapes": "3"},
            "input-sizes and input-shapes: give one of them",
        ),
        ({"batchsizes": "0"}, "--batchsize: must be a whole number, 1 or more, not '0'"),
        ({"batchsizes": " "}, "--batchsize: must be a whole number, 1 or more, not ''"),
        ({"batchsizes": ",".join(map(str, range(1, 20_000)))}, "a sweep takes up to 10,000"),
        ({"phases": "backward"}, "--phase: invalid choice: 'backward'"),
        ({"dtype": "int8"}, "--dtype: invalid choice: 'int8'"),
        ({"max-seconds": "-1"}, "--max-seconds: must be a number of seconds above 0"),
    ],
)
def test_bad_options_are_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as error:
        cases_of(options, find)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_cases_are_equal_if_they_measure_the_same() -> None:
    case = make_case()
    (sized,) = cases_of({"models": "a", "input-sizes": "5x6"}, find)
    (shaped,) = cases_of({"models": "a", "input-shapes": "3x5x6", "no-machine": True}, find)
    assert sized == shaped
    changes: dict[str, Any] = {
        **{"batchsize": 2, "device": "gpu:0", "phase": "train", "trials": 5, "warmups": 2},
        **{"threads": 1, "seed": 1, "dtype": "float16", "max_seconds": 1.0, "input_shape": (3,)},
    }
    assert set(case.key) == {"model", *changes}
    for name, value in changes.items():
        other = make_case(**{name: value})
        assert other != case
        assert other.key != case.key
        assert not other.is_of(case.settings)
    # A recording has more settings than a case determines.
    assert case.is_of(replace(case.settings, weights="w.npz"))
    assert json.loads(json.dumps(case.key)) == case.key


def test_names_tell_cases_apart_and_stay() -> None:
    cases = [
        make_case(),
        make_case(phase="train", device="gpu:1", batchsize=4),
        make_case(dtype="mixed16", threads=2, seed=7),
        make_case(trials=9),
        make_case(input_shape=(1, 8, 8)),
    ]
    names = case_names(cases, {})
    assert list(names.values()) == [
        "resnet18-8x8-cpu-b1",
        "resnet18-8x8-gpu1-b4-train",
        "resnet18-8x8-cpu-b1-mixed16-t2-seed7",
        "resnet18-8x8-cpu-b1-2",
        "resnet18-1x8x8-cpu-b1",
    ]
    again = case_names([cases[3], make_case(trials=10), cases[0]], names)
    assert again[cases[3]] == "resnet18-8x8-cpu-b1-2"
    assert len(set(again.values())) == 3


def read(path: Path, text: str) -> tuple[str, list[Case]]:
    path.write_bytes(text.encode(errors="surrogateescape"))
    name, groups = read_toml(path)
    return name, [case for where, group in groups for case in cases_of(group, find, where)]


def test_toml(tmp_path: Path) -> None:
    name, cases = read(
        tmp_path / "r3.toml",
        """
        name = "references"
        [common]
        trials = 300
        input-sizes = ["1024x2048", "500x334"]
        no-machine = true
        [[cases]]
        models = ["resnet18", "resnet34"]
        devices = "cpu"
        no_machine = false
        [[cases]]
        model = "a:b"
        input_shape = "7"
        batchsizes = [1, 2]
        trials = 9
        max-seconds = 2.5
        """,
    )
    assert name == "references"
    assert [case.settings.trials for case in cases] == [300] * 4 + [9] * 2
    assert ["--no-machine" in case.words for case in cases] == [False] * 4 + [True] * 2
    assert cases[-1].settings.input_shape == (2, 7)
    assert cases[-1].settings.max_seconds == 2.5
    assert cases[-1].words[2:4] == ("--input-shape", "7")
    name, cases = read(tmp_path / "few.toml", '[common]\nmodels = "resnet18,resnet34"')
    assert (name, [case.model for case in cases]) == ("few", ["resnet18", "resnet34"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[common]\n\ntrials = \n", "is no TOML: Invalid value (at line 3, column 10)"),
        ("\udcff", "is no TOML: "),
        ("[common]\ntrails = 3", "[common]: unknown key 'trails' (did you mean trials?)"),
        ("[[cases]]\n[[cases]]\nmodles = 3", "[[cases]] 2: unknown key 'modles' (did you mean"),
        ("[[cases]]\nzzz = 3", "[[cases]] 1: unknown key 'zzz'; known are models, "),
        ("[[case]]\nmodel = 'a'", "unknown field `case`; it takes a name"),
        (
            "trials = 3",
            "unknown field `trials`; it takes a name of letters, digits and ._+-, and options b",
        ),
        ("cases = 3", "got `int` - at `$.cases`"),
        ("cases = []", "Expected `array` of length >= 1 - at `$.cases`"),
        ("cases = [3]", "got `int` - at `$.cases[0]`"),
        ("common = 3", "got `int` - at `$.common`"),
        ("[common]\nmodels = []", "[common]: models: the list is empty"),
        ("[[cases]]\nbatchsize = true", "--batchsize: must be a whole number, 1 or more, not"),
        ("[[cases]]\ntrials = [1, 2]", "trials: must be a whole number, 1 or more, not '[1, 2]'"),
        ("[[cases]]\ntrials = 1.5", "trials: must be a whole number, 1 or more, not '1.5'"),
        ("[common]\nno-machine = 1", "no-machine: must be true or false, not '1'"),
        ("[[cases]]\nmodel = 'a'\nmodels = 'b'", "models is given twice"),
        ("name = '../x'", "at `$.name`; it takes a name of letters"),
        ("name = 5", "at `$.name`; it takes a name of letters"),
    ],
)
def test_bad_toml_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "r3.toml"
    with pytest.raises(UsageError) as error:
        read(path, text)
    assert message in str(error.value)
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing.toml"):
        with pytest.raises(UsageError, match=r"cannot be read \("):
            read_toml(path)
