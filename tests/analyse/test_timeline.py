"""The time of a trial is divided among links, calls and the device.

tests/report/pictures/test_traces.py checks where each part begins.
"""

from chainer_profile.analyse.grouping import OUTSIDE
from chainer_profile.analyse.timeline import LINK, lay_out, lay_out_device, limit_framework
from tests.conftest import make_training
from tests.report.working import make_device_recording


def test_framework_time_is_limited_to_the_available_time():
    for framework_ns, parts in (
        ({"a": 5, "b": 5, OUTSIDE: -3}, ({"a": 5, "b": 2}, 0)),
        ({"a": 5, "b": 5, OUTSIDE: -17}, ({"a": 0, "b": 0}, 0)),
        ({"a": -5, "b": 5, OUTSIDE: 7}, ({"a": 0, "b": 5}, 2)),
    ):
        assert limit_framework(framework_ns) == parts


def test_link_spans_contain_their_calls_and_device_ends_with_the_trial():
    links = [link for begins, link in lay_out(make_training(), 0).edges((LINK,)) if begins]
    assert len(links) > 10
    for link in links:
        assert link.calls_ns == sum(inner.calls_ns for inner in link.inner)
    recording = make_device_recording(wait_us=9000)
    device = lay_out_device(recording, 0)
    assert 0 < device.begin_ns < device.end_ns == recording.trial_ns[0]
