"""The cases of a sweep, from lists and from TOML."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from chainer_profile.basics.errors import UsageError
from chainer_profile.runs.sweep_cases import (
    Case,
    case_names,
    cases_of,
    read_toml,
    sweep_name,
    without_duplicates,
)
from tests.sweeping import make_case, recording_of

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
    assert cases[0] == Case("resnet18", (3, 1024, 2048), 1, "cpu", "forward", 300, 25)
    assert [case.device for case in cases[:3]] == ["cpu", "gpu:0", "cpu"]
    assert {case.input_shape for case in cases} == {(3, 1024, 2048), (3, 500, 334)}
    assert [case.model for case in cases[::4]] == ["resnet18", "resnet34", "resnet50"]


def test_the_command_of_a_case() -> None:
    case = cases_of(R3 | {"threads": "1", "max-seconds": "60"}, find)[1]
    assert " ".join(case.arguments) == (
        "--model resnet18 --input-size 1024x2048 --batchsize 1 --device gpu:0 --phase forward "
        "--trials 300 --warmups 25 --seed 0 --dtype float32 --threads 1 --max-seconds 60"
    )


def test_the_profiler_takes_the_arguments_of_a_case() -> None:
    from chainer_profile.cli.profile import parser as run_parser

    for case in cases_of(R3 | {"threads": "2", "max-seconds": "0.125"}, find):
        args = run_parser().parse_args([*case.arguments, "-q", "--out", "x"])
        assert (args.model, args.batchsize, args.threads) == (case.model, 1, 2)
        assert args.gpu == (-1 if case.device == "cpu" else 0)
        assert args.max_seconds == 0.125


def test_what_is_not_given_is_as_usual() -> None:
    from chainer_profile.cli.profile import parser as run_parser

    (case,) = cases_of({}, find)
    usual = run_parser().parse_args([])
    assert (case.model, case.trials, case.warmups) == (usual.model, usual.trials, usual.warmups)
    assert (case.seed, case.dtype, case.phase) == (usual.seed, usual.dtype, usual.phase)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"models": ""}, "--models: the list is empty"),
        ({"batchsizes": " "}, "--batchsizes: the list is empty"),
        ({"models": "a,,b"}, "--models: one of its entries is empty"),
        ({"models": "resnet18,unknown"}, "unknown model 'unknown'"),
        ({"devices": "tpu"}, "--devices: 'tpu' is no device"),
        ({"input-sizes": "1024"}, "--input-sizes: not a height and a width: '1024'"),
        ({"input-sizes": "0x3"}, "--input-sizes: "),
        ({"batchsizes": "0"}, "--batchsizes: must be a whole number, 1 or more, not '0'"),
        ({"phases": "backward"}, "--phases: must be forward or forward-backward or train"),
        ({"dtype": "int8"}, "--dtype: must be float32"),
        ({"max-seconds": "-1"}, "--max-seconds: must be a number of seconds above 0"),
        ({"models": "a:b"}, "--model a:b: give the shape of its input"),
        ({"input-sizes": "3x3", "input-shapes": "3"}, "give one of them"),
        ({"batchsizes": ",".join(map(str, range(1, 20_000)))}, "a sweep takes up to 10,000"),
        ({"models": "a\nb"}, r"is no name of a network: 'a\nb'"),
    ],
)
def test_bad_options_are_one_line(options: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError) as error:
        cases_of(options, find)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_duplicates_are_those_that_measure_the_same() -> None:
    sized = cases_of({"models": "a,b,a", "input-sizes": "5x6"}, find)
    shaped = cases_of({"models": "a", "input-shapes": "3x5x6"}, find)
    kept, repeated = without_duplicates([*sized, *shaped])
    assert kept == sized[:2]
    assert repeated == [sized[2], shaped[0]]


def test_names_tell_cases_apart() -> None:
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
    # A case keeps its name, and no other one gets it.
    again = case_names([cases[3], make_case(trials=10), cases[0]], names)
    assert again[cases[3]] == "resnet18-8x8-cpu-b1-2"
    assert len(set(again.values())) == 3


def test_the_name_of_a_sweep() -> None:
    assert sweep_name([make_case("a"), make_case("b"), make_case("a")]) == "a-b"
    assert sweep_name(map(make_case, "abcdef")) == "a-b-c-d-and-2-more"


@pytest.mark.parametrize("field", [f.name for f in dataclasses.fields(Case) if f.compare])
def test_a_case_knows_its_recording(field: str) -> None:
    case = make_case()
    recording = recording_of(case.settings)
    assert case.is_of(recording)
    others: dict[str, Any] = {
        **{"model": "other", "input_shape": (3, 9, 9), "device": "gpu:0", "phase": "train"},
        **{"dtype": "mixed16", "max_seconds": 5.0},
    }
    other = dataclasses.replace(case, **{field: others.get(field, 77)})
    assert other != case
    assert other.key != case.key
    assert json.loads(json.dumps(case.key)) == case.key
    if field != "model":  # of which a recording has the network's name
        assert not other.is_of(recording)


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "r3.toml"
    path.write_text(text)
    return path


def read(tmp_path: Path, text: str) -> tuple[str, list[Case]]:
    name, groups = read_toml(write(tmp_path, text))
    return name, [case for where, group in groups for case in cases_of(group, find, where)]


def test_toml(tmp_path: Path) -> None:
    name, cases = read(
        tmp_path,
        """
        name = "references"
        [common]
        no-machine = true
        trials = 300
        input-sizes = ["1024x2048", "500x334"]
        [[cases]]
        models = ["resnet18", "resnet34"]
        devices = "cpu"
        [[cases]]
        model = "a:b"
        input_shape = "7"
        batchsizes = [1, 2]
        trials = 9
        max-seconds = 2.5
        """,
    )
    assert name == "references"
    assert len(cases) == 6
    assert {case.trials for case in cases[:4]} == {300}
    last = Case("a:b", (7,), 2, trials=9, max_seconds=2.5)
    assert cases[-1] == last
    assert cases[-1].input_words == ("--input-shape", "7")
    assert all("--no-machine" in case.arguments for case in cases)
    # It is no part of what is measured: a sweep goes on with it or without.
    assert "no_machine" not in last.key


def test_toml_of_common_options_alone(tmp_path: Path) -> None:
    name, cases = read(tmp_path, '[common]\nmodels = "resnet18,resnet34"')
    assert name == "r3"
    assert [case.model for case in cases] == ["resnet18", "resnet34"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[common\ntrials = 3", "is no TOML: Expected"),
        ("[common]\ntrails = 3", "[common]: unknown key 'trails': did you mean trials?"),
        ("[[cases]]\n[[cases]]\nmodles = 3", "[[cases]] 2: unknown key 'modles': did you mean"),
        ("[[cases]]\nzzz = 3", "[[cases]] 1: unknown key 'zzz': known are models, "),
        ("[[case]]\nmodel = 'a'", "unknown key 'case': did you mean cases?"),
        ("trials = 3", "trials must stand below [common] or [[cases]]"),
        ("cases = 3", "cases must be tables"),
        ("cases = []", "cases must be tables"),
        ("cases = [3]", "[[cases]] 1: must be a table"),
        ("common = 3", "[common]: must be a table"),
        ("[common]\nmodels = []", "[common]: models: the list is empty"),
        ("[[cases]]\nbatchsize = true", "[[cases]] 1: batchsizes: must be a text or a number"),
        ("[[cases]]\ntrials = [1, 2]", "trials: must be a text or a number"),
        ("[common]\nno-machine = 1", "no-machine: must be true or false, not '1'"),
        ("[[cases]]\ntrials = 1.5", "trials: must be a whole number, 1 or more, not '1.5'"),
        ("[[cases]]\nmodel = 'a'\nmodels = 'b'", "models is given twice"),
        ("name = '../x'", "name must be a text of letters"),
        ("name = 5", "name must be a text of letters"),
    ],
)
def test_bad_toml_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        read(tmp_path, text)
    assert message in str(error.value)
    assert "r3.toml" in str(error.value)
    assert "\n" not in str(error.value)


def test_the_line_of_bad_toml(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"\(at line 3, column 10\)"):
        read(tmp_path, "[common]\n\ntrials = \n")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_toml(tmp_path / "missing.toml")
    with pytest.raises(UsageError, match="cannot be read"):
        read_toml(tmp_path)
    (tmp_path / "b.toml").write_bytes(b"\xff")
    with pytest.raises(UsageError, match="not UTF-8"):
        read_toml(tmp_path / "b.toml")
