"""docs/sweep.md: what it shows can be done."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from chainer_profile.cli.parsers import parser_of
from chainer_profile.cli.sweep import cases_of, read_toml
from models.registry import REGISTRY
from tests import ROOT

DOCS = ROOT / "docs"


def commands(name: str) -> list[list[str]]:
    """The arguments of every command of profile.py that a file shows."""
    text = (DOCS / name).read_text().replace("\\\n", " ")
    lines = re.findall(r"^    .*?python .*?profile\.py (.*)$", text, re.MULTILINE)
    return [shlex.split(line, comments=True) for line in lines]


def find(model: str) -> tuple[str, tuple[int, ...] | None]:
    return model, REGISTRY[model].input_shape


def test_the_toml_file_of_the_documentation(tmp_path: Path) -> None:
    found = re.search(r"```toml\n(.*?)```", (DOCS / "sweep.md").read_text(), re.DOTALL)
    assert found is not None
    (tmp_path / "r3.toml").write_text(found[1])
    name, groups = read_toml(tmp_path / "r3.toml")
    cases = [case for where, group in groups for case in cases_of(group, find, where)]
    assert name == "r3"
    assert [len([case for case in cases if case.settings.trials == n]) for n in (300, 1000)] == [
        6,
        6,
    ]


def test_the_sweeps_of_the_documentation() -> None:
    found = [words[1:] for words in commands("sweep.md") if words[0] == "sweep"]
    assert len(found) == 3
    for words in found:
        assert parser_of("sweep").parse_args(words).executor
    args = parser_of("sweep").parse_args(found[0])
    options = {"models": args.models, "input-sizes": args.input_sizes, "devices": args.devices}
    assert len(cases_of(options, find)) == 12


def test_the_histories_of_the_documentation() -> None:
    found = [words[1:] for words in commands("history.md") if words[0] == "history"]
    assert len(found) == 5
    for words in found:
        parser_of("history").parse_args([word for word in words if word not in (">",)])
