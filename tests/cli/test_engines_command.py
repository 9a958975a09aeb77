"""``profile.py engines`` on a tiny network, with engines of the user."""

import csv
import signal
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from chainer_profile.engines.catalogue import ENGINES, EngineEntry
from chainer_profile.measure import environment
from chainer_profile.report import page
from chainer_profile.runs import engines as run_folder
from chainer_profile.runs.folder import load_run
from tests import command, names_in
from tests.command import Net, QuietMachine, acting, file_size_limit, one_line, raising, sending

OWN = '''
import chainer
import numpy as np
from chainer_profile.engines.protocol import EngineError, EngineNode, EngineProfile


class Fast:
    """Does both layers in one node, without Chainer."""

    name = "fast"
    version = "2.0"
    off = 0.0

    def prepare(self, network):
        self.W, self.b = network.model.fc.W.array, network.model.fc.b.array

    def run(self, inputs):
        return (np.maximum(inputs[0] @ self.W.T + self.b, 0) + np.float32(self.off),)

    def layers(self, inputs, trials):
        nodes = EngineNode("copy", "Copy"), EngineNode("fused", "LinearRelu", (0, 1))
        times = np.tile(np.array([10, 500]), (trials, 1))
        return EngineProfile(nodes, times, np.full(trials, 700))

    def load(self, network, path):
        values = np.frombuffer(path.read_bytes(), np.float32)
        if len(values) != 8:
            raise EngineError("is of another network")
        self.W, self.b = values[:6].reshape(2, 3), values[6:]


class Wrong(Fast):
    name = "wrong"
    off = 1.0

    def intermediates(self, inputs):
        return {0: inputs[0] @ self.W.T + self.b, 1: self.run(inputs)[0]}
'''
WRITE_REPORTS = run_folder.write_engine_reports
FILES = [f"engines.{end}" for end in ("csv", "html", "json", "md", "png", "svg")]
FAST = ("--engines", "own:Fast", "--out", "run")


@pytest.fixture(autouse=True)
def own(folder, monkeypatch):
    Path("own.py").write_text(OWN)
    monkeypatch.setattr(page, "page", lambda *_: "page")
    monkeypatch.setattr(environment, "CpuWatch", QuietMachine)
    monkeypatch.setattr(environment, "commit_of", lambda *_: "")
    monkeypatch.setattr(run_folder, "write_engine_reports", lambda *_: [])


def run(*words, **more):
    return command.main("engines", "--trials", "12", *words, **more)


def table(out="run"):
    lines = Path(out, "engines.csv").read_text().splitlines()
    return {row["engine"]: row for row in csv.DictReader(lines)}


def test_engines_are_measured_compared_and_written(done, monkeypatch):
    monkeypatch.setattr(run_folder, "write_engine_reports", WRITE_REPORTS)
    words = ("--engines", "own:Fast,chainer", "--threads", "1", "--trials", "12")
    out = done("engines", *words)
    place = Path("reports/engines-tiny-cpu-b1")
    assert names_in(place) == ["chainer", *FILES, "fast"]
    expected = {"version": "2.0", "trials": "12", "outputs": "right", "nodes": "2"}
    assert expected.items() <= table(place)["fast"].items()
    assert "fast: 2 layers became 2 nodes" in out
    assert "Use fast." in out or "Stay with chainer." in out
    recording, of_chainer = (load_run(place / name) for name in ("fast", "chainer"))
    assert recording.settings.engine == "fast 2.0"
    assert [layer.covers for layer in recording.layers] == [(), (0, 1)]
    assert len(recording.clean_ns) == 12
    assert (of_chainer.settings.engine, of_chainer.settings.threads) == ("", 1)
    assert (place / "fast" / "report.md").is_file()
    # Reports are written again from the recordings.
    before = {name: Path(place, name).read_bytes() for name in FILES}
    Path(place, "engines.csv").unlink()
    assert done("report", str(place)).partition("\nWritten")[0] == out.partition("\nWritten")[0]
    assert {name: Path(place, name).read_bytes() for name in FILES} == before


def test_wrong_outputs_give_exit_code_4_after_files_are_written(capsys):
    assert run("--engines", "own:Wrong,own:Fast", "--out", "run") == 4
    out, err = capsys.readouterr()
    message = one_line(err)
    assert message.startswith("profile.py: wrong: wrong outputs: they differ by up to 1.0e+00 (")
    assert message.endswith("tolerance of 1.0e-04; the first layer that differs is 1_ReLU at /")
    assert [name for name in names_in("run") if "." in name] == FILES
    wrong, fast = table()["wrong"], table()["fast"]
    assert (wrong["outputs"], wrong["speedup_vs_chainer"]) == ("wrong", "")
    assert fast["outputs"] == "right"
    assert "wrong outputs" in out
    model = Net()
    model.fc.b.array[:] = 99
    words = ("--engines", "own:Wrong", "--out", "run", "--force", "--tolerance", "0.02")
    assert run(*words, build=lambda: model) == 0
    assert not Path("run", "fast").exists()


def test_engine_from_a_file_uses_the_weights_in_the_file(fails):
    model = Net()
    model.fc.b.array[:] = 10  # keeps ReLU's inputs positive
    values = np.concatenate([model.fc.W.array.ravel(), model.fc.b.array])
    words = (*FAST, "--force", "-q", "--load-engine", "kept.fast")
    for content, code in ((values, 0), (values * 2, 4)):
        Path("kept.fast").write_bytes(content.tobytes())
        assert run(*words, build=lambda: model) == code
    Path("kept.fast").write_bytes(b"1234")
    assert fails("engines", *words) == "no engine but chainer ran: fast: is of another network"


def test_engines_without_their_packages_are_listed_with_the_reason(done, monkeypatch, capsys):
    # One package cannot be imported, the other one is not installed.
    Path("half_there.py").write_text("raise ImportError('no\\nlibrary')")
    monkeypatch.syspath_prepend(".")
    for module, lacks in (
        ("half_there", "cannot be imported (ImportError: no library)"),
        ("no_such_module", "not installed"),
    ):
        entry = EngineEntry("other", "Another", "no:Such", (module,), "pip install x")
        monkeypatch.setitem(ENGINES, "other", entry)
        listed = done("engines", "--list-engines")
        assert f"other Another ({lacks}: pip install x)" in " ".join(listed.split())
        assert run("--engines", "other", "--out", "a", "--force", "-q") == 1
        message = f"no engine but chainer ran: other: {lacks}: pip install x"
        assert one_line(capsys.readouterr().err).endswith(message)


def test_each_provider_has_its_name_and_folder_or_a_line_if_missing(done, monkeypatch):
    lacks, named = "onnxruntime:OpenVINOExecutionProvider", "onnxruntime:CPUExecutionProvider"
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    out = " ".join(done("engines", "--engines", f"{named},{lacks}", "--out", "run").split())
    assert "the installed ONNX Runtime has no OpenVINOExecutionProvider: python -m pip" in out
    assert table()[lacks]["install"] == "python -m pip install onnx onnxruntime-openvino"
    recording = load_run(Path("run", "onnxruntime_CPUExecutionProvider"))
    assert recording.settings.engine == f"{named} {onnxruntime.__version__}"


def test_trials_before_an_interrupt_error_or_full_disk_are_kept(fails, capsys):
    # Three calls of the structure pass, four for outputs, a warm-up and an untimed call.
    assert run(*FAST, build=acting(15, sending(signal.SIGINT))) == 130
    assert "ended early (interrupted by SIGINT)" in capsys.readouterr().out
    assert 0 < int(table()["fast"]["trials"]) < 12
    ending = acting(20, raising(ValueError("enough")))
    message = fails("engines", "--trials", "12", *FAST, "--force", "-q", build=ending)
    assert message.startswith("chainer: after ")
    assert message.endswith("trials: ValueError: enough")
    with file_size_limit(100):  # a full disk
        assert run(*FAST, "--force") == 1
    out, err = capsys.readouterr()
    assert "fast" in out
    assert "cannot be written" in one_line(err)
