"""train.py: bad input, networks that fail and losses that are no numbers, each in one line."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import chainer
import numpy as np
import pytest

from tests.command import folder, one_line  # noqa: F401
from tests.train_command import DEFAULT, OWN, Net, log, main, no_plots, same, weights_in  # noqa: F401


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--epoch", "0"], "argument -e/--epoch: must be a whole number, 1 or more, not '0'"),
        (["-l", "0"], "argument -l/--learning-rate: must be a number above 0, not '0'"),
        (["-l", "nan"], "argument -l/--learning-rate: must be a number above 0, not 'nan'"),
        (["-l", "fast"], "argument -l/--learning-rate: must be a number above 0, not 'fast'"),
        (["--profile", "10"], "argument --profile: must be every=N with N iterations, 1 or "),
        (["--snapshot", "every=0"], "argument --snapshot: must be every=N with N iterations"),
        (["--resume", ""], "argument -r/--resume: must be the name of a file, not ''"),
        (["--out", ""], "argument -o/--out: must be the name of a folder, not ''"),
        (["-d", "mnist"], "argument -d/--dataset: invalid choice: 'mnist'"),
        (["--resume", "--force"], "--resume goes on with a training, --force replaces it: give"),
        (["-d", "cifar10"], "--synthetic-size is for --dataset synthetic"),
        (["--synthetic-size", "51"], "a synthetic set has a multiple of 10 training images"),
        (["-b", "51"], "--batchsize 51: the training set has only 50 images"),
        (["--seed", "4294967296"], "the seed must be from 0 to 4294967295, not 4294967296"),
        (["-m", "tinny"], "unknown model 'tinny': did you mean tiny?"),
        (["-m", "net.py"], "model 'net.py': say which network of the file, as net.py:Callable"),
        (["-m", "features"], "features gives feature maps: it has no classes to choose"),
        (["-o", "file"], "--out file: is a file; name a folder"),
        (["-o", "file/x"], "--out file/x: a part of this path is a file"),
        (["-o", "new", "--resume"], "--resume: there is no folder new; name it with --out"),
        (["--data-dir", "full"], "full holds other files, not a synthetic set of 50 training"),
    ],
)
def test_usage(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("file").write_text("")
    Path("full").mkdir()
    Path("full", "data_batch_1.bin").write_bytes(b"real")
    assert main(*words) == 2
    assert one_line(capsys.readouterr().err).startswith(f"train.py: error: {said}")
    assert sorted(os.listdir()) in (["file", "full"], ["file", "full", "results"])
    assert os.listdir("full") == ["data_batch_1.bin"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-o", "empty", "-r"], "--resume: there is no snapshot in empty; name a snapshot, or the"),
        (["-r", "empty/none"], "there is no snapshot empty/none"),
        (["-r", "file"], "file is not a snapshot of train.py"),
        (
            ["-r", f"{DEFAULT}/snapshot_iter_5", "-m", "other"],
            f"{DEFAULT}/snapshot_iter_5 is of a training with --model tiny, not other: give the ",
        ),
        (
            ["-r", f"{DEFAULT}/snapshot_iter_5", "-b", "7"],
            f"{DEFAULT}/snapshot_iter_5 is of a training with --batchsize 10, not 7",
        ),
        (
            ["-r", f"{DEFAULT}/model.npz"],
            f"{DEFAULT}/model.npz is not a snapshot of train.py: it holds no settings",
        ),
    ],
)
def test_snapshots_that_do_not_fit(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("file").write_text("hello")
    Path("empty").mkdir()
    assert main("-q") == 0
    before = log(), weights_in(DEFAULT)
    assert main(*words) == 1
    assert one_line(capsys.readouterr().err).startswith(f"train.py: error: {said}")
    assert log() == before[0]
    assert same(weights_in(DEFAULT), before[1])
    assert os.listdir("empty") == []


def test_another_data_set_of_the_same_size(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("-q") == 0
    path = DEFAULT / "synthetic" / "data_batch_2.bin"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert main("--resume", "-q") == 1
    assert "of a training with training images of the SHA-256" in capsys.readouterr().err


def test_a_data_set_that_is_cut_short(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("-q") == 0
    path = DEFAULT / "synthetic" / "test_batch.bin"
    path.write_bytes(path.read_bytes()[:-100])
    assert main("--resume", "-q") == 1
    assert one_line(capsys.readouterr().err) == (
        f"train.py: error: {path} is cut short or not the synthetic set: a file of 25 images "
        "must have 76825 bytes, not 76725"
    )


def test_a_network_that_gives_something_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(build=lambda classes: Net(classes + 1)) == 1
    assert one_line(capsys.readouterr().err) == (
        "train.py: error: tiny cannot be trained on images of 3 x 32 x 32: for 2 images it must "
        "give floats of the shape (2, 10), but it gives (2, 11)"
    )


def test_an_own_network_needs_no_entry() -> None:
    Path("own.py").write_text(OWN)
    assert main("-m", "own.py:Net", "-q", "-e", "1") == 0
    assert Path("results/own-Net-synthetic/model.npz").exists()


def test_a_loss_that_is_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    class Spoilt(Net):
        def at_call(self, number: int) -> None:
            if number == 8:
                self.fc.b.array[0] = np.nan

    assert main("-q", build=Spoilt) == 1
    assert one_line(capsys.readouterr().err) == (
        "train.py: error: the loss is nan in iteration 8: training stopped; try a smaller "
        f"--learning-rate; the last snapshot is {DEFAULT / 'snapshot_iter_5'}"
    )
    assert sorted(path.name for path in DEFAULT.glob("snapshot*")) == ["snapshot_iter_5"]
    assert not (DEFAULT / "model.npz").exists()


def test_a_network_that_fails(capsys: pytest.CaptureFixture[str]) -> None:
    class Failing(Net):
        def at_call(self, number: int) -> None:
            if number == 8:
                raise RuntimeError("no\nmore")

    assert main("-q", build=Failing) == 1
    expected = (
        "train.py: error: training failed after iteration 7: RuntimeError: no more; the last "
        f"snapshot is {DEFAULT / 'snapshot_iter_5'}"
    )
    assert one_line(capsys.readouterr().err) == expected
    assert main("-q", "--force", "--debug", build=Failing) == 1
    err = capsys.readouterr().err
    assert err.startswith("Traceback")
    assert err.splitlines()[-1] == expected


def test_a_gpu_that_is_not_there(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert main("-g", "0") == 1
    assert one_line(capsys.readouterr().err).startswith("train.py: error: --gpu 0: CuPy ")


def test_offline_without_files(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def download(url: str) -> str:
        raise OSError("no network")

    monkeypatch.setattr(chainer.dataset, "cached_download", download)
    assert main("-d", "cifar100", small=False) == 1
    assert one_line(capsys.readouterr().err) == (
        "train.py: error: no CIFAR-100 here, and it cannot be downloaded (OSError: no network): "
        "name the folder of its files with --data-dir, or train on --dataset synthetic"
    )
