"""The facts of a run, and how they stand in its file."""

from __future__ import annotations

import io
from pathlib import Path

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


def test_the_facts_of_a_run() -> None:
    case = make_case(batchsize=2)
    result = digest_of(recording_of(case.settings))
    assert result.settings == case.settings
    assert result.mean_s == pytest.approx(4e-3)
    assert result.std_s == pytest.approx(2e-3)
    assert result.fps == pytest.approx(500)
    assert (result.timed, result.clean, result.parameters) == (3, True, 300)
    assert (result.memory_nbytes, result.blocks) == (2048, "basic")


def test_without_clean_trials_the_profiled_ones_count() -> None:
    none = np.zeros(0, np.int64)
    recording = recording_of(make_case().settings, clean_ns=none, clean_start_ns=none)
    result = digest_of(recording)
    assert (result.clean, result.timed) == (False, 4)
    assert result.mean_s == pytest.approx(1.001e-3)


@pytest.mark.parametrize(
    ("links", "kind"),
    [
        (LINKS, "basic"),
        ((), ""),
        (LINKS[:3], ""),
        (
            (
                *LINKS,
                LinkCalls("/res/1", "BottleneckBlock", 1, 0),
                LinkCalls("/res/1/conv", "Convolution2D", 1, 1),
                # Within a block.
                LinkCalls("/res/1/0", "Inner", 1, 0),
                LinkCalls("/res/1/0/conv", "Convolution2D", 1, 1),
                # A numbered link without links of its own is a layer.
                LinkCalls("/res/2", "Linear", 1, 1),
            ),
            "basic+bottleneck",
        ),
        ((LinkCalls("/0", "Block", 1, 0), LinkCalls("/0/conv", "Linear", 1, 0)), "block"),
    ],
)
def test_the_kind_of_blocks(links: tuple[LinkCalls, ...], kind: str) -> None:
    assert block_kind(links) == kind


def test_the_blocks_of_the_registered_networks() -> None:
    kinds = {}
    for name in ("resnet18", "resnet50", "resnet20", "resnet34-relu-bn", "se-resnet9-fixup"):
        paths = [(path, link) for path, link in REGISTRY[name].build().namedlinks()]
        links = [LinkCalls(path, type(link).__name__, 1, 0) for path, link in sorted(paths)]
        kinds[name] = block_kind(links)
    assert kinds["resnet18"] == "basic"
    assert kinds["resnet50"] == "bottleneck"
    assert all(kinds.values()), kinds


@given(st.integers(1, 5), st.integers(0, 5), ANY_TEXT, ANY_TEXT)
def test_the_file_ends_with_its_digest(
    tmp_path_factory: pytest.TempPathFactory, trials: int, clean: int, model: str, commit: str
) -> None:
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


def test_a_digest_that_is_too_long_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "long.npz"
    recording = make_recording(2, 3, environment=Environment(commit="x" * 9000))
    recording.save(path)
    assert read_digest(path) is None
    assert Recording.load(path).environment.commit == "x" * 9000


MARK = b"chainer-profile digest 1\n"


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"nothing", MARK + b"{", b"x" * 9999, MARK + b'{"started": "\xff"}'),
        MARK + b'{"later": ' + b"[" * 4000,
    ],
)
def test_another_file_has_none(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(content)
    assert read_digest(tmp_path / "other") is None


def test_a_stream_is_written_as_a_file_is(tmp_path: Path) -> None:
    recording, stream = make_recording(2, 3), io.BytesIO()
    recording.save(stream)
    recording.save(tmp_path / "a.npz")
    (tmp_path / "b.npz").write_bytes(stream.getvalue())
    assert read_digest(tmp_path / "a.npz") == read_digest(tmp_path / "b.npz")
