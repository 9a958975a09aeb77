"""train.py: what its options do, what it writes, and what is in its folder."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from chainer_profile.basics.files import part_of
from chainer_profile.cli.train import DATASETS, Console, parser
from chainer_profile.networks import cifar, weights
from models.registry import REGISTRY
from tests.command import ROOT, folder, one_line  # noqa: F401
from tests.train_command import DEFAULT, Net, log, main, no_plots, same, weights_in  # noqa: F401


def test_a_training_writes_its_files_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main() == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    assert lines[0] == (
        "tiny on synthetic: 50 training and 25 test images, 10 classes; 3 epochs of 5 iterations"
    )
    assert lines[1].split() == [
        *("epoch", "iteration", "main/loss", "validation/main/loss", "main/accuracy"),
        *("validation/main/accuracy", "lr", "elapsed_time"),
    ]
    assert [line.split()[:2] for line in lines[2:5]] == [["1", "5"], ["2", "10"], ["3", "15"]]
    accuracy = log()[-1]["validation/main/accuracy"]
    assert lines[5] == (
        f"Test accuracy {accuracy:.2%}; written to {DEFAULT}: model.npz, log, loss.png, "
        "accuracy.png"
    )
    assert "\033" not in out
    assert sorted(os.listdir(DEFAULT)) == [
        *("log", "model.npz", "snapshot_iter_10", "snapshot_iter_15", "snapshot_iter_5"),
        *("synthetic", "training.json"),
    ]
    weights.load_weights(Net(10), DEFAULT / "model.npz")


def test_how_it_was_started_is_written_down() -> None:
    assert main("--seed", "7", "-l", "0.05", "--no-augmentation", "-q") == 0
    state = json.loads((DEFAULT / "training.json").read_text())
    assert state.pop("command").startswith("python train.py -m tiny -d synthetic ")
    assert re.fullmatch("[0-9a-f]{64}", state.pop("checksum"))
    assert state == {
        "model": "tiny",
        "dataset": "synthetic",
        "images": 50,
        "batchsize": 10,
        "learning_rate": 0.05,
        "augmentation": False,
        "seed": 7,
        "epochs": 3,
        "fast": "none",
    }
    assert log()[0]["lr"] == 0.05


def test_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("-q") == 0
    assert capsys.readouterr() == ("", "")


def test_the_same_seed_gives_the_same_model() -> None:
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        assert main("-q", "-e", "1", "--seed", seed, "-o", name) == 0
    assert log("a") == log("b") != log("c")
    assert same(weights_in("a"), weights_in("b"))
    assert not same(weights_in("a"), weights_in("c"))


def test_the_defaults() -> None:
    args = parser().parse_args([])
    assert (args.model, args.dataset, args.seed, args.gpu) == ("resnet20", "cifar10", 0, -1)
    assert (args.resume, args.profile, args.snapshot, args.out) == (None, None, None, None)
    assert DATASETS["cifar10"] == (10, 164, 128, 0.1)
    assert DATASETS["cifar100"] == (100, 164, 128, 0.1)


def test_defaults_of_the_synthetic_set(monkeypatch: pytest.MonkeyPatch) -> None:
    # One epoch of them.
    monkeypatch.setitem(DATASETS, "synthetic", DATASETS["synthetic"]._replace(epochs=1))
    assert main("-d", "synthetic", "-q", small=False) == 0
    state = json.loads((DEFAULT / "training.json").read_text())
    assert (state["images"], state["batchsize"], state["learning_rate"]) == (1000, 32, 0.02)


@pytest.mark.parametrize("whole", [cifar.CIFAR10, cifar.CIFAR100], ids=["cifar10", "cifar100"])
def test_cifar_from_a_folder(whole: cifar.Cifar, monkeypatch: pytest.MonkeyPatch) -> None:
    # The real sets, but for the number of images.
    from dataclasses import replace

    counts = {"train": 100 // len(whole.files["train"]), "test": 20}
    small = replace(whole, counts=counts)
    generator = np.random.default_rng(0)
    for part, count in counts.items():
        for name in whole.files[part]:
            images = generator.integers(0, 256, (count, 3, 32, 32), dtype=np.uint8)
            labels = generator.integers(0, whole.classes, count)
            labels[0] = whole.classes - 1
            content = cifar.binary_records(small, images, labels)
            Path(f"{name}.bin").write_bytes(content)
    name = whole.name.replace("-", "")
    monkeypatch.setattr(cifar, name, small)
    option = name.lower()
    words = ["-d", option, "--data-dir", ".", "-b", "20", "-e", "1", "-q"]
    assert main(*words, small=False) == 0
    shape = weights_in(f"results/tiny-{option}")["fc/W"].shape
    assert shape == (whole.classes, 196)


def test_every_network_of_the_registry_with_classes_takes_theirs() -> None:
    from chainer_profile.networks.loading import find_model

    for name, entry in REGISTRY.items():
        if entry.classes is not None:
            assert find_model(name, REGISTRY, 100).classes == 100


def test_a_training_is_not_overwritten(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("-q") == 0
    before = {path: path.read_bytes() for path in DEFAULT.glob("*") if path.is_file()}
    assert main("-q", "--seed", "1") == 2
    assert one_line(capsys.readouterr().err) == (
        f"train.py: error: --out {DEFAULT}: holds a training already; go on with it with "
        "--resume, replace it with --force, or name another folder"
    )
    assert {path: path.read_bytes() for path in DEFAULT.glob("*") if path.is_file()} == before


def test_force_replaces_it_with_all_its_snapshots() -> None:
    assert main("-q") == 0
    Path(DEFAULT, "snapshot_iter_99").write_bytes(b"")
    Path(DEFAULT, "notes").write_text("mine")
    first = weights_in(DEFAULT)
    words = ["-q", "--force", "--seed", "1", "-e", "1", "--synthetic-size", "60"]
    assert main(*words) == 0
    assert sorted(os.listdir(DEFAULT)) == [
        *("log", "model.npz", "notes", "snapshot_iter_6", "synthetic", "training.json")
    ]
    assert not same(first, weights_in(DEFAULT))


def test_force_with_an_error_loses_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("-q") == 0
    before = weights_in(DEFAULT), log()
    assert main("-q", "--force", "--batchsize", "51") == 2
    assert main("-q", "--force", build=lambda classes: Net(classes + 1)) == 1
    assert log() == before[1]
    assert same(weights_in(DEFAULT), before[0])
    assert (DEFAULT / "snapshot_iter_15").exists()


def test_a_training_of_this_moment_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    codes = []

    class Another(Net):
        def at_call(self, number: int) -> None:
            if number == 7:
                codes.append(main("-q", "--resume"))

    assert main("-q", build=Another) == 0
    assert codes == [1]
    said = one_line(capsys.readouterr().err)
    assert said == f"train.py: error: {DEFAULT}: its run is still going on; wait for its end"


def test_what_a_kill_leaves_is_cleared() -> None:
    DEFAULT.mkdir(parents=True)
    part = part_of(DEFAULT / "snapshot_iter_5")
    mine = DEFAULT / ".mine.part"
    mine.write_bytes(b"mine")
    part.write_bytes(b"half")
    assert main("-q") == 0
    assert not part.exists()
    assert mine.read_bytes() == b"mine"


def test_an_error_leaves_no_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("--data-dir", "none", "-d", "cifar10", "-b", "10", small=False) == 1
    assert one_line(capsys.readouterr().err) == (
        "train.py: error: there is no folder none with CIFAR-10"
    )
    assert not Path("results").exists()


def test_profile_writes_a_report_and_changes_no_loss() -> None:
    assert main("-q", "-o", "plain") == 0
    assert main("-q", "-o", "profiled", "--profile", "every=4") == 0
    assert log("profiled") == log("plain")
    from chainer_profile.runs.folder import load_run

    recording = load_run(Path("profiled", "profile"))
    assert recording.n_trials >= 2
    assert recording.settings.model == "tiny"
    assert recording.settings.command.startswith("python train.py -m tiny")
    # A run that profiles goes on from one that does not, and the other way round.
    assert main("-q", "-o", "plain", "-r", "plain/snapshot_iter_10", "--profile", "every=2") == 0
    assert main("-q", "-o", "profiled", "-r", "profiled/snapshot_iter_10") == 0
    assert log("profiled") == log("plain")


def test_snapshots_by_iteration() -> None:
    assert main("-q", "--snapshot", "every=4", "-e", "2") == 0
    names = sorted(path.name for path in DEFAULT.glob("snapshot*"))
    assert names == ["snapshot_iter_10", "snapshot_iter_4", "snapshot_iter_8"]


class Stream:
    """A stream that may be a terminal, or may have gone away."""

    def __init__(self, terminal: bool, fails: bool = False) -> None:
        self.text = ""
        self._terminal = terminal
        self._fails = fails

    def isatty(self) -> bool:
        return self._terminal

    def write(self, text: str) -> None:
        if self._fails:
            raise BrokenPipeError
        self.text += text

    def flush(self) -> None:
        pass


def test_codes_are_for_terminals() -> None:
    for terminal in (True, False):
        stream = Stream(terminal)
        Console(stream).write("\033[Jepoch")
        assert stream.text == ("\033[Jepoch" if terminal else "epoch")


def test_a_reader_that_goes_away_does_not_end_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Stream(False, fails=True))
    assert main() == 0
    assert (DEFAULT / "model.npz").exists()


def test_a_terminal_shows_a_progress_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(True)
    monkeypatch.setattr(sys, "stderr", stream)
    assert main("-e", "1") == 0
    assert "this epoch [" in stream.text
    assert "100.00%" in stream.text
