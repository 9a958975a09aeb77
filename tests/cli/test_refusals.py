"""Command lines that are refused: one line, an exit code, and no written files."""

import shlex
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.ranks import training
from chainer_profile.basics.parsing import usable_cores
from chainer_profile.basics.units import plural
from chainer_profile.record.recording import Settings
from tests.command import OWN
from tests.conftest import make_recording, make_training

#: Networks and engines of the user.
NETWORKS = f"""{OWN}
seven = 7
def take(n): return Net()
def give(): return 7
def fail(): raise ValueError('no network\\ntoday')

class Fast:
    name = 'fast'
    prepare = run = layers = save = load = give
class Wrong(Fast):
    name = 'wrong'

def changed(change):
    class Changed(Net):
        def forward(self, x): return change(super().forward(x))
    return Changed
class Nothing(Net):
    def forward(self, x): return x
class Ends(Net):
    def forward(self, x): raise SystemExit('bye')
Twice, Index, First = changed(lambda y: (y, y)), changed(F.argmax), changed(lambda y: y[0])
Sums = changed(lambda y: F.cumsum(y, axis=1))
"""
CORES = plural(usable_cores() or 1, "core")

#: Exit codes, arguments, and the beginning of the message.
REFUSED = f"""
2 | --trials 0 | argument -n/--trials: must be a whole number, 1 or more, not '0'
2 | --trials 9... | argument -n/--trials: must be a whole number, 1 or more, not '999999999999999999
2 | --threads 999999999 | argument --threads: 999,999,999 threads are too many for {CORES}
2 | --seed -1 | argument --seed: must be a whole number, 0 or more, not '-1'
2 | --max-seconds 0 | argument --max-seconds: must be a number of seconds above 0, not '0'
2 | --out '' | argument -o/--out: must be the name of a folder, not ''
2 | --force | --force replaces the run in a folder: name it with --out
2 | --data-dir x | --data-dir is for CIFAR-10: add --input cifar10
2 | --seed 0 extra | unrecognized arguments: extra
2 | --hotspots many | argument --hotspots: 'many' is not a rule for hotspots: give a time (0.36ms),
2 | --input-shape 3xx | argument --input-shape: not a shape: '3xx'; write whole numbers such as 3,32
2 | --input photo --input-shape 3x8x8 | unknown input 'photo': use random, cifar10 or the path of a
2 | --input photo.png | a picture has 1 or 3 channels, height and width, but the network takes 3: us
2 | --model tinny | unknown model 'tinny': did you mean tiny? Your own network is package.module:Cal
2 | --model zzz | unknown model 'zzz': known are tiny, other. Your own network is package.module:Cal
2 | --model absent:Net | module 'absent' is neither in this folder nor installed: your own network
2 | --model absent.py:Net | model absent.py:Net: there is no file absent.py
2 | --model os.path:nothing | os.path has no 'nothing', and it contains no network
2 | --columns peek | argument --columns: unknown column of the layer table: 'peek' (did you mean pea
2 | --classes 5 | tiny returns feature maps, so it has no number of classes
2 | --tirals=100 | unrecognized arguments: --tirals=100 (did you mean --trials?)
2 | --input-shape 3 --model own.py | model 'own.py': name a network of the file, as in own.py:Callab
2 | --input-shape 3 --model own.py:Nett | own.py has no 'Nett': did you mean Net?
2 | --input-shape 3 --model own.py:seven | seven of own.py is an int: name a chainer.Link, or a clas
2 | --input-shape 3 --model own.py:take | take of own.py takes (n): missing a required argument: 'n'
1 | --input-shape 3 --model own.py:give | give of own.py returns an int, not a chainer.Link such as
1 | --input-shape 3 --model own.py:fail | building fail of own.py failed: ValueError: no network tod
1 | --input-shape 3 --model bad.py:Net | importing bad.py failed: ModuleNotFoundError: No module nam
1 | --weights absent.npz | there is no weights file absent.npz
1 | --weights . | . is a folder, not a weights file
1 | --weights other.npz | other.npz does not fit this network: it has no fc/W; it has no fc/b; the n
1 | --input-shape 3x8x8 --input absent.png | there is no picture absent.png
1 | report absent.npz | absent.npz: no such recording
1 | report empty | empty contains no run (no recording.npz)
2 | advise --budget soon | argument --budget: must be a time such as 90s or 3m, not 'soon'
2 | advise --gpu 0 | unrecognized arguments: --gpu (see profile.py advise --help)
2 | export net.pt | net.pt: name a file that ends with .onnx
2 | export . | .: name a file that ends with .onnx
2 | summary --columns path,times | unknown column of the table of layers: 'times'; known are index,
1 | summary --input-shape 4 | the network fails with an input of 1x4, in Linear at /fc: InvalidType:
2 | --model own.py:Net | --model own.py:Net: give the shape of its input, such as --input-shape 3x32
1 | --phase train --loss output | the network's output has shape (1, 2), but a loss is one number
1 | report damaged | damaged: the run was killed before its end; 8 bytes of its journal are dama
2 | compare run.npz | give at least two runs: python profile.py compare BEFORE AFTER
2 | compare run.npz run.npz, | 'run.npz,': name a folder before and after each comma
1 | compare run.npz,run.npz again.npz | run.npz,run.npz: a run is given twice
2 | compare a b --fail-above 1% | --fail-above must be at least --min-effect, below which changes ar
2 | compare a b --gate cpu | --gate cpu needs --fail-above
1 | compare run.npz elsewhere.npz | the runs have no layer in common
1 | compare run.npz again.npz data.npz | data.npz: the runs have no phase in common
1 | compare run.npz,training.npz again.npz | run.npz,training.npz: its runs differ in network: cha
2 | advise program.npz | program.npz is the run of a program, and advise builds networks; to try wh
2 | advise run.npz --model tiny | run.npz has its own network and folder: leave out --model
2 | export there.onnx | there.onnx exists already; replace it with --force
2 | export folder.onnx --force | folder.onnx is a folder; name a file
1 | export text.npz/net.onnx | text.npz: cannot be written (File exists)
2 | engines --load-engine absent.onnx | --load-engine absent.onnx: there is no such file
2 | engines --tolerance 2 | argument --tolerance: must be a number above 0 up to 1, such as 1e-4, no
2 | engines --engines onnx-runtime | unknown engine 'onnx-runtime': did you mean onnxruntime?
2 | engines --engines onnxruntime:OpenVINO | unknown engine 'onnxruntime:OpenVINO': execution prov
2 | engines --engines own:Absent | engine own:Absent: own has no 'Absent'
2 | engines --engines own:Net | engine own:Net is not an engine: it has no prepare, run, layers
2 | engines --engines chainer-fast --load-engine there.onnx | --load-engine there.onnx: none of the
2 | engines --engines own:Fast,own:Wrong --load-engine there.bin | --load-engine there.bin could be
1 | engines --engines own:fail | engine own:fail: cannot be made: ValueError: no network today
2 | run | name a program: python profile.py run SCRIPT [ARGS ...]
2 | own.py -e 2 | to profile a program: python profile.py run own.py -e 2
2 | run -- none.py | none.py: cannot be read (No such file or directory)
1 | --gpu 0 | --gpu 0: CuPy
1 | --input-shape 3 --model own.py:Nothing | the network calls no Chainer function, so there is noth
1 | --input-shape 3 --model own.py:Ends | the network ends the program: SystemExit: bye
1 | --input-shape 3 --model own.py:Twice --phase train | no loss can be computed from the network
1 | --input-shape 3 --model own.py:Index --phase train | no loss can be computed from the network
1 | --input-shape 3 --model own.py:First --phase train | the network's output has shape (2,), but so
2 | --format html | argument --format: unknown format 'html': choose json, trace, folded
2 | --format none,json | argument --format: none means no report: give it alone (see profile.
2 | --format trace:4 | --format trace:4: the trials are 0 to 3
2 | --skip gpu | argument --skip: 'gpu' cannot be skipped: choose memory, counters, machine
2 | --fast --gpu 0 | --fast is for the CPU: leave out --gpu
2 | --counters --skip counters | --counters is for the CPU: leave out --counters or --skip
2 | report several --format json | several contains a run of several engines; use --format with one
2 | report ranks --format json | ranks contains the ranks of a training; use --format with one
2 | report empty -o x | --out is for the ranks of a training: a run's reports are in its folder
2 | --out own.py | --out own.py: is a file; name a folder
2 | --out own.py/a/run | --out own.py/a/run: a part of this path is a file
1 | --out empty/9... | empty/99999999999999999999
2 | train --snapshot every=0 | argument --snapshot: must be every=N with N iterations, 1 or more, no
2 | train --resume --force | --resume continues a training and --force replaces it: give only one of
2 | train -d cifar10:5 | argument -d/--dataset: 'cifar10:5' is no data set: choose cifar10, cifar100
2 | train -d synthetic --data-dir . | --data-dir is for CIFAR: the synthetic set is generated each
2 | train -d synthetic:50 -b 51 | --batchsize 51: the training set has only 50 imag
2 | train -d synthetic -o new --resume | --resume: there is no folder new; name it with --out
1 | train -d synthetic -o empty --resume | --resume: there is no snapshot in empty; name its folder
1 | train -g 0 -m own.py:Net -d synthetic:50 -b 5 | --gpu 0: CuPy
1 | train -d cifar10 --data-dir none -b 10 | --data-dir none: cifar-10-python.tar.gz cannot be read
2 | sweep | give --model, or a TOML file with the cases
2 | sweep --model "a^b" | unknown model 'a\\nb'
2 | sweep missing.toml | missing.toml: cannot be read (No such file or directory)
2 | sweep missing.toml --model tiny | --model and missing.toml: give the cases in one place
2 | sweep --model tiny --out planned | --out planned contains another sweep (with other); name anot
2 | sweep --model tiny --out here | --out here contains a run; name another folder for the sweep
1 | report . | . contains no run (no recording.npz); ranks contains ranks
1 | report ranks | ranks: these are not the ranks of one training: rank-0 is one of 2, rank-1 one of
1 | compare run.npz again.npz --fail-above 5% --gate cpu | run.npz: its unprofiled trials have
1 | export net.onnx --model own.py:Sums --input-shape 3 | net.onnx: the ONNX exporter does not
"""


def rows():
    """Read the table; ``9...`` replaces a number of 5,000 digits, and ``^`` a line break."""
    for line in REFUSED.strip().splitlines():
        code, words, message = line.split(" | ")
        argv = shlex.split(words.replace("9...", "9" * 5000).replace("^", "\n"))
        yield int(code), argv, message


@pytest.fixture
def files(folder):
    """Make files that are no networks, weights or recordings, and damaged ones."""
    Path("own.py").write_text(NETWORKS)
    Path("bad.py").write_text("import absent_module")
    Path("text.npz").write_text("text")
    runs = {"run": make_recording(), "again": make_recording(seed=1), "training": make_training()}
    for name, change in (("elsewhere", {"path": "/else"}), ("data", {"phase": "data"})):
        layers = tuple(replace(layer, **change) for layer in runs["run"].layers)
        runs[name] = replace(runs["run"], layers=layers)
    settings = Settings(command="python profile.py run train.py")
    runs["program"] = make_recording(settings=settings)
    for name, recording in runs.items():
        recording.save(Path(f"{name}.npz"))
    np.savez("other.npz", **{"conv/W": np.zeros((2, 4), "f")})
    places = ("empty", "damaged", "folder.onnx", "several", "planned", "here", "ranks")
    for name in (*places, "ranks/rank-0", "ranks/rank-1"):
        Path(name).mkdir()
    Path("several/engines.json").write_text("{}")
    Path("here/recording.npz").touch()
    Path("planned/sweep.json").write_text(
        '{"format": "chainer-profile sweep", "version": 1,'
        ' "cases": [{"name": "other", "model": "other"}]}'
    )
    for number, (name, recording) in enumerate(training(2, 30, 8).items()):
        rank = replace(recording.rank, size=2 + number, number=2 * number)
        replace(recording, rank=rank).save(Path("ranks", name, "recording.npz"))
    Path("damaged/recording.journal").write_bytes(b"chainer-profile journal 3\n" + bytes(8))
    for name in ("there.onnx", "there.bin"):
        Path(name).write_bytes(b"old")


def content():
    return {
        path: path.read_bytes() if path.is_file() else b""
        for path in Path().rglob("*")
        if "__pycache__" not in path.parts
    }


def test_refusal_is_one_line_and_changes_no_files(files, fails, subtests, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    before = content()
    for code, words, message in rows():
        with subtests.test(words=" ".join(words)[:60]):
            assert fails(*words, code=code).startswith(message)
            assert content() == before
