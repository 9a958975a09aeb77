"""The command line: what its options do, and what it prints."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import chainer
import numpy as np
import pytest

import chainer_profile
from chainer_profile.cli import COMMANDS, PROFILE
from chainer_profile.cli import main as cli
from chainer_profile.cli.options import SORT_KEYS
from chainer_profile.record.recording import Recording
from chainer_profile.runs.folder import load_run
from models.registry import REGISTRY
from tests import HANGS_S, names_in
from tests.command import (  # noqa: F401
    ALL_FILES,
    FILES,
    OWN,
    ROOT,
    Entry,
    Net,
    folder,
    main,
    one_line,
    process,
)
from tests.terminals import on_terminal


def test_a_run_writes_its_files_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("-o", "run") == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "LinearFunction" in out
    assert names_in("run") == ALL_FILES
    assert out.splitlines()[-1].startswith("Written to run: report.md, report.html")


def test_options_reach_the_recording() -> None:
    words = ["-n", "5", "--clean-trials", "3", "-w", "2", "-b", "4", "--seed", "7", "--train-mode"]
    words += ["--threads", "1", "--max-seconds", "1000", "--until-ci", "0.001", "-o", "run dir"]
    assert main(*words) == 0
    recording = load_run(Path("run dir"))
    settings = recording.settings
    assert (settings.model, settings.device, settings.weights) == ("tiny", "cpu", "")
    assert (settings.trials, settings.clean_trials, settings.warmups) == (5, 3, 2)
    assert (settings.batchsize, settings.input_shape) == (4, (4, 3))
    assert (settings.seed, settings.train_mode, settings.threads) == (7, True, 1)
    assert (settings.max_seconds, settings.until_ci) == (1000, 0.00001)
    assert "-o 'run dir'" in settings.command
    assert (recording.n_trials, len(recording.clean_ns), len(recording.warmup_ns)) == (5, 3, 2)
    assert {library.threads for library in recording.environment.blas} <= {1}


@pytest.mark.parametrize(("seeds", "same"), [(("3", "3"), True), (("3", "4"), False)])
def test_the_seed_gives_the_input_and_the_weights(seeds: tuple[str, str], same: bool) -> None:
    seen: list[tuple[Any, Any]] = []

    class Seen(Net):
        def forward(self, x: Any) -> Any:
            if not self.calls:
                seen.append((x.copy(), self.fc.W.array.copy()))
            return super().forward(x)

    for seed in seeds:
        assert main("--seed", seed, "-q", build=Seen) == 0
    for first, second in zip(*seen, strict=True):
        assert np.array_equal(first, second) is same


def test_weights_are_loaded() -> None:
    saved = Net()
    saved.fc.W.array[...] = 5
    chainer.serializers.save_npz("w.npz", saved)
    seen = []

    class Seen(Net):
        def at_call(self, number: int) -> None:
            seen.append(float(self.fc.W.array.min()))

    assert main("--weights", "w.npz", "-q", "-o", "run", build=Seen) == 0
    assert set(seen) == {5.0}
    assert load_run(Path("run")).settings.weights == "w.npz"


def test_an_own_model_from_a_file() -> None:
    Path("own.py").write_text(OWN)
    assert main("-m", "own.py:Net", "--input-shape", "3", "-q", "-o", "run") == 0
    assert [layer.function for layer in load_run(Path("run")).layers] == [
        "LinearFunction",
        "ReLU",
    ]


def test_the_time_limit_ends_the_trials(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("-n", "1000", "--max-seconds", "1e-9", "-o", "run") == 0
    assert load_run(Path("run")).n_trials == 1
    assert "time limit reached" in " ".join(capsys.readouterr().out.split())


def test_quiet_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("-q", "-o", "run") == 0
    assert main("report", "run", "-q") == 0
    assert capsys.readouterr() == ("", "")
    assert names_in("run") == ALL_FILES


def test_the_default_folder_takes_the_next_free_number() -> None:
    for _ in range(3):
        assert main("-q") == 0
    assert main("-q", "-b", "2") == 0
    names = ["tiny-cpu-b1", "tiny-cpu-b1-2", "tiny-cpu-b1-3", "tiny-cpu-b2"]
    assert names_in("reports") == names


def test_report_makes_the_reports_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("-o", "run") == 0
    first = capsys.readouterr().out
    for name in ALL_FILES:
        if name != "recording.npz":
            Path("run", name).unlink()
    assert main("report", "run") == 0
    second, err = capsys.readouterr()
    assert err == ""
    assert names_in("run") == ALL_FILES
    assert second.splitlines()[:-1] == first.splitlines()[:-1]
    assert second.splitlines()[-1].startswith("Written to run: report.md, report.html")


def test_report_of_a_recording_elsewhere() -> None:
    assert main("-q", "-o", "run") == 0
    Path("elsewhere").mkdir()
    Path("run", "recording.npz").rename("elsewhere/mine.npz")
    assert main("report", "elsewhere/mine.npz", "-q") == 0
    names = sorted({*ALL_FILES, "mine.npz"} - {"recording.npz"})
    assert names_in("elsewhere") == names


def test_every_order_of_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("-q", "-o", "run") == 0
    for key in SORT_KEYS:
        assert main("report", "run", "--sort", key) == 0
        assert "ReLU" in capsys.readouterr().out, key


def test_columns_of_the_layer_table(capsys: pytest.CaptureFixture[str]) -> None:
    def heads(*words: str) -> list[list[str]]:
        assert main(*words) == 0
        return [line.split() for line in capsys.readouterr().out.splitlines()]

    chosen = "peak_nbytes, function,mean"
    assert ["peak", "function", "mean"] in heads("--columns", chosen, "-o", "run")
    assert ["workspace", "path"] in heads("report", "run", "--columns", "workspace,path")
    (usual,) = [
        words for words in heads("report", "run", "--full") if "mean" in words and "#" in words
    ]
    assert usual[-2:] == ["limit", "peak"]


def test_limit_and_hotspots(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("--limit", "1", "--hotspots", "top:1", "-o", "run") == 0
    assert "1 layer not shown" in capsys.readouterr().out
    assert main("report", "run", "--limit", "0", "--hotspots", "top:2") == 0
    out = capsys.readouterr().out
    assert "not shown" not in out
    assert sum(" * " in line for line in out.splitlines()) == 2


def test_help_of_no_command_imports_anything_heavy() -> None:
    code = (
        "import sys\n"
        "from chainer_profile.cli.main import COMMANDS, main\n"
        "for word in COMMANDS:\n"
        "    try: main([word, '--help'], {})\n"
        "    except SystemExit as end: assert end.code == 0\n"
        "heavy = {'numpy', 'pandas', 'scipy', 'matplotlib', 'PIL', 'rich', 'chainer', 'cupy',\n"
        "         'onnx', 'onnxruntime', 'openvino', 'models', 'distributed', 'mpi4py'}\n"
        "print('heavy:', heavy & sys.modules.keys())"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=HANGS_S
    )
    assert result.returncode == 0, result.stderr
    for option in ("--trials", "--executor", "--since", "--columns", "--synthetic-size"):
        assert option in result.stdout
    assert result.stdout.splitlines()[-1] == "heavy: set()"


def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--help"], REGISTRY)
    out = capsys.readouterr().out
    for word, about in COMMANDS.items():
        assert word == PROFILE or re.search(rf"^  {word} +{re.escape(about)}$", out, re.MULTILINE)


@pytest.mark.parametrize("word", COMMANDS)
def test_a_mistyped_command_gets_the_right_one(
    word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    mistyped = f"{word}x"
    assert cli.main([mistyped, "x"], REGISTRY) == 2
    assert capsys.readouterr().err == (
        f"profile.py: error: unknown command {mistyped!r} (did you mean {word}?); "
        "profile.py --help lists the commands\n"
    )


def test_list_of_models(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--list-models"], REGISTRY) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(REGISTRY)
    assert lines[0].split()[1] == "3x32x32"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--version"], chainer_profile.__version__),
        (["--help"], "usage: profile.py "),
        (["report", "--help"], "usage: profile.py report "),
        (["machine", "--help"], "usage: profile.py machine "),
    ],
)
def test_options_that_print_and_exit(
    words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(words, REGISTRY)
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith(text)


@pytest.mark.process
def test_two_runs_at_once_take_different_folders(tmp_path: Path) -> None:
    Path("own.py").write_text(OWN)
    words = [sys.executable, ROOT / "profile.py", "-m", "own.py:Net", "--input-shape", "3"]
    words += ["-q", "-n", "4", "--no-machine", "--format", "none"]
    runs = [subprocess.Popen(words, stderr=subprocess.PIPE) for _ in range(2)]
    assert [run.communicate(timeout=HANGS_S)[1] for run in runs] == [b"", b""]
    names = names_in("reports")
    assert names == ["own-Net-cpu-b1", "own-Net-cpu-b1-2"]
    for name in names:
        assert Recording.load(tmp_path / "reports" / name / "recording.npz").n_trials == 4
        assert names_in(f"reports/{name}") == ["recording.npz"]


@pytest.mark.smoke
def test_a_pipe_that_nobody_reads() -> None:
    Path("own.py").write_text(OWN)
    reader, writer = os.pipe()
    os.close(reader)
    words = ["-m", "own.py:Net", "--input-shape", "3", "-n", "4", "-o", "run"]
    result = process(*words, stdout=writer)
    os.close(writer)
    assert (result.returncode, result.stderr) == (1, "")
    assert names_in("run") == FILES


@pytest.mark.process
def test_a_terminal_gets_a_bar_and_colour() -> None:
    Path("own.py").write_text(OWN)
    words = ["-n", "40", "-o", "run", "--no-machine", "--format", "none"]
    shown = on_terminal(lambda: main(*words), 120)
    assert "profiling" in shown
    assert "40/40" in shown
    assert "\x1b[1;31m" in shown
