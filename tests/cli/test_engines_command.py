"""``profile.py engines``, on a tiny network with engines of the user's own."""

from __future__ import annotations

import csv
import json
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chainer_profile.analyse.summaries import summarise
from chainer_profile.cli import instead
from chainer_profile.cli import main as cli
from chainer_profile.engines import race
from chainer_profile.engines.catalogue import ENGINES, EngineEntry
from chainer_profile.engines.race import choose
from chainer_profile.measure import environment, runner
from chainer_profile.record.recording import Calibration
from chainer_profile.report import page
from chainer_profile.report.pictures.figures import Picture
from chainer_profile.runs import engines as run_folder
from chainer_profile.runs.folder import load_run
from tests import names_in
from tests.command import Entry, Net, command, file_size_limit, folder, one_line  # noqa: F401

OWN = '''
import chainer
import numpy as np
from chainer_profile.engines.protocol import EngineError, EngineNode, EngineProfile


class Fast:
    """Does both layers in one node, without Chainer."""

    name = "fast"
    version = "2.0"
    suffix = ".fast"
    off = 0.0

    def prepare(self, network):
        self.W, self.b = network.model.fc.W.array, network.model.fc.b.array

    def run(self, inputs):
        return (np.maximum(inputs[0] @ self.W.T + self.b, 0) + np.float32(self.off),)

    def layers(self, inputs, trials):
        nodes = EngineNode("copy", "Copy"), EngineNode("fused", "LinearRelu", (0, 1))
        times = np.tile(np.array([10, 500]), (trials, 1))
        return EngineProfile(nodes, times, np.full(trials, 700))

    def save(self, path):
        path.write_bytes(self.W.tobytes() + self.b.tobytes())

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


class Broken(Fast):
    name = "broken"

    def prepare(self, network):
        raise EngineError("cannot express LinearFunction at /fc")


class Silent(Fast):
    name = "silent"

    def layers(self, inputs, trials):
        return None


class Nothing:
    pass


def fails():
    raise RuntimeError("no licence")
'''
WRITE_REPORTS = run_folder.write_engine_reports
FILES = [f"engines.{end}" for end in ("csv", "html", "json", "md", "png", "svg")]


@pytest.fixture(autouse=True)
def own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    Path("own.py").write_text(OWN)
    for form in ("png", "svg"):
        monkeypatch.setattr(Picture, form, lambda self: b"plot")
    monkeypatch.setattr(page, "render_engines", lambda run, recordings: "page")
    monkeypatch.setattr(environment, "CpuWatch", Calm)
    monkeypatch.setattr(environment, "_commit", lambda: "")
    monkeypatch.setattr(runner, "calibrated", lambda *_: Calibration(1e-3, 7e-4))
    monkeypatch.setattr(run_folder, "write_engine_reports", lambda *_: [])
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p])


class Calm:
    def other_cpu(self) -> float | None:
        return 0.0


def run(*argv: str, build: Any = Net) -> int:
    words = ["--model", "tiny", "--trials", "12", "--warmups", "1", *argv]
    registry: Any = {"tiny": Entry(build)}
    return cli.main(["engines", *words], registry)


def table(out: str) -> dict[str, dict[str, str]]:
    lines = Path(out, "engines.csv").read_text().splitlines()
    return {row["engine"]: row for row in csv.DictReader(lines)}


def test_engines_are_measured_compared_and_written(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_folder, "write_engine_reports", WRITE_REPORTS)
    assert run("--engines", "own:Fast,chainer", "--threads", "1") == 0
    out, err = capsys.readouterr()
    assert err == ""
    place = Path("reports/engines-tiny-cpu-b1")
    assert names_in(place) == [
        "chainer",
        *FILES,
        "fast",
    ]
    assert f"Written to {place}: engines.md, engines.html, engines.json, engines.csv" in out
    found = table(str(place))
    assert list(found) == ["chainer", "fast"]
    fast = found["fast"]
    assert (fast["version"], fast["trials"], fast["outputs"], fast["nodes"]) == (
        *("2.0", "12", "right", "2"),
    )
    assert "fast: 2 layers became 2 nodes" in out
    assert "Take fast" in out or "stay with it" in out

    recording = load_run(place / "fast")
    assert recording.settings.engine == "fast 2.0"
    assert recording.settings.precision == "fp32"
    assert [layer.covers for layer in recording.layers] == [(), (0, 1)]
    assert len(recording.clean_ns) == 12
    chainer_run = load_run(place / "chainer")
    assert [layer.function for layer in chainer_run.layers] == ["LinearFunction", "ReLU"]
    assert chainer_run.settings.engine == ""
    assert chainer_run.settings.threads == 1
    assert {link.path for link in recording.links} == {"/", "/fc"}
    assert (place / "fast" / "report.md").is_file()
    assert summarise(recording).totals.clean is not None
    assert command("compare", [str(place / "chainer"), str(place / "fast")]) == 0


def test_reports_are_made_again_from_what_was_kept(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--engines", "own.py:Fast", "--out", "run") == 0
    first = {name: Path("run", name).read_bytes() for name in FILES}
    said = capsys.readouterr().out.partition("\nWritten")[0]
    for name in FILES:
        if name != "engines.json":
            Path("run", name).unlink()
    assert run("--report", "run") == 0
    assert {name: Path("run", name).read_bytes() for name in FILES} == first
    assert capsys.readouterr().out.partition("\nWritten")[0] == said


def test_wrong_outputs_end_with_4_after_all_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--engines", "own:Wrong,own:Fast", "--out", "run") == 4
    out, err = capsys.readouterr()
    said = one_line(err)
    assert said.startswith("profile.py: wrong: wrong outputs: they differ by up to 1.0e+00, which")
    assert said.endswith(
        "above the tolerance of 1.0e-04; the first layer that differs is 1_ReLU at /"
    )
    assert [name for name in names_in("run") if "." in name] == FILES
    found = table("run")
    assert (found["wrong"]["outputs"], found["wrong"]["speedup_vs_chainer"]) == ("wrong", "")
    assert float(found["wrong"]["mean_ms"]) > 0
    assert found["fast"]["outputs"] == "right"
    assert "wrong outputs" in out
    assert run("--report", "run") == 0


def test_a_tolerance_can_be_given() -> None:
    def build() -> Net:
        net = Net()
        net.fc.b.array[:] = 99
        return net

    assert run("--engines", "own:Wrong", "--out", "a", build=build) == 4
    assert run("--engines", "own:Wrong", "--out", "b", "--tolerance", "0.02", build=build) == 0


def test_weights_that_were_broken_on_purpose_are_caught(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--engines", "own:Fast", "--save-engine", "kept.fast", "--out", "a") == 0
    values = np.frombuffer(Path("kept.fast").read_bytes(), np.float32).copy()
    assert run("--engines", "own:Fast", "--load-engine", "kept.fast", "--out", "b") == 0
    values[:6] *= 2
    Path("kept.fast").write_bytes(values.tobytes())
    capsys.readouterr()
    assert run("--engines", "own:Fast", "--load-engine", "kept.fast", "--out", "c") == 4
    assert "fast: wrong outputs" in one_line(capsys.readouterr().err)
    Path("kept.fast").write_bytes(b"1234")
    assert run("--engines", "own:Fast", "--load-engine", "kept.fast", "--out", "d") == 1
    assert one_line(capsys.readouterr().err) == (
        "profile.py: error: no engine but chainer ran: fast: is of another network"
    )


def test_one_that_fails_is_listed_and_the_others_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--engines", "own:Broken,own:Fast,own:Silent", "--out", "run") == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "broken: cannot express LinearFunction at /fc" in out
    assert "silent: it does not tell the times of its nodes" in out
    assert table("run")["silent"]["trials"] == "12"
    assert not Path("run", "silent").exists()
    assert not Path("run", "broken").exists()


def test_engines_that_are_not_installed_are_listed_with_the_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = EngineEntry("openvino", "OpenVINO", "no:Such", ("no_such_module",), "pip install x")
    known = {**ENGINES, "openvino": missing}
    monkeypatch.setattr(instead, "ENGINES", known)
    monkeypatch.setattr(race, "ENGINES", known)
    assert run("--list-engines") == 0
    assert "openvino      OpenVINO (not installed: pip install x)" in capsys.readouterr().out
    assert run("--engines", "openvino", "--out", "a") == 1
    out, err = capsys.readouterr()
    assert "openvino: not installed: pip install x" in out
    assert one_line(err).endswith(
        "no engine but chainer ran: openvino: not installed: pip install x"
    )
    assert run("--engines", "openvino,own:Fast", "--out", "b") == 0
    assert table("b")["openvino"]["install"] == "pip install x"


def test_a_package_that_is_broken_is_not_installed_in_name_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("half_there.py").write_text("raise ImportError('no\\nlibrary')")
    monkeypatch.syspath_prepend(".")
    broken = EngineEntry("openvino", "OpenVINO", "no:Such", ("half_there",), "pip install x")
    known = {**ENGINES, "openvino": broken}
    monkeypatch.setattr(instead, "ENGINES", known)
    monkeypatch.setattr(race, "ENGINES", known)
    assert run("--list-engines") == 0
    words = "cannot be imported (ImportError: no library): pip install x"
    assert f"openvino      OpenVINO ({words})" in capsys.readouterr().out
    (one,) = [one for one in choose(["openvino"]) if one.name == "openvino"]
    assert one.error == "cannot be imported (ImportError: no library)"


def test_a_run_is_replaced_only_with_force(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--engines", "own:Fast", "--out", "run") == 0
    before = json.loads(Path("run/engines.json").read_text())
    assert run("--engines", "own:Wrong", "--out", "run") == 2
    assert "holds a run already" in capsys.readouterr().err
    assert json.loads(Path("run/engines.json").read_text()) == before
    assert run("--engines", "own:Wrong", "--out", "run", "--force") == 4
    assert not Path("run/fast").exists()
    assert Path("run/wrong/recording.npz").is_file()


def test_default_folders_are_numbered_and_empty_ones_go() -> None:
    class Bad(Net):
        def forward(self, x: Any) -> Any:
            raise RuntimeError("shape")

    assert run("--engines", "own:Fast", build=Bad) == 1
    assert not Path("reports").exists()
    assert run("--engines", "own:Fast") == run("--engines", "own:Fast") == 0
    names = sorted(p.name for p in Path("reports").iterdir())
    assert names == ["engines-tiny-cpu-b1", "engines-tiny-cpu-b1-2"]


def test_the_batch_is_that_of_a_file() -> None:
    np.save("x.npy", np.zeros((3, 3), np.float32))
    assert run("--engines", "own:Fast", "--input", "x.npy") == 0
    assert load_run(Path("reports/engines-tiny-cpu-b3/fast")).settings.batchsize == 3


def test_a_signal_keeps_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    class Signalling(Net):
        def at_call(self, number: int) -> None:
            # Three calls of the structure pass, four for outputs, a warm-up and an untimed one.
            if number == 15:
                signal.raise_signal(signal.SIGINT)

    assert run("--engines", "own:Fast", "--out", "run", build=Signalling) == 130
    out, _ = capsys.readouterr()
    assert "ended before all were made (interrupted by SIGINT)" in out
    found = table("run")
    assert 0 < int(found["fast"]["trials"]) < 12
    assert json.loads(Path("run/engines.json").read_text())["ended"] == "interrupted by SIGINT"


def test_a_network_that_fails_later_keeps_what_was_measured(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Failing(Net):
        def at_call(self, number: int) -> None:
            if number == 20:
                raise ValueError("enough")

    assert run("--engines", "own:Fast", "--out", "run", build=Failing) == 1
    said = one_line(capsys.readouterr().err)
    assert said.startswith("profile.py: error: chainer: after ")
    assert said.endswith("trials: ValueError: enough")
    assert int(table("run")["fast"]["trials"]) > 0


def test_a_full_disk_still_shows_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    with file_size_limit(100):
        assert run("--engines", "own:Fast", "--out", "run") == 1
    out, err = capsys.readouterr()
    assert "fast" in out
    assert "cannot be written" in one_line(err)


def test_another_precision_is_the_other_engines(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--engines", "own:Fast", "--precision", "bf16", "--out", "run") == 0
    found = table("run")
    assert (found["chainer"]["precision"], found["fast"]["precision"]) == ("fp32", "bf16")
    assert float(found["fast"]["tolerance"]) == 0.05
    assert load_run(Path("run/fast")).settings.precision == "bf16"
    assert load_run(Path("run/chainer")).settings.precision == ""


def test_nothing_is_printed_when_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--engines", "own:Fast", "--quiet") == 0
    assert capsys.readouterr() == ("", "")
