"""How the time of a trial is divided; tests/report/pictures/test_traces.py holds its places."""

import numpy as np

from chainer_profile.analyse.timeline import LINK, lay_out, lay_out_device, phase_framework_ns
from chainer_profile.record.recording import Layer, Recording
from tests.conftest import make_training
from tests.report.working import make_device_recording


def test_framework_never_exceeds_what_there_is():
    none = np.zeros((1, 2), np.int64)
    layers = (Layer(0, "/a", "F", "a"),)
    recording = Recording(layers, none[:, :1], phases=("a", "b"), framework_ns=none)
    for by_phase, between_ns, parts in (
        ([5, 5], 7, ({"a": 5, "b": 2}, 0)),
        ([5, 5], -7, ({"a": 0, "b": 0}, 0)),
        ([-5, 5], 7, ({"a": 0, "b": 5}, 2)),
    ):
        assert phase_framework_ns(recording, by_phase, between_ns) == parts


def test_a_link_holds_its_calls_and_the_device_ends_with_the_trial():
    links = [link for begins, link in lay_out(make_training(), 0).edges((LINK,)) if begins]
    assert len(links) > 10
    for link in links:
        assert link.calls_ns == sum(inner.calls_ns for inner in link.inner)
    recording = make_device_recording(wait_us=9000)
    device = lay_out_device(recording, 0)
    assert 0 < device.begin_ns < device.end_ns == recording.trial_ns[0]
