"""How the time of a trial is divided; tests/report/pictures/test_traces.py holds its places."""

import numpy as np

from chainer_profile.analyse.timeline import phase_framework_ns
from chainer_profile.record.recording import Layer, Recording


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
