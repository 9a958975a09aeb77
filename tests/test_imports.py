"""Imports of each module, seen in fresh processes and in the sources."""

import inspect
import json
import shutil
import subprocess
import sys

import pytest

import chainer_profile
from tests import ROOT

PACKAGE = ROOT / "chainer_profile"
#: Rooms that never see Chainer or a GPU, and modules of others that those read the types of.
PURE = [
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
    for room in ("basics", "record", "analyse", "comparison", "ranks", "report")
    for path in sorted((PACKAGE / room).rglob("*.py"))
] + [
    "engines.catalogue",
    "engines.engine_recording",
    "engines.protocol",
    "engines.results",
    "runs.folder",
]


def python(*args):
    return subprocess.run(
        [sys.executable, *args], cwd=ROOT, capture_output=True, text=True, check=True
    )


def imported_by(code):
    """The top-level names that a fresh process has imported after some code."""
    out = python("-c", f"{code}\nimport json, sys\nprint(json.dumps(list(sys.modules)))").stdout
    return {name.partition(".")[0] for name in json.loads(out.splitlines()[-1])}


def test_packages_after_measuring_need_no_chainer():
    """No module of these packages imports Chainer, CuPy or the networks."""
    code = (
        "import importlib, json, sys\n"
        "found = {}\n"
        f"for name in {PURE!r}:\n"
        "    importlib.import_module('chainer_profile.' + name)\n"
        "    if heavy := sorted({'chainer', 'cupy', 'models'} & sys.modules.keys()):\n"
        "        found[name] = heavy\n"
        "print(json.dumps(found))\n"
    )
    assert json.loads(python("-c", code).stdout) == {}


def test_importing_is_light():
    heavy = {"numpy", "pandas", "scipy", "matplotlib", "rich", "chainer", "cupy", "PIL"}
    for code, also in (
        ("import chainer_profile", "models"),
        ("import chainer_profile.integrations.script_run", "models"),
        ("import chainer_profile.networks.loading", "models"),
        ("import models; assert models.REGISTRY", "chainer_profile"),
    ):
        assert not imported_by(code) & {*heavy, also}, code


def test_watching_a_program_takes_no_pandas():
    assert not imported_by("import chainer_profile.integrations.program") & {"pandas", "rich"}


@pytest.mark.parametrize(
    "words",
    [
        ["--list-models"],
        ["report", "RUN", "-q"],
        ["report", "RUN/chainer", "-q"],
        ["compare", "RUN/chainer", "RUN/onnxruntime", "-q"],
    ],
)
def test_commands_that_measure_nothing_need_no_chainer(words, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(ROOT / "reports/samples/engines-resnet20-cpu-b1", run)
    words = [word.replace("RUN", str(run)) for word in words]
    code = f"from chainer_profile.__main__ import main\nassert main({words!r}) == 0"
    # A report of one run takes no SciPy either, whose import would be a fifth of its time.
    without = {"scipy"} if words[:2] == ["report", str(run / "chainer")] else set()
    assert not imported_by(code) & ({"chainer", "cupy"} | without)


def test_every_public_name_can_be_imported_and_has_a_docstring():
    names = "import chainer_profile as p\nassert all(getattr(p, name) for name in p.__all__)"
    assert "chainer" in imported_by(names)
    python("-c", "import chainer_profile as p; assert set(p.__all__) <= set(dir(p))")
    public = [getattr(chainer_profile, name) for name in chainer_profile.__all__]
    for kind in filter(inspect.isclass, list(public)):
        methods = [getattr(method, "fget", method) for method in vars(kind).values()]
        public += [
            method
            for method in methods
            if inspect.isfunction(method) and method.__name__[0].isalpha()
        ]
    assert [method for method in public if callable(method) and not method.__doc__] == []
    with pytest.raises(ImportError, match=r"within accelerate\(\), or run it under ONNX Runtime"):
        from chainer_profile import optimize  # noqa: F401
