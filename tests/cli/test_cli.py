"""The command line: what the options of a run do, and what it prints."""

import os
from pathlib import Path

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest

from chainer_profile.cli import COMMANDS, PROFILE
from chainer_profile.cli import main as cli
from chainer_profile.cli.options import SORT_KEYS
from chainer_profile.cli.parsers import COMMON, parser_of, parsers
from chainer_profile.runs.folder import load_run
from models.registry import REGISTRY
from tests import names_in
from tests.command import ALL_FILES, FILES, OWN, Net, main, process
from tests.nets import net
from tests.scripts import python


def recorded(*words, **more):
    """The recording of a run."""
    assert main("-q", "-o", "run", "--force", *words, **more) == 0
    return load_run(Path("run"))


def test_options_reach_the_recording(done):
    words = ["-n", "5", "--clean-trials", "3", "-w", "2", "-b", "4", "--seed", "7", "--train-mode"]
    words += ["--threads", "1", "--max-seconds", "1000", "--until-ci", "0.001", "-o", "run dir"]
    words += ["--dtype", "float16", "--fast", "--keep-memory"]
    assert main(*words) == 0
    recording = load_run(Path("run dir"))
    settings = recording.settings
    assert (settings.model, settings.device, settings.weights) == ("tiny", "cpu", "")
    assert (settings.trials, settings.clean_trials, settings.warmups) == (5, 3, 2)
    assert (settings.batchsize, settings.input_shape) == (4, (4, 3))
    assert (settings.seed, settings.train_mode, settings.threads) == (7, True, 1)
    assert (settings.max_seconds, settings.until_ci) == (1000, 0.00001)
    assert (settings.dtype, settings.fast, settings.keep_memory) == ("float16", "numpy", True)
    assert "-o 'run dir'" in settings.command
    assert (recording.n_trials, len(recording.clean_ns), len(recording.warmup_ns)) == (5, 3, 2)
    assert {library.threads for library in recording.environment.blas} <= {1}
    out = done("-n", "1000", "--max-seconds", "1e-9", "-o", "short")
    assert "time limit reached" in " ".join(out.split())


def test_the_seed_gives_the_input_and_the_weights():
    seen = []

    class Seen(Net):
        def forward(self, x):
            if not self.calls:
                seen.append((x.copy(), self.fc.W.array.copy()))
            return super().forward(x)

    for seed in ("3", "3", "4"):
        assert main("--seed", seed, "-q", build=Seen) == 0
    for first, same, other in zip(*seen, strict=True):
        assert np.array_equal(first, same)
        assert not np.array_equal(first, other)


def test_weights_are_loaded_and_stay_in_a_training():
    saved = Net()
    saved.fc.W.array[...] = 5
    chainer.serializers.save_npz("w.npz", saved)
    nets = []

    class Seen(Net):
        def at_call(self, number):
            if number == 1:
                nets.append(self)
                assert self.fc.W.array.min() == 5

    recording = recorded("--weights", "w.npz", "--phase", "train", build=Seen)
    assert recording.settings.weights == "w.npz"
    (net,) = nets
    assert net.calls > 5
    assert (net.fc.W.array == 5).all()


def test_the_default_folder_takes_the_next_free_number():
    for words in ((), (), ("-b", "2", "--phase", "train")):
        assert main("-q", *words) == 0
    assert names_in("reports") == ["tiny-cpu-b1", "tiny-cpu-b1-2", "tiny-cpu-b2-train"]


def test_report_makes_the_reports_again(done):
    first = done("-o", "run")
    assert "LinearFunction" in first
    for name in ALL_FILES:
        if name != "recording.npz":
            Path("run", name).unlink()
    second = done("report", "run")
    assert names_in("run") == ALL_FILES
    assert second.splitlines()[:-1] == first.splitlines()[:-1]
    assert second.splitlines()[-1].startswith("Written to run: report.md, report.html")


def test_what_the_tables_show(done):
    recorded()
    for key in SORT_KEYS:
        assert "ReLU" in done("report", "run", "--sort", key), key
    for words, head in (
        (("--columns", "peak_nbytes, function,mean"), ["peak", "function", "mean"]),
        (("--full",), ["limit", "peak"]),
    ):
        lines = [line.split() for line in done("report", "run", *words).splitlines()]
        assert any(line[-len(head) :] == head for line in lines), head
    assert "1 layer not shown" in done("report", "run", "--limit", "1", "--hotspots", "top:1")
    out = done("report", "run", "--limit", "0", "--hotspots", "top:2")
    assert "not shown" not in out
    assert sum(" * " in line for line in out.splitlines()) == 2


def test_trees_and_groups(done):
    blocks = [chainer.Sequential(L.Linear(3, 3), L.Linear(3, 3)) for _ in range(2)]
    links = chainer.ChainList(*blocks)
    made = net(lambda self, x: F.relu(self.blocks[1](self.blocks[0](x))), blocks=links)
    shown = done("--tree", "--phase", "train", "-o", "run", build=lambda: made)
    assert "Sequential" in shown
    deep = done("report", "run", "--tree", "3")
    assert deep.count("Linear ") > shown.count("Linear ")
    alone = done("report", "run", "--group-by", "block", "--limit", "0").splitlines()
    assert alone[0].split()[:2] == ["block", "calls"]  # nothing above it
    assert any(line.startswith("/blocks/1 ") for line in alone)


def test_registered_networks(capsys):
    def registered(*words):
        few = ["--trials", "3", "--warmups", "1", "--clean-trials", "2", "-o", "run", "-q"]
        assert cli.main([*words, *few, "--force"], REGISTRY) == 0
        return load_run(Path("run")).settings

    assert registered("--input-shape", "20x12", "--classes", "7").input_shape == (1, 3, 20, 12)
    # Feature maps have a loss too.
    words = ["--model", "se-resnet9-fixup", "--input-shape", "16x16", "--phase", "train"]
    assert registered(*words).loss == "softmax_cross_entropy"
    assert cli.main(["--model", "resnet34-relu-bn", "--input-shape", "225x225"], REGISTRY) == 1
    said = "takes inputs of 3 x 224 x 224 only, not 3 x 225 x 225"
    assert said in capsys.readouterr().err


# -- what is printed in place of a run


def test_help_of_no_command_imports_anything_heavy():
    code = (
        "import sys\n"
        "from chainer_profile.__main__ import main\n"
        "from chainer_profile.cli import COMMANDS\n"
        "for words in ([], *([word] for word in COMMANDS)):\n"
        "    try: main([*words, '--help'])\n"
        "    except SystemExit as end: assert end.code == 0\n"
        "heavy = {'numpy', 'pandas', 'scipy', 'matplotlib', 'PIL', 'rich', 'chainer', 'cupy',\n"
        "         'onnx', 'onnxruntime', 'models', 'distributed'}\n"
        "print('heavy:', heavy & sys.modules.keys())"
    )
    result = python("-c", code)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "heavy: set()"


def test_the_help_fits_two_screens_and_the_rest_is_in_help_all(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = {}
    for option in ("--help", "--help-all"):
        with pytest.raises(SystemExit):
            cli.main([option], REGISTRY)
        shown[option] = capsys.readouterr().out
    lines = shown["--help"].splitlines()
    assert len(lines) <= 2 * 40
    assert max(map(len, lines)) <= 80
    # The commands stand above the options.
    place = {word: shown["--help"].find(f"\n  {word} ") for word in COMMANDS if word != PROFILE}
    assert min(place.values()) > 0
    assert max(place.values()) < shown["--help"].index("-h, --help")
    for word in place:
        assert COMMANDS[word] in shown["--help"]
    options = {
        option
        for parser in parsers().values()
        for action in parser._actions
        for option in action.option_strings[-1:]
    }
    assert len(COMMANDS) <= 10
    assert len(options) <= 70
    common = {f"--{name}" for name in COMMON.split()}
    assert len(common) == 12
    assert common < options
    assert all(option in shown["--help"] for option in common)
    own = parser_of(PROFILE)._option_string_actions
    assert all(option in shown["--help-all"] for option in own)


def test_options_that_print_and_exit(capsys):
    assert cli.main(["--list-models"], REGISTRY) == 0
    assert capsys.readouterr().out.splitlines()[2].split()[:2] == ["resnet20", "3x32x32"]


# -- processes


@pytest.mark.smoke
def test_a_pipe_that_nobody_reads():
    Path("own.py").write_text(OWN)
    reader, writer = os.pipe()
    os.close(reader)
    words = ["-m", "own.py:Net", "--input-shape", "3", "-n", "4", "-o", "run"]
    result = process(*words, stdout=writer)
    os.close(writer)
    assert (result.returncode, result.stderr) == (1, "")
    assert names_in("run") == FILES
