"""Requirements in several files agree; and the build, git's content, and the fetched sdist."""

from __future__ import annotations

import hashlib
import io
import re
import shutil
import subprocess
import sys
import tarfile
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from types import SimpleNamespace

import pytest
from packaging.requirements import Requirement

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


def test_requirements_are_those_of_the_project_and_its_extras_and_locked():
    chainer = "./packaging/chainer"
    assert [chainer, *project()["dependencies"][1:]] == requirements("requirements.txt")
    backend = (ROOT / chainer / "build_backend.py").read_text()
    version = re.search(r'^VERSION = "(.*)"$', backend, re.MULTILINE)
    assert project()["dependencies"][0] == f"chainer=={version[1]}"
    for extra in ("dev", "gpu", "gpu-cuda13"):
        asked = project()["optional-dependencies"][extra]
        assert asked == requirements(f"requirements-{extra}.txt"), extra
    locked = {}
    for line in (ROOT / "requirements-dev.lock").read_text().splitlines():
        if "==" in line and not line.startswith("#"):
            locked_requirement = Requirement(line)
            locked.setdefault(locked_requirement.name, []).append(
                next(iter(locked_requirement.specifier)).version
            )
    for line in requirements("requirements-dev.txt") + requirements("requirements.txt")[1:]:
        wanted = Requirement(line)
        assert set(wanted.specifier.filter(locked[wanted.name])) == set(locked[wanted.name]), line


def test_version():
    place = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["dynamic"]
    module, _, name = place["version"]["attr"].rpartition(".")
    assert getattr(import_module(module), name) == chainer_profile.__version__
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert f"## {chainer_profile.__version__}" in changelog


def test_an_sdist_that_was_tampered_with_runs_nothing(tmp_path, monkeypatch, capfd):
    # Only building needs it.
    monkeypatch.setitem(sys.modules, "setuptools", SimpleNamespace(build_meta=None))
    spec = spec_from_file_location("backend", ROOT / "packaging/chainer/build_backend.py")
    backend = module_from_spec(spec)
    spec.loader.exec_module(backend)
    setup = (
        f"open({str(tmp_path / 'ran')!r}, 'w')\nimport setuptools\nsetuptools.setup()\n".encode()
    )
    index = tmp_path / "index" / f"chainer-{backend.VERSION}.tar.gz"
    index.parent.mkdir()
    with tarfile.open(index, "w:gz") as archive:
        member = tarfile.TarInfo(f"chainer-{backend.VERSION}/setup.py")
        member.size = len(setup)
        archive.addfile(member, io.BytesIO(setup))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index.parent))
    with pytest.raises(subprocess.CalledProcessError):
        backend._unpacked_sdist(str(tmp_path))
    assert not (tmp_path / "ran").exists()
    said = capfd.readouterr().err
    assert backend.SHA256 in said
    assert hashlib.sha256(index.read_bytes()).hexdigest() in said


#: Files that git may hold beside text.
_PICTURES = (".png",)
_RECORDINGS = ("reports/samples/", "reports/references/", "tests/record/stored/")
#: Larger than a megabyte.
_LARGE = ("report.html", "recording.npz")


def git(*words):
    """The output of git in this checkout, and its exit code."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("no checkout of git")
    command = ["git", "-C", str(ROOT), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout, done.returncode


def test_git_holds_text_pictures_and_recordings_and_nothing_that_is_built_or_large():
    listed, _ = git("ls-files", "-z")
    names = [name for name in listed.split("\0") if name and (ROOT / name).is_file()]
    assert "README.md" in names
    for name in names:
        content = (ROOT / name).read_bytes()
        recording = name.endswith((".npz", ".journal")) and name.startswith(_RECORDINGS)
        assert b"\0" not in content or name.endswith(_PICTURES) or recording, name
        sample = name.startswith("reports/samples/resnet20-cpu-b1/") and name.endswith(_LARGE)
        assert len(content) < 1e6 or sample, name
    for name in ("py_spy-0.4-py3-none-any.whl", "a.egg", "a.so", "dist/a.tar.gz"):
        assert git("check-ignore", "-q", name)[1] == 0, name
