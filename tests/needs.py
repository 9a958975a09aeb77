"""Optional requirements of tests.

A test without its requirement is skipped. In CI, which installs all requirements
(`TESTS_MISS_NOTHING`), the test fails, so that a broken installation cannot pass.
"""

import importlib
import os
import shutil

import pytest


def missing(name):
    """Skip a test that lacks a requirement, or fail it in CI."""
    if os.environ.get("TESTS_MISS_NOTHING"):
        pytest.fail(f"{name} is missing, though CI installs it")
    pytest.skip(f"{name} is missing", allow_module_level=True)


def module(name):
    """Import a module of requirements-dev.txt."""
    try:
        return importlib.import_module(name)
    except ImportError:
        missing(name)


def program(*names, package):
    """Find the first available program; ``package`` is its Debian package."""
    for name in names:
        if path := shutil.which(name):
            return path
    missing(f"{names[0]} of Debian's package {package}")
