"""The magics, in an IPython shell of their own."""

from __future__ import annotations

import atexit
import builtins
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest

from chainer_profile.analyse.summary import Summary
from tests import ROOT, needs

IPython = needs.module("IPython")

from traitlets.config import Config  # noqa: E402

from chainer_profile.cli.notebook import Cell, FirstRun, View  # noqa: E402
from chainer_profile.measure.loop import networks, optimizers  # noqa: E402
from tests.fakes import process  # noqa: E402

FEW = "-n 5 -w 1"


class Net(chainer.Chain):
    """Two linear layers and a ReLU."""

    def __init__(self) -> None:
        super().__init__()
        with self.init_scope():
            self.first = L.Linear(4, 8)
            self.second = L.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        return self.second(F.relu(self.first(x)))


class Shell:
    """An IPython shell."""

    def __init__(self) -> None:
        from IPython.core.interactiveshell import InteractiveShell

        config = Config()
        config.HistoryManager.enabled = False
        self.shell: Any = InteractiveShell(config=config)
        self.names: dict[str, Any] = self.shell.user_ns
        self._known = set(self.names)

    def begin(self) -> None:
        """As it was at first: with a network, its input, and the extension."""
        for name in self.names.keys() - self._known:
            del self.names[name]
        model = Net()
        self.names.update(
            chainer=chainer,
            F=F,
            Net=Net,
            np=np,
            signal=signal,
            model=model,
            x=np.ones((2, 4), np.float32),
            t=np.array([0, 1], np.int32),
            n=0,
        )
        self.run("%reload_ext chainer_profile")

    def run(self, code: str) -> BaseException | None:
        """Run a cell; gives what it raised."""
        result = self.shell.run_cell(code)
        error: BaseException | None = result.error_before_exec or result.error_in_exec
        return error

    def line(self, rest: str) -> BaseException | None:
        return self.run(f"%layerprofile {rest}")

    def cell(self, options: str, *lines: str) -> BaseException | None:
        return self.run("\n".join([f"%%layerprofile {options}", *lines]))

    def kept(self, name: str = "s") -> Summary:
        summary = self.names[name]
        assert isinstance(summary, Summary)
        return summary


@pytest.fixture(scope="module")
def one_shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("IPYTHONDIR", str(tmp_path_factory.mktemp("ipython")))
        before = set(vars(builtins))
        shell = Shell()
        yield shell
        for name in vars(builtins).keys() - before:
            delattr(builtins, name)
        atexit.unregister(shell.shell.atexit_operations)
        shell.shell.atexit_operations()


@pytest.fixture
def shell(one_shell: Shell) -> Shell:
    one_shell.begin()
    return one_shell


def said(error: BaseException | None) -> str:
    """The one line that is shown in place of a traceback."""
    from IPython.core.error import UsageError

    assert isinstance(error, UsageError)
    assert "\n" not in str(error)
    return str(error)


# -- a line


def test_a_call_is_profiled_in_test_mode(shell: Shell, capsys: Any) -> None:
    assert shell.line(f"{FEW} -o s model(x)") is None
    recording = shell.kept().recording
    assert [layer.path for layer in recording.layers] == ["/first", "/", "/second"]
    assert recording.n_trials == 5
    assert recording.settings.model == "Net"
    assert recording.settings.phase == "forward"
    assert recording.settings.input_shape == (2, 4)
    assert recording.settings.batchsize == 2
    assert not recording.settings.train_mode
    assert recording.settings.warmups == 1
    assert recording.settings.command == f"%layerprofile {FEW} -o s model(x)"
    assert recording.memory is not None
    out = capsys.readouterr().out
    assert "Net, shape 2x4, batch 2, cpu, test mode" in out
    assert "/second" in out


def test_expressions_may_hold_spaces_and_are_evaluated_once(shell: Shell) -> None:
    shell.names["asked"] = []
    code = "[model][len( asked )]( (asked.append('a  b'), x)[ 1 ][:1] )"
    assert shell.line(f"{FEW} -q -o s {code}") is None
    assert shell.names["asked"] == ["a  b"]
    assert shell.kept().recording.settings.input_shape == (1, 4)


def test_the_phase_and_the_limit_of_time(shell: Shell) -> None:
    options = "-n 100000 -w 0 --max-seconds 0.2 --no-memory -q -o s --phase train"
    assert shell.line(f"{options} model(x)") is None
    summary = shell.kept()
    assert list(summary.phases.index) == ["forward", "backward", "update", "outside"]
    assert summary.recording.ended == "time limit reached"
    assert summary.recording.memory is None


@pytest.mark.parametrize(
    "call", ["model(x)", "model(x=x)", "model(*[x])", "model(**{'x': x})", "model(F.copy(x, -1))"]
)
def test_arguments_are_those_of_the_call(shell: Shell, call: str) -> None:
    assert shell.line(f"{FEW} -q -o s {call}") is None
    settings = shell.kept().recording.settings
    assert (settings.model, settings.input_shape, settings.batchsize) == ("Net", (2, 4), 2)


def test_a_function_of_a_list(shell: Shell) -> None:
    assert shell.line(f"{FEW} -q -o s F.concat([x, x, x], axis=0)") is None
    recording = shell.kept().recording
    assert recording.settings.model == "concat (a function, no links)"
    assert (recording.settings.input, recording.settings.batchsize) == ("the first of 3 arrays", 3)
    assert [(layer.path, layer.function) for layer in recording.layers] == [("/", "Concat")]


def test_a_cell_knows_the_list_that_it_gives_its_network(shell: Shell) -> None:
    shell.names["both"] = chainer.Sequential(F.concat, shell.names["model"])
    assert shell.cell(f"{FEW} -q -o s", "both([x, x, x])") is not None  # 12 columns
    shell.names["both"] = chainer.Sequential(F.vstack, shell.names["model"])
    assert shell.cell(f"{FEW} -q -o s", "both([x, x, x])") is None
    settings = shell.kept().recording.settings
    assert (settings.input_shape, settings.batchsize) == ((2, 4), 3)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", "give the call of a network"),
        ("model", "'model' is no call"),
        ("model(", "'model(' is no expression"),
        ("max(1, 2)", "has no array among its inputs"),
        ("model()", "has no array among its inputs"),
        ("model(3)", "has no array among its inputs"),
        ("n(x)", "is a chainer.Link or a function, not a int"),
        ("Net(x)", "Net is a class: give a network, an object of it"),
        ("np.sum(x)", "calls no Chainer function"),
        ("--phase train F.relu(x)", "a function has no parameters to update"),
        ("-n 0 model(x)", "must be a whole number, 1 or more, not '0'"),
        ("--nope model(x)", "unrecognized arguments: --nope"),
        ("-o 1x model(x)", "must be the name of a variable, not '1x'"),
        ("-o if model(x)", "must be the name of a variable, not 'if'"),
        ("--phase sideways model(x)", "invalid choice: 'sideways'"),
        ("--hotspots pareto:0 model(x)", "is no rule for hotspots"),
        ("model(x[:, :2])", "the network fails with an input of 2x2, in Linear at /first"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(shell: Shell, line: str, words: str) -> None:
    assert words in said(shell.line(line))


def test_an_error_in_the_expression_is_the_users(shell: Shell) -> None:
    error = shell.line("unknown(x)")
    assert isinstance(error, NameError)


def test_help_and_the_documentation_have_all_options(shell: Shell, capsys: Any) -> None:
    assert shell.line("-h") is None
    magic = shell.shell.find_line_magic("layerprofile")
    assert magic.__doc__.strip() == capsys.readouterr().out.strip()
    options = set(re.findall(r"--[a-z-]+", magic.__doc__)) - {"--help"}
    text = (ROOT / "docs/notebooks.md").read_text(encoding="utf-8")
    assert len(options) > 10
    assert {option for option in options if option not in text} == set()


# -- a cell


def test_a_cell_is_a_trial_in_the_users_names(shell: Shell) -> None:
    lines = ("n += 1", "y = model(x)", "loss = F.softmax_cross_entropy(y, t)")
    assert shell.cell(f"{FEW} -q -o s", *lines) is None
    recording = shell.kept().recording
    assert [layer.path for layer in recording.layers] == [
        "/model/first",
        "/model",
        "/model/second",
        "/",
    ]
    assert recording.settings.input_shape == (2, 4)
    assert recording.settings.phase == "forward"
    assert recording.settings.train_mode  # as chainer.config has it in a notebook
    runs = shell.names["n"]
    assert runs >= 1 + 1 + 5 + len(recording.clean_ns)
    assert shell.names["y"].shape == (2, 3)
    assert recording.n_trials == 5


STEP = ("loss = F.softmax_cross_entropy(model(x), t)", "model.cleargrads()", "loss.backward()")


def test_a_training_step_of_ones_own(shell: Shell) -> None:
    shell.run("sgd = chainer.optimizers.SGD().setup(model)")
    shell.run("adam = chainer.optimizers.Adam().setup(model)")
    shell.run("later = chainer.optimizers.SGD(); later.setup(Net())")
    assert shell.cell(f"{FEW} -q -o s", *STEP, "adam.update()") is None
    summary = shell.kept()
    settings = summary.recording.settings
    assert settings.phase == "train"
    assert settings.optimizer == "Adam"
    updates = summary.layers[summary.layers["phase"] == "update"]
    assert set(updates["function"]) == {"Adam"}
    assert set(updates["path"]) == {"/model/first", "/model/second"}
    assert set(summary.recording.phases) == {"forward", "backward", "update"}
    assert float(summary.phases["total_s"].sum()) == pytest.approx(summary.totals.profiled.mean_s)


def test_the_mode_and_the_phase_are_those_of_the_cell(shell: Shell) -> None:
    lines = ("with chainer.using_config('train', False):", "    model(x)")
    assert shell.cell(f"{FEW} -q -o s", *lines) is None
    assert not shell.kept().recording.settings.train_mode
    assert shell.cell(f"{FEW} -q -o s", *STEP) is None
    assert shell.kept().recording.settings.phase == "forward-backward"


def test_an_update_that_runs_the_loss_has_all_phases(shell: Shell) -> None:
    shell.run("opt = chainer.optimizers.SGD().setup(model)")
    shell.run("def lossfun(): return F.softmax_cross_entropy(model(x), t)")
    assert shell.cell(f"{FEW} -q -o s", "opt.update(lossfun)") is None
    recording = shell.kept().recording
    assert set(recording.phases) == {"forward", "backward", "update"}
    assert recording.settings.optimizer == "SGD"
    assert shell.names["opt"].update.__self__ is shell.names["opt"]  # windows are gone


def test_output_is_shown_once(shell: Shell, capsys: Any) -> None:
    assert shell.cell(f"{FEW} -q", "print('once')", "model(x)") is None
    assert capsys.readouterr().out.count("once") == 1


def test_magics_in_a_cell_work(shell: Shell) -> None:
    assert shell.cell(f"{FEW} -q", "variables = %who_ls", "model(x)") is None
    assert "model" in shell.names["variables"]


@pytest.mark.parametrize(
    ("options", "lines", "words"),
    [
        ("", ["y = 1"], "the cell calls no Chainer function"),
        ("", ["# nothing"], "the cell calls no Chainer function"),
        ("model(x)", ["model(x)"], "takes options alone, not 'model(x)'"),
        ("--phase train", ["model(x)"], "--phase is for %layerprofile"),
    ],
)
def test_a_cell_that_cannot_be_profiled(
    shell: Shell, options: str, lines: list[str], words: str
) -> None:
    assert words in said(shell.cell(f"{FEW} {options}", *lines))


@pytest.mark.parametrize("at", [1, 2, 6, 9])
def test_an_error_of_the_cell_is_shown_as_the_users(shell: Shell, at: int, capsys: Any) -> None:
    error = shell.cell(f"{FEW} -o s", "n += 1", "y = model(x)", f"if n == {at}:", "    1 / 0")
    assert isinstance(error, ZeroDivisionError)
    assert shell.names["n"] == at
    assert "s" not in shell.names
    out = capsys.readouterr().out
    assert "1 / 0" in out
    assert "chainer_profile" not in out
    shell.names["n"] = at  # hooks are gone, and the cell runs again
    assert shell.cell(f"{FEW} -q", "model(x)") is None


def test_a_cell_that_cannot_be_read(shell: Shell) -> None:
    assert isinstance(shell.cell(FEW, "y = model(x"), SyntaxError)


def test_an_interrupt_ends_the_run_in_good_order(shell: Shell, capsys: Any) -> None:
    stop = "if n == 60: signal.raise_signal(signal.SIGINT)"
    before = signal.getsignal(signal.SIGINT)
    assert shell.cell("-n 1000 -w 1 -o s", "n += 1", "model(x)", stop) is None
    assert signal.getsignal(signal.SIGINT) is before
    recording = shell.kept().recording
    assert shell.names["n"] == 60  # no more runs after that one
    assert 0 < recording.n_trials < 60
    assert recording.ended == "interrupted"
    assert "interrupted" in capsys.readouterr().out


def test_an_interrupt_before_any_trial(shell: Shell) -> None:
    stop = "if n == 6: signal.raise_signal(signal.SIGINT)"
    assert "no complete profiled trial" in said(shell.cell("-n 9 -w 9", "n += 1", "model(x)", stop))


def test_a_second_interrupt_does_not_wait(shell: Shell) -> None:
    twice = "if n == 9: [signal.raise_signal(signal.SIGINT) for _ in 'ab']"
    error = shell.cell("-n 1000 -w 1", "n += 1", "model(x)", twice)
    assert isinstance(error, KeyboardInterrupt)


def test_networks_made_in_the_cell_go_by_their_class(shell: Shell) -> None:
    assert shell.cell(f"{FEW} -q -o s", "own = Net()", "own(x)") is None
    recording = shell.kept().recording
    assert [layer.path for layer in recording.layers] == ["/Net/first", "/Net", "/Net/second"]
    assert shell.cell(f"{FEW} -q -o s", "own(x)") is None
    assert shell.kept().recording.layers[0].path == "/own/first"


def test_trials_of_a_cell_may_differ(shell: Shell) -> None:
    lines = ("n += 1", "y = model(x)", "for _ in range(n): y = F.relu(y)")
    assert shell.cell(f"{FEW} -q -o s", *lines) is None
    recording = shell.kept().recording
    assert [layer.function for layer in recording.layers] == [
        *("LinearFunction", "ReLU", "LinearFunction", "ReLU")
    ]
    calls = recording.calls
    assert calls is not None
    assert len(set(calls[:, 3].tolist())) == recording.n_trials == 5
    assert recording.trial_ns is not None
    assert (recording.trial_ns >= recording.self_ns.sum(axis=1)).all()
    # The time to quote is that of the trials that nothing was recorded in.
    assert shell.kept().totals.every is None
    assert shell.kept().totals.clean is not None


def test_a_traceback_shows_the_users_frames_alone(shell: Shell, capsys: Any) -> None:
    shell.run("class Wrong(Net):\n    def forward(self, x): return super().forward(x) / 'no'\n")
    shell.run("wrong = Wrong()")
    error = shell.cell(FEW, "wrong(x)")
    assert isinstance(error, TypeError)
    out = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out)
    assert "super().forward(x) / 'no'" in out
    assert "chainer_profile" not in out


def test_several_networks_and_none(shell: Shell) -> None:
    shell.run("other = Net()")
    assert shell.cell(f"{FEW} -q -o s", "other(x); model(x)") is None
    recording = shell.kept().recording
    assert [layer.path for layer in recording.layers][::3] == ["/other/first", "/model/first"]
    assert recording.settings.input == "inputs of the cell"
    assert recording.settings.batchsize == 1
    assert shell.cell(f"{FEW} -q -o s", "F.relu(x)") is None
    assert shell.kept().recording.settings.model == "a cell"


# -- what a trial of it is


def test_links_of_other_networks_and_ipythons_names_are_no_networks() -> None:
    model, other = Net(), Net()
    found = networks({"_": other, "inner": model.first, "model": model, "again": model, "k": 3})
    assert found == [("/model", model)]
    assert networks({"inner": model.first, "_1": model}) == [("/inner", model.first)]


def test_one_optimizer_for_a_parameter() -> None:
    model = Net()
    first, last = (chainer.optimizers.SGD().setup(model) for _ in range(2))
    variables = {"a": first, "again": first, "b": last, "idle": chainer.optimizers.SGD()}
    assert optimizers(variables, ()) == [last]
    assert optimizers(variables, ("a",)) == [first]
    part = chainer.optimizers.SGD().setup(model.first)
    other = chainer.optimizers.SGD().setup(Net())
    assert optimizers({"a": last, "p": part, "o": other}, ("a",)) == [last, other]


def test_the_first_run_sees_what_the_cell_does() -> None:
    names = {"model": Net(), "x": np.ones((2, 4), np.float32)}
    first = FirstRun(compile("y = model(x)", "cell", "exec"), names)
    assert (first.calls, first.called, first.train_mode) == (3, ["Net"], True)
    assert first.device == chainer.get_device("@numpy")
    assert [given.arrays for given in first.given] == [(names["x"],)]
    assert names["y"].shape == (2, 3)


def test_what_a_cell_prints_and_raises_in_a_trial(capsys: Any) -> None:
    code, names = compile("print('seen'); n += 1; 1 / (n - 2)", "cell", "exec"), {"n": 0}
    FirstRun(code, names)
    assert capsys.readouterr().out == "seen\n"
    cell = Cell(code, names)
    with cell.configured(), pytest.raises(ZeroDivisionError) as error:
        cell()
    assert cell.error is error.value
    assert capsys.readouterr().out == ""


def test_the_parts_of_an_update_are_timed_at_their_links() -> None:
    model = Net()
    names = {"model": model, "opt": chainer.optimizers.SGD().setup(model.first)}
    model.cleargrads()
    cell = Cell(compile("opt.update()", "cell", "exec"), names)
    entered: list[Any] = []
    with cell.timed(entered.append, lambda: None):
        cell()
    assert [(mark.phase, mark.path) for mark in entered] == [
        ("update", ""),
        *[("update", "/model/first")] * 2,
    ]
    assert cell.optimizers == [names["opt"]]


ON_GPU = """
import chainer_profile, chainer, cupy
import chainer.links as L
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

config = Config()
config.HistoryManager.enabled = False
shell = InteractiveShell(config=config)
shell.user_ns["model"] = L.Linear(4, 3).to_device("@cupy:0")
shell.user_ns["x"] = cupy.ones((2, 4), "f")
shell.run_line_magic("load_ext", "chainer_profile")
shell.run_cell("%%layerprofile -n 5 -w 1 --no-memory -q -o s\\nmodel(x)").raise_error()
recording = shell.user_ns["s"].recording
print(recording.settings.device, recording.on_device)
"""


def test_on_a_gpu_a_cell_takes_its_clock(tmp_path: Path) -> None:
    result = process(["-c", ON_GPU], IPYTHONDIR=str(tmp_path))
    assert result.stdout == "gpu:0 True\n", result.stderr


# -- what is shown


def test_a_view_is_what_the_options_ask_for(shell: Shell, capsys: Any) -> None:
    capsys.readouterr()
    assert shell.line(f"{FEW} -q -o s --hotspots top:1 model(x)") is None
    summary = shell.kept()
    assert int(summary.layers["hot"].sum()) == 1
    tree = View(summary, "link", True, 2)
    assert "incl. ms" in repr(tree)
    assert 'aria-label="By link"' in tree._repr_html_()
    assert 'aria-label="The tree of links"' in tree._repr_html_()
    assert "mean ms" in repr(View(summary, None, False, 2))
    assert capsys.readouterr() == ("", "")  # it is quiet


def test_the_extension_can_be_unloaded(shell: Shell) -> None:
    assert shell.run("%unload_ext chainer_profile") is None
    assert shell.shell.find_line_magic("layerprofile") is None
    assert shell.shell.find_cell_magic("layerprofile") is None
    assert shell.run("%load_ext chainer_profile") is None
    assert shell.shell.find_line_magic("layerprofile") is not None


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)


def test_importing_the_package_needs_no_ipython() -> None:
    code = (
        "import sys; sys.modules['IPython'] = None\n"
        "import chainer_profile\n"
        "from chainer_profile import ProfileError, Recording, Summary\n"
        "try: chainer_profile.load_ipython_extension\n"
        "except ProfileError as error: print(error)"
    )
    result = python(code)
    assert result.stderr == ""
    assert result.stdout.count("\n") == 1
    assert result.stdout.startswith("the notebook extension needs IPython")


def test_ipython_starts_in_the_projects_root() -> None:
    result = python("import IPython, chainer_profile, profile; print(profile.__file__)")
    assert result.stderr == ""
    assert Path(result.stdout.strip()).parent != ROOT
