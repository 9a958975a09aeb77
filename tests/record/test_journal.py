"""The journal: what was added is what comes back, whatever happens to the file."""

import dataclasses
import errno
import itertools
import json
import os
import struct
import warnings
from tempfile import TemporaryFile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainer_profile.basics.errors import ProfileError
from chainer_profile.record.journal import Header, Journal, JournalError, Kind, Rows, recover
from chainer_profile.record.recording import (
    COMPLETE,
    VERSION,
    Conditions,
    Environment,
    Layer,
    LinkCalls,
    Rank,
    Recording,
    Settings,
)
from tests.conftest import make_layers
from tests.recordings import VALUES, places
from tests.refusing import refusal

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


def add_groups(journal, trials):
    """Add trials, those of a kind in a row at once."""
    for kind, group in itertools.groupby(trials, lambda trial: trial[0]):
        journal.add_group(kind, [(start, wall, words(*more)) for _, start, wall, more in group])


#: Arrays of what a profiled trial has beside its start and wall time, in a record's order.
PROFILED = (
    *("self_ns", "framework_ns", "host_ns", "gap_ns", "launch_ns", "span_ns"),
    *("arrived_ns", "left_ns", "iteration"),
)


def trials_of(recording):
    """A recording's trials as lists by kind, each trial as it was added."""

    def trials(times, *more):
        known = [getattr(recording, name) for name in (*times, *more)]
        known = [one if one.ndim > 1 else one[:, None] for one in known if one is not None]
        rows = np.hstack(known).tolist() if known else []
        return [(*row[: len(times)], tuple(row[len(times) :])) for row in rows]

    return {
        Kind.WARMUP: trials(["warmup_ns"]),
        Kind.CLEAN: trials(["clean_start_ns", "clean_ns"]),
        "cpu": [] if recording.clean_cpu_ns is None else recording.clean_cpu_ns.tolist(),
        Kind.PROFILED: trials(["start_ns", "trial_ns"], *PROFILED),
        Kind.PROBE: trials(["probe_ns"], "probe_threads"),
        Kind.HELD: trials(["held_span_ns"], "held_ns"),
    }


def expected(trials):
    """The same of trials that were added; a recording does not keep every start."""
    found = {kind: [] for kind in (*Kind, "cpu") if kind not in (Kind.ROWS, Kind.ITERATION)}
    for kind, start, wall, more in trials:
        if kind is Kind.CLEAN:
            found["cpu"] += [ns for ns in more if ns >= 0]  # below 0 it was not read
            more = ()
        keeps_start = kind in (Kind.CLEAN, Kind.PROFILED)
        found[kind].append((start, wall, more) if keeps_start else (wall, more))
    return found


def lengths(n_layers, n_phases=0, on_device=False, cpu=False, iterations=False, collectives=0):
    """Number of integers in the middle of a record, by its kind."""
    more = 2 * n_layers + 2 if on_device else 0
    profiled = n_layers + n_phases + more + 2 * collectives + iterations
    return {Kind.PROFILED: profiled, Kind.PROBE: 1, Kind.HELD: n_layers, Kind.CLEAN: int(cpu)}


def some_trials(count, on_device=False):
    """Trials of all kinds in turn of three layers, with times that tell them apart."""
    kinds = [Kind.WARMUP, Kind.PROFILED, Kind.CLEAN, Kind.PROFILED, Kind.PROBE, Kind.HELD]
    sizes = lengths(3, 0, on_device)
    trials = []
    for i in range(count):
        kind = kinds[i % 6]
        more = tuple(i * 100 + j + 1 for j in range(sizes.get(kind, 0)))
        trials.append((kind, i * 1000, 1000, more))
    return trials


def begin(journal, on_device=False):
    """Begin a journal of three layers."""
    journal.begin(Header(make_layers(3), Settings(trials=10), ENVIRONMENT, on_device=on_device))
    return journal


@pytest.fixture
def path(tmp_path):
    return tmp_path / "recording.journal"


@pytest.fixture
def file(path):
    with open(path, "w+b") as opened:
        yield opened


times = st.integers(0, 2**62)

#: Records that tell of no rows.
OF_ALL = [kind for kind in Kind if kind not in (Kind.ROWS, Kind.ITERATION)]


@st.composite
def any_trials(draw):
    n_layers, n_phases = draw(st.integers(0, 3)), draw(st.integers(0, 3))
    has = {name: draw(st.booleans()) for name in ("on_device", "cpu", "iterations")}
    collectives = draw(st.integers(0, n_layers))
    sizes = lengths(n_layers, n_phases, **has, collectives=collectives)
    trials = []
    for kind in draw(st.lists(st.sampled_from(OF_ALL), max_size=12)):
        size = sizes.get(kind, 0)
        more = draw(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=size, max_size=size))
        trials.append((kind, draw(times), draw(st.integers(0, 2**61)), tuple(more)))
    return n_layers, n_phases, collectives, has, trials


# --- there and back


def test_two_journals_share_nothing():
    one = Journal()
    add_groups(one, [(Kind.CLEAN, 100, 7, (3,))])
    assert one._kept
    assert not Journal()._kept
    assert Journal().recording(Conditions(), "").n_trials == 0


@given(
    case=any_trials(),
    n_groups=st.integers(1, 13),
    paths=st.lists(st.text(), min_size=3),
    rank=st.none() | st.builds(Rank, st.just(1), st.just(2), st.text()),
    lost=st.integers(0, 4000),
    tail=st.sampled_from([b"", bytes(100)]),
)
def test_what_was_added_comes_back(case, n_groups, paths, rank, lost, tail, tmp_path_factory):
    n_layers, n_phases, collectives, has, trials = case
    ofs = ["communication"] * collectives + [f"phase {path}" for path in paths]
    layers = tuple(
        Layer(i, paths[i], "f", phase=ofs[i], input_shapes=((i, 2), ()), forward=i, calls=i + 1)
        for i in range(n_layers)
    )
    phases = tuple(paths[:n_phases])
    links = tuple(LinkCalls(path, "Link", 2, 3) for path in paths)
    asked = Settings(model=paths[0], trials=3, input_shape=(1, 2), phase="train", loss=paths[1])
    path = tmp_path_factory.getbasetemp() / "any.journal"
    results = []
    with open(path, "w+b") as file:
        for journal in (Journal(), Journal(file)):
            journal.begin(Header(layers, asked, ENVIRONMENT, phases, links, rank=rank, **has))
            for group in np.array_split(np.arange(len(trials)), n_groups):
                add_groups(journal, [trials[i] for i in group])
            results.append(journal.recording(Conditions(1.0), COMPLETE))
            assert results[-1].conditions == Conditions(1.0)
            assert results[-1].ended == COMPLETE
    for recording in (*results, recover(path)):
        assert trials_of(recording) == expected(trials)
        assert (recording.layers, recording.settings) == (layers, asked)
        assert (recording.phases, recording.links, recording.rank) == (phases, links, rank)
        assert (recording.arrived_ns is None) is (recording.left_ns is None) is (not collectives)
        assert (recording.iteration is None) is (not has["iterations"])
        assert recording.self_ns.shape[1] == n_layers
        assert (recording.framework_ns is None) is (not phases)
        assert recording.on_device is has["on_device"]
        assert (recording.clean_cpu_ns is not None) is has["cpu"]
        assert (recording.held_ns is None) is (Kind.HELD not in {trial[0] for trial in trials})
        assert recording.environment == ENVIRONMENT

    # Cut anywhere; older versions left zeros behind, for which the disk had space.
    content = path.read_bytes()
    sizes = [len(record(*trial)) for trial in trials]
    ends = len(content) - sum(sizes) + np.cumsum([0, *sizes])
    size = max(0, len(content) - lost)
    path.write_bytes(content[:size] + tail)
    if size < ends[0]:
        try:
            assert recover(path).n_trials == 0
        except ProfileError as error:
            assert str(error).startswith(f"{path} is ")  # noqa: PT017
    else:
        # A record ends with a small number, so its last 7 bytes are zeros anyway.
        whole = int(np.searchsorted(ends, size + (7 if tail else 0), side="right")) - 1
        assert trials_of(recover(path)) == expected(trials[:whole])


def test_the_bytes_are_as_described_and_a_recording_does_not_end_the_journal(path, file):
    journal, trials = begin(Journal(file)), some_trials(10)
    killed = recover(path)
    assert (killed.n_trials, killed.ended) == (0, "killed before its end")
    assert killed.conditions == Conditions()
    for at, trial in enumerate(trials):
        add(journal, trial)
        assert trials_of(journal.recording(Conditions(), "")) == expected(trials[: at + 1])
    assert trials_of(recover(path)) == expected(trials)
    length, _, rest = path.read_bytes().removeprefix(MAGIC).partition(b"\n")
    header = json.loads(rest[: int(length)])
    assert header.keys() == {"version"} | {item.name for item in dataclasses.fields(Header)}
    assert header["version"] == VERSION
    assert rest[int(length) :] == b"".join(record(*trial) for trial in trials)
    # What stands behind reserved space is not read.
    path.write_bytes(path.read_bytes() + bytes(8) + record(*trials[1]))
    assert trials_of(recover(path)) == expected(trials)


# --- a file that was cut, or is not ours


def write(path, body=b"", **header):
    """A file as another version wrote it, by the format's description."""
    header = {"version": VERSION, "layers": [], "settings": {}, "environment": {}} | header
    text = json.dumps(header).encode()
    path.write_bytes(MAGIC + b"%d\n" % len(text) + text + body)


def test_a_newer_version_is_refused_but_fields_that_it_adds_are_passed_over(path):
    write(path, version=VERSION + 1)
    assert f"version {VERSION + 1}, but this program reads up to" in refusal(recover, path)
    layer = {"index": 0, "path": "/", "function": "f", "colour": 7}
    body = record(Kind.PROFILED, 1, 2, (3,))
    write(path, body, later=1, layers=[layer], settings={"later": 1}, environment={"later": 1})
    recording = recover(path)
    assert recording.layers == (Layer(0, "/", "f"),)
    assert recording.self_ns.tolist() == [[3]]


#: What is no header, or no file of ours.
HEADERS = [
    *({"phases": phases} for phases in (3, None, [3])),
    *({"links": links} for links in ([1], None, [{"path": "/"}])),
    *({"environment": {"gpu": gpu}} for gpu in (3, "gpu:0")),
    *({"rank": rank} for rank in (3, {"number": "x", "size": 2, "host": ""})),
]
OTHERS = [
    *(b"another", b"PK\x03\x04" + bytes(50), MAGIC + b"\n", MAGIC + b"x\n{}", MAGIC + b"-3\n{}"),
    *(MAGIC + b"2\n{}", MAGIC + b"4\nnull", MAGIC + b'13\n{"version":1}', MAGIC + b"2\n\xff\xfe"),
    MAGIC + b"100000\n" + b"[" * 100_000,
]
CUT = (b"", MAGIC[:9], MAGIC, MAGIC + b"2", MAGIC + b"900\n{")


def test_damaged_headers_and_other_files_are_refused_in_one_line(path, tmp_path):
    for change in (*HEADERS, *OTHERS):
        if isinstance(change, bytes):
            path.write_bytes(change)
        else:
            write(path, **change)
        damaged = "" if isinstance(change, bytes) else "damaged"
        assert refusal(recover, path).startswith(f"{path} is {damaged}"), change
    for content in CUT:
        path.write_bytes(content)
        assert recover(path).n_trials == 0
    for place in (tmp_path, tmp_path / "none", tmp_path / "none" / "none"):
        assert "cannot be read" in refusal(recover, place)


def a_journal():
    """The bytes of a journal with trials of all kinds, two of its layers collectives."""
    phases = ("forward", "communication", "communication")
    layers = tuple(Layer(i, f"/{i}", "f", phase) for i, phase in enumerate(phases))
    links = (LinkCalls("/", "Net", 1, 9),)
    asked = Settings(model="net", seed=3, input_shape=(1, 2))
    has = {"on_device": True, "cpu": True, "iterations": True}
    sizes = lengths(3, 1, **has, collectives=2)
    header = Header(layers, asked, ENVIRONMENT, ("forward",), links, rank=Rank(1, 2, "h"), **has)
    with TemporaryFile() as file:
        journal = Journal(file)
        journal.begin(header)
        for kind in OF_ALL * 2:
            add(journal, (kind, 1000, 900, tuple(range(5, 5 + sizes.get(kind, 0)))))
        file.seek(0)
        return file.read()


JOURNAL = a_journal()


def changed_bytes(draw, path):
    content = bytearray(JOURNAL)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(content)))
        what = draw(st.sampled_from(["flip", "cut", "put", "take"]))
        if what == "flip":
            content[at : at + 1] = bytes([draw(st.integers(0, 255))])
        elif what == "cut":
            del content[at:]
        elif what == "put":
            content[at:at] = draw(st.sampled_from([b"[", b"9", b"null,", bytes(8), b"\xff"]))
        else:
            del content[at : at + draw(st.integers(1, 40))]
    path.write_bytes(content)


def changed_header(draw, path):
    length, _, rest = JOURNAL.removeprefix(MAGIC).partition(b"\n")
    header, body = json.loads(rest[: int(length)]), rest[int(length) :]
    place = draw(st.sampled_from(places(header)))
    node = header
    for step in place[:-1]:
        node = node[step]
    node[place[-1]] = draw(st.sampled_from(VALUES))
    write(path, body, **header)


@pytest.mark.parametrize("change", [changed_bytes, changed_header])
@given(data=st.data())
def test_a_changed_journal_is_refused_in_one_line_or_can_be_kept(change, data, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "changed.journal"
    change(data.draw, path)
    again = path.with_suffix(".npz")
    try:
        with warnings.catch_warnings(record=True):
            recover(path).save(again)
        Recording.load(again)
    except ProfileError as error:
        assert "\n" not in str(error)  # noqa: PT017


# --- a disk that fills up


FULL = OSError(errno.ENOSPC, "No space left on device")


def fill(monkeypatch, space, at_once=1 << 30, error=FULL):
    """Let files take so many bytes, at most so many at once, and then have an error."""
    write, left = os.write, [space]

    def write_some(fd, data):
        size = min(len(data), left[0], at_once)
        if not size:
            raise error
        left[0] -= size
        return write(fd, data[:size])

    monkeypatch.setattr(os, "write", write_some)


@pytest.mark.parametrize(
    ("space", "at_once", "on_device", "error"),
    [
        (0, 7, True, OSError(errno.EIO, "Input/output error")),
        *((1, 7, False, FULL), (700, 7, True, FULL), (9_000, 7, False, FULL)),
        (5_000, 1 << 30, True, FULL),
    ],
)
def test_a_full_disk_loses_no_record(path, file, monkeypatch, space, at_once, on_device, error):
    fill(monkeypatch, space, at_once, error)
    trials = some_trials(200, on_device=on_device)
    journal = Journal(file)
    errors = []
    for action, *arguments in [(begin, on_device), *((add, trial) for trial in trials)]:
        try:
            action(journal, *arguments)
        except JournalError as said:
            errors.append(str(said))
    assert errors == [error.strerror]
    assert trials_of(journal.recording(Conditions(), "")) == expected(trials)
    if space > 4_000:  # the header went through
        count = sum(map(len, trials_of(recover(path)).values()))
        assert 0 < count < len(trials)
        assert trials_of(recover(path)) == expected(trials[:count])


def test_a_group_whose_writing_failed_is_kept(path, file, monkeypatch):
    journal, trials = begin(Journal(file)), some_trials(3)
    add(journal, trials[0])
    with monkeypatch.context() as patch:
        fill(patch, 40, error=KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            add(journal, trials[1])
    add(journal, trials[2])
    assert trials_of(journal.recording(Conditions(), "")) == expected(trials)
    assert trials_of(recover(path)) == expected(trials[:1])


def test_a_file_of_the_program_s_that_has_the_journal_s_number_is_left_alone(path, file, tmp_path):
    journal, trials = begin(Journal(file)), some_trials(3)
    add(journal, trials[0])
    mine = tmp_path / "mine"
    with open(mine, "w+b") as other:
        kept = os.dup(file.fileno())
        os.dup2(other.fileno(), file.fileno())  # as after os.closerange and an open()
        with pytest.raises(JournalError, match="another file now has its descriptor"):
            add(journal, trials[1])
        add(journal, trials[2])
        assert trials_of(journal.recording(Conditions(), "")) == expected(trials)
        os.dup2(kept, file.fileno())
        os.close(kept)
    assert mine.read_bytes() == b""
    assert trials_of(recover(path)) == expected(trials[:1])


# --- iterations by link

ROWS = (Layer(0, "/a", "f", calls=1, flops=10), Layer(1, "/b", "g", calls=2))


@pytest.mark.parametrize("on_device", [False, True])
def test_rows_that_are_found_later(on_device, file, path):
    """What an iteration did not know yet is zero; calls and work are means."""
    header = Header((), Settings(), ENVIRONMENT, on_device=on_device, cpu=True, by_link=True)
    first, second = (words(7, 8, 3, 4), words(1, 2, 3, 4, 5, 6)) if on_device else (b"", b"")
    found = []
    for journal in (Journal(), Journal(file)):
        journal.begin(header)
        journal.add_rows(Rows(ROWS[:1], ("forward",), (LinkCalls("/a", "A", 1, 2),), Settings()))
        journal.add_iterations([(100, 50, (1, 1, 1, 0), words(30, 2, 15) + first)])
        journal.add(Kind.CLEAN, 200, 40, words(39))
        journal.add_rows(Rows(ROWS[1:], ("update",), (), Settings(model="later")))
        journal.add_iterations([(300, 90, (3, 2, 2, 0), words(20, 40, 1, 4, 6, 9) + second)])
        found.append(journal.recording(Conditions(), COMPLETE))
    found.append(recover(path))
    # An iteration whose end was not written is none.
    path.write_bytes(path.read_bytes()[:-8])
    assert recover(path).n_trials == 1
    for recording in found:
        assert recording.by_link
        assert recording.self_ns.tolist() == [[30, 0], [20, 40]]
        assert recording.calls.tolist() == [[2, 0], [1, 4]]
        assert recording.framework_ns.tolist() == [[15, 0], [6, 9]]
        assert recording.trial_ns.tolist() == [50, 90]
        assert recording.iteration is None  # their numbers are no training's
        assert recording.clean_ns.tolist() == [40]
        assert [(row.path, row.calls) for row in recording.layers] == [("/a", 1.5), ("/b", 2)]
        assert (recording.layers[0].flops, recording.layers[0].work_is_about) == (15, True)
        assert (recording.phases, recording.settings.model) == (("forward", "update"), "later")
        assert len(recording.links) == 1
        if on_device:
            assert recording.host_ns.tolist() == [[7, 0], [1, 2]]
            assert recording.gap_ns.tolist() == [[8, 0], [3, 4]]
            assert recording.span_ns.tolist() == [4, 6]


def test_an_iteration_that_is_not_whole_ends_the_file_and_rows_replace_single_calls(file, path):
    journal = Journal(file)
    journal.begin(Header(make_layers(3), Settings(), ENVIRONMENT))
    add(journal, (Kind.PROFILED, 100, 60, (10, 20, 30)))
    journal.add_rows(Rows(ROWS[:1], ("forward",), (), Settings(model="by link")))
    journal.add_iterations([(100, 50, (1, 1, 1, 0), words(30, 2, 15))])
    size = path.stat().st_size
    # Its number is that of its kind, and stands where a record without anything has its end.
    journal.add_iterations([(100, 50, (Kind.ITERATION, 1, 1, 0), words(30, 2, 15))])
    content = path.read_bytes()
    path.write_bytes(content[: size + 32])
    assert recover(path).n_trials == 1
    path.write_bytes(content)
    for recording in (journal.recording(Conditions(), COMPLETE), recover(path)):
        assert recording.by_link
        assert recording.self_ns.tolist() == [[30], [30]]
        assert recording.calls.tolist() == [[2], [2]]
        assert (recording.settings.model, recording.left_out) == ("by link", 0)
    # Rows that were not told.
    journal.add_iterations([(200, 50, (2, 2, 1, 0), words(30, 1, 2, 2, 15))])
    assert recover(path).n_trials == 2
