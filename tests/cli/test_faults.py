"""What goes wrong is said in one line, with the right exit code, and nothing measured is lost."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import chainer
import chainer.functions as F
import numpy as np
import pytest

from chainer_profile.basics.parsing import usable_cores
from chainer_profile.basics.units import plural
from chainer_profile.cli import main as cli
from chainer_profile.runs.folder import load_run
from models.registry import REGISTRY
from tests.command import (  # noqa: F401
    OWN,
    Net,
    folder,
    main,
    one_line,
)


def said(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line of a command that failed, which printed nothing else."""
    out, err = capsys.readouterr()
    assert out == ""
    line = one_line(err)
    assert line.startswith("profile.py: error: ")
    return line.removeprefix("profile.py: error: ")


CORES = plural(usable_cores() or 1, "core")
NUMBER = "must be a whole number, {} or more, not {!r} (see profile.py --help)"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--trials", "0"], "argument -n/--trials: " + NUMBER.format(1, "0")),
        (["--trials", "-5"], "argument -n/--trials: " + NUMBER.format(1, "-5")),
        (["--trials=-5"], "argument -n/--trials: " + NUMBER.format(1, "-5")),
        (["--trials", "abc"], "argument -n/--trials: " + NUMBER.format(1, "abc")),
        (["--trials", "1e3"], "argument -n/--trials: " + NUMBER.format(1, "1e3")),
        (["--trials", "9" * 5000], "argument -n/--trials: " + NUMBER.format(1, "9" * 40)),
        (["--warmups", "-1"], "argument -w/--warmups: " + NUMBER.format(0, "-1")),
        (["--clean-trials", "x"], "argument --clean-trials: " + NUMBER.format(0, "x")),
        (["--batchsize", "0"], "argument -b/--batchsize: " + NUMBER.format(1, "0")),
        (["--threads", "0"], "argument --threads: " + NUMBER.format(1, "0")),
        (
            ["--threads", "999999999"],
            f"argument --threads: 999,999,999 threads are more than {CORES} can run (see profile",
        ),
        (["--gpu", "-2"], "argument -g/--gpu: " + NUMBER.format(-1, "-2")),
        (["--seed", "-1"], "argument --seed: " + NUMBER.format(0, "-1")),
        (["--seed", "4294967296"], "the seed must be from 0 to 4294967295, not 4294967296"),
        (["--limit", "-1"], "argument --limit: " + NUMBER.format(0, "-1")),
        (
            ["--max-seconds", "0"],
            "argument --max-seconds: must be a number of seconds above 0, not '0' "
            "(see profile.py --help)",
        ),
        (
            ["--max-seconds", "nan"],
            "argument --max-seconds: must be a number of seconds above 0, not 'nan' "
            "(see profile.py --help)",
        ),
        (["--out", ""], "argument -o/--out: must be the name of a folder, not ''"),
        (["--force"], "--force replaces the run in a folder: name it with --out"),
        (["--index", "3"], "--index is for CIFAR-10: give --input cifar10 as well"),
        (["--data-dir", "x"], "--data-dir is for CIFAR-10: give --input cifar10 as well"),
        (["--zzz"], "unrecognized arguments: --zzz (see profile.py --help)"),
        (["--trial", "4"], "unrecognized arguments: --trial 4 (did you mean --trials?)"),
        (["extra"], "unrecognized arguments: extra (see profile.py --help)"),
        (["--trials"], "argument -n/--trials: expected one argument (see profile.py --help)"),
        (["--sort", "size"], "argument --sort: invalid choice: 'size'"),
        (["--hotspots", "many"], "argument --hotspots: 'many' is no rule for hotspots: give"),
        (["--until-ci", "0"], "argument --until-ci: '0' is no percentage: give a number above 0"),
        (["--input-shape", "3xx"], "argument --input-shape: not a shape: '3xx'; write"),
        (["--input-shape", "0x3"], "argument --input-shape: not a shape: '0x3'; every"),
        (
            ["--input", "photo", "--input-shape", "3x8x8"],
            "unknown input 'photo': it is random, cifar10 or the path of a picture",
        ),
        (
            ["--input", "photo.png"],
            "a picture has 1 or 3 channels, height and width, but the network takes 3: use a",
        ),
        (["--model", "tinny"], "unknown model 'tinny': did you mean tiny?"),
        (["--model", "zzz"], "unknown model 'zzz': known are tiny, other."),
        (["--model", "absent:Net"], "there is no module 'absent' here or installed"),
        (["--model", "absent.py:Net"], "model absent.py:Net: there is no file absent.py"),
        (["--model", "os.path:nothing"], "os.path has no 'nothing'"),
        (["report"], "the following arguments are required: DIR (see profile.py report --help)"),
        (["report", "a", "b"], "unrecognized arguments: b (see profile.py report --help)"),
    ],
)
def test_usage(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(*words) == 2
    assert said(capsys).startswith(message)
    assert os.listdir() == []


def test_the_nearest_models_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    cifar = {name: REGISTRY[name] for name in ("resnet20", "resnet20-he", "resnet32-he")}
    assert cli.main(["--model", "resnet21"], cifar) == 2
    assert said(capsys).startswith(
        "unknown model 'resnet21': did you mean resnet20, resnet32-he or resnet20-he?"
    )


@pytest.mark.parametrize(
    ("model", "code", "message"),
    [
        ("own.py", 2, "model 'own.py': say which network of the file, as own.py:Callable"),
        ("own.py:Nett", 2, "own.py has no 'Nett': did you mean Net?"),
        ("own.py:seven", 2, "seven of own.py is an int: name a class or a function that gives"),
        ("own.py:take", 2, "take of own.py takes (n), and missing a required argument"),
        ("own.py:give", 1, "give of own.py gives an int, not a chainer.Link such as a Chain"),
        ("own.py:fail", 1, "building fail of own.py failed: ValueError: no network today ("),
        ("bad.py:Net", 1, "importing bad.py failed: ModuleNotFoundError: No module named 'abse"),
        ("syntax.py:Net", 1, "importing syntax.py failed: SyntaxError: "),
    ],
)
def test_own_models(
    model: str, code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("own.py").write_text(
        f"{OWN}\nseven = 7\ndef take(n): return Net()\ndef give(): return 7\n"
        "def fail(): raise ValueError('no network\\ntoday')\n"
    )
    Path("bad.py").write_text("import absent_module")
    Path("syntax.py").write_text("def f(:")
    assert main("--model", model, "--input-shape", "3") == code
    assert said(capsys).startswith(message)
    assert not Path("reports").exists()


def test_an_own_model_needs_an_input_shape(capsys: pytest.CaptureFixture[str]) -> None:
    Path("own.py").write_text(OWN)
    assert main("--model", "own.py:Net") == 2
    assert said(capsys) == (
        "--model own.py:Net: give the shape of its input, such as --input-shape 3x32x32"
    )


def test_a_shape_that_the_network_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("--input-shape", "5") == 1
    line = said(capsys)
    assert line.startswith("the network fails with an input of 1x5, in Linear at /fc: InvalidType:")
    assert os.listdir() == []


def test_a_shape_that_a_function_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    class Reshaping(Net):
        def forward(self, x: Any) -> Any:
            return F.reshape(F.relu(x), (2, 2))

    assert main("--input-shape", "5", build=Reshaping) == 1
    line = said(capsys)
    assert line.startswith("the network fails with an input of 1x5, in Reshaping at /: InvalidType")
    assert "Reshape (Forward)" in line


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("absent.npz", "there is no weights file absent.npz"),
        (".", ". is a folder, not a weights file"),
        ("text.npz", "text.npz is not an npz file: weights are files of"),
        ("cut.npz", "cut.npz is cut short or damaged"),
        ("wide.npz", "wide.npz does not fit this network: fc/W is (2, 4) in the file, (2, 3) in"),
        ("other.npz", "other.npz does not fit this network: it has no fc/W; it has no fc/b; "),
    ],
)
def test_weights(name: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("text.npz").write_text("text")
    chainer.serializers.save_npz("good.npz", Net())
    content = Path("good.npz").read_bytes()
    Path("cut.npz").write_bytes(content[: len(content) // 2])
    np.savez("wide.npz", **{"fc/W": np.zeros((2, 4), "f"), "fc/b": np.zeros(2, "f")})
    np.savez("other.npz", **{"conv/W": np.zeros((2, 4), "f")})
    assert main("--weights", name) == 1
    assert said(capsys).startswith(message)
    assert not Path("reports").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("absent.png", "there is no picture absent.png"),
        ("text.png", "text.png is not a picture that Pillow can read"),
        ("cut.png", "cannot read the picture cut.png: "),
    ],
)
def test_pictures(name: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    from PIL import Image

    Path("text.png").write_text("text")
    noise = np.random.default_rng(0).integers(0, 256, (40, 40, 3), np.uint8)
    Image.fromarray(noise).save("good.png")
    Path("cut.png").write_bytes(Path("good.png").read_bytes()[:2000])
    assert main("--input", name, "--input-shape", "3x8x8") == 1
    assert said(capsys).startswith(message)
    assert not Path("reports").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "no CIFAR-10 here, and it cannot be downloaded (OSError: no network): name a "),
        (["--data-dir", "absent"], "--data-dir absent: cifar-10-python.tar.gz cannot be read"),
        (["--data-dir", "packed"], "packed/cifar-10-python.tar.gz is not the known archive"),
    ],
)
def test_cifar10(
    words: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def download(*_: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr(chainer.dataset.download, "_dataset_root", "root")
    monkeypatch.setattr(chainer.dataset.download.request, "urlretrieve", download)
    Path("packed").mkdir()
    Path("packed/cifar-10-python.tar.gz").write_bytes(b"something else")
    assert main("--input", "cifar10", "--input-shape", "3x32x32", *words) == 1
    # Chainer says first what it downloads.
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"profile.py: error: {message}")
    assert not Path("reports").exists()


def test_a_gpu_without_cupy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert main("--gpu", "0") == 1
    assert said(capsys).startswith("--gpu 0: CuPy ")
    assert os.listdir() == []


def test_debug_shows_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    Path("bad.py").write_text("import absent_module")
    assert main("--model", "bad.py:Net", "--input-shape", "3", "--debug") == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert any(line.startswith("ModuleNotFoundError: ") for line in lines)
    assert lines[-1].startswith("profile.py: error: importing bad.py failed: ")


def test_a_network_without_functions(capsys: pytest.CaptureFixture[str]) -> None:
    class Nothing(Net):
        def forward(self, x: Any) -> Any:
            return x

    assert main(build=Nothing) == 1
    assert said(capsys) == "the network calls no Chainer function, so there is nothing to time"
    assert os.listdir() == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("absent.npz", "absent.npz: there is no such recording"),
        ("empty", "empty: holds no run (there is no recording.npz in it)"),
        ("cut.npz", "cut.npz: damaged, or not a recording ("),
        ("text.npz", "text.npz: damaged, or not a recording (it is no .npz archive)"),
        ("one.npy", "one.npy: damaged, or not a recording (it is no .npz archive)"),
        ("other.npz", "other.npz: is no chainer-profile recording (it holds no 'meta')"),
        ("newer.npz", "newer.npz: has format version 1000, this program reads up to "),
        ("none", "none: holds no run"),
    ],
)
def test_recordings(
    name: str, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from chainer_profile.record import recording

    Path("empty").mkdir()
    Path("none").mkdir()
    Path("none/mine.txt").write_text("mine")
    Path("text.npz").write_text("text")
    np.save("one.npy", np.zeros(3))
    np.savez("other.npz", a=np.zeros(3))
    assert main("-q", "-o", "run") == 0
    content = Path("run/recording.npz").read_bytes()
    Path("cut.npz").write_bytes(content[: len(content) // 2])
    run = load_run(Path("run"))
    with monkeypatch.context() as patch:
        patch.setattr(recording, "VERSION", 1000)
        run.save(Path("newer.npz"))
    before = sorted(os.listdir())
    assert main("report", name) == 1
    assert said(capsys).startswith(message)
    assert sorted(os.listdir()) == before


def test_a_damaged_journal(capsys: pytest.CaptureFixture[str]) -> None:
    Path("run").mkdir()
    Path("run/recording.journal").write_bytes(b"chainer-profile journal\n2\n{}")
    assert main("report", "run") == 1
    assert said(capsys).startswith("run/recording.journal: damaged")
    assert os.listdir("run") == ["recording.journal"]
