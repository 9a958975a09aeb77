"""The lists of what is needed stand in several files: they must agree."""

from __future__ import annotations

import re
import sys
from importlib import import_module

import pytest

import chainer_profile
from tests import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomllib")


def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def requirements(name):
    lines = (ROOT / name).read_text().splitlines()
    return [line for line in lines if line and not line.startswith(("#", "-r"))]


def test_requirements_are_the_projects_dependencies():
    chainer = "./packaging/chainer"
    assert [chainer, *project()["dependencies"][1:]] == requirements("requirements.txt")
    backend = (ROOT / chainer / "build_backend.py").read_text()
    version = re.search(r'^VERSION = "(.*)"$', backend, re.MULTILINE)
    assert project()["dependencies"][0] == f"chainer=={version[1]}"


@pytest.mark.parametrize("extra", ["dev", "gpu", "gpu-cuda13"])
def test_requirements_are_those_of_the_extra(extra):
    assert project()["optional-dependencies"][extra] == requirements(f"requirements-{extra}.txt")


def test_version():
    place = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["dynamic"]
    module, _, name = place["version"]["attr"].rpartition(".")
    assert getattr(import_module(module), name) == chainer_profile.__version__
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert f"## {chainer_profile.__version__}" in changelog
