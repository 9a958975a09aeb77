"""Imports of packages and commands, checked in new processes."""

import inspect
import json
import shutil

import pytest

import chainer_profile
from tests import ROOT
from tests.scripts import python

#: Modules of other packages with types that these packages use.
MODULES_WITH_TYPES = (
    "engines.catalogue engines.engine_recording engines.protocol engines.results runs.folder"
)


def loaded_by(code):
    """Top-level names of the modules that code imports in a new process."""
    code = f"{code}\nimport json, sys\nprint(json.dumps(list(sys.modules)))"
    done = python("-c", code, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return {name.partition(".")[0] for name in json.loads(done.stdout.splitlines()[-1])}


def test_packages_after_measuring_need_no_chainer():
    """No module in these packages imports Chainer, CuPy or the networks."""
    package = ROOT / "chainer_profile"
    names = MODULES_WITH_TYPES.split()
    for name in ("basics", "record", "analyse", "comparison", "ranks", "report"):
        for path in sorted((package / name).rglob("*.py")):
            names.append(".".join(path.relative_to(package).with_suffix("").parts))
    every = "\n".join(f"import chainer_profile.{name.removesuffix('.__init__')}" for name in names)
    assert not loaded_by(every) & {"chainer", "cupy", "models"}


def test_imports_load_no_large_packages():
    heavy = {"numpy", "pandas", "scipy", "matplotlib", "rich", "chainer", "cupy", "PIL"}
    for code, others in (
        ("import chainer_profile", {"models", *heavy}),
        ("import chainer_profile.integrations.script_run", {"models", *heavy}),
        ("import chainer_profile.networks.loading", {"models", *heavy}),
        ("import models; assert models.REGISTRY", {"chainer_profile", *heavy}),
        ("import chainer_profile.integrations.program", {"pandas", "rich"}),
    ):
        assert not loaded_by(code) & others, code


@pytest.mark.parametrize(
    "arguments",
    ["--list-models", "report RUN", "report RUN/chainer", "compare RUN/chainer RUN/onnxruntime"],
)
def test_commands_without_measuring_need_no_chainer(arguments, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(ROOT / "reports/samples/engines-resnet20-cpu-b1", run)
    argv = arguments.replace("RUN", str(run)).split()
    code = f"from chainer_profile.__main__ import main\nassert main({argv!r}) == 0"
    # A report of one run does not import SciPy, which would take a fifth of its time.
    without = {"scipy"} if arguments == "report RUN/chainer" else set()
    assert not loaded_by(code) & {"chainer", "cupy", *without}


def test_reports_of_a_program_load_no_chainer(tmp_path):
    run = tmp_path / "run"
    shutil.copytree(ROOT / "reports/samples/train-mnist", run)
    code = f"""
from dataclasses import asdict
from pathlib import Path
from chainer_profile.integrations.script_report import Ended, main
from chainer_profile.record.budget import read_budget
folders = {str(run)!r}, {str(run / "test")!r}
main(asdict(Ended(read_budget(Path({str(run)!r})), 0, folders[0], folders, (), (), False, False)))
"""
    assert not loaded_by(code) & {"chainer", "cupy", "models"}


def test_every_public_name_can_be_imported_and_has_a_docstring():
    assert set(chainer_profile.__all__) <= set(dir(chainer_profile))
    public = [getattr(chainer_profile, name) for name in chainer_profile.__all__]
    for kind in filter(inspect.isclass, list(public)):
        methods = [getattr(method, "fget", method) for method in vars(kind).values()]
        public += [
            method
            for method in methods
            if inspect.isfunction(method) and method.__name__[0].isalpha()
        ]
    assert [each for each in public if callable(each) and not each.__doc__] == []
    with pytest.raises(ImportError, match=r"within accelerate\(\), or run it under ONNX Runtime"):
        from chainer_profile import optimize  # noqa: F401
