"""Requirements agree in all files; the sdist of Chainer is checked; files in git."""

from __future__ import annotations

import hashlib
import io
import re
import shutil
import subprocess
import sys
import tarfile
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


def requirements(name):
    lines = (ROOT / name).read_text().splitlines()
    return [line for line in lines if line and not line.startswith(("#", "-r"))]


@pytest.fixture
def backend(monkeypatch):
    """The build backend of packaging/chainer."""
    # Only a build needs setuptools.
    monkeypatch.setitem(sys.modules, "setuptools", SimpleNamespace(build_meta=None))
    spec = spec_from_file_location("backend", ROOT / "packaging/chainer/build_backend.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_requirements_files_equal_the_project_and_the_lock(backend):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    chainer, *others = project["dependencies"]
    assert chainer == f"chainer=={backend.VERSION}"
    assert ["./packaging/chainer", *others] == requirements("requirements.txt")
    for extra in ("dev", "gpu", "gpu-cuda13"):
        extra_requirements = project["optional-dependencies"][extra]
        assert extra_requirements == requirements(f"requirements-{extra}.txt"), extra
    lock = (ROOT / "requirements-dev.lock").read_text()
    for requirement in map(Requirement, [*others, *requirements("requirements-dev.txt")]):
        locked = re.findall(rf"^{re.escape(requirement.name)}==([^\s;]+)", lock, re.MULTILINE)
        assert locked
        assert list(requirement.specifier.filter(locked)) == locked, requirement
    assert f"## {chainer_profile.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_modified_sdist_of_chainer_is_not_run(backend, tmp_path, monkeypatch, capfd):
    setup = f"open({str(tmp_path / 'ran')!r}, 'w')\nimport setuptools\nsetuptools.setup()\n"
    index = tmp_path / "index" / f"chainer-{backend.VERSION}.tar.gz"
    index.parent.mkdir()
    with tarfile.open(index, "w:gz") as archive:
        member = tarfile.TarInfo(f"chainer-{backend.VERSION}/setup.py")
        member.size = len(setup)
        archive.addfile(member, io.BytesIO(setup.encode()))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index.parent))
    with pytest.raises(subprocess.CalledProcessError):
        backend._unpacked_sdist(str(tmp_path))
    assert not (tmp_path / "ran").exists()
    stderr = capfd.readouterr().err
    assert backend.SHA256 in stderr
    assert hashlib.sha256(index.read_bytes()).hexdigest() in stderr


def test_git_has_no_built_large_or_other_binary_files():
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("no checkout of git")
    git = ["git", "-C", str(ROOT)]
    listed = subprocess.run([*git, "ls-files", "-z"], capture_output=True, text=True, check=True)
    names = [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]
    assert "README.md" in names
    recordings = ("reports/samples/", "reports/references/", "tests/record/stored/")
    for name in names:
        content = (ROOT / name).read_bytes()
        recording = name.endswith((".npz", ".journal")) and name.startswith(recordings)
        assert b"\0" not in content or name.endswith(".png") or recording, name
        sample = name.startswith("reports/samples/resnet20-cpu-b1/")
        large = sample and name.endswith(("report.html", "recording.npz"))
        assert len(content) < 1e6 or large, name
    built = ["py_spy-0.4-py3-none-any.whl", "a.egg", "a.so", "dist/a.tar.gz"]
    ignored = subprocess.run([*git, "check-ignore", *built], capture_output=True, text=True)
    assert ignored.stdout.split() == built
