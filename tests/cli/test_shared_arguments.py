"""Options that several commands share."""

from __future__ import annotations

import argparse

import numpy as np
import pytest

from chainer_profile.basics.errors import UsageError
from chainer_profile.basics.parsing import Parser, input_shape
from chainer_profile.cli.engines import parser as engines_parser
from chainer_profile.cli.options import asked_device, check_input, read_input
from chainer_profile.cli.profile import parser as run_parser
from chainer_profile.networks.loading import find_model
from models.registry import REGISTRY


@pytest.fixture(params=[run_parser, engines_parser])
def parser(request: pytest.FixtureRequest) -> Parser:
    parser: Parser = request.param()
    return parser


def test_the_input_is_as_asked(parser: Parser) -> None:
    args = parser.parse_args(["-b", "2", "--seed", "3", "--input-size", "8x6"])
    source = find_model("resnet20", REGISTRY, None)
    batch = read_input(args, source)
    assert batch.array.shape == (2, 3, 8, 6)
    again = read_input(parser.parse_args(["-b", "2", "--input-size", "8x6"]), source)
    assert not np.array_equal(batch.array, again.array)


@pytest.mark.parametrize("words", [("--index", "1"), ("--data-dir", "x")])
def test_options_of_another_input(parser: Parser, words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match=f"^{words[0]} is for CIFAR-10: give --input cifar10"):
        check_input(parser.parse_args(words))
    check_input(parser.parse_args([*words, "--input", "cifar10"]))
    check_input(parser.parse_args([]))


def test_shapes(parser: Parser) -> None:
    def found(*words: str) -> tuple[int, ...]:
        return input_shape(parser.parse_args(words), known)

    known: tuple[int, ...] | None = (3, 32, 32)
    assert found() == (3, 32, 32)
    assert found("--input-shape", "5") == (5,)
    assert found("--input-size", "8x6") == (3, 8, 6)
    with pytest.raises(UsageError, match="not both"):
        found("--input-shape", "5", "--input-size", "8x6")
    known = (4,)
    with pytest.raises(UsageError, match="takes no images"):
        found("--input-size", "8x6")
    known = None
    with pytest.raises(UsageError, match="give the shape of its input"):
        found()


@pytest.mark.parametrize(("words", "device"), [((), "cpu"), (("-g", "1"), "gpu:1")])
def test_devices(parser: Parser, words: tuple[str, ...], device: str) -> None:
    assert asked_device(parser.parse_args(words)) == device


def test_words_are_not_shortened() -> None:
    parser = Parser(prog="x")
    parser.add_argument("--longer")
    with pytest.raises(
        UsageError, match=r"arguments: --long 1 \(did you mean --longer\?\) \(see x --help\)"
    ):
        parser.parse_args(["--long", "1"])
    assert isinstance(parser, argparse.ArgumentParser)
