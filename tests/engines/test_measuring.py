"""From a network and engines to results and recordings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import chainer
import numpy as np
import pytest

from chainer_profile.basics.errors import ProfileError
from chainer_profile.engines.measuring import Measured, measure
from chainer_profile.engines.protocol import EngineNode, EngineProfile
from chainer_profile.engines.race import Contestant
from chainer_profile.measure import runner
from chainer_profile.record.recording import Calibration, Conditions, Environment, Settings
from tests.command import Net
from tests.conftest import FakeClock
from tests.engines.fake_engines import FakeEngine

X = np.ones((1, 3), np.float32)
SETTINGS = Settings(model="net", trials=12, warmups=1, precision="fp16")


class Reference(FakeEngine):
    """Stands for Chainer: takes 1,000 ns, and its recorder knows more than the protocol tells."""

    recording: Any = None

    def layers(self, inputs: tuple[Any, ...], trials: int) -> EngineProfile:
        nodes = tuple(EngineNode(str(i), "Layer", (i,)) for i in range(2))
        return EngineProfile(nodes, np.full((trials, 2), 400), np.full(trials, 1000))


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch, one_thread: None) -> None:
    monkeypatch.setattr(runner, "calibrated", lambda *_: Calibration(1e-3, 7e-4))


def measured(clock: FakeClock, *engines: FakeEngine, **more: Any) -> Measured:
    contestants = [Contestant(name=e.name, engine=e, version="1") for e in engines]
    return measure(
        Net(),
        X,
        SETTINGS,
        contestants,
        layer_trials=5,
        clock=clock,
        **more,  # type: ignore[arg-type]
    )


def test_every_engine_has_its_own_settings(clock: FakeClock) -> None:
    fused = EngineProfile((EngineNode("a", "Fused", (0, 1)),), np.full((5, 1), 70), np.full(5, 90))
    found = measured(clock, Reference(clock, 1000, "chainer"), FakeEngine(clock, 100, given=fused))
    assert list(found.recordings) == ["chainer", "fake"]
    chainer, fake = found.recordings.values()
    assert (chainer.settings.engine, chainer.settings.precision) == ("", "")
    assert (fake.settings.engine, fake.settings.precision) == ("fake 1", "fp32")
    assert fake.settings.trials == 5
    assert fake.clean_ns.tolist() == [100] * 12
    assert [layer.function for layer in chainer.layers] == ["LinearFunction", "ReLU"]
    assert fake.layers[0].function == "LinearFunction + ReLU"
    assert fake.links == chainer.links != ()
    assert len(fake.conditions.calibrations) == 2
    assert found.run.n_layers == 2
    assert found.failure is None


def test_what_chainers_recorder_knows_is_kept(clock: FakeClock) -> None:
    engine = Reference(clock, 1000, "chainer")
    plain = measured(clock, engine).recordings["chainer"]
    engine.recording = replace(
        plain,
        start_ns=np.arange(5),
        host_ns=plain.self_ns,
        gap_ns=plain.self_ns * 0,
        launch_ns=plain.trial_ns,
        span_ns=plain.trial_ns,
        settings=Settings(),
        environment=Environment(),
        conditions=Conditions(window_ns=50.0),
    )
    found = measured(clock, engine).recordings["chainer"]
    assert found.on_device
    assert found.start_ns is None
    assert found.settings == plain.settings
    assert found.environment == plain.environment
    assert found.conditions.window_ns == 50.0
    assert found.conditions.calibrations == plain.conditions.calibrations
    assert found.clean_ns.tolist() == [1000] * 12


def test_times_that_make_no_sense_are_a_note(clock: FakeClock) -> None:
    bad = EngineProfile((EngineNode("a", "Fused", (0,)),), np.full((5, 1), 70), np.full(5, 90))
    found = measured(clock, Reference(clock, 1000, "chainer"), FakeEngine(clock, 100, given=bad))
    assert list(found.recordings) == ["chainer"]
    fake = found.run.engines[1]
    assert (
        fake.note == "the times of its nodes are of no use: it does not say what became of layer 1"
    )
    assert (fake.folder, len(fake.clean_ns)) == ("", 12)


def test_a_network_that_takes_gradients_in_its_forward_is_for_no_engine(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forward(self: Net, x: Any) -> Any:
        x = chainer.Variable(x)
        return chainer.grad([self.fc(x)], [x])[0] * 2

    monkeypatch.setattr(Net, "forward", forward)
    with pytest.raises(ProfileError, match="in its forward pass, which no engine does") as caught:
        measured(clock, Reference(clock, 1000, "chainer"))
    assert "\n" not in str(caught.value)


def test_a_network_that_fails_in_the_race_keeps_the_others(clock: FakeClock) -> None:
    found = measured(clock, Reference(clock, 1000, "chainer", fails_at=10), FakeEngine(clock, 100))
    assert str(found.failure) == "chainer: after 2 trials: RuntimeError: out of order"
    assert found.run.ended == f"failed: {found.failure}"
    assert len(found.run.engines[1].clean_ns) == 2
