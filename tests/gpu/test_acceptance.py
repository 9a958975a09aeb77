"""Acceptance tests of a GPU, run on a fake CuPy without a GPU."""

import importlib.util

import pytest

from benchmarks import gpu_acceptance
from chainer_profile.cli.parsers import parser_of
from models import REGISTRY
from tests.fakes import process
from tests.scripts import python

pytestmark = pytest.mark.process


def test_known_kernels_are_measured_to_the_nanosecond(tmp_path):
    result = process(["-m", "benchmarks.truth_gpu", "--trials", "3"], tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    # Two methods, four lengths and two phases; one combination has no verdict.
    assert result.stdout.count("us +/- 2 %") == 2 * 4 * 2 - 1
    assert result.stdout.count("+0.00 %") >= 2 * 4 * 2 - 1
    assert "MISSED" not in result.stdout


def test_each_acceptance_case_is_a_valid_command():
    for name, (program, *options) in gpu_acceptance.CASES.items():
        if program == "profile.py":
            args = parser_of("profile").parse_args([*options, "--gpu", "0", "--out", name])
            assert args.model in REGISTRY


@pytest.mark.skipif(importlib.util.find_spec("cupy") is not None, reason="CuPy is installed")
def test_acceptance_without_a_gpu_says_so_in_one_line(tmp_path):
    ran = python("-m", "benchmarks.gpu_acceptance", "--only", "truth", "--out", tmp_path)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith("gpu_acceptance: error: --gpu 0: CuPy is not installed; ")
    assert ran.stderr.count("\n") == 1
