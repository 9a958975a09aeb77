"""The journal: what was added is what comes back, whatever happens to the file or the disk."""

import errno
import json
import mmap
import os
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainer_profile import journal as journals
from chainer_profile.errors import ProfileError
from chainer_profile.journal import Journal, JournalError, Kind, recover
from chainer_profile.recording import COMPLETE, VERSION, Conditions, Environment, Layer, Settings
from tests.conftest import make_layers

HALF_SECOND = 500_000_000
MAGIC = b"chainer-profile journal\n"
ENVIRONMENT = Environment(processor="A processor", python="CPython 3.11")


def words(*values):
    return struct.pack(f"<{len(values)}q", *values)


def record(kind, start, wall, more):
    """The bytes of one record, by the format's description."""
    return words(kind, start, wall, *more, kind)


def add(journal, trial):
    kind, start, wall, more = trial
    journal.add(kind, start, wall, words(*more))


def trials_of(recording):
    """A recording's trials as lists by kind, each trial as it was added."""
    return {
        Kind.WARMUP: [(int(wall), ()) for wall in recording.warmup_ns],
        Kind.CLEAN: [
            (int(start), int(wall), ())
            for start, wall in zip(recording.clean_start_ns, recording.clean_ns, strict=True)
        ],
        Kind.PROFILED: [
            (int(start), int(wall), tuple(map(int, row)))
            for start, wall, row in zip(
                recording.start_ns, recording.trial_ns, recording.self_ns, strict=True
            )
        ],
        Kind.PROBE: [
            (int(wall), (int(threads),))
            for wall, threads in zip(recording.probe_ns, recording.probe_threads, strict=True)
        ],
    }


def expected(trials):
    """The same of trials that were added; a recording does not keep every start."""
    found = {kind: [] for kind in Kind}
    for kind, start, wall, more in trials:
        keeps_start = kind in (Kind.CLEAN, Kind.PROFILED)
        found[kind].append((start, wall, more) if keeps_start else (wall, more))
    return found


def some_trials(count=8, n_layers=3, step_ns=1000):
    """Trials of all kinds in turn, with times that tell them apart."""
    kinds = [Kind.WARMUP, Kind.PROFILED, Kind.CLEAN, Kind.PROFILED, Kind.PROBE]
    lengths = {Kind.PROFILED: n_layers, Kind.PROBE: 1}
    return [
        (
            kinds[i % 5],
            i * step_ns,
            step_ns,
            tuple(i * 100 + j + 1 for j in range(lengths.get(kinds[i % 5], 0))),
        )
        for i in range(count)
    ]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "recording.journal"


@pytest.fixture
def file(path):
    with open(path, "w+b") as opened:
        yield opened


def begun(file, n_layers=3, trials=10, **changes):
    journal = Journal(file)
    journal.begin(make_layers(n_layers), Settings(trials=trials, **changes), ENVIRONMENT)
    return journal


@pytest.fixture
def no_reserve(monkeypatch):
    """Files that hold only what was written, as where the system cannot reserve space."""
    monkeypatch.delattr(os, "posix_fallocate", raising=False)


times = st.integers(0, 2**62)


@st.composite
def any_trials(draw):
    n_layers = draw(st.integers(0, 3))
    lengths = {Kind.PROFILED: n_layers, Kind.PROBE: 1}
    trials = []
    for kind in draw(st.lists(st.sampled_from(Kind), max_size=12)):
        size = lengths.get(kind, 0)
        more = draw(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=size, max_size=size))
        trials.append((kind, draw(times), draw(st.integers(0, 2**61)), tuple(more)))
    return n_layers, trials


# --- there and back


@settings(max_examples=60)
@given(case=any_trials(), in_memory=st.booleans(), paths=st.lists(st.text(), min_size=3))
def test_what_was_added_comes_back(case, in_memory, paths, tmp_path_factory):
    n_layers, trials = case
    layers = tuple(Layer(i, paths[i], "f", input_shapes=((i, 2), ())) for i in range(n_layers))
    asked = Settings(model=paths[0], trials=3, input_shape=(1, 2))
    path = tmp_path_factory.getbasetemp() / "any.journal"
    with open(path, "w+b") as file:
        journal = Journal(None if in_memory else file)
        journal.begin(layers, asked, ENVIRONMENT)
        for trial in trials:
            add(journal, trial)
        now = journal.recording(Conditions(1.0), COMPLETE)
        results = [now] if in_memory else [now, recover(path)]
    for recording in results:
        assert trials_of(recording) == expected(trials)
        assert (recording.layers, recording.settings) == (layers, asked)
        assert recording.environment == ENVIRONMENT
    assert now.conditions == Conditions(1.0)
    assert now.ended == COMPLETE


def test_the_bytes_are_as_described(path, file, no_reserve):
    journal = begun(file)
    trials = some_trials(5)
    for trial in trials:
        add(journal, trial)
    content = path.read_bytes()
    assert content.startswith(MAGIC)
    length, _, rest = content[len(MAGIC) :].partition(b"\n")
    header = json.loads(rest[: int(length)])
    assert header.keys() == {"version", "layers", "settings", "environment"}
    assert header["version"] == VERSION
    body = b"".join(record(*trial) for trial in trials)
    assert rest[int(length) :].rstrip(b"\0") == body.rstrip(b"\0")


def test_a_killed_run_says_so(path, file):
    begun(file)
    recording = recover(path)
    assert recording.n_trials == 0
    assert recording.ended == "killed before its end"
    assert recording.conditions == Conditions()


def test_a_recording_does_not_end_the_journal(path, file):
    journal = begun(file)
    trials = some_trials(10)
    for at, trial in enumerate(trials):
        add(journal, trial)
        assert trials_of(journal.recording(Conditions(), "")) == expected(trials[: at + 1])
    assert trials_of(recover(path)) == expected(trials)


# --- a file that was cut, or is not ours


def test_a_cut_file_keeps_the_records_that_were_whole(path, file, no_reserve):
    journal = begun(file, n_layers=2)
    trials = some_trials(7, n_layers=2)
    for trial in trials:
        add(journal, trial)
    content = path.read_bytes()[: journal._end]
    sizes = [len(record(*trial)) for trial in trials]
    header = len(content) - sum(sizes)
    ends = header + np.cumsum([0, *sizes])
    for size in [*range(0, header, 7), *range(header, len(content) + 1)]:
        for tail in (b"", bytes(100)):  # cut, or followed by reserved space
            path.write_bytes(content[:size] + tail)
            if size < header:
                with pytest.raises(ProfileError) as error:
                    recover(path)
                assert str(error.value).startswith(f"{path}: ")
                continue
            # A record ends with a small number, so its last 7 bytes are zeros anyway.
            whole = int(np.searchsorted(ends, size + (7 if tail else 0), side="right")) - 1
            assert trials_of(recover(path)) == expected(trials[:whole]), (size, len(tail))


def test_reserved_space_ends_the_file(path, file):
    journal = begun(file, trials=1000)
    trials = some_trials(3)
    for trial in trials:
        add(journal, trial)
    if hasattr(os, "posix_fallocate"):
        assert path.stat().st_size > 1000 * 8 * 7
    assert trials_of(recover(path)) == expected(trials)


def test_what_stands_behind_reserved_space_is_not_read(path, file, no_reserve):
    journal = begun(file)
    trials = some_trials(2)
    add(journal, trials[0])
    path.write_bytes(path.read_bytes() + bytes(8) + record(*trials[1]))
    assert trials_of(recover(path)) == expected(trials[:1])


def test_a_torn_record_ends_the_file(path, file, no_reserve):
    journal = begun(file)
    trials = some_trials(4)
    for trial in trials:
        add(journal, trial)
    content = bytearray(path.read_bytes()[: journal._end])
    # The last word of the third record was not written.
    end = len(content) - len(record(*trials[3]))
    content[end - 8 : end] = bytes(8)
    path.write_bytes(content)
    assert trials_of(recover(path)) == expected(trials[:2])


def test_a_newer_version_is_refused(path, file, monkeypatch):
    monkeypatch.setattr(journals, "VERSION", VERSION + 1)
    begun(file)
    with pytest.raises(ProfileError, match=f"version {VERSION + 1}, this program reads up to"):
        recover(path)


def test_fields_of_a_later_writer_are_passed_over(path):
    header = {
        "version": VERSION,
        "later": 1,
        "layers": [{"index": 0, "path": "/", "function": "f", "flops": 7}],
        "settings": {"trials": 1, "later": 1},
        "environment": {"later": 1},
    }
    text = json.dumps(header).encode()
    path.write_bytes(MAGIC + b"%d\n" % len(text) + text + record(Kind.PROFILED, 1, 2, (3,)))
    recording = recover(path)
    assert recording.layers == (Layer(0, "/", "f"),)
    assert recording.self_ns.tolist() == [[3]]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"chainer",
        b"PK\x03\x04" + bytes(50),
        MAGIC,
        MAGIC + b"\n",
        MAGIC + b"x\n{}",
        MAGIC + b"-3\n{}",
        MAGIC + b"2\n{}",
        MAGIC + b"4\nnull",
        MAGIC + b"13\n" + b'{"version":1}',
        MAGIC + b"99999999999999999999\n{}",
        MAGIC + b"2\n\xff\xfe",
    ],
)
def test_other_files_are_refused_in_one_line(path, content):
    path.write_bytes(content)
    with pytest.raises(ProfileError) as error:
        recover(path)
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    for place in (tmp_path, tmp_path / "none", tmp_path / "none" / "none"):
        with pytest.raises(ProfileError, match="cannot be read"):
            recover(place)


# --- when records reach the system


@pytest.mark.parametrize("wall_ns", [1, 10**10])
def test_every_trial_is_in_the_file_when_it_was_added(path, file, wall_ns):
    journal = begun(file)
    for count in range(1, 4):
        add(journal, (Kind.CLEAN, count * wall_ns, wall_ns, ()))
        assert len(recover(path).clean_ns) == count


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


@pytest.mark.parametrize("reserves", [False, True])
@pytest.mark.parametrize("space", [0, 1, 700, 20_000, 33_000, 50_000])
def test_a_full_disk_loses_no_record(path, file, monkeypatch, space, reserves):
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
    trials = some_trials(2000)
    journal = Journal(file)
    failures = 0
    try:
        journal.begin(make_layers(3), Settings(trials=10), ENVIRONMENT)
    except JournalError:
        failures += 1
    for trial in trials:
        try:
            add(journal, trial)
        except JournalError as error:
            assert str(error) == os.strerror(errno.ENOSPC)  # noqa: PT017
            failures += 1
    assert failures == 1
    assert trials_of(journal.recording(Conditions(), "")) == expected(trials)
    if space >= 20_000:  # the header went through: the file holds the beginning of the trials
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


def test_two_journals_share_nothing():
    first, second = begun(None), begun(None)
    add(first, some_trials(1)[0])
    assert not len(second.recording(Conditions(), "").warmup_ns)
    assert Journal().recording(Conditions(), "").n_trials == 0
