"""The facts of a run, and how they stand in its file."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.record.digest import block_kind, read_digest
from chainer_profile.record.recording import Environment, LinkCalls, Recording, digest_of
from models.registry import REGISTRY
from tests.conftest import make_recording
from tests.sweeping import LINKS, make_case, recording_of

ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def test_the_facts_of_a_run():
    case = make_case(batchsize=2)
    result = digest_of(recording_of(case.settings))
    assert result.settings == case.settings
    assert result.mean_s == pytest.approx(4e-3)
    assert result.std_s == pytest.approx(2e-3)
    assert result.fps == pytest.approx(500)
    assert (result.timed, result.clean, result.parameters) == (3, True, 300)
    assert (result.memory_nbytes, result.blocks) == (2048, "basic")
    none = np.zeros(0, np.int64)  # without unprofiled trials the profiled ones count
    result = digest_of(recording_of(make_case().settings, clean_ns=none, clean_start_ns=none))
    assert (result.clean, result.timed) == (False, 4)
    assert result.mean_s == pytest.approx(1.001e-3)


def test_the_kind_of_blocks():
    def links(*words):
        return tuple(LinkCalls(*word.split(), 1, 1) for word in words)

    bottleneck = links("/res/1 BottleneckBlock", "/res/1/conv Convolution2D")
    within = links("/res/1/0 Inner", "/res/1/0/conv Convolution2D")
    layer = links("/res/2 Linear")  # a numbered link without links of its own
    assert block_kind((*LINKS, *bottleneck, *within, *layer)) == "basic+bottleneck"
    assert block_kind(LINKS) == "basic"
    assert block_kind(()) == block_kind(LINKS[:3]) == ""
    assert block_kind(links("/0 Block", "/0/conv Linear")) == "block"
    kinds = {}
    for name in ("resnet18", "resnet50", "resnet20", "resnet34-relu-bn", "se-resnet9-fixup"):
        paths = sorted(
            (path, type(link).__name__) for path, link in REGISTRY[name].build().namedlinks()
        )
        kinds[name] = block_kind([LinkCalls(path, link, 1, 0) for path, link in paths])
    assert (kinds["resnet18"], kinds["resnet50"]) == ("basic", "bottleneck")
    assert all(kinds.values()), kinds


@given(st.integers(1, 5), st.integers(0, 5), ANY_TEXT, ANY_TEXT)
def test_the_file_ends_with_its_digest(tmp_path_factory, trials, clean, model, commit):
    path = tmp_path_factory.getbasetemp() / "digest.npz"
    recording = make_recording(
        2,
        trials,
        clean,
        settings=make_case(model).settings,
        environment=Environment(commit=commit),
    )
    recording.save(path)
    # What is not known is NaN, which equals nothing.
    assert repr(read_digest(path)) == repr(digest_of(recording))
    assert repr(digest_of(Recording.load(path))) == repr(digest_of(recording))


MARK = b"chainer-profile digest 1\n"


def test_a_digest_that_is_too_long_is_left_out_and_another_file_has_none(tmp_path):
    path = tmp_path / "long.npz"
    recording = make_recording(2, 3, environment=Environment(commit="x" * 9000))
    recording.save(path)
    assert read_digest(path) is None
    assert Recording.load(path).environment.commit == "x" * 9000
    for content in (
        *(b"", b"nothing", MARK + b"{", b"x" * 9999, MARK + b'{"started": "\xff"}'),
        MARK + b'{"later": ' + b"[" * 4000,
    ):
        path.write_bytes(content)
        assert read_digest(path) is None, content
