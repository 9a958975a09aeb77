"""The command line: options of a run, its output, and its help."""

import os
import re
from dataclasses import replace
from pathlib import Path

import chainer
import chainer.functions as F
import chainer.links as L
import pytest

from chainer_profile.cli import COMMANDS, PROFILE
from chainer_profile.cli import main as cli
from chainer_profile.cli.arguments.profile import COMMON
from chainer_profile.cli.output_options import SORT_KEYS
from chainer_profile.cli.parsers import parser_of
from chainer_profile.measure import inside
from chainer_profile.report.content import profile
from chainer_profile.runs.folder import load_run
from models.registry import REGISTRY
from tests import names_in
from tests.command import ALL_FILES, FILES, OWN, Net, main, process
from tests.conftest import make_recording
from tests.nets import net
from tests.recordings import with_all_fields
from tests.scripts import python


def test_options_reach_the_recording_and_the_network(done):
    saved = Net()
    saved.fc.W.array[...] = 5
    chainer.serializers.save_npz("w.npz", saved)
    inputs = []

    class Seen(Net):
        def forward(self, x):
            if not self.calls:
                assert self.fc.W.array.min() == 5
                inputs.append(x.tobytes())
            return super().forward(x)

    words = ["-n", "5", "--clean-trials", "3", "-w", "2", "-b", "4", "--train-mode", "--fast"]
    words += ["--threads", "1", "--max-seconds", "1000", "--until-ci", "0.001", "--keep-memory"]
    words += ["--dtype", "float16", "--weights", "w.npz", "--force", "-o", "run dir"]
    for seed in ("3", "7", "7"):
        done(*words, "--seed", seed, build=Seen)
    assert inputs[0] != inputs[1] == inputs[2]
    recording = load_run(Path("run dir"))
    settings = recording.settings
    assert (settings.model, settings.device, settings.weights) == ("tiny", "cpu", "w.npz")
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


def test_default_folder_has_the_next_free_number():
    for words in ((), (), ("-b", "2", "--phase", "train")):
        assert main("-q", *words) == 0
    assert names_in("reports") == ["tiny-cpu-b1", "tiny-cpu-b1-2", "tiny-cpu-b2-train"]


def test_report_writes_the_reports_again_and_shows_the_requested_tables(done):
    first = done("-o", "run")
    for name in ALL_FILES:
        if name != "recording.npz":
            Path("run", name).unlink()
    second = done("report", "run")
    assert names_in("run") == ALL_FILES
    assert second.splitlines()[:-1] == first.splitlines()[:-1]
    for key in SORT_KEYS:
        assert "ReLU" in done("report", "run", "--sort", key), key
    out = done("report", "run", "--columns", "peak_nbytes, function,mean")
    assert ["peak", "function", "ms"] in [line.split()[-3:] for line in out.splitlines()]
    assert "1 other layer" in done("report", "run", "--limit", "1", "--hotspots", "top:1")
    out = done("report", "run", "--limit", "0", "--hotspots", "top:2")
    assert sum(" * " in line for line in out.splitlines()) == 2


def test_tree_and_groups_are_shown_if_requested(done):
    blocks = [chainer.Sequential(L.Linear(3, 3), L.Linear(3, 3)) for _ in range(2)]
    forward = lambda self, x: F.relu(self.blocks[1](self.blocks[0](x)))  # noqa: E731
    network = net(forward, blocks=chainer.ChainList(*blocks))
    shown = done("--tree", "--phase", "train", "-o", "run", build=lambda: network)
    assert "Sequential" in shown
    assert done("report", "run", "--tree", "3").count("Linear ") > shown.count("Linear ")
    alone = done("report", "run", "--group-by", "block", "--limit", "0").splitlines()
    assert alone[0].split()[:2] == ["block", "calls"]  # no link above it
    assert any(line.startswith("/blocks/1 ") for line in alone)


def test_help_imports_no_slow_packages():
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


def test_help_fits_two_screens_and_help_all_has_every_option(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = {}
    for option in ("--help", "--help-all"):
        with pytest.raises(SystemExit):
            cli.main([option], REGISTRY)
        shown[option] = capsys.readouterr().out
    lines = shown["--help"].splitlines()
    assert len(lines) <= 2 * 40
    assert max(map(len, lines)) <= 80
    # The commands come before the options.
    end = shown["--help"].index("-h, --help")
    for word in COMMANDS.keys() - {PROFILE}:
        assert 0 < shown["--help"].find(f"\n  {word} ") < end
    own = {word: parser_of(word)._option_string_actions for word in COMMANDS}
    options = {action.option_strings[-1] for actions in own.values() for action in actions.values()}
    assert len(COMMANDS) <= 10
    assert len(options) <= 71  # 70 without --target, which will be removed
    assert len(COMMON) == 12
    assert all(option in shown["--help"] for option in COMMON)
    assert all(option in shown["--help-all"] for option in own[PROFILE])


@pytest.mark.smoke
def test_closed_pipe_ends_the_command_quietly():
    Path("own.py").write_text(OWN)
    reader, writer = os.pipe()
    os.close(reader)
    words = ["-m", "own.py:Net", "--input-shape", "3", "-n", "4", "-o", "run"]
    result = process(*words, stdout=writer)
    os.close(writer)
    assert (result.returncode, result.stderr) == (1, "")
    assert names_in("run") == FILES


def test_report_with_a_new_title_does_not_print_the_tables(done):
    done("-q", "--out", "run")
    message = "Written to run: report.md, report.html, layers.csv, links.csv and 4 more files\n"
    titled = ("--title", "Mine", "--author", "Ada", "--course", "Systems")
    assert done("report", "run", *titled) == message
    title = profile.report.call_args.args[1]
    assert (title.title, title.author, title.course) == titled[1::2]
    tables = done("report", "run", "--author", "Ada", "--group-by", "function")
    assert "Report: run/report.html" in tables
    assert len(tables.splitlines()) > 3
    assert len(done("report", "run").splitlines()) > 3


def test_why_prints_its_table(done, monkeypatch):
    seen = with_all_fields(make_recording(n_layers=2)).inside
    seen = replace(seen, stacks=tuple(stack for stack in seen.stacks if not stack.function))
    monkeypatch.setattr(inside, "look_inside", lambda *_, **__: seen)
    head = re.compile(r"^(function|framework) +part +%  \+/- points +ms", re.MULTILINE)
    assert head.search(done("--why", "--out", "run"))
    assert not head.search(done("report", "run"))


def test_requested_float_type_reaches_the_network(done):
    seen = set()

    class Typed(Net):
        def forward(self, x, t):
            seen.add((str(x.dtype), str(t.dtype)))
            return super().forward(x)

    shapes = ("--input-shape", "3", "--input-shape", "t=3:float64")
    done(*shapes, "--dtype", "float16", "-q", build=Typed)
    assert seen == {("float16", "float64")}
