"""A recording of one kind of trials by itself."""

from __future__ import annotations

from pathlib import Path

from chainer_profile.record.recording import Recording
from tests.conftest import make_kinds


def test_a_kind_keeps_its_number_in_a_file(tmp_path: Path) -> None:
    run = make_kinds()
    assert [run.variant(number).kind for number in (1, 2, 3)] == [1, 2, 3]
    run.variant(3).save(tmp_path / "third.npz")
    loaded = Recording.load(tmp_path / "third.npz")
    assert (loaded.kind, loaded.n_trials, loaded.variants) == (3, 20, ())
