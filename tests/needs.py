"""What a test needs beside what the profiler needs.

A test that misses it is skipped, but where `.ci/run` has installed it all (`TESTS_MISS_NOTHING`):
there it fails, so that a broken installation is not taken for a passing test.
"""

import importlib
import os
import shutil

import pytest


def missing(name):
    """Skip the test, or fail it in CI."""
    if os.environ.get("TESTS_MISS_NOTHING"):
        pytest.fail(f"{name} is missing, though CI installs it")
    pytest.skip(f"{name} is missing", allow_module_level=True)


def module(name):
    """A module of requirements-dev.txt."""
    try:
        return importlib.import_module(name)
    except ImportError:
        missing(name)


def program(*names, package):
    """The first program there is of several names; ``package`` is Debian's that has it."""
    for name in names:
        if path := shutil.which(name):
            return path
    missing(f"{names[0]} of Debian's package {package}")
