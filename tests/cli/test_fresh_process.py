"""Networks run in a process that has imported only Chainer, as in a loop without the profiler."""

import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.scripts import python

pytestmark = pytest.mark.process

NET = """
import atexit, resource, statistics, sys
from pathlib import Path
import chainer, chainer.functions as F

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

class Relus(chainer.Chain):
    def forward(self, x):
        # What importing these frees makes glibc keep memory.
        assert not sys.modules.keys() & {"pandas", "rich", "matplotlib"}
        before = faults()
        for _ in range(8):
            x = F.relu(x)
        counts.append(faults() - before)
        return x

counts = []
atexit.register(lambda: Path("faults").write_text(str(statistics.median(counts))))
"""
LOOP = """
import chainer_profile, chainer, numpy as np
from net import Relus
model, x = Relus(), np.ones((8, 3, 64, 64), "f")
with chainer.using_config("train", False), chainer.no_backprop_mode():
    for _ in range(100):
        model(x)
"""
PROFILE = [
    *("--model", "net.py:Relus", "--input-shape", "3x64x64", "-b", "8", "-q", "--format", "none"),
    *("--threads", "1", "--warmups", "20", "--trials", "30", "--clean-trials", "60"),
]


def page_faults(*words):
    """Return the page faults in the median call of the network, in a process with these words."""
    Path("net.py").write_text(NET)
    done = python(*words, env={"PYTHONPATH": f"{ROOT}:{Path.cwd()}", "OPENBLAS_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    return float(Path("faults").read_text())


@pytest.mark.skipif(sys.platform != "linux", reason="other C libraries keep memory otherwise")
def test_trials_have_the_page_faults_of_a_loop_in_a_fresh_process(folder):
    in_loop = page_faults("-c", LOOP)
    assert page_faults(str(ROOT / "profile.py"), *PROFILE) == pytest.approx(in_loop, rel=0.1, abs=8)
    kept = page_faults(str(ROOT / "profile.py"), *PROFILE, "--keep-memory", "--force", "-o", "kept")
    assert kept < 8


def test_engines_run_before_pandas_is_imported(folder):
    words = ("engines", "--engines", "chainer", *PROFILE[:4], "-q", "--trials", "3")
    page_faults(str(ROOT / "profile.py"), *words)
