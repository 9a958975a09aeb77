"""The journal on a disk that fills up, or whose space cannot be taken ahead: nothing is lost."""

import errno
import mmap
import os

import numpy as np
import pytest

from chainer_profile.record import journal as journals
from chainer_profile.record.journal import Journal, JournalError, Kind, recover
from chainer_profile.record.recording import Conditions, Settings
from tests.conftest import make_layers
from tests.journals import (
    ENVIRONMENT,
    HALF_SECOND,
    add,
    begun,
    expected,
    some_trials,
    trials_of,
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "recording.journal"


@pytest.fixture
def file(path):
    with open(path, "w+b") as opened:
        yield opened


@pytest.fixture
def no_reserve(monkeypatch):
    """Files that hold only what was written, as where the system cannot reserve space."""
    monkeypatch.delattr(os, "posix_fallocate", raising=False)


# --- a disk that fills up

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Disk:
    """Takes so many bytes, at most so many at a time, and then is full."""

    def __init__(self, space, at_once=1 << 30):
        self.space = space
        self.at_once = at_once
        self.write = os.pwrite

    def pwrite(self, fd, data, at):
        size = min(len(data), self.space, self.at_once)
        if not size:
            raise FULL
        self.space -= size
        return self.write(fd, bytes(data[:size]), at)


@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize("reserves", [False, True])
@pytest.mark.parametrize("space", [0, 1, 700, 20_000, 33_000, 50_000])
def test_a_full_disk_loses_no_record(path, file, monkeypatch, space, reserves, on_device):
    if reserves:
        reserve = os.posix_fallocate

        def fallocate(fd, at, size):
            if at + size > space:
                raise FULL
            reserve(fd, at, size)

        monkeypatch.setattr(os, "posix_fallocate", fallocate)
    else:
        monkeypatch.delattr(os, "posix_fallocate", raising=False)
        monkeypatch.setattr(os, "pwrite", Disk(space).pwrite)
    trials = some_trials(2000, on_device=on_device)
    journal = Journal(file)
    failures = 0
    try:
        journal.begin(make_layers(3), Settings(trials=10), ENVIRONMENT, on_device=on_device)
    except JournalError:
        failures += 1
    begins = not failures
    assert begins or space < 33_000
    for trial in trials:
        try:
            add(journal, trial)
        except JournalError as error:
            assert str(error) == os.strerror(errno.ENOSPC)  # noqa: PT017
            failures += 1
    assert failures == 1
    assert trials_of(journal.recording(Conditions(), "")) == expected(trials)
    if begins:  # the header went through: the file holds the beginning of the trials
        count = sum(map(len, trials_of(recover(path)).values()))
        assert 0 < count < len(trials)
        assert trials_of(recover(path)) == expected(trials[:count])


@pytest.mark.parametrize("at_once", [999, 4096])
def test_space_is_written_where_it_cannot_be_reserved(path, file, no_reserve, monkeypatch, at_once):
    monkeypatch.setattr(os, "pwrite", Disk(1 << 30, at_once).pwrite)
    journal = begun(file)
    trials = some_trials(2000)
    for trial in trials:
        add(journal, trial)
    assert trials_of(recover(path)) == expected(trials)


@pytest.mark.parametrize("window", [mmap.ALLOCATIONGRANULARITY, 3 * mmap.ALLOCATIONGRANULARITY])
def test_the_window_moves_along(path, file, monkeypatch, window):
    monkeypatch.setattr(journals, "_WINDOW_NBYTES", window)
    journal = begun(file)
    trials = some_trials(3000)
    for trial in trials:
        add(journal, trial)
    assert trials_of(recover(path)) == expected(trials)
    assert trials_of(journal.recording(Conditions(), "")) == expected(trials)


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="the system reserves no space")
def test_too_little_space_for_the_run_is_told_before_it_starts(path, file, monkeypatch):
    asked = []

    def fallocate(fd, at, size):
        asked.append((at, size))
        raise FULL

    monkeypatch.setattr(os, "posix_fallocate", fallocate)
    journal = Journal(file)
    with pytest.raises(JournalError, match=os.strerror(errno.ENOSPC)):
        journal.begin(make_layers(3), Settings(trials=100), ENVIRONMENT)
    ((at, size),) = asked
    assert at == 0
    assert size >= 100 * 7 * 8
    assert path.stat().st_size == 0
    journal.add(Kind.CLEAN, 0, 1)
    assert trials_of(journal.recording(Conditions(), ""))[Kind.CLEAN] == [(0, 1, ())]


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="the system reserves no space")
def test_the_space_of_the_whole_run_is_taken_ahead(file, monkeypatch):
    asked = []
    reserve = os.posix_fallocate
    monkeypatch.setattr(
        os, "posix_fallocate", lambda *args: asked.append(args[2]) or reserve(*args)
    )
    journal = begun(file, trials=20, clean_trials=10, warmups=5)
    for i in range(5):
        add(journal, (Kind.WARMUP, i, HALF_SECOND, ()))
    for i in range(10):
        add(journal, (Kind.CLEAN, i, HALF_SECOND, ()))
    for i in range(20):
        add(journal, (Kind.PROFILED, i, HALF_SECOND, (1, 2, 3)))
    assert len(asked) == 1
    assert os.fstat(file.fileno()).st_size == asked[0]


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="the system reserves no space")
def test_a_long_run_takes_space_in_steps(file, monkeypatch):
    asked = []
    reserve = os.posix_fallocate
    monkeypatch.setattr(
        os, "posix_fallocate", lambda *args: asked.append(args[2]) or reserve(*args)
    )
    monkeypatch.setattr(journals, "_RESERVE_NBYTES", 4096)
    monkeypatch.setattr(journals, "_SLACK_NBYTES", 100)
    journal = begun(file, trials=300)
    for i in range(300):
        add(journal, (Kind.PROFILED, i * HALF_SECOND, HALF_SECOND, (1, 2, 3)))
    steps = np.diff([0, *asked])
    assert len(asked) > 2
    assert (steps > 0).all()
    assert (steps <= 4096).all()
    assert asked[-1] == os.fstat(file.fileno()).st_size


def test_in_memory_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "pwrite", Disk(0).pwrite)
    journal = begun(None)
    trials = some_trials(20, step_ns=HALF_SECOND)
    for trial in trials:
        add(journal, trial)
    assert trials_of(journal.recording(Conditions(), "")) == expected(trials)
