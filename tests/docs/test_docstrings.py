"""Modules and names that docstrings refer to exist."""

import ast
import re
import sys

import pytest

import chainer_profile
from tests import ROOT

PACKAGE = ROOT / "chainer_profile"
#: A role of Sphinx and its target, without a title.
REFERENCE = re.compile(r":(?:mod|class|func|data|meth|attr|exc):`~?([\w.]+)`")


def sources():
    return {path: path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}


def names_of(source):
    """Return every name that a module assigns or defines, also in its classes."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).rpartition(".")[2])
    return names


@pytest.fixture(scope="module")
def known():
    """Names by module; a package has the names of its ``__init__``."""
    found = {}
    for path, source in sources().items():
        name = path.parent.name if path.stem == "__init__" else path.stem
        found.setdefault(name, set()).update(names_of(source))
    return found


def is_there(target, own, known):
    """Return whether a target is a module, or a name in the module before it or its own module."""
    parts = [part for part in target.split(".") if part]
    if parts[0] == "chainer" or parts[0] in sys.stdlib_module_names:
        return True
    is_public = parts[0] == "chainer_profile"
    *places, name = parts[1:] if is_public and parts[1:] else parts
    if places and places[-1] in known and name not in known:
        return name in known[places[-1]]
    if name in known:
        return True
    if is_public and not places:
        return name in chainer_profile.__all__
    everywhere = set.union(*known.values())  # a class and its attribute
    is_named = target.startswith(".") or bool(places) or name in own
    return is_named and everywhere.issuperset([*places, name])


def test_targets_of_references_in_docstrings_exist(known):
    found, missing = 0, []
    for path, source in sources().items():
        own = names_of(source)
        for target in REFERENCE.findall(source):
            found += 1
            if not is_there(target, own, known):
                missing.append(f"{path.relative_to(PACKAGE)}: {target}")
    assert found > 150
    assert missing == []


def test_missing_target_is_found(known):
    absent = (".stopping.PreciseEnough", ".describe.Absent", "chainer_profile.absent", "absent")
    for target in absent:
        assert not is_there(target, set(), known)
    for target in (".describe.PreciseEnough", ".nodes", "chainer_profile.profile", "chainer.Link"):
        assert is_there(target, set(), known)
