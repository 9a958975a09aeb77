"""What a command line is refused for: one line, an exit code, and nothing is written."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from pathlib import Path

import chainer
import numpy as np
import pytest

from chainer_profile.basics.parsing import usable_cores
from chainer_profile.basics.units import plural
from chainer_profile.cli import main as cli
from chainer_profile.record import recording as recordings
from tests.command import OWN, Entry, Net, folder, one_line  # noqa: F401
from tests.conftest import make_recording, make_training

CORES = plural(usable_cores() or 1, "core")

#: Exit codes, words, and how the message begins.
REFUSED = f"""
2 | --trials 0 | argument -n/--trials: must be a whole number, 1 or more, not '0'
2 | --trials -5 | argument -n/--trials: must be a whole number, 1 or more, not '-5'
2 | --trials abc | argument -n/--trials: must be a whole number, 1 or more, not 'abc'
2 | --trials 1e3 | argument -n/--trials: must be a whole number, 1 or more, not '1e3'
2 | --trials 9... | argument -n/--trials: must be a whole number, 1 or more, not '999999999999999999
2 | --warmups -1 | argument -w/--warmups: must be a whole number, 0 or more, not '-1'
2 | --clean-trials x | argument --clean-trials: must be a whole number, 0 or more, not 'x'
2 | --batchsize 0 | argument -b/--batchsize: must be a whole number, 1 or more, not '0'
2 | --threads 0 | argument --threads: must be a whole number, 1 or more, not '0'
2 | --threads 999999999 | argument --threads: 999,999,999 threads are more than {CORES} can run
2 | --gpu -2 | argument -g/--gpu: must be a whole number, -1 or more, not '-2'
2 | --seed -1 | argument --seed: must be a whole number, 0 or more, not '-1'
2 | --seed 4294967296 | the seed must be from 0 to 4294967295, not 4294967296
2 | --limit -1 | argument --limit: must be a whole number, 0 or more, not '-1'
2 | --max-seconds 0 | argument --max-seconds: must be a number of seconds above 0, not '0'
2 | --max-seconds nan | argument --max-seconds: must be a number of seconds above 0, not 'nan'
2 | --out '' | argument -o/--out: must be the name of a folder, not ''
2 | --force | --force replaces the run in a folder: name it with --out
2 | --index 3 | --index is for CIFAR-10: give --input cifar10 as well
2 | --data-dir x | --data-dir is for CIFAR-10: give --input cifar10 as well
2 | --zzz | unrecognized arguments: --zzz
2 | --trial 4 | unrecognized arguments: --trial 4 (did you mean --trials?)
2 | extra | unrecognized arguments: extra
2 | --trials | argument -n/--trials: expected one argument
2 | --sort size | argument --sort: invalid choice: 'size'
2 | --hotspots many | argument --hotspots: 'many' is no rule for hotspots: give a time (0.36ms), a s
2 | --until-ci 0 | argument --until-ci: '0' is no percentage: give a number above 0 up to 100, such
2 | --input-shape 3xx | argument --input-shape: not a shape: '3xx'; write whole numbers such as 3,32
2 | --input-shape 0x3 | argument --input-shape: not a shape: '0x3'; every number must be at least 1
2 | --input photo --input-shape 3x8x8 | unknown input 'photo': it is random, cifar10 or the path of
2 | --input photo.png | a picture has 1 or 3 channels, height and width, but the network takes 3: us
2 | --model tinny | unknown model 'tinny': did you mean tiny? Your own network is package.module:Cal
2 | --model zzz | unknown model 'zzz': known are tiny, other. Your own network is package.module:Cal
2 | --model absent:Net | there is no module 'absent' here or installed: an own network is package.mo
2 | --model absent.py:Net | model absent.py:Net: there is no file absent.py
2 | --model os.path:nothing | os.path has no 'nothing', and no other network
2 | report | the following arguments are required: DIR (see profile.py report --help)
2 | report a b | unrecognized arguments: b (see profile.py report --help)
2 | --phase backward | argument --phase: invalid choice: 'backward'
2 | --loss hinge | argument --loss: invalid choice: 'hinge'
2 | --group-by colour | argument --group-by: invalid choice: 'colour'
2 | --columns path,pick | argument --columns: unknown column of the layer table: 'pick'; known are i
2 | --columns peek | argument --columns: unknown column of the layer table: 'peek' (did you mean pea
2 | --columns '' | argument --columns: unknown column of the layer table: ''; known are index, label
2 | --columns path --tree | argument --tree: not allowed with argument --columns
2 | --depth -1 | argument --depth: must be a whole number, 0 or more, not '-1'
2 | --input-size 32 | argument --input-size: not a height and a width: '32'; write them as 1024x2048
2 | --input-size 3x32x32 | argument --input-size: not a height and a width: '3x32x32'; write them as
2 | --input-size 0x32 | argument --input-size: not a shape: '0x32'; every number must be at least 1
2 | --input-size 8x8 --input-shape 3x8x8 | give --input-shape or --input-size, not both
2 | --input-size 8x8 | --input-size: tiny takes no images
2 | --classes 0 | argument --classes: must be a whole number, 1 or more, not '0'
2 | --classes 5 | tiny gives feature maps: it has no classes to choose
2 | --tirals 100 | unrecognized arguments: --tirals 100 (did you mean --trials?)
2 | --tirals=100 | unrecognized arguments: --tirals=100 (did you mean --trials?)
2 | compare a b --fail-abov 3 | unrecognized arguments: --fail-abov 3 (did you mean --fail-above?)
2 | train --dataste x | unrecognized arguments: --dataste x (did you mean --dataset?)
2 | history --zzz | unrecognized arguments: --zzz (see profile.py history --help)
2 | --input-shape 3 --model own.py | model 'own.py': say which network of the file, as own.py:Callab
2 | --input-shape 3 --model own.py:Nett | own.py has no 'Nett': did you mean Net?
2 | --input-shape 3 --model own.py:seven | seven of own.py is an int: name a class or a function tha
2 | --input-shape 3 --model own.py:take | take of own.py takes (n), and missing a required argument:
1 | --input-shape 3 --model own.py:give | give of own.py gives an int, not a chainer.Link such as a
1 | --input-shape 3 --model own.py:fail | building fail of own.py failed: ValueError: no network tod
1 | --input-shape 3 --model bad.py:Net | importing bad.py failed: ModuleNotFoundError: No module nam
1 | --input-shape 3 --model syntax.py:Net | importing syntax.py failed: SyntaxError:
1 | --weights absent.npz | there is no weights file absent.npz
1 | --weights . | . is a folder, not a weights file
1 | --weights text.npz | text.npz is not an npz file: weights are files of chainer.serializers.save_
1 | --weights cut-good.npz | cut-good.npz is cut short or damaged
1 | --weights wide.npz | wide.npz does not fit this network: fc/W is (2, 4) in the file, (2, 3) in t
1 | --weights other.npz | other.npz does not fit this network: it has no fc/W; it has no fc/b; the n
1 | --input-shape 3x8x8 --input absent.png | there is no picture absent.png
1 | --input-shape 3x8x8 --input text.png | text.png is not a picture that Pillow can read
1 | --input-shape 3x8x8 --input cut-good.png | cannot read the picture cut-good.png: image file is t
1 | report absent.npz | absent.npz: there is no such recording
1 | report empty | empty: holds no run (there is no recording.npz in it)
1 | report cut-run.npz | cut-run.npz: damaged, or not a recording (
1 | report text.npz | text.npz: damaged, or not a recording (it is no .npz archive)
1 | report one.npy | one.npy: damaged, or not a recording (it is no .npz archive)
1 | report other.npz | other.npz: is no chainer-profile recording (it holds no 'meta')
1 | report newer.npz | newer.npz: has format version 1000, this program reads up to
1 | report none | none: holds no run (there is no recording.npz in it)
2 | machine --gpu x | argument -g/--gpu: must be a whole number, -1 or more, not 'x'
2 | machine more | unrecognized arguments: more (see profile.py machine --help)
2 | machine --quiet | unrecognized arguments: --quiet (see profile.py machine --help)
2 | advise --budget soon | argument --budget: must be a time such as 90s or 3m, not 'soon'
2 | advise --budget 0m | argument --budget: must be a time such as 90s or 3m, not '0m'
2 | advise --force | --force replaces the run in a folder: name it with --out
1 | advise nowhere | nowhere: there is no such recording
2 | advise --index 3 | --index is for CIFAR-10: give --input cifar10 as well
2 | advise --gpu 0 | unrecognized arguments: --gpu (see profile.py advise --help)
2 | export --to net.pt | --to net.pt: name a file that ends with .onnx or .xml
2 | export --to . | --to .: name a file that ends with .onnx or .xml
2 | export | the following arguments are required: --to (see profile.py export --help)
2 | export --to net.onnx --precision int8 | argument --precision: invalid choice: 'int8'
2 | summary --arrays | unrecognized arguments: --arrays (see profile.py summary --help)
2 | summary --phase train | argument --phase: invalid choice: 'train'
2 | summary --input-shape 3 --input-size 3x3 | give --input-shape or --input-size, not both
2 | summary --input-size 3x3 | --input-size: tiny takes no images
2 | summary --columns '' | unknown column of the table of layers: ''; known are index, path, functio
2 | summary --columns mac | unknown column of the table of layers: 'mac' (did you mean macs?); known
2 | summary --columns path,times | unknown column of the table of layers: 'times'; known are index,
2 | summary --columns path,times --depth 1 | unknown column of the table of links: 'times'; known ar
2 | summary --model own.py:Net | --model own.py:Net: give the shape of its input, such as --input-sh
1 | summary --input-shape 4 | the network fails with an input of 1x4, in Linear at /fc: InvalidType:
2 | --model own.py:Net | --model own.py:Net: give the shape of its input, such as --input-shape 3x32
1 | --input-shape 5 | the network fails with an input of 1x5, in Linear at /fc: InvalidType:
1 | --phase train --loss output | the network's output has the shape (1, 2): it is no loss, which is
1 | report damaged | damaged/recording.journal: damaged
2 | report run.npz --columns meen | argument --columns: unknown column of the layer table: 'meen' (d
2 | compare | the following arguments are required: DIR
2 | compare run.npz | give two runs at least: profile.py compare BEFORE AFTER
1 | compare run.npz absent.npz | absent.npz: there is no such recording
2 | compare run.npz run.npz, | 'run.npz,': name a folder before and after each comma
1 | compare run.npz,run.npz again.npz | run.npz,run.npz: a run is given twice
2 | compare a b --fail-above 1% | --fail-above is less than --min-effect, below which nothing is a c
2 | compare a b --fail-above x | argument --fail-above: 'x' is no percentage: give a number above 0
2 | compare a b --gate cpu | --gate cpu goes with --fail-above
2 | compare a b --sort name | argument --sort: invalid choice: 'name'
2 | compare a b --limit -1 | argument --limit: must be a whole number, 0 or more, not '-1'
1 | compare run.npz cut-run.npz | cut-run.npz: damaged, or not a recording (
1 | compare run.npz elsewhere.npz | the runs have no layer in common
1 | compare run.npz again.npz data.npz | data.npz: the runs have no phase in common
1 | compare run.npz,training.npz again.npz | run.npz,training.npz: its runs are not of the same thin
1 | compare run.npz empty | empty: holds no run
2 | ranks nowhere | nowhere: there is no such folder
2 | ranks empty | empty: holds no folders rank-0, rank-1, ... of ranks
2 | advise run.npz --model tiny | run.npz has its own network and folder: leave out --model
2 | advise run.npz --out there | run.npz has its own network and folder: leave out --out
2 | export --to there.onnx | --to there.onnx: is there already; replace it with --force
2 | export --to there.xml | --to there.bin: is there already; replace it with --force
2 | export --to folder.onnx --force | --to folder.onnx: is a folder; name a file
2 | export --to net.xml --dynamic-batch | --dynamic-batch: net.xml is for one batch size; only .onnx
2 | export --to net.xml --opset 17 | --opset 17: only .onnx files have one, and not net.xml
1 | export --to net.onnx --opset 9999 | net.onnx: --opset 9999:
1 | export --to net.onnx --precision bf16 | net.onnx: it has no kernels for bfloat16: choose fp32
1 | export --to net.onnx --input-shape 4 | the network fails with an input of 1x4, in Linear at /fc:
1 | export --to text.npz/net.onnx | text.npz: cannot be written (File exists)
2 | engines --force | --force replaces the run in a folder: name it with --out
2 | engines --index 3 | --index is for CIFAR-10: give --input cifar10 as well
2 | engines --data-dir x | --data-dir is for CIFAR-10: give --input cifar10 as well
2 | engines --load-engine absent.onnx | --load-engine absent.onnx: there is no such file
2 | engines --save-engine there.onnx | --save-engine there.onnx: is there already; replace it with -
2 | engines --tolerance 2 | argument --tolerance: must be a number above 0 up to 1, such as 1e-4, no
2 | engines --precision int8 | argument --precision: invalid choice: 'int8'
2 | engines --engines chainer --out own.py | --out own.py: is a file; name a folder
2 | engines --engines onnx-runtime | unknown engine 'onnx-runtime': did you mean onnxruntime?
2 | engines --engines own:Absent | engine own:Absent: own has no 'Absent'
2 | engines --engines own:Net | engine own:Net: is no engine, as it has no prepare and no run and no
2 | engines --engines absent.py:Fast | engine absent.py:Fast: there is no file absent.py
2 | engines --engines no_such_place:Fast | there is no module 'no_such_place'
2 | engines --engines own:Fast --save-engine x.onnx | --save-engine x.onnx: no engine of this run ha
2 | engines --engines own:Fast,own:Wrong --save-engine x.fast | --save-engine x.fast: is it fast or
2 | engines --engines own:a-b | engine 'own:a-b': your own engine is module:Class or path/to/file.py
1 | engines --engines own:fail | engine own:fail: cannot be made: ValueError: no network today
2 | run | name a program: profile.py run SCRIPT [ARGS ...]
2 | run -- | name a program: profile.py run SCRIPT [ARGS ...]
2 | run -- none.py | none.py: cannot be read (No such file or directory)
2 | run --force own.py | --force replaces the run in a folder: name it with --out
"""


def rows() -> list[tuple[int, str, str]]:
    """The table; a number of 5,000 digits stands there as ``9...``."""
    found = []
    for line in REFUSED.strip().splitlines():
        code, words, message = line.split(" | ")
        found.append((int(code), words.replace("9...", "9" * 5000), message))
    return found


@pytest.fixture
def files(folder: Path) -> list[str]:  # noqa: F811
    """Files that are no networks, weights, pictures or recordings, or damaged ones."""
    from PIL import Image

    Path("own.py").write_text(
        f"{OWN}\nseven = 7\ndef take(n): return Net()\ndef give(): return 7\n"
        "def fail(): raise ValueError('no network\\ntoday')\n"
        "class Fast:\n    name, suffix = 'fast', '.fast'\n"
        "    prepare = run = layers = save = load = give\n"
        "class Wrong(Fast):\n    name = 'wrong'\n"
    )
    Path("bad.py").write_text("import absent_module")
    Path("syntax.py").write_text("def f(:")
    for name in ("text.npz", "text.png"):
        Path(name).write_text("text")
    chainer.serializers.save_npz("good.npz", Net())
    noise = np.random.default_rng(0).integers(0, 256, (40, 40, 3), np.uint8)
    Image.fromarray(noise).save("good.png")
    runs = {"run": make_recording(), "again": make_recording(seed=1), "training": make_training()}
    for name, change in (("elsewhere", {"path": "/else"}), ("data", {"phase": "data"})):
        layers = tuple(replace(layer, **change) for layer in runs["run"].layers)
        runs[name] = replace(runs["run"], layers=layers)
    for name, recording in runs.items():
        recording.save(Path(f"{name}.npz"))
    for name in ("good.npz", "good.png", "run.npz"):
        content = Path(name).read_bytes()
        Path(f"cut-{name}").write_bytes(content[: len(content) // 2])
    np.savez("wide.npz", **{"fc/W": np.zeros((2, 4), "f"), "fc/b": np.zeros(2, "f")})
    np.savez("other.npz", **{"conv/W": np.zeros((2, 4), "f")})
    np.save("one.npy", np.zeros(3))
    for name in ("empty", "none", "damaged", "folder.onnx"):
        Path(name).mkdir()
    Path("none/mine.txt").write_text("mine")
    Path("damaged/recording.journal").write_bytes(b"chainer-profile journal\n2\n{}")
    for name in ("there.onnx", "there.bin"):
        Path(name).write_bytes(b"old")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recordings, "VERSION", 1000)
        make_recording().save(Path("newer.npz"))
    return sorted(os.listdir())


@pytest.mark.parametrize(("code", "words", "message"), rows(), ids=lambda value: str(value)[:40])
def test_a_refusal_is_one_line(
    code: int, words: str, message: str, files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    registry = {"tiny": Entry(), "other": Entry(name="other")}
    argv = shlex.split(words)
    of_network = ("advise", "engines", "export", "summary")
    if argv[0] in of_network and argv[1:] and argv[1].startswith("-"):
        argv[1:1] = ["--model", "tiny"]
    elif argv[0].startswith("-") or argv == ["extra"]:
        argv = ["--model", "tiny", "--warmups", "1", *argv]
    assert cli.main(argv, registry) == code
    out, err = capsys.readouterr()
    assert out == ""
    program, _, said = one_line(err).partition(": error: ")
    assert program == ("train.py" if argv[0] == "train" else "profile.py")
    assert said.startswith(message)
    assert sorted(name for name in os.listdir() if name != "__pycache__") == files
