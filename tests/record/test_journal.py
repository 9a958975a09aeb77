"""The journal: what was added is what comes back, whatever happens to the file."""

import json
import os
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chainer_profile.basics.errors import ProfileError
from chainer_profile.record import journal as journals
from chainer_profile.record.journal import Journal, Kind, recover
from chainer_profile.record.recording import (
    COMPLETE,
    VERSION,
    Conditions,
    Gpu,
    Layer,
    LinkCalls,
    Settings,
)
from tests.conftest import make_layers
from tests.journals import (
    ENVIRONMENT,
    MAGIC,
    add,
    begun,
    expected,
    lengths,
    record,
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


times = st.integers(0, 2**62)


@st.composite
def any_trials(draw):
    n_layers, n_phases = draw(st.integers(0, 3)), draw(st.integers(0, 3))
    on_device = draw(st.booleans())
    sizes = lengths(n_layers, n_phases, on_device)
    trials = []
    for kind in draw(st.lists(st.sampled_from(Kind), max_size=12)):
        size = sizes.get(kind, 0)
        more = draw(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=size, max_size=size))
        trials.append((kind, draw(times), draw(st.integers(0, 2**61)), tuple(more)))
    return n_layers, n_phases, on_device, trials


# --- there and back


@settings(max_examples=60)
@given(case=any_trials(), in_memory=st.booleans(), paths=st.lists(st.text(), min_size=3))
def test_what_was_added_comes_back(case, in_memory, paths, tmp_path_factory):
    n_layers, n_phases, on_device, trials = case
    layers = tuple(
        Layer(i, paths[i], "f", phase=paths[-i], input_shapes=((i, 2), ()), forward=i, calls=i + 1)
        for i in range(n_layers)
    )
    phases = tuple(paths[:n_phases])
    links = tuple(LinkCalls(path, "Link", 2, 3) for path in paths)
    asked = Settings(model=paths[0], trials=3, input_shape=(1, 2), phase="train", loss=paths[1])
    path = tmp_path_factory.getbasetemp() / "any.journal"
    with open(path, "w+b") as file:
        journal = Journal(None if in_memory else file)
        journal.begin(layers, asked, ENVIRONMENT, phases=phases, links=links, on_device=on_device)
        for trial in trials:
            add(journal, trial)
        now = journal.recording(Conditions(1.0), COMPLETE)
        results = [now] if in_memory else [now, recover(path)]
    for recording in results:
        assert trials_of(recording) == expected(trials)
        assert (recording.layers, recording.settings) == (layers, asked)
        assert (recording.phases, recording.links) == (phases, links)
        assert recording.self_ns.shape[1] == n_layers
        assert (recording.framework_ns is None) is (not phases)
        assert recording.on_device is on_device
        assert (recording.held_ns is None) is (Kind.HELD not in {trial[0] for trial in trials})
        assert recording.environment == ENVIRONMENT
    assert now.conditions == Conditions(1.0)
    assert now.ended == COMPLETE


def test_the_bytes_are_as_described(path, file, no_reserve):
    journal = begun(file)
    trials = some_trials(6)
    for trial in trials:
        add(journal, trial)
    content = path.read_bytes()
    assert content.startswith(MAGIC)
    length, _, rest = content[len(MAGIC) :].partition(b"\n")
    header = json.loads(rest[: int(length)])
    assert header.keys() == {
        "version",
        "layers",
        "phases",
        "links",
        "settings",
        "environment",
        "on_device",
    }
    assert header["version"] == VERSION
    assert header["on_device"] is False
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


@pytest.mark.parametrize("on_device", [False, True])
def test_a_cut_file_keeps_the_records_that_were_whole(path, file, no_reserve, on_device):
    journal = begun(file, n_layers=2, on_device=on_device)
    trials = some_trials(7, n_layers=2, on_device=on_device)
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
        "layers": [{"index": 0, "path": "/", "function": "f", "colour": 7}],
        "settings": {"trials": 1, "later": 1},
        "environment": {"later": 1},
    }
    text = json.dumps(header).encode()
    path.write_bytes(MAGIC + b"%d\n" % len(text) + text + record(Kind.PROFILED, 1, 2, (3,)))
    recording = recover(path)
    assert recording.layers == (Layer(0, "/", "f"),)
    assert recording.self_ns.tolist() == [[3]]


def test_a_journal_of_version_1(path):
    """As the first release wrote it: forward only, no links, no phases."""
    header = {
        "version": 1,
        "layers": [{"index": 0, "path": "/", "function": "f", "input_shapes": [[1, 2]]}],
        "settings": {"trials": 2, "model": "tiny"},
        "environment": {"blas": []},
    }
    text = json.dumps(header).encode()
    body = record(Kind.WARMUP, 0, 9, ()) + record(Kind.PROFILED, 10, 5, (4,))
    path.write_bytes(MAGIC + b"%d\n" % len(text) + text + body + bytes(64))
    recording = recover(path)
    assert recording.self_ns.tolist() == [[4]]
    assert (recording.phases, recording.framework_ns, recording.links) == ((), None, ())
    assert recording.layers == (Layer(0, "/", "f", input_shapes=((1, 2),)),)
    assert recording.settings == Settings(trials=2, model="tiny")


def test_a_killed_training_keeps_its_phases(path, file, no_reserve):
    journal = Journal(file)
    phases = ("update", "forward", "backward")
    links = (LinkCalls("/", "Net", 1, 2),)
    asked = Settings(trials=9, phase="train", loss="sum", optimizer="Adam", train_mode=True)
    journal.begin(make_layers(2), asked, ENVIRONMENT, phases=phases, links=links)
    trials = [(Kind.PROFILED, at, 100, (at, 2, 3, 4, 5)) for at in range(4)]
    for trial in trials:
        add(journal, trial)
    content = path.read_bytes()[: journal._end]
    path.write_bytes(content[:-8])  # the last one was not written whole
    recording = recover(path)
    assert recording.self_ns.tolist() == [[at, 2] for at in range(3)]
    assert recording.framework_ns.tolist() == [[3, 4, 5]] * 3
    assert (recording.phases, recording.links, recording.settings) == (phases, links, asked)
    assert recording.ended == "killed before its end"


def test_the_space_of_phases_is_taken_ahead_too(file, monkeypatch):
    asked = []
    monkeypatch.setattr(Journal, "_append", lambda self, record: None)
    for phases in ((), ("forward", "backward")):
        journal = Journal(file)
        journal.begin(make_layers(3), Settings(trials=100), ENVIRONMENT, phases=phases)
        asked.append(journal._expected - journal._body_start)
    assert asked[1] - asked[0] == 100 * 2 * 8


def test_a_journal_without_a_word_on_devices_is_of_the_host(path):
    header = {
        "version": VERSION,
        "layers": [{"index": 0, "path": "/", "function": "f"}],
        "settings": {},
        "environment": {},
    }
    text = json.dumps(header).encode()
    path.write_bytes(MAGIC + b"%d\n" % len(text) + text + record(Kind.PROFILED, 1, 2, (3,)))
    recording = recover(path)
    assert (recording.on_device, recording.self_ns.tolist()) == (False, [[3]])
    assert recording.host_ns is recording.held_ns is recording.span_ns is None


@pytest.mark.parametrize("lost", [1, 8, 9, 40])
def test_a_run_on_a_device_that_is_killed_in_a_record(path, file, no_reserve, lost):
    journal = Journal(file)
    gpu = Gpu(1, "A GPU", "9.0", 1 << 30, cudnn="8.9.7", tf32=False)
    where = replace(ENVIRONMENT, gpu=gpu)
    asked = Settings(trials=9, dtype="mixed16", cudnn="never", workspace_nbytes=1 << 20)
    journal.begin(make_layers(2), asked, where, phases=("forward",), on_device=True)
    # Two layers and a phase on the device, the host's times, the gaps, the launching, the span.
    add(journal, (Kind.PROFILED, 0, 100, (1, 2, 3, 4, 5, 6, 7, 8, 9)))
    for at in range(3):
        add(journal, (Kind.HELD, at, 50 + at, (at, 20)))
    path.write_bytes(path.read_bytes()[: journal._end - lost])
    recording = recover(path)
    assert recording.on_device
    assert (recording.environment, recording.settings) == (where, asked)
    assert recording.self_ns.tolist() == [[1, 2]]
    assert recording.framework_ns.tolist() == [[3]]
    assert recording.host_ns.tolist() == [[4, 5]]
    assert recording.gap_ns.tolist() == [[6, 7]]
    assert (recording.launch_ns.tolist(), recording.span_ns.tolist()) == ([8], [9])
    assert recording.trial_ns.tolist() == [100]
    assert recording.held_ns.tolist() == [[0, 20], [1, 20]]
    assert recording.held_span_ns.tolist() == [50, 51]


def test_the_space_of_a_device_is_taken_ahead_too(file, monkeypatch):
    asked = []
    monkeypatch.setattr(Journal, "_append", lambda self, record: None)
    for on_device in (False, True):
        journal = begun(file, n_layers=5, trials=100, on_device=on_device)
        asked.append(journal._expected - journal._body_start)
    # Twice the layers and two more in every trial; 20 held trials of 5 layers.
    assert asked[1] - asked[0] == 100 * (2 * 5 + 2) * 8 + 20 * (4 + 5) * 8


@pytest.mark.parametrize(
    "change",
    [
        {"phases": 3},
        {"phases": None},
        {"links": [1]},
        {"links": None},
        {"links": [{"path": "/"}]},
        {"environment": {"gpu": 3}},
        {"environment": {"gpu": "gpu:0"}},
    ],
)
def test_a_damaged_header_is_refused_in_one_line(path, change):
    header = {"version": VERSION, "layers": [], "settings": {}, "environment": {}} | change
    text = json.dumps(header).encode()
    path.write_bytes(MAGIC + b"%d\n" % len(text) + text)
    with pytest.raises(ProfileError) as error:
        recover(path)
    assert str(error.value).startswith(f"{path}: damaged")


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


def test_two_journals_share_nothing():
    first, second = begun(None), begun(None)
    add(first, some_trials(1)[0])
    assert not len(second.recording(Conditions(), "").warmup_ns)
    assert Journal().recording(Conditions(), "").n_trials == 0
