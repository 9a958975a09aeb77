"""The magics, in a separate IPython shell."""

import atexit
import builtins
import signal
import warnings

import chainer
import chainer.functions as F
import numpy as np
import pytest

from tests import ROOT, needs

IPython = needs.module("IPython")

from IPython.core.error import UsageError  # noqa: E402
from IPython.core.interactiveshell import InteractiveShell  # noqa: E402
from traitlets.config import Config  # noqa: E402

from chainer_profile.basics import warning  # noqa: E402
from chainer_profile.cli import notebook  # noqa: E402
from chainer_profile.measure import memory  # noqa: E402
from tests.command import raising  # noqa: E402
from tests.measure.describing import describe, differences  # noqa: E402
from tests.nets import MLP  # noqa: E402
from tests.scripts import python  # noqa: E402

FEW = "-n 5 -w 1"


@pytest.fixture(scope="module")
def one_shell(tmp_path_factory):
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("IPYTHONDIR", str(tmp_path_factory.mktemp("ipython")))
        before = set(vars(builtins))
        config = Config()
        config.HistoryManager.enabled = False
        shell = InteractiveShell(config=config)
        yield shell
        for name in vars(builtins).keys() - before:
            delattr(builtins, name)
        atexit.unregister(shell.atexit_operations)
        shell.atexit_operations()


class Shell:
    """An IPython shell with a network, its input, and the extension."""

    def __init__(self, shell):
        self.shell, self.names = shell, shell.user_ns
        shell.reset(new_session=False)
        x, t = np.ones((2, 3), np.float32), np.array([0, 1], np.int32)
        self.names |= {"chainer": chainer, "F": F, "MLP": MLP, "np": np, "signal": signal}
        self.names |= {"model": MLP(), "x": x, "t": t, "n": 0}
        self.run("%reload_ext chainer_profile")

    def run(self, code):
        """Run a cell; return the exception that it raised."""
        result = self.shell.run_cell(code)
        return result.error_before_exec or result.error_in_exec

    def line(self, rest):
        return self.run(f"%layerprofile {rest}")

    def cell(self, options, *lines):
        return self.run("\n".join([f"%%layerprofile {options}", *lines]))

    def profile_call(self, call, options=f"{FEW} -q"):
        """Profile a line, which must not fail; return the summary."""
        assert self.line(f"{options} -o s {call}") is None
        return self.names.pop("s")

    def profile_cell(self, *lines, options=f"{FEW} -q"):
        """Profile a cell, which must not fail; return the summary."""
        assert self.cell(f"{options} -o s", *lines) is None
        return self.names.pop("s")


@pytest.fixture
def shell(one_shell):
    return Shell(one_shell)


def paths(summary):
    return [layer.path for layer in summary.recording.layers]


def test_call_is_profiled_in_test_mode_with_the_given_options(shell, capsys):
    summary = shell.profile_call("model(x)", FEW)
    recording = summary.recording
    settings = recording.settings
    assert paths(summary) == ["/fc1", "/", "/fc2"]
    assert (recording.n_trials, settings.warmups) == (5, 1)
    assert (settings.phase, settings.train_mode) == ("forward", False)
    assert settings.command == f"%layerprofile {FEW} -o s model(x)"
    assert recording.memory is None
    assert "MLP, shape 2x3, batch 2, inference on the CPU" in capsys.readouterr().out
    options = "-n 100000 -w 0 --max-seconds 0.2 -q --phase train"
    summary = shell.profile_call("model(x)", options)
    assert list(summary.phases.index) == ["forward", "backward", "update", "outside"]
    assert summary.recording.ended == "time limit reached"
    assert shell.profile_call("model(x)", f"{FEW} -q --memory").recording.memory is not None


def test_arguments_of_the_call_reach_the_network(shell):
    shell.names["asked"] = []
    spaces = "[model][len( asked )]( (asked.append('a  b'), x)[ 1 ][:1] )"
    for call, batchsize in {"model(*[x])": 2, "model(**{'x': x})": 2, spaces: 1}.items():
        settings = shell.profile_call(call).recording.settings
        assert (settings.model, settings.input_shape) == ("MLP", (batchsize, 3)), call
    assert shell.names["asked"] == ["a  b"]  # evaluated once
    settings = shell.profile_call("F.concat([x, x, x], axis=0)").recording.settings
    assert settings.model == "concat (a function, no links)"
    assert (settings.input, settings.batchsize) == ("the first of 3 arrays", 3)


#: Arguments of the line magic, or of the cell magic and its cell, and part of the message.
REFUSED = """
 | give a call of a network
model | 'model' is not a call
model( | 'model(' is not an expression
model() | has no array among its inputs
n(x) | is a chainer.Link or a function, not int
MLP(x) | MLP is a class: give an instance of it
np.sum(x) | calls no Chainer function
--phase train F.relu(x) | a function has no parameters to update
-o 1x model(x) | must be the name of a variable, not '1x'
model(x[:, :2]) | the network fails with an input of 2x2, in Linear at /fc1
 | y = 1 | the cell calls no Chainer function
model(x) | model(x) | takes only options, not 'model(x)'
--phase train | model(x) | --phase is for %layerprofile
-n 9 -w 9 | n += 1; model(x); n != 6 or signal.raise_signal(2) | no complete profiled trial
"""


def test_wrong_input_is_refused_in_one_line(shell):
    for row in REFUSED.splitlines()[1:]:
        *given, message = row.split(" | ")
        error = shell.line(*given) if len(given) == 1 else shell.cell(*given)
        assert isinstance(error, UsageError), row
        assert message in str(error)
        assert "\n" not in str(error)
    # Errors in the user's code are raised unchanged.
    assert isinstance(shell.line("unknown(x)"), NameError)
    assert isinstance(shell.cell(FEW, "y = model(x"), SyntaxError)


STEP = ("loss = F.softmax_cross_entropy(model(x), t)", "model.cleargrads()", "loss.backward()")


def test_cell_is_a_trial_in_the_users_namespace(shell, capsys):
    summary = shell.profile_cell("n += 1", "print('once')", "y = model(x)", "F.relu(y)")
    recording = summary.recording
    assert paths(summary) == ["/model/fc1", "/model", "/model/fc2", "/"]
    assert recording.settings.input_shape == (2, 3)
    assert recording.settings.train_mode  # ``chainer.config`` is in train mode in a notebook
    assert shell.names["n"] >= 1 + 1 + 5 + len(recording.clean_ns)
    assert shell.names["y"].shape == (2, 2)
    assert recording.n_trials == 5
    assert capsys.readouterr().out.count("once") == 1
    # A cell with several calls has no single batch size; its trials may differ.
    summary = shell.profile_cell("n += 1", "own = MLP(); own(x)", "for _ in range(n % 3): model(x)")
    assert paths(summary)[:3] == ["/MLP/fc1", "/MLP", "/MLP/fc2"]
    assert summary.recording.settings.input == "inputs of the cell"
    assert summary.totals.fps is None


def test_training_step_of_the_user_is_profiled(shell):
    shell.run("adam = chainer.optimizers.Adam().setup(model)")
    summary = shell.profile_cell(*STEP, "adam.update()")
    settings = summary.recording.settings
    assert (settings.phase, settings.optimizer) == ("train", "Adam")
    updates = summary.layers[summary.layers["phase"] == "update"]
    assert set(updates["path"]) == {"/model/fc1", "/model/fc2"}
    assert float(summary.phases["total_s"].sum()) == pytest.approx(summary.totals.profiled.mean_s)
    assert shell.profile_cell(*STEP).recording.settings.phase == "forward-backward"


def test_error_in_a_cell_is_shown_as_the_users_error(shell, capsys):
    for at in (1, 2, 6, 9):
        shell.names["n"] = 0
        error = shell.cell(f"{FEW} -o s", "n += 1", "y = model(x)", f"if n == {at}:", "    1 / 0")
        assert isinstance(error, ZeroDivisionError)
        assert shell.names["n"] == at
        assert "s" not in shell.names
        out = capsys.readouterr().out
        assert "1 / 0" in out
        assert "chainer_profile" not in out
    shell.profile_cell("model(x)")  # hooks are removed


def test_interrupt_ends_the_trials(shell):
    stop = "if n == 60: signal.raise_signal(signal.SIGINT)"
    before = signal.getsignal(signal.SIGINT)
    recording = shell.profile_cell("n += 1", "model(x)", stop, options="-n 1000 -w 1 -q").recording
    assert signal.getsignal(signal.SIGINT) is before
    assert shell.names["n"] == 60  # the cell does not run again
    assert 0 < recording.n_trials < 60
    assert recording.ended == "interrupted"
    # A second interrupt ends the cell at once.
    twice = "if n == 69: [signal.raise_signal(signal.SIGINT) for _ in 'ab']"
    error = shell.cell("-n 1000 -w 1", "n += 1", "model(x)", twice)
    assert isinstance(error, KeyboardInterrupt)


def test_interrupt_within_the_network_shows_the_trials_before_it(shell, capsys):
    def interrupt(y, calls):
        if calls == 20:
            raise KeyboardInterrupt
        return y

    shell.names["model"] = MLP(interrupt)
    for run in (shell.line, lambda call: shell.cell(call.split("model")[0], "model(x)")):
        assert isinstance(run("-n 1000 -w 1 -o s model(x)"), KeyboardInterrupt)
        recording = shell.names.pop("s").recording
        assert (recording.ended, recording.settings.model) == ("interrupted", "MLP")
        assert 0 < recording.n_trials < 20
        assert "fc1" in capsys.readouterr().out
    shell.names["model"] = MLP(lambda y, calls: interrupt(y, calls + 19))
    assert isinstance(shell.line("-o s model(x)"), KeyboardInterrupt)
    assert "s" not in shell.names


@pytest.mark.parametrize("call", ["model(x)", "model.forward(x)", "(lambda x: model(x))(x)"])
def test_line_restores_the_state_of_its_network(shell, call):
    before = describe(model=shell.names["model"], x=shell.names["x"])
    for phase in ("forward", "forward-backward"):
        shell.profile_call(call, f"{FEW} -q --phase {phase}")
    assert not differences(before, describe(model=shell.names["model"], x=shell.names["x"]))


def test_options_choose_the_tables_and_the_extension_can_be_unloaded(shell, monkeypatch):
    shown = []
    monkeypatch.setattr(notebook, "display", lambda forms, raw: shown.append(forms))
    summary = shell.profile_call("--hotspots top:1 model(x)")
    assert int(summary.layers["hot"].sum()) == 1
    assert shown == []  # -q shows nothing
    for option, text, title in (
        ("--tree 2", "incl. ms", "The tree of links"),
        ("", "ms a call", "By link"),
    ):
        shell.profile_call("model(x)", f"{FEW} --group-by link {option}")
        assert text in shown[-1]["text/plain"]
        assert f'aria-label="{title}"' in shown[-1]["text/html"]
    for word in ("unload", "load"):
        assert shell.run(f"%{word}_ext chainer_profile") is None
        magics = shell.shell.magics_manager.magics
        assert all(("layerprofile" in magics[k]) is (word == "load") for k in ("line", "cell"))


def test_missing_ipython_is_a_one_line_error():
    code = (
        "import sys; sys.modules['IPython'] = None\n"
        "import chainer_profile\n"
        "try: chainer_profile.load_ipython_extension\n"
        "except chainer_profile.ProfileError as error: print(error)"
    )
    message = python("-c", code, cwd=ROOT)
    assert (message.stderr, message.stdout.count("\n")) == ("", 1)
    assert message.stdout.startswith("the notebook extension needs IPython")


def test_our_warnings_never_raise_in_a_cell(shell, monkeypatch, capsys):
    monkeypatch.setattr(warning, "_printed", set())
    monkeypatch.setattr(memory, "memory_use", raising(OSError("none")))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        summary = shell.profile_cell("y = model(x)", options=f"{FEW} -q --memory")
    assert summary.recording.memory is None
    message = "chainer-profile: the memory pass failed (the memory pass failed: OSError: none)"
    assert message in capsys.readouterr().err
