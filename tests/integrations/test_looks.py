"""Where the main thread is seen beside Chainer."""

import shutil
import sysconfig
import time
from pathlib import Path

import chainer
import psutil
import pytest

import chainer_profile
from chainer_profile.basics.errors import UsageError
from chainer_profile.integrations.looks import Looks, told
from chainer_profile.integrations.script import Script
from chainer_profile.integrations.script_run import ScriptRun
from tests import needs

CHAINER = Path(chainer.__file__).parent
OURS = Path(chainer_profile.__file__).parent
SITE = Path(sysconfig.get_path("purelib"))
STDLIB = Path(sysconfig.get_path("stdlib"))
S = 10**9

MAIN = "<module> (/home/me/train.py:9)"
ACCURACY = "accuracy (/home/me/train.py:30)"
ARGMAX = f"CRF1d.argmax ({CHAINER}/links/loss/crf1d.py:99)"
APPLY = f"FunctionNode.apply ({CHAINER}/function_node.py:300)"
LINK = f"Link.__call__ ({CHAINER}/link.py:287)"
TRAINER = f"Trainer.run ({CHAINER}/training/trainer.py:320)"
EXTENSION = f"PlotReport.__call__ ({CHAINER}/training/extensions/plot_report.py:10)"
IMPORT = "_find_and_load (<frozen importlib._bootstrap>:1165)"
WRAPPER = f"through ({OURS}/measure/entries.py:10)"
WITH = f"_GeneratorContextManager.__enter__ ({STDLIB}/contextlib.py:137)"
RUNPY = "run_path (<frozen runpy>:291)"


def stacks(*lines, thread="thread (1): MainThread"):
    return "".join(f"{';'.join([thread, *frames])} {count}\n" for count, frames in lines)


def names(text, own_ns=10 * S):
    return {one.name: one.ns / S for one in told(text, own_ns)}


def test_what_is_told():
    text = stacks(
        (30, [RUNPY, MAIN, ACCURACY, ARGMAX]),
        (20, [MAIN, ACCURACY, ARGMAX, f"argmax ({SITE}/numpy/core.py:3)"]),
        (10, [MAIN]),
        (40, [MAIN, LINK, APPLY]),
    )
    # All looks stand for the whole time, also those at what is told otherwise.
    assert names(text) == {"accuracy (train.py): CRF1d.argmax": 5.0, "<module> (train.py)": 1.0}
    for frames, found in (
        # The profiler's frames between are passed over.
        ([MAIN, TRAINER, WRAPPER, EXTENSION, WRAPPER, ACCURACY], {"accuracy (train.py)": 10.0}),
        # What is told otherwise.
        ([MAIN, LINK, ACCURACY, APPLY], {}),
        ([MAIN, IMPORT, f"<module> ({SITE}/nltk/__init__.py:1)"], {}),
        ([MAIN, TRAINER, EXTENSION], {}),
        ([MAIN, WRAPPER], {}),
        ([MAIN, WRAPPER, WITH], {}),
        ([f"worker ({SITE}/pool.py:1)"], {}),
        ([], {}),
    ):
        assert names(stacks((10, frames))) == found, frames
    # Threads and lines that count for nothing.
    text = stacks((10, [MAIN])) + stacks((90, [ACCURACY]), thread="thread (2): Thread-1")
    assert names(text + "no stack\n;;; x\n") == {"<module> (train.py)": 10.0}
    assert names("") == {}
    # The most first and not all.
    lines = [(n + 1, [f"f{n} (/home/me/a.py:1)"]) for n in range(30)]
    assert [one.looks for one in told(stacks(*lines), S)] == list(range(30, 18, -1))


def spin(seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


@pytest.fixture
def looks():
    if shutil.which("py-spy", path=sysconfig.get_path("scripts")) is None:
        needs.missing("py-spy")
    looks = Looks()
    looks.start()
    if looks.problem:
        pytest.skip(looks.problem)
    return looks


def test_a_look_that_has_just_begun_ends(looks):
    looks.end(S)
    assert not looks._looks_on()


def test_a_real_look(looks):
    try:
        # It is no child of ours.
        assert not any("py-spy" in child.name() for child in psutil.Process().children())
        spin(0.5)
    finally:
        found = looks.end(S)
    assert looks.end(S) == ()
    if found:  # where the system lets it look
        assert any(one.name.startswith("spin (test_looks.py)") for one in found)


def test_no_look_goes_on_where_there_is_no_such_program(tmp_path, monkeypatch):
    did = []
    monkeypatch.setattr(Looks, "start", lambda self: did.append("start"))
    monkeypatch.setattr(Looks, "end", lambda self, own_ns: did.append("end"))
    program = Script(str(tmp_path / "none.py"))
    with pytest.raises(UsageError), ScriptRun(program, None, tmp_path / "run") as running:
        running.run()
    assert did == ["start", "end"]


def test_without_py_spy(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    looks = Looks()
    looks.start()
    assert "py-spy is not installed" in looks.problem
    assert looks.end(S) == ()
